// What counts as a hang, and what requests hear of it.
#include "engine/watchdog.h"

#include <gtest/gtest.h>

#include <future>

namespace headrace {
namespace watchdog_test {

using std::chrono::milliseconds;

TEST(StallClockTest, AddsUpWhileNothingMoves) {
  StallClock clock(10);
  clock.rest(100);
  EXPECT_EQ(clock.look(110, {1, 5}), 0);  // a step began
  EXPECT_EQ(clock.look(120, {1, 5}), 10);
  EXPECT_EQ(clock.look(135, {1, 5}), 25);
  EXPECT_EQ(clock.look(145, {1, 6}), 0);  // the threads were joined
  EXPECT_EQ(clock.look(155, {1, 6}), 10);
  EXPECT_EQ(clock.look(165, {2, 6}), 0);  // the next step
  clock.rest(175);
  EXPECT_EQ(clock.look(185, {2, 6}), 10);
}

TEST(StallClockTest, TimeInWhichNobodyRanCountsAsTwoTicks) {
  StallClock clock(10);
  clock.look(1000, {1, 1});
  EXPECT_EQ(clock.look(1'000'000'000, {1, 1}), 20);  // the machine slept
  EXPECT_EQ(clock.look(1'000'000'010, {1, 1}), 30);
}

// What a request heard.
struct Heard {
  std::mutex mutex;
  std::vector<Event> events;
  EventSink sink() {
    return [this](Event&& event) {
      std::lock_guard lock(mutex);
      events.push_back(std::move(event));
      return true;
    };
  }
};

Event event_of(RequestId id, Event::Kind kind) {
  Event event;
  event.request_id = id;
  event.kind = kind;
  event.usage.output_tokens = 1;
  return event;
}

TEST(WatchdogTest, AHungStepIsToldAndEndsWhoIsLive) {
  std::promise<std::vector<std::string>> hung;
  Watchdog watchdog({milliseconds(20), [] { return 7; },
                     [&](const std::vector<std::string>& report) { hung.set_value(report); }});
  Heard running, waiting, over;
  const EventSink running_sink = watchdog.watch(1, "alpha", running.sink());
  const EventSink waiting_sink = watchdog.watch(2, "beta", waiting.sink());
  const EventSink over_sink = watchdog.watch(3, "gamma", over.sink());
  running_sink(event_of(1, Event::Kind::kToken));
  over_sink(event_of(3, Event::Kind::kFinished));

  Sequence sequence;
  sequence.id = 1;
  sequence.tokens = {4, 5, 6};
  sequence.num_prompt = 2;
  StepPlan plan;
  plan.step_idx = 41;
  plan.num_tokens = 1;
  plan.spans.emplace_back();
  plan.spans[0].first_position = 2;
  plan.spans[0].num_rows = 1;
  plan.sequences = {&sequence};
  watchdog.begin(now_us());
  watchdog.tell(plan);
  const std::vector<std::string> report = hung.get_future().get();

  ASSERT_EQ(report.size(), 5u);
  EXPECT_TRUE(report[0].starts_with("the engine hangs in step 41: nothing moved for "))
      << report[0];
  EXPECT_TRUE(report[0].ends_with("; 2 requests are live")) << report[0];
  EXPECT_NE(report[1].find(": 1 tokens of 1 requests, 0 rows"), std::string::npos) << report[1];
  EXPECT_EQ(report[2],
            "in the step: request 1, positions 2 to 2, 0 sampled, 0 guessed, prompt of 2, 1 tokens "
            "of output");
  EXPECT_TRUE(report[3].starts_with("live: request 1 (alpha), since ")) << report[3];
  EXPECT_TRUE(report[4].ends_with("0 events, none yet")) << report[4];

  ASSERT_EQ(running.events.size(), 2u);
  const Event& end = running.events[1];
  EXPECT_EQ(end.kind, Event::Kind::kFinished);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(end.error.message, "the computation of this request hangs and was given up");
  EXPECT_EQ(end.usage.output_tokens, 1);
  ASSERT_EQ(waiting.events.size(), 1u);
  EXPECT_EQ(waiting.events[0].reason, FinishReason::kError);
  EXPECT_EQ(over.events.size(), 1u) << "it had its end";

  // The step comes back after all: nobody hears of it.
  EXPECT_TRUE(running_sink(event_of(1, Event::Kind::kToken)));
  EXPECT_TRUE(waiting_sink(event_of(2, Event::Kind::kFinished)));
  EXPECT_EQ(running.events.size(), 2u);
  EXPECT_EQ(waiting.events.size(), 1u);
  watchdog.end();
}

TEST(WatchdogTest, SlowStepsThatMoveAreNoHang) {
  std::atomic<int64_t> num_looks = 0;
  std::atomic<bool> hangs = false;
  Watchdog watchdog({milliseconds(32), [&] { return ++num_looks; },
                     [&](const std::vector<std::string>&) { hangs = true; }});
  Heard heard;
  const EventSink sink = watchdog.watch(1, "", heard.sink());
  watchdog.begin(now_us());
  watchdog.tell({});
  while (num_looks < 200) std::this_thread::yield();  // some ten deadlines
  watchdog.end();
  EXPECT_FALSE(hangs);
  sink(event_of(1, Event::Kind::kFinished));
}

// Before it plans, say.
TEST(WatchdogTest, RequestsForWhichNoStepBeginsAreAHang) {
  std::promise<std::string> hung;
  Watchdog watchdog({milliseconds(20), [] { return 0; },
                     [&](const std::vector<std::string>& report) { hung.set_value(report[0]); }});
  watchdog.begin(now_us());
  watchdog.tell({});
  watchdog.end();
  Heard heard;
  const EventSink sink = watchdog.watch(1, "", heard.sink());
  EXPECT_TRUE(hung.get_future().get().starts_with("the engine hangs after step 0: "));
  EXPECT_EQ(heard.events.size(), 1u);
}

TEST(WatchdogTest, WithoutADeadlineSinksStayAsTheyAre) {
  Watchdog watchdog({});
  Heard heard;
  const EventSink sink = watchdog.watch(1, "", heard.sink());
  watchdog.begin(now_us());
  watchdog.tell({});
  EXPECT_TRUE(sink(event_of(1, Event::Kind::kToken)));
  watchdog.end();
  EXPECT_EQ(heard.events.size(), 1u);
}

}  // namespace watchdog_test
}  // namespace headrace
