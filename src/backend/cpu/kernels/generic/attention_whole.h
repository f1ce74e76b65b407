// Attention over int16 keys and values by whole numbers (class kFixed, kernels.h): queries and
// weights become numbers of two bytes as well, and byte products add them exactly, so that vectors
// and tiles (amx/attention.h) give the same bits.
//
// A step of a tile of rows: whole products of queries and keys, softmax in float32
// (attention_step.h), weights to two bytes, whole products of these and the values. What computes
// the products is a class with
//   kGroupRows                                  rows that are computed together at most
//   Products(WholeTile<F>&)                     for the steps of a split
//   scores(first, count, begin, limit)          products of rows with the keys of blocks of a step
//   score(first, r, v)                          of row `first` + r with keys [16 v, 16 v + 16)
//   start_values(begin, limit)                  once a step: blocks of values that any row sees
//   add_values(first, count, begin, limit)      calls add_sums() for every vector of these rows
//   end_values()                                after those of all rows
#pragma once

#include "backend/cpu/kernels/generic/attention.h"

namespace headrace::cpu {
namespace {

// What whole numbers of two bytes stand for. Byte products take the other operand's bytes for
// unsigned ones, 128 too large. What sums of them lack therefore, modulo 2^32: T its products of
// high bytes and of mixed ones, -128 (257 sum of high bytes + sum of low bytes); those of low
// bytes, made ready to be halved to nearest eight times, 128 - 128 sum of low bytes.
struct Digits {
  float unit;
  uint32_t offset;
  uint32_t low_offset;
};

template <typename F>
[[gnu::always_inline]] inline uint32_t fold(typename F::I words) {
  return static_cast<uint32_t>(F::fold_add_words(words));
}

// The two bytes of x[k] / unit, unit being a share of the largest; count is a multiple of 32.
// kLow: low_offset too.
template <typename F, bool kLow>
[[gnu::always_inline]] inline Digits make_digits(const float* x, int64_t count, uint8_t* high,
                                                 uint8_t* low) {
  using I = typename F::I;
  I largest_bits = F::zero_words();
  for (int64_t k = 0; k < count; k += 16) {
    largest_bits = F::max_words(largest_bits, F::abs_bits(F::load(x + k)));
  }
  const auto bits = static_cast<uint32_t>(F::fold_max_words(largest_bits));
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof(largest));
  const bool is_zero = largest < kSmallestFixedBound;
  const auto factor = F::set(is_zero ? 0.0f : kFixedActivationLimit / largest);
  const I half = F::set_bits(128);
  I wholes = F::zero_words(), high_bytes = F::zero_words();
  for (int64_t k = 0; k < count; k += 32) {
    const I a = F::to_words(F::mul(F::load(x + k), factor));
    const I b = F::to_words(F::mul(F::load(x + k + 16), factor));
    const I packed = F::pack_words(a, b);
    alignas(64) uint8_t terms[64];
    F::store_terms(terms, F::add_halves(packed, F::set_bits(128u << 16 | 128u)), packed);
    __builtin_memcpy(high + k, terms, 32);
    __builtin_memcpy(low + k, terms + 32, 32);
    const auto add = [&](I whole) __attribute__((always_inline)) {
      const I high_byte = F::template shift_right_signed<8>(F::add_words(whole, half));
      wholes = F::add_words(wholes, whole);
      high_bytes = F::add_words(high_bytes, high_byte);
    };
    add(a);
    add(b);
  }
  const float unit = is_zero                      ? 0.0f
                     : largest < __builtin_inff() ? largest / kFixedActivationLimit
                                                  : __builtin_nanf("");
  Digits digits{unit, 128u * fold<F>(F::add_words(wholes, high_bytes)), 0};
  digits.offset = 0u - digits.offset;
  if constexpr (kLow)
    digits.low_offset = 128u + 128u * (256u * fold<F>(high_bytes) - fold<F>(wholes));
  return digits;
}

inline constexpr int64_t kWholeRoomBytes = int64_t{16} * 1024;

// Floats of scratch: those of any attention, weights and products; queries of 16 dimensions.
inline constexpr int64_t whole_scratch(int64_t rows, int64_t dims) {
  const int64_t bytes = rows * 2 * kKvStep + kWholeRoomBytes + (dims == 16 ? rows * 128 : 0);
  return attention_scratch(rows, dims) + bytes / int64_t{sizeof(float)};
}
static_assert(whole_scratch(kAttentionRows, kMaxHeadDim) <= kAttentionScratchFloats);
static_assert(whole_scratch(kAttentionRows, 16) <= kAttentionScratchFloats);

template <typename F>
struct WholeTile : AttendTile<F> {
  using V = typename F::V;
  using I = typename F::I;

  int64_t query_bytes;  // of a row's high bytes, whole tiles of 64
  uint8_t* queries;     // [rows][high, low][query_bytes]
  uint8_t* weights;     // [rows][high, low][kKvStep]
  uint8_t* room;        // kWholeRoomBytes for products, 64-byte aligned
  Digits query[kAttentionRows];
  Digits weight[kAttentionRows];  // of the step; of rows that see nothing of it, as before

  WholeTile(const AttentionRowsArgs& a, int group_rows_at_most) : AttendTile<F>(a) {
    query_bytes = (this->dims + 63) / 64 * 64;
    weights = reinterpret_cast<uint8_t*>(this->value_scales + kKvStep);
    room = weights + this->rows * int64_t{2} * kKvStep;
    // In place of the numbers themselves, where these leave room for whole tiles.
    queries = reinterpret_cast<uint8_t*>(this->q);
    if (2 * query_bytes > this->dims * int64_t{sizeof(float)}) queries = room + kWholeRoomBytes;
    this->num_groups = (this->rows + group_rows_at_most - 1) / group_rows_at_most;
    this->group_rows = this->rows / this->num_groups;
    this->num_larger_groups = this->rows % this->num_groups;
    for (int r = 0; r < this->rows; ++r) weight[r] = {};
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
      query[r] = make_digits<F, true>(x, query_bytes, high, high + query_bytes);
    }
  }

  // Products T of row r as scores.
  [[gnu::always_inline]] V as_scores(int r, I products) const {
    return F::mul(F::to_float(products), F::set(256.0f * query[r].unit));
  }

  // Adds the products T of the step's weights with dimensions [d, d + 16) of its values to row r.
  [[gnu::always_inline]] void add_sums(int r, int64_t d, I products) {
    float* acc = this->acc + r * this->dims + d;
    const V kept = F::mul(F::load(acc), F::set(this->correction[r]));
    F::store(acc, F::fma(F::to_float(products), F::set(256.0f * weight[r].unit), kept));
  }

  bool sees_step(int r) const { return this->step_begin[r] < this->step_end[r]; }
};

// Products by vectors: lines of 16 words of high bytes and 16 of low ones, each line for all rows.
template <typename F>
struct VectorProducts {
  using I = typename F::I;
  static constexpr int kGroupRows = 4;
  static constexpr int kMaxSums = 24;  // that registers hold
  static constexpr int kWidths = 3;    // 1, 2 and 4 lines at once

  WholeTile<F>& t;

  // Rows of whole numbers, and word groups [begin, end) of four of them.
  struct Rows {
    const uint8_t* digits;
    int64_t low_at;  // from a row's high bytes, half of what is between rows
    int64_t begin, end;
    const Digits* of_rows;
  };

  // sums[r][w] = T of row r and line w of each group, at line(g, w); kLow: with products of low
  // bytes.
  template <bool kLow, int kRows, int kWidth, typename Line>
  [[gnu::always_inline]] static void multiply(const Rows& rows, const Line& line,
                                              I (&sums)[kRows][kWidth]) {
    const I flip = F::set_bits(0x80808080u);
    I mixed[kRows][kWidth], low_sums[kRows][kWidth];
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) {
        sums[r][w] = mixed[r][w] = F::zero_words();
        if constexpr (kLow) low_sums[r][w] = F::set_bits(rows.of_rows[r].low_offset);
      }
    }
    for (int64_t g = rows.begin; g < rows.end; ++g) {
      I high[kWidth], low[kWidth];
      for (int w = 0; w < kWidth; ++w) {
        const uint8_t* at = line(g, w);
        high[w] = F::xor_bits(F::load_words(at), flip);
        low[w] = F::xor_bits(F::load_words(at + 64), flip);
      }
      const uint8_t* word = rows.digits + 4 * g;
      for (int r = 0; r < kRows; ++r, word += 2 * rows.low_at) {
        const I high_x = F::broadcast_word(word);
        const I low_x = F::broadcast_word(word + rows.low_at);
        for (int w = 0; w < kWidth; ++w) {
          sums[r][w] = F::template dot4<255>(sums[r][w], high[w], high_x);
          mixed[r][w] = F::template dot4<255>(mixed[r][w], low[w], high_x);
          mixed[r][w] = F::template dot4<255>(mixed[r][w], high[w], low_x);
          if constexpr (kLow) {
            low_sums[r][w] = F::template dot4<255>(low_sums[r][w], low[w], low_x);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const I offset = F::set_bits(rows.of_rows[r].offset);
      for (int w = 0; w < kWidth; ++w) {
        I& sum = sums[r][w];
        sum = F::add_words(F::template shift_left<8>(sum), F::add_words(mixed[r][w], offset));
        if constexpr (kLow) {
          sum = F::add_words(sum, F::template shift_right_signed<8>(low_sums[r][w]));
        }
      }
    }
  }

  // Products with the keys of blocks [block, block + kWidth), where the scores will be.
  template <int kRows, int kWidth>
  static void score_blocks(WholeTile<F>& t, int first, int64_t block) {
    I sums[kRows][kWidth];
    const auto line = [&](int64_t g, int w) __attribute__((always_inline)) {
      prefetch_line<F, KvDtype::kInt16>(t.next_keys[block + w] + g * 128);
      return t.keys[block + w] + g * 128;
    };
    multiply<true>(
        Rows{t.queries + first * 2 * t.query_bytes, t.query_bytes, 0, t.dims / 4, t.query + first},
        line, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) {
        float* to = t.scores + (first + r) * kKvStep + (block + w) * kKvBlock;
        F::store_words(reinterpret_cast<uint8_t*>(to), sums[r][w]);
      }
    }
  }

  // Adds the values of dimensions [16 vector, 16 (vector + kWidth)) at blocks [begin, limit).
  template <int kRows, int kWidth>
  static void add_vectors(WholeTile<F>& t, int first, int64_t vector, int64_t begin,
                          int64_t limit) {
    I sums[kRows][kWidth];
    const int64_t row_bytes = t.dims * 8;  // of four positions
    const auto line = [&](int64_t g, int w) __attribute__((always_inline)) {
      const int64_t at = g % 4 * row_bytes + (vector + w) * 128;
      prefetch_line<F, KvDtype::kInt16>(t.next_values[g / 4] + at);
      return t.values[g / 4] + at;
    };
    multiply<false>(Rows{t.weights + first * int64_t{2} * kKvStep, kKvStep, 4 * begin, 4 * limit,
                         t.weight + first},
                    line, sums);
    for (int r = 0; r < kRows; ++r) {
      if (!t.sees_step(first + r)) continue;
      for (int w = 0; w < kWidth; ++w) t.add_sums(first + r, (vector + w) * 16, sums[r][w]);
    }
  }

  struct Functions {  // by width; null where registers do not hold the sums
    void (*score[kWidths])(WholeTile<F>&, int first, int64_t block);
    void (*add[kWidths])(WholeTile<F>&, int first, int64_t vector, int64_t begin, int64_t limit);
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
    Functions rows[kGroupRows];
  };
  static constexpr Table make_table() {
    Table table{};
    unrolled<0, kGroupRows>([&](auto r) {
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
  void start_values(int64_t /*begin*/, int64_t /*limit*/) const {}
  void end_values() const {}
  void add_values(int first, int count, int64_t begin, int64_t limit) const {
    for_widths(kTable.rows[count - 1].add, 0, t.dims / 16,
               [&](auto fn, int64_t vector) { fn(t, first, vector, begin, limit); });
  }
};

// kCapped: scores have a soft cap.
template <typename F, bool kCapped, typename Products>
struct WholeStep {
  using V = typename F::V;
  struct Tile : WholeTile<F> {
    explicit Tile(const AttentionRowsArgs& args) : WholeTile<F>(args, Products::kGroupRows) {}
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
      V weight = exp2_lanes<F>(F::sub(F::load(row + v * 16), highest));
      sum = F::add(sum, weight);
      weight = F::mul(weight, F::load(t.value_scales + v * 16));
      if constexpr (kMasked) weight = t.visible(r, v, weight, F::zero());
      F::store(row + v * 16, weight);
    }
    F::store(t.totals + r * 16, F::fma(F::load(t.totals + r * 16), F::set(t.correction[r]), sum));
    uint8_t* high = t.weights + r * int64_t{2} * kKvStep;
    t.weight[r] = make_digits<F, false>(row, kKvStep, high, high + kKvStep);
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
    products.start_values(first_block, end_block);
    t.for_groups([&](int first, int count) __attribute__((always_inline)) {
      products.add_values(first, count, first_block, end_block);
    });
    products.end_values();
  }
};

template <typename F>
void attention_whole(const AttentionRowsArgs& args) {
  if (args.num_rows == 0) return;
  args.softcap > 0 ? attend<F, WholeStep<F, true, VectorProducts<F>>>(args)
                   : attend<F, WholeStep<F, false, VectorProducts<F>>>(args);
}

}  // namespace
}  // namespace headrace::cpu
