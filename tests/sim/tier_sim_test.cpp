// The scheduler over a tier that is late, loses what it had and fails: answers are those of each
// request alone, everything ends, and blocks add up.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/scheduler.h"
#include "sim/group_kv.h"
#include "sim/sim_tier.h"

namespace headrace {
namespace tier_sim_test {

constexpr int32_t kVocab = 30;

int32_t token_after(uint64_t hash) { return static_cast<int32_t>(mix_bits(hash) % kVocab); }

std::vector<int32_t> answer_alone(const Request& request) {
  std::vector<int32_t> tokens = request.prompt_ids;
  uint64_t hash = 0;
  int64_t num_hashed = 0;
  for (int32_t i = 0; i < request.max_tokens; ++i) {
    for (; num_hashed < std::ssize(tokens); ++num_hashed) {
      hash = extend_hash(hash, tokens[static_cast<size_t>(num_hashed)], num_hashed, 0);
    }
    tokens.push_back(token_after(hash));
  }
  return {tokens.begin() + std::ssize(request.prompt_ids), tokens.end()};
}

class TierSim {
 public:
  TierSim(uint64_t seed, const SimTierOptions& tier)
      : random_(seed),
        tier_(tier, seed + 1),
        scheduler_(options()),
        kv_(scheduler_.options().num_blocks, scheduler_.options().cache_rules) {}

  void run(int num_requests) {
    int num_left = num_requests;
    int num_idle_plans = 0;
    while (num_left > 0 || !scheduler_.idle()) {
      if (num_left > 0 && random_() % 3 == 0) {
        arrive();
        --num_left;
      }
      if (random_() % 64 == 0) {
        scheduler_.end(random_() % (last_id_ + 1), FinishReason::kCancelled, ++now_, &events_);
      }
      take_events();
      tier_.poll();
      if (scheduler_.idle()) continue;
      num_idle_plans = step() ? 0 : num_idle_plans + 1;
      ASSERT_LT(num_idle_plans, 2000) << "requests wait for the tier without an end";
      const Status sound = scheduler_.check();
      ASSERT_TRUE(sound.ok()) << sound.error().message;
    }
    take_events();
    EXPECT_EQ(scheduler_.kv_cache().pool().num_used(), 0);
    EXPECT_TRUE(outputs_.empty()) << "requests without an end";
  }
  int64_t num_errors() const { return kv_.num_errors(); }
  int64_t num_wrong_answers() const { return num_wrong_; }
  const SchedulerStats& stats() const { return scheduler_.stats(); }

 private:
  SchedulerOptions options() {
    SchedulerOptions options;
    options.max_sequences = 4;
    options.max_batch_tokens = 32;
    options.max_logit_rows = 8;
    options.cache_rules = random_rules();
    options.max_context = 20 * kBlockTokens;
    options.num_blocks = most_blocks(options.cache_rules, options.max_context, 32) +
                         static_cast<int64_t>(random_() % 8);
    options.rope_epoch = [](int64_t) { return int64_t{0}; };
    options.hash_key = {random_(), random_()};
    options.tier = &tier_;
    return options;
  }

  std::vector<CacheRule> random_rules() {
    const CacheRule full = {};
    const auto window = static_cast<int64_t>(1 + random_() % 60);
    const CacheRule windows{CachePolicy::kWindow, window, 0, static_cast<int>(1 + random_() % 2)};
    const CacheRule state{CachePolicy::kState, 0, static_cast<int64_t>(1 + random_() % 3)};
    const std::vector<CacheRule> rules[] = {{full},    {full, full},  {full, windows},
                                            {windows}, {full, state}, {windows, full, state}};
    return rules[random_() % std::size(rules)];
  }

  // One of a few conversations, up to some turn, with a question of its own.
  void arrive() {
    Request request;
    const uint64_t talk = random_() % 6;
    const uint64_t length = 1 + random_() % 240;
    for (uint64_t i = 0; i < length; ++i) {
      request.prompt_ids.push_back(static_cast<int32_t>(mix_bits(talk * 1000 + i) % kVocab));
    }
    for (uint64_t i = random_() % 8; i > 0; --i) {
      request.prompt_ids.push_back(static_cast<int32_t>(random_() % kVocab));
    }
    request.max_tokens = static_cast<int32_t>(1 + random_() % 30);
    request.ignore_eos = true;
    const RequestId id = ++last_id_;
    outputs_[id] = {request, {}};
    scheduler_.admit(id, std::move(request), ++now_);
  }

  // False: all wait for the tier.
  bool step() {
    now_ += static_cast<TimeUs>(1 + random_() % 20'000);
    const StepPlan& plan = scheduler_.plan(now_);
    scheduler_.take_tainted_blocks();
    kv_.copy(scheduler_.take_block_copies(), &tier_);
    if (plan.spans.empty()) return false;
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Span& span = plan.spans[i];
      const std::vector<uint64_t> hashes = kv_.run(span, plan.sequences[i]->tokens, 0);
      if (span.num_sampled > 0) results[i].sampled.push_back({token_after(hashes.back())});
      if (random_() % 512 == 0) results[i].failure = "not finite";
    }
    now_ += static_cast<TimeUs>(1 + random_() % 20'000);
    scheduler_.commit(results, now_, &events_);
    if (random_() % 2 == 0) kv_.copy(scheduler_.take_block_copies(), &tier_);  // at once, or later
    return true;
  }

  void take_events() {
    for (const Event& event : std::exchange(events_, {})) {
      auto& [request, output] = outputs_.at(event.request_id);
      if (event.kind == Event::Kind::kToken) output.push_back(event.token_id);
      if (event.kind != Event::Kind::kFinished) continue;
      std::vector<int32_t> expected = answer_alone(request);
      if (event.reason == FinishReason::kLength) {
        EXPECT_EQ(output.size(), expected.size());
      }
      expected.resize(output.size());
      num_wrong_ += output != expected;
      outputs_.erase(event.request_id);
    }
  }

  std::mt19937_64 random_;
  SimTier tier_;
  Scheduler scheduler_;
  GroupKv kv_;
  std::map<RequestId, std::pair<Request, std::vector<int32_t>>> outputs_;
  std::vector<Event> events_;
  RequestId last_id_ = 0;
  TimeUs now_ = 1;
  int64_t num_wrong_ = 0;
};

TEST(TierSimTest, AnswersAreThoseOfEachRequestAlone) {
  SchedulerStats all;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    SimTierOptions tier;
    tier.num_slots = static_cast<int>(1 + seed % 40);
    tier.read_us = seed % 4 == 0 ? 20'000 : 100;
    tier.faults_per_64 = seed % 3 == 0 ? 0 : static_cast<int>(seed % 20);
    TierSim sim(seed, tier);
    sim.run(60);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(sim.num_errors(), 0);
    ASSERT_EQ(sim.num_wrong_answers(), 0);
    all.restored_tokens += sim.stats().restored_tokens;
    all.num_fetches += sim.stats().num_fetches;
    all.num_refusals += sim.stats().num_refusals;
    all.num_late_fetches += sim.stats().num_late_fetches;
  }
  EXPECT_GT(all.restored_tokens, 10'000u);
  EXPECT_GT(all.num_fetches, 100u);
  EXPECT_GT(all.num_refusals, 0u);
  EXPECT_GT(all.num_late_fetches, 0u);
}

TEST(TierSimTest, WrongBytesAreSeen) {
  SimTierOptions tier;
  tier.num_slots = 30;
  tier.lies = true;
  TierSim sim(7, tier);
  sim.run(60);
  EXPECT_GT(sim.num_errors(), 0);
}

}  // namespace tier_sim_test
}  // namespace headrace
