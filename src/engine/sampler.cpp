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
constexpr float kLargestLogit = 1e30f;  // penalties and biases cannot push a logit to infinity
constexpr float kNegligible = 40;       // weights below exp(-40) are below any quantum
constexpr size_t kFewIds = 256;         // as many may be sorted

// Lowest id of the value.
int32_t first_of(const float* values, size_t count, float value) {
  return static_cast<int32_t>(std::find(values, values + count, value) - values);
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
      counts_(vocab_size_),
      block_largest_((vocab_size_ + kVocabBlock - 1) / kVocabBlock),
      block_bounds_(block_largest_.size()),
      block_sums_(block_largest_.size()),
      search_(vocab_size_) {
  CHECK(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size = {}", vocab_size);
}

VocabRange Sampler::range_of(const float* row, const RowParts& parts) const {
  OfParts<VocabRange> ranges;
  parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    ranges[part] = vocab_range(row + first, end - first);
  });
  VocabRange range = ranges[0];
  for (size_t part = 1; part < parts.count(vocab_size_); ++part) {
    range.largest = std::max(range.largest, ranges[part].largest);
    range.smallest = std::min(range.smallest, ranges[part].smallest);
    range.finite = range.finite && ranges[part].finite;
  }
  return range;
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
                                const SampleContext& context) {
  VocabRange range = TRY(checked_range(logits, context.parts));
  const SamplingParams& sampling = request.sampling;
  const float* row = logits;
  if (modifies(request, context)) {
    row = modify(logits, request, context);
    range = range_of(row, context.parts);
  }
  if (range.largest == kMinusInfinity) {
    return make_error(ErrorCode::kUnprocessable, "{}",
                      context.mask == nullptr
                          ? "min_tokens forbids every token of the vocabulary as a stop id"
                          : "no token is left that the constraint allows");
  }
  if (sampling.temperature == 0) return first_of(row, vocab_size_, range.largest);
  const double uniform = uniform_at(sampling.seed, sampling.choice_idx, context.tokens.size());
  const bool filters = sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0;
  return filters ? draw_from_best({row, range, sampling, context.parts}, uniform)
                 : draw_from_all({row, range, sampling, context.parts}, uniform);
}

bool Sampler::needs_best_only(const Request& request, const SampleContext& context) {
  return request.sampling.temperature == 0 && !request.num_logprobs && request.label_ids.empty() &&
         !modifies(request, context);
}

Result<int32_t> Sampler::take(const BestOutput& best) {
  if (!best.finite) return not_finite(best.value, best.output);
  return best.output;
}

bool Sampler::modifies(const Request& request, const SampleContext& context) {
  const SamplingParams& sampling = request.sampling;
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  return context.mask != nullptr || num_output < request.min_tokens ||
         !sampling.logit_bias.empty() || sampling.repetition_penalty != 1 ||
         sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

const float* Sampler::modify(const float* logits, const Request& request,
                             const SampleContext& context) {
  std::copy_n(logits, vocab_size_, modified_.begin());
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    float& logit = modified_[static_cast<size_t>(id)];
    logit = std::clamp(logit + bias, -kLargestLogit, kLargestLogit);
  }
  add_penalties(request.sampling, context);
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  if (num_output < request.min_tokens) {
    for (const int32_t id : request.stop_ids) modified_[static_cast<size_t>(id)] = kMinusInfinity;
    if (!request.ignore_eos) {
      for (const int32_t id : context.end_ids) modified_[static_cast<size_t>(id)] = kMinusInfinity;
    }
  }
  if (context.mask != nullptr) forbid(context.mask);
  return modified_.data();
}

void Sampler::forbid(const uint64_t* mask) {
  for (size_t word = 0; word * 64 < vocab_size_; ++word) {
    if (mask[word] == ~uint64_t{0}) continue;
    const size_t end = std::min(word * 64 + 64, vocab_size_);
    for (size_t id = word * 64; id < end; ++id) {
      if ((mask[word] >> (id % 64) & 1) == 0) modified_[id] = kMinusInfinity;
    }
  }
}

void Sampler::add_penalties(const SamplingParams& sampling, const SampleContext& context) {
  const bool repetition = sampling.repetition_penalty != 1;
  const bool counted = sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  if (!repetition && !counted) return;
  const auto output = context.tokens.subspan(static_cast<size_t>(context.num_prompt));
  for (const int32_t id : output) ++counts_[static_cast<size_t>(id)];
  const auto apply = [&](int32_t id) {
    int32_t& count = counts_[static_cast<size_t>(id)];
    if (count < 0)
      return;  // done already: a token is penalised once, however often it stands there
    float& logit = modified_[static_cast<size_t>(id)];
    if (repetition) {
      logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    }
    if (count > 0) {
      logit -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(count);
    }
    logit = std::clamp(logit, -kLargestLogit, kLargestLogit);
    count = -1;
  };
  const auto penalised = repetition ? context.tokens : output;
  for (const int32_t id : penalised) apply(id);
  for (const int32_t id : penalised) counts_[static_cast<size_t>(id)] = 0;
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

// Fills weights_.
VocabSums Sampler::weigh_all(const Draw& draw) {
  OfParts<VocabSums> sums;
  draw.parts.run(vocab_size_, [&](size_t part, size_t first, size_t end) {
    sums[part] = weigh_vocab({.values = draw.row + first,
                              .count = end - first,
                              .vocab_size = vocab_size_,
                              .largest = draw.range.largest,
                              .temperature = draw.sampling.temperature,
                              .min_weight = draw.sampling.min_p,
                              .weights = weights_.data() + first});
  });
  for (size_t part = 1; part < draw.parts.count(vocab_size_); ++part) {
    sums[0].sum += sums[part].sum;
    sums[0].heavy_sum += sums[part].heavy_sum;
  }
  return sums[0];
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
    const size_t most = std::min(max_ids, end - first);
    counts[part] = gather_heavy(weights + first, end - first, limit, ids + first, most);
    for (size_t i = 0; i < std::min(counts[part], most); ++i) {
      ids[first + i] += static_cast<int32_t>(first);
    }
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

// Every filter keeps a beginning of the sorted tokens, so its weight says all of it: the draw is
// from the lightest of them.
int32_t Sampler::draw_from_best(const Draw& draw, double uniform) {
  const SamplingParams& sampling = draw.sampling;
  const bool limits = sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < vocab_size_;
  const size_t top_k = limits ? static_cast<size_t>(sampling.top_k) : vocab_size_;
  VocabSums sums;
  if (top_k <= kFewIds) {
    sums = begin_with_best(draw, top_k);
  } else {
    sums = weigh_all(draw);
    if (limits) begin_with_all(draw, /*counts=*/true);
  }
  double kept = limits ? search_.find({.count = top_k}).weight : sums.sum;
  const double enough = sampling.top_p < 1 ? static_cast<double>(sampling.top_p) * kept : kept;
  if (!limits) {
    // What is lighter than this is left out by top_p even if all of the vocabulary were as light,
    // or by min_p; the margin is for the rounding of weights.
    const double rest = (kept - enough) / static_cast<double>(vocab_size_);
    begin_with_heavy(draw, 0.99f * std::max(static_cast<float>(rest), sampling.min_p));
  }
  if (enough < kept && enough < sums.heavy_sum) kept = search_.find({.weight = enough}).weight;
  kept = std::min(kept, sums.heavy_sum);
  // Below what is kept, whatever uniform rounds to.
  const double quantum = std::ldexp(1.0, quantum_exponent(vocab_size_));
  const double target = std::min(uniform * kept, kept - quantum);
  return search_.find({.weight = target, .above = true}).last_id;
}

// Searches among the `count` best and maybe others; weighs only these.
VocabSums Sampler::begin_with_best(const Draw& draw, size_t count) {
  const auto ids = search_.ids().first(gather_best(draw.row, count, draw.parts));
  VocabSums sums;
  for (const int32_t id : ids) {
    const float weight =
        weigh_one(draw.row[id], draw.range.largest, draw.sampling.temperature, vocab_size_);
    weights_[static_cast<size_t>(id)] = weight;
    sums.sum += weight;
    sums.heavy_sum += weight >= draw.sampling.min_p ? weight : 0;
  }
  search_.begin_ids(draw.row, weights_.data(), ids.size());
  return sums;
}

// Searches among the tokens of at least this weight if they are few, or among all.
void Sampler::begin_with_heavy(const Draw& draw, float least_weight) {
  const size_t max_ids = vocab_size_ / 8;
  const size_t found = least_weight > 0
                           ? gather_heavier(weights_.data(), least_weight, max_ids, draw.parts)
                           : vocab_size_;
  if (found > max_ids) return begin_with_all(draw, /*counts=*/false);
  search_.begin_ids(draw.row, weights_.data(), found);
}

void Sampler::begin_with_all(const Draw& draw, bool counts) {
  const float span =
      std::min(draw.range.largest - draw.range.smallest, kNegligible * draw.sampling.temperature);
  search_.begin_all({.values = draw.row,
                     .weights = weights_.data(),
                     .largest = draw.range.largest,
                     .span = span,
                     .counts = counts,
                     .parts = draw.parts});
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
      static_cast<float>(std::log(sum_weights({logits, range, kAsComputed, parts}, 1.0f)));
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
