// Comparison: how far a run of a model is from a reference run of the same text: another file of
// the model, other arithmetic, another storage of keys and values.
//
// Windows as in perplexity.h. Of each scored position the whole distributions of both runs are
// compared, in double; rows of logits are held for a few positions at a time. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/perplexity.h"

namespace headrace {

// Means over the scored positions of a window. Natural logarithms.
struct WindowComparison {
  double nll = 0;
  double reference_nll = 0;
  double difference = 0;  // |log-prob of the text's token - that of the reference|
  double divergence = 0;  // Kullback-Leibler, of the run from the reference
  double same_best = 0;   // share of positions whose most likely token is the reference's
};

struct ComparisonResult {
  std::vector<WindowComparison> windows;
  int64_t num_scored = 0;
  WindowComparison mean;  // over all, since windows are of one size
};

// Two rows of logits of one vocabulary, and the text's token.
WindowComparison compare_rows(std::span<const float> logits, std::span<const float> reference,
                              int32_t id);

// Both runners have room for a window. kInvalidArgument if the text has not one whole window.
Result<ComparisonResult> compare_runs(SequenceRunner& run, SequenceRunner& reference,
                                      std::span<const int32_t> ids,
                                      const PerplexityOptions& options,
                                      const WindowVisitor& visit = {});

}  // namespace headrace
