// The file of tenants: what it makes, and what is said of one that is wrong.
#include "cli/tenants_file.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace tenants_file_test {

using testing::TempFolder;

const std::vector<ApiKey> kKeys = {{.name = "ann"}, {.name = "bob"}, plain_api_key("plain")};

std::string problem(const std::string& contents) {
  const TempFolder folder;
  const std::string path = folder.write("tenants.toml", contents);
  const auto read = read_tenants_file(path, kKeys);
  EXPECT_FALSE(read.ok()) << contents;
  if (read.ok()) return {};
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(read.error().message.starts_with(path)) << read.error().message;
  return read.error().message.substr(path.size());
}

TEST(TenantsFile, HasATableForEach) {
  const TempFolder folder;
  const auto read = read_tenants_file(
      folder.write("t.toml",
                   "[night]\nparent = \"org\"\nkeys = [\"bob\"]\ncache = \"shared\"\n"
                   "[org]\nweight = 3\nguarantee = 0.25\nburst = 2.5 # seconds\nkeys=[\"ann\"]\n"),
      kKeys);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  const ConfiguredTenant& night = read->at(0);
  EXPECT_EQ(night.spec.name, "night");
  EXPECT_EQ(night.spec.parent, "org");
  EXPECT_EQ(night.spec.weight, 1);
  EXPECT_EQ(night.keys, std::vector<std::string>{"bob"});
  EXPECT_TRUE(night.shares_cache);
  const ConfiguredTenant& org = read->at(1);
  EXPECT_EQ(org.spec.weight, 3);
  EXPECT_EQ(org.spec.guarantee, 0.25);
  EXPECT_EQ(org.spec.burst_s, 2.5);
  EXPECT_FALSE(org.shares_cache);
}

TEST(TenantsFile, WhatIsWrongIsSaidWithItsPlace) {
  EXPECT_EQ(problem("[a]\nweight = = 1\n").substr(0, 8), ", line 2");
  EXPECT_EQ(problem(""), " holds no tenant: each begins with [NAME]");
  EXPECT_EQ(problem("a = 1\n"), ", line 1: a is no table: a tenant begins with [a]");
  EXPECT_EQ(problem("[other]\n"),
            ", line 1: 'other' is no name of a tenant: it needs 1 to 64 letters, digits or any of "
            "- _ . @, and 'other' is taken");
  EXPECT_EQ(problem("[a]\nwieght = 1\n"),
            ", line 2: there is no field 'wieght' of a tenant, but weight");
  EXPECT_EQ(problem("[a]\nweight = \"1\"\n"), ", line 2: weight of tenant 'a' must be a number");
  EXPECT_EQ(problem("[a]\nparent = 1\n"),
            ", line 2: parent of tenant 'a' must be the name of another, in quotes");
  EXPECT_EQ(problem("[a]\ncache = \"mine\"\n"),
            ", line 2: cache of tenant 'a' must be \"separate\" or \"shared\"");
  EXPECT_EQ(problem("[a]\nkeys = \"ann\"\n"),
            ", line 2: keys of tenant 'a' must be a list of names in quotes");
  EXPECT_EQ(problem("[a]\nkeys = [\"ann\",\n\"eve\"]\n"),
            ", line 3: tenant 'a' has the key 'eve', but no key of --api-key-file has that name");
  EXPECT_EQ(problem("[a]\nkeys = [\"ann\"]\n[b]\nkeys = [\"ann\"]\n"),
            ", line 4: tenant 'b' has the key 'ann', which tenant 'a' has already");
  EXPECT_EQ(problem("[a]\nweight = -1\n"),
            ": tenant 'a' has the weight -1, but it must be from 1e-06 to 1000000");
  EXPECT_EQ(problem("[a]\nparent = \"b\"\n"),
            ": tenant 'a' has the parent 'b', which is no tenant");
}

TEST(ServedTenants, AreOfNamedKeysAndStayWhereAFileIsWrong) {
  const TempFolder folder;
  ServedTenants served("secret");
  EXPECT_TRUE(served.read("", {}).ok()) << "no file: no tenants";
  uint64_t seen = 0;
  EXPECT_FALSE(served.book().newer_than(&seen));
  const std::string path = folder.write("t.toml", "[a]\nkeys = [\"ann\"]\ncache = \"shared\"\n");
  EXPECT_EQ(served.read(path, {plain_api_key("plain")}).error().message,
            "--tenants is '" + path +
                "', but it needs --api-key-file with keys that have names (headrace key makes "
                "them): tenants are made of those");
  EXPECT_EQ(served.read(folder.file("none"), kKeys).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(served.read(path, kKeys).ok());
  const auto specs = served.book().newer_than(&seen);
  ASSERT_TRUE(specs);
  EXPECT_EQ(specs->front().clients, std::vector<uint64_t>{client_of(kKeys[0], "secret")});
  folder.write("t.toml", "[a]\nkeys = [\"eve\"]\n");
  EXPECT_FALSE(served.read(path, kKeys).ok());
  EXPECT_FALSE(served.book().newer_than(&seen));
  std::vector<ApiKey> keys = kKeys;
  keys[1].cache_group = "old";
  served.mark(&keys);
  EXPECT_EQ(keys[0].cache_group, "a");
  EXPECT_EQ(keys[1].cache_group, "");
  EXPECT_EQ(keys[2].cache_group, "");
}

}  // namespace tenants_file_test
}  // namespace headrace
