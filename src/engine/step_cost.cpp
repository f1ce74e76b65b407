#include "engine/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/prefetch.h"

namespace headrace {
namespace {

// Where the segments of rows end.
constexpr std::array<int64_t, 4> kRowEnds = {4, 16, 64, INT64_MAX};
// Parts are counted in these, so that all are of like size.
constexpr std::array<double, 4> kRowUnits = {4, 12, 48, 256};
constexpr double kSequenceUnit = 8, kPositionUnit = 4096, kPairUnit = 65536, kFreshUnit = 2;
// Order of the parts.
constexpr size_t kEveryStep = 0, kRows = 1, kSequences = 5, kLogitRows = 6, kDrawnRows = 7,
                 kPositions = 8, kPairs = 9, kFresh = 10;

constexpr size_t kStepsKept = 16;       // of a size
constexpr size_t kStepsTrusted = 4;     // of a size: from then on there is something to expect
constexpr double kMostSurprise = 0.35;  // of what was expected
// What holds coefficients that the steps do not tell apart, as a share of a step's weight.
constexpr double kHold = 1e-4;
constexpr int kSweeps = 8;
constexpr double kLeastCost = 1e-3;
constexpr double kPaceGain = 1.0 / 4;
constexpr double kFar = 0.15;         // of the pace
constexpr double kPaceChanged = 0.1;  // of 1
constexpr uint64_t kSumAgain = 512;   // observations; sums that are only changed collect errors

bool is_far_from(double pace, double ratio) { return std::abs(ratio / pace - 1) > kFar; }

}  // namespace

void StepLoad::add(int64_t first_position, int64_t rows, int64_t logit_rows, bool draws) {
  num_rows += rows;
  ++num_sequences;
  num_logit_rows += logit_rows;
  if (draws) num_drawn_rows += logit_rows;
  num_positions += first_position + rows;
  num_pairs += rows * first_position + rows * (rows + 1) / 2;
}

StepCost::Parts StepCost::parts_of(const StepLoad& load) {
  Parts parts{};
  parts[kEveryStep] = 1;
  int64_t first = 0;
  for (size_t i = 0; i < kRowEnds.size(); ++i) {
    const int64_t rows = std::clamp<int64_t>(load.num_rows, first, kRowEnds[i]) - first;
    parts[kRows + i] = static_cast<double>(rows) / kRowUnits[i];
    first = kRowEnds[i];
  }
  parts[kSequences] = static_cast<double>(load.num_sequences) / kSequenceUnit;
  parts[kLogitRows] = static_cast<double>(load.num_logit_rows) / kSequenceUnit;
  parts[kDrawnRows] = static_cast<double>(load.num_drawn_rows) / kSequenceUnit;
  parts[kPositions] = static_cast<double>(load.num_positions) / kPositionUnit;
  parts[kPairs] = static_cast<double>(load.num_pairs) / kPairUnit;
  parts[kFresh] = static_cast<double>(load.num_fresh) / kFreshUnit;
  return parts;
}

double StepCost::cost_of(const Parts& parts) const {
  double cost = 0;
  for (size_t i = 0; i < kNumParts; ++i) cost += coefficients_[i] * parts[i];
  return std::max(kLeastCost, cost);
}

double StepCost::predict(const StepLoad& load) const {
  return num_observed_ == 0 ? 0 : (noted_ > 0 ? noted_ : pace_) * cost_of(parts_of(load));
}

void StepCost::touch() const {
  prefetch(&coefficients_, sizeof(coefficients_));
  prefetch(&pace_, sizeof(pace_));
  prefetch(rings_.data(), sizeof(rings_));
}

StepCost::Ring& StepCost::ring_of(const StepLoad& load) {
  const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(load.num_rows)));
  return load.num_fresh > 0 ? rings_.back() : rings_[std::min(size, kNumRings - 1)];
}

void StepCost::note(const StepLoad& load, TimeUs took_us) {
  if (ring_of(load).steps.size() < kStepsTrusted) return;
  noted_ = pace_after(std::max(1.0, static_cast<double>(took_us)) / cost_of(parts_of(load)));
}

void StepCost::observe(const StepLoad& load, TimeUs took_us) {
  noted_ = 0;
  Step step{parts_of(load)};
  Ring& ring = ring_of(load);
  const double took = std::max(1.0, static_cast<double>(took_us));
  double expected = took;
  if (ring.steps.size() >= kStepsTrusted) {
    follow(took / cost_of(step.parts));
    expected = pace_ * cost_of(step.parts);
    step.took = std::clamp(took / expected, 1 - kMostSurprise, 1 + kMostSurprise);
  }
  for (double& part : step.parts) part /= expected;
  change(step, 1);
  if (ring.steps.size() < kStepsKept) {
    ring.steps.push_back(step);
  } else {
    change(ring.steps[ring.oldest], -1);
    ring.steps[ring.oldest] = step;
    ring.oldest = (ring.oldest + 1) % kStepsKept;
  }
  if (++num_observed_ % kSumAgain == 0) sum_again();
  solve();
}

// Whether it is far off, and the newest was, both late or both early.
bool StepCost::confirms(double ratio) const {
  return far_ != 0 && is_far_from(pace_, ratio) && (ratio > pace_) == (far_ > pace_);
}

// One that is far off moves the pace a little; two in a row to where they are.
double StepCost::pace_after(double ratio) const {
  if (confirms(ratio)) return (far_ + ratio) / 2;
  return pace_ * (1 + kPaceGain * std::clamp(ratio / pace_ - 1, -kFar, kFar));
}

void StepCost::follow(double ratio) {
  const double pace = pace_after(ratio);
  far_ = is_far_from(pace_, ratio) && !confirms(ratio) ? ratio : 0;
  pace_ = pace;
  if (std::abs(pace_ - 1) <= kPaceChanged) return;
  for (Ring& ring : rings_) {
    for (Step& step : ring.steps) {
      for (double& part : step.parts) part /= pace_;
    }
  }
  for (double& coefficient : coefficients_) coefficient *= pace_;
  far_ /= pace_;
  pace_ = 1;
  sum_again();
}

void StepCost::sum_again() {
  products_ = {};
  sums_ = {};
  for (const Ring& ring : rings_) {
    for (const Step& step : ring.steps) change(step, 1);
  }
}

void StepCost::change(const Step& step, double sign) {
  for (size_t i = 0; i < kNumParts; ++i) {
    const double part = sign * step.parts[i];
    sums_[i] += part * step.took;
    for (size_t j = 0; j < kNumParts; ++j) products_[i][j] += part * step.parts[j];
  }
}

// Least squares with coefficients >= 0, one after the other, from where they are.
void StepCost::solve() {
  const double hold = kHold * products_[kEveryStep][kEveryStep];
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kNumParts; ++i) {
      const bool goes_on = i > kRows && i < kSequences;
      const double before =
          goes_on ? coefficients_[i - 1] * kRowUnits[i - kRows] / kRowUnits[i - kRows - 1] : 0;
      double left = sums_[i] + hold * before;
      for (size_t j = 0; j < kNumParts; ++j) {
        if (j != i) left -= products_[i][j] * coefficients_[j];
      }
      coefficients_[i] = std::max(0.0, left / (products_[i][i] + hold));
    }
  }
}

namespace {

double cost_with(const StepCost& cost, StepLoad load, const ChunkOffer& chunk, int64_t rows) {
  load.add(chunk.first_position, rows, chunk.scores ? rows : 0, /*draws=*/chunk.scores);
  return cost.predict(load);
}

// The most units of the chunk of which `holds` is true, which is so of no more than these; -1: all.
template <typename Holds>
int64_t most_units(const ChunkOffer& chunk, const Holds& holds) {
  if (holds(chunk.max_rows)) return -1;
  int64_t most = 0;
  int64_t beyond = chunk.max_rows / chunk.unit + 1;
  while (beyond - most > 1) {
    const int64_t middle = (most + beyond) / 2;
    (holds(middle * chunk.unit) ? most : beyond) = middle;
  }
  return most;
}

}  // namespace

// Costs do not fall where rows are added.
int64_t rows_within(const StepCost& cost, const StepLoad& load, const ChunkOffer& chunk,
                    double budget_us) {
  const int64_t units = most_units(
      chunk, [&](int64_t rows) { return cost_with(cost, load, chunk, rows) <= budget_us; });
  return units < 0 ? chunk.max_rows : units * chunk.unit;
}

// Beside others rows are the faster the more they are: each step has what others cost only once.
int64_t rows_for_share(const StepCost& cost, const StepLoad& load, const ChunkOffer& chunk,
                       double share) {
  const double us_alone = cost_with(cost, {}, chunk, chunk.max_rows);
  const double us_each = us_alone / (share * static_cast<double>(chunk.max_rows));
  const int64_t units = most_units(chunk, [&](int64_t rows) {
    return cost_with(cost, load, chunk, rows) > us_each * static_cast<double>(rows);
  });
  return units < 0 ? chunk.max_rows : std::min((units + 1) * chunk.unit, chunk.max_rows);
}

}  // namespace headrace
