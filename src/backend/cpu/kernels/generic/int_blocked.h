// Integer activations times coded panels with the codes unpacked once for all rows; see
// int_scratch.h.
#pragma once

#include "backend/cpu/kernels/generic/int_scratch.h"

namespace headrace::cpu {
namespace {

// What the product of a sub-block needs to know of a layout; tiles are shared
// by layouts alike.
struct TileKind {
  int sub_inputs;  // 16 or 32
  bool has_minimum;
  bool has_zero;  // words are codes less their zero
  bool has_lane_zero;
  int max_code;         // a bound
  bool words;           // kUsesWords
  bool adds_exponents;  // scales are f16, so that exponents may be added (kernels.h)

  constexpr bool operator==(const TileKind&) const = default;
};

template <typename F, Layout kLayout, ActivationType kType>
inline constexpr TileKind kTileKind = {
    CodedWeights<F, kLayout>::kSubInputs,
    CodedWeights<F, kLayout>::kHasMinimum,
    !kUsesWords<F, kLayout, kType> && CodedWeights<F, kLayout>::kZero != 0,
    !kUsesWords<F, kLayout, kType> && CodedWeights<F, kLayout>::kHasLaneZero,
    F::kSaturates ? code_bound(CodedWeights<F, kLayout>::kMaxCode) : 127,
    kUsesWords<F, kLayout, kType>,
    F::kAddsExponents&& kType == ActivationType::kInt16&& CodedWeights<F, kLayout>::kHasF16Scale};

// What a byte has for zero, in both halves of each word.
template <typename F, Layout kLayout>
[[gnu::always_inline]] inline typename F::I zero_halves(const uint8_t* chunk) {
  using W = CodedWeights<F, kLayout>;
  if constexpr (!W::kHasLaneZero) return F::set_bits(W::kZero * 0x00010001u);
  const typename F::I zero = W::factors(chunk, 0).zero;
  return F::or_bits(zero, F::template shift_left<16>(zero));
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
    const typename F::I zero = zero_halves<F, kLayout>(unit.chunk);
    unrolled<0, 8>([&](auto group) __attribute__((always_inline)) {
      const auto bytes = W::template code_bytes<group.value>(unit.low, unit.high);
      uint8_t* to = codes + group.value * S::kGroupBytes;
      if constexpr (kWords) {
        F::store_words(to, F::sub_halves(F::even_bytes(bytes), zero));
        F::store_words(to + kStep, F::sub_halves(F::odd_bytes(bytes), zero));
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
      if constexpr (W::kHasLaneZero && !kWords) {
        F::store_words(place + S::kOffsets + sub * kStep, f.zero);
      }
    }
  }
}

// Records of rows as words: [row][group of 4 inputs][inputs 0, 2, 1, 3].
template <typename F, ActivationType kType>
__attribute__((noinline)) void widen_rows(const uint8_t* x, int64_t num_rows, int num_blocks,
                                          uint8_t* words) {
  constexpr int64_t kRecord = activation_record_bytes(kType);
  for (int64_t r = 0; r < num_rows; ++r, x += kRecord, words += kSliceInputs * 2) {
    for (int i = 0; i < num_blocks * 2; ++i) {
      const uint8_t* codes = x + i / 2 * activation_code_bytes(kType) + i % 2 * 16;
      if constexpr (kType == ActivationType::kInt16) {
        F::store_pairs(words + i * 32, codes, codes + kActivationBlock);
      } else {
        F::store_pairs(words + i * 32, codes);
      }
    }
  }
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

// Plus the products of group kGroup of 4 inputs of kRows rows with their codes. x: the group's
// bytes in the first row.
template <typename F, TileKind kKind, int kGroup, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_group(const uint8_t* codes, const uint8_t* x, int64_t stride,
                                             ProductSums<F, kRows, kPanels>& sums) {
  using I = typename F::I;
  I w[kPanels];
  for (int p = 0; p < kPanels; ++p) w[p] = F::load_words(codes + p * 64);
  for (int r = 0; r < kRows; ++r) {
    const I xv = F::broadcast_word(x + r * stride);
    for (int p = 0; p < kPanels; ++p) {
      add_products<F, kKind.max_code, kGroup, kKind.sub_inputs / 4>(w[p], xv, sums.halves[r][p],
                                                                    sums.words[r][p]);
    }
  }
}

// The same of two groups, where 16 bits hold no more: row by row, as sums of both kinds do not fit
// into registers.
template <typename F, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_two_groups(const uint8_t* codes, int64_t group_bytes,
                                                  const uint8_t* x, int64_t stride,
                                                  ProductSums<F, kRows, kPanels>& sums) {
  using I = typename F::I;
  I w[2][kPanels];
  for (int p = 0; p < kPanels; ++p) {
    w[0][p] = F::load_words(codes + p * 64);
    w[1][p] = F::load_words(codes + group_bytes + p * 64);
  }
  for (int r = 0; r < kRows; ++r) {
    const I first = F::broadcast_word(x + r * stride);
    const I second = F::broadcast_word(x + r * stride + 4);
    for (int p = 0; p < kPanels; ++p) {
      const I halves =
          F::add_halves(F::multiply_bytes(w[0][p], first), F::multiply_bytes(w[1][p], second));
      I& sum = sums.words[r][p];
      sum = F::add_words(sum, F::add_pairs(halves));
      F::keep_whole(&sum);
    }
  }
}

// The same with words of activations and codes.
template <typename F, int kRows, int kPanels>
[[gnu::always_inline]] inline void add_group_of_words(const uint8_t* codes, const uint8_t* x,
                                                      int64_t stride,
                                                      ProductSums<F, kRows, kPanels>& sums) {
  using I = typename F::I;
  for (int half = 0; half < 2; ++half) {
    I w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = F::load_words(codes + (half * kPanels + p) * 64);
    for (int r = 0; r < kRows; ++r) {
      const I xv = F::broadcast_word(x + r * stride + half * 4);
      for (int p = 0; p < kPanels; ++p) {
        sums.words[r][p] = F::dot2(sums.words[r][p], w[p], xv);
        F::keep_whole(&sums.words[r][p]);
      }
    }
  }
}

struct TileRows {
  const uint8_t* x;      // record of the first row
  const uint8_t* words;  // its activations as words, where the kernel uses them
};

// A tile of kRows rows times kPanels unpacked panels over the blocks of a slice.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
struct IntegerTile {
  using V = typename F::V;
  using I = typename F::I;
  using Sums = ProductSums<F, kRows, kPanels>;
  using Totals = V[kRows][kPanels];
  static constexpr bool kWords = kKind.words;
  static constexpr bool kTwoTerms = kType == ActivationType::kInt16 && !kWords;
  using S = SliceScratch<kPanels, kWords>;
  static constexpr int64_t kRecord = activation_record_bytes(kType);
  static constexpr int kParts = kActivationBlock / kKind.sub_inputs;
  static constexpr int kGroups = kKind.sub_inputs / 4;
  static constexpr int kGroupStep = kWords ? 8 : 4;

  struct SubBlock {
    const uint8_t* codes;
    const uint8_t* scales;
    const uint8_t* offsets;
    const uint8_t* x;        // the first row's bytes or words
    const uint8_t* factors;  // of its block
    int part;                // of the block

    SubBlock(const uint8_t* scratch, const TileRows& rows, int index)
        : codes(scratch + index * kGroups * S::kGroupBytes),
          scales(scratch + S::kScales + index * kPanels * 64),
          offsets(scratch + S::kOffsets + index * kPanels * 64),
          x(kWords ? rows.words + index * kGroups * kGroupStep
                   : rows.x + index / kParts * activation_code_bytes(kType) +
                         index % kParts * kKind.sub_inputs),
          factors(block_factors(rows.x, kType, index / kParts)),
          part(index % kParts) {}
  };

  // Before the products of the low term: 256 times those of the high one, and what zero points
  // take.
  [[gnu::always_inline]] static void start_low_term(const SubBlock& at, int zero_shift,
                                                    Sums& sums) {
    for (int r = 0; r < kRows; ++r) {
      I start = F::zero_words();
      if constexpr (kKind.has_zero || kKind.has_lane_zero) {
        start =
            F::broadcast_word(x_minus_sum_at<kKind.sub_inputs>(at.factors + r * kRecord, at.part));
        if constexpr (kKind.has_zero) start = F::shift_left_by(start, zero_shift);
      }
      for (int p = 0; p < kPanels; ++p) {
        I& sum = sums.words[r][p];
        if constexpr (kTwoTerms) sum = F::template shift_left<8>(sum);
        if constexpr (kKind.has_zero) sum = F::add_words(sum, start);
        if constexpr (kKind.has_lane_zero) {
          sum = F::add_words(sum, F::mul_words(F::load_words(at.offsets + p * 64), start));
        }
      }
    }
  }

  // The whole-number sums of a sub-block.
  [[gnu::always_inline]] static void multiply(const SubBlock& at, int zero_shift, Sums& sums) {
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) sums.words[r][p] = F::zero_words();
    }
    for (int term = kTwoTerms ? 0 : 1; term < 2; ++term) {
      // Codes are loaded for each term: kept in registers, they would push the totals out.
      __asm__ volatile("" ::: "memory");
      if (term == 1) start_low_term(at, zero_shift, sums);
      const uint8_t* x = at.x + (kTwoTerms ? term * kActivationBlock : 0);
      unrolled<0, kGroups>([&](auto g) __attribute__((always_inline)) {
        const uint8_t* codes = at.codes + g.value * S::kGroupBytes;
        if constexpr (kWords) {
          add_group_of_words(codes, x + g.value * kGroupStep, S::kRowBytes, sums);
        } else if constexpr (groups_in_halves<F>(kKind.max_code) == 2) {
          if constexpr (g.value % 2 == 0) {
            add_two_groups(codes, S::kGroupBytes, x + g.value * kGroupStep, kRecord, sums);
          }
        } else {
          add_group<F, kKind, g.value>(codes, x + g.value * kGroupStep, kRecord, sums);
        }
      });
    }
  }

  [[gnu::always_inline]] static void add_scaled(const SubBlock& at, const Sums& sums,
                                                Totals& totals) {
    ScaleOf<F, kKind.adds_exponents> scale[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      scale[p] = {F::load(reinterpret_cast<const float*>(at.scales + p * 64))};
    }
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* factors = at.factors + r * kRecord;
      const V x_scale = F::set(load_float(factors));
      for (int p = 0; p < kPanels; ++p) {
        V& total = totals[r][p];
        total = F::fma(F::to_float(sums.words[r][p]), scale[p].times(x_scale), total);
        if constexpr (kKind.has_minimum) {
          const V x_sum = F::set(load_float(x_sum_at<kKind.sub_inputs>(factors, at.part)));
          const V minimum = F::load(reinterpret_cast<const float*>(at.offsets + p * 64));
          total = F::fma(minimum, x_sum, total);
        }
      }
    }
  }

  [[gnu::always_inline]] static void store(const uint8_t* scratch, const uint8_t* x,
                                           const Totals& totals, float* sums, int64_t sums_stride) {
    for (int r = 0; r < kRows; ++r) {
      const float x_scale = load_float(block_factors(x + r * kRecord, kType, 0));
      for (int p = 0; p < kPanels; ++p) {
        V total = totals[r][p];
        if constexpr (kKind.adds_exponents) {
          // Exponents of what is no number add up to anything.
          const V poison = F::load(reinterpret_cast<const float*>(scratch + S::kPoison + p * 64));
          total = x_scale != x_scale ? F::set(x_scale) : F::add(total, poison);
        }
        F::store(sums + r * sums_stride + p * kPanel, total);
      }
    }
  }

  // Added to sums.
  __attribute__((noinline)) static void run(const uint8_t* scratch, const TileRows& rows,
                                            int num_blocks, int zero_shift, float* sums,
                                            int64_t sums_stride) {
    Totals totals;
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);
    }
    for (int index = 0; index < num_blocks * kParts; ++index) {
      const SubBlock at(scratch, rows, index);
      Sums products;
      multiply(at, zero_shift, products);
      add_scaled(at, products, totals);
    }
    store(scratch, rows.x, totals, sums, sums_stride);
  }
};

// Rows [row, end) in tiles of kRows, the rest in smaller ones of nearly equal
// size.
template <typename F, TileKind kKind, ActivationType kType, int kRows, int kPanels>
void integer_rows(const uint8_t* scratch, TileRows rows, int num_blocks, int zero_shift,
                  float* sums, int64_t sums_stride, int64_t num_rows) {
  if constexpr (kRows > 0) {
    constexpr int kRowBytes = SliceScratch<kPanels, kKind.words>::kRowBytes;
    // The fewest tiles, and of those the most equal: 13 rows are 5, 4, 4.
    int64_t num_tiles = (num_rows + F::kIntegerRows - 1) / F::kIntegerRows;
    while (num_tiles > 0 && (num_rows + num_tiles - 1) / num_tiles == kRows) {
      IntegerTile<F, kKind, kType, kRows, kPanels>::run(scratch, rows, num_blocks, zero_shift, sums,
                                                        sums_stride);
      rows.x += kRows * activation_record_bytes(kType);
      rows.words += kRows * kRowBytes;
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
  constexpr bool kWords = kUsesWords<F, kLayout, kType>;
  using S = SliceScratch<kPanels, kWords>;
  constexpr int kZeroShift = log2_of(W::kZero);
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  const int64_t count = smaller(kSliceInputs, args.num_inputs - slice.first);
  const auto num_blocks = static_cast<int>(count / kActivationBlock);
  if constexpr (kWords) widen_rows<F, kType>(x, num_rows, num_blocks, scratch + S::kActivations);
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
  using S = SliceScratch<kPanels, kUsesWords<F, kLayout, kType>>;
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
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride;
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
  const bool by_panel = !kUsesWords<F, kLayout, kType> && args.num_rows <= kCachedRows;
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

// From here on codes are unpacked once for all rows, not expanded for each tile of them (measured).
template <typename F, Layout kLayout, ActivationType kType>
constexpr int32_t min_blocked_rows() {
  if (F::kSaturates) {
    constexpr bool kIsExact = kType == ActivationType::kInt16;
    if (CodedWeights<F, kLayout>::kMaxCode > 127) return kIsExact ? 2 : 3;
    if (CodedWeights<F, kLayout>::kMaxCode > 15) return kIsExact ? 4 : 8;
    return kIsExact ? 8 : 12;
  }
  if (kIntegerDirectRows<F, kType> == 2) return 8;
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  const bool many_operations = kInfo.high_bits > 0 || kInfo.low_bits == 2 || kInfo.table != 0;
  return many_operations ? 24 : 64;
}

template <typename F, ActivationType kType>
struct IntegerBlockedRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix =
      kType == ActivationType::kInt16 ? "_int16_blocked" : "_int8_blocked";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            F::kIsa,
            kLayout,
            kType,
            min_blocked_rows<F, kLayout, kType>(),
            {F::kIntegerRows, F::kIntegerPanels * kPanel, kSliceInputs},
            NumericsClass::kInteger,
            {.matmul = &matmul_integer_blocked<F, kLayout, kType>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
