// Sampler: from one row of logits to a token, and to log-probs.
//
// A pure function of the row, the request, the tokens so far, the position and mirostat's bound:
// scratch memory carries nothing from call to call. Order of operations: see SamplingParams. Each
// filter keeps a run of neighbours in the order of falling probability (ties: lower id first), so
// what it keeps is said by two sums of weights. typical_p keeps tokens that are equally usual
// together. The draw inverts the cumulative distribution, in that order when something is left out
// and in order of ids when nothing is, with one uniform number from (seed, choice, position); see
// philox.h. Nothing is sorted for it but a handful: rank_search.h, ADR 0024, ADR 0078; where
// something is left out, probabilities are rounded to about 2^-35 of the largest. Log-probs are of
// the raw logits, in float32 with the sum in float64 (blocks of 64 ids, then their sums); every
// log-prob of a row is computed by the same expression, so equal logits give equal floats. Nothing
// allocates in proportion to the vocabulary after construction. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/line_vector.h"
#include "base/result.h"
#include "engine/beam_search.h"
#include "engine/rank_search.h"
#include "engine/request.h"
#include "engine/row_parts.h"
#include "engine/token_history.h"
#include "engine/vocab_passes.h"

namespace headrace {

// Raised by whoever changes which token is drawn for a request; part of the numerics id.
inline constexpr int kSamplerVersion = 3;

struct SampleContext {
  std::span<const int32_t> tokens;  // prompt and output so far; the draw is for position size()
  int32_t num_prompt = 0;
  std::span<const int32_t> end_ids;  // the model's own
  const uint64_t* mask = nullptr;    // engine/constraint.h; null: all tokens may come
  RowParts parts = {};               // threads that pass over the row; the result is the same
  // Of the first of the tokens; null: what is needed of it is made of all of them.
  const TokenHistory* history = nullptr;
  double mirostat_bound = 0;  // bits; see first_mirostat_bound()
};

// Mirostat's bound of surprise: before the first token of an output, and after one whose surprise
// was `surprise` bits.
double first_mirostat_bound(const SamplingParams& sampling);
double next_mirostat_bound(const SamplingParams& sampling, double bound, double surprise);

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
  // surprise: of the token among those that could come, for mirostat; may be null.
  Result<int32_t> sample(const float* logits, const Request& request, const SampleContext& context,
                         double* surprise = nullptr);
  // num_top: alternatives to list, the arg-max first. kUnprocessable when a logit is not finite.
  Result<TokenLogprobs> score(const float* logits, int32_t token_id, int num_top,
                              const RowParts& parts = {});
  // What a beam search asks of a row, as BeamSearch::advance() wants it: log-probs as score() has
  // them, then what sampling does to logits done to them; nothing that is forbidden. Fails as
  // score().
  Result<std::vector<BeamCandidate>> continuations(const float* logits, const Request& request,
                                                   const SampleContext& context);

 private:
  struct Draw {
    const float* row;
    VocabRange range;
    const SamplingParams& sampling;
    const RowParts& parts;
    double uniform;
    double coin;            // XTC's
    double mirostat_bound;  // bits
  };
  // What filters choose from: the row, or the few best of it. In order of ids.
  struct Pool {
    const float* values;
    float* weights;
    size_t count;
    const int32_t* ids;       // of the few; null: all
    double sum;               // of the weights that are left
    float lowest;             // values below it are left out
    bool is_indexed = false;  // search_ knows it
  };
  // A run of a pool in the order of falling values, by the weight before it and with it.
  struct Run {
    double begin = 0, end = 0;
    float largest_weight = 1;  // 0: not known
  };

  Result<VocabRange> checked_range(const float* logits, const RowParts& parts) const;
  Status fill_logprobs(const float* logits, const RowParts& parts);
  VocabRange range_of(const float* row, const RowParts& parts) const;
  static bool modifies(const Request& request, const SampleContext& context);
  VocabRange modify(const float* logits, const Request& request, const SampleContext& context);
  static Error nothing_left(const Request& request, const SampleContext& context);
  void forbid_ends(const Request& request, const SampleContext& context);
  void forbid_words(const SamplingParams& sampling, const SampleContext& context);
  int32_t draw_from_all(const Draw& draw, double uniform);
  int32_t draw_from_some(const Draw& draw, const Request& request, const SampleContext& context,
                         double* surprise);
  static bool ends_output(const Request& request, const SampleContext& context, int32_t id);
  static int32_t likeliest_end(const float* row, const Request& request,
                               const SampleContext& context);
  static int32_t draw_infill(const Draw& draw, std::vector<InfillChoice> choices, int32_t end);
  static std::vector<InfillChoice> choices_of(const Pool& pool, const Run& run,
                                              const Request& request, const SampleContext& context);
  Pool make_pool(const Draw& draw);
  Pool gather_pool(const Draw& draw, size_t count, float lowest);
  float lowest_of_sigma(const Draw& draw);
  Run keep_typical(const Draw& draw, Pool* pool);
  float usual_distance(const Draw& draw, const Pool& pool);
  void filter(const Draw& draw, Pool* pool, Run* run);
  double least_weight(const Draw& draw, const Pool& pool, const Run& run);
  void leave_out_top(const Draw& draw, const Pool& pool, Run* run);
  double sum_heavy(const Draw& draw, const Pool& pool, double least);
  void index(const Draw& draw, Pool* pool, const VocabWeights* weighing = nullptr);
  double weigh(const VocabWeights& weighing, const RowParts& parts);
  bool searches_all(const Draw& draw, float lowest) const;
  void index_heavy(const Draw& draw, float least, Pool* pool);
  int32_t rank_of(const float* logits, int32_t token_id, const RowParts& parts) const;
  double sum_weights(const Draw& draw, float temperature);
  size_t gather_best(const float* row, size_t count, const RowParts& parts);
  size_t gather_heavier(const float* weights, float limit, size_t max_ids, const RowParts& parts);

  const size_t vocab_size_;
  LineVector<float> modified_;  // [vocab]
  LineVector<float> weights_;   // [vocab] of the draw
  std::vector<float> few_values_, few_weights_;
  std::vector<int32_t> few_ids_;
  // Per block of ids: the largest logit; the same, partly sorted; sum of the weights.
  std::vector<float> block_largest_, block_bounds_;
  std::vector<double> block_sums_;
  // Per chunk of ids.
  std::vector<double> chunk_sums_;
  std::vector<VocabSpread> chunk_spreads_;
  RankSearch search_;
};

}  // namespace headrace
