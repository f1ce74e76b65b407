// The two products of an adapter: rows of x with the rows of A, these with the columns of B.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"

namespace headrace::cpu {
namespace {

// 16 numbers of row `row` from `at` on.
template <typename F, bool kBf16>
[[gnu::always_inline]] inline typename F::V adapter_lanes(const AdapterRows& rows, int64_t row,
                                                          int64_t at) {
  at += row * rows.stride;
  if constexpr (kBf16) {
    const auto* halves = static_cast<const uint8_t*>(rows.values) + 2 * at;
    return F::as_floats(F::template shift_left<16>(F::load_halves(halves)));
  } else {
    return F::load(static_cast<const float*>(rows.values) + at);
  }
}

// kRows rows of A from `first` on, each with sums of its own: how many go together decides no bit.
template <typename F, bool kBf16, int kRows>
[[gnu::always_inline]] inline void shrink_rows(const ShrinkArgs& args, const float* x,
                                               int64_t first, float* out) {
  using V = typename F::V;
  V sums[kRows];
  for (int j = 0; j < kRows; ++j) sums[j] = F::zero();
  int64_t k = 0;
  for (; k + 16 <= args.num_inputs; k += 16) {
    const V lanes = F::load(x + k);
    for (int j = 0; j < kRows; ++j) {
      sums[j] = F::fma(lanes, adapter_lanes<F, kBf16>(args.a, first + j, k), sums[j]);
    }
  }
  if (k < args.num_inputs) {
    const V lanes = F::load_part(x + k, args.num_inputs - k);
    for (int j = 0; j < kRows; ++j) {
      sums[j] = F::fma(lanes, adapter_lanes<F, kBf16>(args.a, first + j, k), sums[j]);
    }
  }
  for (int j = 0; j < kRows; ++j) out[first + j] = args.scale * F::fold_sum(sums[j]);
}

template <typename F, bool kBf16>
void shrink_all(const ShrinkArgs& args) {
  constexpr int kTogether = 4;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.x_stride;
    float* out = args.out + m * args.out_stride;
    int64_t j = 0;
    for (; j + kTogether <= args.rank; j += kTogether) {
      shrink_rows<F, kBf16, kTogether>(args, x, j, out);
    }
    for (; j < args.rank; ++j) shrink_rows<F, kBf16, 1>(args, x, j, out);
  }
}

template <typename F>
void shrink(const ShrinkArgs& args) {
  args.a.bf16 ? shrink_all<F, true>(args) : shrink_all<F, false>(args);
}

// Columns [n, n + 16 * kVectors) of a row's sums, the last vector as far as `rest`.
template <typename F, bool kBf16, int kVectors>
[[gnu::always_inline]] inline void expand_columns(const ExpandArgs& args, const float* low,
                                                  float* sums, int64_t n, int64_t rest) {
  using V = typename F::V;
  const auto load = [&](const float* p, int v) __attribute__((always_inline)) {
    return rest == 16 ? F::load(p + n + 16 * v) : F::load_part(p + n + 16 * v, rest);
  };
  V values[kVectors];
  for (int v = 0; v < kVectors; ++v) values[v] = load(sums, v);
  for (int64_t j = 0; j < args.rank; ++j) {
    const V factor = F::set(low[j]);
    for (int v = 0; v < kVectors; ++v) {
      values[v] = F::fma(factor, adapter_lanes<F, kBf16>(args.b, j, n + 16 * v), values[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    if (args.factors != nullptr) values[v] = F::mul(load(args.factors, v), values[v]);
    if (args.bias != nullptr) values[v] = F::add(values[v], load(args.bias, v));
    if (rest == 16) {
      F::store(sums + n + 16 * v, values[v]);
    } else {
      F::store_part(sums + n + 16 * v, values[v], rest);
    }
  }
}

template <typename F, bool kBf16>
void expand_all(const ExpandArgs& args) {
  constexpr int kVectors = 4;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* low = args.low + m * args.low_stride;
    float* sums = args.sums + m * args.sums_stride;
    int64_t n = 0;
    for (; n + 16 * kVectors <= args.num_outputs; n += 16 * kVectors) {
      expand_columns<F, kBf16, kVectors>(args, low, sums, n, 16);
    }
    for (; n < args.num_outputs; n += 16) {
      expand_columns<F, kBf16, 1>(args, low, sums, n, smaller(16, args.num_outputs - n));
    }
  }
}

template <typename F>
void expand(const ExpandArgs& args) {
  args.b.bf16 ? expand_all<F, true>(args) : expand_all<F, false>(args);
}

}  // namespace
}  // namespace headrace::cpu
