#include "half_model.h"

#include <immintrin.h>

namespace headrace::cpu {
namespace {

constexpr int kDoubleBias = 1023, kDoubleBits = 52;
constexpr int kSmallestHalfExponent = -14, kLargestHalfExponent = 15, kHalfBits = 10;

__m256d load(const uint16_t* halves) {
  return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(halves))));
}

// Whole steps of an f16 by the addition of a number whose last bit is a step; with v's sign, which
// a zero loses by that. What is too large for one is left to the conversion.
__m256d in_steps(__m256d v) {
  const __m256i exponent = _mm256_and_si256(_mm256_srli_epi64(_mm256_castpd_si256(v), kDoubleBits),
                                            _mm256_set1_epi64x(0x7FF));
  const __m256i at_least =
      _mm256_max_epi32(exponent, _mm256_set1_epi64x(kDoubleBias + kSmallestHalfExponent));
  const __m256i of_step = _mm256_add_epi64(at_least, _mm256_set1_epi64x(kDoubleBits - kHalfBits));
  const __m256d rounding =
      _mm256_castsi256_pd(_mm256_or_si256(_mm256_slli_epi64(of_step, kDoubleBits),
                                          _mm256_set1_epi64x(int64_t{1} << (kDoubleBits - 1))));
  const __m256d rounded = _mm256_sub_pd(_mm256_add_pd(v, rounding), rounding);
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m256d with_sign = _mm256_or_pd(_mm256_andnot_pd(sign, rounded), _mm256_and_pd(sign, v));
  const __m256i is_large =
      _mm256_cmpgt_epi64(exponent, _mm256_set1_epi64x(kDoubleBias + kLargestHalfExponent));
  return _mm256_blendv_pd(with_sign, v, _mm256_castsi256_pd(is_large));
}

}  // namespace

void multiply_add_halves(const uint16_t* a, const uint16_t* b, const uint16_t* c, uint16_t* out) {
  for (int i = 0; i < kHalvesOfVector; i += 4) {
    const __m256d sum = _mm256_add_pd(_mm256_mul_pd(load(a + i), load(b + i)), load(c + i));
    const __m128i halves = _mm_cvtps_ph(_mm256_cvtpd_ps(in_steps(sum)), _MM_FROUND_TO_NEAREST_INT);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), halves);
  }
}

}  // namespace headrace::cpu
