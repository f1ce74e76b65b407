// What the cache keeps of synthetic traffic: agents, chats and requests that come once, made from
// a seed. Prints a row for each rule of eviction; counts only, no clock.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/testing/cache_fixture.h"
#include "sim/sim_engine.h"

namespace headrace {
namespace {

using testing::CacheFixture;
using testing::options_of;

constexpr int64_t kNumBlocks = 4096;

struct Visit {
  bool comes_back = false;      // a turn of a conversation
  std::vector<int32_t> tokens;  // prompt, then answer
  size_t num_prompt = 0;
};

class TraceMaker {
 public:
  explicit TraceMaker(uint64_t seed) : random_(seed), system_(fresh(900)) {}

  // Agents add to what they know, chats in smaller turns; each tells its whole story each time.
  // Requests that come once are 10 times the cache together; every third begins as the agents do.
  std::vector<Visit> make(bool with_one_shots) {
    std::vector<std::vector<Visit>> sources;
    for (int i = 0; i < 4; ++i) sources.push_back(conversation(system_, 20, 100, 600));
    for (int i = 0; i < 16; ++i) sources.push_back(conversation(fresh(40), 8, 30, 250));
    std::vector<Visit> one_shots;
    for (int64_t left = 10 * kNumBlocks * kBlockTokens; left > 0;) {
      one_shots.push_back(one_shot());
      left -= std::ssize(one_shots.back().tokens);
    }
    if (with_one_shots) sources.push_back(std::move(one_shots));
    return merge(std::move(sources));
  }

 private:
  size_t range(size_t low, size_t high) { return low + random_() % (high - low + 1); }
  std::vector<int32_t> fresh(size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_() % 100'000);
    return tokens;
  }
  void extend(std::vector<int32_t>* tokens, size_t count) {
    const std::vector<int32_t> more = fresh(count);
    tokens->insert(tokens->end(), more.begin(), more.end());
  }

  std::vector<Visit> conversation(std::vector<int32_t> story, int num_turns, size_t least,
                                  size_t most) {
    std::vector<Visit> turns;
    for (int turn = 0; turn < num_turns; ++turn) {
      if (turn == num_turns / 2) story[story.size() / 2] ^= 1;  // somebody edits what was said
      extend(&story, range(least, most));
      const size_t num_prompt = story.size();
      extend(&story, range(least, most) / 2);
      turns.push_back({true, story, num_prompt});
    }
    return turns;
  }
  Visit one_shot() {
    Visit visit;
    if (random_() % 3 == 0) visit.tokens = system_;
    extend(&visit.tokens, range(500, 4000));
    visit.num_prompt = visit.tokens.size();
    extend(&visit.tokens, range(10, 200));
    return visit;
  }
  // In their own order, each as likely to be next as it has visits left.
  std::vector<Visit> merge(std::vector<std::vector<Visit>> sources) {
    std::vector<size_t> next(sources.size());
    size_t num_left = 0;
    for (const auto& source : sources) num_left += source.size();
    std::vector<Visit> all;
    for (; num_left > 0; --num_left) {
      size_t pick = random_() % num_left;
      size_t i = 0;
      for (; pick >= sources[i].size() - next[i]; ++i) pick -= sources[i].size() - next[i];
      all.push_back(std::move(sources[i][next[i]++]));
    }
    return all;
  }

  std::mt19937_64 random_;
  const std::vector<int32_t> system_;
};

struct Hits {
  int64_t prompt_tokens = 0;
  int64_t found = 0;

  double share() const { return static_cast<double>(found) / static_cast<double>(prompt_tokens); }
};

// What conversations find.
Hits play(const std::vector<Visit>& trace, const EvictionRule& rule, int64_t num_blocks) {
  KvCacheOptions options = options_of(num_blocks);
  options.max_chunk = 1 << 20;
  options.eviction = rule;
  CacheFixture f(options);
  Hits hits;
  for (const Visit& visit : trace) {
    const auto prompt_end = visit.tokens.begin() + static_cast<ptrdiff_t>(visit.num_prompt);
    const std::vector<int32_t> prompt(visit.tokens.begin(), prompt_end);
    BlockTable table;
    f.match(prompt, &table);
    const int64_t found = f.cache.fork_cached(prompt, &table);
    f.cache.take_copies();
    f.compute(visit.tokens, &table, 1 << 20);
    f.cache.keep_end(visit.tokens, &table);
    f.cache.release(&table);
    if (!visit.comes_back) continue;
    hits.prompt_tokens += std::ssize(prompt);
    hits.found += found;
  }
  f.expect_sound({});
  return hits;
}

TEST(CacheTrace, OneShotsCostConversationsAtMostATenthOfTheirHits) {
  const EvictionRule last_used = {.new_percent = 100};
  std::printf("%-6s %-12s %-12s %-12s %-12s\n", "seed", "alone", "by worth", "last used", "kept");
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Visit> trace = TraceMaker(seed).make(/*with_one_shots=*/true);
    const Hits alone = play(TraceMaker(seed).make(false), {}, kNumBlocks);
    const Hits by_worth = play(trace, {}, kNumBlocks);
    const Hits by_age = play(trace, last_used, kNumBlocks);
    std::printf("%-6d %-12.4f %-12.4f %-12.4f %-12.4f\n", static_cast<int>(seed), alone.share(),
                by_worth.share(), by_age.share(), by_worth.share() / alone.share());
    EXPECT_GE(by_worth.share(), 0.9 * alone.share());
    EXPECT_GT(by_worth.share(), by_age.share());
  }
}

// A cache that is too small for the conversations themselves: no worse than by age alone.
TEST(CacheTrace, ConversationsAloneLoseNothingToTheRule) {
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Visit> trace = TraceMaker(seed).make(/*with_one_shots=*/false);
    const Hits by_worth = play(trace, {}, kNumBlocks / 3);
    const Hits by_age = play(trace, {.new_percent = 100}, kNumBlocks / 3);
    std::printf("small, seed %d: by worth %.4f, last used %.4f\n", static_cast<int>(seed),
                by_worth.share(), by_age.share());
    EXPECT_GE(by_worth.share(), 0.97 * by_age.share());
  }
}

// Agents on a whole engine, side by side, with requests between that come once.
class Agents {
 public:
  Agents() : random_(5) {
    for (Agent& agent : agents_) agent.story = letters(700);
  }

  void run() {
    for (int turn = 0; turn < 20 && !::testing::Test::HasFailure(); ++turn) {
      for (Agent& agent : agents_) take_turn(&agent, turn);
      for (int i = 0; i < 6; ++i) ask(letters(500), "", [](const Event&) {});
      while (engine_.step([] {})) {
      }
    }
  }
  int64_t num_computed() const { return num_computed_; }
  int64_t num_new() const { return num_new_; }

 private:
  struct Agent {
    std::vector<int32_t> story;   // as it knows it
    std::vector<int32_t> before;  // what the engine has seen
  };

  static SchedulerOptions options() {
    SchedulerOptions options;
    options.max_batch_tokens = 512;
    options.max_logit_rows = 64;
    options.max_sequences = 8;
    options.num_blocks = 2048;
    options.max_context = 16'000;
    return options;
  }
  std::vector<int32_t> letters(int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(sim::kFirstLetter + static_cast<int32_t>(random_() % sim::kNumLetters));
    }
    return tokens;
  }
  void ask(std::vector<int32_t> prompt, const std::string& session,
           std::function<void(const Event&)> hear) {
    Request request;
    request.prompt_ids = std::move(prompt);
    request.max_tokens = 60;
    request.session = session;
    const auto id = engine_.submit(std::move(request), [hear = std::move(hear)](Event&& event) {
      hear(event);
      return true;
    });
    ASSERT_TRUE(id.ok()) << id.error().message;
  }
  void take_turn(Agent* agent, int turn) {
    if (turn == 10) {
      int32_t& edited = agent->story[agent->story.size() / 2];
      edited = edited == sim::kFirstLetter ? sim::kFirstLetter + 1 : sim::kFirstLetter;
    }
    const std::vector<int32_t> more = letters(100 + static_cast<int64_t>(random_() % 200));
    agent->story.insert(agent->story.end(), more.begin(), more.end());
    const int64_t known = num_common_tokens(agent->before, agent->story);
    const std::string session = "agent " + std::to_string(agent - agents_.data());
    ask(agent->story, session, [this, agent, known, turn](const Event& event) {
      if (event.kind == Event::Kind::kToken) agent->story.push_back(event.token_id);
      if (event.kind != Event::Kind::kFinished) return;
      check(event.usage, known, turn);
      agent->before = agent->story;
    });
  }
  void check(const Usage& usage, int64_t known, int turn) {
    const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
    const int64_t fresh = usage.prompt_tokens - known;
    EXPECT_LE(computed - fresh, std::max<int64_t>(64, usage.prompt_tokens / 50)) << turn;
    num_computed_ += computed;
    num_new_ += fresh;
    using Reason = CacheMiss::Reason;
    EXPECT_EQ(usage.miss.reason, turn == 10 ? Reason::kEdited : Reason::kNone) << turn;
    if (turn == 10) {
      EXPECT_EQ(usage.miss.offset, known);
    }
  }

  std::mt19937_64 random_;
  sim::Digest digest_;
  sim::SimEngine engine_{options(), {}, 64, 0, &digest_};
  std::array<Agent, 4> agents_;
  int64_t num_computed_ = 0, num_new_ = 0;
};

TEST(CacheTrace, AnAgentsTurnComputesWhatIsNewAndLittleMore) {
  Agents agents;
  agents.run();
  std::printf("agents: %d prompt tokens computed, %d new\n",
              static_cast<int>(agents.num_computed()), static_cast<int>(agents.num_new()));
  EXPECT_LE(agents.num_computed(), agents.num_new() + 80 * 16);
}

}  // namespace
}  // namespace headrace
