// A rehearsal goes on through starts and ends of its streams, and guesses that are right and wrong.
#include "engine/rehearsal.h"

#include <gtest/gtest.h>

#include "engine/text_drafter.h"

namespace headrace {
namespace rehearsal_test {

SchedulerOptions engine_options(Drafter* drafter) {
  SchedulerOptions options;
  options.drafter = drafter;
  options.max_draft_tokens = 16;
  options.inter_token_target_us = 50'000;
  return options;
}

TEST(Rehearsal, TakesEveryWayThatTheEngineTakes) {
  TextDrafter drafter;
  Rehearsal rehearsal(engine_options(&drafter));
  for (int i = 0; i < 3000; ++i) rehearsal.step();
  const SchedulerStats& stats = rehearsal.core().scheduler().stats();
  EXPECT_EQ(stats.num_steps, 3000U);
  const auto& drafts = stats.drafts[static_cast<size_t>(DraftSource::kText)];
  EXPECT_GT(drafts.num_tokens, 1000U);
  EXPECT_GT(drafts.num_accepted, 500U);
  EXPECT_GT(drafts.num_tokens - drafts.num_accepted, 100U) << "some are refused";
  EXPECT_GT(rehearsal.core().snapshot().num_requests, 8U) << "streams end, and others begin";
  EXPECT_EQ(rehearsal.core().snapshot().num_running, 2);
}

TEST(Rehearsal, GuessesOnlyWhereTheEngineDoes) {
  Rehearsal rehearsal(engine_options(nullptr));
  for (int i = 0; i < 100; ++i) rehearsal.step();
  const SchedulerStats& stats = rehearsal.core().scheduler().stats();
  EXPECT_EQ(stats.drafts[static_cast<size_t>(DraftSource::kText)].num_tokens, 0U);
  EXPECT_GE(stats.generation_tokens, 2 * 98U) << "the second stream may wait for the first";
  EXPECT_LE(stats.generation_tokens, 2 * 99U) << "the last step is not committed";
}

}  // namespace rehearsal_test
}  // namespace headrace
