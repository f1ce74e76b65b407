// 16 lanes as one AVX-512 register (F, BW, DQ, VL): the wrapper of the units avx512*.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/generic/base.h"
#include "backend/cpu/kernels/generic/word_pairs.h"

namespace headrace::cpu {
namespace {

struct Avx512 : WordPairs {
  using V = __m512;
  using I = __m512i;
  static constexpr uint32_t kIsa = kAvx512UnitIsa;
  static constexpr int kDirectRowsInt16 = 2;  // tile of few rows times kIntegerPanels
  static constexpr int kDirectRowsInt8 = 2;
  static constexpr int kDenseDirectPanels = 8;
  static constexpr int kDenseRows = 6;  // tile of few rows
  static constexpr int kScanTokens = 8;
  static constexpr int kDenseRowsPanels = 4;
  static constexpr int kBlockPanels = 2;
  static constexpr int kBlockRows = 12;
  static constexpr int kAttendRows = 6;
  static constexpr int kAttendVectors = 4;
  static constexpr int kDeltaVectors = 4;  // panels of state in one pass
  static constexpr int kAdapterRows = 4;   // that share what is read of an adapter
  static constexpr int kDotPositions = 8;
  static constexpr int kIntegerRows = 6;  // tile of integer products
  static constexpr int kIntegerPanels = 2;
  static constexpr bool kSaturates = true;  // sums of two 8-bit products
  static constexpr bool kAddsExponents = true;

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float value) { return _mm512_set1_ps(value); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V load_part(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
  }
  static void store_part(float* p, V v, int64_t count) {
    _mm512_mask_storeu_ps(p, first_lanes(count), v);
  }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
  // The second operand if either is NaN.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  static V round(V v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static V select_less(V a, V b, V then, V otherwise) {  // a < b ? then : otherwise
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
  }
  static V abs(V v) { return _mm512_abs_ps(v); }
  // 2^n of whole numbers n in [-126, 127].
  static V power_of_two(V n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  // Lanes folded 8, 4, 2, 1.
  static float fold_sum(V v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float fold_max(V v) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  // Lane i: fold_sum(v[i]).
  static V fold_sums(const V (&v)[16]) {
    V eights[8], quads[4], pairs[2];
    for (int i = 0; i < 8; ++i) {
      eights[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                                _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xEE));
    }
    for (int i = 0; i < 4; ++i) {
      quads[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0x88),
                               _mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0xDD));
    }
    for (int i = 0; i < 2; ++i) {
      const __m512d a = _mm512_castps_pd(quads[2 * i]), b = _mm512_castps_pd(quads[2 * i + 1]);
      pairs[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const V sums = _mm512_add_ps(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88),
                                 _mm512_shuffle_ps(pairs[0], pairs[1], 0xDD));
    return _mm512_permutexvar_ps(transposed_words(), sums);
  }

  static float first(V v) { return _mm512_cvtss_f32(v); }
  static V lane_numbers() {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static float root(float v) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(v))); }

  static I load_words(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static I set_bits(uint32_t bits) { return _mm512_set1_epi32(static_cast<int>(bits)); }
  static I and_bits(I a, I b) { return _mm512_and_si512(a, b); }
  static I xor_bits(I a, I b) { return _mm512_xor_si512(a, b); }
  static I or_bits(I a, I b) { return _mm512_or_si512(a, b); }
  // Whether a byte has none of the bits that `bits` has in it.
  static bool lacks_in_some_byte(I v, uint32_t bits) {
    return _mm512_testn_epi8_mask(v, set_bits(bits)) != 0;
  }
  template <int kBits>
  static I shift_right(I v) {
    return _mm512_srli_epi32(v, kBits);
  }
  template <int kBits>
  static I shift_left(I v) {
    return _mm512_slli_epi32(v, kBits);
  }
  template <int kBits>
  static I shift_right_signed(I v) {
    return _mm512_srai_epi32(v, kBits);
  }
  static I shift_right_by(I v, int bits) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
  static I shift_left_by(I v, int bits) { return _mm512_sll_epi32(v, _mm_cvtsi32_si128(bits)); }
  static V to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static I zero_words() { return _mm512_setzero_si512(); }
  static V as_floats(I v) { return _mm512_castsi512_ps(v); }
  static I as_words(V v) { return _mm512_castps_si512(v); }
  // To f16 in the low half of each word, nearest, ties to even; and from either half.
  static I to_half(V v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(v, kNearest));
  }
  template <int kOdd>
  static V half_of_words(I v) {
    // Even halves first, then odd ones: the permutation is shared by both.
    const I order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30,
                                     28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const I sorted = _mm512_permutexvar_epi16(order, v);
    return _mm512_cvtph_ps(kOdd != 0 ? _mm512_extracti64x4_epi64(sorted, 1)
                                     : _mm512_castsi512_si256(sorted));
  }
  static I add_words(I a, I b) { return _mm512_add_epi32(a, b); }
  static I mul_words(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I load_bytes(const uint8_t* p) {  // 16 of them, widened
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I load_halves(const uint8_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I max_words(I a, I b) { return _mm512_max_epi32(a, b); }
  static I broadcast_word(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm512_set1_epi32(word);
  }
  static void store_words(uint8_t* p, I v) { _mm512_storeu_si512(p, v); }
  // What computed v stays as written. Tests without the instructions do without.
  [[gnu::always_inline]] static void keep_whole([[maybe_unused]] I* v) {
#ifdef __AVX512F__
    __asm__("" : "+v"(*v));
#endif
  }
  // acc + four products of unsigned with signed bytes per word; unsigned ones up to kMaxCode, of
  // all eight bits here, where two products would saturate. Smaller ones: see add_products().
  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    static_assert(kMaxCode > 127);
    const I ones = _mm512_set1_epi16(1);
    const I top = _mm512_set1_epi8(static_cast<char>(0x80));
    const I high = _mm512_maddubs_epi16(_mm512_and_si512(codes, top), x);
    acc = _mm512_add_epi32(acc, _mm512_madd_epi16(high, ones));
    codes = _mm512_andnot_si512(top, codes);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), ones));
  }
  // Sums of two products of unsigned with signed bytes, in 16 bits.
  static I multiply_bytes(I codes, I x) { return _mm512_maddubs_epi16(codes, x); }
  // Bytes 0 and 2, and 1 and 3 of each word, as 16 bits.
  static I even_bytes(I v) { return _mm512_and_si512(v, set_bits(0x00FF00FFu)); }
  static I odd_bytes(I v) { return _mm512_srli_epi16(v, 8); }
  // acc + two products of 16 bits per word.
  static I dot2(I acc, I codes, I x) { return _mm512_add_epi32(acc, _mm512_madd_epi16(codes, x)); }
  static I abs_bits(V v) { return and_bits(_mm512_castps_si512(v), set_bits(0x7FFFFFFFu)); }
  static I to_words(V v) { return _mm512_cvtps_epi32(v); }  // nearest, ties to even
  static void store_low_bytes(uint8_t* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  static int32_t fold_max_words(I v) { return _mm512_reduce_max_epi32(v); }
  static int32_t fold_add_words(I v) { return _mm512_reduce_add_epi32(v); }
  template <int kByte>
  static V unsigned_byte(I v) {
    if constexpr (kByte == 0) return to_float(and_bits(v, set_bits(0xFF)));
    if constexpr (kByte == 3) return to_float(shift_right<24>(v));
    constexpr int kZeros = static_cast<int>(0x80808000u);
    const I order = _mm512_set4_epi32(kZeros + 12 + kByte, kZeros + 8 + kByte, kZeros + 4 + kByte,
                                      kZeros + kByte);
    return to_float(_mm512_shuffle_epi8(v, order));
  }
  static I look_up(I bytes, const uint8_t* table) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), bytes);
  }
  static V load_half(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Half of 2^(e - 127): e < 2 gives the subnormals 2^-128 and 2^-127.
  static V load_e8m0_half(const uint8_t* p) {
    const I e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const I normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const I small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, normal, small));
  }
  static V load_bytes_as_float(const uint8_t* p) { return _mm512_castsi512_ps(load_words(p)); }
  template <int kOdd>
  static V bf16_of_words(I v) {
    return as_floats(kOdd != 0 ? and_bits(v, set_bits(0xFFFF0000u)) : shift_left<16>(v));
  }
  // A number times powers of two by adding exponents: exact where the product is a normal number.
  struct ScaleBits {
    ScaleBits() = default;
    ScaleBits(V value)
        : bits(_mm512_sub_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x3F800000))),
          nonzero(_mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ)) {}
    V times(V power) const {
      I sum = _mm512_maskz_add_epi32(nonzero, bits, _mm512_castps_si512(power));
      keep_whole(&sum);  // one instruction: compilers would move the mask to the float
      return _mm512_castsi512_ps(sum);
    }
    I bits;
    __mmask16 nonzero;
  };
  static void prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_second(const uint8_t* p) {  // into the second cache
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  // Quantising: all reductions of a slice's blocks at once.
  static I sub_words(I a, I b) { return _mm512_sub_epi32(a, b); }
  // 16-bit lanes: of each quarter of 128 bits the 4 words of a, then the 4 of b; words fit.
  static I pack_words(I a, I b) { return _mm512_packs_epi32(a, b); }
  static I add_halves(I a, I b) { return _mm512_add_epi16(a, b); }
  static I sub_halves(I a, I b) { return _mm512_sub_epi16(a, b); }
  // Words: sums of neighbouring 16-bit lanes.
  static I add_pairs(I v) { return _mm512_madd_epi16(v, _mm512_set1_epi16(1)); }
  // Of two vectors of pack_words(): the upper bytes of `high`, 16 of a and 16 of b, then the lower
  // bytes of `low`.
  static void store_terms(uint8_t* p, I high, I low) {
    constexpr int kLowBytes = 0x00FF00FF;
    const I bytes =
        _mm512_ternarylogic_epi32(_mm512_set1_epi32(kLowBytes), low, high, 0xCA);  // select
    const I sorted = _mm512_shuffle_epi8(
        bytes, _mm512_set4_epi32(0x0E0C0A08, 0x06040200, 0x0F0D0B09, 0x07050301));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(transposed_words(), sorted));
  }
  // The lanes of pack_words() as bytes: 16 of a and 16 of b.
  static void store_packed(uint8_t* p, I v) {
    const I bytes = _mm512_permutexvar_epi32(transposed_words(), _mm512_packs_epi16(v, v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(bytes));
  }
  // Largest word of each of eight vectors, twice: m0 m0 m1 m1 ..; words are not negative.
  static I fold_max_each(const I* v) {
    I pairs[4];
    for (int i = 0; i < 4; ++i) {
      pairs[i] = max_words(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                           _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    }
    const I all = fold_quarters(pairs, [](I a, I b) { return max_words(a, b); });
    return _mm512_shuffle_epi32(max_words(all, _mm512_shuffle_epi32(all, _MM_PERM_BADC)),
                                _MM_PERM_BBAA);
  }
  // Of eight vectors of add_pairs(pack_words(a, b)): sum of a, sum of b of each.
  static I fold_add_each(const I* v) {
    I pairs[4];
    for (int i = 0; i < 4; ++i) {
      const V a = as_floats(v[2 * i]), b = as_floats(v[2 * i + 1]);
      pairs[i] = add_words(as_words(_mm512_shuffle_ps(a, b, 0x88)),
                           as_words(_mm512_shuffle_ps(a, b, 0xDD)));
    }
    return fold_quarters(pairs, [](I a, I b) { return add_words(a, b); });
  }
  static I swap_pairs(I v) { return _mm512_shuffle_epi32(v, _MM_PERM_CDAB); }
  // Even words of a, odd words of b.
  static I even_odd(I a, I b) { return _mm512_mask_blend_epi32(0xAAAA, a, b); }
  static I odd_or_zero(I v) { return _mm512_srli_epi64(v, 32); }  // odd words in even places
  // Eight times 32 bytes, as far as `count`: pair i of words of a, b, c and d.
  static void store_quads(uint8_t* p, const I (&v)[4], int64_t count) {
    const I ab0 = _mm512_unpacklo_epi64(v[0], v[1]), ab1 = _mm512_unpackhi_epi64(v[0], v[1]);
    const I cd0 = _mm512_unpacklo_epi64(v[2], v[3]), cd1 = _mm512_unpackhi_epi64(v[2], v[3]);
    // Quarter q of the four is of pairs 2 q and 2 q + 1.
    const I low0 = _mm512_shuffle_i32x4(ab0, cd0, 0x44),
            high0 = _mm512_shuffle_i32x4(ab0, cd0, 0xEE);
    const I low1 = _mm512_shuffle_i32x4(ab1, cd1, 0x44),
            high1 = _mm512_shuffle_i32x4(ab1, cd1, 0xEE);
    const I quads[4] = {
        _mm512_shuffle_i32x4(low0, low1, 0x88), _mm512_shuffle_i32x4(low0, low1, 0xDD),
        _mm512_shuffle_i32x4(high0, high1, 0x88), _mm512_shuffle_i32x4(high0, high1, 0xDD)};
    for (int64_t i = 0; 2 * i < count; ++i) {
      store_part(reinterpret_cast<float*>(p + 64 * i), as_floats(quads[i]), 8 * (count - 2 * i));
    }
  }
  // The f16 in the words' even halves, then those in the odd ones; and either as floats.
  static I sort_halves(I v) {
    const I order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30,
                                     28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    I sorted = _mm512_permutexvar_epi16(order, v);
    keep_whole(&sorted);  // one for both: compilers would narrow each half by itself
    return sorted;
  }
  template <int kOdd>
  static V sorted_half(I sorted) {
    return _mm512_cvtph_ps(kOdd != 0 ? _mm512_extracti64x4_epi64(sorted, 1)
                                     : _mm512_castsi512_si256(sorted));
  }
  // Word w of v[r] is word r of v[w].
  [[gnu::always_inline]] static void transpose_words(I (&v)[16]) {
    I pairs[16], quads[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    // quads[4 q + c]: of rows 4 q to 4 q + 3, columns c, c + 4, c + 8 and c + 12.
    for (int i = 0; i < 16; i += 4) {
      quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
      quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
      quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int c = 0; c < 4; ++c) {
      const I low_even = _mm512_shuffle_i32x4(quads[c], quads[c + 4], 0x88);
      const I low_odd = _mm512_shuffle_i32x4(quads[c], quads[c + 4], 0xDD);
      const I high_even = _mm512_shuffle_i32x4(quads[c + 8], quads[c + 12], 0x88);
      const I high_odd = _mm512_shuffle_i32x4(quads[c + 8], quads[c + 12], 0xDD);
      v[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
      v[c + 4] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
      v[c + 8] = _mm512_shuffle_i32x4(low_even, high_even, 0xDD);
      v[c + 12] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xDD);
    }
  }
  // Upper, or lower, bytes of numbers of 16 bits: those of `even` at even bytes, those of `odd` at
  // odd ones. One shuffle, on a port of Intel's processors that multiplications do not need.
  static I upper_bytes(I even, I odd) {
    const I places = opaque(_mm512_set4_epi32(0x0F000D, 0x0B0009, 0x070005, 0x030001));
    return _mm512_mask_shuffle_epi8(odd, 0x5555555555555555, even, places);
  }
  static I lower_bytes(I even, I odd) {
    const I places = opaque(_mm512_set4_epi32(0x0E000C00, 0x0A000800, 0x06000400, 0x02000000));
    return _mm512_mask_shuffle_epi8(even, 0xAAAAAAAAAAAAAAAA, odd, places);
  }
  // Where compilers know the indices of a shuffle, they make shifts and selections of it.
  static I opaque(I v) {
#if defined(__AVX512BW__)  // not where tests have a model of the vectors
    __asm__("" : "+v"(v));
#endif
    return v;
  }
  // Words of quarters as columns: word 4 r + c from word 4 c + r.
  static I transposed_words() {
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }

 private:
  // Quarter q: the four quarters of v[q] folded.
  template <typename Fn>
  static I fold_quarters(const I (&v)[4], const Fn& fn) {
    const I a = fn(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xDD));
    const I b = fn(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xDD));
    return fn(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
  }
  static __mmask16 first_lanes(int64_t count) {
    return count >= 16 ? static_cast<__mmask16>(0xFFFF)
                       : static_cast<__mmask16>((1u << count) - 1u);
  }
};

}  // namespace
}  // namespace headrace::cpu
