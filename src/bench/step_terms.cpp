#include "bench/step_terms.h"

#include <algorithm>
#include <cmath>

namespace headrace {

std::string_view step_term_name(StepTerm term) {
  constexpr std::string_view kNames[kNumStepTerms] = {"products", "attention", "other ops",
                                                      "between ops"};
  return kNames[static_cast<size_t>(term)];
}

StepTerm term_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLinear:
    case OpKind::kGatedLinear:
    case OpKind::kActivatedLinear:
    case OpKind::kExperts:
    case OpKind::kQkvLinear:
    case OpKind::kHeadLinear:
    case OpKind::kHead:
      return StepTerm::kProducts;
    case OpKind::kAttention:
    case OpKind::kLatentAttention:
    case OpKind::kSelectKeys:
    case OpKind::kScan:
    case OpKind::kDelta:
    case OpKind::kCausalConv:
      return StepTerm::kAttention;
    default:
      return StepTerm::kOtherOps;
  }
}

TermTimes term_times(std::span<const OpRecord> records, double wall_s,
                     const std::function<double(const OpRecord&, double)>& limit,
                     double working_set) {
  TermTimes times;
  double in_ops = 0;
  for (const OpRecord& record : records) {
    const StepTerm term = term_of(record.kind);
    const double seconds = 1e-9 * static_cast<double>(record.end_ns - record.start_ns);
    TermTime& time = times[static_cast<size_t>(term)];
    time.seconds += seconds;
    in_ops += seconds;
    if (term != StepTerm::kOtherOps) time.limit_s += limit(record, working_set);
  }
  for (TermTime& time : times) time.expected_s = time.limit_s;
  times[static_cast<size_t>(StepTerm::kBetweenOps)].seconds = std::max(wall_s - in_ops, 0.0);
  return times;
}

void expect_terms(const ExpectedStep& expected, TermTimes* times) {
  (*times)[static_cast<size_t>(StepTerm::kProducts)].expected_s = expected.products_s;
  (*times)[static_cast<size_t>(StepTerm::kAttention)].expected_s = expected.attention_s;
  (*times)[static_cast<size_t>(StepTerm::kOtherOps)].expected_s = expected.other_s;
}

StepTerm wrong_term(const TermTimes& times) {
  const auto distance = [](const TermTime& time) {
    return std::abs(time.seconds - time.expected_s);
  };
  const auto* const found = std::max_element(
      times.begin(), times.end(),
      [&](const TermTime& a, const TermTime& b) { return distance(a) < distance(b); });
  return static_cast<StepTerm>(found - times.begin());
}

}  // namespace headrace
