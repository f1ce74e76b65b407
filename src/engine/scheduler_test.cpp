#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace {

SchedulerOptions make_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = 64;
  options.max_context = 256;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request make_request(int32_t num_prompt, int32_t max_tokens) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), 5);
  request.max_tokens = max_tokens;
  return request;
}

// A request whose prompt shares nothing with others: no prefix hits.
Request unlike_request(int32_t num_prompt, int32_t max_tokens, int32_t token) {
  Request request = make_request(num_prompt, max_tokens);
  std::fill(request.prompt_ids.begin(), request.prompt_ids.end(), token);
  return request;
}

class Driver {
 public:
  explicit Driver(SchedulerOptions options) : scheduler(std::move(options)) {}

  const StepPlan& plan() { return scheduler.plan(++now); }
  // Every sampling span gets this token.
  std::vector<Event> commit(const StepPlan& plan, int32_t token_id) {
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].token_id = token_id;
      results[i].scored.resize(static_cast<size_t>(plan.spans[i].num_scored));
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    return events;
  }
  std::vector<Event> step(int32_t token_id = 9) { return commit(plan(), token_id); }
  int32_t planned_tokens(RequestId id) {
    for (const PlannedSpan& span : last().spans) {
      if (span.sequence->id == id) return span.num_tokens;
    }
    return 0;
  }
  const StepPlan& last() const { return *last_plan; }
  const StepPlan& keep(const StepPlan& plan) { return *(last_plan = &plan); }

  Scheduler scheduler;
  const StepPlan* last_plan = nullptr;
  TimeUs now = 1;
};

TEST(Scheduler, PromptIsComputedInChunksThenTokensOneByOne) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(70, 3), 1);
  for (const int32_t expected : {32, 32, 6}) {
    const StepPlan& plan = driver.plan();
    ASSERT_EQ(plan.spans.size(), 1u);
    EXPECT_EQ(plan.spans[0].num_tokens, expected);
    EXPECT_EQ(plan.spans[0].samples, expected == 6);
    driver.commit(plan, 9);
  }
  EXPECT_EQ(driver.step().size(), 1u);
  const std::vector<Event> events = driver.step();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].token_id, 9);
  EXPECT_EQ(events[1].reason, FinishReason::kLength);
  EXPECT_EQ(events[1].usage.output_tokens, 3);
  EXPECT_TRUE(driver.scheduler.idle());
}

TEST(Scheduler, TokensGoFirstAndShortPromptsOvertakeLongOnes) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(2, 50, 3), 1);
  driver.step();
  driver.scheduler.admit(2, unlike_request(200, 5, 4), 1);
  driver.step();
  driver.scheduler.admit(3, unlike_request(10, 5, 6), 1);
  const StepPlan& plan = driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(1), 1);
  EXPECT_EQ(driver.planned_tokens(3), 10);  // whole, although the long one is older
  EXPECT_EQ(driver.planned_tokens(2), 21);
  EXPECT_EQ(plan.spans[0].sequence->id, 1u);
  driver.commit(plan, 9);
}

TEST(Scheduler, OldestChunkKeepsHalfOfTheBudget) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(200, 5, 3), 1);
  driver.scheduler.admit(2, unlike_request(40, 5, 4), 1);
  driver.scheduler.admit(3, unlike_request(30, 5, 6), 1);
  const StepPlan& plan = driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(3), 16);
  EXPECT_EQ(driver.planned_tokens(2), 0);
  EXPECT_EQ(driver.planned_tokens(1), 16);
  driver.commit(plan, 9);
}

TEST(Scheduler, ExhaustionPreemptsTheYoungestAndKeepsItsOutput) {
  SchedulerOptions options = make_options();
  options.num_blocks = 5;
  options.max_context = 80;
  Driver driver(options);
  driver.scheduler.admit(1, unlike_request(15, 60, 3), 1);
  driver.scheduler.admit(2, unlike_request(15, 60, 4), 1);
  while (driver.scheduler.stats().num_preemptions == 0) driver.step();
  const Sequence* young = driver.scheduler.find(2);
  EXPECT_FALSE(young->running);
  EXPECT_EQ(young->num_computed, 0);
  EXPECT_GT(young->num_output(), 10);
  EXPECT_TRUE(driver.scheduler.find(1)->running);
  const int32_t kept = young->num_output();
  std::vector<Event> finished;
  while (!driver.scheduler.idle()) {
    for (Event& event : driver.step()) {
      if (event.kind == Event::Kind::kFinished) finished.push_back(event);
    }
  }
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].request_id, 1u);
  EXPECT_EQ(finished[1].usage.output_tokens, 60);
  EXPECT_GT(kept, 0);
}

TEST(Scheduler, ProtectedRequestStartsWithItsWholeLengthReserved) {
  SchedulerOptions options = make_options();
  options.num_blocks = 8;
  options.max_context = 128;
  Driver driver(options);
  driver.scheduler.admit(1, unlike_request(10, 110, 3), 1);
  driver.scheduler.admit(2, unlike_request(10, 60, 4), 1);
  RequestId next = 3;
  int32_t most = 0;
  for (int i = 0; i < 3000 && !driver.scheduler.idle(); ++i) {
    if (i % 20 == 0 && next < 40) {
      driver.scheduler.admit(next, unlike_request(10, 60, static_cast<int32_t>(next)), 1);
      ++next;
    }
    driver.step();
    for (const RequestId id : driver.scheduler.ids()) {
      const Sequence* sequence = driver.scheduler.find(id);
      most = std::max(most, sequence->num_preemptions);
      ASSERT_LE(sequence->num_preemptions, kMaxPreemptions);
      if (sequence->running && sequence->num_preemptions == kMaxPreemptions) {
        ASSERT_TRUE(sequence->table.covers(sequence->max_known));
      }
    }
  }
  EXPECT_TRUE(driver.scheduler.idle());
  EXPECT_GT(most, 0);
}

TEST(Scheduler, SecondRequestWithTheSamePromptHitsTheCache) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(40, 1), 1);
  while (!driver.scheduler.idle()) driver.step();
  driver.scheduler.admit(2, make_request(40, 1), 1);
  const StepPlan& plan = driver.plan();
  EXPECT_EQ(plan.spans[0].first_position, 32);
  EXPECT_EQ(plan.spans[0].num_tokens, 8);
  const std::vector<Event> events = driver.commit(plan, 9);
  EXPECT_EQ(events.back().usage.cached_tokens, 32);
}

TEST(Scheduler, PromptScoringIsLimitedByLogitRowsAndSkipsTheCache) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(20, 1), 1);
  while (!driver.scheduler.idle()) driver.step();
  Request request = make_request(20, 1);
  request.num_prompt_logprobs = 0;
  driver.scheduler.admit(2, request, 1);
  std::vector<std::pair<int32_t, int32_t>> steps;  // tokens, logit rows
  std::vector<Event> events;
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    steps.push_back({plan.num_tokens, plan.num_logit_rows});
    events = driver.commit(plan, 9);
  }
  EXPECT_EQ(steps, (std::vector<std::pair<int32_t, int32_t>>{{8, 8}, {8, 8}, {4, 4}}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, Event::Kind::kPromptLogprobs);
  EXPECT_EQ(events[0].prompt_logprobs.size(), 20u);
  EXPECT_EQ(events[1].kind, Event::Kind::kToken);
  EXPECT_EQ(events[2].kind, Event::Kind::kFinished);
}

TEST(Scheduler, NewRopeEpochComputesFromTheBeginning) {
  SchedulerOptions options = make_options();
  options.rope_epoch = [](int64_t num_tokens) -> int64_t { return num_tokens > 20 ? 1 : 0; };
  Driver driver(options);
  driver.scheduler.admit(1, make_request(18, 10), 1);
  driver.step();
  driver.step();
  driver.step();  // 21 tokens are known now
  const StepPlan& plan = driver.plan();
  EXPECT_EQ(plan.spans[0].first_position, 0);
  EXPECT_EQ(plan.spans[0].num_tokens, 21);
  EXPECT_EQ(plan.spans[0].rope_epoch, 1);
  driver.commit(plan, 9);
  EXPECT_EQ(driver.plan().spans[0].num_tokens, 1);
}

TEST(Scheduler, CancelInFlightEndsWithTheStep) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(5, 5), 1);
  driver.scheduler.admit(2, make_request(300 - 60, 5), 1);
  const StepPlan& plan = driver.plan();
  std::vector<Event> events;
  driver.scheduler.cancel(1, driver.now, &events);
  driver.scheduler.cancel(77, driver.now, &events);
  EXPECT_TRUE(events.empty());
  events = driver.commit(plan, 9);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request_id, 1u);
  EXPECT_EQ(events[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(events[0].usage.output_tokens, 0);
}

TEST(Scheduler, FailedRowEndsThatSequenceAndFreesItsBlocks) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(20, 5, 3), 1);
  driver.scheduler.admit(2, unlike_request(5, 5, 4), 1);
  const StepPlan& plan = driver.plan();
  std::vector<SpanResult> results(plan.spans.size());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].token_id = 9;
    results[i].failed = plan.spans[i].sequence->id == 1;
    results[i].failure = "broken row";
  }
  std::vector<Event> events;
  driver.scheduler.commit(results, driver.now, &events);
  ASSERT_EQ(events.size(), 2u);
  const Event& failed = events[0].request_id == 1 ? events[0] : events[1];
  EXPECT_EQ(failed.reason, FinishReason::kError);
  EXPECT_EQ(failed.error.message, "broken row");
  EXPECT_EQ(driver.scheduler.take_poisoned_blocks().size(), 2u);
  EXPECT_TRUE(driver.scheduler.take_poisoned_blocks().empty());
  EXPECT_NE(driver.scheduler.find(2), nullptr);
}

TEST(Scheduler, StopIdsEndAndAreNotCounted) {
  Driver driver(make_options());
  Request request = make_request(5, 10);
  request.stop_ids = {8};
  request.ignore_eos = true;
  driver.scheduler.admit(1, request, 1);
  EXPECT_EQ(driver.step(2)[0].kind, Event::Kind::kToken);  // an end id, ignored
  const std::vector<Event> events = driver.step(8);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].reason, FinishReason::kStop);
  EXPECT_EQ(events[0].stop_id, 8);
  EXPECT_EQ(events[0].usage.output_tokens, 1);
}

}  // namespace
}  // namespace headrace
