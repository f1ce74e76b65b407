// One step of a tile's softmax: scores of the step's keys, weights, weighted sums of its values.
//
// Rows of a group see nearly the same positions: what all see is computed together, the rest row by
// row, so that no row touches a position that it does not see. Scores are in units of log2, so that
// weights are powers of two.
#pragma once

#include "backend/cpu/kernels/generic/attention_products.h"
#include "backend/cpu/kernels/generic/attention_tile.h"

namespace headrace::cpu {
namespace {

// Makes the scores of row r final (in units of log2, -inf where hidden) and moves its top. They
// come from load(v), the scores of positions [16 v, 16 v + 16); kStored: it is where they go.
template <typename F, bool kCapped, bool kScaled, bool kMasked, bool kStored = false, typename Load>
[[gnu::always_inline]] inline void raise_top(AttendTile<F>& t, int r, int64_t step,
                                             const Load& load) {
  using V = typename F::V;
  constexpr int kStepVectors = kKvStep / 16;
  float* row = t.scores + r * kKvStep;
  const float slope = t.slope_of(r);
  V value[kStepVectors];
  for (int v = 0; v < kStepVectors; ++v) {
    value[v] = load(v);
    if constexpr (kScaled) value[v] = F::mul(value[v], F::load(t.key_scales + v * 16));
    if constexpr (kCapped) {
      value[v] = F::mul(soft_cap<F>(value[v], t.args.softcap), F::set(kLog2E));
    }
    if (slope != 0.0f) {
      const auto first = static_cast<float>(step + 16 * v - (t.end[r] - 1));
      value[v] = F::fma(F::add(F::lane_numbers(), F::set(first)), F::set(slope), value[v]);
    }
    if constexpr (kMasked) value[v] = t.visible(r, v, value[v], F::set(-__builtin_inff()));
    if (!kStored || kScaled || kCapped || kMasked || slope != 0.0f)
      F::store(row + v * 16, value[v]);
  }
  const float step_top =
      F::fold_max(F::max(F::max(value[0], value[1]), F::max(value[2], value[3])));
  const float highest = step_top > t.top[r] ? step_top : t.top[r];
  t.correction[r] = t.top[r] - highest;
  t.top[r] = highest;
}

// kCapped: scores have a soft cap. kScaled: KV codes have scales.
template <typename F, bool kCapped, bool kScaled>
struct AttendStep {
  using V = typename F::V;
  using Tile = AttendTile<F>;
  static constexpr bool kIsCapped = kCapped;
  static constexpr int kStepVectors = kKvStep / 16;

  AttendTile<F>& t;

  // Scores of rows [first, first + count) with the keys of the step that any of them sees.
  template <bool kWhole>
  void score(int first, int count, int64_t step) {
    int64_t begin = 0, limit = kStepBlocks;
    if constexpr (!kWhole) {
      begin = larger(t.lowest[first] - step, 0) / kKvBlock;
      limit = (smaller(t.end[first + count - 1] - step, kKvStep) + kKvBlock - 1) / kKvBlock;
      if (begin >= limit) return;
    }
    if (t.direct != nullptr) {
      return run_direct(t.direct[count - 1].scores,
                        {t.keys, t.asked_with_keys(), t.args.head_dim, t.dims, t.q + first * t.dims,
                         t.dims, t.scores + first * kKvStep, kKvStep, 0, 0, nullptr},
                        begin, limit);
    }
    multiply_rows<F>(
        count, limit - begin,
        {t.q + first * t.dims, t.dims, t.kv + begin * kKvBlock, kKvStep, t.args.head_dim,
         t.scores + first * kKvStep + begin * kKvBlock, kKvStep, nullptr});
  }

  template <bool kMasked>
  [[gnu::always_inline]] inline void raise(int r, int64_t step) {
    raise_top<F, kCapped, kScaled, kMasked, true>(t, r, step,
                                                  [&](int v) __attribute__((always_inline)) {
                                                    return F::load(t.scores + r * kKvStep + v * 16);
                                                  });
  }

  // Turns the scores of row r into weights.
  template <bool kMasked>
  [[gnu::always_inline]] inline void make_weights(int r) {
    float* row = t.scores + r * kKvStep;
    const V highest = F::set(t.top[r]);
    V sum = F::zero();
    for (int v = 0; v < kStepVectors; ++v) {
      V weight = exp2_lanes<F>(F::sub(F::load(row + v * 16), highest));
      sum = F::add(sum, weight);
      if constexpr (kScaled) {
        weight = F::mul(weight, t.template scales_of_values<kMasked>(r, v));
      }
      F::store(row + v * 16, weight);
    }
    F::store(t.totals + r * 16, F::fma(F::load(t.totals + r * 16), F::set(t.correction[r]), sum));
  }

  // Rows of a group go side by side, so that their chains of dependent steps overlap. kWhole: all
  // see all of the step.
  template <bool kWhole>
  void soften_rows(int first, int count, int64_t step) {
    for (int r = first; r < first + count; ++r) {
      if constexpr (kWhole) {
        raise<false>(r, step);
        continue;
      }
      t.step_begin[r] = static_cast<int>(larger(t.lowest[r] - step, 0));
      t.step_end[r] = static_cast<int>(smaller(t.end[r] - step, kKvStep));
      t.correction[r] = 0.0f;
      if (t.step_begin[r] == 0 && t.step_end[r] == kKvStep) {
        raise<false>(r, step);
      } else if (t.step_begin[r] < t.step_end[r]) {
        raise<true>(r, step);
      }
    }
    F::store(t.correction + first, exp2_lanes<F>(F::load(t.correction + first)));
    for (int r = first; r < first + count; ++r) {
      if (kWhole || t.step_begin[r] < t.step_end[r]) make_weights<!kWhole>(r);
    }
  }

  // Adds the values at [begin, limit) of the step to rows [first, first + count).
  void add_values(int first, int count, int64_t begin, int64_t limit) {
    if (begin >= limit) return;
    if (t.direct != nullptr) {
      run_direct(
          t.direct[count - 1].sums,
          {t.values, t.asked_with_values(), t.args.head_dim, t.dims, t.scores + first * kKvStep,
           kKvStep, t.acc + first * t.dims, t.dims, begin, limit, t.correction + first},
          0, t.dims / 16);
      for (int r = first; r < first + count; ++r) t.correction[r] = 1.0f;
      return;
    }
    multiply_rows<F>(count, t.dims / 16,
                     {t.scores + first * kKvStep + begin, kKvStep, t.kv + begin * t.dims, t.dims,
                      limit - begin, t.acc + first * t.dims, t.dims, t.correction + first});
    for (int r = first; r < first + count; ++r) t.correction[r] = 1.0f;
  }

  void add_group(int first, int count) {
    int begin = 0, limit = kKvStep;
    for (int r = first; r < first + count; ++r) {
      begin = static_cast<int>(larger(begin, t.step_begin[r]));
      limit = static_cast<int>(smaller(limit, t.step_end[r]));
    }
    if (begin >= limit) {
      for (int r = first; r < first + count; ++r) add_values(r, 1, t.step_begin[r], t.step_end[r]);
      return;
    }
    for (int r = first; r < first + count; ++r) add_values(r, 1, t.step_begin[r], begin);
    add_values(first, count, begin, limit);
    for (int r = first; r < first + count; ++r) add_values(r, 1, limit, t.step_end[r]);
  }

  // Finds the planes of blocks [begin, limit) and expands the keys, unless they are used
  // directly.
  void load_step(int64_t step, int64_t begin, int64_t limit) {
    for (int64_t block = begin; block < limit; ++block) {
      const int64_t column = block * kKvBlock - step;
      const int64_t b = column / kKvBlock;
      t.find_planes(block, b);
      if (t.direct == nullptr) t.loader.keys(t.keys[b], t.next_keys[b], t.dims, t.kv + column);
      if constexpr (kScaled) t.load_block_scales(b);
    }
  }

  // A group's scores are softened after the products of the next, which do not wait for them.
  template <bool kWhole>
  void weigh(int64_t step) {
    int held = 0, num_held = 0;
    t.for_groups([&](int first, int count) __attribute__((always_inline)) {
      score<kWhole>(first, count, step);
      if (num_held > 0) soften_rows<kWhole>(held, num_held, step);
      held = first;
      num_held = count;
    });
    soften_rows<kWhole>(held, num_held, step);
  }

  void run(int64_t step) {
    const int64_t begin = larger(step, t.lowest[0]) / kKvBlock;
    const int64_t limit = (smaller(step + kKvStep, t.end[t.rows - 1]) - 1) / kKvBlock + 1;
    const bool whole = step >= t.lowest[t.rows - 1] && step + kKvStep <= t.end[0];
    load_step(step, begin, limit);
    whole ? weigh<true>(step) : weigh<false>(step);
    for (int64_t block = begin; block < limit && t.direct == nullptr; ++block) {
      const int64_t column = block * kKvBlock - step;
      const int64_t b = column / kKvBlock;
      t.loader.values(t.values[b], t.next_values[b], t.dims, t.kv + column * t.dims);
    }
    t.for_groups([&](int first, int count) __attribute__((always_inline)) {
      whole ? add_values(first, count, 0, kKvStep) : add_group(first, count);
    });
  }
  void finish() const {}
};

}  // namespace
}  // namespace headrace::cpu
