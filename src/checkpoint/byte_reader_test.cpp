#include "checkpoint/byte_reader.h"

#include <gtest/gtest.h>

#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace byte_reader_test {

using testing::ByteWriter;

TEST(ByteReader, ReadsFrontToBackLittleEndian) {
  ByteWriter writer;
  writer.put(uint8_t{7}).put(uint32_t{0x01020304}).put(-5LL).put(1.5f).text("name").raw("rest");
  ByteReader reader(writer.bytes(), "file");
  EXPECT_EQ(reader.bytes_left(), writer.size());
  EXPECT_EQ(*reader.read<uint8_t>("a"), 7);
  EXPECT_EQ(reader.offset(), 1u);
  EXPECT_EQ(*reader.read<uint32_t>("b"), 0x01020304u);
  EXPECT_EQ(*reader.read<int64_t>("c"), -5);
  EXPECT_EQ(*reader.read<float>("d"), 1.5f);
  EXPECT_EQ(*reader.read_text(4, "e"), "name");
  EXPECT_EQ(reader.take(4, "f")->size(), 4u);
  EXPECT_EQ(reader.bytes_left(), 0u);
  EXPECT_TRUE(reader.take(0, "nothing at the end").ok());
}

TEST(ByteReader, NeverLeavesTheFileAndSaysWhatItLacks) {
  ByteWriter writer;
  writer.put(uint32_t{1}).put(uint16_t{2});
  struct Case {
    uint64_t num_bytes;
    std::string message;
  };
  const Case cases[] = {
      {3, "m.gguf: the table at byte 4 needs 3 bytes, the file has 2 left"},
      {UINT64_MAX,
       "m.gguf: the table at byte 4 needs 18446744073709551615 bytes, the file has 2 "
       "left"},
      {UINT64_MAX - 3,
       "m.gguf: the table at byte 4 needs 18446744073709551612 bytes, the file has "
       "2 left"},
  };
  for (const Case& c : cases) {
    ByteReader reader(writer.bytes(), "m.gguf");
    ASSERT_TRUE(reader.read<uint32_t>("the start").ok());
    const auto taken = reader.take(c.num_bytes, "the table");
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(taken.error().message, c.message);
    EXPECT_EQ(taken.error().hint,
              "the file may be truncated: compare its size with the original and fetch it again");
    EXPECT_EQ(reader.offset(), 4u) << "a failed read takes nothing";
    EXPECT_EQ(*reader.read<uint16_t>("the end"), 2);
  }
}

TEST(ByteReader, TextsAreBoundedByTheFileAndByTheirLimit) {
  ByteWriter fits;
  fits.text("abcdef");
  EXPECT_EQ(*ByteReader(fits.bytes(), "f").read_text(6, "a key"), "abcdef");
  EXPECT_EQ(ByteReader(fits.bytes(), "f").read_text(5, "a key").error().message,
            "f: a key at byte 0 is 6 bytes long, at most 5 are allowed");
  ByteWriter cut;
  cut.put(uint64_t{9}).raw("abc");
  EXPECT_EQ(ByteReader(cut.bytes(), "f").read_text(100, "a key").error().message,
            "f: a key at byte 8 needs 9 bytes, the file has 3 left");
  ByteWriter headless;
  headless.put(uint32_t{1});
  EXPECT_EQ(ByteReader(headless.bytes(), "f").read_text(100, "a key").error().message,
            "f: a key at byte 0 needs 8 bytes, the file has 4 left");
  ByteWriter empty;
  empty.text("");
  EXPECT_EQ(*ByteReader(empty.bytes(), "f").read_text(0, "a key"), "");
}

TEST(ByteReader, NamesOfTheFileAreQuotedInMessages) {
  ByteReader reader({}, "f");
  EXPECT_EQ(reader.read<uint32_t>(ReadWhat("tensor", "a\n'b")).error().message,
            "f: tensor 'a\\x0a\\x27b' at byte 0 needs 4 bytes, the file has 0 left");
  EXPECT_EQ(ReadWhat("the key count").to_string(), "the key count");
}

TEST(ByteReader, AnyAlignmentIsRead) {
  for (size_t shift = 0; shift < 8; ++shift) {
    ByteWriter writer;
    writer.zeros(shift).put(0x1122334455667788ULL).put(2.25);
    ByteReader reader(writer.bytes(), "f");
    ASSERT_TRUE(reader.take(shift, "padding").ok());
    EXPECT_EQ(*reader.read<uint64_t>("word"), 0x1122334455667788ULL);
    EXPECT_EQ(*reader.read<double>("number"), 2.25);
  }
}

TEST(ByteReader, BracesInNamesAreNoFormats) {
  const ByteReader reader({}, "{}.gguf");
  EXPECT_EQ(reader.corrupt("{} is wrong", "{0}").message, "{}.gguf: {0} is wrong");
}

}  // namespace byte_reader_test
}  // namespace headrace
