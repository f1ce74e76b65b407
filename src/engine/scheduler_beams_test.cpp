// Beam searches among other requests: what they share, and that they are one unit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/scheduler.h"
#include "engine/testing/beam_reference.h"

namespace headrace {
namespace scheduler_beams_test {

constexpr int32_t kEnd = 2;

SchedulerOptions make_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 8;
  options.max_sequences = 8;
  options.num_blocks = 64;
  options.max_context = 256;
  options.end_ids = {kEnd};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request make_request(int32_t num_prompt, int32_t max_tokens, int32_t token = 5) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), token);
  request.max_tokens = max_tokens;
  return request;
}

Request make_search(int32_t num_prompt, int32_t max_tokens, int32_t width, int32_t token = 5) {
  Request request = make_request(num_prompt, max_tokens, token);
  request.beams = {width, width, 1, EarlyStopping::kNever};
  return request;
}

// Log-probs of 12 tokens after these.
std::vector<float> row_after(std::span<const int32_t> tokens) {
  uint64_t hash = 1;
  for (const int32_t token : tokens)
    hash = hash * 6364136223846793005u + static_cast<uint64_t>(token) + 1;
  std::vector<float> row;
  for (int i = 0; i < 12; ++i) {
    hash = hash * 6364136223846793005u + 1442695040888963407u;
    row.push_back(-0.01f - 1e-9f * static_cast<float>(hash >> 33));
  }
  return row;
}

std::vector<BeamHypothesis> found_alone(const Request& request) {
  return BeamReference(request.beams, request.max_tokens, {kEnd})
      .run([&](const std::vector<int32_t>& output) {
        std::vector<int32_t> tokens = request.prompt_ids;
        tokens.insert(tokens.end(), output.begin(), output.end());
        return row_after(tokens);
      });
}

class Driver {
 public:
  explicit Driver(SchedulerOptions options) : scheduler(std::move(options)) {}

  void admit(RequestId id, const Request& request) { scheduler.admit(id, request, ++now); }
  const StepPlan& plan() {
    const StepPlan& plan = scheduler.plan(++now);
    copies = scheduler.take_block_copies();
    num_computed += plan.num_tokens;
    return plan;
  }
  void commit(const StepPlan& plan, int64_t failing_span = -1) {
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Request& request = plan.sequences[i]->request;
      if (static_cast<int64_t>(i) == failing_span) results[i].failure = "not finite";
      if (plan.spans[i].num_sampled == 0) continue;
      const std::vector<float> row = row_after(plan.sequences[i]->tokens);
      SampledToken& sampled = results[i].sampled.emplace_back();
      sampled.candidates = beam_candidates(row, request.beams.width, {kEnd});
      if (request.beams.width == 0) sampled.token_id = 9;
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    hear(events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
  }
  void step() { commit(plan()); }
  void run() {
    for (int i = 0; i < 2000 && !scheduler.idle(); ++i) step();
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.kv_cache().pool().num_used(), 0);
  }
  // Until the beams of this one are computed side by side.
  void run_until_branched(RequestId id) {
    while (scheduler.find(id)->other_beams.empty()) step();
  }
  void end(RequestId id, FinishReason reason) {
    std::vector<Event> events;
    scheduler.end(id, reason, ++now, &events);
    hear(events);
  }
  void hear(std::vector<Event>& events) {
    for (Event& event : events) {
      if (event.kind != Event::Kind::kFinished) continue;
      EXPECT_FALSE(ends.contains(event.request_id)) << "a second end";
      ends[event.request_id] = std::move(event);
    }
  }
  int64_t num_used() const { return scheduler.kv_cache().pool().num_used(); }

  Scheduler scheduler;
  TimeUs now = 1;
  std::map<RequestId, Event> ends;
  std::vector<BlockCopy> copies;
  int64_t num_computed = 0;
};

void expect_found(const Driver& driver, RequestId id, const Request& request) {
  const std::vector<BeamHypothesis> wanted = found_alone(request);
  const Event& end = driver.ends.at(id);
  ASSERT_EQ(end.hypotheses.size(), wanted.size()) << end.error.message;
  int32_t num_output = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(end.hypotheses[i].token_ids, wanted[i].token_ids) << "hypothesis " << i;
    EXPECT_EQ(end.hypotheses[i].score, wanted[i].score);
    num_output += static_cast<int32_t>(wanted[i].token_ids.size());
  }
  EXPECT_EQ(end.usage.output_tokens, num_output);
  EXPECT_EQ(end.stop_id, wanted[0].stop_id);
}

TEST(SchedulerBeams, BeamsShareTheirPromptAndStepTogether) {
  Driver driver(make_options());
  const Request request = make_search(40, 20, 4);
  driver.admit(1, request);
  driver.step();
  driver.step();
  EXPECT_EQ(driver.num_computed, 40);
  const StepPlan& plan = driver.plan();
  ASSERT_EQ(plan.spans.size(), 4u);
  for (const Span& span : plan.spans) {
    EXPECT_EQ(span.first_position, 40);
    EXPECT_EQ(span.num_rows, 1);
    EXPECT_EQ(span.num_sampled, 1);
  }
  // Two whole blocks for all, and each its own third: one has that of the prompt.
  EXPECT_EQ(driver.num_used(), 2 + 4);
  EXPECT_EQ(driver.copies.size(), 3u);
  driver.commit(plan);
  driver.run();
  expect_found(driver, 1, request);
}

TEST(SchedulerBeams, AtTheEndOfABlockNothingIsCopied) {
  Driver driver(make_options());
  driver.admit(1, make_search(32, 20, 4));
  driver.step();
  EXPECT_EQ(driver.plan().spans.size(), 4u);
  EXPECT_TRUE(driver.copies.empty());
  EXPECT_EQ(driver.num_used(), 2 + 4);
}

TEST(SchedulerBeams, AnswerIsTheSameBesideOthersAndInSmallSteps) {
  const Request request = make_search(45, 40, 3);
  for (const int max_tokens : {3, 7, 32, 200}) {
    for (const int64_t num_blocks : {20, 26, 64}) {
      SchedulerOptions options = make_options();
      options.max_batch_tokens = max_tokens;
      options.max_sequences = std::min(6, max_tokens);
      options.num_blocks = num_blocks;
      Driver driver(options);
      for (RequestId id = 1; id <= 3; ++id) driver.admit(id, make_request(20, 60, 3));
      driver.admit(4, request);
      driver.admit(5, make_request(60, 30, 5));  // begins with the search's prompt
      driver.run();
      expect_found(driver, 4, request);
    }
  }
}

// Each wants blocks that the other holds.
TEST(SchedulerBeams, SearchesThatWaitForEachOthersBlocksEnd) {
  for (int max_preemptions = 0; max_preemptions <= 2; ++max_preemptions) {
    for (int64_t num_blocks = 21; num_blocks <= 40; ++num_blocks) {
      SchedulerOptions options = make_options();
      options.num_blocks = num_blocks;
      options.max_preemptions = max_preemptions;
      options.max_context = 120;
      Driver driver(options);
      const Request first = make_search(30, 60, 4, 3), second = make_search(30, 60, 4, 4);
      const BeamLimits limits = beam_limits_of(options);
      ASSERT_GE(limits.longest(4, 30, 120), 90);
      driver.admit(1, first);
      driver.admit(2, second);
      driver.run();
      expect_found(driver, 1, first);
      expect_found(driver, 2, second);
    }
  }
}

// What is computed again after a pre-emption is the tree of the beams, not each from the beginning;
// also where a beam can branch off at the last position only.
TEST(SchedulerBeams, StartsAgainAsATree) {
  const CacheRule full = {}, window{CachePolicy::kWindow, 20, 0, 1};
  const CacheRule state{CachePolicy::kState, 0, 4, 1};
  const std::vector<CacheRule> models[] = {{full}, {full, window}, {full, state}};
  for (const std::vector<CacheRule>& rules : models) {
    SCOPED_TRACE(testing::Message()
                 << "the last group has policy " << static_cast<int>(rules.back().policy));
    SchedulerOptions options = make_options();
    options.cache_rules = rules;
    options.num_blocks = 1000;
    options.num_blocks = beam_limits_of(options).most_blocks(4, 100, 180);
    Driver driver(options);
    const Request request = make_search(100, 80, 4);
    for (int32_t i = 0; i < 4; ++i) {  // older, and they grow
      driver.admit(static_cast<RequestId>(1 + i), make_request(16, 200, 6 + i));
    }
    driver.admit(9, request);
    driver.run();
    expect_found(driver, 9, request);
    const auto num_preemptions = static_cast<int64_t>(driver.scheduler.stats().num_preemptions);
    ASSERT_GT(num_preemptions, 0);
    EXPECT_LT(driver.num_computed, 4 * 216 + num_preemptions * (100 + 4 * 80) + 100 + 4 * 80);
  }
}

TEST(SchedulerBeams, CancelEndsAllBeamsAtOnce) {
  for (const bool in_flight : {false, true}) {
    Driver driver(make_options());
    driver.admit(1, make_search(20, 50, 4));
    driver.run_until_branched(1);
    driver.step();
    if (in_flight) {
      const StepPlan& plan = driver.plan();
      driver.end(1, FinishReason::kCancelled);
      EXPECT_TRUE(driver.ends.empty());
      driver.commit(plan);
    } else {
      driver.end(1, FinishReason::kCancelled);
    }
    ASSERT_TRUE(driver.ends.contains(1));
    EXPECT_EQ(driver.ends[1].reason, FinishReason::kCancelled);
    EXPECT_EQ(driver.ends[1].usage.output_tokens, 0);
    EXPECT_TRUE(driver.scheduler.idle());
    EXPECT_EQ(driver.num_used(), 0);
  }
}

TEST(SchedulerBeams, OneBeamThatFailsFailsTheSearch) {
  for (const int64_t failing : {0, 2, 3}) {
    Driver driver(make_options());
    driver.admit(1, make_search(20, 50, 4));
    driver.run_until_branched(1);
    driver.commit(driver.plan(), failing);
    ASSERT_TRUE(driver.ends.contains(1));
    EXPECT_EQ(driver.ends[1].reason, FinishReason::kError);
    EXPECT_EQ(driver.ends[1].error.message, "not finite");
    EXPECT_TRUE(driver.ends[1].hypotheses.empty());
    EXPECT_EQ(driver.num_used(), 0);
    EXPECT_EQ(driver.scheduler.kv_cache().pool().num_cached(), 0) << "it wrote all of them";
  }
}

TEST(SchedulerBeams, RopeTablesThatChangeGiveTheSameAnswer) {
  const std::function<int64_t(int64_t)> epochs[] = {
      [](int64_t count) { return int64_t{count > 30}; }, [](int64_t count) { return count / 4; },
      [](int64_t count) { return count > 22 ? count : 0; },  // each token has its own
  };
  for (const auto& epoch : epochs) {
    SchedulerOptions options = make_options();
    options.rope_epoch = epoch;
    Driver driver(options);
    const Request request = make_search(20, 16, 3);
    driver.admit(1, request);
    driver.run();
    expect_found(driver, 1, request);
    EXPECT_GT(driver.scheduler.stats().num_epoch_restarts, 0u);
  }
}

TEST(SchedulerBeams, EachBeamHasASlot) {
  Driver driver(make_options());
  driver.admit(1, make_request(4, 30, 3));
  driver.admit(2, make_search(4, 30, 6, 4));
  driver.admit(3, make_search(4, 10, 2, 6));
  driver.step();
  EXPECT_EQ(driver.scheduler.num_running(), 2);  // 1 + 6 of 8 slots
  EXPECT_FALSE(driver.scheduler.find(3)->running);
  driver.run();
  EXPECT_EQ(driver.ends.size(), 3u);
}

// Others do not pass it for ever.
TEST(SchedulerBeams, SlotsAreKeptForASearchThatWasPassedOftenEnough) {
  SchedulerOptions options = make_options();
  options.max_passes = 3;
  Driver driver(options);
  for (RequestId id = 1; id <= 4; ++id) driver.admit(id, make_request(4, 20, 3));
  driver.step();
  const Request request = make_search(4, 10, 8, 4);
  driver.admit(100, request);
  for (RequestId id = 5; id <= 40; ++id) {
    driver.admit(id, make_request(4, 20, 3));
    driver.step();
  }
  driver.run();
  expect_found(driver, 100, request);
  EXPECT_LT(driver.ends[100].times.finished, driver.ends[40].times.started);
}

TEST(SchedulerBeams, MayBeAsLongAsTheBlocksHoldForAllBeams) {
  SchedulerOptions options = make_options();
  options.num_blocks = 16;
  Driver driver(options);
  const BeamLimits limits = beam_limits_of(options);
  EXPECT_EQ(limits.most_blocks(4, 40, 64), 2 + 4 * 2);
  EXPECT_EQ(limits.longest(4, 40, 256), 80);
  EXPECT_EQ(limits.longest(4, 40, 64), 64);
  EXPECT_EQ(limits.longest(4, 240, 256), 0);
  const Request request = make_search(40, 40, 4);
  driver.admit(1, request);
  driver.run();
  expect_found(driver, 1, request);
}

TEST(SchedulerBeams, FewerOutputsThanWantedAreAnError) {
  Driver driver(make_options());
  driver.admit(1, make_search(4, 5, 3));
  const StepPlan& plan = driver.plan();
  std::vector<SpanResult> results(1);
  results[0].sampled.emplace_back().candidates = {{kEnd, -1, true}};
  std::vector<Event> events;
  driver.scheduler.commit(results, 9, &events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(plan.spans.size(), 1u);
  EXPECT_EQ(events[0].reason, FinishReason::kError);
  EXPECT_EQ(events[0].error.message,
            "the beam search found 1 of 3 outputs, and no token is left that may come");
  EXPECT_EQ(driver.num_used(), 0);
}

}  // namespace scheduler_beams_test
}  // namespace headrace
