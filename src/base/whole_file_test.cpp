// Output that is whole or not there, links that stay, and streams that are no files.
#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/descriptor.h"
#include "base/testing/temp_folder.h"

namespace headrace {
namespace whole_file_test {

namespace fs = std::filesystem;
using testing::TempFolder;

Status put(const std::string& path, std::string_view text) {
  const auto file = TRY(WholeFile::create(path));
  TRY(file->write(std::as_bytes(std::span(text))));
  return file->publish();
}

int entries_of(const TempFolder& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder.path()), {}));
}

TEST(WholeFile, AppearsAndIsReplacedWhole) {
  const TempFolder folder;
  const std::string path = folder.file("report");
  {
    const auto file = WholeFile::create(path).value();
    ASSERT_TRUE(file->write(std::as_bytes(std::span("half", 4))).ok());
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(entries_of(folder), 0) << "what was not published";
  ASSERT_TRUE(put(path, "first").ok());
  ASSERT_TRUE(put(path, "second").ok());
  EXPECT_EQ(folder.read("report"), "second");
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(WholeFile, LinksStayAndLeadToTheFile) {
  const TempFolder folder, other;
  fs::create_symlink("far", folder.path() + "/near");
  fs::create_symlink(other.file("there"), folder.path() + "/far");
  ASSERT_TRUE(put(folder.file("near"), "first").ok()) << "nothing is behind the links yet";
  EXPECT_EQ(other.read("there"), "first");
  ASSERT_TRUE(put(folder.file("near"), "second").ok());
  EXPECT_EQ(other.read("there"), "second");
  EXPECT_TRUE(fs::is_symlink(folder.path() + "/near"));
  EXPECT_TRUE(fs::is_symlink(folder.path() + "/far"));
  EXPECT_EQ(entries_of(folder), 2);
  EXPECT_EQ(entries_of(other), 1);
}

TEST(WholeFile, AFifoIsWrittenTo) {
  const TempFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(is_stream(path));
  const Descriptor reader = open_file(path).value();
  ASSERT_TRUE(put(path, "all of it").ok());
  EXPECT_TRUE(fs::is_fifo(path));
  std::string text(64, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(reader.get(), text.data(), 64))));
  EXPECT_EQ(text, "all of it");
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(WholeFile, WhatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  fs::create_symlink("loop", folder.file("loop"));
  fs::create_directories(folder.file("taken"));
  for (const char* name : {"taken", "none/report", "loop", "loop/report"}) {
    const Status refused = put(folder.file(name), "text");
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kIo);
    EXPECT_NE(refused.error().message.find(folder.file(name)), std::string::npos);
    EXPECT_FALSE(is_stream(folder.file(name)));
  }
  EXPECT_EQ(entries_of(folder), 2);
}

}  // namespace whole_file_test
}  // namespace headrace
