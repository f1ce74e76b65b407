// Tiles of causal attention over KV blocks; the order of every sum is in kernels.h.
//
// A step of keys (then of values) is expanded to floats once for all rows of the tile; few rows use
// the codes directly (attention_direct.h), which gives the same bits. Scores and weighted sums are
// the same product of a few rows by a few vectors, held in registers. Rows of a group see nearly
// the same positions: what all see is computed together, the rest row by row, so that no row
// touches a position that it does not see. Totals stay in 16 lanes to the end. Scores are in units
// of log2, so that weights are powers of two.
#pragma once

#include "backend/cpu/kernels/generic/attention_direct.h"
#include "backend/cpu/kernels/generic/kv_codes.h"
#include "backend/cpu/kernels/generic/math.h"

namespace headrace::cpu {
namespace {

// Planes up to this are asked for a step ahead, larger ones half a step: about 16 KiB.
inline constexpr size_t kFarPlaneBytes = 2560;

inline constexpr float kLog2E = 1.44269504f;

// 2^x for x <= 0, degree 5 interpolation at Chebyshev nodes; relative error below 3e-7, 2^0 is 1,
// below -126 it is 2^-126 (nothing beside the weight 1 of the largest score), NaN stays NaN.
template <typename F>
[[gnu::always_inline]] inline typename F::V exp2_lanes(typename F::V x) {
  using V = typename F::V;
  // Adding 1.5 * 2^23 rounds to whole numbers; 127 more, and the low bits are the exponent field.
  const V magic = F::set(12582912.0f + 127.0f);
  const V clamped = F::max(F::set(-126.0f), x);
  const V shifted = F::add(clamped, magic);
  const V r = F::sub(clamped, F::sub(shifted, magic));
  V p = F::set(1.338130253736246e-3f);
  p = F::fma(p, r, F::set(9.666368515388853e-3f));
  p = F::fma(p, r, F::set(5.550381013796419e-2f));
  p = F::fma(p, r, F::set(2.4022349038020277e-1f));
  p = F::fma(p, r, F::set(6.931471805599452e-1f));
  p = F::fma(p, r, F::set(1.0f));
  return F::mul(p, F::as_floats(F::template shift_left<23>(F::as_words(shifted))));
}

template <typename F>
[[gnu::always_inline]] inline float exp2_of(float x) {
  return F::first(exp2_lanes<F>(F::set(x)));
}

// Keys of one block to [dims][kKvStep] floats, from column 0 of `to`. Asks for the bytes at `next`
// meanwhile.
template <typename F, KvDtype kType>
void load_keys(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to) {
  constexpr int kCodes = kv_word_codes(kType);
  for (int64_t d = 0; d < dims; d += kCodes) {
    KvWords<F, kType> words;
    words.load(plane + d / kCodes * 64);
    F::prefetch(next + d / kCodes * 64);
    unrolled<0, kCodes>([&](auto code) __attribute__((always_inline)) {
      F::store(to + (d + code.value) * kKvStep, words.template code<code.value>());
    });
  }
}

// Values of one block to [kKvBlock][dims] floats.
template <typename F, KvDtype kType>
void load_values(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to) {
  constexpr int kCodes = kv_word_codes(kType);
  for (int64_t t = 0; t < kKvBlock; t += kCodes) {
    for (int64_t d = 0; d < dims; d += 16) {
      const int64_t at = (t / kCodes * dims + d) * 4;
      KvWords<F, kType> words;
      words.load(plane + at);
      F::prefetch(next + at);
      unrolled<0, kCodes>([&](auto code) __attribute__((always_inline)) {
        F::store(to + (t + code.value) * dims + d, words.template code<code.value>());
      });
    }
  }
}

template <typename F>
struct KvLoader {
  void (*keys)(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to);
  void (*values)(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to);
};

template <typename F, KvDtype kType>
constexpr KvLoader<F> kv_loader() {
  return {&load_keys<F, kType>, &load_values<F, kType>};
}

template <typename F>
struct KvLoaders {  // by KvDtype
  static constexpr KvLoader<F> kRows[kNumKvDtypes] = {
      kv_loader<F, KvDtype::kF32>(), kv_loader<F, KvDtype::kBF16>(), kv_loader<F, KvDtype::kF16>(),
      kv_loader<F, KvDtype::kFp8>(), kv_loader<F, KvDtype::kInt8>()};
};

// c[r] = factors[r] c[r] (or 0) + sum over k, in order, of a[r][k] b[k].
struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int64_t count;
  float* c;
  int64_t c_stride;
  const float* factors;  // or null: from 0
};

template <typename F, int kRows, int kVectors>
void multiply(const Product& p) {
  using V = typename F::V;
  float* const c = p.c;
  const int64_t c_stride = p.c_stride;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.factors == nullptr
                      ? F::zero()
                      : F::mul(F::load(c + r * c_stride + v * 16), F::set(p.factors[r]));
    }
  }
  const float* b = p.b;
  for (int64_t k = 0; k < p.count; ++k, b += p.b_stride) {
    V column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = F::load(b + v * 16);
    for (int r = 0; r < kRows; ++r) {
      const V a = F::set(p.a[r * p.a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = F::fma(a, column[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) F::store(c + r * c_stride + v * 16, sum[r][v]);
  }
}

struct ProductRow {  // by vectors - 1
  void (*by_vectors[4])(const Product&);
};

template <typename F, int kRows>
constexpr ProductRow product_row() {
  static_assert(F::kAttendVectors == 1 || F::kAttendVectors == 4);
  if constexpr (F::kAttendVectors == 1) {
    return {{&multiply<F, kRows, 1>, nullptr, nullptr, nullptr}};
  } else {
    return {{&multiply<F, kRows, 1>, &multiply<F, kRows, 2>, &multiply<F, kRows, 3>,
             &multiply<F, kRows, 4>}};
  }
}

template <typename F>
struct Products {  // by rows - 1
  static_assert(F::kAttendRows == 6);
  static constexpr ProductRow kRows[F::kAttendRows] = {product_row<F, 1>(), product_row<F, 2>(),
                                                       product_row<F, 3>(), product_row<F, 4>(),
                                                       product_row<F, 5>(), product_row<F, 6>()};
};

// The product for `rows` rows and any number of vectors.
template <typename F>
void multiply_rows(int rows, int64_t vectors, Product p) {
  const ProductRow& products = Products<F>::kRows[rows - 1];
  while (vectors > 0) {
    const int64_t width = smaller(vectors, F::kAttendVectors);
    products.by_vectors[width - 1](p);
    p.b += width * 16;
    p.c += width * 16;
    vectors -= width;
  }
}

// kCapped: scores have a soft cap. kScaled: KV codes have scales.
template <typename F, bool kCapped, bool kScaled>
struct AttendTile {
  using V = typename F::V;
  static constexpr int kStepVectors = kKvStep / 16;

  const AttentionRowsArgs& args;
  const KvLoader<F>& loader;
  const DirectRow* direct;  // by rows of a product - 1, or null: steps are expanded
  int64_t dims;             // padded
  size_t plane;             // bytes
  bool far;                 // direct products ask for bytes of the next step, not of this one
  size_t kv_offset;
  int rows;
  int num_groups;
  int group_rows;
  int num_larger_groups;  // the first have one row more
  float* kv;              // a step of keys or values
  float* q;               // [rows, dims], scaled
  float* acc;
  float* merged;
  float* scores;         // [rows, kKvStep]
  float* totals;         // [rows, 16]
  float* merged_totals;  // [rows, 16]
  float* key_scales;     // [kKvStep]
  float* value_scales;
  int64_t lowest[kAttentionRows];
  int64_t end[kAttentionRows];
  float top[kAttentionRows];
  float merged_top[kAttentionRows];
  float correction[kAttentionRows + 16];  // of the step
  int step_begin[kAttentionRows];         // visible part of the step
  int step_end[kAttentionRows];
  const uint8_t* keys[kStepBlocks];  // planes of the step's blocks
  const uint8_t* values[kStepBlocks];
  const uint8_t* next_keys[kStepBlocks];
  const uint8_t* next_values[kStepBlocks];

  explicit AttendTile(const AttentionRowsArgs& a)
      : args(a),
        loader(KvLoaders<F>::kRows[static_cast<int>(a.kv_type)]),
        direct(a.num_rows <= kDirectAttendRows<F>
                   ? DirectProducts<F>::kTypes[static_cast<int>(a.kv_type)].rows
                   : nullptr),
        dims(padded_dim(a.head_dim)),
        plane(kv_plane_bytes(a.kv_type, a.head_dim)),
        far(plane <= kFarPlaneBytes),
        kv_offset(static_cast<size_t>(a.kv_head) * 2 * plane),
        rows(static_cast<int>(a.num_rows)),
        num_groups((rows + (direct != nullptr ? kDirectRows<F> : F::kAttendRows) - 1) /
                   (direct != nullptr ? kDirectRows<F> : F::kAttendRows)),
        group_rows(rows / num_groups),
        num_larger_groups(rows % num_groups),
        kv(a.scratch),
        q(kv + kKvStep * dims),
        acc(q + rows * dims),
        merged(acc + rows * dims),
        scores(merged + rows * dims),
        totals(scores + rows * kKvStep),
        merged_totals(totals + rows * 16),
        key_scales(merged_totals + rows * 16),
        value_scales(key_scales + kKvStep) {
    for (int r = 0; r < rows; ++r) {
      lowest[r] = attention_lowest(args, args.first_row + r);
      end[r] = attention_end(args, args.first_row + r);
    }
  }

  int64_t row_offset(int r) const {
    const int group = args.num_heads / args.num_kv_heads;
    const int64_t row = args.first_row + r;
    return row / group * args.row_stride +
           (args.kv_head * group + row % group) * int64_t{args.head_dim};
  }

  void load_queries() {
    const float factor = kCapped ? args.scale : args.scale * kLog2E;
    constexpr int kRowsAhead = 8;
    for (int r = 0; r < rows; ++r) {
      const float* from = args.q + row_offset(r);
      const auto* ahead = reinterpret_cast<const uint8_t*>(
          args.q + row_offset(static_cast<int>(smaller(r + kRowsAhead, rows - 1))));
      for (int64_t d = 0; d < args.head_dim; d += 16) F::prefetch(ahead + 4 * d);
      for (int64_t d = 0; d < args.head_dim; d += 16) {
        const V v = F::load_part(from + d, smaller(16, args.head_dim - d));
        F::store(q + r * dims + d, F::mul(v, F::set(factor)));
      }
    }
  }

  const uint8_t* keys_of(int64_t block) const {
    return args.kv_base + static_cast<size_t>(args.block_table[block]) * args.kv_block_stride +
           kv_offset;
  }

  // The same plane one step later, or of this block if that holds nothing for the tile.
  const uint8_t* next_of(int64_t block) const {
    const int64_t later = block + kKvStep / kKvBlock;
    return keys_of(later * kKvBlock < end[rows - 1] ? later : block);
  }

  void load_scales(const uint8_t* planes, float* to) const {
    F::store(to, F::load_bytes_as_float(planes + kv_scales_offset(args.kv_type, args.head_dim)));
  }

  // fn(first row, number of rows) for even groups of at most as many as a product takes.
  template <typename Fn>
  [[gnu::always_inline]] inline void for_groups(const Fn& fn) {
    int first = 0;
    for (int g = 0; g < num_groups; ++g) {
      const int count = group_rows + (g < num_larger_groups ? 1 : 0);
      fn(first, count);
      first += count;
    }
  }

  // Scores of rows [first, first + count) with the keys of the step that any of them sees.
  template <bool kWhole>
  void score(int first, int count, int64_t step) {
    int64_t begin = 0, limit = kStepBlocks;
    if constexpr (!kWhole) {
      begin = larger(lowest[first] - step, 0) / kKvBlock;
      limit = (smaller(end[first + count - 1] - step, kKvStep) + kKvBlock - 1) / kKvBlock;
      if (begin >= limit) return;
    }
    if (direct != nullptr) {
      return run_direct(direct[count - 1].scores,
                        {keys, far ? next_keys : values, args.head_dim, dims, q + first * dims,
                         dims, scores + first * kKvStep, kKvStep, 0, 0, nullptr},
                        begin, limit);
    }
    multiply_rows<F>(count, limit - begin,
                     {q + first * dims, dims, kv + begin * kKvBlock, kKvStep, args.head_dim,
                      scores + first * kKvStep + begin * kKvBlock, kKvStep, nullptr});
  }

  // Makes the scores of row r final (in units of log2, -inf where hidden) and moves its top.
  template <bool kMasked>
  [[gnu::always_inline]] inline void raise_top(int r) {
    float* row = scores + r * kKvStep;
    const V hidden = F::set(-__builtin_inff());
    V value[kStepVectors];
    for (int v = 0; v < kStepVectors; ++v) {
      value[v] = F::load(row + v * 16);
      if constexpr (kScaled) value[v] = F::mul(value[v], F::load(key_scales + v * 16));
      if constexpr (kCapped) {
        value[v] = F::mul(soft_cap<F>(value[v], args.softcap), F::set(kLog2E));
      }
      if constexpr (kMasked) {
        const V lane = F::add(F::lane_numbers(), F::set(static_cast<float>(16 * v)));
        value[v] =
            F::select_less(lane, F::set(static_cast<float>(step_begin[r])), hidden, value[v]);
        value[v] = F::select_less(lane, F::set(static_cast<float>(step_end[r])), value[v], hidden);
      }
      if constexpr (kScaled || kCapped || kMasked) F::store(row + v * 16, value[v]);
    }
    const float step_top =
        F::fold_max(F::max(F::max(value[0], value[1]), F::max(value[2], value[3])));
    const float highest = step_top > top[r] ? step_top : top[r];
    correction[r] = top[r] - highest;
    top[r] = highest;
  }

  // Turns the scores of row r into weights.
  [[gnu::always_inline]] inline void make_weights(int r) {
    float* row = scores + r * kKvStep;
    const V highest = F::set(top[r]);
    V sum = F::zero();
    for (int v = 0; v < kStepVectors; ++v) {
      V weight = exp2_lanes<F>(F::sub(F::load(row + v * 16), highest));
      sum = F::add(sum, weight);
      if constexpr (kScaled) weight = F::mul(weight, F::load(value_scales + v * 16));
      F::store(row + v * 16, weight);
    }
    F::store(totals + r * 16, F::fma(F::load(totals + r * 16), F::set(correction[r]), sum));
  }

  // Rows of a group go side by side, so that their chains of dependent steps overlap. kWhole: all
  // see all of the step.
  template <bool kWhole>
  void soften_rows(int first, int count, int64_t step) {
    for (int r = first; r < first + count; ++r) {
      if constexpr (kWhole) {
        raise_top<false>(r);
        continue;
      }
      step_begin[r] = static_cast<int>(larger(lowest[r] - step, 0));
      step_end[r] = static_cast<int>(smaller(end[r] - step, kKvStep));
      correction[r] = 0.0f;
      if (step_begin[r] == 0 && step_end[r] == kKvStep) {
        raise_top<false>(r);
      } else if (step_begin[r] < step_end[r]) {
        raise_top<true>(r);
      }
    }
    F::store(correction + first, exp2_lanes<F>(F::load(correction + first)));
    for (int r = first; r < first + count; ++r) {
      if (kWhole || step_begin[r] < step_end[r]) make_weights(r);
    }
  }

  // Adds the values at [begin, limit) of the step to rows [first, first + count).
  void add_values(int first, int count, int64_t begin, int64_t limit) {
    if (begin >= limit) return;
    if (direct != nullptr) {
      run_direct(
          direct[count - 1].sums,
          {values, far ? next_values : next_keys, args.head_dim, dims, scores + first * kKvStep,
           kKvStep, acc + first * dims, dims, begin, limit, correction + first},
          0, dims / 16);
      for (int r = first; r < first + count; ++r) correction[r] = 1.0f;
      return;
    }
    multiply_rows<F>(count, dims / 16,
                     {scores + first * kKvStep + begin, kKvStep, kv + begin * dims, dims,
                      limit - begin, acc + first * dims, dims, correction + first});
    for (int r = first; r < first + count; ++r) correction[r] = 1.0f;
  }

  void add_group(int first, int count) {
    int begin = 0, limit = kKvStep;
    for (int r = first; r < first + count; ++r) {
      begin = static_cast<int>(larger(begin, step_begin[r]));
      limit = static_cast<int>(smaller(limit, step_end[r]));
    }
    if (begin >= limit) {
      for (int r = first; r < first + count; ++r) add_values(r, 1, step_begin[r], step_end[r]);
      return;
    }
    for (int r = first; r < first + count; ++r) add_values(r, 1, step_begin[r], begin);
    add_values(first, count, begin, limit);
    for (int r = first; r < first + count; ++r) add_values(r, 1, limit, step_end[r]);
  }

  // Finds the planes of blocks [begin, limit) and expands the keys, unless they are used directly.
  void load_step(int64_t step, int64_t begin, int64_t limit) {
    for (int64_t block = begin; block < limit; ++block) {
      const int64_t column = block * kKvBlock - step;
      const int64_t b = column / kKvBlock;
      keys[b] = keys_of(block);
      values[b] = keys[b] + plane;
      next_keys[b] = next_of(block);
      next_values[b] = next_keys[b] + plane;
      if (direct == nullptr) loader.keys(keys[b], next_keys[b], dims, kv + column);
      if constexpr (kScaled) {
        load_scales(keys[b], key_scales + column);
        load_scales(keys[b] + plane, value_scales + column);
      }
    }
  }

  // A group's scores are softened after the products of the next, which do not wait for them.
  template <bool kWhole>
  void weigh(int64_t step) {
    int held = 0, num_held = 0;
    for_groups([&](int first, int count) __attribute__((always_inline)) {
      score<kWhole>(first, count, step);
      if (num_held > 0) soften_rows<kWhole>(held, num_held, step);
      held = first;
      num_held = count;
    });
    soften_rows<kWhole>(held, num_held, step);
  }

  void run_step(int64_t step) {
    const int64_t begin = larger(step, lowest[0]) / kKvBlock;
    const int64_t limit = (smaller(step + kKvStep, end[rows - 1]) - 1) / kKvBlock + 1;
    const bool whole = step >= lowest[rows - 1] && step + kKvStep <= end[0];
    load_step(step, begin, limit);
    whole ? weigh<true>(step) : weigh<false>(step);
    for (int64_t block = begin; block < limit && direct == nullptr; ++block) {
      const int64_t column = block * kKvBlock - step;
      const int64_t b = column / kKvBlock;
      loader.values(values[b], next_values[b], dims, kv + column * dims);
    }
    for_groups([&](int first, int count) __attribute__((always_inline)) {
      whole ? add_values(first, count, 0, kKvStep) : add_group(first, count);
    });
  }

  void run_split(int64_t split) {
    for (int r = 0; r < rows; ++r) {
      top[r] = -__builtin_inff();
      F::store(totals + r * 16, F::zero());
      for (int64_t d = 0; d < dims; d += 16) F::store(acc + r * dims + d, F::zero());
    }
    const int64_t begin = larger(split * kKvSplit, lowest[0]) / kKvStep * kKvStep;
    const int64_t limit = smaller((split + 1) * kKvSplit, end[rows - 1]);
    for (int64_t step = begin; step < limit; step += kKvStep) run_step(step);
  }

  bool sees(int r, int64_t split) const {
    return lowest[r] < (split + 1) * kKvSplit && end[r] > split * kKvSplit;
  }
  bool is_first(int r, int64_t split) const { return lowest[r] / kKvSplit == split; }

  // Folds a partial of row r into its merged state.
  void fold(int r, bool is_first, float part_top, const float* part_total, const float* part_acc) {
    float* sums = merged + r * dims;
    float* total = merged_totals + r * 16;
    if (is_first) {
      merged_top[r] = part_top;
      F::store(total, F::load(part_total));
      for (int64_t d = 0; d < dims; d += 16) F::store(sums + d, F::load(part_acc + d));
      return;
    }
    const float highest = part_top > merged_top[r] ? part_top : merged_top[r];
    const V old_factor = exp2_lanes<F>(F::set(merged_top[r] - highest));
    const V new_factor = exp2_lanes<F>(F::set(part_top - highest));
    merged_top[r] = highest;
    const auto add = [&](const float* from, float* to) __attribute__((always_inline)) {
      F::store(to, F::fma(F::load(from), new_factor, F::mul(F::load(to), old_factor)));
    };
    add(part_total, total);
    for (int64_t d = 0; d < dims; d += 16) add(part_acc + d, sums + d);
  }

  void write_row(int r) {
    float denominator = F::fold_sum(F::load(merged_totals + r * 16));
    float factor = 1.0f;
    if (args.sinks != nullptr) {
      const int group = args.num_heads / args.num_kv_heads;
      const float sink = args.sinks[args.kv_head * group + (args.first_row + r) % group] * kLog2E;
      const float highest = sink > merged_top[r] ? sink : merged_top[r];
      factor = exp2_of<F>(merged_top[r] - highest);
      denominator = __builtin_fmaf(denominator, factor, exp2_of<F>(sink - highest));
    }
    const V scale = F::set(factor / denominator);
    float* out = args.out + row_offset(r);
    for (int64_t d = 0; d < args.head_dim; d += 16) {
      F::store_part(out + d, F::mul(F::load(merged + r * dims + d), scale),
                    smaller(16, args.head_dim - d));
    }
  }

  float* partial(int r, int64_t split) const {
    return args.partials +
           ((split - lowest[0] / kKvSplit) * rows + r) * partial_floats(args.head_dim);
  }

  void write_partials(int64_t split) {
    for (int r = 0; r < rows; ++r) {
      if (!sees(r, split)) continue;
      float* to = partial(r, split);
      for (int64_t d = 0; d < dims; d += 16) F::store(to + d, F::load(acc + r * dims + d));
      F::store(to + dims, F::load(totals + r * 16));
      to[dims + 16] = top[r];
    }
  }

  void merge() {
    const int64_t limit = (end[rows - 1] - 1) / kKvSplit + 1;
    for (int r = 0; r < rows; ++r) {
      for (int64_t split = lowest[0] / kKvSplit; split < limit; ++split) {
        if (!sees(r, split)) continue;
        const float* from = partial(r, split);
        fold(r, is_first(r, split), from[dims + 16], from + dims, from);
      }
      write_row(r);
    }
  }

  void run() {
    if (args.work == AttentionWork::kMerge) return merge();
    load_queries();
    if (args.work == AttentionWork::kSplit) {
      run_split(args.split);
      return write_partials(args.split);
    }
    const int64_t limit = (end[rows - 1] - 1) / kKvSplit + 1;
    for (int64_t split = lowest[0] / kKvSplit; split < limit; ++split) {
      run_split(split);
      for (int r = 0; r < rows; ++r) {
        if (!sees(r, split)) continue;
        fold(r, is_first(r, split), top[r], totals + r * 16, acc + r * dims);
      }
    }
    for (int r = 0; r < rows; ++r) write_row(r);
  }
};

template <typename F, bool kCapped, bool kScaled>
void attend(const AttentionRowsArgs& args) {
  AttendTile<F, kCapped, kScaled> tile(args);
  tile.run();
}

template <typename F>
void attention(const AttentionRowsArgs& args) {
  if (args.num_rows == 0) return;
  if (kv_is_scaled(args.kv_type)) {
    args.softcap > 0 ? attend<F, true, true>(args) : attend<F, false, true>(args);
  } else {
    args.softcap > 0 ? attend<F, true, false>(args) : attend<F, false, false>(args);
  }
}

}  // namespace
}  // namespace headrace::cpu
