// What a sequence keeps for the sampler, and outputs that go round in a loop.
#include <gtest/gtest.h>

#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace headrace {
namespace scheduler_sampling_test {

class FixedDrafter final : public Drafter {
 public:
  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      for (int32_t i = 0; i < std::min(task.max_tokens, 3); ++i) {
        task.draft.token_ids.push_back(11 + i);
      }
    }
    return 0;
  }
};

class SamplingStateTest : public testing::Test {
 protected:
  SchedulerOptions options(bool drafts) {
    SchedulerOptions options;
    options.max_batch_tokens = 32;
    options.max_logit_rows = 8;
    options.max_sequences = 4;
    options.num_blocks = 8;
    options.max_context = 128;
    options.end_ids = {2};
    options.rope_epoch = [](int64_t) { return int64_t{0}; };
    if (drafts) options.drafter = &drafter_;
    options.max_draft_tokens = 3;
    options.drafts_must_pay = false;
    return options;
  }

  static Request request() {
    Request request;
    request.prompt_ids = {1, 11, 1, 11};
    request.max_tokens = 40;
    return request;
  }

  // The lone sequence's rows give these tokens, each of this surprise.
  std::vector<Event> commit(Scheduler* scheduler, std::vector<int32_t> token_ids,
                            double surprise = 0) {
    const StepPlan& plan = scheduler->plan(2);
    num_drafts_ = plan.spans[0].num_draft;
    std::vector<SpanResult> results(1);
    for (const int32_t id : token_ids) {
      results[0].sampled.push_back({id, {}, {}, {}, surprise});
    }
    std::vector<Event> events;
    scheduler->commit(results, 3, &events);
    return events;
  }

  FixedDrafter drafter_;
  int32_t num_drafts_ = 0;
};

TEST_F(SamplingStateTest, MirostatsBoundFollowsTheTokensAndNobodyGuesses) {
  Scheduler scheduler(options(/*drafts=*/true));
  Request given = request();
  given.sampling.mirostat = true;
  given.sampling.mirostat_tau = 3;
  given.sampling.mirostat_eta = 0.5f;
  scheduler.admit(1, given, 1);
  EXPECT_EQ(scheduler.find(1)->mirostat_bound, 6);
  commit(&scheduler, {11}, 5);
  EXPECT_EQ(scheduler.find(1)->mirostat_bound, 5);
  commit(&scheduler, {11}, 1);
  EXPECT_EQ(scheduler.find(1)->mirostat_bound, 6);
  EXPECT_EQ(num_drafts_, 0);
}

TEST_F(SamplingStateTest, TheHistoryHoldsWhatIsKnownAndNoGuesses) {
  Scheduler scheduler(options(/*drafts=*/true));
  Request given = request();
  given.sampling.presence_penalty = 1;
  scheduler.admit(1, given, 1);
  commit(&scheduler, {10});
  commit(&scheduler, {11, 9, 13, 14});  // 11, 12, 13 were guessed
  EXPECT_EQ(num_drafts_, 3);
  std::vector<float> logits(20);
  const Sequence& sequence = *scheduler.find(1);
  sequence.history->penalise(sequence.tokens, logits.data());
  std::vector<float> expected(20);
  for (const size_t id : {10u, 11u, 9u}) expected[id] = -1;
  EXPECT_EQ(logits, expected);
  scheduler.admit(2, request(), 1);
  EXPECT_EQ(scheduler.find(2)->history, nullptr) << "nothing asks for it";
}

TEST_F(SamplingStateTest, ALoopEndsTheOutputAndSaysSo) {
  Scheduler scheduler(options(/*drafts=*/false));
  Request given = request();
  given.repetition_stop = {2, 4, 3};
  scheduler.admit(1, given, 1);
  for (const int32_t id : {1, 11, 1, 11, 1}) {
    EXPECT_EQ(commit(&scheduler, {id}).size(), 1u) << "the prompt's tokens do not count";
  }
  const std::vector<Event> events = commit(&scheduler, {11});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].token_id, 11);
  EXPECT_EQ(events[1].reason, FinishReason::kStop);
  EXPECT_TRUE(events[1].repeats);
  EXPECT_EQ(events[1].stop_id, -1);
  EXPECT_EQ(events[1].usage.output_tokens, 6);
}

// The loop is complete with the second of the guesses: what was guessed behind it does not come.
TEST_F(SamplingStateTest, ALoopEndsWithinGuessesWhereItEndsWithout) {
  Scheduler scheduler(options(/*drafts=*/true));
  Request given = request();
  given.repetition_stop = {2, 2, 2};
  scheduler.admit(1, given, 1);
  commit(&scheduler, {11});
  commit(&scheduler, {12, 0, 0, 0});  // 11 was guessed
  const std::vector<Event> events = commit(&scheduler, {11, 12, 13, 14});
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].token_id, 12);
  EXPECT_TRUE(events[2].repeats);
  EXPECT_TRUE(scheduler.idle());
}

TEST_F(SamplingStateTest, OtherEndsAreNoLoops) {
  Scheduler scheduler(options(/*drafts=*/false));
  Request given = request();
  given.repetition_stop = {1, 4, 3};
  given.max_tokens = 2;
  scheduler.admit(1, given, 1);
  commit(&scheduler, {7});
  const std::vector<Event> events = commit(&scheduler, {7});
  EXPECT_EQ(events[1].reason, FinishReason::kLength);
  EXPECT_FALSE(events[1].repeats);
}

}  // namespace scheduler_sampling_test
}  // namespace headrace
