// Bytes become whole characters, however they are cut; what is no character becomes marks.
#include "text/joiner.h"

#include <gtest/gtest.h>

namespace headrace {
namespace joiner_test {

const std::string kMark = "\xEF\xBF\xBD";

std::string marks(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += kMark;
  return text;
}

// `bytes` in two pieces, cut at `cut`.
std::string joined(std::string_view bytes, bool mark_each_byte, size_t cut) {
  Utf8Joiner joiner(mark_each_byte);
  std::string text;
  joiner.push(bytes.substr(0, cut), &text);
  joiner.push(bytes.substr(cut), &text);
  joiner.finish(&text);
  return text;
}

void expect_joined(std::string_view bytes, bool mark_each_byte, const std::string& expected) {
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(joined(bytes, mark_each_byte, cut), expected) << cut << " of " << bytes.size();
  }
}

TEST(Utf8Joiner, WholeCharactersStayAsTheyAre) {
  for (const std::string_view text :
       {"", "plain\n", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF",
        "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\xA6\x99z"}) {
    expect_joined(text, false, std::string(text));
    expect_joined(text, true, std::string(text));
  }
}

struct Broken {
  std::string_view bytes;
  size_t num_sequences;  // marks: one for each maximal broken sequence
  size_t num_bytes;      // one for each byte
};

// Unicode standard, table 3-7 and section 3.9 on maximal subparts.
TEST(Utf8Joiner, BrokenSequencesBecomeMarks) {
  constexpr Broken kCases[] = {
      {"\x80", 1, 1},
      {"\xBF\xBF", 2, 2},
      {"\xC0\xAF", 2, 2},  // overlong
      {"\xC1\x80", 2, 2},
      {"\xE0\x80\x80", 3, 3},      // overlong
      {"\xED\xA0\x80", 3, 3},      // a surrogate
      {"\xF0\x80\x80\x80", 4, 4},  // overlong
      {"\xF4\x90\x80\x80", 4, 4},  // above the last
      {"\xF5\x80", 2, 2},
      {"\xFF\xFE", 2, 2},
      {"\xC3", 1, 1},  // cut
      {"\xE2\x82", 1, 2},
      {"\xF0\x9F\xA6", 1, 3},
      {"\xE2\x82\xE2\x82", 2, 4},
      {"\xF0\x9F\xC3", 2, 3},
  };
  for (const Broken& c : kCases) {
    expect_joined(c.bytes, false, marks(c.num_sequences));
    expect_joined(c.bytes, true, marks(c.num_bytes));
  }
}

TEST(Utf8Joiner, WhatFollowsABrokenSequenceIsReadAfresh) {
  expect_joined(
      "\xE2\x82"
      "a",
      false, kMark + "a");
  expect_joined("\xF0\x9F\xC3\xA4", false, kMark + "\xC3\xA4");
  expect_joined("\xE2\x28\xA1", false, kMark + "(" + kMark);
  expect_joined(
      "x\xF0\x9F\xA6"
      "y",
      true, "x" + marks(3) + "y");
}

TEST(Utf8Joiner, NothingIsShownBeforeItIsWhole) {
  Utf8Joiner joiner(false);
  std::string text;
  for (const char byte : std::string_view("\xF0\x9F\xA6")) joiner.push({&byte, 1}, &text);
  EXPECT_EQ(text, "");
  joiner.push("\x99", &text);
  EXPECT_EQ(text, "\xF0\x9F\xA6\x99");
  joiner.finish(&text);
  EXPECT_EQ(text, "\xF0\x9F\xA6\x99") << "nothing is left";
}

TEST(Utf8Joiner, FinishingEndsOneTextAndNotTheNext) {
  Utf8Joiner joiner(false);
  std::string text;
  joiner.push("\xE2\x82", &text);
  joiner.finish(&text);
  joiner.push(
      "\xAC"
      "a",
      &text);
  EXPECT_EQ(text, marks(2) + "a");
}

}  // namespace joiner_test
}  // namespace headrace
