// Requests that pool the states of their prompt, in the scheduler.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "engine/scheduler.h"

namespace headrace {
namespace scheduler_pool_test {

SchedulerOptions make_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 16;
  options.max_logit_rows = 4;
  options.max_sequences = 4;
  options.num_blocks = 32;
  options.max_context = 128;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request make_request(Pooling pooling, int32_t num_prompt) {
  Request request;
  request.pooling = pooling;
  request.max_tokens = 0;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(i);
  return request;
}

// The state of a position is its number; what was asked for is kept.
class Driver {
 public:
  explicit Driver(SchedulerOptions options = make_options()) : scheduler(std::move(options)) {}

  // Runs until nothing is left; the last event of each request, by its id.
  std::map<RequestId, Event> run() {
    std::map<RequestId, Event> ends;
    while (!scheduler.idle()) {
      for (Event& event : step()) {
        if (event.kind == Event::Kind::kFinished) ends[event.request_id] = std::move(event);
      }
    }
    return ends;
  }

  std::vector<Event> step() {
    const StepPlan& plan = scheduler.plan(++now);
    std::vector<SpanResult> results(plan.spans.size());
    std::vector<std::vector<float>> states(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Span& span = plan.spans[i];
      EXPECT_GE(span.first_pooled, span.num_pooled > 0 ? span.first_position : 0);
      EXPECT_LE(span.first_pooled + span.num_pooled, span.end_position() + 128);
      for (int32_t k = 0; k < span.num_pooled; ++k) {
        states[i].push_back(static_cast<float>(span.first_pooled + k));
      }
      num_rows += span.num_rows;
      num_pooled += span.num_pooled;
      results[i].pooled = states[i];
      results[i].sampled.assign(static_cast<size_t>(span.num_sampled), {9});
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    return events;
  }

  Scheduler scheduler;
  TimeUs now = 1;
  int64_t num_rows = 0, num_pooled = 0;
};

TEST(SchedulerPool, EachKindGetsItsRowsInChunks) {
  for (const auto& [pooling, expected, rows] :
       {std::tuple{Pooling::kMean, 19.5f, 40}, std::tuple{Pooling::kFirst, 0.0f, 1},
        std::tuple{Pooling::kLast, 39.0f, 1}}) {
    Driver driver;
    driver.scheduler.admit(1, make_request(pooling, 40), 1);
    const Event end = driver.run().at(1);
    EXPECT_EQ(end.embedding, std::vector<float>{expected});
    EXPECT_EQ(end.reason, FinishReason::kStop);
    EXPECT_EQ(end.usage.prompt_tokens, 40);
    EXPECT_EQ(end.usage.output_tokens, 0);
    EXPECT_EQ(driver.num_rows, 40);
    EXPECT_EQ(driver.num_pooled, rows);
  }
}

TEST(SchedulerPool, TheLastRowNeedsNoMoreThanTheCacheLacks) {
  Driver driver;
  driver.scheduler.admit(1, make_request(Pooling::kLast, 40), 1);
  driver.run();
  driver.num_rows = 0;
  driver.scheduler.admit(2, make_request(Pooling::kLast, 40), 1);
  const Event end = driver.run().at(2);
  EXPECT_EQ(end.embedding, std::vector<float>{39});
  EXPECT_EQ(end.usage.cached_tokens, 39);
  EXPECT_EQ(driver.num_rows, 1);
}

TEST(SchedulerPool, EarlierRowsAreComputedWhateverIsCached) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirst}) {
    Driver driver;
    driver.scheduler.admit(1, make_request(pooling, 40), 1);
    const Event first = driver.run().at(1);
    driver.scheduler.admit(2, make_request(pooling, 40), 1);
    const Event second = driver.run().at(2);
    EXPECT_EQ(second.embedding, first.embedding);
    EXPECT_EQ(second.usage.cached_tokens, 0);
    EXPECT_EQ(driver.num_rows, 80);
  }
}

TEST(SchedulerPool, NobodyFollowsWhereRowsAreWanted) {
  Driver driver;
  for (RequestId id = 1; id <= 3; ++id) {
    driver.scheduler.admit(id, make_request(Pooling::kMean, 30), 1);
  }
  for (const auto& [id, end] : driver.run()) EXPECT_EQ(end.embedding, std::vector<float>{14.5f});
  EXPECT_EQ(driver.scheduler.stats().num_followed, 0u);
}

// Pre-empted in the middle of its prompt: each row counts once.
TEST(SchedulerPool, PreemptionCountsNoRowTwice) {
  SchedulerOptions options = make_options();
  options.num_blocks = 8;  // one prompt of 100 tokens fits, and little beside it
  options.max_context = 112;
  Driver driver(options);
  Request other;
  other.prompt_ids.assign(10, 77);
  other.max_tokens = 90;
  other.ignore_eos = true;
  driver.scheduler.admit(1, other, 1);
  for (int i = 0; i < 30; ++i) driver.step();
  driver.scheduler.admit(2, make_request(Pooling::kMean, 70), 1);
  const auto ends = driver.run();
  EXPECT_EQ(ends.at(2).embedding, std::vector<float>{34.5f});
  EXPECT_EQ(driver.num_pooled, 70);
}

TEST(SchedulerPool, ShortPromptsAreWhole) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirst, Pooling::kLast}) {
    Driver driver;
    driver.scheduler.admit(1, make_request(pooling, 1), 1);
    EXPECT_EQ(driver.run().at(1).embedding, std::vector<float>{0});
  }
}

}  // namespace scheduler_pool_test
}  // namespace headrace
