// Matrix products of integer activations with coded panels, class kInteger
// (kernels.h).
//
// direct: one row. Codes go from memory through registers to the sums, expanded
// once for both terms of an activation. blocked: code
// bytes and factors of a slice of two panels are unpacked once into scratch
// (L1) and used by all rows, a tile of rows at a time. Sums of X times code are
// exact in 32 bits: |sum| <= 32 * 255 * 32768 < 2^28. Units that lack four-byte products multiply
// 16-bit activations whole, with codes widened to 16 bits, in blocked: half the instructions of two
// terms, a quarter where bytes would saturate.
#pragma once

#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

// What the product of a sub-block needs to know of a layout; tiles are shared
// by layouts alike.
struct TileKind {
  int sub_inputs;  // 16 or 32
  bool has_minimum;
  bool has_zero;
  bool has_lane_zero;
  int max_code;         // 127 or 255: a bound
  bool adds_exponents;  // scales are f16, so that exponents may be added (kernels.h)

  constexpr bool operator==(const TileKind&) const = default;
};

template <typename F, Layout kLayout, ActivationType kType>
inline constexpr TileKind kTileKind = {
    CodedWeights<F, kLayout>::kSubInputs,
    CodedWeights<F, kLayout>::kHasMinimum,
    CodedWeights<F, kLayout>::kZero != 0,
    CodedWeights<F, kLayout>::kHasLaneZero,
    F::kSaturates&& CodedWeights<F, kLayout>::kMaxCode > 127 ? 255 : 127,
    F::kAddsExponents&& kType == ActivationType::kInt16&& CodedWeights<F, kLayout>::kHasF16Scale};

constexpr int log2_of(int value) { return value <= 1 ? 0 : 1 + log2_of(value / 2); }

// Activations and codes as 16-bit words: where there are two terms, and bytes take three
// instructions and more.
template <typename F, ActivationType kType>
inline constexpr bool kUsesWords = F::kSaturates && kType == ActivationType::kInt16;

// Scratch of a slice of kPanels panels: code bytes [block][group of 4 inputs][panel] or code words
// [block][group][even inputs, odd inputs][panel], then scales and offsets (or zero points of the
// lanes) [sub-block][panel], 64 bytes each; then the words of some rows' activations, as widen_rows
// leaves them.
template <int kPanels, bool kWords = false>
struct SliceScratch {
  static constexpr int kGroups = kSliceInputs / 4;
  static constexpr int kMaxSubBlocks = kSliceInputs / 16;
  static constexpr int kGroupBytes = (kWords ? 2 : 1) * kPanels * 64;
  static constexpr int kScales = kGroups * kGroupBytes;
  static constexpr int kOffsets = kScales + kMaxSubBlocks * kPanels * 64;
  static constexpr int kPoison = kOffsets + kMaxSubBlocks * kPanels * 64;
  static constexpr int kActivations = kPoison + kPanels * 64;
  static constexpr int kRowBytes = kWords ? kSliceInputs * 2 : 0;  // of activations
  static constexpr int kMaxBytes = kMatmulScratchFloats * static_cast<int>(sizeof(float));
  static constexpr int kMaxRows = kWords ? (kMaxBytes - kActivations) / (kSliceInputs * 2) : 0;
};
static_assert(SliceScratch<2>::kActivations <= SliceScratch<2>::kMaxBytes);
static_assert(SliceScratch<2, true>::kMaxRows >= 12);

// Factors of the sub-blocks of a super-block, `stride` bytes apart.
template <typename F, Layout kLayout>
__attribute__((noinline)) void unpack_factors(const uint8_t* chunk, uint8_t* scales,
                                              uint8_t* offsets, int64_t stride) {
  using W = CodedWeights<F, kLayout>;
  static_assert(W::kHasSubs && W::kInfo.block_inputs == kSliceInputs);
  unrolled<0, W::kInfo.num_sub_blocks>([&](auto s) __attribute__((always_inline)) {
    const typename W::Factors f = W::factors(chunk, s.value);
    F::store(reinterpret_cast<float*>(scales + s.value * stride), f.scale);
    if constexpr (W::kHasMinimum) {
      F::store(reinterpret_cast<float*>(offsets + s.value * stride), f.offset);
    }
  });
}

// One panel's part of the scratch above; `place` is scratch + 64 * panel. Prefetches as many bytes
// from `next`, where the call after this one will read.
template <typename F, Layout kLayout, int kPanels, bool kWords>
__attribute__((noinline)) void unpack_codes(const uint8_t* panel, int64_t first, int64_t count,
                                            uint8_t* place, const uint8_t* next) {
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<kPanels, kWords>;
  constexpr int kStep = 64 * kPanels;
  if constexpr (W::kHasSubs) {
    unpack_factors<F, kLayout>(W::unit_at(panel, first).chunk, place + S::kScales,
                               place + S::kOffsets, kStep);
  }
  for (int64_t k = 0; k < count; k += W::kUnit) {
    const typename W::Unit unit = W::unit_at(panel, first + k);
    uint8_t* codes = place + k / 4 * S::kGroupBytes;
    for (int line = 0; line < W::kUnitBytes; line += 64) F::prefetch(next + line);
    next += W::kUnitBytes;
    unrolled<0, 8>([&](auto group) __attribute__((always_inline)) {
      const auto bytes = W::template code_bytes<group.value>(unit.low, unit.high);
      uint8_t* to = codes + group.value * S::kGroupBytes;
      if constexpr (kWords) {
        F::store_words(to, F::even_bytes(bytes));
        F::store_words(to + kStep, F::odd_bytes(bytes));
      } else {
        F::store_words(to, bytes);
      }
    });
    if constexpr (!W::kHasSubs) {
      const typename W::Factors f = W::factors(unit.chunk, 0);
      const int64_t sub = k / W::kUnit;
      F::store(reinterpret_cast<float*>(place + S::kScales + sub * kStep), f.scale);
      if constexpr (W::kHasMinimum) {
        F::store(reinterpret_cast<float*>(place + S::kOffsets + sub * kStep), f.offset);
      }
      if constexpr (W::kHasLaneZero) F::store_words(place + S::kOffsets + sub * kStep, f.zero);
    }
  }
}

// Records of int16 rows as words: [row][group of 4 inputs][inputs 0, 2, 1, 3].
template <typename F>
__attribute__((noinline)) void widen_rows(const uint8_t* x, int64_t num_rows, int num_blocks,
                                          uint8_t* words) {
  constexpr int64_t kRecord = activation_record_bytes(ActivationType::kInt16);
  for (int64_t r = 0; r < num_rows; ++r, x += kRecord, words += kSliceInputs * 2) {
    for (int i = 0; i < num_blocks * 2; ++i) {
      const uint8_t* high = x + i / 2 * (2 * kActivationBlock) + i % 2 * 16;
      const uint8_t* low = high + kActivationBlock;
      if (mutant(Bug::kIntegerTermsSwapped)) low = high;
      F::store_pairs(words + i * 32, mutant(Bug::kIntegerHighTermDropped) ? low : high, low);
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

// A scale of weights that is multiplied with scales of activations; where those are powers of two,
// by adding exponents, which leaves the multipliers to the products.
template <typename F, bool kAddsExponents>
struct ScaleOf {
  typename F::V value;
  typename F::V times(typename F::V x_scale) const { return F::mul(value, x_scale); }
};
template <typename F>
struct ScaleOf<F, true> : F::ScaleBits {
  using F::ScaleBits::ScaleBits;
};

// 0 per lane, or NaN where a scale of the panel's part of the scratch is no number.
template <typename F, int kPanels, bool kWords>
void set_poison(uint8_t* place, int num_sub_blocks) {
  using S = SliceScratch<kPanels, kWords>;
  typename F::V poison = F::zero();
  for (int s = 0; s < num_sub_blocks; ++s) {
    const auto* scale = reinterpret_cast<const float*>(place + S::kScales + s * 64 * kPanels);
    poison = F::fma(F::load(scale), F::zero(), poison);
  }
  F::store(reinterpret_cast<float*>(place + S::kPoison), poison);
}

// acc plus the products of a group of 4 inputs of kRows rows with their codes. x: the group's bytes
// or words in the first row.
template <typename F, TileKind kKind, bool kWords, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_group(const uint8_t* codes, const uint8_t* x, int64_t stride,
                                             typename F::I (&acc)[kRows][kPanels]) {
  using I = typename F::I;
  for (int half = 0; half < (kWords ? 2 : 1); ++half) {
    I w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = F::load_words(codes + (half * kPanels + p) * 64);
    for (int r = 0; r < kRows; ++r) {
      const I xv = F::broadcast_word(x + r * stride + half * 4);
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kWords) {
          acc[r][p] = F::dot2(acc[r][p], w[p], xv);
        } else {
          acc[r][p] = F::template dot4<kKind.max_code>(acc[r][p], w[p], xv);
        }
      }
    }
  }
}

struct TileRows {
  const uint8_t* x;      // record of the first row
  const uint8_t* words;  // its activations as words, where the kernel uses them
};

// kRows rows times kPanels unpacked panels over the blocks of a slice, added to sums.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
__attribute__((noinline)) void integer_tile(const uint8_t* scratch, const TileRows& rows,
                                            int num_blocks, int zero_shift, float* sums,
                                            int64_t sums_stride) {
  using V = typename F::V;
  using I = typename F::I;
  constexpr bool kWords = kUsesWords<F, kType>;
  using S = SliceScratch<kPanels, kWords>;
  constexpr int64_t kRecord = activation_record_bytes(kType);
  constexpr int kParts = kActivationBlock / kKind.sub_inputs;
  constexpr int kGroups = kKind.sub_inputs / 4;
  constexpr bool kTwoTerms = kType == ActivationType::kInt16 && !kWords;
  const uint8_t* x = rows.x;
  const uint8_t* codes = scratch;
  const uint8_t* scales = scratch + S::kScales;
  const uint8_t* offsets = scratch + S::kOffsets;
  V totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);
    if (!mutant(Bug::kIntegerEarlierSlicesLost)) continue;
    for (int p = 0; p < kPanels; ++p) totals[r][p] = F::zero();
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
        // Codes are loaded for each term: kept in registers, they would push the totals out.
        __asm__ volatile("" ::: "memory");
        if (term == 1) {
          for (int r = 0; r < kRows; ++r) {
            I start = F::zero_words();
            if constexpr (kKind.has_zero || kKind.has_lane_zero) {
              start = F::broadcast_word(x_minus_sum_at<kKind.sub_inputs>(xf + r * kRecord, part));
              if constexpr (kKind.has_zero) start = F::shift_left_by(start, zero_shift);
              if (mutant(Bug::kIntegerZeroMissing)) start = F::zero_words();
            }
            for (int p = 0; p < kPanels; ++p) {
              I& sum = acc[r][p];
              if constexpr (kTwoTerms) sum = F::template shift_left<8>(sum);
              if (mutant(Bug::kIntegerHighTermDropped)) sum = F::zero_words();
              if constexpr (kKind.has_zero) sum = F::add_words(sum, start);
              if constexpr (kKind.has_lane_zero) {
                sum = F::add_words(sum, F::mul_words(F::load_words(offsets + p * 64), start));
              }
            }
          }
        }
        const int place = mutant(Bug::kIntegerTermsSwapped) ? 1 - term : term;
        const uint8_t* xt = xb + part * kKind.sub_inputs + (kTwoTerms ? place * 32 : 0);
        constexpr int kGroupStep = kWords ? 8 : 4;
        if constexpr (kWords) xt = rows.words + (block * kParts + part) * kGroups * kGroupStep;
        unrolled<0, kGroups>([&](auto g) __attribute__((always_inline)) {
          add_group<F, kKind, kWords, kRows, kPanels>(codes + g.value * S::kGroupBytes,
                                                      xt + g.value * kGroupStep,
                                                      kWords ? S::kRowBytes : kRecord, acc);
        });
      }
      ScaleOf<F, kKind.adds_exponents> scale[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        scale[p] = {F::load(reinterpret_cast<const float*>(scales + p * 64))};
      }
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* scale_at =
            mutant(Bug::kIntegerScaleOfFirstBlock) ? block_factors(x, kType, 0) : xf;
        const V x_scale = F::set(load_float(scale_at + r * kRecord));
        for (int p = 0; p < kPanels; ++p) {
          V& total = totals[r][p];
          total = F::fma(F::to_float(acc[r][p]), scale[p].times(x_scale), total);
          if constexpr (kKind.has_minimum) {
            const int half = mutant(Bug::kIntegerSumOfOtherHalf) ? 1 - part : part;
            const V x_sum = F::set(load_float(x_sum_at<kKind.sub_inputs>(xf + r * kRecord, half)));
            total = F::fma(F::load(reinterpret_cast<const float*>(offsets + p * 64)), x_sum, total);
          }
        }
      }
      codes += kGroups * S::kGroupBytes;
      scales += kPanels * 64;
      if (!mutant(Bug::kIntegerOffsetsStuck)) offsets += kPanels * 64;
    }
  }
  for (int r = 0; r < kRows - (mutant(Bug::kIntegerLastRowDropped) ? 1 : 0); ++r) {
    const float x_scale = load_float(block_factors(x + r * kRecord, kType, 0));
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kKind.adds_exponents) {
        // Exponents of what is no number add up to anything.
        const V poison = F::load(reinterpret_cast<const float*>(scratch + S::kPoison + p * 64));
        totals[r][p] = x_scale != x_scale ? F::set(x_scale) : F::add(totals[r][p], poison);
      }
      F::store(sums + r * sums_stride + p * kPanel, totals[r][p]);
    }
  }
}

// Rows [row, end) in tiles of kRows, the rest in smaller ones of nearly equal
// size.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
void integer_rows(const uint8_t* scratch, TileRows rows, int num_blocks, int zero_shift,
                  float* sums, int64_t sums_stride, int64_t num_rows) {
  if constexpr (kRows > 0) {
    constexpr int kRowBytes = SliceScratch<kPanels, kUsesWords<F, kType>>::kRowBytes;
    // The fewest tiles, and of those the most equal: 13 rows are 5, 4, 4.
    int64_t num_tiles = (num_rows + F::kIntegerRows - 1) / F::kIntegerRows;
    while (num_tiles > 0 && (num_rows + num_tiles - 1) / num_tiles == kRows) {
      integer_tile<F, kKind, kType, kRows, kPanels>(scratch, rows, num_blocks, zero_shift, sums,
                                                    sums_stride);
      rows.x += kRows * activation_record_bytes(kType);
      if (!mutant(Bug::kIntegerWordsStuck)) rows.words += kRows * kRowBytes;
      sums += kRows * sums_stride;
      num_rows -= kRows;
      --num_tiles;
    }
    integer_rows<F, kKind, kType, kRows - 1, kPanels>(scratch, rows, num_blocks, zero_shift, sums,
                                                      sums_stride, num_rows);
  }
}

// A slice of panels [panel, end) of a call, which come in groups.
struct PanelSlice {
  int64_t panel, end;
  int64_t first;  // input
  int64_t next;   // bytes from here to what is read after the last group's slice
};

// num_rows rows of a slice times its panels. x: the first row's record.
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
void integer_slice(const MatmulArgs& args, const PanelSlice& slice, const uint8_t* x,
                   int64_t num_rows, float* sums) {
  using W = CodedWeights<F, kLayout>;
  constexpr bool kWords = kUsesWords<F, kType>;
  using S = SliceScratch<kPanels, kWords>;
  constexpr int kZeroShift = log2_of(W::kZero);
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  const int64_t count = smaller(kSliceInputs, args.num_inputs - slice.first);
  const auto num_blocks = static_cast<int>(count / kActivationBlock);
  if constexpr (kWords) widen_rows<F>(x, num_rows, num_blocks, scratch + S::kActivations);
  const auto stride = static_cast<int64_t>(args.panel_bytes);
  const uint8_t* start = args.weight + (args.first_panel + slice.panel) * stride;
  const int64_t place = slice.first / W::kUnit * W::kUnitBytes;
  for (int64_t group = slice.panel; group < slice.end; group += kPanels) {
    const int64_t from = (group - slice.panel) * stride;
    const bool is_last = group + kPanels >= slice.end;
    const int64_t ahead = place + (is_last ? slice.next : from + kPanels * stride);
    for (int p = 0; p < kPanels; ++p) {
      unpack_codes<F, kLayout, kPanels, kWords>(start + from + p * stride, slice.first, count,
                                                scratch + 64 * p, start + ahead + p * stride);
      if constexpr (kTileKind<F, kLayout, kType>.adds_exponents) {
        set_poison<F, kPanels, kWords>(scratch + 64 * p, static_cast<int>(count / W::kSubInputs));
      }
    }
    integer_rows<F, kTileKind<F, kLayout, kType>, kType, F::kIntegerRows, kPanels>(
        scratch, {x, scratch + S::kActivations}, num_blocks, kZeroShift, sums + group * kPanel,
        args.sums_stride, num_rows);
  }
}

// Panels [panel, end) of the call as far as they come in groups of kPanels;
// slices outermost, so that a slice of x stays in the cache for all panels.
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
int64_t integer_blocked(const MatmulArgs& args, int64_t panel, int64_t end) {
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<kPanels, kUsesWords<F, kType>>;
  end = panel + (end - panel) / kPanels * kPanels;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t p = panel; p < end; ++p) {
      F::store(args.sums + m * args.sums_stride + p * kPanel, F::zero());
    }
  }
  constexpr int64_t kSliceBytes = kSliceInputs / W::kUnit * W::kUnitBytes;
  // As many rows at once as have room for their words: whole tiles.
  const int64_t step =
      S::kMaxRows == 0 ? args.num_rows : S::kMaxRows - S::kMaxRows % F::kIntegerRows;
  for (int64_t first = 0; first < args.num_inputs; first += kSliceInputs) {
    const int64_t x_slice = mutant(Bug::kIntegerSliceStuck) ? 0 : first / kSliceInputs;
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + x_slice * args.x_stride;
    // After the last group comes the first one's next slice, or else the panels after these.
    const int64_t place = first / kSliceInputs * kSliceBytes;
    const int64_t rest = (end - panel) * static_cast<int64_t>(args.panel_bytes) - place;
    const bool is_last = first + kSliceInputs >= args.num_inputs;
    const PanelSlice slice{panel, end, first, is_last ? rest : kSliceBytes};
    for (int64_t m = 0; m < args.num_rows; m += step) {
      integer_slice<F, kLayout, kType, kPanels>(args, slice, x + m * activation_record_bytes(kType),
                                                smaller(step, args.num_rows - m),
                                                args.sums + m * args.sums_stride);
    }
  }
  return end;
}

inline constexpr int64_t kCachedRows = 32;  // rows of x that stay in the cache over all of K

template <typename F, Layout kLayout, ActivationType kType>
void matmul_integer_blocked(const MatmulArgs& args) {
  // With few rows the weights are what is read: panel after panel, each from
  // front to back. But activations are widened for all panels at once.
  const bool by_panel = !kUsesWords<F, kType> && args.num_rows <= kCachedRows;
  const int64_t step = by_panel ? F::kIntegerPanels : args.num_panels;
  int64_t panel = 0;
  while (panel + F::kIntegerPanels <= args.num_panels) {
    panel = integer_blocked<F, kLayout, kType, F::kIntegerPanels>(
        args, panel, smaller(panel + step, args.num_panels));
  }
  if constexpr (F::kIntegerPanels > 1) {
    integer_blocked<F, kLayout, kType, 1>(args, panel, args.num_panels);
  }
}

// Factors as unpack_factors leaves them in the scratch of kPanels panels.
template <typename F, Layout kLayout, int kPanels>
[[gnu::always_inline]] inline typename CodedWeights<F, kLayout>::Factors load_factors(
    const uint8_t* scratch, int sub, int panel) {
  using S = SliceScratch<kPanels>;
  const uint8_t* place = scratch + 64 * (sub * kPanels + panel);
  typename CodedWeights<F, kLayout>::Factors f;
  f.scale = F::load(reinterpret_cast<const float*>(place + S::kScales));
  f.offset = F::zero();
  f.zero = F::zero_words();
  if constexpr (CodedWeights<F, kLayout>::kHasMinimum) {
    f.offset = F::load(reinterpret_cast<const float*>(place + S::kOffsets));
  }
  return f;
}

// One block of kRows rows times kPanels panels, added to totals. x and factors: codes and factors
// of the first row's block, a record apart from the next row's; unpacked: factors of the
// super-block.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
[[gnu::always_inline]] inline void direct_block(
    const typename CodedWeights<F, kLayout>::Unit* units, const uint8_t* unpacked, const uint8_t* x,
    const uint8_t* factors, typename F::V (&totals)[kRows][kPanels]) {
  using V = typename F::V;
  using I = typename F::I;
  using W = CodedWeights<F, kLayout>;
  constexpr bool kTwoTerms = kType == ActivationType::kInt16;
  constexpr int kMaxCode = W::kMaxCode > 127 ? 255 : 127;
  constexpr int kGroups = 8 / W::kFactorsPerUnit;
  constexpr int64_t kRecord = activation_record_bytes(kType);
  unrolled<0, W::kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
    I high[kRows][kPanels], low[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      I start = F::zero_words();
      if constexpr (W::kZero != 0) {
        start = F::template shift_left<log2_of(W::kZero)>(
            F::broadcast_word(x_minus_sum_at<W::kSubInputs>(factors + r * kRecord, part.value)));
      }
      for (int p = 0; p < kPanels; ++p) {
        high[r][p] = F::zero_words();
        low[r][p] = start;
      }
    }
    unrolled<part.value * kGroups, (part.value + 1) * kGroups>(
        [&](auto g) __attribute__((always_inline)) {
          I codes[kPanels];
          for (int p = 0; p < kPanels; ++p) {
            codes[p] = W::template code_bytes<g.value>(units[p].low, units[p].high);
          }
          for (int r = 0; r < kRows; ++r) {
            const uint8_t* at = x + r * kRecord + g.value * 4;
            I x_high = F::zero_words();
            if constexpr (kTwoTerms) x_high = F::broadcast_word(at);
            const I x_low = F::broadcast_word(at + (kTwoTerms ? 32 : 0));
            for (int p = 0; p < kPanels; ++p) {
              if constexpr (kTwoTerms) {
                high[r][p] = F::template dot4<kMaxCode>(high[r][p], codes[p], x_high);
              }
              low[r][p] = F::template dot4<kMaxCode>(low[r][p], codes[p], x_low);
            }
          }
        });
    for (int p = 0; p < kPanels; ++p) {
      typename W::Factors f;
      if constexpr (W::kHasSubs) {
        f = load_factors<F, kLayout, kPanels>(unpacked, units[p].first_sub + part.value, p);
      } else {
        f = W::factors(units[p].chunk, 0);
      }
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* of_row = factors + r * kRecord;
        I sum = low[r][p];
        if (mutant(Bug::kIntegerDirectHighTermDropped)) high[r][p] = F::zero_words();
        if constexpr (kTwoTerms) sum = F::add_words(F::template shift_left<8>(high[r][p]), sum);
        if constexpr (W::kHasLaneZero) {
          const I minus = F::broadcast_word(x_minus_sum_at<W::kSubInputs>(of_row, part.value));
          sum = F::add_words(sum, F::mul_words(f.zero, minus));
        }
        V& total = totals[r][p];
        total = F::fma(F::to_float(sum), F::mul(f.scale, F::set(load_float(of_row))), total);
        if constexpr (W::kHasMinimum) {
          const V x_sum = F::set(load_float(x_sum_at<W::kSubInputs>(of_row, part.value)));
          if (mutant(Bug::kIntegerDirectMinimumSkipped)) continue;
          total = F::fma(f.offset, x_sum, total);
        }
      }
    }
  });
}

inline constexpr int64_t kPrefetchAhead =
    8192;  // bytes, in each panel's stream; 1.5 KiB to 24 KiB were tried

// One row times one panel (relative to args.first_panel), read from front to back.
template <typename F, Layout kLayout, ActivationType kType>
__attribute__((noinline)) void integer_direct_panel(const MatmulArgs& args, const uint8_t* x,
                                                    int64_t panel, float* sums) {
  using V = typename F::V;
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<1>;
  const uint8_t* weight =
      args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  V totals[1][1] = {{F::zero()}};
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    const int64_t x_slice = mutant(Bug::kIntegerDirectSliceStuck) ? 0 : slice / kSliceInputs;
    const uint8_t* record = x + x_slice * args.x_stride;
    const auto num_blocks =
        static_cast<int>(smaller(kSliceInputs, args.num_inputs - slice) / kActivationBlock);
    if constexpr (W::kHasSubs) {
      unpack_factors<F, kLayout>(W::unit_at(weight, slice).chunk, scratch + S::kScales,
                                 scratch + S::kOffsets, 64);
    }
    const uint8_t* stream = weight + slice / W::kUnit * W::kUnitBytes;
    for (int block = 0; block < num_blocks; ++block) {
      for (int line = 0; line < W::kUnitBytes; line += 64) {
        F::prefetch(stream + kPrefetchAhead + line);
      }
      stream += W::kUnitBytes;
      const typename W::Unit unit = W::unit_at(weight, slice + block * kActivationBlock);
      direct_block<F, kLayout, kType, 1, 1>(&unit, scratch,
                                            record + block * activation_code_bytes(kType),
                                            block_factors(record, kType, block), totals);
    }
  }
  F::store(sums + panel * kPanel, totals[0][0]);
}

// The part of kPanels panels that the tiles of a slice read.
struct DirectSlice {
  const uint8_t* weight;  // of the first panel
  int64_t panel_bytes;
  int64_t first;  // input
  int num_blocks;
  int64_t ahead;            // bytes to prefetch ahead
  const uint8_t* unpacked;  // factors of the super-block
};

// kRows rows times kPanels panels over the blocks of a slice, added to sums: each code is expanded
// in a register and used for all rows at once. x: record of the first row.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
__attribute__((noinline)) void direct_tile(const DirectSlice& slice, const uint8_t* x, float* sums,
                                           int64_t sums_stride) {
  using V = typename F::V;
  using W = CodedWeights<F, kLayout>;
  V totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);
      if (mutant(Bug::kIntegerDirectEarlierSlicesLost)) totals[r][p] = F::zero();
    }
  }
  const uint8_t* stream = slice.weight + slice.first / W::kUnit * W::kUnitBytes + slice.ahead;
  for (int block = 0; block < slice.num_blocks; ++block) {
    typename W::Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      for (int line = 0; line < W::kUnitBytes; line += 64) {
        F::prefetch(stream + p * slice.panel_bytes + line);
      }
      units[p] =
          W::unit_at(slice.weight + p * slice.panel_bytes, slice.first + block * kActivationBlock);
    }
    stream += W::kUnitBytes;
    direct_block<F, kLayout, kType, kRows, kPanels>(units, slice.unpacked,
                                                    x + block * activation_code_bytes(kType),
                                                    block_factors(x, kType, block), totals);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) F::store(sums + r * sums_stride + p * kPanel, totals[r][p]);
  }
}

template <typename F, ActivationType kType>
inline constexpr int kIntegerDirectRows =
    kType == ActivationType::kInt16 ? F::kDirectRowsInt16 : F::kDirectRowsInt8;

// Rows of a tile of kPanels panels at most. A last odd panel is rare: it takes what code there is.
template <typename F, ActivationType kType, int kPanels>
inline constexpr int kDirectTileRows = kPanels == 1 ? 2 : kIntegerDirectRows<F, kType>;

// All rows in tiles, as equal as may be. Only the first prefetches: the others find its lines in
// the cache.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
void direct_rows(DirectSlice slice, const uint8_t* x, float* sums, int64_t sums_stride,
                 int64_t num_rows) {
  if constexpr (kRows > 0) {
    constexpr int64_t kLargest = kDirectTileRows<F, kType, kPanels>;
    int64_t num_tiles = (num_rows + kLargest - 1) / kLargest;
    while (num_tiles > 0 && (num_rows + num_tiles - 1) / num_tiles == kRows) {
      direct_tile<F, kLayout, kType, kRows, kPanels>(slice, x, sums, sums_stride);
      slice.ahead = 0;
      if (!mutant(Bug::kIntegerDirectRowsStuck)) x += kRows * activation_record_bytes(kType);
      sums += kRows * sums_stride;
      num_rows -= kRows;
      --num_tiles;
    }
    direct_rows<F, kLayout, kType, kRows - 1, kPanels>(slice, x, sums, sums_stride, num_rows);
  }
}

// All rows times kPanels panels from `panel` on, a slice of all of them at a time.
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
void direct_panels(const MatmulArgs& args, int64_t panel) {
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<kPanels>;
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  const auto panel_bytes = static_cast<int64_t>(args.panel_bytes);
  const uint8_t* weight = args.weight + (args.first_panel + panel) * panel_bytes;
  float* sums = args.sums + panel * kPanel;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int p = 0; p < kPanels; ++p) F::store(sums + m * args.sums_stride + p * kPanel, F::zero());
  }
  for (int64_t first = 0; first < args.num_inputs; first += kSliceInputs) {
    const int64_t count = smaller(kSliceInputs, args.num_inputs - first);
    const int64_t x_slice = mutant(Bug::kIntegerDirectSliceStuck) ? 0 : first / kSliceInputs;
    if constexpr (W::kHasSubs) {
      for (int p = 0; p < kPanels; ++p) {
        unpack_factors<F, kLayout>(W::unit_at(weight + p * panel_bytes, first).chunk,
                                   scratch + S::kScales + 64 * p, scratch + S::kOffsets + 64 * p,
                                   64 * kPanels);
      }
    }
    // Past the end of a panel comes the panel that this stream reads next.
    const int64_t place = first / W::kUnit * W::kUnitBytes + kPrefetchAhead;
    const int64_t skipped = place < panel_bytes ? 0 : (kPanels - 1) * panel_bytes;
    const DirectSlice slice{weight,
                            panel_bytes,
                            first,
                            static_cast<int>(count / kActivationBlock),
                            kPrefetchAhead + skipped,
                            scratch};
    direct_rows<F, kLayout, kType, kDirectTileRows<F, kType, kPanels>, kPanels>(
        slice, static_cast<const uint8_t*>(args.x) + x_slice * args.x_stride, sums,
        args.sums_stride, args.num_rows);
  }
}

template <typename F, Layout kLayout, ActivationType kType>
void matmul_integer_direct(const MatmulArgs& args) {
  int64_t panel = 0;
  if constexpr (kIntegerDirectRows<F, kType> > 1) {
    if (args.num_rows > 1) {
      constexpr int kPanels = F::kIntegerPanels;
      for (; panel + kPanels <= args.num_panels; panel += kPanels) {
        direct_panels<F, kLayout, kType, kPanels>(args, panel);
      }
      for (; panel < args.num_panels; ++panel) direct_panels<F, kLayout, kType, 1>(args, panel);
      return;
    }
  }
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + row * activation_record_bytes(kType);
    for (panel = 0; panel < args.num_panels; ++panel) {
      integer_direct_panel<F, kLayout, kType>(args, x, panel, args.sums + row * args.sums_stride);
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
