// Evidence: what the runs of an experiment say of its hypothesis, and whether that is enough.
//
// A round runs each side once, so that what drifts meets all of them. What counts of a round is the
// logarithm of the metric's ratio between a side and the first one, signed so that more is better.
// A hypothesis is decided by a sequential test between "no improvement" (mean <= 0) and "at least
// as predicted" (mean >= log(1 + predicted)) with unknown spread: the logarithm of the ratio of
// both likelihoods, each at its best mean and spread, against log(1.5 / error rate). The 1.5, the
// one degree of freedom that the spread costs, the least number of rounds, and twice the evidence
// as long as little is known of the spread, keep the rate of wrong decisions below the stated one
// where spread and effect are alike (evidence_test.cpp counts them).
//
// The other sides of an experiment say what the spread is, too: they ran on the same machine in the
// same rounds. Their ratios share the first side's runs, so k sides know less than k times as much:
// k / (1 + (k - 1) / 4) times. A side that spreads by more than all together counts by its own.
// Source: Wald, Sequential Analysis (1947); the likelihood with unknown spread is Student's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/records.h"

namespace headrace::lab {

inline constexpr double kErrorRate = 0.05;  // of decisions, each way
inline constexpr int kMinRounds = 3;        // before anything is decided
inline constexpr int kSureRounds = 5;       // of one side; knowing less, more evidence is needed

enum class Verdict : uint8_t { kUndecided, kValidated, kRuledOut };

struct Effect {
  int num_rounds = 0;      // in which both sides ran well
  double improvement = 0;  // relative, of the geometric mean: 0.1 = 10 % better than the first side
  double low = 0, high = 0;  // 95 % interval of it; equal to it with fewer than two rounds
  double log_ratio = 0;      // of likelihoods: above 0 for the prediction
  Verdict verdict = Verdict::kUndecided;
};

// The number that a run's JSON has under a name; "a.b" is b inside a. kNotFound lists the names
// that are there; kInvalidArgument when it is no positive number.
Result<double> find_metric(std::string_view json, std::string_view name);

// Of each round in which a side and the first one ran well, by round: the logarithm of the metric's
// ratio, above 0 where the side is better.
std::map<int64_t, double> log_ratios_of(std::span<const Run> runs, int64_t side_idx,
                                        std::string_view metric, bool more_is_better);

// log_ratios: of each round. others: of the other sides of the experiment.
Effect judge(std::span<const double> log_ratios, double predicted,
             std::span<const std::vector<double>> others = {}, double error_rate = kErrorRate);

// Of a side beside the first, from the runs of the experiment that are done. Other sides count up
// to the last round of this one: what was decided stays so while they go on.
Effect effect_of(std::span<const Run> runs, int64_t side_idx, std::string_view metric,
                 bool more_is_better, double predicted);

// "12.1 % better (9.8 to 14.4 %) in 7 rounds; predicted 10 %"
std::string describe(const Effect& effect, double predicted);

}  // namespace headrace::lab
