// Prompt log-probs through the cache: what is kept is not computed again, and gives the same.

#include <gtest/gtest.h>

#include <map>

#include "engine/scheduler.h"
#include "model/adapter.h"

namespace headrace {
namespace scheduler_scores_test {

SchedulerOptions scoring_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 16;
  options.max_sequences = 4;
  options.num_blocks = 64;
  options.max_context = 256;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request scoring_request(int32_t num_prompt, int num_top, int32_t last = 7) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(100 + i);
  request.prompt_ids.back() = last;
  request.max_tokens = 0;
  request.num_prompt_logprobs = num_top;
  return request;
}

// A score is made of all tokens up to the scored one.
TokenLogprobs score_of(const std::vector<int32_t>& tokens, size_t position, int num_top) {
  float sum = 0;
  for (size_t i = 0; i <= position; ++i) sum = sum * 0.75f - static_cast<float>(tokens[i]);
  TokenLogprobs score{sum, tokens[position] % 9, {}};
  for (int32_t i = 0; i < num_top; ++i) score.top.emplace_back(i, sum + static_cast<float>(i));
  return score;
}

class ScoringEngine {
 public:
  explicit ScoringEngine(SchedulerOptions options = scoring_options())
      : scheduler(std::move(options)) {}

  // Positions that were computed.
  int64_t run() {
    const int64_t before = num_rows_;
    while (!scheduler.idle()) step();
    return num_rows_ - before;
  }
  void step() {
    const StepPlan& plan = scheduler.plan(++now_);
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Span& span = plan.spans[i];
      const Sequence& sequence = *plan.sequences[i];
      num_rows_ += span.num_rows;
      results[i].sampled.assign(static_cast<size_t>(span.num_sampled), {9});
      for (int32_t k = 0; k < span.num_scored; ++k) {
        results[i].scored.push_back(score_of(sequence.tokens,
                                             static_cast<size_t>(span.first_scored + k + 1),
                                             *sequence.request.num_prompt_logprobs));
      }
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now_, &events);
    scheduler.take_block_copies();
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    for (Event& event : events) {
      if (event.kind == Event::Kind::kPromptLogprobs) scores_[event.request_id] = std::move(event);
    }
  }
  // Admits, and says what it heard later.
  void admit(RequestId id, Request request) {
    prompts_[id] = request.prompt_ids;
    num_tops_[id] = *request.num_prompt_logprobs;
    scheduler.admit(id, std::move(request), ++now_);
  }
  int64_t run(RequestId id, Request request) {
    admit(id, std::move(request));
    return run();
  }
  void expect_scores(RequestId id) {
    const auto& found = scores_.at(id).prompt_logprobs;
    const std::vector<int32_t>& tokens = prompts_.at(id);
    ASSERT_EQ(found.size(), tokens.size());
    EXPECT_FALSE(found[0].has_value());
    for (size_t i = 1; i < found.size(); ++i) {
      ASSERT_TRUE(found[i].has_value()) << i;
      const TokenLogprobs wanted = score_of(tokens, i, num_tops_.at(id));
      EXPECT_EQ(found[i]->logprob, wanted.logprob) << i;
      EXPECT_EQ(found[i]->rank, wanted.rank) << i;
      EXPECT_EQ(found[i]->top, wanted.top) << i;
    }
  }

  Scheduler scheduler;

 private:
  std::map<RequestId, std::vector<int32_t>> prompts_;
  std::map<RequestId, int> num_tops_;
  std::map<RequestId, Event> scores_;
  int64_t num_rows_ = 0;
  TimeUs now_ = 1;
};

TEST(SchedulerScores, TheRestAloneIsComputedOfAPromptWhoseBeginningWasScored) {
  ScoringEngine engine;
  EXPECT_EQ(engine.run(1, scoring_request(90, 3)), 90);
  EXPECT_EQ(engine.scheduler.scores().num_blocks(), 5u);
  // The row before the first token without a score, to the end.
  EXPECT_EQ(engine.run(2, scoring_request(90, 3, 8)), 90 - 79);
  EXPECT_EQ(engine.run(3, scoring_request(70, 2, 9)), 70 - 63);
  for (const RequestId id : {1, 2, 3}) engine.expect_scores(id);
}

TEST(SchedulerScores, APromptOfWholeBlocksComputesOneToken) {
  ScoringEngine engine;
  EXPECT_EQ(engine.run(1, scoring_request(64, 1)), 64);
  EXPECT_EQ(engine.run(2, scoring_request(64, 1)), 1);
  engine.expect_scores(2);
}

TEST(SchedulerScores, MoreAlternativesThanAreKeptAreComputed) {
  ScoringEngine engine;
  EXPECT_EQ(engine.run(1, scoring_request(40, 1)), 40);
  EXPECT_EQ(engine.run(2, scoring_request(40, 5)), 40);
  engine.expect_scores(2);
  EXPECT_EQ(engine.run(3, scoring_request(40, 0)), 40 - 31);
  EXPECT_EQ(engine.run(4, scoring_request(40, 4)), 40 - 31);
  engine.expect_scores(3);
  engine.expect_scores(4);
}

// Keys and values are there, scores are not.
TEST(SchedulerScores, WhatWasOnlyReadBeforeIsScoredInFull) {
  ScoringEngine engine;
  Request talks = scoring_request(40, 0);
  talks.num_prompt_logprobs.reset();
  talks.max_tokens = 1;
  engine.scheduler.admit(1, std::move(talks), 1);
  EXPECT_EQ(engine.run(), 40);
  EXPECT_EQ(engine.run(2, scoring_request(40, 2)), 40);
  engine.expect_scores(2);
}

// And the other way round: the scores are there, keys and values are not.
TEST(SchedulerScores, ScoresOutliveEvictedBlocks) {
  SchedulerOptions options = scoring_options();
  options.num_blocks = 16;
  ScoringEngine engine(std::move(options));
  EXPECT_EQ(engine.run(1, scoring_request(60, 2)), 60);
  Request other = scoring_request(250, 0);
  other.num_prompt_logprobs.reset();
  other.max_tokens = 1;
  other.prompt_ids.assign(250, 5);
  engine.scheduler.admit(2, std::move(other), 1);
  engine.run();
  EXPECT_EQ(engine.run(3, scoring_request(60, 2)), 60);
  engine.expect_scores(3);
}

TEST(SchedulerScores, WhoComesWithTheSameBeginningFollows) {
  ScoringEngine engine;
  for (RequestId id = 1; id <= 4; ++id) {
    engine.admit(id, scoring_request(90, 1, static_cast<int32_t>(id)));
  }
  EXPECT_EQ(engine.run(), 90 + 3 * (90 - 79));
  for (RequestId id = 1; id <= 4; ++id) engine.expect_scores(id);
  EXPECT_EQ(engine.scheduler.stats().num_followed, 3u);
}

TEST(SchedulerScores, NobodyFollowsWhoScoresLess) {
  ScoringEngine engine;
  engine.admit(1, scoring_request(90, 1));
  engine.admit(2, scoring_request(90, 4));
  EXPECT_EQ(engine.run(), 180);
  engine.expect_scores(1);
  engine.expect_scores(2);
}

TEST(SchedulerScores, AdaptersAndDomainsHaveTheirOwn) {
  ScoringEngine engine;
  engine.run(1, scoring_request(40, 1));
  Request other = scoring_request(40, 1);
  other.cache_domain = "b";
  EXPECT_EQ(engine.run(2, other), 40);
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = "a";
  other.adapter = adapter;
  EXPECT_EQ(engine.run(3, other), 40);
  EXPECT_EQ(engine.run(4, other), 40 - 31);
}

TEST(SchedulerScores, AResetForgetsThem) {
  ScoringEngine engine;
  engine.run(1, scoring_request(40, 1));
  engine.scheduler.reset_cache();
  EXPECT_EQ(engine.run(2, scoring_request(40, 1)), 40);
}

TEST(SchedulerScores, WithoutRoomAllIsComputed) {
  SchedulerOptions options = scoring_options();
  options.max_score_bytes = 0;
  ScoringEngine engine(std::move(options));
  engine.run(1, scoring_request(40, 1));
  EXPECT_EQ(engine.run(2, scoring_request(40, 1)), 40);
  engine.expect_scores(2);
}

}  // namespace scheduler_scores_test
}  // namespace headrace
