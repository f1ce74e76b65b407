// What bounds waiting: order by priority, passes of who lacks blocks, protection, queue times and
// deadlines.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/scheduler.h"

namespace headrace {
namespace scheduler_bounds_test {

SchedulerOptions bounds_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = 8;
  options.max_context = 128;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

// Prompts of different ids share nothing.
Request bounds_request(RequestId id, int32_t num_prompt, int32_t max_tokens, int32_t priority = 0) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), static_cast<int32_t>(id));
  request.max_tokens = max_tokens;
  request.priority = priority;
  return request;
}

class BoundsTest : public testing::Test {
 protected:
  void begin(const SchedulerOptions& options) { scheduler_ = std::make_unique<Scheduler>(options); }

  void step() {
    for (const RequestId id : scheduler_->take_expired(now_)) {
      scheduler_->end(id, FinishReason::kExpired, now_, &events_);
    }
    if (scheduler_->idle()) return;
    const StepPlan& plan = scheduler_->plan(now_);
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {9});
    }
    scheduler_->commit(results, ++now_, &events_);
    const Status sound = scheduler_->check();
    ASSERT_TRUE(sound.ok()) << sound.error().message;
  }
  std::vector<RequestId> finish_all() {
    for (int i = 0; i < 5000 && !scheduler_->idle(); ++i) step();
    EXPECT_TRUE(scheduler_->idle());
    std::vector<RequestId> order;
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kFinished) order.push_back(event.request_id);
    }
    return order;
  }
  bool runs(RequestId id) const { return scheduler_->find(id)->running; }
  const Event& end_of(RequestId id) const {
    return *std::find_if(events_.begin(), events_.end(), [id](const Event& event) {
      return event.request_id == id && event.kind == Event::Kind::kFinished;
    });
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Event> events_;
  TimeUs now_ = 1000;
};

TEST_F(BoundsTest, LowerPriorityComesFirstAmongTheWaiting) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 1;
  begin(options);
  const std::map<RequestId, int32_t> priorities = {{1, 0}, {2, 3}, {3, -2}, {4, 0}, {5, -2}};
  for (const auto& [id, priority] : priorities) {
    scheduler_->admit(id, bounds_request(id, 3, 2, priority), now_);
    if (id == 1) step();  // it runs already, and goes on
  }
  EXPECT_EQ(finish_all(), (std::vector<RequestId>{1, 3, 5, 4, 2}));
}

// A level is worth priority_age: who came that much earlier is first all the same.
TEST_F(BoundsTest, NobodyIsPassedForLongerThanAPriorityIsWorth) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 1;
  options.priority_age = 1000;
  begin(options);
  scheduler_->admit(1, bounds_request(1, 3, 2), 0);
  scheduler_->admit(2, bounds_request(2, 3, 2, 1), 0);  // as if it came at 1000
  scheduler_->admit(3, bounds_request(3, 3, 2), 999);
  scheduler_->admit(4, bounds_request(4, 3, 2), 1001);
  scheduler_->admit(5, bounds_request(5, 3, 2, -1), 1500);  // as if at 500
  EXPECT_EQ(finish_all(), (std::vector<RequestId>{1, 5, 3, 2, 4}));
}

TEST_F(BoundsTest, PriorityIsOfNoUseAgainstOtherClients) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 1;
  begin(options);
  for (RequestId id = 1; id <= 8; ++id) {
    Request request = bounds_request(id, 3, 2, id % 2 == 0 ? -kMaxPriority : 0);
    request.client = id % 2;
    scheduler_->admit(id, std::move(request), now_);
  }
  const std::vector<RequestId> order = finish_all();
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    EXPECT_NE(order[i] % 2, order[i + 1] % 2) << "a turn of each in " << i;
  }
}

TEST_F(BoundsTest, WhoLacksBlocksIsPassedByThoseThatFitButNotForever) {
  SchedulerOptions options = bounds_options();
  options.max_passes = 3;
  begin(options);
  scheduler_->admit(1, bounds_request(1, 60, 60), now_);
  step();
  step();
  scheduler_->admit(2, bounds_request(2, 100, 10), now_);  // seven blocks of eight
  for (RequestId id = 3; id <= 12; ++id) scheduler_->admit(id, bounds_request(id, 3, 2), now_);
  const std::vector<RequestId> order = finish_all();
  const auto place = [&](RequestId id) {
    return std::find(order.begin(), order.end(), id) - order.begin();
  };
  EXPECT_LT(place(3), place(1));
  EXPECT_LT(place(5), place(1));
  EXPECT_GT(place(6), place(1)) << "a fourth has passed";
  EXPECT_EQ(std::count_if(order.begin(), order.end(),
                          [&](RequestId id) { return id > 2 && place(id) < place(2); }),
            3);
}

// Slots are not passed on: who waits for one is first.
TEST_F(BoundsTest, NobodyPassesWhoWaitsForASlot) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 2;
  options.num_blocks = 32;
  begin(options);
  for (RequestId id = 1; id <= 6; ++id) scheduler_->admit(id, bounds_request(id, 5, 5), now_);
  EXPECT_EQ(finish_all(), (std::vector<RequestId>{1, 2, 3, 4, 5, 6}));
}

// With lengths of the whole context, as chat has without max_tokens: what is protected starts, and
// more than one of them runs where the pool holds more than one.
TEST_F(BoundsTest, TheProtectedGrowTogetherAndAllFinish) {
  SchedulerOptions options = bounds_options();
  options.num_blocks = 20;
  options.max_context = 128;
  options.max_preemptions = 0;  // all are protected
  begin(options);
  for (RequestId id = 1; id <= 12; ++id) scheduler_->admit(id, bounds_request(id, 10, 200), now_);
  int most_running = 0;
  for (int i = 0; i < 3000 && !scheduler_->idle(); ++i) {
    const uint64_t before = scheduler_->stats().generation_tokens;
    step();
    most_running = std::max(most_running, scheduler_->num_running());
    ASSERT_GT(scheduler_->stats().generation_tokens, before) << "nobody went on in step " << i;
  }
  EXPECT_EQ(finish_all().size(), 12u);
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0u);
  EXPECT_GE(most_running, 3);
}

TEST_F(BoundsTest, TheProtectedAreNotPreemptedAgain) {
  SchedulerOptions options = bounds_options();
  options.max_preemptions = 1;
  begin(options);
  std::set<RequestId> ran_protected;
  for (RequestId id = 1; id <= 30; ++id) scheduler_->admit(id, bounds_request(id, 10, 118), now_);
  for (int i = 0; i < 20'000 && !scheduler_->idle(); ++i) {
    step();
    for (const RequestId id : scheduler_->ids()) {
      const Sequence& sequence = *scheduler_->find(id);
      ASSERT_LE(sequence.num_preemptions, 1);
      const bool is_protected = sequence.num_preemptions == 1;
      if (sequence.running && is_protected) ran_protected.insert(id);
      ASSERT_TRUE(sequence.running || !ran_protected.contains(id)) << id;
    }
  }
  EXPECT_EQ(finish_all().size(), 30u);
  EXPECT_FALSE(ran_protected.empty());
}

TEST_F(BoundsTest, QueueTimeEndsWhoHasNotBegun) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 1;
  begin(options);
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = bounds_request(id, 3, 40);
    request.max_queue_us = id == 3 ? 1'000'000 : 20'000;
    scheduler_->admit(id, std::move(request), now_);
  }
  step();
  now_ += 19'000;
  step();
  EXPECT_NE(scheduler_->find(2), nullptr);
  now_ += 2'000;
  step();
  EXPECT_EQ(scheduler_->find(2), nullptr);
  EXPECT_TRUE(runs(1)) << "it had begun";
  EXPECT_EQ(end_of(2).reason, FinishReason::kExpired);
  EXPECT_TRUE(end_of(2).failed());
  EXPECT_EQ(end_of(2).error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(end_of(2).error.message,
            "the request has waited for 20 ms, as long as it allowed, and has not begun");
  EXPECT_EQ(finish_all(), (std::vector<RequestId>{2, 1, 3}));
}

TEST_F(BoundsTest, DeadlineEndsWhereverTheRequestIs) {
  SchedulerOptions options = bounds_options();
  options.max_sequences = 1;
  begin(options);
  for (RequestId id = 1; id <= 2; ++id) {
    Request request = bounds_request(id, 3, 100);
    request.deadline_us = 50'000;
    request.arrived_us = 1'000;
    request.max_queue_us = id == 2 ? 90'000 : 0;
    scheduler_->admit(id, std::move(request), now_ + 10'000);
  }
  for (int i = 0; i < 5; ++i) step();
  now_ = 51'000;
  step();
  ASSERT_TRUE(scheduler_->idle());
  EXPECT_EQ(end_of(1).error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(end_of(1).error.message,
            "the answer is not complete 50 ms after the request came, its deadline; it has 5 "
            "tokens");
  EXPECT_EQ(end_of(1).usage.output_tokens, 5);
  EXPECT_EQ(end_of(2).error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(scheduler_->kv_cache().pool().num_used(), 0);
  EXPECT_TRUE(scheduler_->take_expired(now_ + 1'000'000).empty());
}

}  // namespace scheduler_bounds_test
}  // namespace headrace
