#include "engine/step_log.h"

#include <gtest/gtest.h>

namespace headrace {
namespace step_log_test {

SchedulerOptions make_options(int max_batch_tokens = 8) {
  SchedulerOptions options;
  options.max_batch_tokens = max_batch_tokens;
  options.max_logit_rows = 4;
  options.max_sequences = 2;
  options.num_blocks = 8;
  options.max_context = 64;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

// Runs one request to its end and logs it.
void run(StepLog* log) {
  Scheduler scheduler(make_options());
  Request request;
  request.prompt_ids.assign(20, 3);
  request.max_tokens = 4;
  log->admitted(1, request, 5);
  scheduler.admit(1, request, 5);
  std::vector<Event> events;
  for (TimeUs now = 10; !scheduler.idle(); now += 10) {
    const StepPlan& plan = scheduler.plan(now);
    log->planned(plan, scheduler, now);
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {7});
    }
    log->committed(results, now + 5);
    scheduler.commit(results, now + 5, &events);
  }
}

TEST(StepLog, RecordsWhatStepsDid) {
  StepLog log(100, true);
  run(&log);
  const std::vector<StepRecord> records = log.recent(100);
  ASSERT_EQ(records.size(), 6u);  // 8 + 8 + 4 prompt tokens, then three single ones
  EXPECT_EQ(records[0].num_prompt_tokens, 8);
  EXPECT_EQ(records[2].num_tokens, 4);
  EXPECT_EQ(records[1].token_ids, std::vector<int32_t>());
  EXPECT_EQ(records[2].token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(records[3].num_prompt_tokens, 0);
  EXPECT_EQ(records[3].spans[0].first_position, 20);
  EXPECT_EQ(records[1].committed_us - records[1].planned_us, 5);
  ASSERT_EQ(records[0].inputs.size(), 1u);
  EXPECT_TRUE(records[0].inputs[0].request.prompt_ids.empty());  // not for display
}

TEST(StepLog, ReplayAgreesAndSeesOtherRules) {
  StepLog log(100, true);
  run(&log);
  EXPECT_TRUE(log.replay(make_options()).ok());
  EXPECT_EQ(log.replay(make_options(9)).error().code, ErrorCode::kInternal);
}

TEST(StepLog, RingKeepsTheNewestAndRefusesReplay) {
  StepLog log(4, true);
  run(&log);
  const std::vector<StepRecord> records = log.recent(3);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[2].step_idx, 5u);
  EXPECT_EQ(log.recent(100).size(), 4u);
  EXPECT_EQ(log.replay(make_options()).error().code, ErrorCode::kUnavailable);
  StepLog without_requests(100, false);
  run(&without_requests);
  EXPECT_EQ(without_requests.replay(make_options()).error().code, ErrorCode::kUnavailable);
}

}  // namespace step_log_test
}  // namespace headrace
