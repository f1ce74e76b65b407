// The policy on a machine whose step times are known, with guesses that come true by a given share.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <random>

namespace headrace {
namespace draft_policy_test {

// Streams that decode, and what each is offered.
struct World {
  int num_streams = 1;
  double share = 0;  // of guesses that come true
  int32_t match_length = 8;
  int32_t num_guesses = 8;  // offered in each step
  double row_us = 250;      // each row after the first; the first takes 1000
  double noise = 0.1;
  uint64_t disturbed_of_64 = 0;  // steps that take five times as long
  double growth_us = 0;          // of a step with each step
  double run_us = 0;             // of a head, which then guesses instead of text
  int32_t prompt_steps = 0;      // before every so many steps a prompt is computed; 0: none
  double head_share = 0;         // of a prompt's time, that the head needs for it
  bool redoes_rows = false;      // right guesses before a wrong one are computed again
};

struct Outcome {
  double speedup = 0;  // tokens per time, by those without guesses
  int64_t num_guesses = 0;
  uint64_t num_pauses = 0;
};

class Machine {
 public:
  explicit Machine(const World& world) : world_(world), sequences_(num_streams()) {
    for (Sequence& sequence : sequences_) sequence.tokens.assign(100, 1);
  }

  Outcome run(int num_steps) {
    Outcome outcome;
    double spent = 0, plain = 0;
    for (int i = 0; i < num_steps; ++i) step(&outcome, &spent, &plain);
    outcome.speedup = plain / spent;
    outcome.num_pauses = policy_.num_pauses();
    return outcome;
  }
  World& world() { return world_; }

 private:
  size_t num_streams() const { return static_cast<size_t>(world_.num_streams); }
  double chance() { return std::uniform_real_distribution<>(0, 1)(random_); }
  double us_of(const StepLoad& load) const {
    return 1000 + world_.row_us * static_cast<double>(load.num_rows - 1) + grown_us_;
  }

  void step(Outcome* outcome, double* spent, double* plain) {
    DraftStep planned;
    planned.num_streams = world_.num_streams;
    planned.max_guesses = 64;
    planned.redoes_rows = world_.redoes_rows;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      planned.load.add(100, 1 + std::exchange(num_redone_[i], 0), 1, false);
      planned.plain_load.add(100, 1, 1, false);
    }
    if (world_.prompt_steps > 0 && num_steps_++ % world_.prompt_steps == 0) {
      compute_prompt(spent, plain);
    }
    std::vector<DraftTask> tasks;
    double draft_us = 0;
    if (!policy_.rests(planned)) {
      for (Sequence& sequence : sequences_) {
        DraftTask task{&sequence, world_.num_guesses};
        task.draft.ground.match_length = world_.match_length;
        tasks.push_back(std::move(task));
      }
      const int32_t length = world_.run_us > 0 ? ask_head(planned, tasks) : world_.num_guesses;
      for (DraftTask& task : tasks) task.draft.token_ids.assign(static_cast<size_t>(length), 1);
      if (world_.run_us > 0) draft_us = length * world_.run_us;
      policy_.choose(cost_, planned, tasks);
    }
    TakenStep taken{planned.load, planned.plain_load, planned.num_streams, planned.num_streams, 0};
    taken.draft_us = draft_us;
    for (size_t i = 0; i < tasks.size(); ++i) verify(tasks[i], i, &taken);
    double us = us_of(taken.load) * (1 + world_.noise * (2 * chance() - 1));
    if (random_() % 64 < world_.disturbed_of_64) us *= 5;
    taken.us = us;
    cost_.observe(taken.load, static_cast<TimeUs>(us));
    policy_.took(cost_, taken);
    outcome->num_guesses += taken.load.num_rows - planned.load.num_rows;
    *spent += us_of(taken.load) + draft_us;
    *plain += us_of(planned.plain_load) * taken.num_tokens / taken.num_streams;
    grown_us_ += world_.growth_us;
  }

  int32_t ask_head(const DraftStep& planned, std::vector<DraftTask>& tasks) {
    for (DraftTask& task : tasks) task.draft.ground.source = DraftSource::kHead;
    const int32_t length = policy_.model_length(cost_, planned, tasks, DraftSource::kHead);
    if (length > 0) policy_.drafted(length, length * world_.run_us);
    return length;
  }
  // As long as thirty steps.
  void compute_prompt(double* spent, double* plain) {
    constexpr double kPromptUs = 30'000;
    const double head_us = policy_.has_credit() ? world_.head_share * kPromptUs : 0;
    if (head_us > 0) policy_.kept_up(cost_, head_us, kPromptUs);
    *spent += kPromptUs + head_us;
    *plain += kPromptUs;
  }

  void verify(const DraftTask& task, size_t stream, TakenStep* taken) {
    const auto count = static_cast<int32_t>(task.draft.token_ids.size());
    if (count == 0) return;
    int32_t accepted = 0;
    while (accepted < count && chance() < world_.share) ++accepted;
    policy_.verified(task.draft.ground, count, accepted, &sequences_[stream].draft_record);
    if (world_.redoes_rows && accepted < count) num_redone_[stream] = accepted;
    taken->load.num_rows += count;
    taken->load.num_logit_rows += count;
    taken->num_tokens += accepted;
  }

  World world_;
  std::mt19937_64 random_{11};
  std::vector<Sequence> sequences_;
  std::vector<int64_t> num_redone_ = std::vector<int64_t>(num_streams());
  StepCost cost_;
  DraftPolicy policy_;
  double grown_us_ = 0;
  int64_t num_steps_ = 0;
};

Outcome run(const World& world, int num_steps = 1500) { return Machine(world).run(num_steps); }

TEST(DraftPolicy, GuessesThatComeTruePay) {
  // 16 rows would take 4.75 steps of one row; the best that 95 % right can give is some 2.1.
  const Outcome alone = run({.share = 0.95, .num_guesses = 16});
  EXPECT_GT(alone.speedup, 1.9);
  EXPECT_EQ(alone.num_pauses, 0u);
  EXPECT_GT(run({.share = 0.95, .num_guesses = 16, .row_us = 20}).speedup, 6.5);
  EXPECT_GT(run({.num_streams = 4, .share = 0.98, .num_guesses = 16}).speedup, 1.35);
}

TEST(DraftPolicy, GuessesThatNeverComeTrueCostNextToNothing) {
  for (const int num_streams : {1, 4, 16}) {
    for (const double row_us : {30.0, 250.0, 1000.0}) {
      for (const uint64_t disturbed : {0, 4}) {
        World world{.num_streams = num_streams, .share = 0, .match_length = 12, .row_us = row_us};
        world.disturbed_of_64 = disturbed;
        const Outcome outcome = run(world, 600);
        EXPECT_GE(outcome.speedup, 0.97) << num_streams << " streams, " << row_us << " us a row";
      }
    }
  }
}

// Nowhere between always and never.
TEST(DraftPolicy, NoShareIsBelowTheFloor) {
  for (const int num_streams : {1, 4, 16}) {
    for (int percent = 0; percent <= 100; percent += 10) {
      for (const int32_t match_length : {3, 8, 40}) {
        const World world{
            .num_streams = num_streams, .share = percent / 100.0, .match_length = match_length};
        EXPECT_GE(run(world, 1000).speedup, 0.97)
            << num_streams << " streams, " << percent << " %, match of " << match_length;
      }
    }
  }
}

TEST(DraftPolicy, MoreGuessesWhereRowsAreCheap) {
  const Outcome cheap = run({.share = 0.7, .row_us = 20});
  const Outcome dear = run({.share = 0.7, .row_us = 400});
  EXPECT_GT(cheap.num_guesses, 3 * dear.num_guesses);
  EXPECT_GT(cheap.speedup, 2);
}

TEST(DraftPolicy, ComesBackWhenTheTextChanges) {
  Machine machine({.share = 0});
  machine.run(2000);
  machine.world().share = 0.97;
  machine.run(1100);  // the longest gap between probes
  EXPECT_GT(machine.run(300).speedup, 1.7);
}

TEST(DraftPolicy, FollowsStepsThatGrowLonger) {
  World world{.share = 0.9, .growth_us = 1};
  EXPECT_GT(run(world, 3000).speedup, 1.5);
  world.share = 0;
  EXPECT_GE(run(world, 3000).speedup, 0.97);
}

TEST(DraftPolicy, TheLikeliestGuessesOfAllSequencesComeFirst) {
  DraftPolicy policy;
  StepCost cost;
  StepLoad load;
  load.add(100, 1, 1, false);
  load.add(100, 1, 1, false);
  // Known; a row more costs a quarter.
  for (int i = 0; i < 3; ++i) policy.took(cost, {load, load, 2, 2, 1000});
  Sequence good, bad;
  good.draft_record = {16, 16};
  bad.draft_record = {16, 0};
  std::vector<DraftTask> tasks = {{&bad, 8}, {&good, 8}};
  for (DraftTask& task : tasks) task.draft.token_ids.assign(8, 1);
  for (DraftTask& task : tasks) task.draft.ground.match_length = 10;
  ASSERT_FALSE(policy.rests({load, 2, 8}));
  policy.choose(cost, {load, 2, 8}, tasks);
  EXPECT_EQ(tasks[0].draft.token_ids.size(), 0u);
  EXPECT_GE(tasks[1].draft.token_ids.size(), 4u);
}

// A model's guesses are made only where they are worth its runs, and then as many.
TEST(DraftPolicy, AModelRunsAsOftenAsPays) {
  const auto length = [](double run_us, int32_t num_kept) {
    DraftPolicy policy;
    StepCost cost;
    StepLoad load;
    load.add(100, 1, 1, false);
    for (int i = 0; i < 3; ++i) policy.took(cost, {load, load, 1, 1, 1000});
    DraftRecord own;
    for (int i = 0; i < 100; ++i) policy.verified({DraftSource::kModel}, 4, num_kept, &own);
    policy.drafted(2, 2 * run_us);
    Sequence sequence;
    sequence.draft_record = own;
    std::vector<DraftTask> tasks = {{&sequence, 8}};
    EXPECT_FALSE(policy.rests({load, 1, 8}));
    const DraftSource source = DraftSource::kModel;
    policy.model_length(cost, {load, 1, 8}, tasks, source);  // where nothing pays, a try
    return policy.model_length(cost, {load, 1, 8}, tasks, source);
  };
  EXPECT_EQ(length(900, 4), 0);  // nearly as slow as the large one
  EXPECT_EQ(length(100, 0), 0);
  EXPECT_GE(length(100, 4), 4);
  EXPECT_GT(length(50, 4), length(400, 4));
}

// A head of one layer: of sixty, of twenty, of three.
TEST(DraftPolicy, AHeadThatIsAlwaysWrongCostsNextToNothing) {
  for (const int num_streams : {1, 4, 16}) {
    for (const double run_us : {20.0, 50.0, 300.0}) {
      World world{.num_streams = num_streams, .share = 0, .run_us = run_us};
      EXPECT_GE(run(world, 1000).speedup, 0.97) << num_streams << " streams, " << run_us << " us";
      world.prompt_steps = 50;
      world.head_share = run_us / 1000;
      EXPECT_GE(run(world, 1000).speedup, 0.97) << "with prompts, " << run_us << " us";
    }
  }
}

TEST(DraftPolicy, NoShareOfAHeadIsBelowTheFloor) {
  for (const int num_streams : {1, 8}) {
    for (int percent = 0; percent <= 100; percent += 10) {
      for (const double run_us : {20.0, 200.0}) {
        const World world{.num_streams = num_streams, .share = percent / 100.0, .run_us = run_us};
        EXPECT_GE(run(world, 1000).speedup, 0.97)
            << num_streams << " streams, " << percent << " %, a run of " << run_us << " us";
      }
    }
  }
}

// As published heads do: eight or nine of ten first guesses are right.
TEST(DraftPolicy, AHeadThatIsMostlyRightPays) {
  EXPECT_GT(run({.share = 0.85, .row_us = 100, .run_us = 20}).speedup, 1.8);
  EXPECT_GT(run({.num_streams = 8, .share = 0.85, .row_us = 50, .run_us = 40}).speedup, 1.3);
  const Outcome cheap = run({.share = 0.9, .row_us = 50, .run_us = 20});
  const Outcome dear = run({.share = 0.9, .row_us = 50, .run_us = 700});
  EXPECT_GT(cheap.num_guesses, 2 * dear.num_guesses);  // chains are as long as pays
}

// Where there is state, a wrong guess costs the rows of the right ones before it once more.
TEST(DraftPolicy, WhatIsComputedAgainIsPaidForAndForeseen) {
  for (const int num_streams : {1, 4, 16}) {
    for (int percent = 0; percent <= 100; percent += 10) {
      for (const double run_us : {0.0, 50.0}) {
        World world{.num_streams = num_streams, .share = percent / 100.0, .run_us = run_us};
        world.redoes_rows = true;
        EXPECT_GE(run(world, 1000).speedup, 0.97)
            << num_streams << " streams, " << percent << " %, a run of " << run_us << " us";
      }
    }
  }
  World world{.share = 0.95, .num_guesses = 16, .redoes_rows = true};
  EXPECT_GT(run(world).speedup, 1.6);
  world = {.share = 0.8, .row_us = 100};
  const Outcome taken_back = run(world);
  world.redoes_rows = true;
  const Outcome redone = run(world);
  EXPECT_LT(redone.num_guesses, taken_back.num_guesses);  // drafts are shorter
  EXPECT_GT(redone.speedup, 1.2);
}

TEST(DraftPolicy, WhatAStepTakesWithoutGuessesIsMeasuredFirst) {
  DraftPolicy policy;
  StepCost cost;
  StepLoad load;
  load.add(100, 1, 1, false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(policy.rests({load, 1, 8}));
    policy.took(cost, {load, load, 1, 1, 1000});
  }
  EXPECT_FALSE(policy.rests({load, 1, 8}));
}

// The times say that guesses are worth it, what comes of them says no.
TEST(DraftPolicy, PausesWhereStepsWithGuessesGiveLess) {
  DraftPolicy policy;
  StepCost cost;
  StepLoad plain;
  plain.add(100, 1, 1, false);
  StepLoad guessed = plain;
  guessed.num_rows += 4;
  Sequence sequence;
  const auto num_chosen = [&] {
    std::vector<DraftTask> tasks = {{&sequence, 4}};
    tasks[0].draft = {{1, 1, 1, 1}, {DraftSource::kText, 40}};
    policy.choose(cost, {plain, 1, 4}, tasks);
    return tasks[0].draft.token_ids.size();
  };
  policy.took(cost, {plain, plain, 1, 1, 1000});
  EXPECT_EQ(num_chosen(), 4u);
  EXPECT_FALSE(policy.is_paused());
  for (int i = 0; i < 5; ++i) policy.took(cost, {guessed, plain, 1, 1, 2000});
  EXPECT_EQ(num_chosen(), 0u);
  EXPECT_EQ(num_chosen(), 0u);
  EXPECT_TRUE(policy.is_paused());
  EXPECT_EQ(policy.num_pauses(), 1u);
  for (int i = 0; i < 200; ++i) policy.took(cost, {plain, plain, 1, 1, 1000});
  EXPECT_GT(num_chosen(), 0u);
  EXPECT_FALSE(policy.is_paused());
}

}  // namespace draft_policy_test
}  // namespace headrace
