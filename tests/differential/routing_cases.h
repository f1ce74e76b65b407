// Routers and what they must choose, in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/router.h"
#include "kernel_cases.h"

namespace headrace {

// A routing with its arrays.
struct Routed {
  Routed(int64_t num_rows, int64_t num_experts, int64_t num_chosen)
      : experts(static_cast<size_t>(num_rows * num_chosen), -1),
        slots(experts.size(), -1),
        rows(experts.size(), -1),
        first_slot(static_cast<size_t>(num_experts + 1), -1),
        weights(experts.size(), NAN) {
    routing = {.num_rows = num_rows,
               .num_experts = num_experts,
               .num_chosen = num_chosen,
               .experts = on_device(experts.data()),
               .weights = on_device(weights.data()),
               .slots = on_device(slots.data()),
               .rows = on_device(rows.data()),
               .first_slot = on_device(first_slot.data())};
  }
  Routed(const Routed&) = delete;
  Routed& operator=(const Routed&) = delete;

  std::vector<int32_t> experts, slots, rows, first_slot;
  std::vector<float> weights;
  Routing routing;
};

// The router alone, on the host.
struct Rule {
  Router router;
  std::vector<float> bias = {}, expert_scale = {};
};

inline RouteArgs route_args(const std::vector<float>& logits, const Rule& rule) {
  RouteArgs args{.logits = on_device(logits.data()), .router = rule.router};
  if (!rule.bias.empty()) args.selection_bias = on_device(rule.bias.data());
  if (!rule.expert_scale.empty()) args.expert_scale = on_device(rule.expert_scale.data());
  return args;
}

inline void route(const std::vector<float>& logits, const Rule& rule, Routed* routed) {
  const auto num_experts = static_cast<size_t>(routed->routing.num_experts);
  const Routing& routing = routed->routing;
  std::vector<float> scores(num_experts), selection(num_experts), groups(num_experts);
  std::vector<double> powers(num_experts);
  for (int64_t row = 0; row < routing.num_rows; ++row) {
    cpu::choose_experts(
        route_args(logits, rule), logits.data() + row * routing.num_experts,
        {routing.num_experts, routing.num_chosen, raw(routing.experts) + row * routing.num_chosen,
         raw(routing.weights) + row * routing.num_chosen},
        {scores.data(), selection.data(), groups.data(), powers.data()});
  }
}

struct Choice {
  int32_t expert;
  double weight;
};

inline std::vector<double> scores_of(std::span<const float> logits, RouterScore kind) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (kind == RouterScore::kSoftmaxChosen || kind == RouterScore::kSparseMixer) return scores;
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score);
  for (double& score : scores) {
    score = kind == RouterScore::kSoftmax ? score / sum : score / (1 + score);
  }
  return scores;
}

// Indices by value, the lowest first among equals.
inline std::vector<size_t> descending(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  return order;
}

// What the groups leave of scores and of what is selected by.
inline void leave_groups(const Router& router, std::vector<double>* scores,
                         std::vector<double>* selected) {
  const auto num_groups = static_cast<size_t>(router.num_groups);
  const size_t length = scores->size() / num_groups;
  const bool two = router.group_score == GroupScore::kSumOfTwo;
  std::vector<double> groups;
  for (size_t g = 0; g < num_groups; ++g) {
    const auto first = selected->begin() + static_cast<ptrdiff_t>(g * length);
    std::vector<double> of_group(first, first + static_cast<ptrdiff_t>(length));
    std::sort(of_group.rbegin(), of_group.rend());
    groups.push_back(of_group[0] + (two && length > 1 ? of_group[1] : 0));
  }
  const std::vector<size_t> order = descending(groups);
  for (size_t i = static_cast<size_t>(router.num_groups_kept); i < num_groups; ++i) {
    for (size_t e = order[i] * length; e < (order[i] + 1) * length; ++e) {
      (*selected)[e] = two ? -INFINITY : 0;
      if (!two) (*scores)[e] = 0;
    }
  }
}

// Of kSparseMixer: the share that the expert order[first] has among those from it on.
inline double share_from(const std::vector<double>& scores, const std::vector<size_t>& order,
                         size_t first, double jitter) {
  const double top = scores[order[first]];
  double sum = 0;
  for (size_t i = first; i < order.size(); ++i) {
    const double score = scores[order[i]];
    const double distance = (top - score) / std::max(std::fabs(score), top);
    if (!(distance > 2 * jitter)) sum += std::exp(score - top);
  }
  return 1 / sum;
}

inline std::vector<Choice> choices_of(std::span<const float> logits, int64_t num_chosen,
                                      const Rule& rule) {
  const Router& router = rule.router;
  std::vector<double> scores = scores_of(logits, router.score), selected = scores;
  for (size_t e = 0; e < rule.bias.size(); ++e) selected[e] += rule.bias[e];
  leave_groups(router, &scores, &selected);
  std::vector<Choice> chosen;
  double sum = 0;
  const std::vector<size_t> order = descending(selected);
  for (size_t i = 0; i < static_cast<size_t>(num_chosen); ++i) {
    const double score = scores[order[i]];
    double weight = router.score == RouterScore::kSoftmaxChosen ? std::exp(score) : score;
    if (router.score == RouterScore::kSparseMixer) {
      weight = share_from(scores, order, i, double{router.jitter});
    }
    chosen.push_back({static_cast<int32_t>(order[i]), weight});
    sum += chosen.back().weight;
  }
  const bool divides = router.normalise || router.score == RouterScore::kSoftmaxChosen;
  for (Choice& choice : chosen) {
    if (divides) choice.weight /= sum + double{router.normalise_epsilon};
    choice.weight *= double{router.scale};
    if (rule.expert_scale.empty()) continue;
    choice.weight *= double{rule.expert_scale[static_cast<size_t>(choice.expert)]};
  }
  return chosen;
}

// Every form that a family has: families of softmax, DeepSeek 2 and 3, MiniMax, Granite, Gemma.
inline std::vector<Rule> rules_for(size_t num_experts, int num_groups, int num_kept,
                                   Random& random) {
  const std::vector<float> bias = random_floats(num_experts, random);
  std::vector<float> expert_scale = random_floats(num_experts, random);
  for (float& value : expert_scale) value = 1.5f + value / 8;
  std::vector<Rule> rules = {
      {{.score = RouterScore::kSoftmax}},
      {{.score = RouterScore::kSoftmax, .normalise = true}},
      {{.score = RouterScore::kSoftmax, .normalise = true, .scale = 2.5f}},
      {{.score = RouterScore::kSoftmax, .scale = 0.5f}},
      {{.score = RouterScore::kSigmoid, .normalise = true}, bias},
      {{.score = RouterScore::kSoftmaxChosen}},
      {{.score = RouterScore::kSparseMixer, .jitter = 0.25f}},
      {{.score = RouterScore::kSoftmax, .normalise = true}, {}, expert_scale},
  };
  for (const GroupScore kind : {GroupScore::kSumOfTwo, GroupScore::kMaximum}) {
    const bool two = kind == GroupScore::kSumOfTwo;
    rules.push_back({{.score = two ? RouterScore::kSigmoid : RouterScore::kSoftmax,
                      .num_groups = num_groups,
                      .num_groups_kept = num_kept,
                      .group_score = kind,
                      .normalise = two,
                      .normalise_epsilon = two ? 1e-20f : 0.0f,
                      .scale = 16.0f},
                     two ? bias : std::vector<float>{}});
  }
  return rules;
}

}  // namespace headrace
