// Coded weights as fixed-point numbers (class kFixed in kernels.h) in the form that a tile product
// takes as b.
//
// A code is moved to the upper end of a signed 16-bit number, multiplied by the sub-block's factor
// (vpmulhrsw: one rounding), given its offset and cut into byte digits, a signed high and an
// unsigned low one: some ten operations for 64 weights, of any layout. Other forms of operands
// (bf16_codes.h) take codes, factors and the way through a block from here.
#pragma once

#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/lanes_avx512.h"
#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

inline constexpr int kDigits = 2;
inline constexpr int64_t kOperandBytes = kTileBytes;  // of one product
inline constexpr int64_t kFixedPairBytes = 2 * 64;    // factor and offset of a sub-block
inline constexpr int64_t kFixedPairsBytes = kLongestFixedSegment / 16 * kFixedPairBytes;  // at most

inline constexpr int64_t kStreamAhead = 16384;  // bytes asked for ahead, of all panels together

inline constexpr int kFirstAndSecondOrThird = 0xEA;
// Sixteen whole numbers of 16 bits, each twice: for both halves of its lane's word.
[[gnu::always_inline]] inline __m512i both_halves(__m512i words) {
  return _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(0xFFFF), _mm512_slli_epi32(words, 16),
                                   kFirstAndSecondOrThird);
}

[[gnu::always_inline]] inline __m512i upper_byte_mask() {
  return _mm512_set1_epi16(static_cast<int16_t>(0xFF00));
}

// (256 mixed + low) / kFixedStep to the nearest, ties up.
[[gnu::always_inline]] inline __m512i to_steps(__m512i mixed, __m512i low) {
  const __m512i carried =
      _mm512_srai_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(1 << (kFixedStepBits - 1))), 8);
  return _mm512_srai_epi32(_mm512_add_epi32(mixed, carried), kFixedStepBits - 8);
}

template <Layout kLayout>
struct FixedWeights {
  using F = Avx512;
  using W = CodedWeights<F, kLayout>;
  static constexpr FixedCode kCode = fixed_code(layout_info(kLayout));
  static constexpr int kParts = W::kFactorsPerUnit;  // sub-blocks of a unit
  static constexpr auto kRange = static_cast<float>(kCode.range());
  static constexpr bool kIsNibbles =
      W::kInfo.low_bits == 4 && W::kInfo.high_bits == 0 && W::kInfo.table == 0;
  static_assert(!kIsNibbles || kCode.center == 8);
  // An f16 for each unit and lane is all that a factor is.
  static constexpr bool kHasPlainScales = W::kInfo.scale_bytes == 2 && W::kInfo.split_scale == 0 &&
                                          W::kInfo.num_sub_blocks == 0 && !kCode.has_offset;

  // What one unit of the fixed-point numbers stands for, and what makes values such numbers (0
  // where there is no unit), by lane.
  struct Unit {
    __m512 unit, by;
  };

  // Factors and offsets of the sub-blocks of inputs [first, first + count) as whole numbers,
  // kFixedPairBytes each; returns the unit.
  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const Unit unit = find_unit(panel, first, count, pairs);
    round_pairs(panel, first, count, unit.by, pairs);
    return unit.unit;
  }

  // The largest of |scale| range + |offset|, by lane, and whether weights can be parts of it.
  struct Bound {
    __m512 value;
    __mmask16 usable, bad;  // neither: too small for a unit
  };

  // The bound; leaves factors and offsets as the floats that they are, but plain scales.
  static Bound find_bound(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    if constexpr (kHasPlainScales) {
      return bound_of(F::mul(largest_scale(panel, first, count), F::set(kRange)));
    }
    __m512i largest = _mm512_setzero_si512();
    for_sub_blocks(panel, first, count, [&](int64_t i, __m512 scale, __m512 offset) {
      uint8_t* to = pairs + i * kFixedPairBytes;
      F::store(reinterpret_cast<float*>(to), scale);
      // The product is exact: the range is a power of two.
      __m512 bound = F::mul(F::abs(scale), F::set(kRange));
      if constexpr (kCode.has_offset) {
        F::store(reinterpret_cast<float*>(to + 64), offset);
        bound = F::fma(F::abs(scale), F::set(kRange), F::abs(offset));
      }
      largest = _mm512_max_epi32(largest, _mm512_castps_si512(bound));
    });
    return bound_of(_mm512_castsi512_ps(largest));
  }

  static Bound bound_of(__m512 bound) {
    const __mmask16 usable = _mm512_cmp_ps_mask(bound, F::set(kSmallestFixedBound), _CMP_GE_OQ) &
                             _mm512_cmp_ps_mask(bound, F::set(kLargestFixedBound), _CMP_LE_OQ);
    const __mmask16 bad = _mm512_cmp_ps_mask(bound, F::set(kLargestFixedBound), _CMP_NLE_UQ);
    return {bound, usable, bad};
  }

  // The factor of sub-block i of a segment from `first` on, as find_bound() left it.
  [[gnu::always_inline]] static __m512 factor_at(const uint8_t* panel, int64_t first, int64_t i,
                                                 const uint8_t* pairs) {
    if constexpr (kHasPlainScales) {
      return W::chunk_scale(W::unit_at(panel, first + i * W::kUnit).chunk);
    } else {
      return F::load(reinterpret_cast<const float*>(pairs + i * kFixedPairBytes));
    }
  }

  // The unit; leaves factors and offsets as find_bound() does.
  static Unit find_unit(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const auto [bound, usable, bad] = find_bound(panel, first, count, pairs);
    const __m512 least = _mm512_maskz_div_ps(usable, bound, F::set(kFixedLimit));
    if constexpr (kCode.has_exact_factors) {
      return power_of_two_unit(least, usable, bad);
    } else {
      const __m512 nan = F::set(__builtin_nanf(""));
      return {_mm512_mask_mov_ps(least, bad, nan),
              _mm512_maskz_div_ps(usable, F::set(kFixedLimit), bound)};
    }
  }

  [[gnu::always_inline]] static int64_t offset_of(int64_t input) {
    return input / W::kUnit * W::kUnitBytes;
  }

  // What is asked for while the unit of `input` is computed and panels are read from end to end,
  // kPanels side by side: kStreamAhead bytes later in all of them, in this panel or those that
  // follow.
  template <int kPanels>
  [[gnu::always_inline]] static const uint8_t* ahead_in_stream(const MatmulArgs& args,
                                                               const uint8_t* panel,
                                                               int64_t input) {
    const auto panel_bytes = static_cast<int64_t>(args.panel_bytes);
    int64_t at = offset_of(input) + kStreamAhead / kPanels;
    if constexpr (kPanels > 1) {
      for (int64_t rest = at; rest >= panel_bytes; rest -= panel_bytes) {
        at += (kPanels - 1) * panel_bytes;
      }
    }
    return panel + at;
  }
  // Beside group kGroup, into the second cache: the first waits for fewer lines at a time than
  // memory needs to be asked for.
  template <int kGroup>
  [[gnu::always_inline]] static void prefetch_beside(const uint8_t* next) {
    W::template lines_of_group<kGroup>(
        [&](int at) __attribute__((always_inline)) { F::prefetch_second(next + at); });
  }

  // The operands of 64 inputs from `first` on, of which `count` (32 or 64) are there. pairs: of the
  // sub-block of `first`; next: asked for meanwhile.
  // Form: kUnitBytes from a unit's place in the operands to the next one's; store<kGroup>(unit,
  // factor, offset, to) puts the inputs 4 kGroup .. 4 kGroup + 3 of a unit there; leave_out(to) is
  // called in place of that for a unit beyond K.
  template <typename Form>
  [[gnu::always_inline]] static void expand(const uint8_t* panel, int64_t first, int64_t count,
                                            const uint8_t* pairs, const uint8_t* next,
                                            uint8_t* to) {
    expand_unit<Form>(W::unit_at(panel, first), pairs, next, to);
    to += Form::kUnitBytes;
    if (count > W::kUnit) [[likely]] {
      expand_unit<Form>(W::unit_at(panel, first + W::kUnit), pairs + kParts * kFixedPairBytes,
                        next + W::kUnitBytes, to);
    } else {
      Form::leave_out(to);
    }
  }

  // Codes of group kGroup less their center.
  template <int kGroup>
  [[gnu::always_inline]] static __m512i signed_bytes(const typename W::Unit& unit) {
    const __m512i bytes = W::template code_bytes<kGroup>(unit.low, unit.high);
    constexpr int kZero = kCode.has_offset ? kCode.center : W::kZero;
    if constexpr (kZero == 0) return bytes;
    return _mm512_sub_epi8(bytes, _mm512_set1_epi8(static_cast<char>(kZero)));
  }

  // The smallest powers of two that are at least `least`, which is normal where it is usable.
  static Unit power_of_two_unit(__m512 least, __mmask16 usable, __mmask16 bad) {
    const __m512i raised = _mm512_add_epi32(_mm512_castps_si512(_mm512_maskz_mov_ps(usable, least)),
                                            F::set_bits((1u << 23) - 1));
    const __m512i unit = _mm512_and_si512(raised, F::set_bits(255u << 23));
    const __m512i by = _mm512_sub_epi32(F::set_bits(254u << 23), unit);
    return {_mm512_mask_mov_ps(_mm512_castsi512_ps(unit), bad, F::set(__builtin_nanf(""))),
            _mm512_maskz_mov_ps(usable, _mm512_castsi512_ps(by))};
  }

  // Inputs 2 i (kOdd: 2 i + 1) of group kGroup in half word i: numbers of 16 bits whose upper
  // kCode.bits are the code, the rest zero.
  template <int kGroup, int kOdd>
  [[gnu::always_inline]] static __m512i raised(const typename W::Unit& unit) {
    constexpr int kBits = kCode.bits;
    constexpr auto kMask = static_cast<int16_t>(0xFFFF << (16 - kBits));
    __m512i words;
    int at;  // of the code's lowest bit in a half word
    if constexpr (kIsNibbles) {
      words = _mm512_xor_si512(F::load_words(unit.low + kGroup / 2 * 64), F::set_bits(0x88888888u));
      at = kGroup % 2 * 4 + kOdd * 8;
    } else {
      words = signed_bytes<kGroup>(unit);
      at = kOdd * 8;
    }
    if (at + kBits < 16) words = _mm512_slli_epi16(words, 16 - kBits - at);
    return at > 0 ? _mm512_and_si512(words, _mm512_set1_epi16(kMask)) : words;
  }

 private:
  // By the bits of magnitudes, in whose order infinity and NaN come last.
  static __m512 largest_scale(const uint8_t* panel, int64_t first, int64_t count) {
    __m256i largest = _mm256_setzero_si256();
    for (int64_t k = 0; k < count; k += W::kUnit) {
      const auto* scales = reinterpret_cast<const __m256i*>(W::unit_at(panel, first + k).chunk);
      const __m256i bits = _mm256_and_si256(_mm256_loadu_si256(scales), _mm256_set1_epi16(0x7FFF));
      largest = _mm256_max_epu16(largest, bits);
    }
    return _mm512_cvtph_ps(largest);
  }

  template <typename Fn>
  [[gnu::always_inline]] static void for_sub_blocks(const uint8_t* panel, int64_t first,
                                                    int64_t count, const Fn& fn) {
    for (int64_t k = 0; k < count; k += W::kUnit) {
      const typename W::Unit unit = W::unit_at(panel, first + k);
      for (int part = 0; part < kParts; ++part) {
        const typename W::Factors f = W::factors(unit.chunk, unit.first_sub + part);
        const __m512 center = F::set(static_cast<float>(kCode.center));
        __m512 offset = F::fma(f.scale, center, f.offset);
        if constexpr (W::kHasLaneZero) {
          offset = F::mul(f.scale, F::sub(center, F::to_float(f.zero)));
        }
        fn(k / W::kUnit * kParts + part, f.scale, offset);
      }
    }
  }

  [[gnu::always_inline]] static void round_pairs(const uint8_t* panel, int64_t first, int64_t count,
                                                 __m512 by, uint8_t* pairs) {
    const __mmask16 usable = _mm512_cmp_ps_mask(by, F::zero(), _CMP_NEQ_UQ);
    const __m512 code_by = kCode.is_linear ? by : F::mul(by, F::set(kRange));
    for (int64_t i = 0; i < count / W::kSubInputs; ++i) {
      uint8_t* at = pairs + i * kFixedPairBytes;
      const auto round = [&](__m512 value, __m512 factor) __attribute__((always_inline)) {
        return _mm512_maskz_cvtps_epi32(usable, F::mul(value, factor));
      };
      // The product of a raised code and a linear factor times the range is exact.
      __m512i factor = round(factor_at(panel, first, i, pairs), code_by);
      if constexpr (kCode.is_linear) factor = _mm512_slli_epi32(factor, kCode.bits - 1);
      F::store_words(at, both_halves(factor));
      if constexpr (kCode.has_offset) {
        const __m512 offset = F::load(reinterpret_cast<const float*>(at + 64));
        F::store_words(at + 64, both_halves(round(offset, by)));
      }
    }
  }

  template <typename Form>
  [[gnu::always_inline]] static void expand_unit(const typename W::Unit& unit, const uint8_t* pairs,
                                                 const uint8_t* next, uint8_t* to) {
    unrolled<0, 2>([&](auto half) __attribute__((always_inline)) {
      const uint8_t* pair = pairs + half.value * (kParts - 1) * kFixedPairBytes;
      const __m512i factor = F::load_words(pair);
      const __m512i offset = kCode.has_offset ? F::load_words(pair + 64) : F::zero_words();
      unrolled<half.value * 4, half.value * 4 + 4>([&](auto group) __attribute__((always_inline)) {
        prefetch_beside<group.value>(next);
        Form::template store<group.value>(unit, factor, offset, to);
      });
    });
  }
};

// Both digits of 64 inputs: two operands, one after the other, high digits first.
template <Layout kLayout>
struct ByteDigits {
  using F = Avx512;
  using Weights = FixedWeights<kLayout>;
  static constexpr int64_t kUnitBytes = kOperandBytes / 2;

  template <int kGroup>
  [[gnu::always_inline]] static void store(const typename Weights::W::Unit& unit, __m512i factor,
                                           __m512i offset, uint8_t* to) {
    __m512i even = _mm512_mulhrs_epi16(Weights::template raised<kGroup, 0>(unit), factor);
    __m512i odd = _mm512_mulhrs_epi16(Weights::template raised<kGroup, 1>(unit), factor);
    if constexpr (Weights::kCode.has_offset) {
      even = _mm512_add_epi16(even, offset);
      odd = _mm512_add_epi16(odd, offset);
    }
    F::store_words(to + kGroup * 64, F::upper_bytes(even, odd));
    F::store_words(to + kGroup * 64 + kOperandBytes, F::lower_bytes(even, odd));
  }
  static void leave_out(uint8_t* /*to*/) {}  // activations are zeros, and so are their products
};

}  // namespace
}  // namespace headrace::cpu
