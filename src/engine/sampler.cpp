#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/philox.h"

namespace headrace {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kNegligible = 40;    // weights below exp(-40) are below any quantum
constexpr size_t kFewIds = 256;      // as many may be sorted
constexpr size_t kFewOf = 16;        // this share of the vocabulary is searched as ids
constexpr uint32_t kCoinStream = 1;  // XTC's uniform numbers

// Lowest id of the value.
int32_t first_of(const float* values, size_t count, float value) {
  return static_cast<int32_t>(std::find(values, values + count, value) - values);
}

VocabRange joined(const OfParts<VocabRange>& ranges, size_t num_parts) {
  VocabRange range = ranges[0];
  for (size_t part = 1; part < num_parts; ++part) {
    range.largest = std::max(range.largest, ranges[part].largest);
    range.smallest = std::min(range.smallest, ranges[part].smallest);
    range.finite = range.finite && ranges[part].finite;
  }
  return range;
}

Error not_finite(float logit, int64_t token_id) {
  return make_error(ErrorCode::kUnprocessable,
                    "the model computed the logit {} for token {}, which is not a finite number",
                    logit, token_id);
}

}  // namespace

Sampler::Sampler(int64_t vocab_size)
    : vocab_size_(static_cast<size_t>(vocab_size)),
      modified_(vocab_size_),
      weights_(vocab_size_),
      few_values_(std::min(kFewIds, vocab_size_)),
      few_weights_(few_values_.size()),
      few_ids_(few_values_.size()),
      block_largest_((vocab_size_ + kVocabBlock - 1) / kVocabBlock),
      block_bounds_(block_largest_.size()),
      block_sums_(block_largest_.size()),
      chunk_sums_((vocab_size_ + kVocabChunk - 1) / kVocabChunk),
      chunk_spreads_(chunk_sums_.size()),
      search_(vocab_size_) {
  CHECK(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size = {}", vocab_size);
}

VocabRange Sampler::range_of(const float* row, const RowParts& parts) const {
  OfParts<VocabRange> ranges;
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    ranges[part] = vocab_range(row + first, end - first);
  });
  return joined(ranges, parts.count(vocab_size_));
}

// An error names the first logit that is not finite.
Result<VocabRange> Sampler::checked_range(const float* logits, const RowParts& parts) const {
  const VocabRange range = range_of(logits, parts);
  if (range.finite) return range;
  const auto is_bad = [](float logit) { return !std::isfinite(logit); };
  const float* bad = std::find_if(logits, logits + vocab_size_, is_bad);
  return not_finite(*bad, bad - logits);
}

Result<int32_t> Sampler::sample(const float* logits, const Request& request,
                                const SampleContext& context, double* surprise) {
  VocabRange range = TRY(checked_range(logits, context.parts));
  const SamplingParams& sampling = request.sampling;
  const float* row = logits;
  if (modifies(request, context)) {
    range = modify(logits, request, context);
    row = modified_.data();
  }
  if (range.largest == kMinusInfinity) return nothing_left(request, context);
  if (sampling.temperature == 0) return first_of(row, vocab_size_, range.largest);
  const auto uniform = [&](uint32_t stream) {
    return uniform_at(sampling.seed, sampling.choice_idx, context.tokens.size(), stream);
  };
  const Draw draw{row,
                  range,
                  sampling,
                  context.parts,
                  uniform(0),
                  uniform(kCoinStream),
                  context.mirostat_bound};
  const bool filters = sampling.mirostat || sampling.top_k > 0 || sampling.top_p < 1 ||
                       sampling.min_p > 0 || sampling.typical_p < 1 || sampling.top_n_sigma > 0 ||
                       draw.coin < sampling.xtc_probability;
  return filters ? draw_from_some(draw, request, context, surprise)
                 : draw_from_all(draw, draw.uniform);
}

Error Sampler::nothing_left(const Request& request, const SampleContext& context) {
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  std::string_view why = "bad_words forbid every token that is left";
  if (num_output < request.min_tokens) {
    why = "min_tokens forbids every token of the vocabulary as a stop id";
  }
  if (context.mask != nullptr) why = "no token is left that the constraint allows";
  return make_error(ErrorCode::kUnprocessable, "{}", why);
}

double first_mirostat_bound(const SamplingParams& sampling) {
  return 2 * double{sampling.mirostat_tau};
}

double next_mirostat_bound(const SamplingParams& sampling, double bound, double surprise) {
  return bound - double{sampling.mirostat_eta} * (surprise - double{sampling.mirostat_tau});
}

bool Sampler::needs_best_only(const Request& request, const SampleContext& context) {
  return request.sampling.temperature == 0 && request.beams.width == 0 && !request.num_logprobs &&
         request.label_ids.empty() && !modifies(request, context);
}

Result<int32_t> Sampler::take(const BestOutput& best) {
  if (!best.finite) return not_finite(best.value, best.output);
  return best.output;
}

bool Sampler::modifies(const Request& request, const SampleContext& context) {
  const SamplingParams& sampling = request.sampling;
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  return context.mask != nullptr || num_output < request.min_tokens ||
         !sampling.logit_bias.empty() || !sampling.bad_words.empty() ||
         TokenHistory::is_needed(sampling);
}

// Fills modified_ and returns its range.
VocabRange Sampler::modify(const float* logits, const Request& request,
                           const SampleContext& context) {
  const SamplingParams& sampling = request.sampling;
  const RowParts& parts = context.parts;
  parts.run(vocab_size_, [&](size_t, size_t first, size_t end) {
    std::copy(logits + first, logits + end, modified_.data() + first);
  });
  for (const auto& [id, bias] : sampling.logit_bias) {
    float& logit = modified_[static_cast<size_t>(id)];
    logit = std::clamp(logit + bias, -kLargestLogit, kLargestLogit);
  }
  if (context.history != nullptr) {
    context.history->penalise(context.tokens, modified_.data());
  } else if (TokenHistory::is_needed(sampling)) {
    TokenHistory history(sampling, context.num_prompt);
    history.extend(context.tokens);
    history.penalise(context.tokens, modified_.data());
  }
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  if (num_output < request.min_tokens) forbid_ends(request, context);
  if (!sampling.bad_words.empty()) forbid_words(sampling, context);
  if (context.mask == nullptr) return range_of(modified_.data(), parts);
  OfParts<VocabRange> ranges;
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    ranges[part] = mask_vocab(context.mask + first / 64, end - first, modified_.data() + first);
  });
  return joined(ranges, parts.count(vocab_size_));
}

void Sampler::forbid_ends(const Request& request, const SampleContext& context) {
  for (const int32_t id : request.stop_ids) modified_[static_cast<size_t>(id)] = kMinusInfinity;
  if (request.ignore_eos) return;
  for (const int32_t id : context.end_ids) modified_[static_cast<size_t>(id)] = kMinusInfinity;
}

// The last token of each word whose others end the output.
void Sampler::forbid_words(const SamplingParams& sampling, const SampleContext& context) {
  const auto output = context.tokens.subspan(static_cast<size_t>(context.num_prompt));
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    const auto begun = std::span(word).first(word.size() - 1);
    if (begun.size() > output.size()) continue;
    if (!std::equal(begun.begin(), begun.end(), output.last(begun.size()).begin())) continue;
    modified_[static_cast<size_t>(word.back())] = kMinusInfinity;
  }
}

// Fills block_sums_ and returns their sum.
double Sampler::sum_weights(const Draw& draw, float temperature) {
  draw.parts.run(vocab_size_, [&](size_t, size_t first, size_t end) {
    sum_vocab_blocks({.values = draw.row + first,
                      .count = end - first,
                      .vocab_size = vocab_size_,
                      .largest = draw.range.largest,
                      .temperature = temperature},
                     block_sums_.data() + first / kVocabBlock);
  });
  double total = 0;
  for (const double sum : block_sums_) total += sum;
  return total;
}

// First id, in order of ids, where the running sum passes uniform * total: of blocks, then of the
// weights of one.
int32_t Sampler::draw_from_all(const Draw& draw, double uniform) {
  const float temperature = draw.sampling.temperature;
  const double target = uniform * sum_weights(draw, temperature);
  double sum = 0;
  size_t block = 0;
  for (; block + 1 < block_sums_.size(); ++block) {
    if (sum + block_sums_[block] > target) break;
    sum += block_sums_[block];
  }
  int32_t last = 0;
  for (size_t id = block * kVocabBlock; id < vocab_size_; ++id) {
    const float weight = exp_of_vocab(draw.row[id], draw.range.largest, temperature);
    if (weight == 0) continue;
    sum += weight;
    last = static_cast<int32_t>(id);
    if (sum > target) break;
  }
  return last;
}

// Puts the ids of what is at least as heavy into the search's, ascending; returns how many there
// are, or something above max_ids if there are more.
size_t Sampler::gather_heavier(const float* weights, float limit, size_t max_ids,
                               const RowParts& parts) {
  int32_t* ids = search_.ids().data();
  OfParts<size_t> firsts{}, counts{};
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    firsts[part] = first;
    counts[part] = gather_heavy(weights + first, end - first, limit, ids + first, max_ids);
    for (size_t i = 0; i < counts[part]; ++i) ids[first + i] += static_cast<int32_t>(first);
  });
  size_t found = 0;
  for (size_t part = 0; part < parts.count(vocab_size_); ++part) {
    if (found + counts[part] > max_ids) return max_ids + 1;
    if (found != firsts[part]) std::copy_n(ids + firsts[part], counts[part], ids + found);
    found += counts[part];
  }
  return found;
}

// Puts the ids of the `count` best, and maybe of others, into the search's, ascending; returns how
// many.
size_t Sampler::gather_best(const float* row, size_t count, const RowParts& parts) {
  parts.run(vocab_size_, [&](size_t, size_t first, size_t end) {
    block_largest(row + first, end - first, block_largest_.data() + first / kVocabBlock);
  });
  // `count` blocks hold something as good as the bound, so the `count` best are all as good.
  float bound = kMinusInfinity;
  if (count < block_largest_.size()) {
    block_bounds_ = block_largest_;
    const auto last = block_bounds_.begin() + static_cast<int64_t>(count) - 1;
    std::nth_element(block_bounds_.begin(), last, block_bounds_.end(), std::greater<>());
    bound = *last;
  }
  return gather_heavier(row, bound, vocab_size_, parts);
}

// Values below it are more than top_n_sigma standard deviations below the largest.
float Sampler::lowest_of_sigma(const Draw& draw) {
  if (draw.sampling.top_n_sigma <= 0 || draw.sampling.mirostat) return kMinusInfinity;
  const bool all_near = draw.range.finite && draw.range.smallest - draw.range.largest > -kFarBelow;
  draw.parts.run(vocab_size_, [&](size_t, size_t first, size_t end) {
    spread_vocab({.values = draw.row + first,
                  .count = end - first,
                  .largest = draw.range.largest,
                  .all_near = all_near},
                 chunk_spreads_.data() + first / kVocabChunk);
  });
  VocabSpread all;
  for (const VocabSpread& chunk : chunk_spreads_) {
    all.count += chunk.count;
    all.sum += chunk.sum;
    all.squares += chunk.squares;
  }
  const double mean = all.sum / all.count;
  const double variance = std::max(all.squares / all.count - mean * mean, 0.0);
  return draw.range.largest -
         static_cast<float>(double{draw.sampling.top_n_sigma} * std::sqrt(variance));
}

// Weighed, and without what top_n_sigma and top_k leave out.
Sampler::Pool Sampler::make_pool(const Draw& draw) {
  const int32_t top_k = draw.sampling.mirostat ? 0 : draw.sampling.top_k;
  const bool limits = top_k > 0 && static_cast<size_t>(top_k) < vocab_size_;
  const float lowest = lowest_of_sigma(draw);
  if (limits && static_cast<size_t>(top_k) <= kFewIds) {
    return gather_pool(draw, static_cast<size_t>(top_k), lowest);
  }
  const VocabWeights weighing{.values = draw.row,
                              .count = vocab_size_,
                              .vocab_size = vocab_size_,
                              .largest = draw.range.largest,
                              .temperature = draw.sampling.temperature,
                              .lowest = lowest,
                              .weights = weights_.data()};
  Pool pool{draw.row, weights_.data(), vocab_size_, nullptr, 0, lowest};
  if (!limits && !searches_all(draw, lowest)) {
    pool.sum = weigh(weighing, draw.parts);
    return pool;
  }
  index(draw, &pool, &weighing);
  pool.sum = search_.weight();
  if (!limits) return pool;
  const RankSearch::Place place = search_.find({.count = static_cast<size_t>(top_k)});
  if (place.weight == pool.sum) return pool;
  search_.keep_first(place);
  pool.sum = place.weight;
  pool.lowest = std::max(lowest, draw.row[place.last_id]);
  return pool;
}

double Sampler::weigh(const VocabWeights& weighing, const RowParts& parts) {
  OfParts<double> sums{};
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    sums[part] = weigh_vocab(weighing.part(first, end));
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Whether filters look at all tokens that weigh something, and these are not few: which weigh
// something a sample says well enough before they are weighed.
bool Sampler::searches_all(const Draw& draw, float lowest) const {
  const SamplingParams& sampling = draw.sampling;
  const bool by_weight = sampling.mirostat || sampling.top_p < 1 || sampling.min_p > 0;
  if (by_weight && (sampling.mirostat || sampling.typical_p >= 1)) return false;
  const float quantum = std::ldexp(1.0f, quantum_exponent(vocab_size_));
  const float lightest = draw.range.largest + sampling.temperature * std::log(quantum);
  return usual_share(draw.row, vocab_size_, std::max(lowest, lightest)) * kFewOf > 1;
}

// The `count` best, copied out.
Sampler::Pool Sampler::gather_pool(const Draw& draw, size_t count, float lowest) {
  const auto ids = search_.ids().first(gather_best(draw.row, count, draw.parts));
  for (const int32_t id : ids) {
    weights_[static_cast<size_t>(id)] =
        weigh_one(draw.row[id], draw.range.largest, draw.sampling.temperature, vocab_size_);
  }
  search_.begin_ids(draw.row, weights_.data(), ids.size());
  const int32_t last = search_.find({.count = count}).last_id;
  Pool pool{few_values_.data(), few_weights_.data(), 0, few_ids_.data(), 0, lowest};
  for (const int32_t id : ids) {
    const float value = draw.row[id];
    if (value < draw.row[last] || (value == draw.row[last] && id > last)) continue;
    few_ids_[pool.count] = id;
    few_values_[pool.count] = value;
    few_weights_[pool.count] = value < lowest ? 0 : weights_[static_cast<size_t>(id)];
    pool.sum += few_weights_[pool.count++];
  }
  return pool;
}

// Makes search_ ready for the pool, and the weights too if they are to be made.
void Sampler::index(const Draw& draw, Pool* pool, const VocabWeights* weighing) {
  pool->is_indexed = true;
  if (pool->ids != nullptr) {
    std::iota(search_.ids().begin(), search_.ids().begin() + std::ssize(few_ids_), 0);
    return search_.begin_ids(pool->values, pool->weights, pool->count);
  }
  const float negligible = draw.range.largest - kNegligible * draw.sampling.temperature;
  search_.begin_all({.values = pool->values,
                     .weights = pool->weights,
                     .range = draw.range,
                     .lowest = std::max(pool->lowest, negligible),
                     .parts = draw.parts,
                     .weighing = weighing});
}

// Only those of at least this weight, and of any, if they are few.
void Sampler::index_heavy(const Draw& draw, float least, Pool* pool) {
  if (pool->ids != nullptr) return index(draw, pool);
  const float quantum = std::ldexp(1.0f, quantum_exponent(vocab_size_));
  const size_t max_ids = vocab_size_ / kFewOf;
  const size_t found = gather_heavier(pool->weights, std::max(least, quantum), max_ids, draw.parts);
  if (found > max_ids) return index(draw, pool);
  pool->is_indexed = true;
  search_.begin_ids(pool->values, pool->weights, found);
}

// How far below the largest value a token of the usual surprise lies: surprise is linear in the
// value, so that the mean surprise is that of the mean value.
float Sampler::usual_distance(const Draw& draw, const Pool& pool) {
  draw.parts.run(pool.count, [&](size_t, size_t first, size_t end) {
    sum_weighed({.values = pool.values + first,
                 .weights = pool.weights + first,
                 .count = end - first,
                 .largest = draw.range.largest,
                 .lowest = std::max(pool.lowest, std::numeric_limits<float>::lowest())},
                chunk_sums_.data() + first / kVocabChunk);
  });
  const auto num_chunks = static_cast<ptrdiff_t>((pool.count + kVocabChunk - 1) / kVocabChunk);
  const double sum = std::accumulate(chunk_sums_.begin(), chunk_sums_.begin() + num_chunks, 0.0);
  return static_cast<float>(sum / pool.sum);
}

Sampler::Run Sampler::keep_typical(const Draw& draw, Pool* pool) {
  if (!pool->is_indexed) index_heavy(draw, 0, pool);
  const float centre = usual_distance(draw, *pool);
  const double enough = double{draw.sampling.typical_p} * pool->sum;
  const RankSearch::Near near =
      search_.find_near({.largest = draw.range.largest, .below = centre, .weight = enough});
  return {near.above, near.above + near.inside, near.largest_weight};
}

// Of the weights of the pool that are at least as heavy.
double Sampler::sum_heavy(const Draw& draw, const Pool& pool, double least) {
  const auto weight = static_cast<float>(least);
  if (!(weight > 0)) return pool.sum;
  const float about = draw.range.largest + draw.sampling.temperature * std::log(weight);
  return std::min(pool.sum, search_.sum_heavy(weight, about));
}

// What min_p or mirostat keeps weighs at least this, and the heaviest of the run is always kept.
double Sampler::least_weight(const Draw& draw, const Pool& pool, const Run& run) {
  const SamplingParams& sampling = draw.sampling;
  if (!sampling.mirostat && sampling.min_p <= 0) return 0;
  float largest = run.largest_weight;
  if (largest == 0) {
    largest = pool.weights[search_.find({.weight = run.begin, .above = true}).last_id];
  }
  const double least = sampling.mirostat ? (run.end - run.begin) * std::exp2(-draw.mirostat_bound)
                                         : static_cast<double>(sampling.min_p * largest);
  return std::min(least, double{largest});
}

// What top_p and min_p, or mirostat, and XTC leave of the run.
void Sampler::filter(const Draw& draw, Pool* pool, Run* run) {
  const SamplingParams& sampling = draw.sampling;
  const double share = sampling.mirostat ? 1 : std::min(sampling.top_p, 1.0f);
  const double least = least_weight(draw, *pool, *run);
  const double enough = run->begin + share * (run->end - run->begin);
  if (!pool->is_indexed) {
    // What is lighter than this is left out by top_p even if all of the vocabulary were as light;
    // the margin is for the rounding of weights.
    const float rest =
        0.99f * static_cast<float>((run->end - enough) / static_cast<double>(vocab_size_));
    index_heavy(draw, std::max(rest, static_cast<float>(least)), pool);
  }
  run->end = std::min(run->end, sum_heavy(draw, *pool, least));
  if (enough < run->end) run->end = std::min(run->end, search_.find({.weight = enough}).weight);
  if (draw.coin < sampling.xtc_probability && !sampling.mirostat) leave_out_top(draw, *pool, run);
}

// XTC: all but the lightest of those that have the threshold's share.
void Sampler::leave_out_top(const Draw& draw, const Pool& pool, Run* run) {
  const double least = double{draw.sampling.xtc_threshold} * (run->end - run->begin);
  const double heavy = std::min(run->end, sum_heavy(draw, pool, least));
  if (heavy <= run->begin) return;
  const RankSearch::Place place = search_.find({.weight = heavy});
  run->begin = std::max(run->begin, place.weight - double{pool.weights[place.last_id]});
}

int32_t Sampler::draw_from_some(const Draw& draw, const Request& request,
                                const SampleContext& context, double* surprise) {
  Pool pool = make_pool(draw);
  Run run{0, pool.sum, 1};
  if (draw.sampling.typical_p < 1 && !draw.sampling.mirostat) run = keep_typical(draw, &pool);
  filter(draw, &pool, &run);
  if (draw.sampling.infill && !draw.sampling.mirostat) {
    return draw_infill(draw, choices_of(pool, run, request, context),
                       likeliest_end(draw.row, request, context));
  }
  // Below what is kept, whatever uniform rounds to.
  const double quantum = std::ldexp(1.0, quantum_exponent(vocab_size_));
  const double length = run.end - run.begin;
  const double target = run.begin + std::min(draw.uniform * length, length - quantum);
  const int32_t place = search_.find({.weight = target, .above = true}).last_id;
  if (surprise != nullptr) *surprise = std::log2(length / double{pool.weights[place]});
  return pool.ids == nullptr ? place : pool.ids[place];
}

// The tokens of the run, heaviest first.
std::vector<InfillChoice> Sampler::choices_of(const Pool& pool, const Run& run,
                                              const Request& request,
                                              const SampleContext& context) {
  std::vector<size_t> places;
  for (size_t i = 0; i < pool.count; ++i) {
    if (pool.weights[i] > 0) places.push_back(i);
  }
  std::sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    return pool.values[a] != pool.values[b] ? pool.values[a] > pool.values[b] : a < b;
  });
  std::vector<InfillChoice> choices;
  double before = 0;
  for (const size_t place : places) {
    const double weight = pool.weights[place];
    const bool is_kept = before >= run.begin && before < run.end;
    before += weight;
    if (!is_kept) continue;
    const int32_t id = pool.ids == nullptr ? static_cast<int32_t>(place) : pool.ids[place];
    choices.push_back({id, weight, ends_output(request, context, id)});
  }
  return choices;
}

// -1: none may come.
int32_t Sampler::likeliest_end(const float* row, const Request& request,
                               const SampleContext& context) {
  int32_t likeliest = -1;
  for (const std::span<const int32_t> ids : {std::span(request.stop_ids), context.end_ids}) {
    for (const int32_t id : ids) {
      if (!ends_output(request, context, id) || row[id] == kMinusInfinity) continue;
      if (likeliest < 0 || row[id] > row[likeliest]) likeliest = id;
    }
  }
  return likeliest;
}

// `end`: the likeliest, for where the filter leaves nothing; -1: none may come.
int32_t Sampler::draw_infill(const Draw& draw, std::vector<InfillChoice> choices, int32_t end) {
  const int32_t likeliest = choices.front().id;
  const std::vector<InfillChoice> kept = keep_infill(std::move(choices), draw.sampling.infill);
  if (kept.empty()) return end < 0 ? likeliest : end;
  double left = 0;
  for (const InfillChoice& choice : kept) left += choice.weight;
  left *= draw.uniform;
  for (const InfillChoice& choice : kept) {
    left -= choice.weight;
    if (left < 0) return choice.id;
  }
  return kept.back().id;
}

// 1 for the largest; of equal ones the lower id comes first.
int32_t Sampler::rank_of(const float* logits, int32_t token_id, const RowParts& parts) const {
  const float own = logits[token_id];
  OfParts<int64_t> above{};
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    above[part] = count_vocab(logits + first, end - first, own).above;
  });
  const auto before = static_cast<size_t>(token_id);
  const int64_t equal = before > 0 ? count_vocab(logits, before, own).equal : 0;
  return static_cast<int32_t>(1 + equal + std::accumulate(above.begin(), above.end(), int64_t{0}));
}

Result<TokenLogprobs> Sampler::score(const float* logits, int32_t token_id, int num_top,
                                     const RowParts& parts) {
  CHECK(token_id >= 0 && static_cast<size_t>(token_id) < vocab_size_, "token {}", token_id);
  static const SamplingParams kAsComputed;
  const VocabRange range = TRY(checked_range(logits, parts));
  const float max_logit = range.largest;
  const auto log_sum =
      static_cast<float>(std::log(sum_weights({logits, range, kAsComputed, parts, 0, 0, 0}, 1.0f)));
  const auto logprob = [&](int32_t id) { return (logits[id] - max_logit) - log_sum; };
  TokenLogprobs result;
  result.logprob = logprob(token_id);
  result.rank = rank_of(logits, token_id, parts);
  const size_t count = std::min(static_cast<size_t>(num_top), vocab_size_);
  if (count == 0) return result;
  const std::span<int32_t> ids = search_.ids().first(gather_best(logits, count, parts));
  const auto last = ids.begin() + static_cast<int64_t>(count);
  const auto is_before = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::nth_element(ids.begin(), last - 1, ids.end(), is_before);
  std::sort(ids.begin(), last, is_before);
  result.top.reserve(count);
  for (auto id = ids.begin(); id != last; ++id) result.top.emplace_back(*id, logprob(*id));
  return result;
}

}  // namespace headrace
