#include "cli/word_wrap.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace headrace {
namespace word_wrap_test {

std::vector<std::string> wrapped(const std::string& text, int columns, size_t piece) {
  WordWrap wrap(columns);
  std::string written;
  for (size_t at = 0; at < text.size(); at += piece) written += wrap.feed(text.substr(at, piece));
  written += wrap.finish();
  std::vector<std::string> lines{""};
  for (const char c : written) {
    c == '\n' ? static_cast<void>(lines.emplace_back()) : lines.back().push_back(c);
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(WordWrap, BreaksBetweenWordsHoweverTheTextComes) {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  const Lines expected{"The quick ", "brown fox ", "jumps over", "the lazy ", "dog"};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(wrapped(text, 11, piece), expected) << piece;
  }
}

TEST(WordWrap, KeepsLinesAndIndentsOfTheText) {
  EXPECT_EQ(wrapped("if x:\n    y = 1\n\nend", 20, 3), (Lines{"if x:", "    y = 1", "", "end"}));
}

TEST(WordWrap, CutsOnlyWordsThatAreLongerThanALine) {
  EXPECT_EQ(wrapped("abcdefghijklmnop q", 9, 1), (Lines{"abcdefgh", "ijklmnop", "q"}));
}

TEST(WordWrap, ShowsEachWordAsSoonAsItIsWhole) {
  WordWrap wrap(80);
  EXPECT_EQ(wrap.feed("Hel"), "");
  EXPECT_EQ(wrap.feed("lo,"), "");
  EXPECT_EQ(wrap.feed(" wor"), "Hello, ");
  EXPECT_EQ(wrap.feed("ld.\n"), "world.\n");
  EXPECT_EQ(wrap.finish(), "");
}

TEST(WordWrap, CountsWideCharactersTwice) {
  use_utf8_locale();
  WordWrap wrap(7);
  EXPECT_EQ(wrap.feed("日本語"), "日本語");
  EXPECT_EQ(wrap.feed("学"), "\n学");
  WordWrap accents(6);
  const std::string text = "e\u0301e\u0301e\u0301e\u0301e\u0301";
  const std::string fed = accents.feed(text);
  EXPECT_EQ(fed + accents.finish(), text);
}

TEST(WordWrap, LeavesOutWhatWouldSteerTheTerminal) {
  WordWrap wrap(80);
  EXPECT_EQ(wrap.feed("a\x1b[2Jb\r\x07\u009b! "), "a[2Jb! ");
  EXPECT_EQ(without_controls("a\x1b]0;title\x07\tb\n"), "a]0;title\tb\n");
}

}  // namespace word_wrap_test
}  // namespace headrace
