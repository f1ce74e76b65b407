// Matrix products of integer activations with coded panels, class kInteger (kernels.h).
//
// direct: one row. Codes go from memory through registers to the sums, expanded once for both terms
// of an activation, several panels at a time. blocked: code bytes and factors of a slice of two
// panels are unpacked once into scratch (L1) and used by all rows, a tile of rows at a time.
// Sums of X times code are exact in 32 bits: |sum| <= 32 * 255 * 32768 < 2^28.
#pragma once

#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

// What the product of a sub-block needs to know of a layout; tiles are shared by layouts alike.
struct TileKind {
  int sub_inputs;  // 16 or 32
  bool has_minimum;
  bool has_zero;
  int max_code;  // 127 or 255: a bound

  constexpr bool operator==(const TileKind&) const = default;
};

template <typename F, Layout kLayout>
inline constexpr TileKind kTileKind = {
    CodedWeights<F, kLayout>::kSubInputs, CodedWeights<F, kLayout>::kHasMinimum,
    CodedWeights<F, kLayout>::kZero != 0, CodedWeights<F, kLayout>::kMaxCode > 127 ? 255 : 127};

constexpr int log2_of(int value) { return value <= 1 ? 0 : 1 + log2_of(value / 2); }

// Scratch of a slice of kPanels panels: code bytes [block][group of 4 inputs][panel], then scales
// and offsets [sub-block][panel], 64 bytes each.
template <int kPanels>
struct SliceScratch {
  static constexpr int kGroups = kSliceInputs / 4;
  static constexpr int kMaxSubBlocks = kSliceInputs / 16;
  static constexpr int kScales = kGroups * kPanels * 64;
  static constexpr int kOffsets = kScales + kMaxSubBlocks * kPanels * 64;
  static constexpr int kBytes = kOffsets + kMaxSubBlocks * kPanels * 64;
};
static_assert(SliceScratch<2>::kBytes <= kMatmulScratchFloats * int64_t{sizeof(float)});

// One panel's part of the scratch above; `place` is scratch + 64 * panel.
template <typename F, Layout kLayout, int kPanels>
__attribute__((noinline)) void unpack_codes(const uint8_t* panel, int64_t first, int64_t count,
                                            uint8_t* place) {
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<kPanels>;
  constexpr int kStep = 64 * kPanels;
  for (int64_t k = 0; k < count; k += W::kUnit) {
    const typename W::Unit unit = W::unit_at(panel, first + k);
    uint8_t* codes = place + k / 4 * kStep;
    unrolled<0, 8>([&](auto group) __attribute__((always_inline)) {
      F::store_words(codes + group.value * kStep,
                     W::template code_bytes<group.value>(unit.low, unit.high));
    });
    for (int part = 0; part < W::kFactorsPerUnit; ++part) {
      const typename W::Factors f = W::factors(unit.chunk, unit.first_sub + part);
      const int64_t sub = k / W::kUnit * W::kFactorsPerUnit + part;
      F::store(reinterpret_cast<float*>(place + S::kScales + sub * kStep), f.scale);
      if constexpr (W::kHasMinimum) {
        F::store(reinterpret_cast<float*>(place + S::kOffsets + sub * kStep), f.offset);
      }
    }
  }
}

inline const uint8_t* block_factors(const uint8_t* record, ActivationType type, int block) {
  return record + kSliceBlocks * activation_code_bytes(type) +
         static_cast<size_t>(block) * sizeof(BlockFactors);
}
// The three numbers of BlockFactors that sub-block `part` of kSubInputs inputs uses.
template <int kSubInputs>
inline const uint8_t* x_sum_at(const uint8_t* factors, int part) {
  return factors + (kSubInputs == kActivationBlock ? 4 : 8 + 4 * part);
}
template <int kSubInputs>
inline const uint8_t* x_minus_sum_at(const uint8_t* factors, int part) {
  return factors + (kSubInputs == kActivationBlock ? 16 : 20 + 4 * part);
}
static_assert(__builtin_offsetof(BlockFactors, sum) == 4);
static_assert(__builtin_offsetof(BlockFactors, half_sums) == 8);
static_assert(__builtin_offsetof(BlockFactors, minus_sum) == 16);
static_assert(__builtin_offsetof(BlockFactors, minus_half_sums) == 20);

inline float load_float(const uint8_t* p) {
  float value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// kRows rows times kPanels unpacked panels over the blocks of a slice, added to sums. x: record of
// the first row.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
__attribute__((noinline)) void integer_tile(const uint8_t* scratch, const uint8_t* x,
                                            int num_blocks, int zero_shift, float* sums,
                                            int64_t sums_stride) {
  using V = typename F::V;
  using I = typename F::I;
  using S = SliceScratch<kPanels>;
  constexpr int64_t kRecord = activation_record_bytes(kType);
  constexpr int kParts = kActivationBlock / kKind.sub_inputs;
  constexpr int kGroups = kKind.sub_inputs / 4;
  constexpr bool kTwoTerms = kType == ActivationType::kInt16;
  const uint8_t* codes = scratch;
  const uint8_t* scales = scratch + S::kScales;
  const uint8_t* offsets = scratch + S::kOffsets;
  V totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);
  }
  for (int block = 0; block < num_blocks; ++block) {
    const uint8_t* xb = x + block * activation_code_bytes(kType);
    const uint8_t* xf = block_factors(x, kType, block);
    for (int part = 0; part < kParts; ++part) {
      I acc[kRows][kPanels];
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) acc[r][p] = F::zero_words();
      }
      for (int term = kTwoTerms ? 0 : 1; term < 2; ++term) {
        if (term == 1) {
          for (int r = 0; r < kRows; ++r) {
            I start = F::zero_words();
            if constexpr (kKind.has_zero) {
              start = F::shift_left_by(
                  F::broadcast_word(x_minus_sum_at<kKind.sub_inputs>(xf + r * kRecord, part)),
                  zero_shift);
            }
            for (int p = 0; p < kPanels; ++p) {
              if constexpr (kTwoTerms) acc[r][p] = F::template shift_left<8>(acc[r][p]);
              if constexpr (kKind.has_zero) acc[r][p] = F::add_words(acc[r][p], start);
            }
          }
        }
        const uint8_t* xt = xb + part * kKind.sub_inputs + (kTwoTerms ? term * 32 : 0);
        unrolled<0, kGroups>([&](auto g) __attribute__((always_inline)) {
          I w[kPanels];
          for (int p = 0; p < kPanels; ++p) {
            w[p] = F::load_words(codes + (g.value * kPanels + p) * 64);
          }
          for (int r = 0; r < kRows; ++r) {
            const I xv = F::broadcast_word(xt + r * kRecord + g.value * 4);
            for (int p = 0; p < kPanels; ++p) {
              acc[r][p] = F::template dot4<kKind.max_code>(acc[r][p], w[p], xv);
            }
          }
        });
      }
      for (int r = 0; r < kRows; ++r) {
        const V x_scale = F::set(load_float(xf + r * kRecord));
        for (int p = 0; p < kPanels; ++p) {
          V& total = totals[r][p];
          const V scale = F::mul(F::load(reinterpret_cast<const float*>(scales + p * 64)), x_scale);
          total = F::fma(F::to_float(acc[r][p]), scale, total);
          if constexpr (kKind.has_minimum) {
            const V x_sum = F::set(load_float(x_sum_at<kKind.sub_inputs>(xf + r * kRecord, part)));
            total = F::fma(F::load(reinterpret_cast<const float*>(offsets + p * 64)), x_sum, total);
          }
        }
      }
      codes += kGroups * kPanels * 64;
      scales += kPanels * 64;
      offsets += kPanels * 64;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) F::store(sums + r * sums_stride + p * kPanel, totals[r][p]);
  }
}

// Rows [row, end) in tiles of kRows, the rest in smaller ones of nearly equal size.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
void integer_rows(const uint8_t* scratch, const uint8_t* x, int num_blocks, int zero_shift,
                  float* sums, int64_t sums_stride, int64_t num_rows) {
  if constexpr (kRows > 0) {
    // The fewest tiles, and of those the most equal: 13 rows are 5, 4, 4.
    int64_t num_tiles = (num_rows + F::kIntegerRows - 1) / F::kIntegerRows;
    while (num_tiles > 0 && (num_rows + num_tiles - 1) / num_tiles == kRows) {
      integer_tile<F, kKind, kType, kRows, kPanels>(scratch, x, num_blocks, zero_shift, sums,
                                                    sums_stride);
      x += kRows * activation_record_bytes(kType);
      sums += kRows * sums_stride;
      num_rows -= kRows;
      --num_tiles;
    }
    integer_rows<F, kKind, kType, kRows - 1, kPanels>(scratch, x, num_blocks, zero_shift, sums,
                                                      sums_stride, num_rows);
  }
}

// Panels [panel, end) of the call as far as they come in groups of kPanels; slices outermost, so
// that a slice of x stays in the cache for all panels.
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
int64_t integer_blocked(const MatmulArgs& args, int64_t panel, int64_t end) {
  using W = CodedWeights<F, kLayout>;
  constexpr int kZeroShift = log2_of(W::kZero);
  end = panel + (end - panel) / kPanels * kPanels;
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t p = panel; p < end; ++p) {
      F::store(args.sums + m * args.sums_stride + p * kPanel, F::zero());
    }
  }
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + slice / kSliceInputs * args.x_stride;
    for (int64_t group = panel; group < end; group += kPanels) {
      const uint8_t* weight =
          args.weight + static_cast<size_t>(args.first_panel + group) * args.panel_bytes;
      for (int p = 0; p < kPanels; ++p) {
        unpack_codes<F, kLayout, kPanels>(weight + static_cast<size_t>(p) * args.panel_bytes, slice,
                                          count, scratch + 64 * p);
      }
      integer_rows<F, kTileKind<F, kLayout>, kType, F::kIntegerRows, kPanels>(
          scratch, x, static_cast<int>(count / kActivationBlock), kZeroShift,
          args.sums + group * kPanel, args.sums_stride, args.num_rows);
    }
  }
  return end;
}

inline constexpr int64_t kCachedRows = 32;  // rows of x that stay in the cache over all of K

template <typename F, Layout kLayout, ActivationType kType>
void matmul_integer_blocked(const MatmulArgs& args) {
  // With few rows the weights are what is read: panel after panel, each from front to back.
  const int64_t step = args.num_rows <= kCachedRows ? F::kIntegerPanels : args.num_panels;
  int64_t panel = 0;
  while (panel + F::kIntegerPanels <= args.num_panels) {
    panel = integer_blocked<F, kLayout, kType, F::kIntegerPanels>(
        args, panel, smaller(panel + step, args.num_panels));
  }
  if constexpr (F::kIntegerPanels > 1) {
    integer_blocked<F, kLayout, kType, 1>(args, panel, args.num_panels);
  }
}

inline constexpr int64_t kPrefetchAhead = 1536;  // bytes, in each panel's stream

// One row times kPanels panels from `panel` (relative to args.first_panel).
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
__attribute__((noinline)) void integer_direct_tile(const MatmulArgs& args, const uint8_t* x,
                                                   int64_t panel, float* sums) {
  using V = typename F::V;
  using I = typename F::I;
  using W = CodedWeights<F, kLayout>;
  constexpr bool kTwoTerms = kType == ActivationType::kInt16;
  constexpr int kMaxCode = W::kMaxCode > 127 ? 255 : 127;
  constexpr int kGroups = 8 / W::kFactorsPerUnit;
  const uint8_t* weight =
      args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
  const auto stream_end = static_cast<int64_t>(args.panel_bytes);
  V total[kPanels];
  for (int p = 0; p < kPanels; ++p) total[p] = F::zero();
  int64_t stream = 0;  // bytes of each panel that have been read
  for (int64_t k = 0; k < args.num_inputs; k += W::kUnit) {
    // Past the end of a panel comes the panel that this stream reads next.
    const int64_t ahead = stream + kPrefetchAhead;
    const int64_t place = ahead < stream_end ? ahead : ahead + (kPanels - 1) * stream_end;
    for (int p = 0; p < kPanels; ++p) {
      for (int line = 0; line < W::kUnitBytes; line += 64) {
        F::prefetch(weight + p * stream_end + place + line);
      }
    }
    stream += W::kUnitBytes;
    const int block = static_cast<int>(k % kSliceInputs) / kActivationBlock;
    const uint8_t* record = x + k / kSliceInputs * args.x_stride;
    const uint8_t* xb = record + block * activation_code_bytes(kType);
    const uint8_t* xf = block_factors(record, kType, block);
    const V x_scale = F::set(load_float(xf));
    typename W::Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) units[p] = W::unit_at(weight + p * stream_end, k);
    unrolled<0, W::kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
      I start = F::zero_words();
      if constexpr (W::kZero != 0) {
        start = F::template shift_left<log2_of(W::kZero)>(
            F::broadcast_word(x_minus_sum_at<W::kSubInputs>(xf, part.value)));
      }
      I high[kPanels], low[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        high[p] = F::zero_words();
        low[p] = start;
      }
      unrolled<part.value * kGroups, (part.value + 1) * kGroups>(
          [&](auto g) __attribute__((always_inline)) {
            I x_high = F::zero_words();
            if constexpr (kTwoTerms) x_high = F::broadcast_word(xb + g.value * 4);
            const I x_low = F::broadcast_word(xb + (kTwoTerms ? 32 : 0) + g.value * 4);
            for (int p = 0; p < kPanels; ++p) {
              const I codes = W::template code_bytes<g.value>(units[p].low, units[p].high);
              if constexpr (kTwoTerms) {
                high[p] = F::template dot4<kMaxCode>(high[p], codes, x_high);
              }
              low[p] = F::template dot4<kMaxCode>(low[p], codes, x_low);
            }
          });
      for (int p = 0; p < kPanels; ++p) {
        I sum = low[p];
        if constexpr (kTwoTerms) sum = F::add_words(F::template shift_left<8>(high[p]), sum);
        const typename W::Factors f = W::factors(units[p].chunk, units[p].first_sub + part.value);
        total[p] = F::fma(F::to_float(sum), F::mul(f.scale, x_scale), total[p]);
        if constexpr (W::kHasMinimum) {
          const V x_sum = F::set(load_float(x_sum_at<W::kSubInputs>(xf, part.value)));
          total[p] = F::fma(f.offset, x_sum, total[p]);
        }
      }
    });
  }
  for (int p = 0; p < kPanels; ++p) F::store(sums + (panel + p) * kPanel, total[p]);
}

template <typename F, Layout kLayout, ActivationType kType>
void matmul_integer_direct(const MatmulArgs& args) {
  constexpr int kPanels = F::kDirectPanels;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + row * activation_record_bytes(kType);
    float* sums = args.sums + row * args.sums_stride;
    int64_t panel = 0;
    for (; panel + kPanels <= args.num_panels; panel += kPanels) {
      integer_direct_tile<F, kLayout, kType, kPanels>(args, x, panel, sums);
    }
    for (; panel < args.num_panels; ++panel) {
      integer_direct_tile<F, kLayout, kType, 1>(args, x, panel, sums);
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
