// The reference unit: convolution along the positions of a sequence, state space scan.

#include <cmath>

#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

// ---- Convolution --------------------------------------------------------------------------------

float input(const ConvRowsArgs& args, int64_t row, int64_t channel) {
  if (row < 0) {
    if (args.before == nullptr) return 0.0f;
    return args.before[(row + args.num_taps - 1) * args.state_stride + channel];
  }
  const float x = args.x[row * args.row_stride + channel];
  return args.in_gate == nullptr ? x : args.in_gate[row * args.row_stride + channel] * x;
}

float convolved(const ConvRowsArgs& args, int64_t row, int64_t channel) {
  float sum = args.bias == nullptr ? 0.0f : args.bias[channel];
  for (int64_t j = 0; j < args.num_taps; ++j) {
    sum += args.weight[j * args.weight_stride + channel] *
           input(args, row - args.num_taps + 1 + j, channel);
  }
  if (args.silu) sum = sum / (1.0f + std::exp(-sum));
  return args.out_gate == nullptr ? sum : args.out_gate[row * args.row_stride + channel] * sum;
}

void conv(const ConvRowsArgs& args) {
  const int64_t end = args.first_row + args.num_rows;
  for (int64_t row = args.first_row; row < end; ++row) {
    for (int64_t channel = 0; channel < args.num_channels; ++channel) {
      args.out[row * args.out_stride + channel] = convolved(args, row, channel);
    }
  }
  if (args.after == nullptr) return;
  // In place what is read lies behind what is written.
  for (int64_t i = 0; i + 1 < args.num_taps; ++i) {
    for (int64_t channel = 0; channel < args.num_channels; ++channel) {
      args.after[i * args.state_stride + channel] =
          input(args, end - args.num_taps + 1 + i, channel);
    }
  }
}

// ---- Scan ---------------------------------------------------------------------------------------

void scan_row(const ScanRowsArgs& args, int64_t row, const float* state) {
  const float* x = args.x + row * args.row_stride;
  const float* b = args.b + row * args.row_stride;
  const float* c = args.c + row * args.row_stride;
  for (int64_t i = 0; i < args.head_dim; ++i) {
    const float scaled = args.time_steps[row] * x[i];
    float sum = 0.0f;
    for (int64_t n = 0; n < args.state_width; ++n) {
      const int64_t at = n * args.head_dim + i;
      const float before = state == nullptr ? 0.0f : state[at];
      const float after = args.decays[row] * before + scaled * b[n];
      args.after[at] = after;
      sum += after * c[n];
    }
    args.out[row * args.out_stride + i] = sum + args.skip * x[i];
  }
}

void scan(const ScanRowsArgs& args) {
  for (int64_t row = 0; row < args.num_rows; ++row) {
    scan_row(args, row, row == 0 ? args.before : args.after);
  }
}

constexpr KernelRow recurrent_row(KernelOp op, const char* name, KernelFunction function) {
  return plain_row(op, name, 0, NumericsClass::kReference, function);
}

constexpr KernelRow kRows[] = {
    recurrent_row(KernelOp::kConv, "conv", {.conv = &conv}),
    recurrent_row(KernelOp::kScan, "scan", {.scan = &scan}),
};

}  // namespace

namespace reference {

extern const KernelPart kRecurrent;
const KernelPart kRecurrent = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace reference
}  // namespace headrace::cpu
