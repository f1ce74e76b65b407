// Sampler: from one row of logits to a token, and to log-probs.
//
// A pure function of the row, the request, the tokens so far and the position: scratch memory
// carries nothing from call to call. Order of operations: see SamplingParams. top_k, top_p and
// min_p each keep a beginning of the tokens sorted by falling probability (ties: lower id first),
// so what is kept is the shortest of the three; top_p counts probability among what top_k keeps.
// The draw inverts the cumulative distribution with one uniform number from (seed, position); see
// philox.h. Log-probs are of the raw logits, in float32 with the sum in float64 (blocks of 64 ids,
// then their sums); every log-prob of a row is computed by the same expression, so equal logits
// give equal floats. Nothing allocates in proportion to the vocabulary after construction. Engine
// thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/request.h"

namespace headrace {

struct SampleContext {
  std::span<const int32_t> tokens;  // prompt and output so far; the draw is for position size()
  int32_t num_prompt = 0;
  std::span<const int32_t> end_ids;  // the model's own
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Whether sample() would give the arg-max of the raw logits and nothing else is asked of them:
  // then the model need not write them, and take() replaces sample().
  static bool needs_best_only(const Request& request, const SampleContext& context);
  // The token; kInternal in the same words as sample() when a logit is not finite.
  static Result<int32_t> take(const BestOutput& best);

  // kInternal when a logit is not finite or no token is left: the sequence must end with this
  // error.
  Result<int32_t> sample(const float* logits, const Request& request, const SampleContext& context);
  // num_top: alternatives to list, the arg-max first. kInternal when a logit is not finite.
  Result<TokenLogprobs> score(const float* logits, int32_t token_id, int num_top);

 private:
  Status check_finite(const float* logits) const;
  static bool modifies(const Request& request, const SampleContext& context);
  const float* modify(const float* logits, const Request& request, const SampleContext& context);
  void add_penalties(const SamplingParams& sampling, const SampleContext& context);
  struct Softmax;
  int32_t draw_from_all(const Softmax& softmax, double uniform);
  int32_t draw_from_best(const Softmax& softmax, const SamplingParams& sampling, double uniform);
  // Fills block_sums_ and returns their sum.
  double sum_weights(const Softmax& softmax);
  void sort_best(const float* row, size_t count);
  size_t gather_best(const float* row, size_t count);

  const size_t vocab_size_;
  std::vector<float> modified_;  // [vocab]
  std::vector<int32_t> order_;   // [vocab] ids; a sorted beginning after sort_best
  std::vector<int32_t> counts_;  // [vocab] zero between calls
  // Per block of ids: order of its best logit (float_order); the same, partly sorted.
  std::vector<int32_t> block_best_, best_blocks_;
  std::vector<double> block_sums_;   // per block of ids: sum of its weights
  std::vector<float> kept_weights_;  // of the beginning of order_ that a draw keeps
};

}  // namespace headrace
