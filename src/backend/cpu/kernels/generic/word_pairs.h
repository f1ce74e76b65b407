// Activations of two int8 terms as 16-bit words: what the wrappers of every width do alike (AVX2).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace headrace::cpu {
namespace {

struct WordPairs {
  // 16 numbers 256 high + low as 16 bits; of each four, the second and third change places.
  static void store_pairs(uint8_t* p, const uint8_t* high, const uint8_t* low) {
    store_pairs(p, _mm256_add_epi16(_mm256_slli_epi16(widen(high), 8), widen(low)));
  }
  // The same of 16 bytes.
  static void store_pairs(uint8_t* p, const uint8_t* bytes) { store_pairs(p, widen(bytes)); }

 private:
  static __m256i widen(const uint8_t* from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store_pairs(uint8_t* p, __m256i whole) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_shuffle_epi8(whole, order));
  }
};

}  // namespace
}  // namespace headrace::cpu
