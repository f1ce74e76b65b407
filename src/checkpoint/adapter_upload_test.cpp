#include "checkpoint/adapter_upload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace adapter_upload_test {

namespace fs = std::filesystem;

class AdapterUploadTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> made(count);
    for (size_t i = 0; i < count; ++i) made[i] = static_cast<std::byte>(i * 7 % 251);
    return made;
  }

  const testing::TempFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(AdapterUploadTest, IsReadAsOftenAsItIsWanted) {
  const std::vector<std::byte> sent = bytes(100'000);
  const auto upload = AdapterUpload::keep(folder_.string(), "{}", sent);
  ASSERT_TRUE(upload.ok()) << upload.error().message;
  for (int i = 0; i < 2; ++i) {
    const auto files = (*upload)->read();
    ASSERT_TRUE(files.ok());
    EXPECT_EQ(files->config, "{}");
    ASSERT_EQ(files->num_bytes, sent.size());
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), files->bytes().begin()));
  }
}

TEST_F(AdapterUploadTest, NoPathLeadsToIt) {
  const auto upload = AdapterUpload::keep(folder_.string(), "{}", bytes(10));
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE(fs::is_empty(folder_));
  fs::remove_all(folder_);
  EXPECT_TRUE((*upload)->read().ok()) << "it does not need the folder";
}

TEST_F(AdapterUploadTest, AnEmptyFileIsReadAsOne) {
  const auto upload = AdapterUpload::keep(folder_.string(), "", {});
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE((*upload)->read()->bytes().empty());
}

TEST_F(AdapterUploadTest, WhatCannotBeKeptIsRefused) {
  const auto nowhere = AdapterUpload::keep((folder_ / "none").string(), "{}", bytes(10));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  const auto large = AdapterUpload::keep(folder_.string(),
                                         std::string(kMaxAdapterConfigBytes + 1, ' '), bytes(10));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message,
            "the configuration of the adapter has 1048577 bytes, at most 1048576");
}

}  // namespace adapter_upload_test
}  // namespace headrace
