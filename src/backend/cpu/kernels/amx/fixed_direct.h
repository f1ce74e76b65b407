// Fixed-point activations times coded panels for few rows, in vectors: the whole numbers of
// amx/fixed.h (class kFixed) without its tiles, as fast as memory brings the codes.
//
// T = 256 high + low, the sums of W with either digit of X, both modulo 2^32; both fit for
// kFixedSegment inputs. Linear
// codes are multiplied as they come from memory and their sums by the sub-block's factor. Others
// become the numbers W of 16 bits, whose products want X's digits in as many: of each four inputs
// the first and third in one word, the second and fourth in another, as codes lie in theirs.
#pragma once

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/generic/lanes_avx512_vnni.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

// Sums of both digits of X over 16 or 32 inputs.
struct DigitSums {
  int32_t high, low;
};
template <int kInputs>
[[gnu::always_inline]] inline DigitSums digit_sums(const uint8_t* of_slice, int64_t part) {
  int16_t sums[kInputs / 16][2];
  __builtin_memcpy(sums, of_slice + part * static_cast<int64_t>(sizeof(sums)), sizeof(sums));
  DigitSums all{sums[0][0], sums[0][1]};
  if constexpr (kInputs == 32) all = {all.high + sums[1][0], all.low + sums[1][1]};
  return all;
}

// kRows rows times kPanels panels.
template <Layout kLayout, int kRows, int kPanels>
class FixedDirect {
 public:
  using F = Avx512Vnni;
  using Weights = FixedWeights<kLayout>;
  using W = typename Weights::W;
  static constexpr FixedCode kCode = Weights::kCode;
  static constexpr int kGroups = 8 / W::kFactorsPerUnit;  // of 4 inputs, in a sub-block
  using Unit = typename Weights::Unit;
  using Words = __m512i[kRows][kPanels];
  struct Sums {
    Words high, low;
  };
  // Products added one to another wait for each other: with one chain that sets the pace of a row.
  static constexpr int kChains = kCode.is_linear ? 1 : 2;
  static constexpr int64_t kWideInputBytes = kDigits * 2;
  static constexpr int64_t kWideBytes = kLongestFixedSegment * kWideInputBytes;  // of a row
  static_assert(kPanels * kFixedPairsBytes + kRows * kWideBytes <=
                kMatmulScratchFloats * int64_t{sizeof(float)});

  FixedDirect(const MatmulArgs& args, int64_t row, int64_t panel)
      : args_(args),
        weight_(args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes),
        x_(static_cast<const uint8_t*>(args.x)),
        at_(row_in_tiles(ActivationType::kFixed, args.beside.before + row,
                         args.beside.before + args.num_rows + args.beside.behind, args.x_stride)),
        sums_(args.sums + row * args.sums_stride + panel * kPanel),
        pairs_(reinterpret_cast<uint8_t*>(args.scratch)),
        wide_(pairs_ + kPanels * kFixedPairsBytes) {}

  void run() const {
    __m512 totals[kRows][kPanels];
    for (auto& row : totals) {
      for (__m512& total : row) total = F::zero();
    }
    for (int64_t first = 0, count; first < args_.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args_.num_inputs);
      add_segment(first, count, totals);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        F::store(sums_ + r * args_.sums_stride + p * kPanel, totals[r][p]);
      }
    }
  }

 private:
  const uint8_t* panel_at(int p) const {
    return weight_ + static_cast<size_t>(p) * args_.panel_bytes;
  }

  void add_segment(int64_t first, int64_t count, __m512 (&totals)[kRows][kPanels]) const {
    Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      units[p] = unit_of(panel_at(p), first, count, pairs_ + p * kFixedPairsBytes);
    }
    if constexpr (!kCode.is_linear) widen_digits(first, count);
    Sums sums[kChains];
    Words steps;  // of kFixedStep, that sums have no room for
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        for (Sums& chain : sums) chain.high[r][p] = chain.low[r][p] = F::zero_words();
        steps[r][p] = F::zero_words();
      }
    }
    for (int64_t k = 0; k < count;) {
      if (k > 0) make_room(sums, steps);
      const int64_t end = smaller(k + kFixedSegment, count);
      for (; k < end; k += W::kUnit) add_unit(first, k, units, sums);
    }
    for (int r = 0; r < kRows; ++r) {
      float x_unit;
      __builtin_memcpy(&x_unit, slice_at(first) + at_.unit + r * kFixedUnitBytes, sizeof(x_unit));
      for (int p = 0; p < kPanels; ++p) {
        const auto [high, low] = both_chains(sums, r, p);
        const __m512 total = F::to_float(F::add_words(steps[r][p], to_steps(high, low)));
        const __m512 unit = F::mul(F::mul(units[p].unit, F::set(kFixedStep)), F::set(x_unit));
        totals[r][p] = F::fma(total, unit, totals[r][p]);
      }
    }
  }

  struct Pair {
    __m512i high, low;
  };
  [[gnu::always_inline]] static Pair both_chains(const Sums (&sums)[kChains], int r, int p) {
    Pair sum{sums[0].high[r][p], sums[0].low[r][p]};
    if constexpr (kChains == 2) {
      add(sums[1].high[r][p], &sum.high);
      add(sums[1].low[r][p], &sum.low);
    }
    return sum;
  }

  // Moves whole steps of 2 high out of the sums, whose rest has a few bits.
  static void make_room(Sums (&sums)[kChains], Words& steps) {
    static_assert(kFixedStepBits == 9);
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        const auto [high, low] = both_chains(sums, r, p);
        const __m512i all = F::add_words(high, F::template shift_right_signed<8>(low));
        add(F::template shift_right_signed<1>(all), &steps[r][p]);
        for (Sums& chain : sums) chain.high[r][p] = chain.low[r][p] = F::zero_words();
        sums[0].high[r][p] = F::and_bits(all, F::set_bits(1));
        sums[0].low[r][p] = F::and_bits(low, F::set_bits(255));
      }
    }
  }

  // Linear codes round their factors where they use them, each once.
  static Unit unit_of(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    if constexpr (kCode.is_linear) return Weights::find_unit(panel, first, count, pairs);
    return {Weights::make_pairs(panel, first, count, pairs), F::zero()};
  }

  // Digits of a segment in 16 bits: for each block of 64 inputs the high ones of first and third
  // inputs, those of second and fourth, then the low ones. Done again for each group of panels, a
  // few per cent of its work: no scratch holds all of K.
  [[gnu::always_inline]] void widen_digits(int64_t first, int64_t count) const {
    for (int r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < count; k += kFixedBlock) {
        const uint8_t* from = block_at(first + k) + r * kActivationLine;
        uint8_t* to = wide_ + r * kWideBytes + k * kWideInputBytes;
        for (int digit = 0; digit < kDigits; ++digit) {
          const __m512i bytes = F::load_words(from + digit * at_.pitch);
          F::store_words(to + digit * 128, _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
          F::store_words(to + digit * 128 + 64, _mm512_srai_epi16(bytes, 8));
        }
      }
    }
  }

  // The first row's lines of the block of input k; what lies with its slice.
  const uint8_t* block_at(int64_t k) const {
    return x_ + at_.line + k / kFixedBlock * kDigits * at_.pitch;
  }
  const uint8_t* slice_at(int64_t k) const { return x_ + k / kSliceInputs * at_.slice_pitch; }

  // Inputs [first + k, first + k + kUnit), first being a segment's.
  [[gnu::always_inline]] void add_unit(int64_t first, int64_t k, const Unit (&by)[kPanels],
                                       Sums (&sums)[kChains]) const {
    typename W::Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) units[p] = W::unit_at(panel_at(p), first + k);
    const uint8_t* next = Weights::template ahead_in_stream<kPanels>(args_, weight_, first + k);
    const uint8_t* x = block_at(first + k) + k % kFixedBlock;
    const uint8_t* of_slice = slice_at(first + k) + at_.sums;
    const int64_t sub_block_in_slice = (first + k) % kSliceInputs / W::kSubInputs;
    unrolled<0, W::kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
      const int64_t sub_block = k / W::kSubInputs + part.value;
      const uint8_t* pairs = pairs_ + sub_block * kFixedPairBytes;
      if constexpr (kCode.is_linear) {
        add_linear<part.value>(units, next, x, of_slice, sub_block_in_slice, pairs, by, sums[0]);
      } else {
        add_rounded<part.value>(units, next, k, pairs, sums);
      }
    });
  }

  template <int kPart>
  [[gnu::always_inline]] void add_linear(const typename W::Unit (&units)[kPanels],
                                         const uint8_t* next, const uint8_t* x,
                                         const uint8_t* of_slice, int64_t part,
                                         const uint8_t* pairs, const Unit (&by)[kPanels],
                                         Sums& sums) const {
    constexpr int kZero = kCode.has_offset ? kCode.center : W::kZero;
    constexpr int kMaxCode = W::kMaxCode;
    Words of_high, of_low;
    DigitSums x_sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      x_sums[r] = digit_sums<W::kSubInputs>(of_slice + r * kFixedSumsBytes, part + kPart);
      for (int p = 0; p < kPanels; ++p) {
        of_high[r][p] = _mm512_set1_epi32(-kZero * x_sums[r].high);
        of_low[r][p] = _mm512_set1_epi32(-kZero * x_sums[r].low);
      }
    }
    unrolled<kPart * kGroups, (kPart + 1) * kGroups>([&](auto g) __attribute__((always_inline)) {
      for (int p = 0; p < kPanels; ++p) {
        prefetch_beside<g.value>(next, p);
        const __m512i codes = W::template code_bytes<g.value>(units[p].low, units[p].high);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x + r * kActivationLine + g.value * 4;
          of_high[r][p] = F::dot4<kMaxCode>(of_high[r][p], codes, F::broadcast_word(at));
          of_low[r][p] = F::dot4<kMaxCode>(of_low[r][p], codes, F::broadcast_word(at + at_.pitch));
        }
      }
    });
    for (int p = 0; p < kPanels; ++p) {
      const auto as_whole = [&](int64_t at) __attribute__((always_inline)) {
        const auto* from = reinterpret_cast<const float*>(pairs + p * kFixedPairsBytes + at);
        const __m512 value =
            at == 0 && Weights::kHasPlainScales ? W::chunk_scale(units[p].chunk) : F::load(from);
        return F::to_words(F::mul(value, by[p].by));
      };
      const __m512i factor = as_whole(0);
      for (int r = 0; r < kRows; ++r) {
        add(F::mul_words(of_high[r][p], factor), &sums.high[r][p]);
        add(F::mul_words(of_low[r][p], factor), &sums.low[r][p]);
      }
      if constexpr (kCode.has_offset) add_offset(as_whole(64), x_sums, p, sums);
    }
  }

  [[gnu::always_inline]] static void add_offset(__m512i offset, const DigitSums (&x_sums)[kRows],
                                                int p, Sums& sums) {
    for (int r = 0; r < kRows; ++r) {
      add(F::mul_words(offset, _mm512_set1_epi32(x_sums[r].high)), &sums.high[r][p]);
      add(F::mul_words(offset, _mm512_set1_epi32(x_sums[r].low)), &sums.low[r][p]);
    }
  }
  [[gnu::always_inline]] static void add(__m512i words, __m512i* sum) {
    *sum = F::add_words(*sum, words);
  }

  template <int kPart>
  [[gnu::always_inline]] void add_rounded(const typename W::Unit (&units)[kPanels],
                                          const uint8_t* next, int64_t k, const uint8_t* pairs,
                                          Sums (&sums)[kChains]) const {
    Sums &of_even = sums[0], &of_odd = sums[1];
    const uint8_t* x = wide_ + k / kFixedBlock * kFixedBlock * kWideInputBytes + k % kFixedBlock;
    unrolled<kPart * kGroups, (kPart + 1) * kGroups>([&](auto g) __attribute__((always_inline)) {
      for (int p = 0; p < kPanels; ++p) {
        prefetch_beside<g.value>(next, p);
        const uint8_t* pair = pairs + p * kFixedPairsBytes;
        const __m512i even = rounded<g.value, 0>(units[p], pair);
        const __m512i odd = rounded<g.value, 1>(units[p], pair);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x + r * kWideBytes + g.value * 4;
          add_product(even, at, &of_even.high[r][p]);
          add_product(odd, at + 64, &of_odd.high[r][p]);
          add_product(even, at + 128, &of_even.low[r][p]);
          add_product(odd, at + 192, &of_odd.low[r][p]);
        }
      }
    });
  }

  // next: of the first panel.
  template <int kGroup>
  [[gnu::always_inline]] void prefetch_beside(const uint8_t* next, int p) const {
    Weights::template prefetch_beside<kGroup>(next + p * static_cast<int64_t>(args_.panel_bytes));
  }

  // Adds the products of W and two digits of X in 16 bits.
  [[gnu::always_inline]] static void add_product(__m512i w, const uint8_t* digits, __m512i* sum) {
    *sum = F::dot2_word(*sum, w, digits);
  }

  // W of inputs of a group: the first and third, or (kOdd) second and fourth.
  template <int kGroup, int kOdd>
  [[gnu::always_inline]] static __m512i rounded(const typename W::Unit& unit, const uint8_t* pair) {
    const __m512i product =
        _mm512_mulhrs_epi16(Weights::template raised<kGroup, kOdd>(unit), F::load_words(pair));
    if constexpr (!kCode.has_offset) return product;
    return _mm512_add_epi16(product, F::load_words(pair + 64));
  }

  const MatmulArgs& args_;
  const uint8_t* const weight_;
  const uint8_t* const x_;
  const RowInTiles at_;  // of the first row
  float* const sums_;
  uint8_t* const pairs_;
  uint8_t* const wide_;
};

inline constexpr int kMostFixedDirectRows = 4;

// Panels up to this wait for their ends, which two side by side do together.
inline constexpr size_t kShortPanelBytes = 16384;

// Registers hold the sums of two panels for two rows, of one for up to four. One row reads one
// panel from memory up to a fifth faster than two.
template <Layout kLayout, int kRows>
void fixed_direct_rows(const MatmulArgs& args, int64_t row) {
  constexpr bool kShortInPairs = kRows == 1 && FixedWeights<kLayout>::kCode.is_linear;
  int64_t panel = 0;
  if constexpr (kRows == 2 || kShortInPairs) {
    if (kRows == 2 || args.panel_bytes <= kShortPanelBytes) {
      for (; panel + 2 <= args.num_panels; panel += 2) {
        FixedDirect<kLayout, kRows, 2>(args, row, panel).run();
      }
    }
  }
  for (; panel < args.num_panels; ++panel) FixedDirect<kLayout, kRows, 1>(args, row, panel).run();
}

template <Layout kLayout>
void matmul_fixed_direct(const MatmulArgs& args) {
  int64_t row = 0;
  for (; row + 4 <= args.num_rows; row += 4) fixed_direct_rows<kLayout, 4>(args, row);
  if (row + 3 == args.num_rows) return fixed_direct_rows<kLayout, 3>(args, row);
  if (row + 2 == args.num_rows) return fixed_direct_rows<kLayout, 2>(args, row);
  if (row + 1 == args.num_rows) fixed_direct_rows<kLayout, 1>(args, row);
}

struct FixedDirectRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_fixed_direct";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            kAmxUnitIsa,
            kLayout,
            ActivationType::kFixed,
            1,
            {kMostFixedDirectRows, 2 * kPanel, kActivationBlock},
            NumericsClass::kFixed,
            {.matmul = &matmul_fixed_direct<kLayout>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
