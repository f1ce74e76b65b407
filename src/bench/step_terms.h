// Terms of a step: which of a forecast's terms a measured point is off by.
//
// A forecast has two terms, products with weights and attention (with states), each with the time
// that is expected of it and the limit of its reads or its operations; what other ops take and what
// passes between ops is not in it. A watched run of the point says how long each took.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "backend/op_record.h"
#include "bench/expected.h"

namespace headrace {

// Measured time over forecast time, or the other way round, within which a forecast is right.
inline constexpr double kNearForecast = 1.15;
inline bool near_forecast(double ratio) {
  return ratio <= kNearForecast && ratio * kNearForecast >= 1;
}

enum class StepTerm : uint8_t { kProducts, kAttention, kOtherOps, kBetweenOps };
inline constexpr size_t kNumStepTerms = 4;
std::string_view step_term_name(StepTerm term);  // "products", "attention", "other ops", ...

StepTerm term_of(OpKind kind);

struct TermTime {
  double seconds = 0;
  double limit_s = 0;     // 0 of those that a forecast leaves out
  double expected_s = 0;  // likewise
};
using TermTimes = std::array<TermTime, kNumStepTerms>;

// records: of all ops of a run that took wall_s. limit: as op_limit makes it. What is expected is
// the limit until expect_terms() knows better.
TermTimes term_times(std::span<const OpRecord> records, double wall_s,
                     const std::function<double(const OpRecord&, double)>& limit,
                     double working_set);

void expect_terms(const ExpectedStep& expected, TermTimes* times);

// The one that is farthest from what is expected of it, in seconds.
StepTerm wrong_term(const TermTimes& times);

}  // namespace headrace
