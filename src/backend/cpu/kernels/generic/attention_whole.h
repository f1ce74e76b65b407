// Attention over int16 keys and values by whole numbers (class kFixed, kernels.h): queries and
// weights become numbers of two bytes as well, and byte products add them exactly, so that vectors
// and tiles (amx/attention.h) give the same bits.
//
// A step of a tile of rows: whole products of queries and keys, softmax in float32
// (attention_step.h), weights to two bytes, whole products of these and the values. Here are those
// by vectors.
#pragma once

#include "backend/cpu/kernels/generic/attention.h"

namespace headrace::cpu {
namespace {

// The unit of whole numbers that reach kFixedActivationLimit, and what makes these of numbers.
struct WholeUnit {
  float unit, factor;
};

template <typename F>
[[gnu::always_inline]] inline WholeUnit whole_unit(const float* x, int64_t count) {
  typename F::I largest_bits = F::zero_words();
  for (int64_t k = 0; k < count; k += 16) {
    largest_bits = F::max_words(largest_bits, F::abs_bits(F::load(x + k)));
  }
  const auto bits = static_cast<uint32_t>(F::fold_max_words(largest_bits));
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof(largest));
  if (largest < kSmallestFixedBound) return {0.0f, 0.0f};
  if (!(largest < __builtin_inff())) return {__builtin_nanf(""), 0.0f};
  return {largest / kFixedActivationLimit, kFixedActivationLimit / largest};
}

// Stores 32 words of pack_words(): the upper bytes of `high`, the lower ones of `low`.
template <typename F>
[[gnu::always_inline]] inline void store_bytes(typename F::I high, typename F::I low,
                                               uint8_t* highs, uint8_t* lows) {
  alignas(64) uint8_t terms[64];
  F::store_terms(terms, high, low);
  __builtin_memcpy(highs, terms, 32);
  __builtin_memcpy(lows, terms + 32, 32);
}

// x[k] times factor as numbers 256 high + low, both signed; count is a multiple of 32.
template <typename F>
[[gnu::always_inline]] inline void store_signed(const float* x, int64_t count, float factor,
                                                uint8_t* highs, uint8_t* lows) {
  for (int64_t k = 0; k < count; k += 32) {
    const auto a = F::to_words(F::mul(F::load(x + k), F::set(factor)));
    const auto b = F::to_words(F::mul(F::load(x + k + 16), F::set(factor)));
    const auto packed = F::pack_words(a, b);
    store_bytes<F>(F::add_halves(packed, F::set_bits(128u << 16 | 128u)), packed, highs + k,
                   lows + k);
  }
}

// The same of numbers that are not negative, both bytes unsigned.
template <typename F>
[[gnu::always_inline]] inline void store_unsigned(const float* x, int64_t count, float factor,
                                                  uint8_t* highs, uint8_t* lows) {
  for (int64_t k = 0; k < count; k += 32) {
    const auto a = F::to_words(F::mul(F::load(x + k), F::set(factor)));
    const auto b = F::to_words(F::mul(F::load(x + k + 16), F::set(factor)));
    const auto packed = F::pack_words(a, b);
    store_bytes<F>(packed, packed, highs + k, lows + k);
  }
}

inline constexpr int64_t kWholeLine = kv_line_bytes(KvDtype::kInt16);  // of either bytes 64
// Bytes of a row's high bytes of queries, whole tiles of 64, and of queries that do not fit where
// the numbers themselves were.
inline constexpr int64_t whole_query_bytes(int64_t dims) { return (dims + 63) / 64 * 64; }
inline constexpr int64_t whole_queries_room(int64_t rows, int64_t dims) {
  const int64_t bytes = 2 * whole_query_bytes(dims);
  return bytes > dims * int64_t{sizeof(float)} ? rows * bytes : 0;
}

// Whether scratch holds, behind that of any attention, queries and bytes_of(dims).
template <typename Fn>
inline constexpr bool whole_scratch_fits(const Fn& bytes_of) {
  constexpr int64_t kDims[] = {16, kMaxHeadDim};
  for (const int64_t dims : kDims) {
    const int64_t bytes = whole_queries_room(kAttentionRows, dims) + bytes_of(dims);
    const int64_t floats = attention_scratch(kAttentionRows, dims) + bytes / int64_t{sizeof(float)};
    if (floats > kAttentionScratchFloats) return false;
  }
  return true;
}

// What is the same however products are computed.
template <typename F>
struct WholeTile : AttendTile<F> {
  using V = typename F::V;
  using I = typename F::I;

  int64_t query_bytes;                           // of a row's high bytes
  uint8_t* queries;                              // [rows][high, low][query_bytes]
  uint8_t* free_bytes;                           // of the scratch, 64-byte aligned
  alignas(64) float query_unit[kAttentionRows];  // of their T

  WholeTile(const AttentionRowsArgs& a, int64_t room)
      : AttendTile<F>(a, room),
        query_bytes(whole_query_bytes(this->dims)),
        queries(reinterpret_cast<uint8_t*>(this->q)),
        free_bytes(reinterpret_cast<uint8_t*>(this->value_scales + kKvStep)) {
    const int64_t queries_room = whole_queries_room(room, this->dims);
    if (queries_room > 0) queries = free_bytes;
    free_bytes += queries_room;
  }

  void load_queries(float factor) {
    alignas(64) float x[kMaxHeadDim] = {};
    for (int r = 0; r < this->rows; ++r) {
      const float* from = this->args.q + this->row_offset(r);
      for (int64_t d = 0; d < this->args.head_dim; d += 16) {
        const V v = F::load_part(from + d, smaller(16, this->args.head_dim - d));
        F::store(x + d, F::mul(v, F::set(factor)));
      }
      uint8_t* high = queries + r * 2 * query_bytes;
      const WholeUnit by = whole_unit<F>(x, query_bytes);
      query_unit[r] = 256.0f * by.unit;
      store_signed<F>(x, query_bytes, by.factor, high, high + query_bytes);
    }
  }
};

// What byte products that take keys for unsigned ones, 128 too large, lack of the sums of a row of
// queries, modulo 2^32: T, its products of high bytes and of mixed ones, -128 (257 sum of high
// bytes
// + sum of low bytes); products of low bytes, made ready to be halved to nearest eight times, 128 -
// 128 sum of low bytes.
struct Offsets {
  uint32_t mixed, low;
};

// Of bytes of store_signed(), a multiple of 64.
template <typename F>
[[gnu::always_inline]] inline Offsets offsets_of(const uint8_t* highs, const uint8_t* lows,
                                                 int64_t count) {
  const auto ones = F::set_bits(0x01010101u);
  auto high_sums = F::zero_words(), low_sums = F::zero_words();
  for (int64_t k = 0; k < count; k += 64) {
    high_sums = F::template dot4<255>(high_sums, ones, F::load_words(highs + k));
    low_sums = F::template dot4<255>(low_sums, ones, F::load_words(lows + k));
  }
  const auto high = static_cast<uint32_t>(F::fold_add_words(high_sums));
  const auto low = static_cast<uint32_t>(F::fold_add_words(low_sums));
  return {0u - 128u * (257u * high + low), 128u - 128u * low};
}

// Rows that are computed by vectors.
template <typename F>
struct VectorTile : WholeTile<F> {
  using V = typename F::V;
  using I = typename F::I;

  uint8_t* weights;                   // [rows][high, low][kKvStep]
  Offsets offsets[kAttentionRows];    // of the queries
  float weight_unit[kAttentionRows];  // of the T of the step's weights

  VectorTile(const AttentionRowsArgs& a, int group_rows_at_most)
      : WholeTile<F>(a, a.num_rows), weights(this->free_bytes) {
    this->num_groups = (this->rows + group_rows_at_most - 1) / group_rows_at_most;
    this->group_rows = this->rows / this->num_groups;
    this->num_larger_groups = this->rows % this->num_groups;
  }

  void load_queries(float factor) {
    WholeTile<F>::load_queries(factor);
    for (int r = 0; r < this->rows; ++r) {
      const uint8_t* high = this->queries + r * 2 * this->query_bytes;
      offsets[r] = offsets_of<F>(high, high + this->query_bytes, this->query_bytes);
    }
  }

  // Products T of row r as scores.
  [[gnu::always_inline]] V as_scores(int r, I products) const {
    return F::mul(F::to_float(products), F::set(this->query_unit[r]));
  }

  // Adds the products T of the step's weights with dimensions [d, d + 16) of its values to row r.
  [[gnu::always_inline]] void add_sums(int r, int64_t d, I products) {
    float* sums = this->acc + r * this->dims + d;
    const V kept = F::mul(F::load(sums), F::set(this->correction[r]));
    F::store(sums, F::fma(F::to_float(products), F::set(weight_unit[r]), kept));
  }

  bool sees_step(int r) const { return this->step_begin[r] < this->step_end[r]; }
};

static_assert(whole_scratch_fits([](int64_t /*dims*/) { return kAttentionRows * 2 * kKvStep; }));

// Products by vectors: lines of 16 words of high bytes and 16 of low ones, each line for all rows.
template <typename F>
struct VectorProducts {
  using I = typename F::I;
  static constexpr int kMaxGroupRows = 4;
  static constexpr int kMaxSums = 24;  // that registers hold
  static constexpr int kWidths = 3;    // 1, 2 and 4 lines at once

  VectorTile<F>& t;

  // Few rows wait for memory, which twice as many lines at once read faster.
  static constexpr int group_rows(int64_t rows) {
    return rows <= kMaxGroupRows ? 2 : kMaxGroupRows;
  }

  // Where rows of whole numbers lie, and which word groups of four of them are in use.
  struct Rows {
    const uint8_t* high;
    int64_t low_at;  // from a row's high bytes, half of what is between rows
    int64_t begin, end;
  };

  // sums[r][w] = 256 sums of products of high bytes + those of mixed ones, of row r and line w of
  // each group, at line(g, w). kQueries: of queries with keys, whose sums of low bytes are left in
  // `lows`.
  template <bool kQueries, int kRows, int kWidth, typename Line>
  [[gnu::always_inline]] static void multiply(const Rows& rows, const Line& line,
                                              I (&sums)[kRows][kWidth], I (&lows)[kRows][kWidth]) {
    I mixed[kRows][kWidth];
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) sums[r][w] = mixed[r][w] = F::zero_words();
    }
    for (int64_t g = rows.begin; g < rows.end; ++g) {
      I high[kWidth], low[kWidth];
      for (int w = 0; w < kWidth; ++w) {
        const uint8_t* at = line(g, w);
        high[w] = line_of<kQueries>(at);
        low[w] = line_of<kQueries>(at + 64);
      }
      const uint8_t* word = rows.high + 4 * g;
      for (int r = 0; r < kRows; ++r, word += 2 * rows.low_at) {
        const I high_x = F::broadcast_word(word);
        const I low_x = F::broadcast_word(word + rows.low_at);
        for (int w = 0; w < kWidth; ++w) {
          sums[r][w] = add_products<kQueries>(sums[r][w], high_x, high[w]);
          mixed[r][w] = add_products<kQueries>(mixed[r][w], high_x, low[w]);
          mixed[r][w] = add_products<kQueries>(mixed[r][w], low_x, high[w]);
          if constexpr (kQueries) {
            lows[r][w] = add_products<kQueries>(lows[r][w], low_x, low[w]);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) {
        sums[r][w] = F::add_words(F::template shift_left<8>(sums[r][w]), mixed[r][w]);
      }
    }
  }

  // Of two factors of byte products the first is unsigned: weights are; keys are made so.
  template <bool kQueries>
  [[gnu::always_inline]] static I line_of(const uint8_t* at) {
    if constexpr (kQueries) return F::xor_bits(F::load_words(at), F::set_bits(0x80808080u));
    return F::load_words(at);
  }
  template <bool kQueries>
  [[gnu::always_inline]] static I add_products(I sum, I x, I line) {
    return kQueries ? F::template dot4<255>(sum, line, x) : F::template dot4<255>(sum, x, line);
  }

  // Products with the keys of blocks [block, block + kWidth), where the scores will be.
  template <int kRows, int kWidth>
  static void score_blocks(VectorTile<F>& t, int first, int64_t block) {
    I sums[kRows][kWidth], lows[kRows][kWidth];
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) lows[r][w] = F::set_bits(t.offsets[first + r].low);
    }
    const auto line = [&](int64_t g, int w) __attribute__((always_inline)) {
      prefetch_line<F, KvDtype::kInt16>(t.asked_with_keys()[block + w] + g * kWholeLine);
      return t.keys[block + w] + g * kWholeLine;
    };
    const Rows rows{t.queries + first * 2 * t.query_bytes, t.query_bytes, 0, t.dims / 4};
    multiply<true>(rows, line, sums, lows);
    for (int r = 0; r < kRows; ++r) {
      const I offset = F::set_bits(t.offsets[first + r].mixed);
      for (int w = 0; w < kWidth; ++w) {
        const I low = F::template shift_right_signed<8>(lows[r][w]);
        float* to = t.scores + (first + r) * kKvStep + (block + w) * kKvBlock;
        F::store_words(reinterpret_cast<uint8_t*>(to),
                       F::add_words(F::add_words(sums[r][w], offset), low));
      }
    }
  }

  // Adds the values of dimensions [16 vector, 16 (vector + kWidth)) at blocks [begin, limit).
  template <int kRows, int kWidth>
  static void add_vectors(VectorTile<F>& t, int first, int64_t vector, int64_t begin,
                          int64_t limit) {
    I sums[kRows][kWidth];
    const int64_t row_bytes = t.dims / 16 * kWholeLine;  // of four positions
    const auto line = [&](int64_t g, int w) __attribute__((always_inline)) {
      const int64_t at = g % 4 * row_bytes + (vector + w) * kWholeLine;
      prefetch_line<F, KvDtype::kInt16>(t.asked_with_values()[g / 4] + at);
      return t.values[g / 4] + at;
    };
    const Rows rows{t.weights + first * int64_t{2} * kKvStep, kKvStep, 4 * begin, 4 * limit};
    multiply<false>(rows, line, sums, sums);
    for (int r = 0; r < kRows; ++r) {
      if (!t.sees_step(first + r)) continue;
      for (int w = 0; w < kWidth; ++w) t.add_sums(first + r, (vector + w) * 16, sums[r][w]);
    }
  }

  struct Functions {  // by width; null where registers do not hold the sums
    void (*score[kWidths])(VectorTile<F>&, int first, int64_t block);
    void (*add[kWidths])(VectorTile<F>&, int first, int64_t vector, int64_t begin, int64_t limit);
  };
  template <int kRows, int kWidth>
  static constexpr void fill(Functions* row) {
    if constexpr ((3 * kRows << kWidth) <= kMaxSums) {
      row->score[kWidth] = &score_blocks<kRows, 1 << kWidth>;
    }
    if constexpr ((2 * kRows << kWidth) <= kMaxSums) {
      row->add[kWidth] = &add_vectors<kRows, 1 << kWidth>;
    }
  }
  struct Table {
    Functions rows[kMaxGroupRows];
  };
  static constexpr Table make_table() {
    Table table{};
    unrolled<0, kMaxGroupRows>([&](auto r) {
      fill<r.value + 1, 0>(&table.rows[r.value]);
      fill<r.value + 1, 1>(&table.rows[r.value]);
      fill<r.value + 1, 2>(&table.rows[r.value]);
    });
    return table;
  }
  static constexpr Table kTable = make_table();

  // fn(function, first line) over lines [first, end), as many at a time as there is code for.
  template <typename Function, typename Fn>
  static void for_widths(const Function (&functions)[kWidths], int64_t first, int64_t end,
                         const Fn& fn) {
    while (first < end) {
      int width = kWidths - 1;
      while (functions[width] == nullptr || first + (1 << width) > end) --width;
      fn(functions[width], first);
      first += 1 << width;
    }
  }

  void scores(int first, int count, int64_t begin, int64_t limit) const {
    for_widths(kTable.rows[count - 1].score, begin, limit,
               [&](auto fn, int64_t block) { fn(t, first, block); });
  }
  [[gnu::always_inline]] I score(int first, int r, int v) const {
    const float* row = t.scores + (first + r) * kKvStep + v * 16;
    return F::load_words(reinterpret_cast<const uint8_t*>(row));
  }
  void add_values(int first, int count, int64_t begin, int64_t limit) const {
    for_widths(kTable.rows[count - 1].add, 0, t.dims / 16,
               [&](auto fn, int64_t vector) { fn(t, first, vector, begin, limit); });
  }
};

// kCapped: scores have a soft cap.
template <typename F, bool kCapped>
struct WholeStep {
  using V = typename F::V;
  using Products = VectorProducts<F>;
  struct Tile : VectorTile<F> {
    explicit Tile(const AttentionRowsArgs& a)
        : VectorTile<F>(a, Products::group_rows(a.num_rows)) {}
  };
  static constexpr bool kIsCapped = kCapped;

  Tile& t;
  Products products;

  explicit WholeStep(Tile& tile) : t(tile), products{tile} {}

  template <bool kMasked>
  [[gnu::always_inline]] inline void raise(int first, int r, int64_t step) {
    raise_top<F, kCapped, true, kMasked>(
        t, first + r, step, [&](int v) __attribute__((always_inline)) {
          return t.as_scores(first + r, products.score(first, r, v));
        });
  }

  // Scores of row r as weights, and these as whole numbers; kMasked: 0 where hidden.
  template <bool kMasked>
  [[gnu::always_inline]] inline void make_weights(int r) {
    float* row = t.scores + r * kKvStep;
    const V highest = F::set(t.top[r]);
    V sum = F::zero();
    for (int v = 0; v < kKvStep / 16; ++v) {
      const V weight = exp2_lanes<F>(F::sub(F::load(row + v * 16), highest));
      sum = F::add(sum, weight);
      F::store(row + v * 16, F::mul(weight, t.template scales_of_values<kMasked>(r, v)));
    }
    F::store(t.totals + r * 16, F::fma(F::load(t.totals + r * 16), F::set(t.correction[r]), sum));
    uint8_t* high = t.weights + r * int64_t{2} * kKvStep;
    const WholeUnit by = whole_unit<F>(row, kKvStep);
    t.weight_unit[r] = 256.0f * by.unit;
    store_unsigned<F>(row, kKvStep, by.factor, high, high + kKvStep);
  }

  template <bool kAllSeen>
  void soften_rows(int first, int count, int64_t step) {
    for (int r = 0; r < count; ++r) {
      const int row = first + r;
      t.step_begin[row] = kAllSeen ? 0 : static_cast<int>(larger(t.lowest[row] - step, 0));
      t.step_end[row] = kAllSeen ? kKvStep : static_cast<int>(smaller(t.end[row] - step, kKvStep));
      t.correction[row] = 0.0f;
      if (kAllSeen) {
        raise<false>(first, r, step);
      } else if (t.sees_step(row)) {
        raise<true>(first, r, step);
      }
    }
    F::store(t.correction + first, exp2_lanes<F>(F::load(t.correction + first)));
    for (int row = first; row < first + count; ++row) {
      if (kAllSeen) {
        make_weights<false>(row);
      } else if (t.sees_step(row)) {
        make_weights<true>(row);
      }
    }
  }

  void run(int64_t step) {
    const int64_t begin = larger(step, t.lowest[0]) / kKvBlock;
    const int64_t limit = (smaller(step + kKvStep, t.end[t.rows - 1]) - 1) / kKvBlock + 1;
    const bool all_seen = step >= t.lowest[t.rows - 1] && step + kKvStep <= t.end[0];
    for (int64_t block = begin; block < limit; ++block) {
      t.find_planes(block, block - step / kKvBlock);
      t.load_block_scales(block - step / kKvBlock);
    }
    const int64_t first_block = begin - step / kKvBlock, end_block = limit - step / kKvBlock;
    t.for_groups([&](int first, int count) __attribute__((always_inline)) {
      products.scores(first, count, first_block, end_block);
      all_seen ? soften_rows<true>(first, count, step) : soften_rows<false>(first, count, step);
    });
    t.for_groups([&](int first, int count) __attribute__((always_inline)) {
      products.add_values(first, count, first_block, end_block);
    });
  }
  void finish() const {}
};

template <typename F>
void attention_whole(const AttentionRowsArgs& args) {
  if (args.num_rows == 0) return;
  args.softcap > 0 ? attend<F, WholeStep<F, true>>(args) : attend<F, WholeStep<F, false>>(args);
}

}  // namespace
}  // namespace headrace::cpu
