#include "backend/cpu/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backend/device_access.h"

namespace headrace::cpu {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();  // of what cannot be chosen

using Values = std::span<float>;

void softmax(std::span<const float> logits, float* out, double* powers) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += powers[i] = std::exp(logits[i] - top);
  for (size_t i = 0; i < logits.size(); ++i) out[i] = static_cast<float>(powers[i] / sum);
}

void score(RouterScore kind, std::span<const float> logits, Values scores, double* powers) {
  if (kind == RouterScore::kSoftmax) return softmax(logits, scores.data(), powers);
  if (kind == RouterScore::kSoftmaxChosen || kind == RouterScore::kSparseMixer) {
    std::copy(logits.begin(), logits.end(), scores.begin());
    return;
  }
  for (size_t e = 0; e < logits.size(); ++e) {
    scores[e] = static_cast<float>(1 / (1 + std::exp(-double{logits[e]})));
  }
}

float group_score(GroupScore kind, std::span<const float> values) {
  float largest = kOut, second = kOut;
  for (const float value : values) {
    if (value > largest) {
      second = largest;
      largest = value;
    } else if (value > second) {
      second = value;
    }
  }
  return kind == GroupScore::kMaximum || values.size() < 2 ? largest : largest + second;
}

// What is no number is chosen last.
void order_numbers(Values values) {
  for (float& value : values) value = std::isnan(value) ? kOut : value;
}

// The largest value, the first among equals, which becomes NaN: it is taken.
size_t take_best(Values values) {
  size_t best = 0;
  while (best + 1 < values.size() && std::isnan(values[best])) ++best;
  for (size_t i = best + 1; i < values.size(); ++i) {
    if (values[i] > values[best]) best = i;
  }
  values[best] = std::numeric_limits<float>::quiet_NaN();
  return best;
}

// The share of the largest of what is left in a softmax over all that are near it.
float share_of_largest(std::span<const float> left, float jitter) {
  float top = kOut;
  for (const float value : left) top = value > top ? value : top;
  double sum = 0;
  for (const float value : left) {
    const bool is_far = (top - value) / std::max(std::fabs(value), top) > 2 * jitter;
    if (!std::isnan(value) && !is_far) sum += std::exp(double{value} - top);
  }
  return static_cast<float>(1 / sum);
}

// Experts of groups that are not kept are left out of what is selected, or score nothing.
void keep_groups(const Router& router, Values scores, Values selection, Values groups) {
  const size_t length = scores.size() / groups.size();
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g] = group_score(router.group_score, selection.subspan(g * length, length));
  }
  order_numbers(groups);
  for (int i = 0; i < router.num_groups_kept; ++i) take_best(groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (std::isnan(groups[g])) continue;
    const bool out = router.group_score == GroupScore::kSumOfTwo;
    const Values selected = selection.subspan(g * length, length);
    std::fill(selected.begin(), selected.end(), out ? kOut : 0.0f);
    if (!out) std::fill_n(scores.subspan(g * length).begin(), length, 0.0f);
  }
}

// Weights of the chosen from their scores.
void weigh(const RouteArgs& args, const int32_t* experts, Values weights, double* powers) {
  const Router& router = args.router;
  if (router.score == RouterScore::kSoftmaxChosen) {
    softmax(weights, weights.data(), powers);
  }
  float sum = 0;
  for (const float weight : weights) sum += weight;
  for (size_t j = 0; j < weights.size(); ++j) {
    if (router.normalise) weights[j] /= sum + router.normalise_epsilon;
    weights[j] *= router.scale;
    if (args.expert_scale) weights[j] *= raw(args.expert_scale)[experts[j]];
  }
}

}  // namespace

void choose_experts(const RouteArgs& args, const float* logits, const Choice& choice,
                    const RouterScratch& scratch) {
  const auto count = static_cast<size_t>(choice.num_experts);
  const Values scores(scratch.scores, count), selection(scratch.selection, count);
  score(args.router.score, {logits, count}, scores, scratch.powers);
  for (size_t e = 0; e < count; ++e) {
    selection[e] = args.selection_bias ? scores[e] + raw(args.selection_bias)[e] : scores[e];
  }
  order_numbers(selection);
  const auto num_groups = static_cast<size_t>(args.router.num_groups);
  if (num_groups > 1) keep_groups(args.router, scores, selection, {scratch.groups, num_groups});
  const Values weights(choice.weights, static_cast<size_t>(choice.num_chosen));
  const bool mixes = args.router.score == RouterScore::kSparseMixer;
  for (size_t j = 0; j < weights.size(); ++j) {
    const float share = mixes ? share_of_largest(selection, args.router.jitter) : 0.0f;
    const size_t best = take_best(selection);
    choice.experts[j] = static_cast<int32_t>(best);
    weights[j] = mixes ? share : scores[best];
  }
  weigh(args, choice.experts, weights, scratch.powers);
}

}  // namespace headrace::cpu
