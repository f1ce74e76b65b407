// How the splits of a row become its result: partial sums are folded in order of the splits, a sink
// joins the denominator last.
#pragma once

#include "backend/cpu/kernels/generic/attention_tile.h"

namespace headrace::cpu {
namespace {

// Folds a partial of row r into its merged state.
template <typename F>
void fold(AttendTile<F>& t, int r, bool is_first, float part_top, const float* part_total,
          const float* part_acc) {
  float* sums = t.merged + r * t.dims;
  float* total = t.merged_totals + r * 16;
  if (is_first) {
    t.merged_top[r] = part_top;
    F::store(total, F::load(part_total));
    for (int64_t d = 0; d < t.dims; d += 16) F::store(sums + d, F::load(part_acc + d));
    return;
  }
  const float highest = part_top > t.merged_top[r] ? part_top : t.merged_top[r];
  const auto old_factor = exp2_lanes<F>(F::set(t.merged_top[r] - highest));
  const auto new_factor = exp2_lanes<F>(F::set(part_top - highest));
  t.merged_top[r] = highest;
  const auto add = [&](const float* from, float* to) __attribute__((always_inline)) {
    F::store(to, F::fma(F::load(from), new_factor, F::mul(F::load(to), old_factor)));
  };
  add(part_total, total);
  for (int64_t d = 0; d < t.dims; d += 16) add(part_acc + d, sums + d);
}

template <typename F>
void write_row(const AttendTile<F>& t, int r) {
  float denominator = F::fold_sum(F::load(t.merged_totals + r * 16));
  float factor = 1.0f;
  if (t.args.sinks != nullptr) {
    const int group = t.args.num_heads / t.args.num_kv_heads;
    const float sink =
        t.args.sinks[t.args.kv_head * group + (t.args.first_row + r) % group] * kLog2E;
    const float highest = sink > t.merged_top[r] ? sink : t.merged_top[r];
    factor = exp2_of<F>(t.merged_top[r] - highest);
    denominator = __builtin_fmaf(denominator, factor, exp2_of<F>(sink - highest));
  }
  const auto scale = F::set(factor / denominator);
  float* out = t.args.out + t.row_offset(r);
  for (int64_t d = 0; d < t.args.head_dim; d += 16) {
    F::store_part(out + d, F::mul(F::load(t.merged + r * t.dims + d), scale),
                  smaller(16, t.args.head_dim - d));
  }
}

template <typename F>
void write_partials(const AttendTile<F>& t, int64_t split) {
  for (int r = 0; r < t.rows; ++r) {
    if (!t.sees(r, split)) continue;
    float* to = t.partial(r, split);
    for (int64_t d = 0; d < t.dims; d += 16) F::store(to + d, F::load(t.acc + r * t.dims + d));
    F::store(to + t.dims, F::load(t.totals + r * 16));
    to[t.dims + 16] = t.top[r];
  }
}

template <typename F>
void merge(AttendTile<F>& t) {
  const int64_t limit = (t.end[t.rows - 1] - 1) / kKvSplit + 1;
  for (int r = 0; r < t.rows; ++r) {
    for (int64_t split = t.lowest[0] / kKvSplit; split < limit; ++split) {
      if (!t.sees(r, split)) continue;
      const float* from = t.partial(r, split);
      fold(t, r, t.is_first(r, split), from[t.dims + 16], from + t.dims, from);
    }
    write_row(t, r);
  }
}

}  // namespace
}  // namespace headrace::cpu
