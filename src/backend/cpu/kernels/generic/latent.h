// Tiles of latent attention over one plane of KV blocks; the order of every sum is in kernels.h.
//
// A step is expanded to floats once ([positions, width]): its rows are keys and values of all query
// heads. Rows of one token see the same positions and go together.
#pragma once

#include "backend/cpu/kernels/generic/attention_expand.h"
#include "backend/cpu/kernels/generic/attention_products.h"
#include "backend/cpu/kernels/generic/math.h"

namespace headrace::cpu {
namespace {

inline constexpr float kLatentLog2E = 1.44269504f;
inline constexpr int kDotRows = 2;  // of one product of dots
inline constexpr int kDotKeys = 8;

// Dots of two queries with eight keys, all [width]: out[0..7] of the first, out[8..15] of the
// second.
template <typename F>
void dots(const float* const (&queries)[kDotRows], const float* keys, int64_t width, float* out) {
  using V = typename F::V;
  constexpr int kPart = F::kDotPositions;
  V sums[kDotRows * kDotKeys];
  unrolled<0, kDotKeys / kPart>([&](auto part) __attribute__((always_inline)) {
    V sum[kDotRows][kPart];
    for (int r = 0; r < kDotRows; ++r) {
      for (int p = 0; p < kPart; ++p) sum[r][p] = F::zero();
    }
    const float* from = keys + part.value * kPart * width;
    for (int64_t d = 0; d < width; d += 16) {
      const V first = F::load(queries[0] + d), second = F::load(queries[1] + d);
      for (int p = 0; p < kPart; ++p) {
        const V key = F::load(from + p * width + d);
        sum[0][p] = F::fma(first, key, sum[0][p]);
        sum[1][p] = F::fma(second, key, sum[1][p]);
      }
    }
    for (int r = 0; r < kDotRows; ++r) {
      for (int p = 0; p < kPart; ++p) sums[r * kDotKeys + part.value * kPart + p] = sum[r][p];
    }
  });
  F::store(out, F::fold_sums(sums));
}

// Rows [first, first + count) of the tile: those of one token.
struct TokenRows {
  int first;
  int count;
  int64_t token;
  int64_t end;  // one past the last position that it sees
};

template <typename F>
struct LatentTile {
  using V = typename F::V;
  static constexpr int kStepVectors = kKvStep / 16;

  const LatentRowsArgs& args;
  const KvLoader<F>& loader;
  const bool scaled;
  int64_t width;  // padded
  int64_t dims;   // of a value, padded
  int rows;
  float* kv;  // [kKvStep, width]
  float* q;   // [rows, width], scaled
  float* acc;
  float* merged;
  float* scores;         // [rows, kKvStep]
  float* totals;         // [rows, 16]
  float* merged_totals;  // [rows, 16]
  float* scales;         // [kKvStep]
  float* visible;        // [kKvStep] 1 or 0
  float top[kLatentRows];
  float merged_top[kLatentRows];
  float correction[kLatentRows + 16];

  explicit LatentTile(const LatentRowsArgs& a)
      : args(a),
        loader(KvLoaders<F>::kRows[static_cast<int>(a.kv_type)]),
        scaled(kv_is_scaled(a.kv_type)),
        width(padded_dim(a.width)),
        dims(padded_dim(a.value_dim)),
        rows(static_cast<int>(a.num_rows)),
        kv(a.scratch),
        q(kv + kKvStep * width),
        acc(q + rows * width),
        merged(acc + rows * dims),
        scores(merged + rows * dims),
        totals(scores + rows * kKvStep),
        merged_totals(totals + rows * 16),
        scales(merged_totals + rows * 16),
        visible(scales + kKvStep) {}

  // fn(rows of a token), token by token.
  template <typename Fn>
  void for_tokens(const Fn& fn) const {
    for (int first = 0; first < rows;) {
      const int64_t row = args.first_row + first;
      const int64_t token = row / args.num_heads;
      const auto count =
          static_cast<int>(smaller(rows - first, (token + 1) * args.num_heads - row));
      fn(TokenRows{first, count, token, latent_end(args, row)});
      first += count;
    }
  }

  int64_t last_end() const { return latent_end(args, args.first_row + rows - 1); }

  const uint8_t* plane_of(int64_t block) const {
    return args.kv_base + static_cast<size_t>(args.block_table[block]) * args.kv_block_stride;
  }

  void load_queries() {
    const V factor = F::set(args.scale * kLatentLog2E);
    for (int r = 0; r < rows; ++r) {
      const float* from = args.q + (args.first_row + r) * args.width;
      for (int64_t d = 0; d < args.width; d += 16) {
        const V v = F::load_part(from + d, smaller(16, args.width - d));
        F::store(q + r * width + d, F::mul(v, factor));
      }
    }
  }

  // Blocks of the step that the tile's last row sees.
  void load_step(int64_t step) {
    const int64_t limit = smaller(step + kKvStep, last_end());
    for (int64_t position = step; position < limit; position += kKvBlock) {
      const int64_t block = position / kKvBlock;
      const uint8_t* plane = plane_of(block);
      const int64_t later = position + kKvStep < last_end() ? block + kStepBlocks : block;
      loader.values(plane, plane_of(later), width, kv + (position - step) * width);
      if (!scaled) continue;
      F::store(scales + (position - step),
               F::load_bytes_as_float(plane + kv_scales_offset(args.kv_type, args.width)));
    }
  }

  // Which of the step's positions below `count` the token sees; false: none. Steps come in
  // ascending order.
  bool find_visible(const TokenRows& token, int64_t step, int64_t count) {
    const int32_t* kept =
        args.kept == nullptr ? nullptr : args.kept + token.token * args.kept_stride;
    const bool all = kept == nullptr || kept[0] < 0;
    for (int64_t p = 0; p < kKvStep; ++p) visible[p] = all && p < count ? 1.0f : 0.0f;
    if (all) return true;
    int64_t low = 1, high = int64_t{kept[0]} + 1;  // the first kept position of the step
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      kept[middle] < step ? low = middle + 1 : high = middle;
    }
    bool any = false;
    for (; low <= kept[0] && kept[low] < step + count; ++low) {
      visible[kept[low] - step] = 1.0f;
      any = true;
    }
    return any;
  }

  void score(const TokenRows& token, int64_t count) {
    for (int r = 0; r < token.count; r += kDotRows) {
      const int other = r + 1 < token.count ? r + 1 : r;
      const float* const queries[kDotRows] = {q + (token.first + r) * width,
                                              q + (token.first + other) * width};
      float* first = scores + (token.first + r) * kKvStep;
      float* second = scores + (token.first + other) * kKvStep;
      for (int64_t p = 0; p < count; p += kDotKeys) {
        alignas(64) float out[16];
        dots<F>(queries, kv + p * width, width, out);
        __builtin_memcpy(second + p, out + 8, 8 * sizeof(float));
        if (other == r) __builtin_memcpy(second + p, out, 8 * sizeof(float));
        __builtin_memcpy(first + p, out, 8 * sizeof(float));
      }
    }
  }

  // Scores of row r, hidden ones -inf; its top rises.
  void raise_top(int r, bool masked) {
    float* row = scores + r * kKvStep;
    V value[kStepVectors];
    for (int v = 0; v < kStepVectors; ++v) {
      value[v] = F::load(row + v * 16);
      if (scaled) value[v] = F::mul(value[v], F::load(scales + v * 16));
      if (masked) {
        value[v] = F::select_less(F::load(visible + v * 16), F::set(0.5f),
                                  F::set(-__builtin_inff()), value[v]);
      }
      F::store(row + v * 16, value[v]);
    }
    const float step_top =
        F::fold_max(F::max(F::max(value[0], value[1]), F::max(value[2], value[3])));
    const float highest = step_top > top[r] ? step_top : top[r];
    correction[r] = top[r] - highest;
    top[r] = highest;
  }

  void make_weights(int r, bool masked) {
    float* row = scores + r * kKvStep;
    const V highest = F::set(top[r]);
    V sum = F::zero();
    for (int v = 0; v < kStepVectors; ++v) {
      V weight = exp2_lanes<F>(F::sub(F::load(row + v * 16), highest));
      if (masked) {
        weight = F::select_less(F::load(visible + v * 16), F::set(0.5f), F::zero(), weight);
      }
      sum = F::add(sum, weight);
      if (scaled) weight = F::mul(weight, F::load(scales + v * 16));
      F::store(row + v * 16, weight);
    }
    F::store(totals + r * 16, F::fma(F::load(totals + r * 16), F::set(correction[r]), sum));
  }

  void soften(const TokenRows& token, bool masked) {
    for (int r = token.first; r < token.first + token.count; ++r) raise_top(r, masked);
    for (int r = token.first; r < token.first + token.count; r += 16) {
      F::store(correction + r, exp2_lanes<F>(F::load(correction + r)));
    }
    for (int r = token.first; r < token.first + token.count; ++r) make_weights(r, masked);
  }

  // A block of columns stays near the core while all groups of rows take it.
  void add_values(const TokenRows& token, int64_t count) {
    const int64_t vectors = dims / 16;
    for (int64_t v = 0; v < vectors; v += F::kAttendVectors) {
      for (int r = 0; r < token.count; r += F::kAttendRows) {
        const int row = token.first + r;
        multiply_rows<F>(static_cast<int>(smaller(F::kAttendRows, token.count - r)),
                         smaller(F::kAttendVectors, vectors - v),
                         {scores + row * kKvStep, kKvStep, kv + v * 16, width, count,
                          acc + row * dims + v * 16, dims, correction + row});
      }
    }
  }

  void run_step(int64_t step) {
    bool loaded = false;
    for_tokens([&](const TokenRows& token) {
      const int64_t count = smaller(token.end - step, kKvStep);
      if (count <= 0 || !find_visible(token, step, count)) return;
      if (!loaded) load_step(step);
      loaded = true;
      const bool masked = count < kKvStep || args.kept != nullptr;
      score(token, count);
      soften(token, masked);
      add_values(token, count);
    });
  }

  // Partial sums of one split.
  void run_split(int64_t split) {
    for (int r = 0; r < rows; ++r) {
      top[r] = -__builtin_inff();
      F::store(totals + r * 16, F::zero());
      for (int64_t d = 0; d < dims; d += 16) F::store(acc + r * dims + d, F::zero());
    }
    const int64_t limit = smaller((split + 1) * kKvSplit, last_end());
    for (int64_t step = split * kKvSplit; step < limit; step += kKvStep) run_step(step);
  }

  // Folds a partial of row r into its merged state; one that saw nothing is left out.
  void fold(int r, float part_top, const float* part_total, const float* part_acc) {
    if (part_top == -__builtin_inff()) return;
    float* sums = merged + r * dims;
    float* total = merged_totals + r * 16;
    if (merged_top[r] == -__builtin_inff()) {
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

  float* partial(int r, int64_t split) const {
    return args.partials + (split * rows + r) * partial_floats(args.value_dim);
  }

  void write_partials(int64_t split) const {
    for (int r = 0; r < rows; ++r) {
      float* to = partial(r, split);
      for (int64_t d = 0; d < dims; d += 16) F::store(to + d, F::load(acc + r * dims + d));
      F::store(to + dims, F::load(totals + r * 16));
      to[dims + 16] = top[r];
    }
  }

  // Every split of the tile, computed here or before, in order.
  void merge(bool computed) {
    for (int r = 0; r < rows; ++r) merged_top[r] = -__builtin_inff();
    const int64_t limit = (last_end() - 1) / kKvSplit + 1;
    for (int64_t split = 0; split < limit; ++split) {
      if (!computed) run_split(split);
      for (int r = 0; r < rows; ++r) {
        if (!computed) {
          fold(r, top[r], totals + r * 16, acc + r * dims);
        } else if (split * kKvSplit < latent_end(args, args.first_row + r)) {
          const float* from = partial(r, split);
          fold(r, from[dims + 16], from + dims, from);
        }
      }
    }
    for (int r = 0; r < rows; ++r) write_row(r);
  }

  void write_row(int r) const {
    const V scale = F::set(1.0f / F::fold_sum(F::load(merged_totals + r * 16)));
    float* out = args.out + (args.first_row + r) * args.value_dim;
    for (int64_t d = 0; d < args.value_dim; d += 16) {
      F::store_part(out + d, F::mul(F::load(merged + r * dims + d), scale),
                    smaller(16, args.value_dim - d));
    }
  }
};

template <typename F>
void latent(const LatentRowsArgs& args) {
  if (args.num_rows == 0) return;
  LatentTile<F> tile(args);
  if (args.work == AttentionWork::kMerge) return tile.merge(true);
  tile.load_queries();
  if (args.work == AttentionWork::kWhole) return tile.merge(false);
  tile.run_split(args.split);
  tile.write_partials(args.split);
}

// ---- Index scores -------------------------------------------------------------------------------

template <typename F>
void index_scores(const IndexRowArgs& args) {
  using V = typename F::V;
  const int64_t dims = padded_dim(args.dim);
  const int64_t count = smaller(args.end - args.step, kKvStep);
  const auto& loader = KvLoaders<F>::kRows[static_cast<int>(args.kv_type)];
  float* keys = args.scratch;  // [dims, kKvStep]
  float* products = keys + kKvStep * dims;
  float* scales = products + args.num_heads * kKvStep;
  for (int64_t p = 0; p < kKvStep; p += 16) F::store(scales + p, F::set(1.0f));
  for (int64_t p = 0; p < count; p += kKvBlock) {
    const uint8_t* plane =
        args.kv_base +
        static_cast<size_t>(args.block_table[(args.step + p) / kKvBlock]) * args.kv_block_stride;
    loader.keys(plane, plane, dims, keys + p);
    if (!kv_is_scaled(args.kv_type)) continue;
    F::store(scales + p, F::load_bytes_as_float(plane + kv_scales_offset(args.kv_type, args.dim)));
  }
  const int64_t vectors = (count + 15) / 16;
  for (int h = 0; h < args.num_heads; h += F::kAttendRows) {
    multiply_rows<F>(static_cast<int>(smaller(F::kAttendRows, args.num_heads - h)), vectors,
                     {args.q + h * args.dim, args.dim, keys, kKvStep, args.dim,
                      products + h * kKvStep, kKvStep, nullptr});
  }
  for (int64_t v = 0; v < vectors; ++v) {
    V sum = F::zero();
    const V factor = F::mul(F::load(scales + v * 16), F::set(args.scale));
    for (int h = 0; h < args.num_heads; ++h) {
      const V dot = F::mul(F::load(products + h * kKvStep + v * 16), factor);
      sum = F::fma(F::max(F::zero(), dot), F::set(args.weights[h]), sum);
    }
    F::store(args.scores + v * 16, sum);
  }
}

}  // namespace
}  // namespace headrace::cpu
