// Guesses: what a plan gives them, what is kept of them, and what masks their rows get.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/constraint.h"
#include "engine/scheduler.h"

namespace headrace {
namespace scheduler_draft_test {

constexpr int32_t kPrompt = 30;

// Guesses what the test says, whoever asks.
class FixedDrafter final : public Drafter {
 public:
  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      asked = task.max_tokens;
      const auto count = std::min(static_cast<size_t>(asked), guesses.size());
      task.draft.token_ids.assign(guesses.begin(), guesses.begin() + static_cast<int64_t>(count));
    }
    return 0;
  }
  std::vector<int32_t> guesses = {11, 12, 13};
  int32_t asked = 0;
};

class DraftTest : public testing::Test {
 protected:
  SchedulerOptions options() {
    SchedulerOptions options;
    options.max_batch_tokens = 32;
    options.max_logit_rows = 8;
    options.max_sequences = 4;
    options.num_blocks = 8;
    options.max_context = 128;
    options.end_ids = {2};
    options.rope_epoch = [](int64_t) { return int64_t{0}; };
    options.drafter = &drafter_;
    options.drafts_must_pay = false;
    options.max_draft_tokens = 3;
    options.vocab_size = 70;
    return options;
  }

  Request request(int32_t max_tokens = 20) const {
    Request request;
    for (int32_t i = 0; i < kPrompt; ++i) request.prompt_ids.push_back(i);
    request.max_tokens = max_tokens;
    return request;
  }

  // The prompt is computed and its first token, 10, is known.
  void begin(Scheduler* scheduler, Request given) {
    scheduler->admit(1, std::move(given), 1);
    const StepPlan* plan = &scheduler->plan(2);
    while (plan->spans[0].num_sampled == 0) {  // it ended where state is kept
      commit(scheduler, *plan, {});
      plan = &scheduler->plan(2);
    }
    commit(scheduler, *plan, {{10}});
    events_.clear();
  }

  void commit(Scheduler* scheduler, const StepPlan& plan, std::vector<SampledToken> sampled,
              std::string failure = "") {
    std::vector<SpanResult> results(plan.spans.size());
    results[0].sampled = std::move(sampled);
    results[0].failure = std::move(failure);
    scheduler->commit(results, 3, &events_);
    const Status sound = scheduler->check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
  }

  std::vector<int32_t> tokens() const {
    std::vector<int32_t> tokens;
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kToken) tokens.push_back(event.token_id);
    }
    return tokens;
  }

  int64_t num_published(const Scheduler& scheduler) const {
    return scheduler.find(1)->table.num_published;
  }

  FixedDrafter drafter_;
  std::vector<Event> events_;
};

TEST_F(DraftTest, ASpanHoldsTheKnownTokenAndTheGuesses) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  const StepPlan& plan = scheduler.plan(3);
  const Span& span = plan.spans[0];
  EXPECT_EQ(span.first_position, kPrompt);
  EXPECT_EQ(span.num_rows, 4);
  EXPECT_EQ(span.num_draft, 3);
  EXPECT_EQ(span.num_sampled, 4);
  EXPECT_EQ(plan.num_tokens, 4);
  EXPECT_EQ(plan.num_logit_rows, 4);
  EXPECT_EQ(plan.sequences[0]->num_known(), kPrompt + 1);
  EXPECT_EQ(plan.sequences[0]->tokens.back(), 13);
  EXPECT_EQ(scheduler.kv_cache().pool().num_used(), 3);  // 34 positions
}

TEST_F(DraftTest, KeepsTheRightOnesAndTheTokenAfterThem) {
  struct Case {
    std::vector<SampledToken> sampled;
    std::vector<int32_t> expected;
  };
  const Case cases[] = {
      {{{11}, {12}, {13}, {14}}, {11, 12, 13, 14}},
      {{{11}, {12}, {9}, {14}}, {11, 12, 9}},
      {{{11}, {9}, {13}, {14}}, {11, 9}},
      {{{9}, {12}, {13}, {14}}, {9}},
  };
  for (const Case& at : cases) {
    Scheduler scheduler(options());
    begin(&scheduler, request());
    commit(&scheduler, scheduler.plan(3), at.sampled);
    EXPECT_EQ(tokens(), at.expected);
    const Sequence& sequence = *scheduler.find(1);
    EXPECT_EQ(sequence.num_known(), kPrompt + 1 + std::ssize(at.expected));
    EXPECT_EQ(sequence.gap(), 1);  // the next plan computes the token that was sampled last
    EXPECT_EQ(sequence.num_draft, 0);
    EXPECT_EQ(sequence.tokens.back(), at.expected.back());
    EXPECT_EQ(scheduler.stats().draft_tokens, 3u);
    EXPECT_EQ(scheduler.stats().accepted_tokens, at.expected.size() - 1);
    EXPECT_EQ(scheduler.stats().generation_tokens, 1 + at.expected.size());
  }
}

// Position 31 ends the second block: it is published only if what stands there is verified.
TEST_F(DraftTest, OnlyVerifiedTokensArePublished) {
  Scheduler right(options()), wrong(options());
  begin(&right, request());
  commit(&right, right.plan(3), {{11}, {12}, {9}, {14}});
  EXPECT_EQ(num_published(right), 2);
  begin(&wrong, request());
  commit(&wrong, wrong.plan(3), {{9}, {12}, {13}, {14}});
  EXPECT_EQ(num_published(wrong), 1);
  EXPECT_EQ(wrong.kv_cache().pool().num_used(), 2);  // 32 tokens are known: a third is given back
}

TEST_F(DraftTest, NothingFollowsAnEndAmongTheGuesses) {
  drafter_.guesses = {11, 2, 13};
  Scheduler scheduler(options());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {{11}, {2}, {13}, {14}});
  EXPECT_EQ(tokens(), std::vector<int32_t>{11});
  EXPECT_EQ(events_.back().reason, FinishReason::kStop);
  EXPECT_EQ(events_.back().stop_id, 2);
  EXPECT_EQ(events_.back().usage.output_tokens, 2);
  EXPECT_TRUE(scheduler.idle());
}

TEST_F(DraftTest, LastTokenIsTheLastThatWasAskedFor) {
  Scheduler scheduler(options());
  begin(&scheduler, request(/*max_tokens=*/4));
  const StepPlan& plan = scheduler.plan(3);
  EXPECT_EQ(drafter_.asked, 2);  // two guesses and the token after them
  commit(&scheduler, plan, {{11}, {12}, {13}});
  EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12, 13}));
  EXPECT_EQ(events_.back().reason, FinishReason::kLength);
  EXPECT_TRUE(scheduler.idle());
}

// A guess that is verified fails as it would have failed alone, after what came before it.
TEST_F(DraftTest, AVerifiedRowThatFailsEndsTheRequest) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {{11}, {-1, {}, "not finite"}, {13}, {14}});
  EXPECT_EQ(tokens(), std::vector<int32_t>{11});
  EXPECT_EQ(events_.back().reason, FinishReason::kError);
  EXPECT_EQ(events_.back().error.message, "not finite");
  EXPECT_EQ(events_.back().error.code, ErrorCode::kUnprocessable);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_FALSE(scheduler.take_tainted_blocks().empty());
  EXPECT_EQ(scheduler.kv_cache().pool().num_cached(), 0);  // nothing that it wrote is found again
}

TEST_F(DraftTest, AWrongGuessThatFailsLeavesNoTrace) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {{9}, {12}, {-1, {}, "not finite"}, {14}});
  EXPECT_EQ(tokens(), std::vector<int32_t>{9});
  const Sequence& sequence = *scheduler.find(1);
  EXPECT_EQ(sequence.num_computed, 0);  // its keys and values may not be read: computed again
  EXPECT_EQ(scheduler.kv_cache().pool().num_used(), 0);
  EXPECT_FALSE(scheduler.take_tainted_blocks().empty());
  const StepPlan& again = scheduler.plan(4);
  EXPECT_EQ(again.spans[0].num_rows, 32);
  EXPECT_EQ(again.spans[0].num_draft, 0);
  EXPECT_EQ(again.spans[0].num_sampled, 1);
}

// Nor does it where the request ends with the same step.
TEST_F(DraftTest, AWrongGuessThatFailsIsWipedWhenTheRequestEnds) {
  for (const bool by_caller : {false, true}) {
    Scheduler scheduler(options());
    begin(&scheduler, request());
    const StepPlan& plan = scheduler.plan(3);
    if (by_caller) scheduler.end(1, FinishReason::kCancelled, 4, &events_);
    commit(&scheduler, plan, {{2}, {12}, {-1, {}, "not finite"}, {14}});
    EXPECT_TRUE(scheduler.idle());
    EXPECT_FALSE(scheduler.take_tainted_blocks().empty());
    EXPECT_EQ(scheduler.kv_cache().pool().num_cached(), 0);
  }
}

TEST_F(DraftTest, ASpanThatFailsTakesItsGuessesWithIt) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {}, "broken row");
  EXPECT_TRUE(tokens().empty());
  EXPECT_EQ(events_.back().error.message, "broken row");
  EXPECT_EQ(events_.back().usage.output_tokens, 1);
}

TEST_F(DraftTest, ARequestEndedInFlightCountsNoGuesses) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  const StepPlan& plan = scheduler.plan(3);
  scheduler.end(1, FinishReason::kStop, 4, &events_);
  commit(&scheduler, plan, {{11}, {12}, {13}, {14}});
  EXPECT_TRUE(tokens().empty());
  EXPECT_EQ(events_.back().reason, FinishReason::kStop);
  EXPECT_EQ(events_.back().usage.output_tokens, 1);
}

TEST_F(DraftTest, GuessesTakeOnlyWhatIsLeft) {
  SchedulerOptions few_rows = options();
  few_rows.max_logit_rows = 4;
  few_rows.max_sequences = 2;
  Scheduler scheduler(few_rows);
  begin(&scheduler, request());
  Request other = request();
  other.prompt_ids.assign(29, 50);
  scheduler.admit(2, other, 3);
  const StepPlan& plan = scheduler.plan(4);  // 29 + 1 tokens are wanted: two are left of 32
  ASSERT_EQ(plan.spans.size(), 2u);
  EXPECT_EQ(drafter_.asked, 2);
  EXPECT_EQ(plan.num_tokens, 32);
  EXPECT_EQ(plan.spans[1].num_rows, 29);
  EXPECT_EQ(plan.num_logit_rows, 4);
}

TEST_F(DraftTest, GuessesTakeNoBlockThatOthersMayNeed) {
  SchedulerOptions tight = options();
  tight.num_blocks = 2;
  tight.max_context = 32;
  Scheduler scheduler(tight);
  begin(&scheduler, request());
  const StepPlan& plan = scheduler.plan(3);
  EXPECT_EQ(drafter_.asked, 0);  // 31 of 32 tokens are known: there is no place for a guess
  EXPECT_EQ(plan.spans[0].num_draft, 0);
  commit(&scheduler, plan, {{11}});
  EXPECT_EQ(events_.back().reason, FinishReason::kLength);
}

TEST_F(DraftTest, GuessesStayUnderOneRopeTable) {
  SchedulerOptions changing = options();
  changing.rope_epoch = [](int64_t count) -> int64_t { return count > 33 ? 33 : 0; };
  Scheduler scheduler(changing);
  begin(&scheduler, request());
  scheduler.plan(3);
  EXPECT_EQ(drafter_.asked, 2);  // 31 are known; the row of the 34th needs the other table
}

// Allows one token per position: 40 plus how many came.
class Counting final : public Constraint {
 public:
  void fill_mask(std::span<uint64_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    mask[static_cast<size_t>(next) / 64] = uint64_t{1} << (next % 64);
  }
  void accept(int32_t token_id) override {
    EXPECT_EQ(token_id, next);
    ++next;
  }
  void rollback(int32_t num_tokens) override { next -= num_tokens; }
  int32_t next = 40;
};

std::vector<int32_t> allowed_by(const uint64_t* mask) {
  std::vector<int32_t> allowed;
  for (int32_t id = 0; id < 70; ++id) {
    if (mask_allows(mask, id)) allowed.push_back(id);
  }
  return allowed;
}

TEST_F(DraftTest, EachRowHasTheMaskOfTheTokensBeforeIt) {
  Scheduler scheduler(options());
  auto constraint = std::make_shared<Counting>();
  constraint->next = 10;
  Request given = request();
  given.constraint = constraint;
  begin(&scheduler, given);
  EXPECT_EQ(constraint->next, 11);
  const StepPlan& plan = scheduler.plan(3);
  scheduler.fill_masks();
  EXPECT_EQ(constraint->next, 11);  // the guesses were taken back
  const uint64_t* masks = plan.spans[0].masks;
  ASSERT_NE(masks, nullptr);
  for (int32_t row = 0; row < 4; ++row) {
    EXPECT_EQ(allowed_by(masks + 2 * row), std::vector<int32_t>{11 + row});
  }
  commit(&scheduler, plan, {{11}, {12}, {13}, {14}});
  EXPECT_EQ(constraint->next, 15);
}

TEST_F(DraftTest, NothingIsAskedPastAForbiddenGuess) {
  drafter_.guesses = {11, 60, 61};
  Scheduler scheduler(options());
  auto constraint = std::make_shared<Counting>();
  constraint->next = 10;
  Request given = request();
  given.constraint = constraint;
  begin(&scheduler, given);
  const StepPlan& plan = scheduler.plan(3);
  scheduler.fill_masks();
  EXPECT_EQ(allowed_by(plan.spans[0].masks + 2), std::vector<int32_t>{12});
  EXPECT_EQ(allowed_by(plan.spans[0].masks + 4).size(), 70u);  // never reached
  commit(&scheduler, plan, {{11}, {12}, {61}, {0}});
  EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12}));
  EXPECT_EQ(constraint->next, 13);
}

// Says what must come: `forced` tokens from where it is, until `end`.
class Forcing final : public Constraint {
 public:
  void fill_mask(std::span<uint64_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    if (!is_finished()) mask[static_cast<size_t>(next) / 64] = uint64_t{1} << (next % 64);
  }
  void accept(int32_t) override { ++next; }
  void rollback(int32_t num_tokens) override { next -= num_tokens; }
  bool is_finished() const override { return next == end; }
  void propose(int32_t max_tokens, std::vector<int32_t>* draft) override {
    asked = max_tokens;
    for (int32_t i = 0; i < std::min(max_tokens, end - next); ++i) draft->push_back(next + i);
  }
  int32_t next = 10, end = 30, asked = 0;
};

TEST_F(DraftTest, WhatAConstraintForcesIsGuessedFirst) {
  SchedulerOptions forced = options();
  forced.max_forced_tokens = 4;
  Scheduler scheduler(forced);
  auto constraint = std::make_shared<Forcing>();
  Request given = request();
  given.constraint = constraint;
  begin(&scheduler, given);
  const StepPlan& plan = scheduler.plan(3);
  EXPECT_EQ(constraint->asked, 4);
  EXPECT_EQ(plan.sequences[0]->draft_ground.source, DraftSource::kConstraint);
  EXPECT_EQ(plan.spans[0].num_draft, 4);
  scheduler.fill_masks();
  for (int32_t row = 0; row < 5; ++row) {
    EXPECT_EQ(allowed_by(plan.spans[0].masks + 2 * row), std::vector<int32_t>{11 + row});
  }
  commit(&scheduler, plan, {{11}, {12}, {13}, {14}, {15}});
  EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12, 13, 14, 15}));
}

TEST_F(DraftTest, AConstraintWhoseTokensDoNotComeIsNotAskedForEver) {
  SchedulerOptions forced = options();
  forced.drafter = nullptr;
  Scheduler scheduler(forced);
  auto constraint = std::make_shared<Forcing>();
  constraint->end = 70;
  Request given = request(60);
  given.constraint = constraint;
  begin(&scheduler, given);
  int num_asked = 0;
  for (int step = 0; step < 20; ++step) {
    const StepPlan& plan = scheduler.plan(3);
    const auto num_rows = static_cast<size_t>(plan.spans[0].num_sampled);
    num_asked += num_rows > 1;
    commit(&scheduler, plan, std::vector<SampledToken>(num_rows, SampledToken{50}));
  }
  EXPECT_GT(num_asked, 3);
  EXPECT_LT(num_asked, 8);
}

TEST_F(DraftTest, ARequestEndsWithItsConstraint) {
  for (const bool guesses : {false, true}) {
    SchedulerOptions forced = options();
    forced.drafter = nullptr;
    forced.max_forced_tokens = guesses ? 8 : 0;
    Scheduler scheduler(forced);
    auto constraint = std::make_shared<Forcing>();
    constraint->end = 13;
    Request given = request();
    given.constraint = constraint;
    begin(&scheduler, given);
    for (int32_t next = 11; !scheduler.idle();) {
      const StepPlan& plan = scheduler.plan(3);
      std::vector<SampledToken> sampled;
      for (int32_t i = 0; i < plan.spans[0].num_sampled; ++i) sampled.push_back({next + i});
      next += plan.spans[0].num_sampled;
      commit(&scheduler, plan, std::move(sampled));
    }
    EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12}));
    EXPECT_EQ(events_.back().reason, FinishReason::kStop);
    EXPECT_EQ(events_.back().stop_id, -1);
    events_.clear();
  }
}

// A model whose layers keep positions, and some of them state.
class KeptStateTest : public DraftTest {
 protected:
  SchedulerOptions with_state(int64_t snapshot_blocks = 100) {
    SchedulerOptions with = options();
    with.cache_rules.push_back({CachePolicy::kState, 0, snapshot_blocks, 1});
    with.num_blocks = 12;
    return with;
  }
  static int32_t state_at(const Sequence& sequence, int64_t position) {
    return sequence.table.columns[1].blocks[static_cast<size_t>(position / kBlockTokens)];
  }
};

TEST_F(KeptStateTest, GuessesHaveAPlaceOfTheirOwn) {
  Scheduler scheduler(with_state());
  begin(&scheduler, request());
  const StepPlan& plan = scheduler.plan(3);
  const Span& span = plan.spans[0];
  EXPECT_EQ(span.num_draft, 3);
  ASSERT_NE(span.states_ahead, nullptr);
  const int32_t before = state_at(*scheduler.find(1), kPrompt), ahead = span.states_ahead[1];
  EXPECT_NE(ahead, before);
  commit(&scheduler, plan, {{11}, {12}, {13}, {14}});
  EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12, 13, 14}));
  EXPECT_EQ(scheduler.find(1)->num_computed, kPrompt + 4);
  EXPECT_EQ(state_at(*scheduler.find(1), kPrompt + 3), ahead);
}

TEST_F(KeptStateTest, TheRightOnesBeforeAWrongOneAreComputedAgain) {
  Scheduler scheduler(with_state());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {{11}, {12}, {9}, {14}});
  EXPECT_EQ(tokens(), (std::vector<int32_t>{11, 12, 9}));
  EXPECT_EQ(scheduler.find(1)->num_computed, kPrompt + 1);
  const StepPlan& again = scheduler.plan(4);
  const Span& span = again.spans[0];
  EXPECT_EQ(span.first_position, kPrompt + 1);
  EXPECT_EQ(span.num_draft, 3);  // it may guess again
  EXPECT_EQ(span.num_rows, 3 + 3);
  EXPECT_EQ(span.num_sampled, 4);
  EXPECT_EQ(drafter_.asked, 3);
  commit(&scheduler, again, {{11}, {12}, {13}, {14}});
  EXPECT_EQ(scheduler.find(1)->num_computed, kPrompt + 7);
  EXPECT_EQ(scheduler.find(1)->gap(), 1);
}

TEST_F(KeptStateTest, AWrongFirstGuessCostsNothingLater) {
  Scheduler scheduler(with_state());
  begin(&scheduler, request());
  commit(&scheduler, scheduler.plan(3), {{9}, {12}, {13}, {14}});
  EXPECT_EQ(scheduler.find(1)->gap(), 1);
}

// 48 tokens are where the next snapshot is kept: no step goes past it.
TEST_F(KeptStateTest, GuessesEndWhereStateIsKept) {
  Scheduler scheduler(with_state(/*snapshot_blocks=*/3));
  begin(&scheduler, request(40));
  drafter_.guesses.assign(3, 11);
  for (int32_t known = kPrompt + 1; known < 46; ++known) {
    commit(&scheduler, scheduler.plan(3), {{9}, {9}, {9}, {9}});
  }
  const StepPlan& plan = scheduler.plan(4);  // 45 are computed, and 46 known
  EXPECT_EQ(plan.spans[0].num_draft, 2);
  commit(&scheduler, plan, {{11}, {11}, {9}});
  EXPECT_EQ(scheduler.find(1)->num_computed, 48);
  EXPECT_EQ(num_published(scheduler), 3);
  const std::vector<int32_t> tokens = scheduler.find(1)->tokens;
  const KvCache::Found found =
      scheduler.kv_cache().peek(tokens, scheduler.kv_cache().root(root_of(*scheduler.find(1))));
  EXPECT_EQ(found.num_blocks, 3);
  EXPECT_EQ(scheduler.plan(5).spans[0].first_position, 48);
}

TEST_F(KeptStateTest, NoBlockNoGuesses) {
  SchedulerOptions tight = with_state();
  tight.num_blocks = 6;  // of positions up to 64 four, of the state two
  tight.max_context = 64;
  tight.max_sequences = 1;
  Scheduler scheduler(tight);
  Request longer = request(30);
  for (int32_t i = 0; i < 18; ++i) longer.prompt_ids.push_back(60);  // 48
  begin(&scheduler, std::move(longer));
  const StepPlan& plan = scheduler.plan(3);  // the state after 49 takes the other block
  EXPECT_EQ(drafter_.asked, 3);
  EXPECT_EQ(plan.spans[0].num_draft, 0);
  commit(&scheduler, plan, {{11}});
  const StepPlan& next = scheduler.plan(4);  // and has one now
  EXPECT_EQ(next.spans[0].num_draft, 3);
  commit(&scheduler, next, {{9}, {12}, {13}, {14}});
  EXPECT_EQ(scheduler.stats().num_preemptions, 0u);
}

TEST_F(KeptStateTest, EndsAndFailuresInFlightLeaveNoBlock) {
  for (const std::string failure : {"", "broken row"}) {
    Scheduler scheduler(with_state());
    begin(&scheduler, request());
    const StepPlan& plan = scheduler.plan(3);
    const int32_t ahead = plan.spans[0].states_ahead[1];
    scheduler.end(1, FinishReason::kCancelled, 4, &events_);
    commit(&scheduler, plan, {{11}, {12}, {9}, {14}}, failure);
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.kv_cache().pool().num_used(), 0);
    const std::vector<int32_t> tainted = scheduler.take_tainted_blocks();
    EXPECT_EQ(std::count(tainted.begin(), tainted.end(), ahead), failure.empty() ? 0 : 1);
  }
}

TEST_F(KeptStateTest, AWrongGuessThatFailsIsWipedFromItsState) {
  Scheduler scheduler(with_state());
  begin(&scheduler, request());
  const StepPlan& plan = scheduler.plan(3);
  const int32_t ahead = plan.spans[0].states_ahead[1];
  commit(&scheduler, plan, {{9}, {12}, {-1, {}, "not finite"}, {14}});
  EXPECT_EQ(scheduler.find(1)->num_computed, 0);
  const std::vector<int32_t> tainted = scheduler.take_tainted_blocks();
  EXPECT_EQ(std::count(tainted.begin(), tainted.end(), ahead), 1);
}

TEST_F(DraftTest, SpansWithoutAConstraintHaveNoMask) {
  Scheduler scheduler(options());
  begin(&scheduler, request());
  EXPECT_EQ(scheduler.plan(3).spans[0].masks, nullptr);
  SchedulerOptions unsized = options();
  unsized.vocab_size = 0;
  Scheduler without(unsized);
  Request given = request();
  given.constraint = std::make_shared<Counting>();
  EXPECT_DEATH(without.admit(1, given, 1), "no size of the vocabulary");
}

// Learns of rows; guesses what the test says.
class StateDrafter final : public Drafter {
 public:
  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      task.draft.ground = {source()};
      if (task.max_tokens >= 2) task.draft.token_ids = {11, 12};
    }
    return 1;
  }
  DraftSource source() const override { return DraftSource::kHead; }
  bool wants_states() const override { return true; }
  void observe(const Sequence& /*sequence*/, int64_t first_position,
               std::span<const float> states) override {
    told.emplace_back(first_position, std::vector<float>(states.begin(), states.end()));
  }
  int32_t keep_up(std::span<Sequence* const> sequences, bool may_run) override {
    num_sequences = sequences.size();
    may_keep_up = may_run;
    return num_keep_ups;
  }

  std::vector<std::pair<int64_t, std::vector<float>>> told;
  size_t num_sequences = 0;
  bool may_keep_up = false;
  int32_t num_keep_ups = 0;
};

class StatesTest : public DraftTest {
 protected:
  SchedulerOptions options() {
    SchedulerOptions made = DraftTest::options();
    made.drafter = nullptr;
    made.model_drafter = &states_drafter_;
    return made;
  }
  // States of width two that name their positions.
  void commit_with_states(Scheduler* scheduler, const StepPlan& plan,
                          std::vector<SampledToken> sampled) {
    const Span& span = plan.spans[0];
    std::vector<float> states;
    for (int32_t i = 0; i < span.num_pooled; ++i) {
      const auto position = static_cast<float>(span.first_pooled + i);
      states.insert(states.end(), {position, -position});
    }
    std::vector<SpanResult> results(1);
    results[0].sampled = std::move(sampled);
    results[0].pooled = states;
    scheduler->commit(results, 3, &events_);
  }
  StateDrafter states_drafter_;
};

TEST_F(StatesTest, ADrafterIsToldOfTheRowsWhoseTokensAreRight) {
  Scheduler scheduler(options());
  scheduler.admit(1, request(), 1);
  const StepPlan& prompt = scheduler.plan(2);
  EXPECT_EQ(prompt.spans[0].num_pooled, kPrompt);
  commit_with_states(&scheduler, prompt, {{10}});
  ASSERT_EQ(states_drafter_.told.size(), 1u);
  EXPECT_EQ(states_drafter_.told[0].first, 0);
  EXPECT_EQ(states_drafter_.told[0].second.size(), 2u * kPrompt);
  const StepPlan& guessed = scheduler.plan(4);
  EXPECT_EQ(states_drafter_.num_sequences, 1u);
  ASSERT_EQ(guessed.spans[0].num_draft, 2);
  EXPECT_EQ(guessed.spans[0].first_pooled, kPrompt);
  EXPECT_EQ(guessed.spans[0].num_pooled, 3);
  commit_with_states(&scheduler, guessed, {{11}, {9}, {14}});
  ASSERT_EQ(states_drafter_.told.size(), 2u);
  EXPECT_EQ(states_drafter_.told[1].first, kPrompt);
  EXPECT_EQ(states_drafter_.told[1].second, (std::vector<float>{30, -30, 31, -31}));
  EXPECT_EQ(tokens(), (std::vector<int32_t>{10, 11, 9}));
  const DraftCounts& counts = scheduler.stats().drafts[static_cast<size_t>(DraftSource::kHead)];
  EXPECT_EQ(counts.num_tokens, 2u);
  EXPECT_EQ(counts.num_accepted, 1u);
}

// Who keeps up with prompts does not guess for the same step.
TEST_F(StatesTest, AStepAfterPromptsIsWithoutGuesses) {
  Scheduler scheduler(options());
  scheduler.admit(1, request(), 1);
  commit_with_states(&scheduler, scheduler.plan(2), {{10}});
  states_drafter_.num_keep_ups = 1;
  const StepPlan& plan = scheduler.plan(4);
  EXPECT_TRUE(states_drafter_.may_keep_up);
  EXPECT_EQ(plan.spans[0].num_draft, 0);
  commit_with_states(&scheduler, plan, {{11}});
  states_drafter_.num_keep_ups = 0;
  EXPECT_EQ(scheduler.plan(5).spans[0].num_draft, 2);
}

// Nothing is asked of rows of who gets no guesses.
TEST_F(StatesTest, RowsThatNobodyLearnsOfKeepTheirStates) {
  Scheduler scheduler(options());
  Request drawn = request();
  drawn.sampling.mirostat = true;
  drawn.sampling.temperature = 1;
  scheduler.admit(1, std::move(drawn), 1);
  EXPECT_EQ(scheduler.plan(2).spans[0].num_pooled, 0);
}

}  // namespace scheduler_draft_test
}  // namespace headrace
