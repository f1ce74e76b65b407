// Steps on a clock that runs as a machine's costs say: how long streams wait while prompts come,
// and how long prompts take beside streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "engine/scheduler.h"
#include "engine/step_log.h"

namespace headrace {
namespace scheduler_time_test {

constexpr TimeUs kTarget = 50'000;

SchedulerOptions time_options(TimeUs target = kTarget) {
  SchedulerOptions options;
  options.max_batch_tokens = 512;
  options.max_logit_rows = 32;
  options.max_sequences = 32;
  options.num_blocks = 2000;
  options.max_context = 20'000;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  options.inter_token_target_us = target;
  return options;
}

Request time_request(int32_t num_prompt, int32_t max_tokens, int32_t token, uint64_t client = 0) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), token);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.client = client;
  return request;
}

// What steps take on a machine: microseconds.
double machine_cost(const StepLoad& load) {
  const auto rows = static_cast<double>(load.num_rows);
  return std::max(8000 + 200 * rows, 5000 + 400 * rows) +
         100.0 * static_cast<double>(load.num_logit_rows) +
         0.002 * static_cast<double>(load.num_pairs);
}

class Clockwork {
 public:
  explicit Clockwork(const SchedulerOptions& options, uint64_t seed = 1)
      : scheduler_(options), random_(seed) {}

  RequestId admit(Request request) {
    const RequestId id = ++last_id_;
    log_.admitted(id, request, now_);
    admitted_[id] = now_;
    scheduler_.admit(id, std::move(request), now_);
    return id;
  }
  const StepPlan& step() {
    const StepPlan& plan = scheduler_.plan(now_);
    log_.planned(plan, scheduler_, now_);
    now_ += static_cast<TimeUs>(machine_cost(plan.load) *
                                (0.95 + 0.1 * static_cast<double>(random_() % 1000) * 1e-3));
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {7});
      results[i].scored.resize(static_cast<size_t>(plan.spans[i].num_scored));
    }
    log_.committed(results, now_);
    std::vector<Event> events;
    scheduler_.commit(results, now_, &events);
    for (const Event& event : events) hear(event);
    return plan;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void run_until_first_token(RequestId id) {
    while (!first_token_.contains(id)) step();
  }
  TimeUs first_token_us(RequestId id) const { return first_token_.at(id) - admitted_.at(id); }
  // Of the gaps of all streams since the last call, that share is no longer.
  TimeUs gap(double share) {
    std::sort(gaps_.begin(), gaps_.end());
    const TimeUs found = gaps_[static_cast<size_t>(share * static_cast<double>(gaps_.size() - 1))];
    gaps_.clear();
    return found;
  }
  double mean_gap() const {
    return std::accumulate(gaps_.begin(), gaps_.end(), 0.0) / static_cast<double>(gaps_.size());
  }
  Scheduler& scheduler() { return scheduler_; }
  const StepLog& log() const { return log_; }

 private:
  void hear(const Event& event) {
    if (event.kind != Event::Kind::kToken) return;
    const auto [last, is_first] = last_token_.try_emplace(event.request_id, now_);
    if (is_first) {
      first_token_[event.request_id] = now_;
    } else {
      gaps_.push_back(now_ - std::exchange(last->second, now_));
    }
  }

  Scheduler scheduler_;
  StepLog log_{100'000, /*keep_requests=*/true};
  std::mt19937_64 random_;
  std::map<RequestId, TimeUs> admitted_, first_token_, last_token_;
  std::vector<TimeUs> gaps_;
  TimeUs now_ = 1;
  RequestId last_id_ = 0;
};

// Streams that decode, with the costs of prompts learned.
void start_streams(Clockwork* clockwork, int count) {
  clockwork->admit(time_request(2000, 1, 3));
  while (!clockwork->scheduler().idle()) clockwork->step();
  for (int i = 0; i < count; ++i) clockwork->admit(time_request(20, 10'000, 10 + i));
  clockwork->steps(60);
  clockwork->gap(1);
}

TEST(SchedulerTime, ALonePromptHasWholeSteps) {
  Clockwork clockwork(time_options());
  const RequestId id = clockwork.admit(time_request(16'000, 2, 3));
  for (int i = 0; i < 31; ++i) EXPECT_EQ(clockwork.step().num_tokens, 512);
  EXPECT_EQ(clockwork.step().num_tokens, 16'000 - 31 * 512);
  EXPECT_GT(clockwork.first_token_us(id), 0);
}

TEST(SchedulerTime, StreamsWaitAtMostTwiceAsLongBesideALongPrompt) {
  Clockwork alone(time_options());
  const RequestId lone = alone.admit(time_request(16'000, 2, 3));
  alone.run_until_first_token(lone);

  Clockwork clockwork(time_options());
  start_streams(&clockwork, 8);
  clockwork.steps(200);
  const TimeUs undisturbed = clockwork.gap(0.99);
  const RequestId id = clockwork.admit(time_request(16'000, 2, 4));
  clockwork.run_until_first_token(id);
  const TimeUs longest = clockwork.gap(0.99);
  EXPECT_LE(longest, 2 * undisturbed);
  EXPECT_LE(clockwork.first_token_us(id), alone.first_token_us(lone) * 5 / 2);
  EXPECT_GT(clockwork.scheduler().stats().shortened_steps, 0u);
}

TEST(SchedulerTime, WhereStreamsAreSlowPromptsStillHaveAGoodPart) {
  // The streams alone take longer than the target.
  Clockwork clockwork(time_options(/*target=*/1000));
  start_streams(&clockwork, 16);
  const TimeUs undisturbed = clockwork.gap(0.5);
  const RequestId id = clockwork.admit(time_request(4000, 2, 4));
  clockwork.run_until_first_token(id);
  EXPECT_LE(clockwork.gap(0.99), 2 * undisturbed);
  Clockwork alone(time_options());
  const RequestId lone = alone.admit(time_request(4000, 2, 4));
  alone.run_until_first_token(lone);
  EXPECT_LE(clockwork.first_token_us(id), 3 * alone.first_token_us(lone));
}

// How many tokens of a prompt a step has beside a stream, where a step costs 2 ms and a row 100 us,
// but each of the first 64 `small_us`.
int32_t tokens_beside_a_stream(TimeUs target, TimeUs small_us) {
  SchedulerOptions options = time_options(target);
  for (int i = 0; i < 16; ++i) {
    for (const int64_t rows : {1, 8, 16, 32, 64, 256, 512}) {
      StepLoad load;
      if (i % 2 == 0 && rows > 1) load.add(0, 1, 0, false);  // sequences cost nothing
      load.add(0, rows - load.num_rows, 0, false);
      const int64_t num_small = std::min<int64_t>(rows, 64);
      options.step_cost.observe(load, 2000 + num_small * small_us + 100 * (rows - num_small));
    }
  }
  Clockwork clockwork(options);
  clockwork.admit(time_request(1, 1000, 5));
  clockwork.step();
  clockwork.admit(time_request(2000, 1, 6));
  return clockwork.step().num_tokens - 1;
}

TEST(SchedulerTime, PromptsHaveTheirShareOfSpeedWithinTheTarget) {
  // Small steps cost as large ones do: what stretches a stream by three quarters is enough.
  EXPECT_NEAR(tokens_beside_a_stream(kTarget, 100), 16, 2);
  // They cost three times as much: more tokens, and the more the target allows the nearer to the
  // share.
  const int32_t few = tokens_beside_a_stream(8000, 300);
  const int32_t many = tokens_beside_a_stream(kTarget, 300);
  EXPECT_NEAR(few, 19, 2);
  EXPECT_GT(many, 2 * few);
  EXPECT_LT(many, 511);
  // A target that is below what streams are stretched by changes nothing.
  EXPECT_NEAR(tokens_beside_a_stream(1000, 300), kLeastChunk, 1);
}

// Tokens in the first step of a prompt beside eight streams.
int32_t first_chunk(int32_t num_prompt, int max_sequences = 32) {
  SchedulerOptions options = time_options();
  options.max_sequences = max_sequences;
  Clockwork clockwork(options);
  start_streams(&clockwork, 8);
  clockwork.admit(time_request(num_prompt, 2, 4));
  if (max_sequences == 9) clockwork.admit(time_request(num_prompt, 2, 5));  // finds no place
  return clockwork.step().num_tokens - 8;
}

TEST(SchedulerTime, ALongPromptTakesMoreOnlyWhereSomebodyWaitsForAPlace) {
  EXPECT_NEAR(first_chunk(16'000), 23, 4);  // three quarters of a step of the streams
  EXPECT_EQ(first_chunk(100), 100);
  EXPECT_NEAR(first_chunk(300), 225, 25);  // as many as twice the target has time for
  EXPECT_NEAR(first_chunk(16'000, /*max_sequences=*/9), 225, 25);
}

// A closed loop of clients that all begin at once: what the median one waits for its first token.
TimeUs median_wait_of_crowd(Clockwork* clockwork, int num_clients) {
  std::vector<TimeUs> waits;
  std::vector<RequestId> running;
  for (int32_t next = 0; waits.size() < 160;) {
    while (std::ssize(running) < num_clients) {
      running.push_back(clockwork->admit(time_request(128, 64, 100 + next++)));
    }
    clockwork->step();
    std::erase_if(running, [&](RequestId id) {
      const bool ended = clockwork->scheduler().find(id) == nullptr;
      if (ended) waits.push_back(clockwork->first_token_us(id));
      return ended;
    });
  }
  std::nth_element(waits.begin(), waits.begin() + 80, waits.end());
  return waits[80];
}

TEST(SchedulerTime, ACrowdOfShortPromptsIsAnsweredSoonAndStreamsKeepTheTargetOnTheWhole) {
  Clockwork clockwork(time_options());
  start_streams(&clockwork, 1);
  EXPECT_LE(median_wait_of_crowd(&clockwork, 16), 6 * kTarget);
  EXPECT_LE(clockwork.mean_gap(), kTarget);
  EXPECT_LE(clockwork.gap(1), 2.2 * kTarget);
}

TEST(SchedulerTime, StreamsThatHaveNoLeadGetNoLongerStepsThanTheTarget) {
  Clockwork clockwork(time_options());
  start_streams(&clockwork, 8);
  for (int32_t i = 0; i < 400; ++i) {
    if (clockwork.scheduler().num_running() < 10) clockwork.admit(time_request(200, 1, 20 + i));
    clockwork.step();
    if (i == 100) clockwork.gap(1);
  }
  EXPECT_LE(clockwork.mean_gap(), 1.02 * kTarget);
}

TEST(SchedulerTime, WithoutATargetChunksAreWhole) {
  Clockwork clockwork(time_options(/*target=*/0));
  start_streams(&clockwork, 8);
  clockwork.admit(time_request(4000, 2, 4));
  EXPECT_EQ(clockwork.step().num_tokens, 512);
  EXPECT_EQ(clockwork.scheduler().stats().shortened_steps, 0u);
}

TEST(SchedulerTime, ChunksGrowWhenTheLastStreamEnds) {
  Clockwork clockwork(time_options());
  start_streams(&clockwork, 4);
  clockwork.admit(time_request(8000, 2, 4));
  EXPECT_LT(clockwork.step().num_tokens, 512);
  std::vector<Event> events;
  for (RequestId id = 2; id <= 5; ++id) {
    clockwork.scheduler().end(id, FinishReason::kCancelled, 1, &events);
  }
  EXPECT_EQ(clockwork.step().num_tokens, 512);
}

TEST(SchedulerTime, PromptsOfManyClientsAllMoveBesideASlowStream) {
  SchedulerOptions options = time_options(/*target=*/1);
  StepLoad any;
  any.add(0, 1, 1, false);
  // Rows are so dear that hardly one has time.
  StepLoad two = any;
  two.add(0, 1, 1, false);
  for (int i = 0; i < 8; ++i) {
    options.step_cost.observe(any, 1000);
    options.step_cost.observe(two, 100'000);
  }
  Clockwork clockwork(options);
  clockwork.admit(time_request(1, 1000, 5, /*client=*/99));
  clockwork.step();
  for (uint64_t client = 0; client < 24; ++client) {
    clockwork.admit(time_request(40, 1, 10 + static_cast<int32_t>(client), client));
  }
  const StepPlan& plan = clockwork.step();
  EXPECT_EQ(plan.spans.size(), 25u);
  EXPECT_EQ(plan.num_tokens, 25);
}

StepLoad prompt_load(int64_t num_rows) {
  StepLoad load;
  load.add(0, num_rows, 1, false);
  return load;
}

double prompt_alone(int64_t num_rows) { return machine_cost(prompt_load(num_rows)); }

// As the start of an engine does it.
SchedulerOptions calibrated_options() {
  SchedulerOptions options = time_options();
  for (int64_t rows = 1; rows <= 256; rows *= 2) {
    for (int i = 0; i < 2; ++i) {
      options.step_cost.observe(prompt_load(rows), static_cast<TimeUs>(prompt_alone(rows)));
    }
  }
  return options;
}

// A client asks for 60 tokens at a time, twelve times, of which each third asks for so many, beside
// one that has twelve long prompts. The waits of each kind, but the first two.
struct LightWaits {
  std::vector<TimeUs> of_short, of_others;
};

LightWaits waits_of_light(int32_t num_prompt_of_third) {
  Clockwork clockwork(calibrated_options());
  int32_t token = 0;
  for (int i = 0; i < 12; ++i) clockwork.admit(time_request(3000, 2000, ++token, /*client=*/1));
  clockwork.step();
  LightWaits waits;
  for (int i = 0; i < 12; ++i) {
    const bool is_third = i % 3 == 2;
    const int32_t num_prompt = is_third ? num_prompt_of_third : 60;
    const RequestId id = clockwork.admit(time_request(num_prompt, 1, ++token, /*client=*/2));
    clockwork.run_until_first_token(id);
    const TimeUs wait = clockwork.first_token_us(id);
    if (i >= 2) (is_third ? waits.of_others : waits.of_short).push_back(wait);
    clockwork.step();
  }
  return waits;
}

// A step of its own while it uses little, in which others have no more than a token; then half of
// one.
TEST(SchedulerTime, WhoComesAgainAndAgainForLittleHasHalfOfEachStepAtLeast) {
  const LightWaits waits = waits_of_light(60);
  ASSERT_EQ(waits.of_short.size(), 6u);
  EXPECT_LE(static_cast<double>(waits.of_short[0]), 1.15 * prompt_alone(60));
  for (const TimeUs wait : waits.of_short) {
    EXPECT_LE(static_cast<double>(wait), 1.8 * prompt_alone(60));
  }
}

TEST(SchedulerTime, ALongPromptOfSuchAClientIsNotCutForItsOwnSake) {
  const LightWaits waits = waits_of_light(300);
  ASSERT_EQ(waits.of_others.size(), 4u);
  for (const TimeUs wait : waits.of_others) {
    EXPECT_LE(static_cast<double>(wait), 2 * prompt_alone(300));
  }
}

TEST(SchedulerTime, PredictionsAreCountedAndClose) {
  Clockwork clockwork(time_options());
  start_streams(&clockwork, 8);
  for (int i = 0; i < 20; ++i) {
    clockwork.admit(time_request(700, 20, 100 + i));
    clockwork.steps(20);
  }
  const SchedulerStats& stats = clockwork.scheduler().stats();
  // Of the first two nothing was known, what the last took is not looked at yet.
  EXPECT_EQ(stats.predicted_steps, stats.num_steps - 3);
  EXPECT_GE(stats.close_predictions * 100, stats.predicted_steps * 95);
}

TEST(SchedulerTime, TheSameTimesGiveTheSamePlans) {
  Clockwork clockwork(time_options());
  start_streams(&clockwork, 6);
  for (int i = 0; i < 10; ++i) {
    clockwork.admit(time_request(1500, 30, 100 + i, static_cast<uint64_t>(i % 3)));
    clockwork.steps(15);
  }
  EXPECT_GT(clockwork.scheduler().stats().shortened_steps, 0u);
  const Status same = clockwork.log().replay(time_options());
  EXPECT_TRUE(same.ok()) << same.error().message;
  EXPECT_FALSE(clockwork.log().replay(time_options(/*target=*/0)).ok());
}

}  // namespace scheduler_time_test
}  // namespace headrace
