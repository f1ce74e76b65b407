// Activations as fixed-point numbers with one unit per segment (ActivationType kFixed).
#pragma once

#include "backend/cpu/kernels/generic/lanes_avx512.h"

namespace headrace::cpu {
namespace {

struct FixedScale {
  float unit;
  float factor;  // X = round(x * factor)
};

// By the bits of the largest magnitude of a segment, in whose order infinity and NaN come last.
inline FixedScale fixed_scale(uint32_t largest_bits) {
  float largest;
  __builtin_memcpy(&largest, &largest_bits, sizeof(largest));
  if (largest < kSmallestActivation) return {0.0f, 0.0f};
  if (!(largest < kEndOfActivations)) return {__builtin_nanf(""), 0.0f};
  return {largest / kFixedActivationLimit, kFixedActivationLimit / largest};
}

[[gnu::always_inline]] inline uint32_t largest_bits_of(const float* x, int64_t count) {
  using F = Avx512;
  __m512i largest[2] = {F::zero_words(), F::zero_words()};
  for (int64_t k = 0; k < count; k += 32) {
    largest[0] = F::max_words(largest[0], F::abs_bits(F::load(x + k)));
    largest[1] = F::max_words(largest[1], F::abs_bits(F::load(x + k + 16)));
  }
  return static_cast<uint32_t>(F::fold_max_words(F::max_words(largest[0], largest[1])));
}

// Bytes of either digit of a block.
struct BlockDigits {
  __m512i high, low;
};

// Sums of 8 signed bytes, as 64-bit numbers 128 * 8 too large.
[[gnu::always_inline]] inline __m512i sums_of_eight(__m512i digits) {
  const __m512i shifted = _mm512_xor_si512(digits, _mm512_set1_epi8(static_cast<char>(0x80)));
  return _mm512_sad_epu8(shifted, _mm512_setzero_si512());
}

// The sums over each 16 inputs of a block, of both digits.
[[gnu::always_inline]] inline void store_digit_sums(const BlockDigits& digits, uint8_t* to) {
  const __m512i high = sums_of_eight(digits.high), low = sums_of_eight(digits.low);
  const __m512i pairs = _mm512_or_si512(high, _mm512_slli_epi64(low, 16));
  const __m512i sums = _mm512_add_epi16(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
  const __m512i whole = _mm512_sub_epi16(sums, _mm512_set1_epi16(128 * 16));
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_castsi512_si128(_mm512_permutexvar_epi32(places, whole)));
}

// Up to 64 inputs.
[[gnu::always_inline]] inline BlockDigits quantise_block(const float* x, int64_t count,
                                                         const FixedScale& by) {
  using F = Avx512;
  // A segment without numbers of use has zeros, whatever it holds.
  const __mmask16 usable = by.factor != 0.0f ? 0xFFFF : 0;
  const auto whole = [&](int64_t k) __attribute__((always_inline)) {
    if (k >= count) return F::zero_words();
    return _mm512_maskz_cvtps_epi32(usable, F::mul(F::load(x + k), F::set(by.factor)));
  };
  const __m512i front = _mm512_packs_epi32(whole(0), whole(16));
  const __m512i back = _mm512_packs_epi32(whole(32), whole(48));
  const auto high = [](__m512i x16) __attribute__((always_inline)) {
    return _mm512_srai_epi16(_mm512_add_epi16(x16, _mm512_set1_epi16(128)), 8);
  };
  const auto low = [](__m512i x16) __attribute__((always_inline)) {
    return _mm512_and_si512(x16, _mm512_set1_epi16(255));
  };
  // Packing leaves words of four bytes by lanes of 128 bits.
  const __m512i order = F::transposed_words();
  return {_mm512_permutexvar_epi32(order, _mm512_packs_epi16(high(front), high(back))),
          _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low(front), low(back)))};
}

inline void quantise_fixed(const QuantiseArgs& args) {
  const int64_t num_stored = args.beside.before + args.num_rows + args.beside.behind;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const RowInTiles row =
        row_in_tiles(ActivationType::kFixed, args.beside.before + m, num_stored, args.slice_stride);
    for (int64_t first = 0, count; first < args.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args.num_inputs);
      const float* x = args.x + m * args.num_inputs + first;
      const FixedScale by = fixed_scale(largest_bits_of(x, count));
      for (int64_t k = 0; k < count; k += kFixedBlock) {
        const int64_t block = (args.first_input + first + k) / kFixedBlock;
        constexpr int64_t kBlocks = kSliceInputs / kFixedBlock;  // of a slice
        uint8_t* line = args.out + row.line + block * 2 * row.pitch;
        uint8_t* slice = args.out + block / kBlocks * row.slice_pitch;
        const BlockDigits digits = quantise_block(x + k, count - k, by);
        Avx512::store_words(line, digits.high);
        Avx512::store_words(line + row.pitch, digits.low);
        store_digit_sums(digits, slice + row.sums + block % kBlocks * (kFixedBlock / 16 * 4));
        __builtin_memcpy(slice + row.unit, &by.unit, sizeof(by.unit));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
