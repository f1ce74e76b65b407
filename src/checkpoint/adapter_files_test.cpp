#include "checkpoint/adapter_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace {
namespace adapter_files_test {

namespace fs = std::filesystem;

class AdapterFilesTest : public ::testing::Test {
 protected:
  AdapterFilesTest()
      : base_(fs::temp_directory_path() / ("headrace-adapters-" + std::to_string(getpid()))),
        root_(base_ / "root") {
    write(root_ / "good");
    write(root_ / "deep" / "er");
    write(base_ / "outside");
  }
  ~AdapterFilesTest() override { fs::remove_all(base_); }

  static void write(const fs::path& folder) {
    fs::create_directories(folder);
    std::ofstream(folder / "adapter_config.json") << "{}";
    std::ofstream(folder / "adapter_model.safetensors") << "weights";
  }
  Error refused(std::string_view path) const {
    const auto files = read_adapter_folder_under(root_.string(), path);
    EXPECT_FALSE(files.ok()) << path;
    return files.ok() ? Error{} : files.error();
  }

  const fs::path base_, root_;
};

TEST_F(AdapterFilesTest, AFolderBelowTheRootIsRead) {
  const std::string absolute = (root_ / "good").string();
  for (const std::string& path :
       std::vector<std::string>{"good", "good/", "deep/er", absolute.c_str()}) {
    const auto files = read_adapter_folder_under(root_.string(), path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    EXPECT_EQ(files->config, "{}");
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(files->bytes().data()), 7), "weights");
    EXPECT_EQ(files->bytes().size(), 7u);
  }
  EXPECT_TRUE(read_adapter_folder(absolute).ok());
  EXPECT_TRUE(read_adapter_folder_under(root_.string() + "/", "good").ok());
}

TEST_F(AdapterFilesTest, PathsThatLeadOutAreRefusedAsSuch) {
  const std::string outside = (base_ / "outside").string(), beside = root_.string() + "x/good";
  for (const std::string& path :
       {std::string(".."), std::string("../outside"), std::string("good/../../outside"),
        std::string("./good"), std::string("good//"), std::string(""), std::string("/"),
        std::string("//good"), outside, beside, root_.string(), std::string("good\0x", 6),
        std::string(4096, 'a'), std::string("good/."), root_.string() + "/../outside"}) {
    const Error error = refused(path);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << path;
    EXPECT_NE(error.message.find("below the adapters' root"), std::string::npos) << path;
  }
  EXPECT_EQ(refused("..%2foutside").code, ErrorCode::kNotFound) << "a name like any other";
}

TEST_F(AdapterFilesTest, LinksAreNotFollowed) {
  fs::create_directory_symlink(base_ / "outside", root_ / "link");
  fs::create_directory_symlink(base_, root_ / "up");
  for (const char* path : {"link", "up/outside"}) {
    EXPECT_NE(refused(path).message.find("links are not followed"), std::string::npos);
  }
  fs::create_directories(root_ / "soft");
  std::ofstream(root_ / "soft" / "adapter_config.json") << "{}";
  fs::create_symlink(base_ / "outside" / "adapter_model.safetensors",
                     root_ / "soft" / "adapter_model.safetensors");
  EXPECT_NE(refused("soft").message.find("links are not followed"), std::string::npos);
  fs::remove(root_ / "soft" / "adapter_model.safetensors");
  fs::create_hard_link(base_ / "outside" / "adapter_model.safetensors",
                       root_ / "soft" / "adapter_model.safetensors");
  EXPECT_NE(refused("soft").message.find("with one name"), std::string::npos);
}

TEST_F(AdapterFilesTest, WhatIsNoFileIsRefusedAtOnce) {
  fs::create_directories(root_ / "fifo");
  ASSERT_EQ(mkfifo((root_ / "fifo" / "adapter_config.json").c_str(), 0600), 0);
  EXPECT_NE(refused("fifo").message.find("no regular file"), std::string::npos);
  fs::create_directories(root_ / "nested" / "adapter_config.json");
  EXPECT_NE(refused("nested").message.find("no regular file"), std::string::npos);
  EXPECT_NE(refused("good/adapter_config.json").message.find("no folder"), std::string::npos);
}

TEST_F(AdapterFilesTest, WhatIsMissingOrTooLargeIsNamed) {
  EXPECT_EQ(refused("none").code, ErrorCode::kNotFound);
  fs::remove(root_ / "good" / "adapter_model.safetensors");
  EXPECT_EQ(refused("good").code, ErrorCode::kNotFound);
  std::ofstream(root_ / "good" / "adapter_model.bin") << "pickle";
  EXPECT_NE(refused("good").message.find("can run code"), std::string::npos);
  fs::resize_file(root_ / "deep" / "er" / "adapter_config.json", kMaxAdapterConfigBytes + 1);
  EXPECT_NE(refused("deep/er").message.find("at most"), std::string::npos);
  fs::resize_file(root_ / "deep" / "er" / "adapter_config.json", 2);
  fs::resize_file(root_ / "deep" / "er" / "adapter_model.safetensors", kMaxAdapterBytes + 1);
  EXPECT_NE(refused("deep/er").message.find("at most"), std::string::npos);
}

}  // namespace adapter_files_test
}  // namespace headrace
