// State space scan, 16 dimensions of a head at a time. Several tokens pass through a number of the
// state while it is in a register: the operations on it are those of one token after the other.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

// kTokens tokens from row `first` on, over one vector of dimensions.
template <typename F, int kTokens, typename Load, typename Store>
[[gnu::always_inline]] inline void scan_tokens(const ScanRowsArgs& args, int64_t first,
                                               const float* state, const Load& load,
                                               const Store& store) {
  using V = typename F::V;
  V scaled[kTokens], sums[kTokens], decays[kTokens];
  unrolled<0, kTokens>([&](auto t) __attribute__((always_inline)) {
    const int64_t row = first + t.value;
    scaled[t.value] = F::mul(F::set(args.time_steps[row]), load(args.x + row * args.row_stride));
    decays[t.value] = F::set(args.decays[row]);
    sums[t.value] = F::zero();
  });
  const float* b = args.b + first * args.row_stride;
  const float* c = args.c + first * args.row_stride;
  for (int64_t n = 0; n < args.state_width; ++n) {
    V s = state == nullptr ? F::zero() : load(state + n * args.head_dim);
    unrolled<0, kTokens>([&](auto t) __attribute__((always_inline)) {
      s = F::mul(decays[t.value], s);
      s = F::fma(scaled[t.value], F::set(b[t.value * args.row_stride + n]), s);
      sums[t.value] = F::fma(s, F::set(c[t.value * args.row_stride + n]), sums[t.value]);
    });
    store(args.after + n * args.head_dim, s);
  }
  unrolled<0, kTokens>([&](auto t) __attribute__((always_inline)) {
    const int64_t row = first + t.value;
    const V x = load(args.x + row * args.row_stride);
    store(args.out + row * args.out_stride, F::fma(F::set(args.skip), x, sums[t.value]));
  });
}

// All rows over one vector of dimensions. The first tokens read the state where it was.
template <typename F, typename Load, typename Store>
[[gnu::always_inline]] inline void scan_lanes(const ScanRowsArgs& args, const Load& load,
                                              const Store& store) {
  const float* state = args.before;
  int64_t row = 0;
  for (; row + F::kScanTokens <= args.num_rows; row += F::kScanTokens) {
    scan_tokens<F, F::kScanTokens>(args, row, state, load, store);
    state = args.after;
  }
  for (; row < args.num_rows; ++row) {
    scan_tokens<F, 1>(args, row, state, load, store);
    state = args.after;
  }
}

template <typename F>
void scan(const ScanRowsArgs& args) {
  using V = typename F::V;
  int64_t i = 0;
  for (; i + 16 <= args.head_dim; i += 16) {
    scan_lanes<F>(
        args, [i](const float* p) __attribute__((always_inline)) { return F::load(p + i); },
        [i](float* p, V v) __attribute__((always_inline)) { F::store(p + i, v); });
  }
  if (i == args.head_dim) return;
  const int64_t rest = args.head_dim - i;
  scan_lanes<F>(
      args,
      [i, rest](const float* p)
          __attribute__((always_inline)) { return F::load_part(p + i, rest); },
      [i, rest](float* p, V v) __attribute__((always_inline)) { F::store_part(p + i, v, rest); });
}

}  // namespace
}  // namespace headrace::cpu
