#include "verify/perplexity.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

double window_nll(SequenceRunner& runner, const std::vector<int32_t>& window) {
  double nll = 0;
  runner.restart();
  runner.append(window, 0, [&](int64_t position, std::span<const float> logits) {
    const auto next = static_cast<size_t>(position) + 1;
    if (next < window.size()) nll -= log_probability(logits, window[next]);
  });
  return nll;
}

}  // namespace

Result<int64_t> count_windows(std::span<const int32_t> ids, const PerplexityOptions& options) {
  const int64_t num_windows = static_cast<int64_t>(ids.size()) / options.window_tokens;
  if (num_windows == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the text has {} tokens, but one window needs {}; give a longer text or a "
                      "smaller --window",
                      ids.size(), options.window_tokens);
  }
  return options.max_windows > 0 ? std::min(num_windows, options.max_windows) : num_windows;
}

std::vector<int32_t> window_ids(std::span<const int32_t> ids, int64_t window_idx,
                                const PerplexityOptions& options) {
  const auto size = static_cast<size_t>(options.window_tokens);
  const auto stored = ids.subspan(static_cast<size_t>(window_idx) * size, size);
  std::vector<int32_t> window(stored.begin(), stored.end());
  if (options.bos_id) {
    window.pop_back();
    window.insert(window.begin(), *options.bos_id);
  }
  return window;
}

double log_probability(std::span<const float> logits, int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<size_t>(id)]) - largest - std::log(sum);
}

Result<PerplexityResult> measure_perplexity(SequenceRunner& runner, std::span<const int32_t> ids,
                                            const PerplexityOptions& options,
                                            const WindowVisitor& visit) {
  const int64_t num_windows = TRY(count_windows(ids, options));
  PerplexityResult result;
  const int64_t scored_per_window = options.window_tokens - 1;
  double total_nll = 0;
  for (int64_t i = 0; i < num_windows; ++i) {
    const double nll = window_nll(runner, window_ids(ids, i, options));
    result.mean_nll_per_window.push_back(nll / static_cast<double>(scored_per_window));
    total_nll += nll;
    result.num_scored += scored_per_window;
    result.mean_nll = total_nll / static_cast<double>(result.num_scored);
    if (visit) visit(i + 1, num_windows, result.mean_nll);
  }
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace headrace
