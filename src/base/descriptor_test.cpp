#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace descriptor_test {

using testing::TempFolder;

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Descriptor, ClosesWhatItOwnsOnceAndOnlyOnce) {
  const int number = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(number, 0);
  {
    Descriptor first(number);
    EXPECT_TRUE(first.ok());
    const Descriptor second(std::move(first));
    EXPECT_FALSE(first.ok());  // NOLINT: what is moved from owns nothing
    EXPECT_EQ(second.get(), number);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
  const Descriptor none(-1);
  EXPECT_FALSE(none.ok());
}

TEST(Descriptor, FilesThatAreNotThereAreNotFoundOthersAreTheSystemsReason) {
  const TempFolder folder;
  const auto missing = open_file(folder.file("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message,
            "cannot open '" + folder.file("missing") + "': No such file or directory");
  const std::string file = folder.write("file", "x");
  const auto below_a_file = open_file(file + "/below");
  ASSERT_FALSE(below_a_file.ok());
  EXPECT_EQ(below_a_file.error().code, ErrorCode::kIo);
  EXPECT_EQ(below_a_file.error().message, "cannot open '" + file + "/below': Not a directory");
}

TEST(Descriptor, OpenedFilesAreNotPassedToPrograms) {
  const TempFolder folder;
  const auto file = open_file(folder.write("file", "x"));
  ASSERT_TRUE(file.ok());
  EXPECT_NE(fcntl(file->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Descriptor, AFifoWithoutAWriterIsOpenedWithoutWaiting) {
  const TempFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(open_file(path).ok());
}

TEST(Descriptor, ReadsFromAnyOffset) {
  const TempFolder folder;
  const std::string path = folder.write("file", "0123456789");
  const Descriptor file = open_file(path).value();
  struct Case {
    size_t offset, count;
    std::string text;
  };
  for (const Case& c : {Case{0, 10, "0123456789"}, {3, 4, "3456"}, {9, 1, "9"}, {10, 0, ""}}) {
    std::vector<std::byte> bytes(c.count);
    const Status read = read_at(file.get(), c.offset, bytes, path);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(text_of(bytes), c.text);
  }
}

TEST(Descriptor, AFileThatEndsTooEarlySaysWhereAndHowMuchWasMissing) {
  const TempFolder folder;
  const std::string path = folder.write("file", "0123456789");
  const Descriptor file = open_file(path).value();
  std::vector<std::byte> bytes(8);
  const Status cut = read_at(file.get(), 6, bytes, path);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kIo);
  EXPECT_EQ(cut.error().message, "'" + path + "' ends at byte 10, 4 more were expected");
  const Status beyond = read_at(file.get(), 100, bytes, path);
  EXPECT_EQ(beyond.error().message, "'" + path + "' ends at byte 100, 8 more were expected");
}

TEST(Descriptor, WhatCannotBeReadSaysWhy) {
  std::vector<std::byte> bytes(1);
  const Status closed = read_at(-1, 0, bytes, "somewhere");
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().message, "cannot read 'somewhere': Bad file descriptor");
  const Descriptor folder(::open("/", O_RDONLY));
  EXPECT_EQ(read_at(folder.get(), 0, bytes, "/").error().message,
            "cannot read '/': Is a directory");
}

}  // namespace descriptor_test
}  // namespace headrace
