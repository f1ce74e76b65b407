#include "engine/score_store.h"

#include <gtest/gtest.h>

namespace headrace {
namespace score_store_test {

using Scores = std::vector<std::optional<TokenLogprobs>>;

// Of a block whose tokens have these alternatives; the first of a prompt has no score.
Scores scores_of(int32_t first, int num_top, bool begins_prompt = false) {
  Scores scores(kBlockTokens);
  for (int32_t i = begins_prompt ? 1 : 0; i < kBlockTokens; ++i) {
    TokenLogprobs score{-0.5f * static_cast<float>(first + i), i + 1, {}};
    for (int32_t n = 0; n < num_top; ++n) score.top.emplace_back(n, -1.0f * static_cast<float>(i));
    scores[static_cast<size_t>(i)] = score;
  }
  return scores;
}

void expect_equal(const Scores& found, const Scores& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].has_value(), wanted[i].has_value()) << i;
    if (!found[i]) continue;
    EXPECT_EQ(found[i]->logprob, wanted[i]->logprob) << i;
    EXPECT_EQ(found[i]->rank, wanted[i]->rank) << i;
    EXPECT_EQ(found[i]->top, wanted[i]->top) << i;
  }
}

TEST(ScoreStore, GivesBackWhatWasPut) {
  ScoreStore store(1 << 20);
  store.put({1, 2}, 3, scores_of(7, 3, /*begins_prompt=*/true));
  Scores found = scores_of(99, 1);  // all of it is overwritten
  ASSERT_TRUE(store.read({1, 2}, 3, found));
  expect_equal(found, scores_of(7, 3, true));
  EXPECT_FALSE(store.read({1, 3}, 3, found));
}

TEST(ScoreStore, FewerAlternativesAreTheFirstOfThem) {
  ScoreStore store(1 << 20);
  store.put({1, 2}, 5, scores_of(0, 5));
  Scores found(kBlockTokens);
  ASSERT_TRUE(store.read({1, 2}, 2, found));
  expect_equal(found, scores_of(0, 2));
  EXPECT_FALSE(store.contains({1, 2}, 6));
  EXPECT_FALSE(store.read({1, 2}, 6, found));
}

TEST(ScoreStore, KeepsTheOnesWithMoreAlternatives) {
  ScoreStore store(1 << 20);
  store.put({1, 2}, 1, scores_of(0, 1));
  store.put({1, 2}, 4, scores_of(0, 4));
  store.put({1, 2}, 2, scores_of(0, 2));
  EXPECT_EQ(store.num_blocks(), 1u);
  EXPECT_TRUE(store.contains({1, 2}, 4));
}

TEST(ScoreStore, WhatWasUsedLongestAgoGoesWhenItIsFull) {
  ScoreStore one(1 << 20);
  one.put({0, 0}, 2, scores_of(0, 2));
  ScoreStore store(3 * one.num_bytes());
  for (uint64_t i = 1; i <= 3; ++i) store.put({i, 0}, 2, scores_of(0, 2));
  Scores found(kBlockTokens);
  EXPECT_TRUE(store.read({1, 0}, 2, found));
  store.put({4, 0}, 2, scores_of(0, 2));
  EXPECT_EQ(store.num_bytes(), 3 * one.num_bytes());
  EXPECT_TRUE(store.contains({1, 0}, 2));
  EXPECT_FALSE(store.contains({2, 0}, 2));
  store.clear();
  EXPECT_EQ(store.num_bytes(), 0u);
  EXPECT_FALSE(store.contains({1, 0}, 2));
}

TEST(ScoreStore, WhatIsLargerThanAllOfItIsNotKept) {
  ScoreStore store(100);
  store.put({1, 2}, 1, scores_of(0, 1));
  EXPECT_EQ(store.num_blocks(), 0u);
}

}  // namespace score_store_test
}  // namespace headrace
