// Weights with an expert axis, routing and mixtures of experts: against float64, one expert against
// the same weight packed alone, and a row alone against the same row in a batch, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/weight_rows.h"
#include "group_cases.h"
#include "routing_cases.h"

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

// ---- Mixtures -----------------------------------------------------------------------------------

// What else a mixture may have; empty vectors are not there.
struct Extras {
  Floats gate_up_bias = {}, down_bias = {}, shared = {}, shared_gate = {};
  ClampedSwiglu clamp = {};
  Activation activation = Activation::kSilu;
  Norm norm = {};
  DevicePtr<uint64_t> counts = {};
};

struct Mixture {
  int64_t num_experts, num_chosen, hidden, width;
  Weights gate_up, down;
  std::unique_ptr<PackedWeight> packed_gate_up, packed_down;
  const PackedWeight *given_gate_up = nullptr, *given_down = nullptr;  // instead of these
  std::vector<std::vector<double>> gate_up_values, down_values;
  Rule rule{{.normalise = true}};
  Extras extras = {};

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

DevicePtr<const float> device_or_null(const Floats& values) {
  return values.empty() ? DevicePtr<const float>{} : on_device(values.data());
}

// What the op writes for rows x, routed by logits. `residual` is the output itself.
Floats mixed(Backend& backend, const Mixture& mixture, const Floats& x, const Floats& logits,
             Epilogue epilogue = {}, const Floats& residual = {}) {
  const Extras& extras = mixture.extras;
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
  const PackedWeight* gate_up = mixture.given_gate_up;
  const PackedWeight* down = mixture.given_down;
  backend.experts({.gate_up = gate_up != nullptr ? gate_up : mixture.packed_gate_up.get(),
                   .down = down != nullptr ? down : mixture.packed_down.get(),
                   .input = {on_device(x.data()), extras.norm, on_device(normed.data())},
                   .route = route_args(logits, mixture.rule),
                   .routing = routed.routing,
                   .activation = extras.activation,
                   .clamp = extras.clamp,
                   .gate_up_bias = device_or_null(extras.gate_up_bias),
                   .down_bias = device_or_null(extras.down_bias),
                   .shared = device_or_null(extras.shared),
                   .shared_gate = device_or_null(extras.shared_gate),
                   .counts = extras.counts,
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
                              std::span<const float> logits, std::span<const float> shared = {}) {
  const Extras& extras = mixture.extras;
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
        mixture.extras = *extras;
        const Floats found = mixed(*backend, mixture, x, logits);
        for (size_t row = 0; row < kRows; ++row) {
          std::span<const float> added = extras->shared;
          if (!added.empty()) added = added.subspan(row * hidden, hidden);
          const auto exact = exact_row(mixture, std::span(x).subspan(row * hidden, hidden),
                                       std::span(logits).subspan(row * kExperts, kExperts), added);
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
    Mixture mixture(*backend, DType::kQ4K, 4, 2);
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
      mixture.extras.shared_gate = random_floats(hidden, random);
      mixture.extras.shared = random_floats(x.size(), random);
      const Floats expected = mixed(*backend, mixture, normed, logits);
      mixture.extras.norm = norm;
      EXPECT_TRUE(same_bits(mixed(*backend, mixture, x, logits), expected)) << isa;
      mixture.extras.norm = {};
    }
  }
}

// The rows of each expert, added up over calls; nobody is brought together for it.
TEST(Experts, RowsAreCounted) {
  const auto backend = make_backend("reference", 2);
  Mixture mixture(*backend, DType::kF32, 5, 2);
  Random random(48);
  std::vector<uint64_t> counts(5), expected(5);
  mixture.extras.counts = on_device(counts.data());
  for (const size_t num_rows : {1, 7, 1, 20}) {
    const Floats x = random_floats(num_rows * static_cast<size_t>(mixture.hidden), random);
    const Floats logits = random_floats(num_rows * 5, random);
    const int64_t joins = backend->num_joins();
    (void)mixed(*backend, mixture, x, logits);
    EXPECT_EQ(backend->num_joins(), joins + 1);
    for (size_t row = 0; row < num_rows; ++row) {
      for (const Choice& choice :
           choices_of(std::span(logits).subspan(row * 5, 5), 2, mixture.rule)) {
        ++expected[static_cast<size_t>(choice.expert)];
      }
    }
    EXPECT_EQ(counts, expected) << num_rows << " rows";
  }
}

// Every row's bits, whatever else is in the batch and however many threads work.
TEST(Experts, ARowIsTheSameAloneInABatchAndOnAnyTeam) {
  constexpr size_t kRows = 40, kExperts = 5;
  Random random(42);
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4K, DType::kMXFP4}) {
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

// A weight whose experts differ: inputs in an order of their own, gate and up in two orders (so one
// of them is of floats), none, and 8-bit floats.
struct MixedExperts {
  static constexpr int64_t kExperts = 4, kWidth = 256, kHidden = 512;
  std::vector<std::unique_ptr<GroupWeight>> parts;
  std::unique_ptr<PackedWeight> gate_up, down;

  explicit MixedExperts(Backend& backend) {
    Random random(61);
    std::vector<WeightView> views;
    const auto add = [&](std::string_view name, int64_t outputs, int64_t inputs) {
      const auto cases = group_cases();
      const auto found = std::find_if(cases.begin(), cases.end(),
                                      [&](const GroupCase& each) { return each.name == name; });
      parts.push_back(group_weight(*found, outputs, inputs, random));
      views.push_back(parts.back()->view);
    };
    add("gptq4_act_order", kWidth, kHidden);
    views.push_back(views[0]);
    for (const char* name :
         {"gptq4_act_order", "gptq4_act_order", "gptq8_g128", "gptq8_g128", "fp8_row", "fp8_row"}) {
      add(name, kWidth, kHidden);
    }
    gate_up = backend.pack(views, {WeightRole::kGateUp, kExperts}).value();
    views.clear();
    for (const char* name : {"fp8_row", "gptq4_act_order", "gptq4_act_order", "nvfp4"}) {
      add(name, kHidden, kWidth);
    }
    down = backend.pack(views, {WeightRole::kLinear, kExperts}).value();
  }

  // The layers of each expert that a row is routed to, summed in the order of its choices.
  Floats expected_row(Backend& backend, std::span<const float> x, const Routed& routed,
                      size_t row) const {
    Floats y(kHidden), inner(kWidth), part(kHidden);
    for (size_t j = 0; j < 2; ++j) {
      const int32_t expert = routed.experts[2 * row + j];
      backend.gated_linear(gate_up->expert(expert), on_device(x.data()), 1, Activation::kSilu, {},
                           on_device(inner.data()));
      backend.linear(down->expert(expert), on_device(inner.data()), 1, {}, on_device(part.data()));
      for (size_t i = 0; i < y.size(); ++i) y[i] += routed.weights[2 * row + j] * part[i];
    }
    return y;
  }
};

TEST(Experts, ExpertsOfDifferentLayoutsAndOrdersAreTheirOwnLayers) {
  constexpr size_t kRows = 9, kHidden = MixedExperts::kHidden;
  Random random(62);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const MixedExperts weights(*backend);
    Mixture mixture(*backend, DType::kF32, MixedExperts::kExperts, 2);
    mixture.hidden = MixedExperts::kHidden;
    mixture.width = MixedExperts::kWidth;
    mixture.given_gate_up = weights.gate_up.get();
    mixture.given_down = weights.down.get();
    const Floats x = random_floats(kRows * kHidden, random);
    const Floats logits = random_floats(kRows * 4, random);
    Routed routed(kRows, 4, 2);
    route(logits, mixture.rule, &routed);
    const Floats all = mixed(*backend, mixture, x, logits);
    for (size_t row = 0; row < kRows; ++row) {
      const auto of_row = std::span(x).subspan(row * kHidden, kHidden);
      const Floats expected = weights.expected_row(*backend, of_row, routed, row);
      EXPECT_TRUE(same_bits(std::span(all).subspan(row * kHidden, kHidden), expected))
          << isa << ", row " << row;
      const Floats alone(of_row.begin(), of_row.end());
      const Floats choice(logits.begin() + static_cast<ptrdiff_t>(4 * row),
                          logits.begin() + static_cast<ptrdiff_t>(4 * row + 4));
      EXPECT_TRUE(same_bits(mixed(*backend, mixture, alone, choice), expected))
          << isa << ", row " << row << " alone";
    }
  }
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
