#include "engine/tiers/store_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace store_folder_test {

namespace fs = std::filesystem;

const StoreIdentity kOne = {{"model", "m"}, {"kv type", "f16"}};
const StoreIdentity kTwo = {{"model", "m"}, {"kv type", "f32"}};

class FolderTest : public ::testing::Test {
 protected:
  Result<StoreFolder> open(const StoreIdentity& identity = kOne, uint64_t max_bytes = 1000) {
    return StoreFolder::open(path_, identity, max_bytes);
  }
  std::string name_of(const StoreIdentity& identity) {
    return fs::path(open(identity)->path()).filename().string();
  }

  testing::TempFolder folder_;
  const std::string path_ = folder_.file("store");
};

TEST_F(FolderTest, TheKeyStaysAndIsSecret) {
  const HashKey first = open()->key();
  const HashKey second = open()->key();
  EXPECT_EQ(first.first, second.first);
  EXPECT_EQ(first.second, second.second);
  EXPECT_NE(first.first, 0u);
  struct stat status{};
  ASSERT_EQ(stat((path_ + "/key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  fs::permissions(path_ + "/key", fs::perms::group_read, fs::perm_options::add);
  EXPECT_NE(open().error().message.find("that nobody else may read"), std::string::npos);
  fs::resize_file(path_ + "/key", 3);
  EXPECT_NE(open().error().message.find("has 3 bytes"), std::string::npos);
}

TEST_F(FolderTest, OneWriter) {
  const StoreFolder first = open().value();
  EXPECT_TRUE(first.is_writer());
  EXPECT_FALSE(open()->is_writer());
  EXPECT_TRUE(open(kTwo)->is_writer());  // other options: a folder of its own
}

TEST_F(FolderTest, OthersMayNotWriteThere) {
  open().value();
  fs::permissions(path_, fs::perms::group_write, fs::perm_options::add);
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_NE(refused.error().message.find("has owner"), std::string::npos);
}

TEST_F(FolderTest, LinksBelowItAreNotFollowed) {
  const std::string name = name_of(kOne);
  fs::remove_all(path_ + "/" + name);
  fs::create_directory(folder_.file("elsewhere"));
  fs::create_directory_symlink(folder_.file("elsewhere"), path_ + "/" + name);
  EXPECT_FALSE(open().ok());
  EXPECT_TRUE(fs::is_empty(folder_.file("elsewhere")));
}

TEST_F(FolderTest, AFileIsNoFolder) {
  folder_.write("store", "text");
  EXPECT_EQ(open().error().message, "cannot open the folder '" + path_ + "': Not a directory");
}

TEST_F(FolderTest, OthersKeepHalfAtMostTheNewest) {
  const std::string other = path_ + "/" + name_of(kTwo);
  for (const char* name : {"0000000001.kv", "0000000002.kv", "0000000003.kv"}) {
    folder_.write("store/" + fs::path(other).filename().string() + "/" + name,
                  std::string(300, 'x'));
  }
  using Clock = fs::file_time_type::clock;
  for (int i = 1; i <= 3; ++i) {
    fs::last_write_time(fmt::format("{}/000000000{}.kv", other, i),
                        Clock::now() - std::chrono::hours(9 - 2 * (i % 3)));  // 3 is the oldest
  }
  EXPECT_EQ(open(kOne, 2000)->max_bytes(), 1100u);
  EXPECT_EQ(open(kOne, 1300)->max_bytes(), 700u);
  EXPECT_FALSE(fs::exists(other + "/0000000003.kv"));
  EXPECT_TRUE(fs::exists(other + "/0000000001.kv") && fs::exists(other + "/0000000002.kv"));
  const StoreFolder held = open(kTwo).value();  // its files stay while it is in use
  EXPECT_EQ(open(kOne, 1000)->max_bytes(), 500u);
  EXPECT_TRUE(fs::exists(other + "/0000000001.kv"));
}

}  // namespace store_folder_test
}  // namespace headrace
