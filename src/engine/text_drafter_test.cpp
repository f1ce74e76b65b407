#include "engine/text_drafter.h"

#include <gtest/gtest.h>

namespace headrace {
namespace text_drafter_test {

Draft guess(TextDrafter* drafter, const Sequence& sequence, int32_t max_tokens = 4) {
  std::vector<DraftTask> tasks = {{&sequence, max_tokens}};
  EXPECT_EQ(drafter->propose(tasks), 0);
  return tasks[0].draft;
}

TEST(TextDrafter, FollowsEachSequenceByItself) {
  TextDrafter drafter;
  Sequence first, second;
  first.id = 1;
  first.tokens = {1, 2, 3, 4, 5, 1, 2, 3};
  second.id = 2;
  second.tokens = {1, 2, 3};
  EXPECT_EQ(guess(&drafter, first, 2).token_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_TRUE(guess(&drafter, second).token_ids.empty());
  first.tokens.insert(first.tokens.end(), {4, 6, 7});
  first.num_draft = 2;  // 6 and 7 are guesses
  const Draft draft = guess(&drafter, first, 1);
  EXPECT_EQ(draft.token_ids, std::vector<int32_t>{5});
  EXPECT_EQ(draft.ground.source, DraftSource::kText);
  EXPECT_EQ(draft.ground.match_length, 4);
  // The same id again after its end would be another sequence.
  drafter.forget(1);
  first.tokens = {7, 8, 9};
  EXPECT_TRUE(guess(&drafter, first).token_ids.empty());
}

TEST(TextDrafter, WhatTheClientExpectsIsGuessedFrom) {
  TextDrafter drafter;
  Sequence sequence;
  sequence.id = 1;
  sequence.request.predicted_ids = {10, 11, 12, 13, 14};
  sequence.tokens = {1, 10, 11, 12};
  const Draft draft = guess(&drafter, sequence);
  EXPECT_EQ(draft.token_ids, (std::vector<int32_t>{13, 14}));
  EXPECT_EQ(draft.ground.source, DraftSource::kPrediction);
}

}  // namespace text_drafter_test
}  // namespace headrace
