// conv, scan: rows of one sequence and the state before and after them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

constexpr Values kStartStates[] = {Values::kRandom};
constexpr Values kQuickValues[] = {Values::kRandom, Values::kMixed, Values::kWhole};
constexpr Values kFullValues[] = {Values::kRandom, Values::kOneHot,   Values::kRamp,
                                  Values::kSmall,  Values::kDenormal, Values::kMixed,
                                  Values::kWhole,  Values::kZeroOne};

std::span<const Values> values_of(Depth depth) {
  if (depth == Depth::kStart) return kStartStates;
  if (depth == Depth::kQuick) return kQuickValues;
  return kFullValues;
}

// ---- conv ----

struct ConvCase {
  int64_t rows, channels;
  int taps;
  bool silu, bias, gates;
  bool fresh;     // nothing was kept from before
  bool in_place;  // the state is written where it was
};
// Fewer rows than taps, around the 16 lanes; the last is a row of a real model.
constexpr ConvCase kConvCases[] = {
    {1, 1, 2, false, false, false, true, false},  {1, 5, 4, true, true, false, false, true},
    {2, 17, 3, false, true, true, false, true},   {3, 16, 4, true, false, false, false, false},
    {2, 33, 16, false, true, false, false, true}, {9, 31, 4, true, true, false, true, false},
    {21, 48, 3, false, false, true, false, true}, {5, 67, 4, true, true, true, false, false},
    {1, 2048, 3, false, false, true, false, true}};
constexpr ConvCase kConvStartCases[] = {{3, 37, 4, true, true, true, false, true}};

struct ConvInputs {
  std::vector<float> x, in_gate, out_gate, weight, bias, before;

  ConvInputs(const ConvCase& setup, Values values, Random& random) {
    const int64_t rows = setup.rows, channels = setup.channels;
    x = sample_values(values, rows, channels, random);
    in_gate = sample_values(values, rows, channels, random);
    out_gate = sample_values(values, rows, channels, random);
    weight = sample_values(values, setup.taps, channels, random);
    bias = sample_values(values, 1, channels, random);
    before = sample_values(values, setup.taps - 1, channels, random);
  }
};

// The input of a row, 0 or less: what was kept; with its rounding error.
Expected conv_input(const ConvCase& setup, const ConvInputs& in, int64_t row, int64_t channel) {
  const int64_t channels = setup.channels;
  if (row < 0) {
    if (setup.fresh) return {0, 0};
    return {in.before[static_cast<size_t>((row + setup.taps - 1) * channels + channel)], 0};
  }
  const auto at = static_cast<size_t>(row * channels + channel);
  if (!setup.gates) return {in.x[at], 0};
  const double value = double{in.x[at]} * double{in.in_gate[at]};
  return {value, kRound * std::fabs(value) + kTiny};
}

Expected convolved(const ConvCase& setup, const ConvInputs& in, int64_t row, int64_t channel,
                   bool whole) {
  double sum = setup.bias ? in.bias[static_cast<size_t>(channel)] : 0.0;
  double magnitude = std::fabs(sum), error = kTiny * setup.taps;
  for (int64_t j = 0; j < setup.taps; ++j) {
    const double weight = in.weight[static_cast<size_t>(j * setup.channels + channel)];
    const Expected input = conv_input(setup, in, row - setup.taps + 1 + j, channel);
    sum += weight * input.value;
    magnitude += std::fabs(weight * input.value);
    error += std::fabs(weight) * input.tolerance;
  }
  error += kRound * (setup.taps + 2) * magnitude;
  if (setup.silu) {
    sum = sum / (1 + std::exp(-sum));
    error = 1.2 * error + 1e-6 * std::fabs(sum) + 1e-38 * (1 + magnitude);
  }
  if (setup.gates) {
    const double gate = in.out_gate[static_cast<size_t>(row * setup.channels + channel)];
    sum *= gate;
    error = error * std::fabs(gate) + kRound * std::fabs(sum) + kTiny;
  }
  return {sum, whole && !setup.silu ? 0 : error};
}

Operand conv_output(const ConvCase& setup, const ConvInputs& in, bool whole, int64_t stride) {
  Operand out = poisoned_output("out", setup.rows, setup.channels, stride);
  for (int64_t m = 0; m < setup.rows; ++m) {
    for (int64_t c = 0; c < setup.channels; ++c) {
      out.expected[static_cast<size_t>(m * stride + c)] = convolved(setup, in, m, c, whole);
    }
  }
  return out;
}

Operand conv_state(const ConvCase& setup, const ConvInputs& in) {
  Operand after = poisoned_output("after", setup.taps - 1, setup.channels, setup.channels);
  if (setup.in_place) after.bytes = input_of("", in.before).bytes;
  for (int64_t i = 0; i + 1 < setup.taps; ++i) {
    for (int64_t c = 0; c < setup.channels; ++c) {
      after.expected[static_cast<size_t>(i * setup.channels + c)] =
          conv_input(setup, in, setup.rows - setup.taps + 1 + i, c);
    }
  }
  return after;
}

enum ConvOperand : uint8_t { kX, kInGate, kOutGate, kWeight, kBias, kBefore, kConvOut, kConvAfter };

struct Part {
  int64_t first, count;
};

ConvRowsArgs conv_rows(const ConvCase& setup, Places at, int64_t stride, Part row, Part lane) {
  const int64_t channel = lane.first;
  ConvRowsArgs rows{};
  rows.x = floats(at[kX]) + channel;
  rows.row_stride = rows.out_stride = stride;
  if (setup.gates) rows.in_gate = floats(at[kInGate]) + channel;
  if (setup.gates) rows.out_gate = floats(at[kOutGate]) + channel;
  rows.weight = floats(at[kWeight]) + channel;
  rows.weight_stride = rows.state_stride = setup.channels;
  if (setup.bias) rows.bias = floats(at[kBias]) + channel;
  if (!setup.fresh) rows.before = floats(at[setup.in_place ? kConvAfter : kBefore]) + channel;
  if (row.first + row.count == setup.rows) rows.after = floats(at[kConvAfter]) + channel;
  rows.out = floats(at[kConvOut]) + channel;
  rows.first_row = row.first;
  rows.num_rows = row.count;
  rows.num_channels = lane.count;
  rows.num_taps = setup.taps;
  rows.silu = setup.silu;
  return rows;
}

Problem conv_problem(const ConvCase& setup, Values values) {
  Random random(static_cast<uint64_t>(setup.rows * 1000 + setup.channels));
  const ConvInputs in(setup, values, random);
  const int64_t channels = setup.channels, stride = channels + 3;
  Problem problem;
  problem.name = fmt::format("[{}, {}] {} taps{}{}{}{}{} {}", setup.rows, channels, setup.taps,
                             setup.silu ? " silu" : "", setup.bias ? " bias" : "",
                             setup.gates ? " gates" : "", setup.fresh ? " fresh" : "",
                             setup.in_place ? " in place" : "", values_name(values));
  problem.operands = {strided_input("x", in.x, channels, stride),
                      strided_input("in gate", in.in_gate, channels, stride),
                      strided_input("out gate", in.out_gate, channels, stride),
                      input_of("weight", in.weight),
                      input_of("bias", in.bias),
                      input_of("before", in.before),
                      conv_output(setup, in, are_whole(values), stride),
                      conv_state(setup, in)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t rows = setup.rows, half = in_parts ? channels / 2 : 0;
    const int64_t step = in_parts ? 2 : rows;
    for (const Part channel : {Part{0, half}, Part{half, channels - half}}) {
      if (channel.count == 0) continue;
      for (int64_t m = 0; m < rows; m += step) {
        row.function.conv(conv_rows(setup, at, stride, {m, std::min(step, rows - m)}, channel));
      }
    }
  };
  return problem;
}

// ---- scan ----

struct ScanCase {
  int64_t rows, head_dim, state_width;
  bool fresh, in_place;
};
constexpr ScanCase kScanCases[] = {
    {1, 1, 1, true, false},    {1, 16, 16, false, true},  {2, 17, 5, false, true},
    {7, 33, 3, false, false},  {8, 16, 16, true, false},  {19, 48, 9, false, true},
    {33, 64, 32, true, false}, {9, 80, 16, false, false}, {1, 64, 128, false, true}};
constexpr ScanCase kScanStartCases[] = {{9, 24, 7, false, true}};

struct ScanInputs {
  std::vector<float> rows;  // x, b and c side by side
  std::vector<float> time_steps, decays, before;
  int64_t stride;
  static constexpr float kSkip = 0.75f;

  ScanInputs(const ScanCase& setup, Values values, Random& random)
      : stride(setup.head_dim + 2 * setup.state_width) {
    rows = sample_values(values, setup.rows, stride, random);
    before = sample_values(values, setup.state_width, setup.head_dim, random);
    for (int64_t m = 0; m < setup.rows; ++m) {
      time_steps.push_back(std::fabs(random.normal()));
      decays.push_back(std::exp(-std::fabs(random.normal())));
    }
  }
  double row(int64_t m, int64_t i) const { return rows[static_cast<size_t>(m * stride + i)]; }
};

// The definition, token by token, with the largest error of each number.
class ScanExpectation {
 public:
  ScanExpectation(const ScanCase& setup, const ScanInputs& in)
      : setup_(setup),
        in_(in),
        state_(static_cast<size_t>(setup.head_dim * setup.state_width), Expected{0, 0}) {
    for (size_t i = 0; i < state_.size() && !setup.fresh; ++i) state_[i].value = in.before[i];
    for (int64_t m = 0; m < setup.rows; ++m) {
      for (int64_t i = 0; i < setup.head_dim; ++i) out_.push_back(pass(m, i));
    }
  }
  const std::vector<Expected>& out() const { return out_; }
  const std::vector<Expected>& state() const { return state_; }

 private:
  Expected pass(int64_t m, int64_t i) {
    const double step = in_.time_steps[static_cast<size_t>(m)];
    const double decay = in_.decays[static_cast<size_t>(m)];
    const double skipped = ScanInputs::kSkip * in_.row(m, i);
    double sum = 0, magnitude = std::fabs(skipped), error = kTiny;
    for (int64_t n = 0; n < setup_.state_width; ++n) {
      Expected& s = state_[static_cast<size_t>(n * setup_.head_dim + i)];
      const double b = in_.row(m, setup_.head_dim + n);
      const double c = in_.row(m, setup_.head_dim + setup_.state_width + n);
      const double kept = decay * s.value, added = step * in_.row(m, i) * b;
      s.tolerance = decay * s.tolerance + kTiny * (2 + std::fabs(b)) +
                    kRound * (2 * std::fabs(kept) + 3 * std::fabs(added));
      s.value = kept + added;
      sum += s.value * c;
      magnitude += std::fabs(s.value * c);
      error += s.tolerance * std::fabs(c) + kTiny;
    }
    const double num_sums = static_cast<double>(setup_.state_width) + 2;
    return {sum + skipped, error + kRound * num_sums * magnitude};
  }

  const ScanCase& setup_;
  const ScanInputs& in_;
  std::vector<Expected> state_, out_;
};

Problem scan_problem(const ScanCase& setup, Values values) {
  Random random(static_cast<uint64_t>(setup.rows * 1000 + setup.head_dim));
  const ScanInputs in(setup, values, random);
  const ScanExpectation expectation(setup, in);
  const int64_t dim = setup.head_dim, stride = in.stride, out_stride = dim + 5;
  Problem problem;
  problem.name = fmt::format("{} rows [{}, {}]{}{} {}", setup.rows, setup.state_width, dim,
                             setup.fresh ? " fresh" : "", setup.in_place ? " in place" : "",
                             values_name(values));
  Operand out = poisoned_output("out", setup.rows, dim, out_stride);
  for (int64_t m = 0; m < setup.rows; ++m) {
    std::copy_n(expectation.out().begin() + m * dim, dim, out.expected.begin() + m * out_stride);
  }
  Operand after = poisoned_output("after", setup.state_width, dim, dim);
  if (setup.in_place) after.bytes = input_of("", in.before).bytes;
  after.expected = expectation.state();
  problem.operands = {input_of("rows", in.rows),
                      input_of("time steps", in.time_steps),
                      input_of("decays", in.decays),
                      input_of("before", in.before),
                      std::move(out),
                      std::move(after)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const float* before = setup.fresh ? nullptr : floats(setup.in_place ? at[5] : at[3]);
    const int64_t step = in_parts ? 3 : setup.rows;
    for (int64_t m = 0; m < setup.rows; m += step) {
      const float* x = floats(at[0]) + m * stride;
      row.function.scan({x, x + dim, x + dim + setup.state_width, stride, floats(at[1]) + m,
                         floats(at[2]) + m, ScanInputs::kSkip, before, floats(at[5]),
                         floats(at[4]) + m * out_stride, out_stride, std::min(step, setup.rows - m),
                         dim, setup.state_width});
      before = floats(at[5]);
    }
  };
  return problem;
}

}  // namespace

void visit_conv_problems(const KernelRow&, Depth depth, const Visit& visit) {
  const std::span<const ConvCase> cases =
      depth == Depth::kStart ? std::span<const ConvCase>(kConvStartCases) : kConvCases;
  for (const ConvCase& setup : cases) {
    for (const Values values : values_of(depth)) {
      visit([&] { return conv_problem(setup, values); });
    }
  }
}

void visit_scan_problems(const KernelRow&, Depth depth, const Visit& visit) {
  const std::span<const ScanCase> cases =
      depth == Depth::kStart ? std::span<const ScanCase>(kScanStartCases) : kScanCases;
  for (const ScanCase& setup : cases) {
    for (const Values values : values_of(depth)) {
      visit([&] { return scan_problem(setup, values); });
    }
  }
}

}  // namespace headrace::cpu
