// delta_inputs, delta: the inputs of the delta rule, and the recurrence over a head's state.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

// A value and how far a float32 computation may be from it.
struct Bounded {
  double value = 0;
  double error = 0;
};

// ---- delta_inputs -------------------------------------------------------------------------------

struct InputsCase {
  int64_t rows, key_heads, key_dim, value_heads, decay_dims;
};
// Around the 16 lanes, odd, with several value heads of a key head; the last is a real layer.
constexpr InputsCase kInputsCases[] = {{1, 1, 1, 1, 1},   {3, 2, 16, 4, 1},   {2, 1, 17, 3, 17},
                                       {0, 1, 8, 2, 1},   {2, 2, 31, 18, 1},  {3, 2, 24, 2, 24},
                                       {1, 3, 67, 33, 1}, {2, 16, 128, 32, 1}};
constexpr InputsCase kStartInputs[] = {{2, 2, 21, 4, 1}, {2, 2, 21, 2, 21}};

struct InputsSample {
  std::vector<float> qkv, beta, decay, rate, bias;
  int64_t width, stride, beta_stride, decay_stride;

  InputsSample(const InputsCase& setup, Values values, Random& random) {
    width = 2 * setup.key_heads * setup.key_dim;
    stride = width + 7;
    beta_stride = setup.value_heads + 3;
    decay_stride = setup.value_heads * setup.decay_dims + 2;
    qkv = sample_values(values, setup.rows, width, random);
    beta = sample_values(values, setup.rows, setup.value_heads, random);
    decay = sample_values(values, setup.rows, setup.value_heads * setup.decay_dims, random);
    bias = sample_values(Values::kRandom, 1, setup.value_heads * setup.decay_dims, random);
    rate = sample_values(Values::kRandom, 1, setup.value_heads, random);
    for (float& value : rate) value = -4 * std::fabs(value);
  }
};

void expect_unit_length(const float* x, int64_t dims, double scale, Expected* out) {
  double sum = double{kDeltaNormEps};
  for (int64_t i = 0; i < dims; ++i) sum += double{x[i]} * double{x[i]};
  const double factor = scale / std::sqrt(sum);
  const double steps = static_cast<double>(dims) / 16 + 16;
  for (int64_t i = 0; i < dims; ++i) {
    const double value = double{x[i]} * factor;
    out[i] = {value, kRound * steps * std::fabs(value) + 2 * kTiny};
  }
}

Expected expected_beta(float x) {
  const double value = 1 / (1 + std::exp(-double{x}));
  return {value, 8e-7 * value + 1e-38};
}

Expected expected_decay(float x, float bias, float rate) {
  const double sum = double{x} + double{bias};
  const double plus = std::max(sum, 0.0) + std::log1p(std::exp(-std::fabs(sum)));
  const double exponent = double{rate} * plus;
  const double error = std::fabs(double{rate}) * (1e-6 * plus + kRound * std::fabs(sum)) +
                       2 * kRound * std::fabs(exponent);
  const double value = std::exp(exponent);
  return {value, std::exp(exponent + error + 5e-7) - value + 1.3e-38};
}

void expect_inputs(const InputsCase& setup, const InputsSample& in, int64_t m,
                   std::span<Operand> outputs) {
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  for (int64_t h = 0; h < 2 * setup.key_heads; ++h) {
    const double scale =
        h < setup.key_heads ? 1 / std::sqrt(static_cast<double>(setup.key_dim)) : 1;
    const int64_t first = h * setup.key_dim;
    expect_unit_length(in.qkv.data() + m * in.width + first, setup.key_dim, scale,
                       outputs[0].expected.data() + m * in.stride + first);
  }
  for (int64_t h = 0; h < setup.value_heads; ++h) {
    outputs[1].expected[at(m * in.beta_stride + h)] =
        expected_beta(in.beta[at(m * setup.value_heads + h)]);
    for (int64_t i = h * setup.decay_dims; i < (h + 1) * setup.decay_dims; ++i) {
      outputs[2].expected[at(m * in.decay_stride + i)] =
          expected_decay(in.decay[at(m * setup.value_heads * setup.decay_dims + i)], in.bias[at(i)],
                         in.rate[at(h)]);
    }
  }
}

// Rows that a call works on in place.
Operand in_place(std::string_view name, std::span<const float> values, int64_t rows, int64_t width,
                 int64_t stride) {
  Operand operand = poisoned_output(name, rows, width, stride);
  operand.bytes = strided_input(name, values, width, stride).bytes;
  operand.bytes.resize(operand.expected.size() * sizeof(float));
  return operand;
}

Problem inputs_problem(const InputsCase& setup, Values values) {
  Random random(static_cast<uint32_t>(setup.key_dim * 100 + setup.value_heads));
  const InputsSample in(setup, values, random);
  Problem problem;
  problem.name =
      fmt::format("{} rows, {} x {} keys, {} values, {} decays, {}", setup.rows, setup.key_heads,
                  setup.key_dim, setup.value_heads, setup.decay_dims, values_name(values));
  const int64_t num_decays = setup.value_heads * setup.decay_dims;
  problem.operands = {in_place("q and k", in.qkv, setup.rows, in.width, in.stride),
                      in_place("beta", in.beta, setup.rows, setup.value_heads, in.beta_stride),
                      in_place("decay", in.decay, setup.rows, num_decays, in.decay_stride),
                      input_of("rate", in.rate), input_of("bias", in.bias)};
  for (int64_t m = 0; m < setup.rows; ++m) expect_inputs(setup, in, m, problem.operands);
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t part = in_parts ? 1 : std::max<int64_t>(setup.rows, 1);
    for (int64_t m = 0; m < std::max<int64_t>(setup.rows, 1); m += part) {
      DeltaInputsArgs args{};
      args.qkv = floats(at[0]) + m * in.stride;
      args.qkv_stride = in.stride;
      args.num_rows = std::min(part, setup.rows - m);
      args.key_heads = setup.key_heads;
      args.key_dim = setup.key_dim;
      args.value_heads = setup.value_heads;
      args.beta = floats(at[1]) + m * in.beta_stride;
      args.beta_stride = in.beta_stride;
      args.decay = floats(at[2]) + m * in.decay_stride;
      args.decay_stride = in.decay_stride;
      args.decay_dims = setup.decay_dims;
      args.decay_rate = floats(at[3]);
      args.decay_bias = floats(at[4]);
      row.function.delta_inputs(args);
    }
  };
  return problem;
}

// ---- delta --------------------------------------------------------------------------------------

enum class Start : uint8_t { kZeros, kOther, kSame };  // where the state is read

struct DeltaCase {
  int64_t rows, key_dim, value_dim, decay_dims;
  Start start;
};
// Panels that fill passes and that do not, partial last ones, few rows: bounds grow with each.
constexpr DeltaCase kDeltaCases[] = {
    {1, 16, 16, 1, Start::kOther},   {1, 8, 64, 1, Start::kSame},    {3, 16, 80, 1, Start::kZeros},
    {4, 7, 33, 7, Start::kZeros},    {2, 20, 5, 1, Start::kOther},   {3, 33, 96, 33, Start::kSame},
    {2, 16, 129, 16, Start::kOther}, {2, 128, 128, 1, Start::kSame}, {1, 1, 1, 1, Start::kZeros}};
constexpr DeltaCase kStartDelta[] = {{3, 9, 70, 1, Start::kOther}, {2, 5, 20, 5, Start::kZeros}};

struct DeltaSample {
  std::vector<float> qkv, beta, decay, state;
  int64_t width, stride, num_panels, panel_floats, out_stride;

  DeltaSample(const DeltaCase& setup, Values values, Random& random) {
    width = 2 * setup.key_dim + setup.value_dim;
    stride = width + 3;
    num_panels = (setup.value_dim + kPanel - 1) / kPanel;
    panel_floats = delta_panel_floats(setup.key_dim);
    out_stride = setup.value_dim + 4;
    qkv = sample_values(values, setup.rows, width, random);
    beta = sample_values(Values::kZeroOne, setup.rows, 1, random);
    for (float& value : beta) value = 0.25f + 0.5f * value;
    decay = sample_values(Values::kRandom, setup.rows, setup.decay_dims, random);
    for (float& value : decay) value = std::min(1.0f, std::fabs(value));
    const auto rows = sample_values(values, setup.key_dim, setup.value_dim, random);
    state.assign(static_cast<size_t>(num_panels * panel_floats), 0.0f);
    for (int64_t i = 0; i < setup.key_dim && setup.start != Start::kZeros; ++i) {
      for (int64_t n = 0; n < setup.value_dim; ++n) {
        state[place(i, n)] = rows[static_cast<size_t>(i * setup.value_dim + n)];
      }
    }
  }
  size_t place(int64_t i, int64_t n) const {
    return static_cast<size_t>(n / kPanel * panel_floats + i * kPanel + n % kPanel);
  }
};

double steps_error(double magnitude, int64_t steps) {
  return kRound * static_cast<double>(steps) * magnitude + static_cast<double>(steps) * kTiny;
}

// One row and one column: the state moves on, the output is returned.
Bounded delta_step(const DeltaCase& setup, const DeltaSample& in, int64_t m, int64_t n,
                   std::span<Bounded> column) {
  const float* q = in.qkv.data() + m * in.width;
  const float* k = q + setup.key_dim;
  const auto decay = [&](int64_t i) {
    return double{
        in.decay[static_cast<size_t>(m * setup.decay_dims + (setup.decay_dims == 1 ? 0 : i))]};
  };
  double p = 0, p_error = 0, magnitude = 0;
  for (int64_t i = 0; i < setup.key_dim; ++i) {
    const Bounded& s = column[static_cast<size_t>(i)];
    const double key = decay(i) * double{k[i]};
    p += s.value * key;
    magnitude += std::fabs(s.value * key);
    p_error += s.error * std::fabs(key) * (1 + 4 * kRound);
  }
  p_error += steps_error(magnitude, setup.key_dim + 3);
  const double beta = double{in.beta[static_cast<size_t>(m)]};
  const double v = double{k[setup.key_dim + n]};
  const double e = beta * (v - p);
  const double e_error = beta * p_error + steps_error(beta * (std::fabs(v) + std::fabs(p)), 4);
  Bounded out;
  double out_magnitude = 0;
  for (int64_t i = 0; i < setup.key_dim; ++i) {
    Bounded& s = column[static_cast<size_t>(i)];
    const double kept = decay(i) * s.value, added = double{k[i]} * e;
    s.value = kept + added;
    s.error = decay(i) * s.error + std::fabs(double{k[i]}) * e_error +
              steps_error(std::fabs(kept) + std::fabs(added), 4);
    out.value += s.value * double{q[i]};
    out.error += s.error * std::fabs(double{q[i]}) * (1 + 4 * kRound);
    out_magnitude += std::fabs(s.value * double{q[i]});
  }
  out.error += steps_error(out_magnitude, setup.key_dim + 3);
  return out;
}

void expect_delta(const DeltaCase& setup, const DeltaSample& in, Operand* to, Operand* out) {
  for (Expected& expected : to->expected) expected = {0, 0};  // columns beyond value_dim
  std::vector<Bounded> column(static_cast<size_t>(setup.key_dim));
  for (int64_t n = 0; n < setup.value_dim; ++n) {
    for (int64_t i = 0; i < setup.key_dim; ++i) {
      column[static_cast<size_t>(i)] = {double{in.state[in.place(i, n)]}, 0};
    }
    for (int64_t m = 0; m < setup.rows; ++m) {
      const Bounded result = delta_step(setup, in, m, n, column);
      out->expected[static_cast<size_t>(m * in.out_stride + n)] = {result.value, result.error};
    }
    for (int64_t i = 0; i < setup.key_dim; ++i) {
      const Bounded& s = column[static_cast<size_t>(i)];
      to->expected[in.place(i, n)] = {s.value, s.error};
    }
  }
}

// Panels [first, first + count) of rows [row, row + rows); later rows go on where `to` is.
DeltaRowsArgs delta_args(const DeltaCase& setup, const DeltaSample& in, Places at, int64_t row) {
  DeltaRowsArgs args{};
  args.q = floats(at[0]) + row * in.stride;
  args.k = args.q + setup.key_dim;
  args.v = args.k + setup.key_dim;
  args.qkv_stride = in.stride;
  args.beta = floats(at[1]) + row;
  args.beta_stride = 1;
  args.decay = floats(at[2]) + row * setup.decay_dims;
  args.decay_stride = args.decay_dims = setup.decay_dims;
  args.key_dim = setup.key_dim;
  args.value_dim = setup.value_dim;
  args.to = floats(at[4]);
  args.from = floats(setup.start == Start::kOther && row == 0 ? at[3] : at[4]);
  if (setup.start == Start::kZeros && row == 0) args.from = nullptr;
  args.out = floats(at[5]) + row * in.out_stride;
  args.out_stride = in.out_stride;
  return args;
}

Problem delta_problem(const DeltaCase& setup, Values values) {
  Random random(static_cast<uint32_t>(setup.key_dim * 1000 + setup.value_dim));
  const DeltaSample in(setup, values, random);
  Problem problem;
  problem.name = fmt::format("{} rows, state [{}, {}], {} decays, start {}, {}", setup.rows,
                             setup.key_dim, setup.value_dim, setup.decay_dims,
                             static_cast<int>(setup.start), values_name(values));
  Operand to = poisoned_output("state", 1, std::ssize(in.state), std::ssize(in.state));
  to.alignment = 64;
  if (setup.start == Start::kSame) {
    to.bytes = input_of("state", in.state).bytes;
  }
  Operand out = poisoned_output("out", setup.rows, setup.value_dim, in.out_stride);
  expect_delta(setup, in, &to, &out);
  Operand before = input_of("state before", in.state);
  before.alignment = 64;
  problem.operands = {strided_input("qkv", in.qkv, in.width, in.stride),
                      input_of("beta", in.beta),
                      input_of("decay", in.decay),
                      std::move(before),
                      std::move(to),
                      std::move(out)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t panels = in_parts ? 1 : in.num_panels, rows = in_parts ? 1 : setup.rows;
    for (int64_t first = 0; first < in.num_panels; first += panels) {
      for (int64_t m = 0; m < setup.rows; m += rows) {
        DeltaRowsArgs args = delta_args(setup, in, at, m);
        args.num_rows = rows;
        args.first_panel = first;
        args.num_panels = panels;
        row.function.delta(args);
      }
    }
  };
  return problem;
}

}  // namespace

void visit_delta_inputs_problems(const KernelRow&, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    for (const InputsCase& setup : kStartInputs) {
      visit([&] { return inputs_problem(setup, Values::kRandom); });
    }
    return;
  }
  for (const InputsCase& setup : kInputsCases) {
    for (const Values values :
         {Values::kRandom, Values::kSmall, Values::kMixed, Values::kLarge, Values::kWhole}) {
      visit([&] { return inputs_problem(setup, values); });
    }
  }
}

void visit_delta_problems(const KernelRow&, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    for (const DeltaCase& setup : kStartDelta) {
      visit([&] { return delta_problem(setup, Values::kRandom); });
    }
    return;
  }
  for (const DeltaCase& setup : kDeltaCases) {
    for (const Values values :
         {Values::kRandom, Values::kSmall, Values::kWhole, Values::kZeroOne}) {
      visit([&] { return delta_problem(setup, values); });
    }
  }
}

}  // namespace headrace::cpu
