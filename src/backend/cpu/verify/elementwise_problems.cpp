// finish, gate, norm: rows of floats.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

struct Size {
  int64_t rows, width;
};
// Around the 16 lanes, 0, 1, primes; the last two are rows of real models.
constexpr Size kSizes[] = {{0, 5},  {1, 1},   {3, 2},  {2, 7},   {5, 15},
                           {4, 16}, {3, 17},  {2, 31}, {1, 32},  {3, 33},
                           {2, 67}, {1, 259}, {7, 48}, {2, 576}, {1, 4864}};
constexpr Size kStartSizes[] = {{3, 37}};

constexpr Values kStartValues[] = {Values::kRandom};
constexpr Values kQuickValues[] = {Values::kRandom, Values::kSmall, Values::kMixed, Values::kWhole};
constexpr Values kFullValues[] = {
    Values::kRandom, Values::kOneHot,   Values::kRamp,  Values::kAlternating, Values::kLarge,
    Values::kSmall,  Values::kDenormal, Values::kMixed, Values::kZeroOne,     Values::kWhole};

std::span<const Size> sizes_of(Depth depth) {
  if (depth == Depth::kStart) return kStartSizes;
  return kSizes;
}

std::span<const Values> values_of(Depth depth) {
  if (depth == Depth::kStart) return kStartValues;
  if (depth == Depth::kQuick) return kQuickValues;
  return kFullValues;
}

std::string size_name(const Size& size, Values values) {
  return fmt::format("[{}, {}] {}", size.rows, size.width, values_name(values));
}

// Calls fn(first, count) over rows whole, or in parts.
template <typename Fn>
void for_rows(int64_t num_rows, bool in_parts, const Fn& fn) {
  if (!in_parts) return fn(int64_t{0}, num_rows);
  for (int64_t m = 0; m < num_rows; m += 2) fn(m, std::min<int64_t>(2, num_rows - m));
}

// ---- activations ----

struct ActivationRow {
  GateKind kind;
  std::string_view name;
};
constexpr ActivationRow kActivations[] = {{GateKind::kSilu, "silu"},
                                          {GateKind::kGeluTanh, "gelu tanh"},
                                          {GateKind::kGelu, "gelu"},
                                          {GateKind::kRelu, "relu"},
                                          {GateKind::kReluSquared, "relu squared"},
                                          {GateKind::kSigmoid, "sigmoid"},
                                          {GateKind::kXielu, "xielu"},
                                          {GateKind::kClampedSwiglu, "clamped swiglu"}};

constexpr XieluCurve kXielu = {.positive = 0.75f, .negative = 1.25f, .beta = 0.5f, .eps = -1e-6f};

std::string_view activation_name(GateKind kind) {
  return kActivations[static_cast<size_t>(kind)].name;
}

// f(x), where x is a sum with a rounding error of `x_error`.
Expected activated(GateKind kind, double x, double x_error) {
  const double positive = std::max(x, 0.0);
  switch (kind) {
    case GateKind::kSilu: {
      const double value = x / (1 + std::exp(-x));
      // exp is clamped at exp(88.3): far below, the quotient is x / 2e38 instead of 0.
      return {value, 6e-7 * std::fabs(value) + 5e-39 * std::fabs(x) + 1e-38 + 1.2 * x_error};
    }
    case GateKind::kGeluTanh:
      // Below 0, 1 + tanh cancels: the error of tanh stays.
      return {0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
              1e-6 * std::fabs(x) + kTiny + 1.2 * x_error};
    case GateKind::kGelu:
      return {0.5 * x * std::erfc(-x * 0.7071067811865476),
              4e-7 * std::fabs(x) + kTiny + 1.2 * x_error};
    case GateKind::kRelu:
      return {positive, x_error};
    case GateKind::kReluSquared:
      return {positive * positive,
              (2 * positive + x_error) * x_error + kRound * positive * positive + kTiny};
    case GateKind::kSigmoid: {
      const double value = 1 / (1 + std::exp(-x));
      return {value, 6e-7 * value + 1e-38 + 1.2 * x_error};
    }
    case GateKind::kXielu: {
      const bool above = x > 0;
      const double below = std::expm1(std::min(x, double{kXielu.eps})) - x;
      const double value =
          (above ? kXielu.positive * x * x : kXielu.negative * below) + double{kXielu.beta} * x;
      const double slope =
          (above ? 2 * kXielu.positive * x : double{kXielu.negative}) + kXielu.beta;
      // Near 0 the power cancels against 1: exp's error stays.
      const double of_exp = above ? 0 : 4e-7 * kXielu.negative;
      return {value, of_exp + 4 * kRound * (std::fabs(value) + slope * std::fabs(x)) +
                         slope * x_error + kTiny};
    }
    case GateKind::kClampedSwiglu:
      break;  // not of one operand
  }
  return {};
}

// ---- finish ----

struct FinishKind {
  bool bias, residual, in_place;
  float scale, softcap;
};
constexpr FinishKind kFinishKinds[] = {{false, false, false, 1.0f, 0.0f},
                                       {true, true, false, 0.5f, 0.0f},
                                       {true, true, true, 1.0f, 0.0f},
                                       {true, false, false, 2.0f, 30.0f},
                                       {false, true, true, 0.25f, 3.0f}};

Expected finished(const FinishKind& kind, double sum, double bias, double residual, bool whole) {
  double value = kind.scale * (sum + bias) + residual;
  double error =
      kRound * (4 * kind.scale * (std::fabs(sum) + std::fabs(bias)) + 2 * std::fabs(residual)) +
      2 * kTiny;
  if (kind.softcap > 0) {
    value = kind.softcap * std::tanh(value / kind.softcap);
    // tanh's slope is at most 1; its own error is stated in generic/math.h. A quotient among the
    // subnormals is off by kTiny, times the cap.
    error += 6e-7 * std::fabs(value) + 2 * kind.softcap * kTiny;
  } else if (whole) {
    error = 0;
  }
  return {value, error};
}

Problem finish_problem(const Size& size, Values values, const FinishKind& kind) {
  Random random(static_cast<uint32_t>(size.rows * 1000 + size.width));
  const auto [rows, width] = size;
  const int64_t sums_stride = (width + 15) / 16 * 16 + 16, out_stride = width + 3;
  const auto sums = sample_values(values, rows, width, random);
  const auto bias = sample_values(values, 1, width, random);
  const auto residual = sample_values(values, rows, width, random);
  Problem problem;
  problem.name =
      fmt::format("{}{}{} scale {} softcap {}", size_name(size, values), kind.bias ? " bias" : "",
                  kind.residual ? kind.in_place ? " residual in place" : " residual" : "",
                  kind.scale, kind.softcap);
  problem.operands.push_back(strided_input("sums", sums, width, sums_stride));
  problem.operands.push_back(input_of("bias", bias));
  problem.operands.push_back(strided_input("residual", residual, width, out_stride));
  Operand out = poisoned_output("out", rows, width, out_stride);
  if (kind.in_place) out.bytes = problem.operands[2].bytes;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < width; ++n) {
      const auto at = static_cast<size_t>(m * width + n);
      out.expected[static_cast<size_t>(m * out_stride + n)] =
          finished(kind, sums[at], kind.bias ? bias[static_cast<size_t>(n)] : 0.0f,
                   kind.residual ? residual[at] : 0.0f, are_whole(values));
    }
  }
  problem.operands.push_back(std::move(out));
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    for_rows(rows, in_parts, [&](int64_t first, int64_t count) {
      const float* source = floats(kind.in_place ? at[3] : at[2]) + first * out_stride;
      row.function.finish({floats(at[0]) + first * sums_stride, sums_stride,
                           kind.bias ? floats(at[1]) : nullptr, kind.residual ? source : nullptr,
                           floats(at[3]) + first * out_stride, out_stride, count, width, kind.scale,
                           kind.softcap});
    });
  };
  return problem;
}

// ---- gate ----

constexpr double kAlpha = 1.75, kLimit = 2.5;

// g' sigmoid(alpha g') (u' + 1); its slope by g' is below 1.2, as that of silu.
Expected clamped(double g, double g_error, double u, double u_error) {
  g = std::min(g, kLimit);
  u = std::clamp(u, -kLimit, kLimit);
  const double value = g / (1 + std::exp(-kAlpha * g));
  const double out = value * (u + 1);
  // The exponent is rounded, and exp's error is relative: kRound of alpha g more.
  const double error = (6e-7 + 2 * kRound * std::fabs(kAlpha * g)) * std::fabs(value) +
                       5e-39 * std::fabs(g) + 1e-38 + 1.2 * g_error;
  return {out, error * std::fabs(u + 1) +
                   (u_error + 2 * kRound * std::fabs(u + 1)) * std::fabs(value) +
                   4 * kRound * std::fabs(out) + 2 * kTiny};
}

// f(g) * u, where g is a sum with a rounding error of `g_error`.
Expected gated(GateKind kind, double g, double g_error, double u, double u_error) {
  if (kind == GateKind::kClampedSwiglu) return clamped(g, g_error, u, u_error);
  const Expected gate = activated(kind, g, g_error);
  const double out = gate.value * u;
  const double error = gate.tolerance * std::fabs(u) + u_error * std::fabs(gate.value) +
                       4 * kRound * std::fabs(out) + 2 * kTiny;
  const bool at_zero = kind != GateKind::kSigmoid && kind != GateKind::kXielu;
  const bool exact = g == 0 && g_error == 0 && at_zero;
  return {out, exact ? 0 : error};
}

// Beside the gate: up from the same tile, from rows further apart, or ones.
struct GateCase {
  bool bias;
  int64_t up_apart;
  bool ones;
};
constexpr GateCase kGateCases[] = {
    {false, 0, false}, {true, 0, false}, {false, 7, false}, {true, 0, true}};

std::string gate_name(GateKind kind, const GateCase& form) {
  return fmt::format("{}{}{}{}", activation_name(kind), form.bias ? " bias" : "",
                     form.up_apart > 0 ? " up further apart" : "", form.ones ? " alone" : "");
}

Problem gate_problem(const Size& size, Values values, GateKind kind, const GateCase& form) {
  const bool bias = form.bias;
  Random random(static_cast<uint32_t>(size.rows * 1000 + size.width));
  const auto [rows, width] = size;
  const int64_t sums_stride = (width + 15) / 16 * 16, out_stride = width + (bias ? 5 : 0);
  const int64_t up_stride = sums_stride + form.up_apart;
  const auto gate = sample_values(values, rows, width, random);
  const auto up = sample_values(values, rows, width, random);
  const auto gate_bias = sample_values(values, 1, width, random);
  const auto up_bias = sample_values(values, 1, width, random);
  Problem problem;
  problem.name = fmt::format("{} {}", size_name(size, values), gate_name(kind, form));
  problem.operands.push_back(strided_input("gate", gate, width, sums_stride));
  problem.operands.push_back(strided_input("up", up, width, up_stride));
  problem.operands.push_back(input_of("gate bias", gate_bias));
  problem.operands.push_back(input_of("up bias", up_bias));
  Operand out = poisoned_output("out", rows, width, out_stride);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < width; ++n) {
      const auto at = static_cast<size_t>(m * width + n);
      const double g_add = bias ? double{gate_bias[static_cast<size_t>(n)]} : 0.0;
      const double u_add = bias && !form.ones ? double{up_bias[static_cast<size_t>(n)]} : 0.0;
      const double g = gate[at] + g_add, u = form.ones ? 1.0 : up[at] + u_add;
      const bool exact = !bias || are_whole(values);
      out.expected[static_cast<size_t>(m * out_stride + n)] =
          gated(kind, g, exact ? 0 : kRound * std::fabs(g) + kTiny, u,
                exact ? 0 : kRound * std::fabs(u) + kTiny);
    }
  }
  problem.operands.push_back(std::move(out));
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    for_rows(rows, in_parts, [&](int64_t first, int64_t count) {
      row.function.gate({floats(at[0]) + first * sums_stride, sums_stride,
                         form.ones ? nullptr : floats(at[1]) + first * up_stride, up_stride,
                         bias ? floats(at[2]) : nullptr,
                         bias && !form.ones ? floats(at[3]) : nullptr,
                         floats(at[4]) + first * out_stride, out_stride, count, width, kind,
                         float{kAlpha}, float{kLimit}, kXielu});
    });
  };
  return problem;
}

// ---- norm ----

struct NormKind {
  bool subtract_mean, residual, in_place;  // in place: out is x
  float eps, scale;
  bool gain;
  bool bias = false;
};
constexpr float kGain = 1.375f;
constexpr NormKind kNormKinds[] = {
    {false, false, false, 1e-5f, 1.0f, false},    {true, false, true, 1e-5f, 1.0f, false},
    {false, true, false, 1e-6f, 0.5f, false},     {false, true, true, 1e-6f, 1.0f, true},
    {true, true, false, 1e-3f, 2.0f, false},      {true, false, false, 1e-5f, 1.0f, false, true},
    {true, true, false, 1e-5f, 0.5f, false, true}};

// The gain's product, with what it adds to the error.
Expected times_gain(const NormKind& kind, const Expected& x) {
  if (!kind.gain) return x;
  const double gain = double{kGain};
  return {gain * x.value, gain * x.tolerance + kRound * std::fabs(gain * x.value) + kTiny};
}

// One row's mean, factor, and bounds on their errors (of the factor: relative).
struct RowNorm {
  double mean = 0, mean_error = 0, factor = 0, factor_error = 0;

  RowNorm(const float* x, int64_t width, const NormKind& kind) {
    const auto count = static_cast<double>(width);
    const double steps = count / 16 + 8;  // additions that one term goes through
    double magnitude = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      mean += double{x[i]} / count;
      magnitude += std::fabs(double{x[i]}) / count;
    }
    mean_error = kRound * steps * magnitude;
    if (!kind.subtract_mean) mean = mean_error = 0;
    double offsets = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double v = double{x[i]} - mean;
      squares += v * v;
      offsets += std::fabs(v);
    }
    const double root = squares / count + double{kind.eps};
    factor = 1 / std::sqrt(root);
    const double shift = (2 * mean_error * offsets / count + mean_error * mean_error) / root;
    factor_error = kRound * (steps + 4) + shift;
  }
};

Problem norm_problem(const Size& size, Values values, const NormKind& kind) {
  Random random(static_cast<uint32_t>(size.rows * 1000 + size.width));
  const auto [rows, width] = size;
  const auto x = sample_values(values, rows, width, random);
  const auto weight = sample_values(Values::kRandom, 1, width, random);
  const auto residual = sample_values(values, rows, width, random);
  const auto bias = sample_values(Values::kRandom, 1, width, random);
  Problem problem;
  problem.name = fmt::format("{} {}{}{}{}{} eps {}", size_name(size, values),
                             kind.subtract_mean ? "layer" : "rms", kind.residual ? " residual" : "",
                             kind.in_place ? " in place" : "", kind.gain ? " gain" : "",
                             kind.bias ? " bias" : "", kind.eps);
  problem.operands.push_back(input_of("x", x));
  problem.operands.push_back(input_of("weight", weight));
  problem.operands.push_back(input_of("residual", residual));
  Operand out = poisoned_output("out", rows, width, width);
  problem.operands.push_back(input_of("bias", bias));
  if (kind.in_place) out.bytes = problem.operands[0].bytes;
  for (int64_t m = 0; m < rows; ++m) {
    const RowNorm row(x.data() + m * width, width, kind);
    for (int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<size_t>(m * width + i);
      const double shift =
          kind.bias ? double{kind.scale} * double{bias[static_cast<size_t>(i)]} : 0.0;
      const double add = shift + (kind.residual ? double{residual[at]} : 0.0);
      const double factor =
          double{kind.scale} * row.factor * double{weight[static_cast<size_t>(i)]};
      const double normed = (double{x[at]} - row.mean) * factor;
      const double error =
          std::fabs(normed) * (row.factor_error + 6 * kRound) +
          std::fabs(factor) * (row.mean_error + 2 * kTiny) +
          kRound * (2 * std::fabs(add) + 3 * std::fabs(normed) + 4 * std::fabs(shift)) + 4 * kTiny;
      out.expected[at] = times_gain(kind, {add + normed, error});
    }
  }
  problem.operands.push_back(std::move(out));
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    for_rows(rows, in_parts, [&](int64_t first, int64_t count) {
      const float* source = floats(kind.in_place ? at[4] : at[0]) + first * width;
      row.function.norm(
          {source, floats(at[1]), kind.residual ? floats(at[2]) + first * width : nullptr,
           floats(at[4]) + first * width, count, width, kind.eps, kind.scale, kind.subtract_mean,
           kind.gain ? &kGain : nullptr, kind.bias ? floats(at[3]) : nullptr});
    });
  };
  return problem;
}

// Every value 1 or -1 and no epsilon: the factor is exactly 1.
Problem unit_norm_problem(int64_t width) {
  Random random(static_cast<uint32_t>(width));
  std::vector<float> x(static_cast<size_t>(width));
  for (float& v : x) v = random() % 2 == 0 ? 1.0f : -1.0f;
  const auto weight = sample_values(Values::kWhole, 1, width, random);
  Problem problem;
  problem.name = fmt::format("[1, {}] signs, no eps", width);
  problem.operands.push_back(input_of("x", x));
  problem.operands.push_back(input_of("weight", weight));
  Operand out = poisoned_output("out", 1, width, width);
  for (size_t i = 0; i < x.size(); ++i) out.expected[i] = {double{x[i]} * double{weight[i]}, 0};
  problem.operands.push_back(std::move(out));
  problem.call = [width](const KernelRow& row, Places at, bool) {
    row.function.norm({floats(at[0]), floats(at[1]), nullptr, floats(at[2]), 1, width, 0.0f, 1.0f,
                       false, nullptr, nullptr});
  };
  return problem;
}

}  // namespace

void visit_finish_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const Size& size : sizes_of(depth)) {
    for (const Values values : values_of(depth)) {
      for (const FinishKind& kind : kFinishKinds)
        visit([&] { return finish_problem(size, values, kind); });
    }
  }
}

void visit_gate_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const Size& size : sizes_of(depth)) {
    for (const Values values : values_of(depth)) {
      for (const ActivationRow& row : kActivations) {
        for (const GateCase& form : kGateCases)
          visit([&] { return gate_problem(size, values, row.kind, form); });
      }
    }
  }
}

void visit_norm_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const Size& size : sizes_of(depth)) {
    for (const Values values : values_of(depth)) {
      for (const NormKind& kind : kNormKinds)
        visit([&] { return norm_problem(size, values, kind); });
    }
    if (size.rows > 0) visit([&] { return unit_norm_problem(size.width); });
  }
}

}  // namespace headrace::cpu
