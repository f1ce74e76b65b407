// Fixed-point activations times coded panels for few rows, in vectors: the whole numbers of
// amx/fixed.h (class kFixed) without its tiles, as fast as memory brings the codes.
//
// T = 256 high + low, the sums of W with either digit of X, both modulo 2^32; both fit. Linear
// codes are multiplied as they come from memory and their sums by the sub-block's factor. Other
// codes become digits in registers; their high digit is taken 128 too large, as byte products want
// it.
#pragma once

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/generic/lanes_avx512_vnni.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

// Sums of both digits of X over 16 or 32 inputs, and over records.
struct DigitSums {
  int32_t high, low;
};
template <int kInputs>
[[gnu::always_inline]] inline DigitSums digit_sums(const uint8_t* record, int64_t part) {
  int16_t sums[kInputs / 16][2];
  __builtin_memcpy(sums, record + kFixedSumsAt + part * static_cast<int64_t>(sizeof(sums)),
                   sizeof(sums));
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
  using Words = __m512i[kRows][kPanels];

  FixedDirect(const MatmulArgs& args, int64_t row, int64_t panel)
      : args_(args),
        weight_(args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes),
        x_(static_cast<const uint8_t*>(args.x) + row * kFixedRecord),
        sums_(args.sums + row * args.sums_stride + panel * kPanel),
        pairs_(reinterpret_cast<uint8_t*>(args.scratch)) {}

  void run() const {
    __m512 totals[kRows][kPanels];
    for (auto& row : totals) {
      for (__m512& total : row) total = F::zero();
    }
    for (int64_t first = 0; first < args_.num_inputs; first += kFixedSegment) {
      add_segment(first, totals);
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

  void add_segment(int64_t first, __m512 (&totals)[kRows][kPanels]) const {
    const int64_t count = smaller(kFixedSegment, args_.num_inputs - first);
    __m512 units[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      units[p] = Weights::make_pairs(panel_at(p), first, count, pairs_ + p * kFixedPairsBytes);
    }
    Words high, low;
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) high[r][p] = low[r][p] = F::zero_words();
    }
    for (int64_t k = 0; k < count; k += W::kUnit) add_unit(first, k, high, low);
    for (int r = 0; r < kRows; ++r) {
      float x_unit;
      __builtin_memcpy(&x_unit, record_at(r, first) + fixed_unit_at(first), sizeof(x_unit));
      for (int p = 0; p < kPanels; ++p) {
        totals[r][p] = F::fma(cpu::to_float(high[r][p], low[r][p]),
                              F::mul(units[p], F::set(x_unit)), totals[r][p]);
      }
    }
  }

  const uint8_t* record_at(int row, int64_t k) const {
    return x_ + k / kSliceInputs * args_.x_stride + row * kFixedRecord;
  }

  // Inputs [first + k, first + k + kUnit), first being a segment's.
  [[gnu::always_inline]] void add_unit(int64_t first, int64_t k, Words& high, Words& low) const {
    typename W::Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      units[p] = W::unit_at(panel_at(p), first + k);
      Weights::template prefetch<kPanels, W::kUnit>(args_, panel_at(p), first + k);
    }
    const uint8_t* record = record_at(0, first + k);
    const int64_t in_slice = (first + k) % kSliceInputs;
    const uint8_t* x = record + in_slice / kFixedBlock * 2 * kFixedBlock + in_slice % kFixedBlock;
    unrolled<0, W::kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
      const int64_t sub_block = k / W::kSubInputs + part.value;
      const uint8_t* pairs = pairs_ + sub_block * kFixedPairBytes;
      if constexpr (kCode.is_linear()) {
        add_linear<part.value>(units, x, record, in_slice / W::kSubInputs, pairs, high, low);
      } else {
        add_digits<part.value>(units, x, record, in_slice / W::kSubInputs, pairs, high, low);
      }
    });
  }

  template <int kPart>
  [[gnu::always_inline]] void add_linear(const typename W::Unit (&units)[kPanels], const uint8_t* x,
                                         const uint8_t* record, int64_t part, const uint8_t* pairs,
                                         Words& high, Words& low) const {
    constexpr int kZero = kCode.has_offset ? kCode.center : W::kZero;
    constexpr int kMaxCode = W::kMaxCode;
    Words of_high, of_low;
    DigitSums x_sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      x_sums[r] = digit_sums<W::kSubInputs>(record + r * kFixedRecord, part + kPart);
      for (int p = 0; p < kPanels; ++p) {
        of_high[r][p] = _mm512_set1_epi32(-kZero * x_sums[r].high);
        of_low[r][p] = _mm512_set1_epi32(-kZero * x_sums[r].low);
      }
    }
    unrolled<kPart * kGroups, (kPart + 1) * kGroups>([&](auto g) __attribute__((always_inline)) {
      for (int p = 0; p < kPanels; ++p) {
        const __m512i codes = W::template code_bytes<g.value>(units[p].low, units[p].high);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x + r * kFixedRecord + g.value * 4;
          of_high[r][p] = F::dot4<kMaxCode>(of_high[r][p], codes, F::broadcast_word(at));
          of_low[r][p] =
              F::dot4<kMaxCode>(of_low[r][p], codes, F::broadcast_word(at + kFixedBlock));
        }
      }
    });
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* pair = pairs + p * kFixedPairsBytes;
      // A factor is kept times the range, twice in a word.
      const __m512i factor = _mm512_srai_epi32(F::load_words(pair), 16 + kCode.bits - 1);
      for (int r = 0; r < kRows; ++r) {
        high[r][p] = F::add_words(high[r][p], F::mul_words(of_high[r][p], factor));
        low[r][p] = F::add_words(low[r][p], F::mul_words(of_low[r][p], factor));
        add_offset(pair, x_sums[r], high[r][p], low[r][p]);
      }
    }
  }

  [[gnu::always_inline]] static void add_offset(const uint8_t* pair, const DigitSums& x_sums,
                                                __m512i& high, __m512i& low) {
    if constexpr (kCode.has_offset) {
      const __m512i offset = _mm512_srai_epi32(F::load_words(pair + 64), 16);
      high = F::add_words(high, F::mul_words(offset, _mm512_set1_epi32(x_sums.high)));
      low = F::add_words(low, F::mul_words(offset, _mm512_set1_epi32(x_sums.low)));
    }
  }

  template <int kPart>
  [[gnu::always_inline]] void add_digits(const typename W::Unit (&units)[kPanels], const uint8_t* x,
                                         const uint8_t* record, int64_t part, const uint8_t* pairs,
                                         Words& high, Words& low) const {
    Words of_high, of_low;  // of high digits of W, and what their being too large adds
    for (int r = 0; r < kRows; ++r) {
      const DigitSums x_sums = digit_sums<W::kSubInputs>(record + r * kFixedRecord, part + kPart);
      for (int p = 0; p < kPanels; ++p) {
        of_high[r][p] = _mm512_set1_epi32(-128 * x_sums.high);
        of_low[r][p] = _mm512_set1_epi32(-128 * x_sums.low);
      }
    }
    unrolled<kPart * kGroups, (kPart + 1) * kGroups>([&](auto g) __attribute__((always_inline)) {
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* pair = pairs + p * kFixedPairsBytes;
        const __m512i factor = F::load_words(pair);
        const __m512i half = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
        const __m512i offset =
            kCode.has_offset ? _mm512_add_epi16(F::load_words(pair + 64), half) : half;
        const __m512i even = _mm512_add_epi16(
            _mm512_mulhrs_epi16(Weights::template raised<g.value, 0>(units[p]), factor), offset);
        const __m512i odd = _mm512_add_epi16(
            _mm512_mulhrs_epi16(Weights::template raised<g.value, 1>(units[p]), factor), offset);
        const __m512i w_high = high_digits(even, odd), w_low = low_digits(even, odd);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x + r * kFixedRecord + g.value * 4;
          const __m512i x_high = F::broadcast_word(at);
          const __m512i x_low = F::broadcast_word(at + kFixedBlock);
          of_high[r][p] = F::dot4<255>(of_high[r][p], w_high, x_high);
          high[r][p] = F::dot4<255>(high[r][p], w_low, x_high);
          of_low[r][p] = F::dot4<255>(of_low[r][p], w_high, x_low);
          low[r][p] = F::dot4<255>(low[r][p], w_low, x_low);
        }
      }
    });
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        high[r][p] = F::add_words(high[r][p], F::shift_left<8>(of_high[r][p]));
        low[r][p] = F::add_words(low[r][p], F::shift_left<8>(of_low[r][p]));
      }
    }
  }

  const MatmulArgs& args_;
  const uint8_t* const weight_;
  const uint8_t* const x_;
  float* const sums_;
  uint8_t* const pairs_;
};

inline constexpr int kMostFixedDirectRows = 4;

// Registers hold the sums of two panels for two rows, of one for up to four.
template <Layout kLayout, int kRows>
void fixed_direct_rows(const MatmulArgs& args, int64_t row) {
  int64_t panel = 0;
  if constexpr (kRows <= 2) {
    for (; panel + 2 <= args.num_panels; panel += 2) {
      FixedDirect<kLayout, kRows, 2>(args, row, panel).run();
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
