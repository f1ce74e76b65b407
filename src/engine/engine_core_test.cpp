// The core without a model: what goes to sinks, when, and what is counted before it.
#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace headrace {
namespace engine_core_test {

SchedulerOptions core_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 16;
  options.max_logit_rows = 4;
  options.max_sequences = 4;
  options.num_blocks = 16;
  options.max_context = 64;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request core_request(int32_t num_prompt, int32_t max_tokens) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(10 + i);
  request.max_tokens = max_tokens;
  return request;
}

struct Heard {
  std::vector<Event> events;
  int takes = -1;  // events before the sink refuses; negative: all
};

class CoreTest : public testing::Test {
 protected:
  EventSink sink_of(RequestId id) {
    return [this, id](Event&& event) {
      Heard& heard = heard_[id];
      if (event.kind != Event::Kind::kFinished && heard.takes == 0) return false;
      --heard.takes;
      heard.events.push_back(std::move(event));
      return true;
    };
  }
  void admit(RequestId id, Request request, TimeUs now = 1) {
    core_.admit({id, std::move(request), sink_of(id), now});
  }
  // Every sampled row gives this token.
  void commit(const StepPlan& plan, TimeUs now, int32_t token_id = 5) {
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {token_id});
    }
    core_.commit(results, now);
  }
  void deliver(TimeUs now) {
    while (core_.has_events()) {
      core_.count_events();
      core_.deliver_events(now, [this](RequestId id) { forgotten_.push_back(id); });
    }
  }

  EngineCore core_{core_options(), {"f32", 1000}, nullptr};
  std::map<RequestId, Heard> heard_;
  std::vector<RequestId> forgotten_;
};

TEST_F(CoreTest, EventsWaitUntilTheyAreDelivered) {
  admit(1, core_request(3, 2));
  commit(core_.plan(10), 20);
  EXPECT_TRUE(core_.has_events());
  EXPECT_TRUE(heard_[1].events.empty());
  const StepPlan& next = core_.plan(30);  // of the step in flight: the token that was sampled
  EXPECT_EQ(next.spans[0].first_position, 3);
  deliver(31);
  ASSERT_EQ(heard_[1].events.size(), 1u);
  EXPECT_EQ(heard_[1].events[0].token_id, 5);
  commit(next, 40);
  EXPECT_TRUE(core_.idle());
  EXPECT_TRUE(forgotten_.empty());
  deliver(41);
  ASSERT_EQ(heard_[1].events.size(), 3u);
  EXPECT_EQ(heard_[1].events[2].reason, FinishReason::kLength);
  EXPECT_EQ(forgotten_, std::vector<RequestId>{1});
}

TEST_F(CoreTest, CountsAreThereBeforeWhatTheyCount) {
  admit(1, core_request(3, 1), 5);
  commit(core_.plan(10), 25);
  EXPECT_EQ(core_.metrics().time_to_first_token.count(), 0u);
  core_.count_events();
  EXPECT_TRUE(heard_[1].events.empty());
  EXPECT_DOUBLE_EQ(core_.metrics().time_to_first_token.sum(), 20e-6);
  EXPECT_EQ(core_.metrics().finished[static_cast<size_t>(FinishReason::kLength)], 1u);
  EXPECT_EQ(core_.metrics().generation_tokens_total, 1u);
  EXPECT_EQ(core_.snapshot().finished_length, 1u);
  EXPECT_EQ(core_.snapshot().prompt_tokens, 3u);
  EXPECT_EQ(core_.snapshot().kv_bytes_reserved, 16'000u);
  core_.deliver_events(30, [](RequestId) {});
  EXPECT_EQ(heard_[1].events.size(), 2u);
}

TEST_F(CoreTest, LatenciesAreOfStepsNotOfDeliveries) {
  Request request = core_request(3, 3);
  request.arrived_us = 2;
  admit(1, request, 5);
  commit(core_.plan(10), 22);
  deliver(99);
  commit(core_.plan(100), 142);
  deliver(199);
  EXPECT_DOUBLE_EQ(core_.metrics().time_to_first_token.sum(), 20e-6);
  EXPECT_DOUBLE_EQ(core_.metrics().inter_token_latency.sum(), 120e-6);
}

TEST_F(CoreTest, ASinkThatRefusesEndsItsRequestAlone) {
  admit(1, core_request(3, 9));
  admit(2, core_request(4, 2));
  heard_[1].takes = 1;
  for (TimeUs now = 10; !core_.idle(); now += 10) {
    const StepPlan& plan = core_.plan(now);
    deliver(now + 1);  // while the step is in flight
    commit(plan, now + 2);
  }
  deliver(99);
  ASSERT_EQ(heard_[1].events.size(), 2u);
  EXPECT_EQ(heard_[1].events[1].reason, FinishReason::kCancelled);
  ASSERT_EQ(heard_[2].events.size(), 3u);
  EXPECT_EQ(heard_[2].events[2].reason, FinishReason::kLength);
  EXPECT_EQ(core_.snapshot().kv_blocks_used, 0);
}

TEST_F(CoreTest, EndsInEveryState) {
  admit(1, core_request(3, 9));
  core_.end({1, FinishReason::kCancelled}, 2);  // waiting
  admit(2, core_request(3, 9));
  const StepPlan& plan = core_.plan(10);
  core_.end({2, FinishReason::kStop}, 11);  // in flight: with its step
  admit(3, core_request(3, 9));             // comes while the step runs
  core_.end({3, FinishReason::kCancelled}, 12);
  core_.end({77, FinishReason::kCancelled}, 12);
  deliver(13);
  EXPECT_EQ(forgotten_, (std::vector<RequestId>{1, 3}));
  commit(plan, 20);
  deliver(21);
  EXPECT_EQ(forgotten_, (std::vector<RequestId>{1, 3, 2}));
  EXPECT_EQ(heard_[2].events.back().reason, FinishReason::kStop);
  EXPECT_EQ(heard_[2].events.size(), 1u);
  EXPECT_TRUE(core_.idle());
}

TEST_F(CoreTest, EndAllEndsEach) {
  for (RequestId id = 1; id <= 6; ++id) admit(id, core_request(3, 9));
  commit(core_.plan(10), 20);
  core_.end_all(FinishReason::kCancelled, 30);
  deliver(31);
  EXPECT_TRUE(core_.idle());
  for (RequestId id = 1; id <= 6; ++id) {
    EXPECT_EQ(heard_[id].events.back().reason, FinishReason::kCancelled);
  }
}

class Telltale final : public StepRecorder {
 public:
  void admitted(RequestId id, const Request&, TimeUs) override { add("admitted", id); }
  void ended(RequestId id, FinishReason, TimeUs) override { add("ended", id); }
  void planned(const StepPlan& plan, const Scheduler&, TimeUs) override {
    add("planned", plan.step_idx);
  }
  void committed(std::span<const SpanResult> results, TimeUs) override {
    add("committed", results.size());
  }
  std::vector<std::string> take() { return std::exchange(told_, {}); }

 private:
  void add(std::string_view what, uint64_t number) {
    told_.push_back(fmt::format("{} {}", what, number));
  }
  std::vector<std::string> told_;
};

using Told = std::vector<std::string>;

// Between two steps stands only what the second depends on.
TEST_F(CoreTest, WhatAStepLeavesIsDoneBesideTheNext) {
  Telltale recorder;
  EngineCore core(core_options(), {"f32", 1000}, &recorder);
  const auto step = [&core](TimeUs now) {
    const StepPlan& plan = core.plan(now);
    std::vector<SpanResult> results(plan.spans.size());
    for (SpanResult& result : results) result.sampled.assign(1, {5});
    core.commit(results, now + 100);
  };
  core.admit({1, core_request(3, 9), [](Event&&) { return true; }, 1});
  step(10);
  EXPECT_EQ(recorder.take(), (Told{"admitted 1", "planned 0", "committed 1"}));
  EXPECT_FALSE(core.scheduler().step_cost().has_learned());
  core.plan(200);
  EXPECT_TRUE(recorder.take().empty());
  EXPECT_EQ(core.in_flight()->predicted_us, 0);
  core.settle();
  EXPECT_EQ(recorder.take(), Told{"planned 1"});
  EXPECT_TRUE(core.scheduler().step_cost().has_learned());
  core.settle();
  EXPECT_TRUE(recorder.take().empty());
}

TEST_F(CoreTest, WhatComesBesideAStepIsToldAfterItsPlan) {
  Telltale recorder;
  EngineCore core(core_options(), {"f32", 1000}, &recorder);
  const auto admit = [&core](RequestId id) {
    core.admit({id, core_request(3, 9), [](Event&&) { return true; }, 1});
  };
  admit(1);
  core.plan(10);
  admit(2);
  core.end({1, FinishReason::kStop}, 11);
  EXPECT_EQ(recorder.take(), (Told{"admitted 1", "planned 0", "admitted 2", "ended 1"}));
}

TEST_F(CoreTest, AStepIsCommittedBeforeTheNext) {
  admit(1, core_request(3, 9));
  const StepPlan& plan = core_.plan(10);
  EXPECT_DEATH(core_.plan(11), "is not committed");
  commit(plan, 12);
  EXPECT_DEATH(commit(plan, 13), "no step is planned");
}

}  // namespace engine_core_test
}  // namespace headrace
