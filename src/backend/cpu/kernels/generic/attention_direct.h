// Products of few query rows with keys and values as they lie in KV blocks (attention.h).
//
// Codes become floats in registers and serve all rows at once; nothing is stored between. An
// element's sum runs over the same terms in the same order as from expanded steps: scores over the
// dimensions, weighted sums over the positions. Each plane is read once, line by line, and the
// plane that is needed next is asked for meanwhile.
#pragma once

#include "backend/cpu/kernels/generic/kv_codes.h"

namespace headrace::cpu {
namespace {

inline constexpr int kDirectWidths = 3;  // 1, 2 and 4 vectors

// Scores of all positions of some blocks of a step; or sums of the values at [begin, limit) of it.
struct DirectProduct {
  const uint8_t* const* planes;  // by block of the step
  const uint8_t* const* next;    // likewise: what to ask for
  int64_t head_dim;
  int64_t dims;    // padded
  const float* a;  // queries, or weights from the start of the step
  int64_t a_stride;
  float* c;  // scores from the start of the step, or sums
  int64_t c_stride;
  int64_t begin;
  int64_t limit;
  const float* factors;  // of the sums
};

// Scores with the keys of blocks [block, block + kBlocks).
template <typename F, KvDtype kType, int kRows, int kBlocks>
void direct_scores(const DirectProduct& p, int64_t block) {
  using V = typename F::V;
  constexpr int kCodes = kv_word_codes(kType);
  V sum[kRows][kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) sum[r][b] = F::zero();
  }
  const uint8_t* const* planes = p.planes + block;
  const uint8_t* const* next = p.next + block;
  const float* q = p.a;
  constexpr int kLine = kv_line_bytes(kType);
  const int64_t whole = p.head_dim / kCodes * kLine;
  const int rest = static_cast<int>(p.head_dim % kCodes);
  for (int64_t at = 0; at < whole + (rest > 0 ? kLine : 0); at += kLine, q += kCodes) {
    KvWords<F, kType> words[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      prefetch_line<F, kType>(next[b] + at);
      words[b].load(planes[b] + at);
    }
    const auto add = [&](auto code) __attribute__((always_inline)) {
      V key[kBlocks];
      for (int b = 0; b < kBlocks; ++b) key[b] = words[b].template code<code.value>();
      for (int r = 0; r < kRows; ++r) {
        const V query = F::set(q[r * p.a_stride + code.value]);
        for (int b = 0; b < kBlocks; ++b) sum[r][b] = F::fma(query, key[b], sum[r][b]);
      }
    };
    if (at < whole) {
      unrolled<0, kCodes>(add);
    } else {
      unrolled<0, kCodes - 1>([&](auto code) __attribute__((always_inline)) {
        if (code.value < rest) add(code);
      });
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) {
      F::store(p.c + r * p.c_stride + (block + b) * kKvBlock, sum[r][b]);
    }
  }
}

// Adds values of dimensions [16 vector, 16 (vector + kVectors)).
template <typename F, KvDtype kType, int kRows, int kVectors>
void direct_sums(const DirectProduct& p, int64_t vector) {
  using V = typename F::V;
  constexpr int kCodes = kv_word_codes(kType);
  float* const c = p.c + vector * 16;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = F::mul(F::load(c + r * p.c_stride + v * 16), F::set(p.factors[r]));
    }
  }
  constexpr int kLine = kv_line_bytes(kType);
  const int64_t stride = p.dims / 16 * kLine;
  for (int64_t t = p.begin / kCodes * kCodes; t < p.limit; t += kCodes) {
    const int64_t at = t % kKvBlock / kCodes * stride + vector * kLine;
    const uint8_t* from = p.planes[t / kKvBlock] + at;
    const uint8_t* next = p.next[t / kKvBlock] + at;
    KvWords<F, kType> words[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      prefetch_line<F, kType>(next + v * kLine);
      words[v].load(from + v * kLine);
    }
    const auto add = [&](auto code) __attribute__((always_inline)) {
      V value[kVectors];
      for (int v = 0; v < kVectors; ++v) value[v] = words[v].template code<code.value>();
      for (int r = 0; r < kRows; ++r) {
        const V weight = F::set(p.a[r * p.a_stride + t + code.value]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = F::fma(weight, value[v], sum[r][v]);
      }
    };
    if (t >= p.begin && t + kCodes <= p.limit) {
      unrolled<0, kCodes>(add);
    } else {
      unrolled<0, kCodes>([&](auto code) __attribute__((always_inline)) {
        if (t + code.value >= p.begin && t + code.value < p.limit) add(code);
      });
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) F::store(c + r * p.c_stride + v * 16, sum[r][v]);
  }
}

using DirectFunction = void (*)(const DirectProduct& p, int64_t first);

struct DirectRow {  // by width: 1, 2 and 4 vectors; null where registers do not hold the sums
  DirectFunction scores[kDirectWidths];
  DirectFunction sums[kDirectWidths];
};

template <typename F>
inline constexpr int kDirectRows = F::kAttendVectors == 1 ? 6 : 8;  // of one product

// Tiles of more rows gain by expanding steps once for all.
template <typename F>
inline constexpr int kDirectAttendRows = F::kAttendVectors == 1 ? 9 : 48;

template <typename F, KvDtype kType, int kRows, int kWidth>
constexpr void add_direct(DirectRow* row) {
  constexpr int kMaxSums = F::kAttendVectors == 1 ? 6 : 16;
  if constexpr ((kRows << kWidth) <= kMaxSums) {
    row->scores[kWidth] = &direct_scores<F, kType, kRows, 1 << kWidth>;
    row->sums[kWidth] = &direct_sums<F, kType, kRows, 1 << kWidth>;
  }
}

template <typename F>
struct DirectRows {  // by rows - 1
  DirectRow rows[kDirectRows<F>];
};

template <typename F, KvDtype kType, int kRows = 1>
constexpr void fill_direct(DirectRows<F>* table) {
  if constexpr (kRows <= kDirectRows<F>) {
    static_assert(kDirectWidths == 3);
    add_direct<F, kType, kRows, 0>(&table->rows[kRows - 1]);
    add_direct<F, kType, kRows, 1>(&table->rows[kRows - 1]);
    add_direct<F, kType, kRows, 2>(&table->rows[kRows - 1]);
    fill_direct<F, kType, kRows + 1>(table);
  }
}

template <typename F, KvDtype kType>
constexpr DirectRows<F> direct_products() {
  DirectRows<F> table{};
  fill_direct<F, kType>(&table);
  return table;
}

template <typename F>
struct DirectProducts {  // by KvDtype
  static constexpr DirectRows<F> kTypes[kNumKvDtypes] = {
      direct_products<F, KvDtype::kF32>(),  direct_products<F, KvDtype::kBF16>(),
      direct_products<F, KvDtype::kF16>(),  direct_products<F, KvDtype::kFp8>(),
      direct_products<F, KvDtype::kInt8>(), direct_products<F, KvDtype::kInt16>()};
};

// Vectors [first, end), as many at a time as registers hold.
inline void run_direct(const DirectFunction* functions, const DirectProduct& p, int64_t first,
                       int64_t end) {
  while (first < end) {
    int width = kDirectWidths - 1;
    while (functions[width] == nullptr || first + (1 << width) > end) --width;
    functions[width](p, first);
    first += 1 << width;
  }
}

}  // namespace
}  // namespace headrace::cpu
