// Finish of linear layers, gated activations and norms, 16 columns at a time.
#pragma once

#include "backend/cpu/kernels/generic/math.h"

namespace headrace::cpu {
namespace {

// fn(load, store, i): load(p) reads 16 floats of p + i, or the rest of a row; store likewise.
template <typename F, typename Fn>
[[gnu::always_inline]] inline void for_columns(int64_t count, const Fn& fn) {
  using V = typename F::V;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    fn([i](const float* p) __attribute__((always_inline)) { return F::load(p + i); },
       [i](float* p, V v) __attribute__((always_inline)) { F::store(p + i, v); });
  }
  if (i < count) {
    const int64_t rest = count - i;
    fn([i, rest](const float* p)
           __attribute__((always_inline)) { return F::load_part(p + i, rest); },
       [i, rest](float* p, V v) __attribute__((always_inline)) { F::store_part(p + i, v, rest); });
  }
}

// An array that may be left out.
inline const float* row_or_null(const float* rows, int64_t offset) {
  return rows == nullptr ? nullptr : rows + offset;
}

// Rows of a tile's results lie far apart in a matrix that is larger than the caches near a core: a
// later row comes while this one is made.
inline constexpr int64_t kRowsAhead = 16;

template <typename F>
void finish(const FinishArgs& args) {
  using V = typename F::V;
  const V scale = F::set(args.scale);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* sums = args.sums + m * args.sums_stride;
    const float* residual = row_or_null(args.residual, m * args.out_stride);
    float* out = args.out + m * args.out_stride;
    for (int64_t i = 0; m + kRowsAhead < args.num_rows && i < args.num_outputs; i += 16) {
      F::prefetch(reinterpret_cast<const uint8_t*>(out + kRowsAhead * args.out_stride + i));
    }
    for_columns<F>(args.num_outputs, [&](auto load, auto store) __attribute__((always_inline)) {
      V value = load(sums);
      if (args.bias != nullptr) value = F::add(value, load(args.bias));
      value = F::mul(value, scale);
      if (args.residual != nullptr) {
        value = F::add(load(residual), value);
      }
      if (args.softcap > 0) value = soft_cap<F>(value, args.softcap);
      store(out, value);
    });
  }
}

template <typename F>
[[gnu::always_inline]] inline typename F::V gated_lanes(const GateArgs& args, typename F::V g,
                                                        typename F::V u) {
  using V = typename F::V;
  if (args.kind == GateKind::kXielu) return F::mul(xielu_lanes<F>(args.xielu, g), u);
  if (args.kind != GateKind::kClampedSwiglu) return F::mul(activate_lanes<F>(args.kind, g), u);
  // Of max and min the second operand is what a NaN leaves.
  const V one = F::set(1.0f);
  g = F::min(F::set(args.limit), g);
  u = F::max(F::set(-args.limit), F::min(F::set(args.limit), u));
  const V e = exp_lanes<F>(F::sub(F::zero(), F::mul(F::set(args.alpha), g)));
  return F::mul(F::div(g, F::add(one, e)), F::add(u, one));
}

template <typename F>
void gate(const GateArgs& args) {
  using V = typename F::V;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* gate_sums = args.gate + m * args.gate_stride;
    const float* up_sums = row_or_null(args.up, m * args.up_stride);
    float* out = args.out + m * args.out_stride;
    for_columns<F>(args.num_outputs, [&](auto load, auto store) __attribute__((always_inline)) {
      V g = load(gate_sums);
      V u = args.up == nullptr ? F::set(1.0f) : load(up_sums);
      if (args.gate_bias != nullptr) g = F::add(g, load(args.gate_bias));
      if (args.up_bias != nullptr) u = F::add(u, load(args.up_bias));
      store(out, gated_lanes<F>(args, g, u));
    });
  }
}

// Mean to subtract and factor of one row. Lanes beyond the width add +0.
template <typename F>
void norm_factors(const float* x, int64_t width, float eps, bool subtract_mean, float* mean,
                  float* factor) {
  using V = typename F::V;
  const auto count = static_cast<float>(width);
  *mean = 0.0f;
  V sum = F::zero();
  if (subtract_mean) {
    for_columns<F>(
        width, [&](auto load, auto) __attribute__((always_inline)) { sum = F::add(sum, load(x)); });
    *mean = F::fold_sum(sum) / count;
    sum = F::zero();
    int64_t i = 0;
    const V centre = F::set(*mean);
    for (; i + 16 <= width; i += 16) {
      const V v = F::sub(F::load(x + i), centre);
      sum = F::fma(v, v, sum);
    }
    if (i < width) {
      float rest[16];
      F::store(rest, F::sub(F::load_part(x + i, width - i), centre));
      const V v = F::load_part(rest, width - i);
      sum = F::fma(v, v, sum);
    }
  } else {
    for_columns<F>(width, [&](auto load, auto) __attribute__((always_inline)) {
      const V v = load(x);
      sum = F::fma(v, v, sum);
    });
  }
  *factor = 1.0f / F::root(F::fold_sum(sum) / count + eps);
}

template <typename F>
void norm(const NormRowsArgs& args) {
  using V = typename F::V;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.width;
    const float* residual = row_or_null(args.residual, m * args.width);
    float* out = args.out + m * args.width;
    float mean, factor;
    norm_factors<F>(x, args.width, args.eps, args.subtract_mean, &mean, &factor);
    for_columns<F>(args.width, [&](auto load, auto store) __attribute__((always_inline)) {
      const V centred = args.subtract_mean ? F::sub(load(x), F::set(mean)) : load(x);
      V value = F::mul(F::mul(centred, F::set(factor)), load(args.weight));
      if (args.bias != nullptr) value = F::add(value, load(args.bias));
      value = F::mul(value, F::set(args.scale));
      if (args.residual != nullptr) {
        value = F::add(load(residual), value);
      }
      if (args.gain != nullptr) value = F::mul(value, F::set(*args.gain));
      store(out, value);
    });
  }
}

}  // namespace
}  // namespace headrace::cpu
