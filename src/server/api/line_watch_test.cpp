#include "server/api/line_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace line_watch_test {

// What stays of a text that comes in pieces of so many bytes; "|" behind it: the answer ended.
std::string kept(const LineRules& rules, std::string_view text, size_t piece, TimeUs elapsed = 0) {
  LineWatch watch(rules);
  std::string all;
  for (size_t i = 0; i < text.size(); i += piece) {
    const std::string_view part = text.substr(i, piece);
    if (const auto length = watch.push(part, elapsed)) {
      return all + std::string(part.substr(0, *length)) + "|";
    }
    all += part;
  }
  return all;
}

TEST(LineWatch, ALineThatIsIndentedLessEndsTheAnswer) {
  const LineRules rules{.indent = 2};
  for (const size_t piece : {1, 2, 3, 100}) {
    EXPECT_EQ(kept(rules, "a\n  b\n\t c\nd\n", piece), "a\n  b\n\t c\n|");
    EXPECT_EQ(kept(rules, "a\n  b\n c", piece), "a\n  b\n |");
    EXPECT_EQ(kept(rules, "a\n\n  b", piece), "a\n|") << "a line of nothing has no indentation";
    EXPECT_EQ(kept(rules, "a\n   b\n  ", piece), "a\n   b\n  ");
    EXPECT_EQ(kept({}, "a\n\nb\n", piece), "a\n\nb\n");
  }
}

TEST(LineWatch, TheLineInWhichTheTimeIsOverIsTheLast) {
  const LineRules rules{.time = 1000};
  for (const size_t piece : {1, 2, 100}) {
    EXPECT_EQ(kept(rules, "a\nb\n", piece, 1000), "a\nb\n");
    EXPECT_EQ(kept(rules, "a\nb\n", piece, 1001), "a\n|");
    EXPECT_EQ(kept(rules, "abc", piece, 5000), "abc") << "a line is not cut";
  }
}

}  // namespace line_watch_test
}  // namespace headrace
