// Convolution along the positions of a sequence, 16 channels at a time.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"

namespace headrace::cpu {
namespace {

// The input of row i of the run; before row 0 what was kept.
template <typename F, typename Load>
[[gnu::always_inline]] inline typename F::V conv_input(const ConvRowsArgs& args, int64_t i,
                                                       const Load& load) {
  if (i < 0) {
    if (args.before == nullptr) return F::zero();
    return load(args.before + (i + args.num_taps - 1) * args.state_stride);
  }
  const typename F::V x = load(args.x + i * args.row_stride);
  return args.in_gate == nullptr ? x : F::mul(load(args.in_gate + i * args.row_stride), x);
}

template <typename F>
void conv_row(const ConvRowsArgs& args, int64_t row) {
  using V = typename F::V;
  for_columns<F>(args.num_channels, [&](auto load, auto store) __attribute__((always_inline)) {
    V sum = args.bias == nullptr ? F::zero() : load(args.bias);
    for (int64_t j = 0; j < args.num_taps; ++j) {
      const V input = conv_input<F>(args, row - args.num_taps + 1 + j, load);
      sum = F::fma(load(args.weight + j * args.weight_stride), input, sum);
    }
    if (args.silu) sum = silu_lanes<F>(sum);
    if (args.out_gate != nullptr) sum = F::mul(load(args.out_gate + row * args.row_stride), sum);
    store(args.out + row * args.out_stride, sum);
  });
}

template <typename F>
void conv(const ConvRowsArgs& args) {
  const int64_t end = args.first_row + args.num_rows;
  for (int64_t row = args.first_row; row < end; ++row) conv_row<F>(args, row);
  if (args.after == nullptr) return;
  // In place what is read lies behind what is written.
  for (int64_t i = 0; i + 1 < args.num_taps; ++i) {
    for_columns<F>(args.num_channels, [&](auto load, auto store) __attribute__((always_inline)) {
      store(args.after + i * args.state_stride,
            conv_input<F>(args, end - args.num_taps + 1 + i, load));
    });
  }
}

}  // namespace
}  // namespace headrace::cpu
