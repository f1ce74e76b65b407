// Rows of x as bf16 activations (ActivationType kBF16, kBF16x2, kBF16Codes), for units with
// AVX-512.
#pragma once

#include "backend/cpu/kernels/generic/lanes_avx512.h"

namespace headrace::cpu {
namespace {

// Sixteen floats as bf16 in the low halves of words.
[[gnu::always_inline]] inline __m512i round_to_bf16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i nudge = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, nudge), 16);
  const __m512i quiet = _mm512_srli_epi32(_mm512_or_si512(bits, _mm512_set1_epi32(0x400000)), 16);
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
}

// Where a row has the terms of its first 32 inputs, and from there on.
struct RowOfTerms {
  uint8_t* first;
  int64_t slice_pitch, block_pitch;

  [[gnu::always_inline]] uint8_t* block_of(int64_t k) const {
    return first + k / kSliceInputs * slice_pitch +
           k % kSliceInputs / kActivationBlock * block_pitch;
  }
};
template <ActivationType kType>
[[gnu::always_inline]] inline RowOfTerms row_of_terms(const QuantiseArgs& args, int64_t m) {
  if constexpr (!lies_in_tiles(kType)) {
    return {args.out + m * activation_record_bytes(kType), args.slice_stride,
            activation_code_bytes(kType)};
  } else {
    const auto [before, behind] = args.beside;
    const RowInTiles row =
        row_in_tiles(kType, before + m, before + args.num_rows + behind, args.slice_stride);
    return {args.out + row.line + args.first_input / kActivationBlock * row.pitch,
            kSliceLines * row.pitch, row.pitch};
  }
}

template <ActivationType kType>
void quantise_bf16(const QuantiseArgs& args) {
  using F = Avx512;
  constexpr int64_t kUnit = activation_unit(kType);
  const __m512 largest = F::set(3.402823466e38f);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.num_inputs;
    const RowOfTerms row = row_of_terms<kType>(args, m);
    const int64_t end = (args.num_inputs + kUnit - 1) / kUnit * kUnit;
    for (int64_t k = 0; k < end; k += 16) {
      const __m512 v = F::load_part(x + k, larger(0, args.num_inputs - k));
      uint8_t* to = row.block_of(k) + k % kActivationBlock * 2;
      __m512i term = round_to_bf16(v);
      if constexpr (kType == ActivationType::kBF16Codes) {
        term = _mm512_shuffle_epi32(term, _MM_PERM_DBCA);
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(term));
      if constexpr (num_terms(kType) == 2) {
        const __m512 rest = F::sub(v, _mm512_castsi512_ps(_mm512_slli_epi32(term, 16)));
        const __mmask16 finite = _mm512_cmp_ps_mask(F::abs(rest), largest, _CMP_LE_OQ);
        const __m512i second = _mm512_maskz_mov_epi32(finite, round_to_bf16(rest));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64), _mm512_cvtepi32_epi16(second));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
