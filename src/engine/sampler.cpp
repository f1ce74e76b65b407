#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/numeric.h"
#include "engine/philox.h"

namespace headrace {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kRoundToInteger = 0x1.8p23f;  // adding it leaves no bits below 1
constexpr size_t kBlockIds = 64;  // looked at as one when the best are sought, and summed as one
constexpr size_t kSumLanes = 4;
constexpr float kLargestLogit = 1e30f;  // penalties and biases cannot push a logit to infinity

// exp(x) for x <= 0, relative error below 3e-7, 0 below -87. Straight-line float32 arithmetic, so
// that a loop over the vocabulary is vectorised and gives the same bits everywhere. Method: x = n
// ln2
// + r with |r| <= ln2 / 2 (Cody and Waite), then a Taylor polynomial of degree 7 in r.
inline float exp_nonpositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float n = (clamped * 1.44269504f + kRoundToInteger) - kRoundToInteger;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float scale = bits_to_float(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * scale;
}

int32_t largest_order(const float* values, size_t count) {
  int32_t best = INT32_MIN;
  for (size_t i = 0; i < count; ++i) best = std::max(best, float_order(values[i]));
  return best;
}

// Lowest id among the largest.
int32_t arg_max(const float* values, size_t count) {
  const int32_t best = largest_order(values, count);
  const auto is_best = [best](float value) { return float_order(value) == best; };
  return static_cast<int32_t>(std::find_if(values, values + count, is_best) - values);
}

Error not_finite(float logit, int64_t token_id) {
  return make_error(ErrorCode::kInternal,
                    "the model computed the logit {} for token {}, which is not a finite number",
                    logit, token_id);
}

}  // namespace

// Weights of the draw: exp((logit - max) / temperature).
struct Sampler::Softmax {
  const float* row;
  float max_logit;
  float temperature;

  float weight_of_logit(float logit) const {
    return exp_nonpositive(std::max((logit - max_logit) / temperature, -1000.0f));
  }
};

namespace {

bool ranks_before(const float* values, int32_t a, int32_t b) {
  const float x = values[a];
  const float y = values[b];
  return x != y ? x > y : a < b;
}

}  // namespace

Sampler::Sampler(int64_t vocab_size)
    : vocab_size_(static_cast<size_t>(vocab_size)),
      modified_(vocab_size_),
      order_(vocab_size_),
      counts_(vocab_size_),
      block_best_((vocab_size_ + kBlockIds - 1) / kBlockIds),
      best_blocks_(block_best_.size()),
      block_sums_(block_best_.size()) {
  CHECK(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size = {}", vocab_size);
  kept_weights_.reserve(vocab_size_);
}

Status Sampler::check_finite(const float* logits) const {
  uint32_t bad = 0;
  for (size_t i = 0; i < vocab_size_; ++i) {
    bad |= (float_to_bits(logits[i]) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  }
  if (bad == 0) return {};
  for (size_t i = 0; i < vocab_size_; ++i) {
    if (!std::isfinite(logits[i])) return not_finite(logits[i], static_cast<int64_t>(i));
  }
  return {};
}

Result<int32_t> Sampler::sample(const float* logits, const Request& request,
                                const SampleContext& context) {
  TRY(check_finite(logits));
  const SamplingParams& sampling = request.sampling;
  const float* row = modifies(request, context) ? modify(logits, request, context) : logits;
  const int32_t best = arg_max(row, vocab_size_);
  const float max_logit = row[best];
  if (max_logit == kMinusInfinity) {
    return make_error(ErrorCode::kInternal,
                      "min_tokens forbids every token of the vocabulary as a stop id");
  }
  if (sampling.temperature == 0) return best;
  const Softmax softmax{row, max_logit, sampling.temperature};
  const double uniform = uniform_at(sampling.seed, context.tokens.size());
  const bool filters = sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0;
  return filters ? draw_from_best(softmax, sampling, uniform) : draw_from_all(softmax, uniform);
}

bool Sampler::needs_best_only(const Request& request, const SampleContext& context) {
  return request.sampling.temperature == 0 && !request.num_logprobs && !modifies(request, context);
}

Result<int32_t> Sampler::take(const BestOutput& best) {
  if (!best.finite) return not_finite(best.value, best.output);
  return best.output;
}

bool Sampler::modifies(const Request& request, const SampleContext& context) {
  const SamplingParams& sampling = request.sampling;
  const auto num_output = static_cast<int64_t>(context.tokens.size()) - context.num_prompt;
  return num_output < request.min_tokens || !sampling.logit_bias.empty() ||
         sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
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
  return modified_.data();
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

double Sampler::sum_weights(const Softmax& softmax) {
  double total = 0;
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    const float* logits = softmax.row + block * kBlockIds;
    const size_t count = std::min(kBlockIds, vocab_size_ - block * kBlockIds);
    float filled[kBlockIds];
    if (count < kBlockIds) {
      std::fill(std::copy_n(logits, count, filled), filled + kBlockIds, kMinusInfinity);
      logits = filled;
    }
    float weights[kBlockIds];
    for (size_t i = 0; i < kBlockIds; ++i) weights[i] = softmax.weight_of_logit(logits[i]);
    double lanes[kSumLanes] = {};
    for (size_t i = 0; i < kBlockIds; i += kSumLanes) {
      for (size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += weights[i + lane];
    }
    block_sums_[block] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    total += block_sums_[block];
  }
  return total;
}

// First id, in order of ids, where the running sum passes uniform * total: of blocks, then of the
// weights of one.
int32_t Sampler::draw_from_all(const Softmax& softmax, double uniform) {
  const double target = uniform * sum_weights(softmax);
  double sum = 0;
  size_t block = 0;
  for (; block + 1 < block_sums_.size(); ++block) {
    if (sum + block_sums_[block] > target) break;
    sum += block_sums_[block];
  }
  int32_t last = 0;
  for (size_t id = block * kBlockIds; id < vocab_size_; ++id) {
    const float weight = softmax.weight_of_logit(softmax.row[id]);
    if (weight == 0) continue;
    sum += weight;
    last = static_cast<int32_t>(id);
    if (sum > target) break;
  }
  return last;
}

// Puts ids among which are the `count` best at the beginning of order_; returns how many.
size_t Sampler::gather_best(const float* row, size_t count) {
  if (count >= block_best_.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    return vocab_size_;
  }
  for (size_t block = 0; block < block_best_.size(); ++block) {
    const size_t first = block * kBlockIds;
    block_best_[block] = largest_order(row + first, std::min(kBlockIds, vocab_size_ - first));
  }
  // `count` blocks hold something as good as the bound, so the `count` best are all as good.
  best_blocks_ = block_best_;
  const auto last = best_blocks_.begin() + static_cast<int64_t>(count) - 1;
  std::nth_element(best_blocks_.begin(), last, best_blocks_.end(), std::greater<>());
  const int32_t bound = *last;
  size_t found = 0;
  for (size_t block = 0; block < block_best_.size(); ++block) {
    if (block_best_[block] < bound) continue;
    const size_t end = std::min((block + 1) * kBlockIds, vocab_size_);
    for (size_t id = block * kBlockIds; id < end; ++id) {
      if (float_order(row[id]) >= bound) order_[found++] = static_cast<int32_t>(id);
    }
  }
  return found;
}

void Sampler::sort_best(const float* row, size_t count) {
  const auto before = [row](int32_t a, int32_t b) { return ranks_before(row, a, b); };
  const size_t found = gather_best(row, count);
  const auto end = order_.begin() + static_cast<int64_t>(count);
  if (count < found) {
    std::nth_element(order_.begin(), end, order_.begin() + static_cast<int64_t>(found), before);
  }
  std::sort(order_.begin(), end, before);
}

int32_t Sampler::draw_from_best(const Softmax& softmax, const SamplingParams& sampling,
                                double uniform) {
  const float* row = softmax.row;
  const auto weight_of = [&](size_t rank) { return softmax.weight_of_logit(row[order_[rank]]); };
  const size_t limit =
      sampling.top_k > 0 ? std::min(vocab_size_, static_cast<size_t>(sampling.top_k)) : vocab_size_;
  const bool nucleus = sampling.top_p < 1;
  size_t sorted = std::min<size_t>(limit, 64);
  double total = 0;
  if (nucleus && limit < vocab_size_) {  // the share of top_p is of what top_k keeps
    sort_best(row, sorted = limit);
    for (size_t i = 0; i < limit; ++i) total += weight_of(i);
  } else {
    if (nucleus) total = sum_weights(softmax);
    sort_best(row, sorted);
  }
  const double enough = nucleus ? sampling.top_p * total : std::numeric_limits<double>::infinity();
  kept_weights_.clear();
  double kept_sum = 0;
  while (kept_weights_.size() < limit && kept_sum < enough) {
    const size_t kept = kept_weights_.size();
    if (kept == sorted) sort_best(row, sorted = std::min(limit, sorted * 8));
    const float weight = weight_of(kept);
    if (kept > 0 && (weight == 0 || weight < sampling.min_p)) break;  // the best weighs 1
    kept_sum += weight;
    kept_weights_.push_back(weight);
  }
  const double target = uniform * kept_sum;
  double sum = 0;
  for (size_t i = 0; i < kept_weights_.size(); ++i) {
    sum += kept_weights_[i];
    if (sum > target) return order_[i];
  }
  return order_[kept_weights_.size() - 1];
}

Result<TokenLogprobs> Sampler::score(const float* logits, int32_t token_id, int num_top) {
  TRY(check_finite(logits));
  CHECK(token_id >= 0 && static_cast<size_t>(token_id) < vocab_size_, "token {}", token_id);
  const float max_logit = logits[arg_max(logits, vocab_size_)];
  const float log_sum = static_cast<float>(std::log(sum_weights({logits, max_logit, 1.0f})));
  const auto logprob = [&](int32_t id) { return (logits[id] - max_logit) - log_sum; };
  TokenLogprobs result;
  result.logprob = logprob(token_id);
  int32_t rank = 1;
  const float own = logits[token_id];
  for (size_t i = 0; i < vocab_size_; ++i) {
    rank += (logits[i] > own || (logits[i] == own && static_cast<int32_t>(i) < token_id)) ? 1 : 0;
  }
  result.rank = rank;
  const size_t count = std::min(static_cast<size_t>(num_top), vocab_size_);
  if (count == 0) return result;
  // One pass with a short sorted list: an id enters only when it beats the worst listed.
  result.top.reserve(count + 1);
  for (size_t i = 0; i < vocab_size_; ++i) {
    const float value = logits[i];
    if (result.top.size() == count && value <= result.top.back().second) continue;
    const auto place =
        std::upper_bound(result.top.begin(), result.top.end(), value,
                         [](float x, const auto& entry) { return x > entry.second; });
    result.top.insert(place, {static_cast<int32_t>(i), value});
    if (result.top.size() > count) result.top.pop_back();
  }
  for (auto& [id, value] : result.top) value = logprob(id);
  return result;
}

}  // namespace headrace
