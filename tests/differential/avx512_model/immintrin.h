// The AVX-512 instructions that the AMX unit's kernels use, for a processor that has AVX2 alone:
// put before the compiler's header, so that these kernels are tested on every machine. For tests
// only.
//
// SIMDe has most of them. What its version of Debian 12 lacks, or names with wrong parameters,
// stands here in vectors of the compiler. The names stand for functions, not for function-like
// macros, so that arguments may be calls with commas of templates.
#pragma once

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half_model.h"

namespace avx512_model {

template <typename To, typename From>
To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename Element, int kCount>
struct Lanes {
  Element of[kCount];
};
using Words = Lanes<int32_t, 16>;
using Floats = Lanes<float, 16>;
using Parts = Lanes<__m256i, 2>;

// Lane i of a vector of type To is fn(i).
template <typename To, typename Element, int kCount, typename Fn>
To by_lane(const Fn& fn) {
  Lanes<Element, kCount> to;
  for (int i = 0; i < kCount; ++i) to.of[i] = fn(i);
  return bits_as<To>(to);
}
template <typename Fn>
__m512i words_by_lane(const Fn& fn) {
  return by_lane<__m512i, int32_t, 16>(fn);
}

inline __m512i shift_right_signed(__m512i v, unsigned count) {
  const auto words = bits_as<Words>(v);
  return words_by_lane([&](int i) { return words.of[i] >> (count < 31 ? count : 31); });
}
inline __m512 words_to_floats(__m512i v) {
  const auto words = bits_as<Words>(v);
  return by_lane<__m512, float, 16>([&](int i) { return static_cast<float>(words.of[i]); });
}
inline int largest_word(__m512i v) {
  const auto words = bits_as<Words>(v);
  int largest = words.of[0];
  for (const int word : words.of) largest = word > largest ? word : largest;
  return largest;
}
inline int sum_of_words(__m512i v) {
  const auto words = bits_as<Words>(v);
  uint32_t sum = 0;
  for (const int word : words.of) sum += static_cast<uint32_t>(word);
  return static_cast<int>(sum);
}
inline float first_float(__m512 v) { return bits_as<Floats>(v).of[0]; }
inline __m256 half_of_floats(__m512 v, int half) { return bits_as<Lanes<__m256, 2>>(v).of[half]; }
inline void store_some(void* to, __mmask16 mask, __m512 v) {
  const auto floats = bits_as<Floats>(v);
  for (int i = 0; i < 16; ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<char*>(to) + 4 * i, &floats.of[i], 4);
  }
}
inline __m512 halves_to_floats(__m256i v) {
  const Lanes<__m256, 2> parts{{_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                                _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))}};
  return bits_as<__m512>(parts);
}
inline __m512i widen_bytes(__m128i v) {
  const auto bytes = bits_as<Lanes<uint8_t, 16>>(v);
  return words_by_lane([&](int i) { return bytes.of[i]; });
}
inline __m512i widen_halves(__m256i v) {
  const auto halves = bits_as<Lanes<uint16_t, 16>>(v);
  return words_by_lane([&](int i) { return halves.of[i]; });
}
inline __m128i low_bytes(__m512i v) {
  const auto words = bits_as<Words>(v);
  return by_lane<__m128i, int8_t, 16>([&](int i) { return static_cast<int8_t>(words.of[i]); });
}
inline __m256i low_halves(__m512i v) {
  const auto words = bits_as<Words>(v);
  return by_lane<__m256i, int16_t, 16>([&](int i) { return static_cast<int16_t>(words.of[i]); });
}
inline __mmask16 less_words(__m512i a, __m512i b) {
  const auto left = bits_as<Words>(a), right = bits_as<Words>(b);
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<unsigned>(left.of[i] < right.of[i]) << i;
  return static_cast<__mmask16>(mask);
}
inline __m512 load_some(__mmask16 mask, const void* from) {
  return by_lane<__m512, float, 16>([&](int i) {
    float value = 0;
    if ((mask >> i & 1) != 0) {
      std::memcpy(&value, static_cast<const char*>(from) + 4 * i, sizeof(value));
    }
    return value;
  });
}
// Nearest, ties to even; what a word cannot hold becomes the smallest one.
inline __m512i some_rounded(__mmask16 mask, __m512 v) {
  const auto floats = bits_as<Floats>(v);
  return words_by_lane([&](int i) {
    const float value = floats.of[i];
    if ((mask >> i & 1) == 0) return 0;
    return std::fabs(value) < 0x1p31f ? static_cast<int>(std::nearbyint(value)) : INT32_MIN;
  });
}
inline __m512i all_rounded(__m512 v) { return some_rounded(0xFFFF, v); }
inline __m512d words_to_doubles(__m256i v) {
  const auto words = bits_as<Lanes<int32_t, 8>>(v);
  return by_lane<__m512d, double, 8>([&](int i) { return static_cast<double>(words.of[i]); });
}
inline __m256 doubles_to_floats(__m512d v) {
  const auto doubles = bits_as<Lanes<double, 8>>(v);
  return by_lane<__m256, float, 8>([&](int i) { return static_cast<float>(doubles.of[i]); });
}
// Bit i of `table` is the result for the bits a, b, c of the number i.
[[gnu::noinline]] inline __m512i bits_of_three(__m512i a, __m512i b, __m512i c, int table) {
  __m512i result{};
  for (int number = 0; number < 8; ++number) {
    if ((table >> number & 1) == 0) continue;
    result |=
        ((number & 4) != 0 ? a : ~a) & ((number & 2) != 0 ? b : ~b) & ((number & 1) != 0 ? c : ~c);
  }
  return result;
}
// By halves, each function compiled once: the kernels are too long to have SIMDe's in line.
template <typename Fn>
__m512i by_half(const Fn& fn) {
  return bits_as<__m512i>(Parts{{fn(0), fn(1)}});
}
[[gnu::noinline]] inline __m512i scaled_halves(__m512i a, __m512i b) {
  const auto left = bits_as<Parts>(a), right = bits_as<Parts>(b);
  return by_half([&](int i) { return _mm256_mulhrs_epi16(left.of[i], right.of[i]); });
}
[[gnu::noinline]] inline __m512i add_byte_products(__m512i sum, __m512i a, __m512i b) {
  return simde_mm512_dpbusd_epi32(sum, a, b);
}
[[gnu::noinline]] inline __m512i add_half_products(__m512i sum, __m512i a, __m512i b) {
  const auto before = bits_as<Parts>(sum), left = bits_as<Parts>(a), right = bits_as<Parts>(b);
  return by_half([&](int i) {
    return _mm256_add_epi32(before.of[i], _mm256_madd_epi16(left.of[i], right.of[i]));
  });
}
// Bytes of v at `places` of their quarters, where the mask has them.
[[gnu::noinline]] inline __m512i shuffle_some_bytes(__m512i others, __mmask64 mask, __m512i v,
                                                    __m512i places) {
  const auto kept = bits_as<Parts>(others), from = bits_as<Parts>(v), at = bits_as<Parts>(places);
  return by_half([&](int i) {
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i byte =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i bits = _mm256_set1_epi32(static_cast<int>(mask >> 32 * i));
    const __m256i set = _mm256_and_si256(_mm256_shuffle_epi8(bits, byte), bit);
    return _mm256_blendv_epi8(kept.of[i], _mm256_shuffle_epi8(from.of[i], at.of[i]),
                              _mm256_cmpeq_epi8(set, bit));
  });
}
// f16 by half words.
using Halves = Lanes<uint16_t, headrace::cpu::kHalvesOfVector>;
[[gnu::noinline]] inline __m512i f16_products_and(__m512i a, __m512i b, __m512i c) {
  const auto first = bits_as<Halves>(a), second = bits_as<Halves>(b), third = bits_as<Halves>(c);
  Halves sums;
  headrace::cpu::multiply_add_halves(first.of, second.of, third.of, sums.of);
  return bits_as<__m512i>(sums);
}
inline __m512i f16_products(__m512i a, __m512i b) {
  constexpr uint16_t kMinusZero = 0x8000;  // whose sum with a zero is that zero
  return f16_products_and(a, b, by_lane<__m512i, uint16_t, 32>([](int) { return kMinusZero; }));
}
inline __m512i f16_differences(__m512i a, __m512i b) {
  constexpr uint16_t kOne = 0x3C00, kSign = 0x8000;
  const auto second = bits_as<Halves>(b);
  const auto negative = [&](int i) { return static_cast<uint16_t>(second.of[i] ^ kSign); };
  return f16_products_and(a, by_lane<__m512i, uint16_t, 32>([](int) { return kOne; }),
                          by_lane<__m512i, uint16_t, 32>(negative));
}
inline __m256i floats_to_f16(__m512 v, int /*rounding*/) {
  const auto floats = bits_as<Floats>(v);
  return by_lane<__m256i, uint16_t, 16>(
      [&](int i) { return _cvtss_sh(floats.of[i], _MM_FROUND_TO_NEAREST_INT); });
}
inline __m512i same_bits(__m512i v) { return v; }
inline __m512i shuffle_in_fours(__m512i v, int order) {
  const auto words = bits_as<Words>(v);
  return words_by_lane([&](int i) { return words.of[(i & ~3) + (order >> 2 * (i & 3) & 3)]; });
}

}  // namespace avx512_model

#undef _mm512_add_epi32
#undef _mm512_cmplt_epi32_mask
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_pd
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtpd_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtps_ph
#undef _mm512_cvtss_f32
#undef _mm512_extractf32x8_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_reduce_add_epi32
#undef _mm512_madd_epi16
#undef _mm512_mask_shuffle_epi8
#undef _mm512_maskz_cvtps_epi32
#undef _mm512_maskz_loadu_ps
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#undef _mm512_mulhrs_epi16
#undef _mm512_reduce_max_epi32
#undef _mm512_shuffle_epi32
#undef _mm512_srai_epi32
#undef _mm512_ternarylogic_epi32
#define _mm512_add_epi32 simde_mm512_add_epi32
#define _mm512_castph_si512 avx512_model::same_bits
#define _mm512_castsi512_ph avx512_model::same_bits
#define _mm512_cmplt_epi32_mask avx512_model::less_words
#define _mm512_cvtepi32_epi16 avx512_model::low_halves
#define _mm512_cvtepi32_epi8 avx512_model::low_bytes
#define _mm512_cvtepi32_pd avx512_model::words_to_doubles
#define _mm512_cvtepi32_ps avx512_model::words_to_floats
#define _mm512_cvtepu16_epi32 avx512_model::widen_halves
#define _mm512_cvtepu8_epi32 avx512_model::widen_bytes
#define _mm512_cvtpd_ps avx512_model::doubles_to_floats
#define _mm512_cvtph_ps avx512_model::halves_to_floats
#define _mm512_cvtps_epi32 avx512_model::all_rounded
#define _mm512_cvtps_ph avx512_model::floats_to_f16
#define _mm512_cvtss_f32 avx512_model::first_float
#define _mm512_extractf32x8_ps avx512_model::half_of_floats
#define _mm512_fmadd_ph avx512_model::f16_products_and
#define _mm512_madd_epi16 simde_mm512_madd_epi16
#define _mm512_mask_storeu_ps avx512_model::store_some
#define _mm512_mask_shuffle_epi8 avx512_model::shuffle_some_bytes
#define _mm512_maskz_cvtps_epi32 avx512_model::some_rounded
#define _mm512_maskz_loadu_ps avx512_model::load_some
#define _mm512_dpbusd_epi32 avx512_model::add_byte_products
#define _mm512_dpwssd_epi32 avx512_model::add_half_products
#define _mm512_mul_ph avx512_model::f16_products
#define _mm512_mulhrs_epi16 avx512_model::scaled_halves
#define _mm512_reduce_add_epi32 avx512_model::sum_of_words
#define _mm512_reduce_max_epi32 avx512_model::largest_word
#define _mm512_shuffle_epi32 avx512_model::shuffle_in_fours
#define _mm512_srai_epi32 avx512_model::shift_right_signed
#define _mm512_sub_ph avx512_model::f16_differences
#define _mm512_ternarylogic_epi32 avx512_model::bits_of_three
