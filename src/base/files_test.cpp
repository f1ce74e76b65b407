// Stamps of files, mappings that move, memory that is given back; the identity of this binary.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/buffer.h"
#include "base/build_id.h"
#include "base/descriptor.h"
#include "base/testing/temp_folder.h"

namespace headrace {
namespace files_test {

namespace fs = std::filesystem;
using testing::TempFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(FileStamp, IsTheSameUntilTheFileChanges) {
  const TempFolder folder;
  const std::string path = folder.write("file", "abc");
  const FileStamp first = FileStamp::of(open_file(path)->get(), path).value();
  EXPECT_EQ(first.num_bytes, 3u);
  EXPECT_EQ(FileStamp::of(path).value(), first);
  EXPECT_EQ(FileStamp::of(open_file(path)->get(), path).value(), first);
}

TEST(FileStamp, ShowsEveryWayInWhichAFileChanges) {
  const TempFolder folder;
  const std::string path = folder.write("file", "abc");
  const auto stamp = [&] { return FileStamp::of(open_file(path)->get(), path).value(); };
  const auto expect_change = [&](const char* what, const auto& change) {
    const FileStamp before = stamp();
    change();
    EXPECT_FALSE(stamp() == before) << what;
  };
  expect_change("same length, other bytes", [&] { folder.write("file", "xyz"); });
  expect_change("longer", [&] { folder.write("file", "abcd"); });
  expect_change("replaced by a copy with the same times", [&] {
    const std::string copy = folder.file("copy");
    fs::copy_file(path, copy);
    fs::last_write_time(copy, fs::last_write_time(path));
    fs::rename(copy, path);
  });
  expect_change("permissions", [&] { fs::permissions(path, fs::perms::owner_read); });
}

TEST(FileStamp, IsOfRegularFilesOnly) {
  const TempFolder folder;
  const auto missing = FileStamp::of(folder.file("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const auto of_folder = FileStamp::of(folder.path());
  ASSERT_FALSE(of_folder.ok());
  EXPECT_EQ(of_folder.error().code, ErrorCode::kIo);
  EXPECT_EQ(of_folder.error().message,
            "cannot read '" + folder.path() + "': it is not a regular file");
}

TEST(MappedFile, MovesWithItsBytesPathAndStamp) {
  const TempFolder folder;
  MappedFile one = MappedFile::open(folder.write("one", "first")).value();
  MappedFile two = MappedFile::open(folder.write("two", "second!")).value();
  EXPECT_EQ(one.path(), folder.file("one"));
  EXPECT_EQ(one.stamp().num_bytes, 5u);
  const MappedFile moved = std::move(one);
  EXPECT_EQ(text_of(moved), "first");
  EXPECT_EQ(moved.path(), folder.file("one"));
  MappedFile assigned;
  EXPECT_TRUE(assigned.bytes().empty());
  assigned = std::move(two);
  EXPECT_EQ(text_of(assigned), "second!");
  EXPECT_EQ(assigned.stamp().num_bytes, 7u);
}

TEST(MappedFile, PagesThatAreReleasedAreReadAgainFromTheFile) {
  const TempFolder folder;
  std::string text(1 << 16, 'a');
  text[40'000] = 'b';
  const MappedFile file = MappedFile::open(folder.write("file", text)).value();
  EXPECT_EQ(text_of(file), text);
  file.release_pages(0, text.size());
  file.release_pages(100, 10);           // less than a page: nothing
  file.release_pages(1 << 15, 1 << 20);  // beyond the end: nothing
  file.release_pages(text.size(), 0);
  EXPECT_EQ(text_of(file), text);
}

TEST(Buffer, AssignmentKeepsEachOwnersMemoryApart) {
  Buffer one = Buffer::allocate(100).value();
  Buffer two = Buffer::allocate(200).value();
  one.data()[0] = std::byte{1};
  two.data()[0] = std::byte{2};
  const std::byte* const memory = two.data();
  one = std::move(two);
  EXPECT_EQ(one.data(), memory);
  EXPECT_EQ(one.data()[0], std::byte{2});
  one = Buffer();
  EXPECT_TRUE(one.size() == 0 || one.data() != nullptr);
}

TEST(Buffer, IsSeenAsWholeElementsOfAnyType) {
  const Buffer buffer = Buffer::allocate(4096).value();
  EXPECT_EQ(buffer.as<double>().size(), 512u);
  struct Odd {
    char bytes[7];
  };
  EXPECT_EQ(buffer.as<Odd>().size(), 4096u / 7);
}

TEST(Buffer, LargeOnesBeginAtALargePage) {
  const Buffer buffer = Buffer::allocate(size_t{9} << 20).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (size_t{2} << 20), 0u);
}

TEST(Buffer, WhatTheSystemRefusesNamesTheSize) {
  const auto refused = Buffer::allocate(size_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("1048576 TiB"), std::string::npos)
      << refused.error().message;
}

TEST(BuildId, IsHexAndTheSameEachTime) {
  const std::string id = build_id();
  EXPECT_GE(id.size(), 16u) << "the linker is told to write one (CMakeLists.txt)";
  EXPECT_EQ(id.size() % 2, 0u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  EXPECT_EQ(build_id(), id);
}

}  // namespace files_test
}  // namespace headrace
