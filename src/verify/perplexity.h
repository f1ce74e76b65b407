// Perplexity over windows of a text: each window on its own, scored from its second token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "verify/sequence_runner.h"

namespace headrace {

struct PerplexityOptions {
  int64_t window_tokens = 512;
  int64_t max_windows = 0;  // 0: all whole windows
  std::optional<int32_t>
      bos_id;  // stands first in every window, which then has one text token less
};

struct PerplexityResult {
  std::vector<double> mean_nll_per_window;  // nats per scored token
  double mean_nll = 0;
  double perplexity = 0;
  int64_t num_scored = 0;
};

// The windows of a text that are scored: at least one. kInvalidArgument if there is none.
Result<int64_t> count_windows(std::span<const int32_t> ids, const PerplexityOptions& options);
std::vector<int32_t> window_ids(std::span<const int32_t> ids, int64_t window_idx,
                                const PerplexityOptions& options);

// Called after each window: windows done, windows in all, mean negative log-likelihood so far.
using WindowVisitor = std::function<void(int64_t done, int64_t total, double mean_nll)>;

// kInvalidArgument if the text has not one whole window.
Result<PerplexityResult> measure_perplexity(SequenceRunner& runner, std::span<const int32_t> ids,
                                            const PerplexityOptions& options,
                                            const WindowVisitor& visit = {});

// log(softmax(logits)[id]), in double.
double log_probability(std::span<const float> logits, int32_t id);

}  // namespace headrace
