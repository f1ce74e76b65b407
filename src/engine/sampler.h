// Sampler: from one row of logits to a token, and to log-probs.
//
// A pure function of the row, the request, the tokens so far and the position: scratch memory
// carries nothing from call to call. Order of operations: see SamplingParams. top_k, top_p and
// min_p each keep a beginning of the tokens sorted by falling probability (ties: lower id first),
// so what is kept is the shortest of the three; top_p counts probability among what top_k keeps.
// The draw inverts the cumulative distribution, in that order when something is left out and in
// order of ids when nothing is, with one uniform number from (seed, choice, position); see
// philox.h. Nothing is sorted for it but a handful: rank_search.h, ADR 0024; where something is
// left out, probabilities are rounded to about 2^-35 of the largest. Log-probs are of the raw
// logits, in float32 with the sum in float64 (blocks of 64 ids, then their sums); every log-prob of
// a row is computed by the same expression, so equal logits give equal floats. Nothing allocates in
// proportion to the vocabulary after construction. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/rank_search.h"
#include "engine/request.h"
#include "engine/row_parts.h"
#include "engine/vocab_passes.h"

namespace headrace {

// Raised by whoever changes which token is drawn for a request; part of the numerics id.
inline constexpr int kSamplerVersion = 2;

struct SampleContext {
  std::span<const int32_t> tokens;  // prompt and output so far; the draw is for position size()
  int32_t num_prompt = 0;
  std::span<const int32_t> end_ids;  // the model's own
  const uint64_t* mask = nullptr;    // engine/constraint.h; null: all tokens may come
  RowParts parts = {};               // threads that pass over the row; the result is the same
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Whether sample() would give the arg-max of the raw logits and nothing else is asked of them:
  // then the model need not write them, and take() replaces sample().
  static bool needs_best_only(const Request& request, const SampleContext& context);
  // The token; kUnprocessable in the same words as sample() when a logit is not finite.
  static Result<int32_t> take(const BestOutput& best);

  // kUnprocessable when a logit is not finite or no token is left: the sequence must end with this
  // error.
  Result<int32_t> sample(const float* logits, const Request& request, const SampleContext& context);
  // num_top: alternatives to list, the arg-max first. kUnprocessable when a logit is not finite.
  Result<TokenLogprobs> score(const float* logits, int32_t token_id, int num_top,
                              const RowParts& parts = {});

 private:
  struct Draw {
    const float* row;
    VocabRange range;
    const SamplingParams& sampling;
    const RowParts& parts;
  };

  Result<VocabRange> checked_range(const float* logits, const RowParts& parts) const;
  VocabRange range_of(const float* row, const RowParts& parts) const;
  static bool modifies(const Request& request, const SampleContext& context);
  const float* modify(const float* logits, const Request& request, const SampleContext& context);
  void forbid(const uint64_t* mask);
  void add_penalties(const SamplingParams& sampling, const SampleContext& context);
  int32_t draw_from_all(const Draw& draw, double uniform);
  int32_t draw_from_best(const Draw& draw, double uniform);
  VocabSums begin_with_best(const Draw& draw, size_t count);
  void begin_with_heavy(const Draw& draw, float least_weight);
  void begin_with_all(const Draw& draw, bool counts);
  int32_t rank_of(const float* logits, int32_t token_id, const RowParts& parts) const;
  VocabSums weigh_all(const Draw& draw);
  double sum_weights(const Draw& draw, float temperature);
  size_t gather_best(const float* row, size_t count, const RowParts& parts);
  size_t gather_heavier(const float* weights, float limit, size_t max_ids, const RowParts& parts);

  const size_t vocab_size_;
  std::vector<float> modified_;  // [vocab]
  std::vector<float> weights_;   // [vocab] of the draw
  std::vector<int32_t> counts_;  // [vocab] zero between calls
  // Per block of ids: the largest logit; the same, partly sorted; sum of the weights.
  std::vector<float> block_largest_, block_bounds_;
  std::vector<double> block_sums_;
  RankSearch search_;
};

}  // namespace headrace
