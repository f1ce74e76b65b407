// Weights with an expert axis, routing and mixtures of experts: against float64, one expert against
// the same weight packed alone, and a row alone against the same row in a batch, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/router.h"
#include "checkpoint/weight_rows.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

using Floats = std::vector<float>;
using Weights = std::vector<std::unique_ptr<TestWeight>>;

std::vector<WeightView> views_of(const Weights& weights) {
  std::vector<WeightView> views;
  for (const auto& weight : weights) views.push_back(weight->view);
  return views;
}

Weights random_experts(DType dtype, int64_t count, int64_t outputs, int64_t inputs, int seed) {
  Random random(seed);
  Weights weights;
  for (int64_t i = 0; i < count; ++i) {
    weights.push_back(random_weight(dtype, outputs, inputs, random));
  }
  return weights;
}

std::vector<double> values_of(const WeightView& weight) {
  Floats values(static_cast<size_t>(weight.num_outputs * weight.num_inputs));
  dequantise_rows(weight, 0, weight.num_outputs, values.data());
  return {values.begin(), values.end()};
}

// ---- The expert axis ----------------------------------------------------------------------------

Floats linear_of(Backend& backend, const PackedWeight& weight, const Floats& x, int64_t num_rows) {
  Floats out(static_cast<size_t>(num_rows * weight.num_outputs()));
  backend.linear(weight, on_device(x.data()), num_rows, {}, on_device(out.data()));
  return out;
}

constexpr DType kAxisTypes[] = {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4K};

TEST(ExpertAxis, EachExpertIsTheWeightThatItIsAlone) {
  constexpr int64_t kExperts = 3, kOutputs = 37, kInputs = 512, kRows = 5;
  Random random(7);
  const Floats x = random_floats(kRows * kInputs, random);
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const DType dtype : kAxisTypes) {
      SCOPED_TRACE(isa + " " + std::string(dtype_name(dtype)));
      const Weights weights = random_experts(dtype, kExperts, kOutputs, kInputs, 11);
      const auto views = views_of(weights);
      const PackForm form(WeightRole::kLinear, kExperts);
      const auto packed = backend->pack(views, form).value();
      EXPECT_EQ(packed->num_experts(), kExperts);
      EXPECT_EQ(packed->num_outputs(), kOutputs);
      EXPECT_EQ(packed->num_inputs(), kInputs);
      for (int64_t e = 0; e < kExperts; ++e) {
        const std::span<const WeightView> one(&views[static_cast<size_t>(e)], 1);
        const auto alone = backend->pack(one, WeightRole::kLinear).value();
        EXPECT_EQ(packed->layout(), alone->layout());
        EXPECT_EQ(&alone->expert(0), alone.get());
        EXPECT_TRUE(same_bits(linear_of(*backend, packed->expert(e), x, kRows),
                              linear_of(*backend, *alone, x, kRows)));
      }
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 4);
}

TEST(ExpertAxis, EveryExpertBeginsAtABoundaryInWhatThePlanSays) {
  const auto backend = make_backend("reference", 1);
  for (const DType dtype : kAxisTypes) {
    for (const int64_t outputs : {1, 16, 33}) {
      const Weights weights = random_experts(dtype, 4, outputs, 256, 3);
      const auto views = views_of(weights);
      const size_t alone = backend->packed_bytes({views.data(), 1}, WeightRole::kLinear);
      const size_t stride = (alone + 63) / 64 * 64;
      EXPECT_EQ(backend->packed_bytes(views, {WeightRole::kLinear, 4}), 3 * stride + alone);
      EXPECT_EQ(backend->packed_bytes({views.data(), 1}, {WeightRole::kLinear, 1}), alone);
    }
  }
}

TEST(ExpertAxis, AdoptedBytesAreTheSameExperts) {
  constexpr int64_t kExperts = 4, kWidth = 24, kInputs = 256;
  Random random(5);
  const Floats x = random_floats(3 * kInputs, random);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 3);
    // Gate and up of each expert.
    const Weights weights = random_experts(DType::kQ4K, 2 * kExperts, kWidth, kInputs, 9);
    const auto views = views_of(weights);
    const PackForm form(WeightRole::kGateUp, kExperts);
    const size_t num_bytes = backend->packed_bytes(views, form);
    DeviceMemory memory = backend->allocate(num_bytes, MemoryUse::kWeights).value();
    const auto packed = backend->pack_into(views, form, memory.data()).value();
    const auto adopted = backend->adopt(views, form, memory.data()).value();
    for (int64_t e = 0; e < kExperts; ++e) {
      Floats out[2] = {Floats(3 * kWidth), Floats(3 * kWidth)};
      for (const int which : {0, 1}) {
        const PackedWeight& weight = which == 0 ? *packed : *adopted;
        EXPECT_EQ(weight.num_outputs(), 2 * kWidth);
        backend->gated_linear(weight.expert(e), on_device(x.data()), 3, Activation::kSilu, {},
                              on_device(out[which].data()));
      }
      EXPECT_TRUE(same_bits(out[0], out[1])) << isa << ", expert " << e;
      EXPECT_NE(out[0], Floats(3 * kWidth));
    }
  }
}

TEST(ExpertAxisDeathTest, OpsTakeOneExpertAndIndicesAreChecked) {
  const auto backend = make_backend("reference", 1);
  const Weights weights = random_experts(DType::kF32, 2, 8, 16, 3);
  const auto packed = backend->pack(views_of(weights), {WeightRole::kLinear, 2}).value();
  const Floats x(16);
  Floats out(8);
  EXPECT_DEATH(backend->linear(*packed, on_device(x.data()), 1, {}, on_device(out.data())),
               "one of 2 experts");
  EXPECT_DEATH(packed->expert(2), "expert 2 of 2");
  EXPECT_DEATH(packed->expert(-1), "expert -1 of 2");
  EXPECT_DEATH((void)backend->packed_bytes(views_of(weights), {WeightRole::kLinear, 3}),
               "2 parts of 3 experts");
}

// ---- Routing ------------------------------------------------------------------------------------

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
  Floats weights;
  Routing routing;
};

// The router alone, on the host.
struct Rule {
  Router router;
  Floats bias = {}, expert_scale = {};
};

RouteArgs route_args(const Floats& logits, const Rule& rule) {
  RouteArgs args{.logits = on_device(logits.data()), .router = rule.router};
  if (!rule.bias.empty()) args.selection_bias = on_device(rule.bias.data());
  if (!rule.expert_scale.empty()) args.expert_scale = on_device(rule.expert_scale.data());
  return args;
}

void route(const Floats& logits, const Rule& rule, Routed* routed) {
  const auto num_experts = static_cast<size_t>(routed->routing.num_experts);
  const Routing& routing = routed->routing;
  Floats scores(num_experts), selection(num_experts), groups(num_experts);
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

std::vector<double> scores_of(std::span<const float> logits, RouterScore kind) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (kind == RouterScore::kSoftmaxChosen) return scores;
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score);
  for (double& score : scores) {
    score = kind == RouterScore::kSoftmax ? score / sum : score / (1 + score);
  }
  return scores;
}

// Indices by value, the lowest first among equals.
std::vector<size_t> descending(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  return order;
}

// What the groups leave of scores and of what is selected by.
void leave_groups(const Router& router, std::vector<double>* scores,
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

std::vector<Choice> choices_of(std::span<const float> logits, int64_t num_chosen,
                               const Rule& rule) {
  const Router& router = rule.router;
  std::vector<double> scores = scores_of(logits, router.score), selected = scores;
  for (size_t e = 0; e < rule.bias.size(); ++e) selected[e] += rule.bias[e];
  leave_groups(router, &scores, &selected);
  std::vector<Choice> chosen;
  double sum = 0;
  for (const size_t e : descending(selected)) {
    if (chosen.size() == static_cast<size_t>(num_chosen)) break;
    const bool late = router.score == RouterScore::kSoftmaxChosen;
    chosen.push_back({static_cast<int32_t>(e), late ? std::exp(scores[e]) : scores[e]});
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

// Slots hold every row once for each of its choices, by expert and then by row.
void expect_slots_in_order(const Routed& routed) {
  const Routing& routing = routed.routing;
  EXPECT_EQ(routed.first_slot.front(), 0);
  EXPECT_EQ(routed.first_slot.back(), routing.num_rows * routing.num_chosen);
  for (size_t e = 0; e + 1 < routed.first_slot.size(); ++e) {
    const auto first = routed.rows.begin() + routed.first_slot[e];
    const auto end = routed.rows.begin() + routed.first_slot[e + 1];
    EXPECT_TRUE(std::is_sorted(first, end)) << "expert " << e;
    EXPECT_EQ(std::adjacent_find(first, end), end) << "expert " << e;
  }
  for (size_t i = 0; i < routed.slots.size(); ++i) {
    const auto slot = static_cast<size_t>(routed.slots[i]);
    const auto expert = static_cast<size_t>(routed.experts[i]);
    EXPECT_EQ(routed.rows[slot], static_cast<int32_t>(i) / routing.num_chosen);
    EXPECT_GE(routed.slots[i], routed.first_slot[expert]);
    EXPECT_LT(routed.slots[i], routed.first_slot[expert + 1]);
  }
}

// Every form that a family has: families of softmax, DeepSeek 2 and 3, MiniMax, Granite, Gemma.
std::vector<Rule> rules_for(size_t num_experts, int num_groups, int num_kept, Random& random) {
  const Floats bias = random_floats(num_experts, random);
  Floats expert_scale = random_floats(num_experts, random);
  for (float& value : expert_scale) value = 1.5f + value / 8;
  std::vector<Rule> rules = {
      {{.score = RouterScore::kSoftmax}},
      {{.score = RouterScore::kSoftmax, .normalise = true}},
      {{.score = RouterScore::kSoftmax, .normalise = true, .scale = 2.5f}},
      {{.score = RouterScore::kSoftmax, .scale = 0.5f}},
      {{.score = RouterScore::kSigmoid, .normalise = true}, bias},
      {{.score = RouterScore::kSoftmaxChosen}},
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
                     two ? bias : Floats{}});
  }
  return rules;
}

TEST(Route, FollowsFloat64InEveryForm) {
  struct Case {
    int64_t rows, experts, chosen;
    int groups, kept;
  };
  constexpr Case kCases[] = {{1, 1, 1, 1, 1},    {1, 4, 2, 2, 1},     {5, 2, 2, 1, 1},
                             {33, 9, 3, 3, 2},   {9, 64, 8, 8, 4},    {7, 64, 6, 16, 3},
                             {40, 128, 8, 4, 1}, {3, 4096, 5, 64, 7}, {2, 6, 2, 6, 3}};
  Random random(21);
  int num_rows = 0;
  for (const Case& c : kCases) {
    const Floats logits = random_floats(static_cast<size_t>(c.rows * c.experts), random);
    const auto rules = rules_for(static_cast<size_t>(c.experts), c.groups, c.kept, random);
    for (size_t r = 0; r < rules.size(); ++r) {
      SCOPED_TRACE(fmt::format("{} of {} experts, rule {}", c.chosen, c.experts, r));
      Routed routed(c.rows, c.experts, c.chosen);
      route(logits, rules[r], &routed);
      for (int64_t row = 0; row < c.rows; ++row, ++num_rows) {
        const auto of_row = std::span(logits).subspan(static_cast<size_t>(row * c.experts),
                                                      static_cast<size_t>(c.experts));
        const auto expected = choices_of(of_row, c.chosen, rules[r]);
        for (size_t j = 0; j < expected.size(); ++j) {
          const size_t at = static_cast<size_t>(row * c.chosen) + j;
          EXPECT_EQ(routed.experts[at], expected[j].expert);
          EXPECT_NEAR(routed.weights[at], expected[j].weight, 2e-6 * std::abs(expected[j].weight));
        }
      }
    }
  }
  EXPECT_EQ(num_rows, 101 * 9);
}

TEST(Route, TiesGoToTheLowestExpert) {
  struct Case {
    Floats logits;
    std::vector<int32_t> experts;
  };
  const Case kCases[] = {
      {{1, 1, 1, 1}, {0, 1, 2}},
      {{0, 2, 1, 2}, {1, 3, 2}},
      {{3, -3, 3, 3}, {0, 2, 3}},
      {{-0.0f, 0.0f, -1, 0.0f}, {0, 1, 3}},
      {{-200, -200, 0, -200}, {2, 0, 1}},       // the rest underflow to equal scores
      {{INFINITY, 0, INFINITY, 1}, {0, 1, 2}},  // no numbers: still three of the four
      {{NAN, 0, 1, 2}, {0, 1, 2}},
      {{-INFINITY, -INFINITY, 5, -INFINITY}, {2, 0, 1}},
  };
  for (const Case& c : kCases) {
    Routed routed(1, 4, 3);
    route(c.logits, {}, &routed);
    EXPECT_EQ(routed.experts, c.experts) << fmt::format("{}", c.logits[0]);
  }
}

// The bias chooses, the weights are those of the scores alone.
TEST(Route, ABiasOnlySelects) {
  const Floats logits = {2, 1, 0, -1};
  const Rule rule{{.score = RouterScore::kSigmoid}, {0, 0, 5, 5}};
  Routed routed(1, 4, 2);
  route(logits, rule, &routed);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{2, 3}));
  EXPECT_FLOAT_EQ(routed.weights[0], 0.5f);
  EXPECT_FLOAT_EQ(routed.weights[1], 1 / (1 + std::exp(1.0f)));
}

// Of equal groups the first ones stay; a group that is left out can only be chosen where it scores.
TEST(Route, GroupsLimitTheChoice) {
  const Floats logits = {0, 3, 1, 1, 3, 0};  // groups of two: {0, 3}, {1, 1}, {3, 0}
  Rule rule{{.num_groups = 3, .num_groups_kept = 1, .group_score = GroupScore::kMaximum}};
  Routed two(1, 6, 3);
  route(logits, rule, &two);
  EXPECT_EQ(two.experts, (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(two.weights[2], 0.0f);  // out of the group, with nothing to say
  rule.router.group_score = GroupScore::kSumOfTwo;
  rule.router.score = RouterScore::kSigmoid;
  Routed three(1, 6, 3);
  route(logits, rule, &three);
  const std::vector<int32_t> first = {three.experts[0], three.experts[1]};
  EXPECT_EQ(first, (std::vector<int32_t>{2, 3}));  // 1 + 1 beats 0 + 3: as sigmoids 1.46 to 1.45
  rule.router.num_groups_kept = 2;
  Routed four(1, 6, 4);
  route(logits, rule, &four);
  EXPECT_EQ(four.experts, (std::vector<int32_t>{1, 2, 3, 0}));
}

// Each once and in range, whatever the logits and biases are.
TEST(Route, WhatIsNoNumberChoosesInRange) {
  const float values[] = {NAN, INFINITY, -INFINITY, 0.0f, 1e38f, -1e38f};
  Random random(77);
  for (int trial = 0; trial < 200; ++trial) {
    Floats logits(8), bias(8);
    for (float& value : logits) value = values[random() % 6];
    for (float& value : bias) value = values[random() % 6];
    auto rules = rules_for(8, 4, 2, random);
    for (Rule& rule : rules) {
      if (!rule.bias.empty()) rule.bias = bias;
      Routed routed(1, 8, 5);
      route(logits, rule, &routed);
      std::vector<int32_t> experts = routed.experts;
      std::sort(experts.begin(), experts.end());
      EXPECT_EQ(std::adjacent_find(experts.begin(), experts.end()), experts.end());
      EXPECT_GE(experts.front(), 0);
      EXPECT_LT(experts.back(), 8);
    }
  }
}

// ---- Mixtures -----------------------------------------------------------------------------------

struct Mixture {
  int64_t num_experts, num_chosen, hidden, width;
  Weights gate_up, down;
  std::unique_ptr<PackedWeight> packed_gate_up, packed_down;
  std::vector<std::vector<double>> gate_up_values, down_values;
  Rule rule{{.normalise = true}};

  Mixture(Backend& backend, DType dtype, int64_t experts, int64_t chosen)
      : num_experts(experts),
        num_chosen(chosen),
        hidden(256),
        width(256),
        gate_up(random_experts(dtype, 2 * experts, width, hidden, 31)),
        down(random_experts(dtype, experts, hidden, width, 32)) {
    packed_gate_up = backend.pack(views_of(gate_up), {WeightRole::kGateUp, experts}).value();
    packed_down = backend.pack(views_of(down), {WeightRole::kLinear, experts}).value();
    for (const auto& weight : gate_up) gate_up_values.push_back(values_of(weight->view));
    for (const auto& weight : down) down_values.push_back(values_of(weight->view));
  }
};

// What else a mixture may have; empty vectors are not there.
struct Extras {
  Floats gate_up_bias = {}, down_bias = {}, shared = {}, shared_gate = {};
  ClampedSwiglu clamp = {};
  Activation activation = Activation::kSilu;
  Norm norm = {};
};

DevicePtr<const float> device_or_null(const Floats& values) {
  return values.empty() ? DevicePtr<const float>{} : on_device(values.data());
}

// What the op writes for rows x, routed by logits. `residual` is the output itself.
Floats mixed(Backend& backend, const Mixture& mixture, const Floats& x, const Floats& logits,
             Epilogue epilogue = {}, const Floats& residual = {}, const Extras& extras = {}) {
  const auto hidden = static_cast<size_t>(mixture.hidden);
  const size_t num_rows = x.size() / hidden;
  const size_t num_slots = num_rows * static_cast<size_t>(mixture.num_chosen);
  Routed routed(static_cast<int64_t>(num_rows), mixture.num_experts, mixture.num_chosen);
  const auto padded =
      static_cast<size_t>(padded_expert_inputs(std::max(mixture.hidden, mixture.width)));
  GuardedFloats inputs(num_slots * padded), outputs(num_slots * padded), y(num_rows * hidden);
  GuardedFloats activations(num_slots * static_cast<size_t>(mixture.width)), out(y.values().size());
  GuardedFloats factors(num_rows), normed(num_rows * hidden);
  std::copy(residual.begin(), residual.end(), out.data());
  if (!residual.empty()) epilogue.residual = on_device(out.data());
  backend.experts({.gate_up = mixture.packed_gate_up.get(),
                   .down = mixture.packed_down.get(),
                   .input = {on_device(x.data()), extras.norm, on_device(normed.data())},
                   .route = route_args(logits, mixture.rule),
                   .routing = routed.routing,
                   .activation = extras.activation,
                   .clamp = extras.clamp,
                   .gate_up_bias = device_or_null(extras.gate_up_bias),
                   .down_bias = device_or_null(extras.down_bias),
                   .shared = device_or_null(extras.shared),
                   .shared_gate = device_or_null(extras.shared_gate),
                   .slot_inputs = on_device(inputs.data()),
                   .slot_activations = on_device(activations.data()),
                   .slot_outputs = on_device(outputs.data()),
                   .mixed = on_device(y.data()),
                   .shared_factors = on_device(factors.data()),
                   .epilogue = epilogue,
                   .out = on_device(out.data())});
  if (num_rows > 1) expect_slots_in_order(routed);
  for (const GuardedFloats* room : {&inputs, &outputs, &y, &activations, &out, &factors, &normed}) {
    EXPECT_TRUE(room->intact());
  }
  return {out.values().begin(), out.values().end()};
}

double dot(const std::vector<double>& weight, size_t row, const std::vector<double>& input) {
  const size_t inputs = input.size();
  double sum = 0;
  for (size_t i = 0; i < inputs; ++i) sum += weight[row * inputs + i] * input[i];
  return sum;
}

double gated(const Extras& extras, double g, double u) {
  if (extras.clamp.limit > 0) {
    g = std::min(g, double{extras.clamp.limit});
    u = std::clamp(u, -double{extras.clamp.limit}, double{extras.clamp.limit});
    return (u + 1) * g / (1 + std::exp(-double{extras.clamp.alpha} * g));
  }
  if (extras.activation == Activation::kSilu) return u * g / (1 + std::exp(-g));
  return u * 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

double bias_at(const Floats& biases, size_t index) { return biases.empty() ? 0 : biases[index]; }

// y of one row in float64.
std::vector<double> exact_row(const Mixture& mixture, std::span<const float> row,
                              std::span<const float> logits, const Extras& extras = {},
                              std::span<const float> shared = {}) {
  const std::vector<double> x(row.begin(), row.end());
  const auto width = static_cast<size_t>(mixture.width);
  std::vector<double> y(x.size());
  for (const Choice& choice : choices_of(logits, mixture.num_chosen, mixture.rule)) {
    const auto e = static_cast<size_t>(choice.expert);
    const auto& gate = mixture.gate_up_values[2 * e];
    const auto& up = mixture.gate_up_values[2 * e + 1];
    const auto& down = mixture.down_values[e];
    std::vector<double> inner(width);
    for (size_t i = 0; i < width; ++i) {
      const size_t at = 2 * e * width + i;
      inner[i] = gated(extras, dot(gate, i, x) + bias_at(extras.gate_up_bias, at),
                       dot(up, i, x) + bias_at(extras.gate_up_bias, at + width));
    }
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] += choice.weight * (dot(down, i, inner) + bias_at(extras.down_bias, e * y.size() + i));
    }
  }
  double factor = 1;
  if (!extras.shared_gate.empty()) {
    factor = 1 / (1 + std::exp(-dot({extras.shared_gate.begin(), extras.shared_gate.end()}, 0, x)));
  }
  for (size_t i = 0; i < shared.size(); ++i) y[i] += factor * double{shared[i]};
  return y;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

TEST(Experts, FollowFloat64OnEveryUnit) {
  constexpr size_t kRows = 3, kExperts = 4;
  Random random(41);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const Mixture mixture(*backend, DType::kF32, kExperts, 2);
    const auto hidden = static_cast<size_t>(mixture.hidden);
    const Floats x = random_floats(kRows * hidden, random);
    const Floats logits = random_floats(kRows * kExperts, random);
    const Floats found = mixed(*backend, mixture, x, logits);
    for (size_t row = 0; row < kRows; ++row) {
      const auto exact = exact_row(mixture, std::span(x).subspan(row * hidden, hidden),
                                   std::span(logits).subspan(row * kExperts, kExperts));
      for (size_t i = 0; i < hidden; ++i) {
        ASSERT_NEAR(found[row * hidden + i], exact[i], 2e-5 * largest(exact)) << isa;
      }
    }
  }
}

// With every router, and with all that a family may add.
TEST(Experts, FollowFloat64InEveryForm) {
  constexpr size_t kRows = 5, kExperts = 6;
  Random random(46);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    Mixture mixture(*backend, DType::kF32, kExperts, 3);
    const auto hidden = static_cast<size_t>(mixture.hidden);
    const auto width = static_cast<size_t>(mixture.width);
    const Floats x = random_floats(kRows * hidden, random);
    const Floats logits = random_floats(kRows * kExperts, random);
    Extras biased{.gate_up_bias = random_floats(kExperts * 2 * width, random),
                  .down_bias = random_floats(kExperts * hidden, random)};
    Extras clamped = biased;
    clamped.clamp = {1.702f, 7.0f};
    Extras shared{.shared = random_floats(kRows * hidden, random)};
    for (float& value : shared.shared) value *= 50;
    Extras gated = shared;
    gated.shared_gate = random_floats(hidden, random);
    for (float& value : gated.shared_gate) value /= 16;
    Extras gelu{.activation = Activation::kGeluTanh};
    const auto rules = rules_for(kExperts, 3, 2, random);
    for (size_t r = 0; r < rules.size(); ++r) {
      mixture.rule = rules[r];
      for (const Extras* extras : {&biased, &clamped, &shared, &gated, &gelu}) {
        const Floats found = mixed(*backend, mixture, x, logits, {}, {}, *extras);
        for (size_t row = 0; row < kRows; ++row) {
          std::span<const float> added = extras->shared;
          if (!added.empty()) added = added.subspan(row * hidden, hidden);
          const auto exact =
              exact_row(mixture, std::span(x).subspan(row * hidden, hidden),
                        std::span(logits).subspan(row * kExperts, kExperts), *extras, added);
          for (size_t i = 0; i < hidden; ++i) {
            ASSERT_NEAR(found[row * hidden + i], exact[i], 3e-5 * largest(exact))
                << isa << ", rule " << r;
          }
        }
      }
    }
  }
}

// The norm of the input is that of a norm before.
TEST(Experts, TheInputIsNormed) {
  Random random(47);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const Mixture mixture(*backend, DType::kQ4K, 4, 2);
    const auto hidden = static_cast<size_t>(mixture.hidden);
    const Floats weight = random_floats(hidden, random);
    for (const int64_t num_rows : {1, 6}) {
      const Floats x = random_floats(static_cast<size_t>(num_rows) * hidden, random);
      const Floats logits = random_floats(static_cast<size_t>(num_rows) * 4, random);
      const Norm norm{NormKind::kRms, on_device(weight.data()), 1e-5f};
      Floats normed(x.size());
      backend->norm({.kind = norm.kind,
                     .x = on_device(x.data()),
                     .weight = norm.weight,
                     .out = on_device(normed.data()),
                     .num_rows = num_rows,
                     .width = mixture.hidden,
                     .eps = norm.eps});
      const Floats gate = random_floats(hidden, random);
      const Floats shared = random_floats(x.size(), random);
      EXPECT_TRUE(same_bits(mixed(*backend, mixture, x, logits, {}, {},
                                  {.shared = shared, .shared_gate = gate, .norm = norm}),
                            mixed(*backend, mixture, normed, logits, {}, {},
                                  {.shared = shared, .shared_gate = gate})))
          << isa;
    }
  }
}

// Every row's bits, whatever else is in the batch and however many threads work.
TEST(Experts, ARowIsTheSameAloneInABatchAndOnAnyTeam) {
  constexpr size_t kRows = 40, kExperts = 5;
  Random random(42);
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    for (const DType dtype : {DType::kF32, DType::kQ4K}) {
      SCOPED_TRACE(isa + " " + std::string(dtype_name(dtype)));
      const auto first = make_backend(isa, 1);
      ASSERT_TRUE(first->reserve(kRows).ok());
      const Mixture mixture(*first, dtype, kExperts, 3);
      const auto hidden = static_cast<size_t>(mixture.hidden);
      const Floats x = random_floats(kRows * hidden, random);
      const Floats logits = random_floats(kRows * kExperts, random);
      const Floats all = mixed(*first, mixture, x, logits);
      const auto part = [&](const Floats& values, size_t from, size_t count, size_t width) {
        return Floats(values.begin() + static_cast<ptrdiff_t>(from * width),
                      values.begin() + static_cast<ptrdiff_t>((from + count) * width));
      };
      for (const auto& [from, count] :
           {std::pair<size_t, size_t>{0, 1}, {39, 1}, {7, 2}, {5, 27}}) {
        EXPECT_TRUE(same_bits(mixed(*first, mixture, part(x, from, count, hidden),
                                    part(logits, from, count, kExperts)),
                              part(all, from, count, hidden)))
            << from << " + " << count;
      }
      for (const int num_threads : {3}) {
        const auto other = make_backend(isa, num_threads);
        ASSERT_TRUE(other->reserve(kRows).ok());
        const Mixture same(*other, dtype, kExperts, 3);
        EXPECT_TRUE(same_bits(mixed(*other, same, x, logits), all)) << num_threads << " threads";
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 2);
}

// All rows to one expert, and experts that nobody asks for.
TEST(Experts, UnevenRoutingIsTheSameSum) {
  const auto backend = make_backend("reference", 3);
  const Mixture mixture(*backend, DType::kF32, 4, 1);
  Random random(43);
  const auto hidden = static_cast<size_t>(mixture.hidden);
  const Floats x = random_floats(20 * hidden, random);
  Floats logits(20 * 4);
  for (size_t row = 0; row < 20; ++row) logits[row * 4 + 2] = 9.0f;
  const Floats found = mixed(*backend, mixture, x, logits);
  Floats inner(20 * static_cast<size_t>(mixture.width)), expected(found.size());
  backend->gated_linear(mixture.packed_gate_up->expert(2), on_device(x.data()), 20,
                        Activation::kSilu, {}, on_device(inner.data()));
  backend->linear(mixture.packed_down->expert(2), on_device(inner.data()), 20, {},
                  on_device(expected.data()));
  EXPECT_TRUE(same_bits(found, expected));  // its weight is 1
}

TEST(Experts, NoRowsAreNoWork) {
  const auto backend = make_backend("reference", 2);
  const Mixture mixture(*backend, DType::kF32, 3, 2);
  EXPECT_TRUE(mixed(*backend, mixture, {}, {}).empty());
}

// The epilogue is that of a linear layer whose product is y.
TEST(Experts, TheEpilogueNormsScalesAndAdds) {
  constexpr size_t kRows = 9;
  Random random(44);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const Mixture mixture(*backend, DType::kF32, 4, 2);
    const auto hidden = static_cast<size_t>(mixture.hidden);
    const Floats x = random_floats(kRows * hidden, random);
    const Floats logits = random_floats(kRows * 4, random);
    const Floats residual = random_floats(x.size(), random);
    const Floats weight = random_floats(hidden, random);
    const Floats y = mixed(*backend, mixture, x, logits);
    const Floats added = mixed(*backend, mixture, x, logits, {.scale = 0.25f}, residual);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(added[i], residual[i] + 0.25f * y[i]) << isa;
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      const Norm norm{kind, on_device(weight.data()), 1e-5f};
      Floats expected = residual;
      backend->norm({.kind = kind,
                     .x = on_device(y.data()),
                     .weight = on_device(weight.data()),
                     .residual = on_device(expected.data()),
                     .out = on_device(expected.data()),
                     .num_rows = kRows,
                     .width = mixture.hidden,
                     .eps = 1e-5f,
                     .scale = 0.5f});
      EXPECT_TRUE(same_bits(
          mixed(*backend, mixture, x, logits, {.scale = 0.5f, .post_norm = norm}, residual),
          expected))
          << isa;
    }
  }
}

// The rest of the sum is in other processes: added to y before the epilogue.
TEST(Experts, AReductionComesBeforeTheEpilogue) {
  class Doubling : public Reduction {
   public:
    void reduce(DevicePtr<float> products, int64_t num_rows, int64_t num_outputs) override {
      for (int64_t i = 0; i < num_rows * num_outputs; ++i) raw(products)[i] *= 2;
    }
  };
  const auto backend = make_backend("reference", 2);
  const Mixture mixture(*backend, DType::kF32, 4, 2);
  Random random(45);
  const Floats x = random_floats(5 * static_cast<size_t>(mixture.hidden), random);
  const Floats logits = random_floats(5 * 4, random);
  const Floats y = mixed(*backend, mixture, x, logits);
  Doubling doubling;
  const Floats found = mixed(*backend, mixture, x, logits, {.scale = 0.5f, .reduction = &doubling});
  EXPECT_TRUE(same_bits(found, y));
}

TEST(ExpertsDeathTest, WeightsMustFitTheRouting) {
  const auto backend = make_backend("reference", 1);
  Mixture mixture(*backend, DType::kF32, 4, 2);
  mixture.num_experts = 3;
  const Floats x(static_cast<size_t>(mixture.hidden)), logits(3);
  EXPECT_DEATH(mixed(*backend, mixture, x, logits), "for 3 experts");
}

TEST(ExpertsDeathTest, ShapesAreChecked) {
  const auto backend = make_backend("reference", 1);
  Mixture mixture(*backend, DType::kF32, 4, 2);
  const Floats x(static_cast<size_t>(mixture.hidden)), logits(4);
  mixture.rule.router.num_groups = 3;
  EXPECT_DEATH(mixed(*backend, mixture, x, logits), "1 of 3 groups of 4 experts");
  mixture.rule.router.num_groups = 2;
  mixture.rule.router.num_groups_kept = 3;
  EXPECT_DEATH(mixed(*backend, mixture, x, logits), "3 of 2 groups");
  mixture.rule.router = {};
  for (const int64_t chosen : {0, 5}) {
    mixture.num_chosen = chosen;
    EXPECT_DEATH(mixed(*backend, mixture, x, logits), "of 4 experts");
  }
}

}  // namespace
}  // namespace headrace
