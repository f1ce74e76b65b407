// State of a tile of attention, and where its queries, keys and values lie.
#pragma once

#include "backend/cpu/kernels/generic/attention_direct.h"
#include "backend/cpu/kernels/generic/attention_expand.h"
#include "backend/cpu/kernels/generic/math.h"

namespace headrace::cpu {
namespace {

// Planes up to this are asked for a step ahead, larger ones half a step: about 16 KiB.
inline constexpr size_t kFarPlaneBytes = 2560;

inline constexpr float kLog2E = 1.44269504f;

template <typename F>
struct AttendTile {
  using V = typename F::V;

  const AttentionRowsArgs& args;
  const KvLoader<F>& loader;
  const DirectRow* direct;  // by rows of a product - 1, or null: steps are expanded
  int64_t dims;             // padded
  size_t plane;             // bytes
  bool far;                 // few rows ask for bytes of the next step, not of this one
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

  explicit AttendTile(const AttentionRowsArgs& a) : AttendTile(a, a.num_rows) {}

  // With scratch for `room` rows.
  AttendTile(const AttentionRowsArgs& a, int64_t room)
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
        acc(q + room * dims),
        merged(acc + room * dims),
        scores(merged + room * dims),
        totals(scores + room * kKvStep),
        merged_totals(totals + room * 16),
        key_scales(merged_totals + room * 16),
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

  // What each position farther back takes from a score, in units of log2; 0: nothing.
  float slope_of(int r) const {
    if (args.slopes == nullptr) return 0.0f;
    const int group = args.num_heads / args.num_kv_heads;
    return args.slopes[args.kv_head * group + (args.first_row + r) % group] * kLog2E;
  }

  const uint8_t* keys_of(int64_t block) const {
    return args.kv_base + static_cast<size_t>(args.block_table[block]) * args.kv_block_stride +
           kv_offset;
  }

  // The same plane one step later; behind the last, what is attended to next, or this block.
  const uint8_t* next_of(int64_t block) const {
    const int64_t later = block + kStepBlocks;
    if (later * kKvBlock < end[rows - 1]) return keys_of(later);
    const uint8_t* following = args.following[block % kStepBlocks];
    return following != nullptr ? following : keys_of(block);
  }

  // Of a block, which is `b` of its step: its planes and those that are read a step later.
  void find_planes(int64_t block, int64_t b) {
    keys[b] = keys_of(block);
    values[b] = keys[b] + plane;
    next_keys[b] = next_of(block);
    next_values[b] = next_keys[b] + plane;
  }
  // By block of the step: planes that few rows ask for while they read its keys, or its values.
  const uint8_t* const* asked_with_keys() const { return far ? next_keys : values; }
  const uint8_t* const* asked_with_values() const { return far ? next_values : next_keys; }

  void load_block_scales(int64_t b) {
    const size_t at = kv_scales_offset(args.kv_type, args.head_dim);
    F::store(key_scales + b * kKvBlock, F::load_bytes_as_float(keys[b] + at));
    F::store(value_scales + b * kKvBlock, F::load_bytes_as_float(values[b] + at));
    F::prefetch_second(next_keys[b] + at);
    F::prefetch_second(next_values[b] + at);
  }

  // Of positions [16 v, 16 v + 16) of the step: value where row r sees them, else `hidden`.
  [[gnu::always_inline]] V visible(int r, int v, V value, V hidden) const {
    const V lane = F::add(F::lane_numbers(), F::set(static_cast<float>(16 * v)));
    value = F::select_less(lane, F::set(static_cast<float>(step_begin[r])), hidden, value);
    return F::select_less(lane, F::set(static_cast<float>(step_end[r])), value, hidden);
  }

  // Scales of the same positions' values. Those that a row does not see are 0: a hidden weight is
  // the smallest normal number, whose product with a scale costs Intel's processors some 40 ns.
  template <bool kMasked>
  [[gnu::always_inline]] V scales_of_values(int r, int v) const {
    const V scales = F::load(value_scales + v * 16);
    return kMasked ? visible(r, v, scales, F::zero()) : scales;
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

  bool sees(int r, int64_t split) const {
    return lowest[r] < (split + 1) * kKvSplit && end[r] > split * kKvSplit;
  }
  bool is_first(int r, int64_t split) const { return lowest[r] / kKvSplit == split; }

  float* partial(int r, int64_t split) const {
    return args.partials +
           ((split - lowest[0] / kKvSplit) * rows + r) * partial_floats(args.head_dim);
  }

  void load_queries(float factor) {
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
};

}  // namespace
}  // namespace headrace::cpu
