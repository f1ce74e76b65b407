// Causal attention over KV blocks: online softmax in steps of kKvStep positions from position 0.
//
// Up to kAttendQueries queries that share a KV head go through the steps together, so that keys and
// values are read once for all. What one query computes depends on its own position and KV alone:
// scores are dots in order of the dimensions; a step's maximum and sum are over 64 lanes (hidden
// ones are -inf and 0) folded in a fixed order; values are added in order of the positions, hidden
// ones left out (they may hold anything).
#pragma once

#include "backend/cpu/kernels/generic/math.h"

namespace headrace::cpu {
namespace {

struct Query {
  const float* q;
  float* out;
  int64_t lowest;  // first visible position
  int64_t end;     // one past the last visible
  int head;
};

struct SoftmaxState {
  float top;
  float total;
  float correction;  // of the last step
  int begin;         // visible part of the last step, relative to it
  int end;
};

// Reads keys or values of one position vector as floats.
template <typename F, KvDtype kType>
struct KvReader {
  using V = typename F::V;
  [[gnu::always_inline]] inline static V key(const uint8_t* plane, int64_t d) {
    if constexpr (kType == KvDtype::kF32) return F::load_bytes_as_float(plane + d * 64);
    const uint8_t* words = plane + (d / 2) * 64;
    if (d % 2 == 0) return F::template bf16_of_word<0>(words);
    return F::template bf16_of_word<1>(words);
  }
  [[gnu::always_inline]] inline static V value(const uint8_t* plane, int64_t dims, int64_t t,
                                               int64_t d) {
    if constexpr (kType == KvDtype::kF32) {
      return F::load_bytes_as_float(plane + (t * dims + d) * 4);
    }
    const uint8_t* words = plane + ((t / 2) * dims + d) * 4;
    if (t % 2 == 0) return F::template bf16_of_word<0>(words);
    return F::template bf16_of_word<1>(words);
  }
};

template <typename F, KvDtype kType, int kQueries>
struct AttendTile {
  using V = typename F::V;
  using Reader = KvReader<F, kType>;

  const AttentionRowsArgs& args;
  const Query* queries;
  size_t plane;      // bytes of a K or V plane
  int64_t dims;      // padded
  size_t kv_offset;  // of the KV head within a block
  float* scores;     // [kQueries, kKvStep]
  float* acc;        // [kQueries, dims]
  SoftmaxState state[kQueries];

  [[gnu::always_inline]] inline const uint8_t* keys_of(int64_t block) const {
    return args.kv_base + static_cast<size_t>(args.block_table[block]) * args.kv_block_stride +
           kv_offset;
  }

  // Dots of all queries with the keys of kBlocks blocks from `block`, written at column.
  template <int kBlocks>
  [[gnu::always_inline]] inline void dots(int64_t block, int64_t column) {
    const uint8_t* keys[kBlocks];
    for (int b = 0; b < kBlocks; ++b) keys[b] = keys_of(block + b);
    V sum[kQueries][kBlocks];
    for (int r = 0; r < kQueries; ++r) {
      for (int b = 0; b < kBlocks; ++b) sum[r][b] = F::zero();
    }
    for (int64_t d = 0; d < args.head_dim; ++d) {
      V k[kBlocks];
      for (int b = 0; b < kBlocks; ++b) k[b] = Reader::key(keys[b], d);
      for (int r = 0; r < kQueries; ++r) {
        const V q = F::set(queries[r].q[d]);
        for (int b = 0; b < kBlocks; ++b) sum[r][b] = F::fma(q, k[b], sum[r][b]);
      }
    }
    for (int r = 0; r < kQueries; ++r) {
      for (int b = 0; b < kBlocks; ++b) {
        F::store(scores + r * kKvStep + column + b * kKvBlock, sum[r][b]);
      }
    }
  }

  // Turns the scores of query r into weights and updates its state.
  [[gnu::always_inline]] inline void soften(int r, int64_t step) {
    constexpr int kVectors = kKvStep / 16;
    SoftmaxState& s = state[r];
    s.begin = static_cast<int>(larger(queries[r].lowest - step, 0));
    s.end = static_cast<int>(smaller(queries[r].end - step, kKvStep));
    if (s.begin >= s.end) return;
    float* row = scores + r * kKvStep;
    const V hidden = F::set(-__builtin_inff());
    V value[kVectors];
    V highest = hidden;
    for (int v = 0; v < kVectors; ++v) {
      V score = F::mul(F::load(row + v * 16), F::set(args.scale));
      if (args.softcap > 0) score = soft_cap<F>(score, args.softcap);
      const V lane = F::add(F::lane_numbers(), F::set(static_cast<float>(16 * v)));
      score = F::select_less(lane, F::set(static_cast<float>(s.begin)), hidden, score);
      value[v] = F::select_less(lane, F::set(static_cast<float>(s.end)), score, hidden);
      highest = F::max(highest, value[v]);
    }
    const float step_top = F::fold_max(highest);
    const float top = step_top > s.top ? step_top : s.top;
    s.correction = F::first(exp_lanes<F>(F::set(s.top - top)));
    V sum = F::zero();
    for (int v = 0; v < kVectors; ++v) {
      const V weight = exp_lanes<F>(F::sub(value[v], F::set(top)));
      F::store(row + v * 16, weight);
      sum = F::add(sum, weight);
    }
    s.total = s.total * s.correction + F::fold_sum(sum);
    s.top = top;
  }

  // acc = correction acc + sum over positions [begin, end) of the step, dimensions d.. of kVectors
  // vectors, for queries [first, first + kCount).
  template <int kCount, int kVectors>
  [[gnu::always_inline]] inline void add_values(int first, int64_t step, int begin, int end,
                                                int64_t d) {
    V sum[kCount][kVectors];
    for (int r = 0; r < kCount; ++r) {
      const V correction = F::set(state[first + r].correction);
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = F::mul(F::load(acc + (first + r) * dims + d + v * 16), correction);
      }
    }
    const float* weights = scores + first * kKvStep;
    for (int t = begin; t < end;) {
      const uint8_t* values = keys_of((step + t) / kKvBlock) + plane;
      const int block_end = static_cast<int>(smaller(end, (t / kKvBlock + 1) * kKvBlock));
      for (; t < block_end; ++t) {
        V value[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          value[v] = Reader::value(values, dims, t % kKvBlock, d + v * 16);
        }
        for (int r = 0; r < kCount; ++r) {
          const V weight = F::set(weights[r * kKvStep + t]);
          for (int v = 0; v < kVectors; ++v) sum[r][v] = F::fma(weight, value[v], sum[r][v]);
        }
      }
    }
    for (int r = 0; r < kCount; ++r) {
      for (int v = 0; v < kVectors; ++v) F::store(acc + (first + r) * dims + d + v * 16, sum[r][v]);
    }
  }

  template <int kCount>
  void add_all_values(int first, int64_t step, int begin, int end) {
    constexpr int kVectors = F::kAttendVectors;
    int64_t d = 0;
    for (; d + kVectors * 16 <= dims; d += kVectors * 16) {
      add_values<kCount, kVectors>(first, step, begin, end, d);
    }
    for (; d < dims; d += 16) add_values<kCount, 1>(first, step, begin, end, d);
  }

  void run_step(int64_t step, int64_t begin, int64_t end) {
    constexpr int kBlocks = F::kAttendVectors;
    int64_t block = begin / kKvBlock;
    const int64_t last = (end - 1) / kKvBlock + 1;
    for (; block + kBlocks <= last; block += kBlocks) dots<kBlocks>(block, block * kKvBlock - step);
    for (; block < last; ++block) dots<1>(block, block * kKvBlock - step);
    bool whole = true;
    for (int r = 0; r < kQueries; ++r) {
      soften(r, step);
      whole = whole && state[r].begin == 0 && state[r].end == kKvStep;
    }
    if (whole) {
      add_all_values<kQueries>(0, step, 0, kKvStep);
      return;
    }
    for (int r = 0; r < kQueries; ++r) {
      if (state[r].begin < state[r].end) add_all_values<1>(r, step, state[r].begin, state[r].end);
    }
  }

  void start() {
    for (int r = 0; r < kQueries; ++r) {
      const float* sink = args.sinks == nullptr ? nullptr : args.sinks + queries[r].head;
      state[r] = {sink != nullptr ? *sink : -__builtin_inff(), sink != nullptr ? 1.0f : 0.0f, 1.0f,
                  0, 0};
      for (int64_t d = 0; d < dims; d += 16) F::store(acc + r * dims + d, F::zero());
    }
  }

  void write_out() {
    for (int r = 0; r < kQueries; ++r) {
      const V total = F::set(state[r].total);
      for (int64_t d = 0; d < args.head_dim; d += 16) {
        F::store_part(queries[r].out + d, F::div(F::load(acc + r * dims + d), total),
                      smaller(16, args.head_dim - d));
      }
    }
  }

  void run() {
    start();
    int64_t lowest = queries[0].lowest;
    int64_t end = queries[0].end;
    for (int r = 1; r < kQueries; ++r) {
      lowest = smaller(lowest, queries[r].lowest);
      end = larger(end, queries[r].end);
    }
    for (int64_t step = lowest / kKvStep * kKvStep; step < end; step += kKvStep) {
      run_step(step, larger(step, lowest), smaller(step + kKvStep, end));
    }
    write_out();
  }
};

template <typename F, KvDtype kType, int kQueries>
void attend_tile(const AttentionRowsArgs& args, const Query* queries) {
  const int kv_head = queries[0].head / (args.num_heads / args.num_kv_heads);
  const size_t plane = kv_plane_bytes(kType, args.head_dim);
  AttendTile<F, kType, kQueries> tile{args,
                                      queries,
                                      plane,
                                      padded_dim(args.head_dim),
                                      static_cast<size_t>(kv_head) * 2 * plane,
                                      args.scratch,
                                      args.scratch + kQueries * kKvStep,
                                      {}};
  tile.run();
}

template <typename F, KvDtype kType, int kQueries>
int64_t attend_tiles(const AttentionRowsArgs& args, const Query* queries, int64_t first,
                     int64_t count) {
  for (; first + kQueries <= count; first += kQueries) {
    attend_tile<F, kType, kQueries>(args, queries + first);
  }
  if constexpr (kQueries > 1) {
    return attend_tiles<F, kType, kQueries - 1>(args, queries, first, count);
  }
  return first;
}

Query query_of(const AttentionRowsArgs& args, int64_t row, int head) {
  const int64_t offset = row * args.row_stride + int64_t{head} * args.head_dim;
  const int64_t end = args.first_position + row + 1;
  const int64_t lowest = args.window > 0 ? larger(0, end - args.window) : 0;
  return {args.q + offset, args.out + offset, lowest, end, head};
}

// Queries of one KV head, rows outermost, gathered kAttentionRows at a time.
template <typename F, KvDtype kType>
void attend_group(const AttentionRowsArgs& args, int first_head, int end_head) {
  Query queries[kAttentionRows];
  int64_t count = 0;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    for (int head = first_head; head < end_head; ++head) {
      queries[count++] = query_of(args, row, head);
      if (count < kAttentionRows) continue;
      attend_tiles<F, kType, F::kAttendQueries>(args, queries, 0, count);
      count = 0;
    }
  }
  attend_tiles<F, kType, F::kAttendQueries>(args, queries, 0, count);
}

template <typename F>
void attention(const AttentionRowsArgs& args) {
  const int group = args.num_heads / args.num_kv_heads;
  for (int head = args.first_head; head < args.end_head;) {
    const int end = static_cast<int>(smaller(args.end_head, (head / group + 1) * group));
    if (args.kv_type == KvDtype::kF32) {
      attend_group<F, KvDtype::kF32>(args, head, end);
    } else {
      attend_group<F, KvDtype::kBF16>(args, head, end);
    }
    head = end;
  }
}

}  // namespace
}  // namespace headrace::cpu
