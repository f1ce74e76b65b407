#include "verify/comparison.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

constexpr size_t kHeldPositions = 32;  // whose rows of the reference are held

double log_sum(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

void add(const WindowComparison& one, double share, WindowComparison* sum) {
  sum->nll += share * one.nll;
  sum->reference_nll += share * one.reference_nll;
  sum->difference += share * one.difference;
  sum->divergence += share * one.divergence;
  sum->same_best += share * one.same_best;
}

// Both runs a few tokens at a time: the reference's rows are held until the run's come.
WindowComparison compare_window(SequenceRunner& run, SequenceRunner& reference,
                                std::span<const int32_t> window) {
  run.restart();
  reference.restart();
  const double share = 1.0 / static_cast<double>(window.size() - 1);
  WindowComparison sum;
  std::vector<std::vector<float>> held(kHeldPositions);
  for (size_t first = 0; first < window.size(); first += kHeldPositions) {
    const auto piece = window.subspan(first, std::min(kHeldPositions, window.size() - first));
    const auto start = static_cast<int64_t>(first);
    const auto place = [&](int64_t position) { return static_cast<size_t>(position - start); };
    reference.append(piece, start, [&](int64_t position, std::span<const float> logits) {
      held[place(position)].assign(logits.begin(), logits.end());
    });
    run.append(piece, start, [&](int64_t position, std::span<const float> logits) {
      const auto next = static_cast<size_t>(position) + 1;
      if (next == window.size()) return;
      add(compare_rows(logits, held[place(position)], window[next]), share, &sum);
    });
  }
  return sum;
}

}  // namespace

WindowComparison compare_rows(std::span<const float> logits, std::span<const float> reference,
                              int32_t id) {
  CHECK(logits.size() == reference.size(), "{} and {} tokens", logits.size(), reference.size());
  const int32_t best = argmax(logits), reference_best = argmax(reference);
  const double sum = log_sum(logits, logits[static_cast<size_t>(best)]);
  const double reference_sum = log_sum(reference, reference[static_cast<size_t>(reference_best)]);
  double divergence = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_prob = static_cast<double>(reference[i]) - reference_sum;
    const double distance = log_prob - (static_cast<double>(logits[i]) - sum);
    divergence += std::exp(log_prob) * distance;
  }
  WindowComparison row;
  row.nll = sum - static_cast<double>(logits[static_cast<size_t>(id)]);
  row.reference_nll = reference_sum - static_cast<double>(reference[static_cast<size_t>(id)]);
  row.difference = std::abs(row.nll - row.reference_nll);
  row.divergence = std::max(divergence, 0.0);  // but for rounding it is not negative
  row.same_best = best == reference_best ? 1 : 0;
  return row;
}

Result<ComparisonResult> compare_runs(SequenceRunner& run, SequenceRunner& reference,
                                      std::span<const int32_t> ids,
                                      const PerplexityOptions& options,
                                      const WindowVisitor& visit) {
  const int64_t num_windows = TRY(count_windows(ids, options));
  ComparisonResult result;
  double nll = 0;
  for (int64_t i = 0; i < num_windows; ++i) {
    const std::vector<int32_t> window = window_ids(ids, i, options);
    result.windows.push_back(compare_window(run, reference, window));
    result.num_scored += std::ssize(window) - 1;
    add(result.windows.back(), 1.0 / static_cast<double>(num_windows), &result.mean);
    nll += result.windows.back().nll;
    if (visit) visit(i + 1, num_windows, nll / static_cast<double>(i + 1));
  }
  return result;
}

}  // namespace headrace
