#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace edit_distance_test {

TEST(EditDistance, CountsLettersChangedAddedLeftOutAndSwapped) {
  struct Case {
    std::string_view a, b;
    size_t distance;
  };
  constexpr Case kCases[] = {
      {"", "", 0},
      {"a", "", 1},
      {"", "abc", 3},
      {"serve", "serve", 0},
      {"serve", "swerve", 1},
      {"serve", "srve", 1},
      {"serve", "sorve", 1},
      {"serve", "sevre", 1},
      {"ab", "ba", 1},
      {"abc", "cba", 2},
      {"kitten", "sitting", 3},
      {"pull", "pul", 1},
      {"llama", "lama", 1},
      {"qwen2", "qwen3", 1},
      {"flaw", "lawn", 2},
      {"ca", "abc", 3},  // of the restricted kind: no edit between a swap
      {"intention", "execution", 5},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(edit_distance(c.a, c.b), c.distance) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a), c.distance) << c.b << " " << c.a;
  }
}

TEST(EditDistance, IsAtMostTheLongerLengthAndAtLeastTheDifference) {
  const std::string words[] = {"", "a", "serve", "verify", "tokenize", "bench", "ebcnh"};
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      const size_t distance = edit_distance(a, b);
      EXPECT_LE(distance, std::max(a.size(), b.size()));
      EXPECT_GE(distance, std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
      EXPECT_EQ(distance == 0, a == b);
    }
  }
}

TEST(EditDistance, BytesAboveAsciiAreLettersToo) {
  EXPECT_EQ(edit_distance("\xC3\xA4", "\xC3\xB6"), 1u);
  EXPECT_EQ(edit_distance(std::string_view("a\0b", 3), "ab"), 1u);
}

}  // namespace edit_distance_test
}  // namespace headrace
