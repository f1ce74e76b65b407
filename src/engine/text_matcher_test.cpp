#include "engine/text_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headrace {
namespace text_matcher_test {

std::vector<int32_t> guess(TextMatcher& matcher, int32_t max_tokens) {
  std::vector<int32_t> ids;
  matcher.copy(matcher.find(), max_tokens, &ids);
  return ids;
}

TEST(TextMatcher, GoesOnAsBefore) {
  TextMatcher matcher;
  matcher.append(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 9, 1, 2, 3});
  EXPECT_EQ(matcher.find().length, 3);
  EXPECT_EQ(guess(matcher, 3), (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(matcher.size(), 10);
  matcher.append(std::vector<int32_t>{4});
  EXPECT_EQ(matcher.find().length, 4);
  matcher.append(std::vector<int32_t>{7});
  EXPECT_EQ(matcher.find().length, 0);
  EXPECT_TRUE(guess(matcher, 3).empty());
}

TEST(TextMatcher, TheLongestMatchCountsThenTheNewest) {
  TextMatcher matcher;
  matcher.append(std::vector<int32_t>{9, 1, 2, 3, 40, 8, 1, 2, 3, 50, 7, 1, 2, 3, 60, 9, 1, 2, 3});
  EXPECT_EQ(matcher.find().length, 4);
  EXPECT_EQ(guess(matcher, 1), (std::vector<int32_t>{40}));
  TextMatcher equal;
  equal.append(std::vector<int32_t>{1, 2, 3, 40, 8, 1, 2, 3, 50, 7, 1, 2, 3});
  EXPECT_EQ(guess(equal, 1), (std::vector<int32_t>{50}));
}

TEST(TextMatcher, ALoopGoesOn) {
  TextMatcher matcher;
  matcher.append(std::vector<int32_t>{5, 1, 2, 1, 2, 1, 2});
  EXPECT_EQ(guess(matcher, 5), (std::vector<int32_t>{1, 2, 1, 2, 1}));
}

TEST(TextMatcher, AReferenceIsContinuedToItsEnd) {
  const std::vector<int32_t> reference = {1, 2, 3, 4, 5};
  TextMatcher matcher(reference);
  EXPECT_EQ(matcher.size(), 0);
  EXPECT_EQ(matcher.find().length, 0);
  matcher.append(std::vector<int32_t>{7, 1, 2, 3});
  EXPECT_EQ(guess(matcher, 9), (std::vector<int32_t>{4, 5}));
  matcher.append(std::vector<int32_t>{4, 5});
  EXPECT_TRUE(guess(matcher, 9).empty());
}

TEST(TextMatcher, ShortTextsMatchNothing) {
  TextMatcher matcher;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(matcher.find().length, 0);
    matcher.append(std::vector<int32_t>{1});
  }
}

// Against a search of the whole text, over texts of few kinds of tokens and through the growth of
// the index. Where more places have the same end than are looked at, a shorter match may be found.
TEST(TextMatcher, EqualsASearchOfAllPlaces) {
  std::mt19937 random(7);
  for (const int num_kinds : {12, 40, 1000}) {
    TextMatcher matcher, seldom_asked;
    std::vector<int32_t> text;
    int num_found = 0;
    for (int i = 0; i < 2500; ++i) {
      const bool repeats = i > 200 && i % 100 > 60;
      text.push_back(repeats ? text[text.size() - 150]
                             : static_cast<int32_t>(random()) % num_kinds);
      matcher.append(std::span(text).last(1));
      seldom_asked.append(std::span(text).last(1));
      int32_t best = 0;
      for (size_t end = text.size() - 1; end > 0; --end) {
        int32_t length = 0;
        while (length < TextMatcher::kMaxMatch && static_cast<size_t>(length) < end &&
               text[end - 1 - static_cast<size_t>(length)] ==
                   text[text.size() - 1 - static_cast<size_t>(length)]) {
          ++length;
        }
        best = std::max(best, length);
      }
      const TextMatcher::Match match = matcher.find();
      ASSERT_EQ(match.length, best >= TextMatcher::kMinMatch ? best : 0) << i;
      num_found += match.length > 0;
      if (i % 7 >= 3) {  // some of its searches follow several tokens
        const TextMatcher::Match same = seldom_asked.find();
        ASSERT_EQ(std::pair(same.length, same.next), std::pair(match.length, match.next)) << i;
      }
      for (int32_t k = 0; k < match.length; ++k) {
        ASSERT_EQ(text[static_cast<size_t>(match.next - 1 - k)],
                  text[text.size() - 1 - static_cast<size_t>(k)]);
      }
    }
    EXPECT_GT(num_found, 500);
  }
}

}  // namespace text_matcher_test
}  // namespace headrace
