#include "model/weight_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "base/testing/temp_folder.h"
#include "checkpoint/testing/file_builders.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace weight_cache_test {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr size_t kPlanned = 3 * 4096;
constexpr uint64_t kNoLimit = uint64_t{1} << 40;

PackPlan plan_of(const std::string& description = "panels", size_t num_bytes = kPlanned) {
  return {description, num_bytes, 1};
}

Bytes some_weights() {
  Bytes bytes(kPlanned);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 % 251);
  return bytes;
}

// A checkpoint of one tensor, and a folder for what is packed of it.
class PackedFile : public ::testing::Test {
 protected:
  PackedFile() {
    const std::string header = "{" + testing::safetensors_entry("a", "F32", "[4]", 0, 16) + "}";
    testing::write_file(file_, testing::safetensors_file(header, 16));
    checkpoint_ = Checkpoint::open(file_).value();
  }

  WeightCacheOptions options(uint64_t max_bytes = kNoLimit) const {
    return {folder_.file("cache"), max_bytes, false};
  }
  WeightCache cache_with(const PackPlan& plan) const { return {*checkpoint_, plan, options()}; }
  std::optional<Bytes> read(WeightCache cache) {
    auto kept = cache.read(*backend_);
    EXPECT_TRUE(kept.ok());
    if (!kept.ok() || !kept->has_value()) return std::nullopt;
    const auto view = backend_->read_view((*kept)->data(), kPlanned);
    return Bytes(view.begin(), view.end());
  }
  Status store(WeightCache cache) {
    cache.before_packing();
    return cache.store(some_weights());
  }

  testing::TempFolder folder_;
  const std::string file_ = folder_.file("model.safetensors");
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Backend> backend_ =
      create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
};

TEST_F(PackedFile, WhatWasStoredIsRead) {
  EXPECT_EQ(read(cache_with(plan_of())), std::nullopt);
  const Status stored = store(cache_with(plan_of()));
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(read(cache_with(plan_of())), some_weights());
  EXPECT_EQ(read(cache_with(plan_of())), some_weights());
}

// Everything that decides the bytes is in the description: another one, another file.
TEST_F(PackedFile, EveryDescriptionHasAFileOfItsOwn) {
  std::set<std::string> paths;
  const std::string descriptions[] = {"", "panels", "panels\nrole 0 of 1 experts",
                                      "panels\nrole 0 of 2 experts", "panels\nrole 1 of 1 experts"};
  for (const std::string& description : descriptions) {
    paths.insert(cache_with(plan_of(description)).path());
    ASSERT_TRUE(store(cache_with(plan_of(description))).ok());
  }
  EXPECT_EQ(paths.size(), std::size(descriptions));
  for (const std::string& path : paths) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_EQ(cache_with(plan_of()).path(), cache_with(plan_of()).path());
  EXPECT_EQ(read(cache_with(plan_of("another"))), std::nullopt);
}

TEST_F(PackedFile, ThreadsAreNoPartOfTheKey) {
  PackPlan many = plan_of();
  many.num_threads = 4;
  ASSERT_TRUE(store(cache_with(plan_of())).ok());
  EXPECT_EQ(read(cache_with(many)), some_weights());
}

TEST_F(PackedFile, AFileOfAnotherSizeIsRefused) {
  ASSERT_TRUE(store(cache_with(plan_of())).ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read(cache_with(plan_of("panels", 2 * 4096))), std::nullopt);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("is not used: it has"), std::string::npos) << warning;
}

TEST_F(PackedFile, DamageIsNamed) {
  struct Case {
    std::streamoff offset;
    const char* message;
  };
  constexpr Case kCases[] = {
      {0, "it is of another kind or version"},
      {32, "it belongs to another model, layout or binary"},
      {100, "its header does not match its checksum"},
      {300, "its record of the checkpoint does not match its checksum"},
      {4096 + 5000, "bytes 4096.. do not match their checksum"},
  };
  for (const Case& c : kCases) {
    ASSERT_TRUE(store(cache_with(plan_of())).ok());
    {
      std::fstream file(cache_with(plan_of()).path(),
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(c.offset);
      const char damaged = static_cast<char>(~file.get());
      file.seekp(c.offset);
      file.put(damaged);
    }
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(read(cache_with(plan_of())), std::nullopt);
    const std::string warning = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(warning.find(c.message), std::string::npos) << warning;
  }
}

TEST_F(PackedFile, WithoutAFolderOrFilesThereIsNone) {
  EXPECT_FALSE(WeightCache(*checkpoint_, plan_of(), {}).enabled());
  EXPECT_EQ(read(WeightCache(*checkpoint_, plan_of(), {})), std::nullopt);
  const testing::FakeCheckpoint in_memory("{}");
  EXPECT_FALSE(WeightCache(in_memory, plan_of(), options()).enabled());
  EXPECT_TRUE(cache_with(plan_of()).enabled());
}

TEST_F(PackedFile, AModelBeyondTheLimitSaysWhatItNeeds) {
  const Status stored = store(WeightCache(*checkpoint_, plan_of(), options(100)));
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(stored.error().message,
            "the weight cache may hold 100 bytes, but this model needs 16384");
}

TEST_F(PackedFile, AFolderThatCannotBeMadeIsNamed) {
  folder_.write("cache", "a file where the folder should be");
  const Status stored = store(cache_with(plan_of()));
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().code, ErrorCode::kIo);
  EXPECT_NE(stored.error().message.find(folder_.file("cache")), std::string::npos)
      << stored.error().message;
}

// What was packed is a mixture if the checkpoint changed meanwhile.
TEST_F(PackedFile, AChangedCheckpointIsNotStored) {
  WeightCache cache = cache_with(plan_of());
  cache.before_packing();
  fs::remove(file_);
  const Status stored = cache.store(some_weights());
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().code, ErrorCode::kIo);
  EXPECT_NE(stored.error().message.find("model.safetensors"), std::string::npos)
      << stored.error().message;
}

}  // namespace weight_cache_test
}  // namespace headrace
