#include "lab/evidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace headrace::lab::evidence_test {

TEST(FindMetric, ReadsNamesInsideOfOthers) {
  EXPECT_DOUBLE_EQ(find_metric(R"({"a":2.5})", "a").value(), 2.5);
  EXPECT_DOUBLE_EQ(find_metric(R"({"a":{"b":{"c":3}}})", "a.b.c").value(), 3);
  EXPECT_DOUBLE_EQ(find_metric(R"({"a.b":4,"a":{"b":5}})", "a.b").value(), 4);
  EXPECT_DOUBLE_EQ(find_metric(R"({"a":[{"b":1},{"b":2}]})", "a.1.b").value(), 2);
  EXPECT_EQ(find_metric(R"({"a":[1]})", "a.1").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find_metric(R"({"a":[1]})", "a.0x").error().code, ErrorCode::kNotFound);
}

TEST(FindMetric, SaysWhatIsThereInstead) {
  const auto missing = find_metric(R"({"speed":1,"time":2})", "spead");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "the run printed no metric 'spead'; there is 'speed', 'time'");
  EXPECT_EQ(find_metric("nothing", "a").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(find_metric("[1]", "a").error().message,
            "the run printed no metric 'a'; there is no object");
}

TEST(FindMetric, WantsANumberAboveZero) {
  for (const char* json : {R"({"a":0})", R"({"a":-1})", R"({"a":"1"})", R"({"a":null})"}) {
    EXPECT_EQ(find_metric(json, "a").error().code, ErrorCode::kInvalidArgument) << json;
  }
}

TEST(Judge, NothingIsDecidedByFewRounds) {
  const std::vector<double> two(2, std::log(2.0)), three(3, std::log(2.0));
  EXPECT_EQ(judge(two, 0.1).verdict, Verdict::kUndecided);
  EXPECT_EQ(judge(three, 0.1).verdict, Verdict::kValidated);
  EXPECT_EQ(judge({}, 0.1).num_rounds, 0);
  // What five rounds would decide is not enough of four.
  std::vector<double> rounds = {0.09, 0.1, 0.14, 0.08};
  const double usual = std::log(1.5 / kErrorRate);
  EXPECT_GT(judge(rounds, 0.1).log_ratio, usual);
  EXPECT_EQ(judge(rounds, 0.1).verdict, Verdict::kUndecided);
  rounds.push_back(0.1);
  EXPECT_EQ(judge(rounds, 0.1).verdict, Verdict::kValidated);
}

TEST(Judge, EqualRoundsDecideAtOnce) {
  const std::vector<double> better(5, std::log(1.2)), same(5, 0.0), worse(5, std::log(0.8));
  EXPECT_EQ(judge(better, 0.1).verdict, Verdict::kValidated);
  EXPECT_EQ(judge(same, 0.1).verdict, Verdict::kRuledOut);
  EXPECT_EQ(judge(worse, 0.1).verdict, Verdict::kRuledOut);
  EXPECT_NEAR(judge(better, 0.1).improvement, 0.2, 1e-9);
  EXPECT_NEAR(judge(better, 0.1).low, 0.2, 1e-6);
}

// Rounds until a decision, and whether it was right.
struct Outcome {
  bool right = false;
  int rounds = 0;
};

Outcome decide(double truth, double spread, double predicted, std::mt19937_64* random) {
  std::normal_distribution<double> draw(std::log1p(truth), spread);
  std::vector<double> rounds;
  while (rounds.size() < 500) {
    rounds.push_back(draw(*random));
    const Verdict verdict = judge(rounds, predicted).verdict;
    if (verdict == Verdict::kUndecided) continue;
    return {verdict == (truth > 0 ? Verdict::kValidated : Verdict::kRuledOut),
            static_cast<int>(rounds.size())};
  }
  return {false, 500};
}

// The number of rounds that a test of fixed length needs for the same error rates, with a spread
// that it knows.
double fixed_rounds(double spread, double predicted) {
  const double both_quantiles = 2 * 1.6449;
  return std::pow(both_quantiles * spread / std::log1p(predicted), 2);
}

TEST(Judge, IsRightAtTheStatedRateWithFewerRounds) {
  std::mt19937_64 random(7);
  for (const double spread : {0.05, 0.1, 0.2}) {
    int num_right = 0;
    double rounds = 0;
    constexpr int kEach = 400;
    for (const double truth : {0.0, 0.1}) {
      for (int i = 0; i < kEach; ++i) {
        const Outcome outcome = decide(truth, spread, 0.1, &random);
        num_right += outcome.right;
        rounds += outcome.rounds;
      }
    }
    EXPECT_GE(num_right, 0.95 * 2 * kEach) << spread;
    // Where the fixed test is long; a short one is at the least number of rounds.
    if (spread == 0.2) {
      EXPECT_LE(rounds / (2 * kEach), 0.7 * fixed_rounds(spread, 0.1));
    }
  }
}

// Of three sides beside one first side, whose runs they share, the first; by itself, or knowing the
// others, that have a spread of their own.
Outcome decide_beside_others(double truth, double own_spread, double others_spread,
                             bool with_others, std::mt19937_64* random) {
  std::normal_distribution<double> own(std::log1p(truth), own_spread), other(0, others_spread);
  std::vector<double> rounds;
  std::vector<std::vector<double>> others(with_others ? 2 : 0);
  while (rounds.size() < 500) {
    const double first = other(*random);
    rounds.push_back(own(*random) - first);
    for (auto& each : others) each.push_back(other(*random) - first);
    const Verdict verdict = judge(rounds, 0.1, others).verdict;
    if (verdict == Verdict::kUndecided) continue;
    return {verdict == (truth > 0 ? Verdict::kValidated : Verdict::kRuledOut),
            static_cast<int>(rounds.size())};
  }
  return {false, 500};
}

TEST(Judge, TheRateHoldsWhereOtherSidesTellTheSpread) {
  std::mt19937_64 random(11);
  constexpr int kEach = 400;
  for (const double spread : {0.03, 0.07, 0.2}) {
    int num_right = 0;
    for (int i = 0; i < kEach; ++i) {
      num_right += decide_beside_others(i % 2 * 0.1, spread, 0.07, true, &random).right;
    }
    EXPECT_GE(num_right, 0.95 * kEach) << spread;
  }
}

TEST(Judge, OtherSidesMakeClearEffectsCheaper) {
  std::mt19937_64 random(12);
  int alone = 0, together = 0;
  for (int i = 0; i < 200; ++i) {
    alone += decide_beside_others(0.45, 0.03, 0.03, false, &random).rounds;
    together += decide_beside_others(0.45, 0.03, 0.03, true, &random).rounds;
  }
  EXPECT_LE(together, 0.9 * alone);
}

lab::Run run_of(int64_t side, int64_t round, const char* metrics, const char* state = "done") {
  lab::Run run;
  run.side_idx = side;
  run.round = round;
  run.metrics = metrics;
  run.state = state;
  return run;
}

TEST(EffectOf, ComparesWithinRoundsAndLeavesOutWhatDoesNotCount) {
  const std::vector<lab::Run> runs = {
      run_of(0, 0, R"({"s":10})"),         run_of(1, 0, R"({"s":20})"),
      run_of(1, 1, R"({"s":400})"),        run_of(0, 1, R"({"s":200})"),
      run_of(0, 2, R"({"s":1})"),          run_of(1, 2, R"({"s":9})", "failed"),
      run_of(0, 3, R"({"s":1})", "noisy"), run_of(1, 3, R"({"s":9})"),
      run_of(2, 0, R"({"s":5})")};
  const Effect effect = effect_of(runs, 1, "s", true, 0.1);
  EXPECT_EQ(effect.num_rounds, 2);
  EXPECT_NEAR(effect.improvement, 1, 1e-9);
  EXPECT_NEAR(effect_of(runs, 1, "s", false, 0.1).improvement, -0.5, 1e-9);
  EXPECT_NEAR(effect_of(runs, 2, "s", true, 0.1).improvement, -0.5, 1e-9);
}

// One side ran three rounds and no more; another goes on, and spreads.
TEST(EffectOf, WhatWasDecidedStaysSoWhileOthersGoOn) {
  std::vector<lab::Run> runs;
  const auto round = [&](int64_t number, bool with_first, const char* other) {
    runs.push_back(run_of(0, number, R"({"s":10})"));
    if (with_first)
      runs.push_back(run_of(1, number, number == 1 ? R"({"s":13.1})" : R"({"s":13})"));
    runs.push_back(run_of(2, number, other));
  };
  for (int64_t i = 0; i < 3; ++i) round(i, true, R"({"s":10})");
  const Effect then = effect_of(runs, 1, "s", true, 0.1);
  EXPECT_EQ(then.verdict, Verdict::kValidated);
  for (int64_t i = 3; i < 9; ++i) round(i, false, i % 2 == 0 ? R"({"s":3})" : R"({"s":30})");
  EXPECT_EQ(effect_of(runs, 1, "s", true, 0.1).log_ratio, then.log_ratio);
}

TEST(Describe, SaysEffectIntervalAndPrediction) {
  EXPECT_EQ(describe({5, 0.121, 0.098, 0.144, 4, Verdict::kValidated}, 0.1),
            "12.1 % better (9.8 to 14.4 %) in 5 rounds; predicted 10.0 %");
  EXPECT_EQ(describe({5, -0.05, -0.06, -0.04, -4, Verdict::kRuledOut}, 0.1),
            "5.0 % worse (-6.0 to -4.0 %) in 5 rounds; predicted 10.0 %");
  EXPECT_EQ(describe({}, 0.1), "no round yet");
}

}  // namespace headrace::lab::evidence_test
