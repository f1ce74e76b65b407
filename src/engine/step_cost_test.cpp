// Synthetic machines: what the model of costs learns of them, and what it does not let itself be
// told.
#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

namespace headrace {
namespace step_cost_test {

class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}

  // Reading the weights or multiplying them, whichever takes longer; the rest beside it.
  double truth(const StepLoad& load) const {
    const auto rows = static_cast<double>(load.num_rows);
    const double linear = std::max(9000.0 + 150 * rows, 5000.0 + 330 * rows);
    return pace * (linear + 40.0 * static_cast<double>(load.num_sequences) +
                   200.0 * static_cast<double>(load.num_logit_rows) +
                   250.0 * static_cast<double>(load.num_drawn_rows) +
                   0.15 * static_cast<double>(load.num_positions) +
                   0.02 * static_cast<double>(load.num_pairs) +
                   2500.0 * static_cast<double>(load.num_fresh));
  }
  // With some noise, now and then far too long.
  TimeUs measured(const StepLoad& load) {
    double noise = 1 + jitter * (2 * fraction() - 1);
    if (range(0, 99) < outliers_of_100) noise *= 4;
    return static_cast<TimeUs>(truth(load) * noise);
  }
  // Decoding, with a chunk of a prompt in one step of three.
  StepLoad load() {
    StepLoad load;
    const int64_t num_streams = range(1, 16);
    for (int64_t i = 0; i < num_streams; ++i) load.add(range(10, 2000), 1, 1, range(0, 2) == 0);
    if (range(0, 2) == 0) load.add(range(0, 3000), 16 * range(1, 32), range(0, 1), false);
    return load;
  }
  int64_t range(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  double pace = 1;
  double jitter = 0.06;
  int outliers_of_100 = 0;

 private:
  double fraction() { return static_cast<double>(random_() % 100'000) * 1e-5; }
  std::mt19937_64 random_;
};

// The share of steps that take within 15 % of what was predicted, while it goes on learning.
double share_within(StepCost* cost, Machine* machine, int num_steps) {
  int num_close = 0;
  for (int i = 0; i < num_steps; ++i) {
    const StepLoad load = machine->load();
    const double error = cost->predict(load) / machine->truth(load) - 1;
    num_close += std::abs(error) <= 0.15;
    cost->observe(load, machine->measured(load));
  }
  return static_cast<double>(num_close) / num_steps;
}

// Of the newest steps of the same size there is often none that touched memory.
TEST(StepCost, WhatIsRareIsNotForgotten) {
  StepCost cost;
  Machine machine(5);
  int num_fresh = 0, num_close = 0;
  for (int i = 0; i < 4000; ++i) {
    StepLoad load;
    for (int stream = 0; stream < 16; ++stream) load.add(500 + i % 200, 1, 1, false);
    load.num_fresh = i % 40 == 20 ? 2 : 0;
    const double error = cost.predict(load) / machine.truth(load) - 1;
    num_fresh += load.num_fresh > 0 && i > 400;
    num_close += load.num_fresh > 0 && i > 400 && std::abs(error) <= 0.15;
    cost.observe(load, machine.measured(load));
  }
  EXPECT_EQ(num_fresh, 90);
  EXPECT_EQ(num_close, num_fresh);
}

TEST(StepCost, KnowsNothingAtFirst) {
  StepCost cost;
  StepLoad load;
  load.add(5, 1, 1, false);
  EXPECT_FALSE(cost.has_learned());
  EXPECT_EQ(cost.predict(load), 0);
  cost.observe(load, 1000);
  EXPECT_TRUE(cost.has_learned());
  EXPECT_NEAR(cost.predict(load), 1000, 50);
}

TEST(StepCost, MostStepsAreWithin15PercentAfterAHundred) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Machine machine(seed);
    StepCost cost;
    share_within(&cost, &machine, 100);
    EXPECT_GE(share_within(&cost, &machine, 1000), 0.95) << "seed " << seed;
  }
}

TEST(StepCost, OutliersChangeLittle) {
  Machine machine(11);
  machine.outliers_of_100 = 5;
  StepCost cost;
  share_within(&cost, &machine, 200);
  EXPECT_GE(share_within(&cost, &machine, 2000), 0.95);
}

// A target that is missed by the noise each second time is not missed by all of it.
TEST(StepCost, NoiseDoesNotMakeItHopeful) {
  Machine machine(17);
  machine.jitter = 0.35;
  StepCost cost;
  share_within(&cost, &machine, 300);
  double predicted = 0, truth = 0;
  for (int i = 0; i < 2000; ++i) {
    const StepLoad load = machine.load();
    predicted += cost.predict(load);
    truth += machine.truth(load);
    cost.observe(load, machine.measured(load));
  }
  EXPECT_NEAR(predicted / truth, 1, 0.04);
}

TEST(StepCost, FollowsAMachineThatGetsSlower) {
  Machine machine(12);
  StepCost cost;
  share_within(&cost, &machine, 200);
  for (int i = 0; i < 100; ++i) {
    machine.pace *= 1.01;
    EXPECT_GE(share_within(&cost, &machine, 20), 0.8) << "at pace " << machine.pace;
  }
  EXPECT_GE(share_within(&cost, &machine, 1000), 0.95);
}

TEST(StepCost, FollowsAMachineThatIsSlowerAtOnce) {
  Machine machine(13);
  StepCost cost;
  share_within(&cost, &machine, 500);
  machine.pace = 3;
  share_within(&cost, &machine, 500);
  EXPECT_GE(share_within(&cost, &machine, 1000), 0.95);
}

// The share of all steps of a machine whose pace is `slow` times as slow every now and then, for
// `num_slow` steps, and its own for `num_fast`.
double share_at_two_paces(uint64_t seed, double slow, int num_fast, int num_slow) {
  Machine machine(seed);
  StepCost cost;
  share_within(&cost, &machine, 200);
  double share = 0;
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    for (const auto& [pace, num_steps] : {std::pair(slow, num_slow), std::pair(1.0, num_fast)}) {
      machine.pace = pace;
      share += share_within(&cost, &machine, num_steps) * num_steps;
    }
  }
  return share / (kTimes * (num_fast + num_slow));
}

TEST(StepCost, FollowsAMachineOfTwoSpeeds) {
  for (uint64_t seed = 21; seed <= 25; ++seed) {
    EXPECT_GE(share_at_two_paces(seed, 1.7, 150, 150), 0.95) << "seed " << seed;
  }
}

TEST(StepCost, FollowsNeighboursThatWantItsCoresForAWhile) {
  for (uint64_t seed = 31; seed <= 35; ++seed) {
    EXPECT_GE(share_at_two_paces(seed, 1.5, 200, 30), 0.93) << "seed " << seed;
  }
}

// As an engine uses it: a step is learned from beside the next one, which is predicted before.
TEST(StepCost, ThirdStepAfterAChangeIsPredictedRightThoughOneIsYetToBeLearned) {
  StepLoad load;
  load.add(100, 8, 8, false);
  for (const double change : {1.3, 2.0, 0.7}) {
    StepCost cost;
    for (int i = 0; i < 20; ++i) cost.observe(load, 10'000);
    const auto took = static_cast<TimeUs>(10'000 * change);
    const auto is_close = [&] { return std::abs(cost.predict(load) / change / 10'000 - 1) < 0.15; };
    cost.note(load, took);
    EXPECT_FALSE(is_close()) << "one may be a disturbance, times " << change;
    cost.observe(load, took);
    cost.note(load, took);
    EXPECT_TRUE(is_close()) << "times " << change;
    const double noted = cost.predict(load);
    cost.observe(load, took);
    EXPECT_NEAR(cost.predict(load) / noted, 1, 0.01) << "times " << change;
  }
}

TEST(StepCost, LongDecodingDoesNotForgetPrompts) {
  Machine machine(14);
  StepCost cost;
  share_within(&cost, &machine, 300);
  for (int i = 0; i < 20'000; ++i) {
    StepLoad load;
    for (int stream = 0; stream < 8; ++stream) load.add(500 + i / 20, 1, 1, false);
    cost.observe(load, machine.measured(load));
  }
  StepLoad chunk;
  chunk.add(1000, 512, 0, false);
  EXPECT_NEAR(cost.predict(chunk) / machine.truth(chunk), 1, 0.15);
}

TEST(StepCost, MoreRowsThanEverSeenGoOnAsTheLastOnes) {
  StepCost cost;
  for (int repeat = 0; repeat < 8; ++repeat) {
    for (const int64_t rows : {1, 4, 16, 48}) {
      StepLoad load;
      load.add(0, rows, 1, false);
      cost.observe(load, 1000 + 100 * rows);
    }
  }
  StepLoad load;
  load.add(0, 400, 1, false);
  EXPECT_NEAR(cost.predict(load), 41'000, 8'000);
}

TEST(StepCost, TheSameObservationsGiveTheSameBits) {
  const auto predict = [] {
    Machine machine(15);
    StepCost cost;
    share_within(&cost, &machine, 700);
    return cost.predict(machine.load());
  };
  EXPECT_EQ(predict(), predict());
}

TEST(StepCost, RowsWithinABudgetAreTheMostThatFit) {
  Machine machine(16);
  StepCost cost;
  share_within(&cost, &machine, 300);
  StepLoad streams;
  for (int i = 0; i < 8; ++i) streams.add(300, 1, 1, false);
  const double alone = cost.predict(streams);
  EXPECT_EQ(rows_within(cost, streams, {0, 512, 16, false}, alone), 0);
  EXPECT_EQ(rows_within(cost, streams, {0, 512, 16, false}, 1e9), 512);
  EXPECT_EQ(rows_within(cost, streams, {0, 500, 16, false}, 1e9), 500);
  const auto with = [&](int64_t rows, int64_t position) {
    StepLoad load = streams;
    load.add(position, rows, 0, false);
    return cost.predict(load);
  };
  const int64_t rows = rows_within(cost, streams, {0, 512, 16, false}, 40'000);
  EXPECT_EQ(rows % 16, 0);
  EXPECT_LE(with(rows, 0), 40'000);
  EXPECT_GT(with(rows + 16, 0), 40'000);
  EXPECT_LT(rows_within(cost, streams, {4000, 512, 16, false}, 40'000), rows);
  EXPECT_LT(rows_within(cost, streams, {0, 512, 16, true}, 40'000), rows);
}

TEST(StepCost, RowsForAShareAreTheFewestThatAreFastEnough) {
  Machine machine(18);
  StepCost cost;
  share_within(&cost, &machine, 300);
  StepLoad streams, chunk_alone;
  for (int i = 0; i < 8; ++i) streams.add(300, 1, 1, false);
  chunk_alone.add(1000, 512, 0, false);
  const double us_alone = cost.predict(chunk_alone) / 512;
  const auto us_each = [&](int64_t rows) {
    StepLoad load = streams;
    load.add(1000, rows, 0, false);
    return cost.predict(load) / static_cast<double>(rows);
  };
  const int64_t rows = rows_for_share(cost, streams, {1000, 512, 16, false}, 0.5);
  EXPECT_EQ(rows % 16, 0);
  EXPECT_LE(us_each(rows), us_alone / 0.5);
  EXPECT_GT(us_each(rows - 16), us_alone / 0.5);
  EXPECT_GT(rows_for_share(cost, streams, {1000, 512, 16, false}, 0.7), rows);
  EXPECT_EQ(rows_for_share(cost, streams, {1000, 500, 16, false}, 1), 500);  // never so fast
}

}  // namespace step_cost_test
}  // namespace headrace
