// 16 lanes as a pair of AVX2 registers (with FMA and F16C): the wrapper of the units avx2 and
// avx_vnni.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/generic/base.h"
#include "backend/cpu/kernels/generic/word_pairs.h"

namespace headrace::cpu {
namespace {

struct FloatPair {
  __m256 low, high;
};
struct WordPair {
  __m256i low, high;
};

struct Avx2 : WordPairs {
  using V = FloatPair;
  using I = WordPair;
  static constexpr uint32_t kIsa = kAvx2UnitIsa;
  static constexpr int kDirectRowsInt16 = 2;  // tile of few rows times kIntegerPanels
  static constexpr int kDirectRowsInt8 = 2;
  static constexpr int kDenseDirectPanels = 4;
  static constexpr int kDenseRows = 2;  // tile of few rows
  static constexpr int kDenseRowsPanels = 2;
  static constexpr int kScanTokens = 2;
  static constexpr int kBlockPanels = 1;
  static constexpr int kBlockRows = 6;
  static constexpr int kAttendRows = 6;
  static constexpr int kAttendVectors = 1;
  static constexpr int kDeltaVectors = 1;  // panels of state in one pass
  static constexpr int kAdapterRows = 1;   // that share what is read of an adapter
  static constexpr int kDotPositions = 2;
  static constexpr int kIntegerRows = 4;  // tile of integer products
  static constexpr int kIntegerPanels = 1;
  static constexpr bool kSaturates = true;  // sums of two 8-bit products
  static constexpr bool kAddsExponents = false;

  static V zero() { return set(0.0f); }
  static V set(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, V v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static V load_part(const float* p, int64_t count) {
    const I mask = first_lanes(count);
    return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
  }
  static void store_part(float* p, V v, int64_t count) {
    const I mask = first_lanes(count);
    _mm256_maskstore_ps(p, mask.low, v.low);
    _mm256_maskstore_ps(p + 8, mask.high, v.high);
  }
  static V add(V a, V b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static V sub(V a, V b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static V mul(V a, V b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static V div(V a, V b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static V fma(V a, V b, V c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static V fnma(V a, V b, V c) {
    return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
  }
  // The second operand if either is NaN.
  static V max(V a, V b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static V min(V a, V b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static V round(V v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(v.low, kNearest), _mm256_round_ps(v.high, kNearest)};
  }
  static V select_less(V a, V b, V then, V otherwise) {  // a < b ? then : otherwise
    return {_mm256_blendv_ps(otherwise.low, then.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(otherwise.high, then.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static V abs(V v) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    return {_mm256_and_ps(v.low, mask), _mm256_and_ps(v.high, mask)};
  }
  // 2^n of whole numbers n in [-126, 127].
  static V power_of_two(V n) {
    const __m256i bias = _mm256_set1_epi32(127);
    const I power{_mm256_add_epi32(_mm256_cvtps_epi32(n.low), bias),
                  _mm256_add_epi32(_mm256_cvtps_epi32(n.high), bias)};
    return as_floats(shift_left<23>(power));
  }
  // Lanes folded 8, 4, 2, 1.
  static float fold_sum(V v) {
    const __m256 a = _mm256_add_ps(v.low, v.high);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float fold_max(V v) {
    const __m256 a = _mm256_max_ps(v.low, v.high);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }
  // Lane i: fold_sum(v[i]).
  static V fold_sums(const V (&v)[16]) {
    __m256 half[2];
    for (int h = 0; h < 2; ++h) {
      __m256 quads[4], pairs[2];
      for (int i = 0; i < 4; ++i) {
        const V &a = v[8 * h + 2 * i], &b = v[8 * h + 2 * i + 1];
        const __m256 x = _mm256_add_ps(a.low, a.high), y = _mm256_add_ps(b.low, b.high);
        quads[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
      }
      for (int i = 0; i < 2; ++i) {
        const __m256d a = _mm256_castps_pd(quads[2 * i]), b = _mm256_castps_pd(quads[2 * i + 1]);
        pairs[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                                 _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
      }
      const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(pairs[0], pairs[1], 0x88),
                                        _mm256_shuffle_ps(pairs[0], pairs[1], 0xDD));
      half[h] = _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    return {half[0], half[1]};
  }
  static float first(V v) { return _mm256_cvtss_f32(v.low); }
  static V lane_numbers() {
    return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
  }
  static float root(float v) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(v))); }

  static I load_words(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  static I set_bits(uint32_t bits) {
    const __m256i word = _mm256_set1_epi32(static_cast<int>(bits));
    return {word, word};
  }
  static I and_bits(I a, I b) {
    return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
  }
  static I or_bits(I a, I b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
  }
  // Whether a byte has none of the bits that `bits` has in it.
  static bool lacks_in_some_byte(I v, uint32_t bits) {
    const I found = and_bits(v, set_bits(bits));
    const __m256i none = _mm256_setzero_si256();
    const __m256i lacks =
        _mm256_or_si256(_mm256_cmpeq_epi8(found.low, none), _mm256_cmpeq_epi8(found.high, none));
    return _mm256_movemask_epi8(lacks) != 0;
  }
  template <int kBits>
  static I shift_right(I v) {
    return {_mm256_srli_epi32(v.low, kBits), _mm256_srli_epi32(v.high, kBits)};
  }
  template <int kBits>
  static I shift_left(I v) {
    return {_mm256_slli_epi32(v.low, kBits), _mm256_slli_epi32(v.high, kBits)};
  }
  template <int kBits>
  static I shift_right_signed(I v) {
    return {_mm256_srai_epi32(v.low, kBits), _mm256_srai_epi32(v.high, kBits)};
  }
  static I shift_right_by(I v, int bits) {
    const __m128i count = _mm_cvtsi32_si128(bits);
    return {_mm256_srl_epi32(v.low, count), _mm256_srl_epi32(v.high, count)};
  }
  static I shift_left_by(I v, int bits) {
    const __m128i count = _mm_cvtsi32_si128(bits);
    return {_mm256_sll_epi32(v.low, count), _mm256_sll_epi32(v.high, count)};
  }
  static V to_float(I v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
  static I zero_words() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static V as_floats(I v) { return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)}; }
  static I as_words(V v) { return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)}; }
  // To f16 in the low half of each word, nearest, ties to even; and from either half.
  static I to_half(V v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(v.low, kNearest)),
            _mm256_cvtepu16_epi32(_mm256_cvtps_ph(v.high, kNearest))};
  }
  template <int kOdd>
  static V half_of_words(I v) {
    return {half_of<kOdd>(v.low), half_of<kOdd>(v.high)};
  }
  static I add_words(I a, I b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static I mul_words(I a, I b) {
    return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
  }
  static I load_bytes(const uint8_t* p) {  // 16 of them, widened
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static I load_halves(const uint8_t* p) {
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
  }
  static I max_words(I a, I b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
  }
  static I broadcast_word(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const __m256i all = _mm256_set1_epi32(word);
    return {all, all};
  }
  static void store_words(uint8_t* p, I v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), v.high);
  }
  // acc + four products of unsigned with signed bytes per word; unsigned ones up to kMaxCode, of
  // all eight bits here, where two products would saturate. Smaller ones: see add_products().
  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    static_assert(kMaxCode > 127);
    return {dot4_half(acc.low, codes.low, x.low), dot4_half(acc.high, codes.high, x.high)};
  }
  // Sums of two products of unsigned with signed bytes, in 16 bits.
  static I multiply_bytes(I codes, I x) {
    return {_mm256_maddubs_epi16(codes.low, x.low), _mm256_maddubs_epi16(codes.high, x.high)};
  }
  // What computed v stays as written: sums of many products would be ordered anew, each by itself.
  [[gnu::always_inline]] static void keep_whole(I* v) { __asm__("" : "+x"(v->low), "+x"(v->high)); }
  // Bytes 0 and 2, and 1 and 3 of each word, as 16 bits.
  static I even_bytes(I v) { return and_bits(v, set_bits(0x00FF00FFu)); }
  static I odd_bytes(I v) { return {_mm256_srli_epi16(v.low, 8), _mm256_srli_epi16(v.high, 8)}; }
  // acc + two products of 16 bits per word.
  static I dot2(I acc, I codes, I x) {
    return {_mm256_add_epi32(acc.low, _mm256_madd_epi16(codes.low, x.low)),
            _mm256_add_epi32(acc.high, _mm256_madd_epi16(codes.high, x.high))};
  }
  static I abs_bits(V v) {
    const V a = abs(v);
    return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
  }
  static I to_words(V v) {  // nearest, ties to even
    return {_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)};
  }
  static void store_low_bytes(uint8_t* p, I v) {
    const I low = and_bits(v, set_bits(0xFF));
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low.low, low.high), 0xD8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
  }
  static int32_t fold_max_words(I v) {
    const __m256i a = _mm256_max_epi32(v.low, v.high);
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
  }
  static int32_t fold_add_words(I v) {
    const __m256i a = _mm256_add_epi32(v.low, v.high);
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
  }
  template <int kByte>
  static V unsigned_byte(I v) {
    if constexpr (kByte == 0) return to_float(and_bits(v, set_bits(0xFF)));
    if constexpr (kByte == 3) return to_float(shift_right<24>(v));
    return to_float(and_bits(shift_right<8 * kByte>(v), set_bits(0xFF)));
  }
  static I look_up(I bytes, const uint8_t* table) {
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(values, bytes.low), _mm256_shuffle_epi8(values, bytes.high)};
  }
  static V load_half(const uint8_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
  }
  // Half of 2^(e - 127): e < 2 gives the subnormals 2^-128 and 2^-127.
  static V load_e8m0_half(const uint8_t* p) {
    return {e8m0_half_of(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            e8m0_half_of(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static V load_bytes_as_float(const uint8_t* p) { return as_floats(load_words(p)); }
  template <int kOdd>
  static V bf16_of_words(I v) {
    return as_floats(kOdd != 0 ? and_bits(v, set_bits(0xFFFF0000u)) : shift_left<16>(v));
  }
  static void prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_second(const uint8_t* p) {  // into the second cache
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  // Quantising: all reductions of a slice's blocks at once.
  static I sub_words(I a, I b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
  }
  // 16-bit lanes: of each quarter of 128 bits the 4 words of a, then the 4 of b; words fit.
  static I pack_words(I a, I b) {
    return {_mm256_packs_epi32(a.low, b.low), _mm256_packs_epi32(a.high, b.high)};
  }
  static I add_halves(I a, I b) {
    return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
  }
  static I sub_halves(I a, I b) {
    return {_mm256_sub_epi16(a.low, b.low), _mm256_sub_epi16(a.high, b.high)};
  }
  // Words: sums of neighbouring 16-bit lanes.
  static I add_pairs(I v) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(v.low, ones), _mm256_madd_epi16(v.high, ones)};
  }
  // Of two vectors of pack_words(): the upper bytes of `high`, 16 of a and 16 of b, then the lower
  // bytes of `low`.
  static void store_terms(uint8_t* p, I high, I low) {
    const I sorted{sorted_terms(high.low, low.low), sorted_terms(high.high, low.high)};
    store_words(p, {_mm256_unpacklo_epi64(sorted.low, sorted.high),
                    _mm256_unpackhi_epi64(sorted.low, sorted.high)});
  }
  // The lanes of pack_words() as bytes: 16 of a and 16 of b.
  static void store_packed(uint8_t* p, I v) {
    const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(v.low, v.high), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
  }
  // Largest word of each of eight vectors, twice: m0 m0 m1 m1 ..; words are not negative.
  static I fold_max_each(const I* v) {
    __m256i pairs[4];
    for (int i = 0; i < 4; ++i) {
      const __m256i a = _mm256_max_epi32(v[2 * i].low, v[2 * i].high);
      const __m256i b = _mm256_max_epi32(v[2 * i + 1].low, v[2 * i + 1].high);
      pairs[i] = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    }
    const I all = max_words(first_quarters(pairs), second_quarters(pairs));
    const I folded =
        max_words(all, {_mm256_shuffle_epi32(all.low, 0x4E), _mm256_shuffle_epi32(all.high, 0x4E)});
    return {_mm256_shuffle_epi32(folded.low, 0x50), _mm256_shuffle_epi32(folded.high, 0x50)};
  }
  // Of eight vectors of add_pairs(pack_words(a, b)): sum of a, sum of b of each.
  static I fold_add_each(const I* v) {
    __m256i pairs[4];
    for (int i = 0; i < 4; ++i) {
      const __m256 a = _mm256_castsi256_ps(_mm256_add_epi32(v[2 * i].low, v[2 * i].high));
      const __m256 b = _mm256_castsi256_ps(_mm256_add_epi32(v[2 * i + 1].low, v[2 * i + 1].high));
      pairs[i] = _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                                  _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)));
    }
    return add_words(first_quarters(pairs), second_quarters(pairs));
  }
  static I swap_pairs(I v) {
    return {_mm256_shuffle_epi32(v.low, 0xB1), _mm256_shuffle_epi32(v.high, 0xB1)};
  }
  // Even words of a, odd words of b.
  static I even_odd(I a, I b) {
    return {_mm256_blend_epi32(a.low, b.low, 0xAA), _mm256_blend_epi32(a.high, b.high, 0xAA)};
  }
  static I odd_or_zero(I v) {  // odd words in even places
    return {_mm256_srli_epi64(v.low, 32), _mm256_srli_epi64(v.high, 32)};
  }
  // Eight times 32 bytes, as far as `count`: pair i of words of a, b, c and d.
  static void store_quads(uint8_t* p, const I (&v)[4], int64_t count) {
    const __m256i low[4] = {v[0].low, v[1].low, v[2].low, v[3].low};
    const __m256i high[4] = {v[0].high, v[1].high, v[2].high, v[3].high};
    store_half_quads(p, low, count);
    store_half_quads(p + 128, high, count - 4);
  }
  // The f16 in the even halves of each register's words, then those in the odd ones; and either
  // as floats.
  static I sort_halves(I v) { return {sorted_words(v.low), sorted_words(v.high)}; }
  template <int kOdd>
  static V sorted_half(I v) {
    return {_mm256_cvtph_ps(_mm256_extracti128_si256(v.low, kOdd)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(v.high, kOdd))};
  }

 private:
  static __m256i sorted_terms(__m256i high, __m256i low) {
    const __m256i low_bytes = _mm256_set1_epi16(0x00FF);
    const __m256i bytes = _mm256_blendv_epi8(high, low, low_bytes);
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0x07050301, 0x0F0D0B09, 0x06040200, 0x0E0C0A08));
    // High of a, low of a; then of b: quarters beside each other.
    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(bytes, order),
                                       _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7));
  }
  static I first_quarters(const __m256i (&v)[4]) {
    return {_mm256_permute2x128_si256(v[0], v[1], 0x20),
            _mm256_permute2x128_si256(v[2], v[3], 0x20)};
  }
  static I second_quarters(const __m256i (&v)[4]) {
    return {_mm256_permute2x128_si256(v[0], v[1], 0x31),
            _mm256_permute2x128_si256(v[2], v[3], 0x31)};
  }
  static void store_half_quads(uint8_t* p, const __m256i (&v)[4], int64_t count) {
    const __m256i ab0 = _mm256_unpacklo_epi64(v[0], v[1]), ab1 = _mm256_unpackhi_epi64(v[0], v[1]);
    const __m256i cd0 = _mm256_unpacklo_epi64(v[2], v[3]), cd1 = _mm256_unpackhi_epi64(v[2], v[3]);
    const __m256i quads[4] = {
        _mm256_permute2x128_si256(ab0, cd0, 0x20), _mm256_permute2x128_si256(ab1, cd1, 0x20),
        _mm256_permute2x128_si256(ab0, cd0, 0x31), _mm256_permute2x128_si256(ab1, cd1, 0x31)};
    for (int64_t i = 0; i < 4 && i < count; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32 * i), quads[i]);
    }
  }
  static __m256i dot4_half(__m256i acc, __m256i codes, __m256i x) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i top = _mm256_set1_epi8(static_cast<char>(0x80));
    const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(codes, top), x);
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(high, ones));
    codes = _mm256_andnot_si256(top, codes);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones));
  }
  static I first_lanes(int64_t count) {
    const __m256i limit = _mm256_set1_epi32(static_cast<int>(count));
    return {_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
  static __m256 e8m0_half_of(__m128i bytes) {
    const __m256i e = _mm256_cvtepu8_epi32(bytes);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
  }
  static __m256i sorted_words(__m256i words) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, order), 0xD8);
  }
  // The low or high halves of eight words, widened.
  template <int kOdd>
  static __m256 half_of(__m256i words) {
    words = kOdd != 0 ? _mm256_srli_epi32(words, 16)
                      : _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    return _mm256_cvtph_ps(halves);
  }
};

}  // namespace
}  // namespace headrace::cpu
