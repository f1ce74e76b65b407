#include "checkpoint/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace text_file_test {

using testing::TempFolder;

TEST(TextFile, IsReadWholeWithEveryByte) {
  const TempFolder folder;
  const std::string text("{\"a\": 1}\r\n\0\xFF end", 16);
  const auto read = read_text_file(folder.write("config.json", text), text.size());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, text);
  EXPECT_EQ(*read_text_file(folder.write("empty.json", ""), 0), "");
}

TEST(TextFile, OneThatIsTooLargeIsNotRead) {
  const TempFolder folder;
  const std::string path = folder.write("config.json", "0123456789");
  const auto refused = read_text_file(path, 9);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message, "'" + path + "' has 10 bytes, at most 9 are read");
  EXPECT_TRUE(read_text_file(path, 10).ok());
}

TEST(TextFile, WhatIsNoFileIsNamed) {
  const TempFolder folder;
  EXPECT_EQ(read_text_file(folder.file("none.json"), 10).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_text_file(folder.path(), 10).error().message,
            "cannot read '" + folder.path() + "': it is not a regular file");
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(read_text_file(fifo, 10).error().code, ErrorCode::kIo) << "and nobody waits";
}

TEST(TextFile, ItsStampShowsALaterChange) {
  const TempFolder folder;
  const std::string path = folder.write("config.json", "one");
  FileStamp stamp;
  ASSERT_TRUE(read_text_file(path, 10, &stamp).ok());
  EXPECT_EQ(stamp.num_bytes, 3u);
  EXPECT_EQ(FileStamp::of(path).value(), stamp);
  folder.write("config.json", "two");
  EXPECT_FALSE(FileStamp::of(path).value() == stamp);
}

TEST(TextFile, NamesThatStayInTheirFolder) {
  for (const std::string_view good : {"config.json", "a", ".hidden", "..config", "a b", "...",
                                      "\xC3\xA4.json", "model-00001-of-2"}) {
    EXPECT_TRUE(is_plain_file_name(good)) << good;
  }
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("."), std::string_view(".."),
        std::string_view("a/b"), std::string_view("/etc/passwd"), std::string_view("../x"),
        std::string_view("a\\b"), std::string_view("a\0b", 3), std::string_view("\0", 1)}) {
    EXPECT_FALSE(is_plain_file_name(bad)) << bad;
  }
}

}  // namespace text_file_test
}  // namespace headrace
