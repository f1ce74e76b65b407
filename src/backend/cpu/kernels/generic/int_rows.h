// The rows of integer activations: products with every coded layout, and quantising.
#pragma once

#include "backend/cpu/kernels/generic/int_matmul.h"
#include "backend/cpu/kernels/generic/quantise.h"

namespace headrace::cpu {
namespace {

// From here on codes are unpacked once for all rows, not expanded for each tile of them (measured).
template <typename F, Layout kLayout, ActivationType kType>
constexpr int32_t min_blocked_rows() {
  if (kUsesWords<F, kType>) return CodedWeights<F, kLayout>::kMaxCode > 127 ? 2 : 4;
  if (kIntegerDirectRows<F, kType> == 2) return 8;
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  const bool many_operations = kInfo.high_bits > 0 || kInfo.low_bits == 2 || kInfo.table != 0;
  return many_operations ? 24 : 64;
}

template <typename F, Layout kLayout, ActivationType kType>
constexpr KernelRow integer_direct_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          F::kIsa,
          kLayout,
          kType,
          1,
          {kIntegerDirectRows<F, kType>, F::kIntegerPanels * kPanel, kActivationBlock},
          NumericsClass::kInteger,
          {.matmul = &matmul_integer_direct<F, kLayout, kType>}};
}
template <typename F, Layout kLayout, ActivationType kType>
constexpr KernelRow integer_blocked_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          F::kIsa,
          kLayout,
          kType,
          min_blocked_rows<F, kLayout, kType>(),
          {F::kIntegerRows, F::kIntegerPanels * kPanel, kSliceInputs},
          NumericsClass::kInteger,
          {.matmul = &matmul_integer_blocked<F, kLayout, kType>}};
}
template <typename F, ActivationType kType>
constexpr KernelRow quantise_row(const char* name) {
  return {KernelOp::kQuantise,
          name,
          F::kIsa,
          Layout::kCount,
          kType,
          1,
          {1, 1, kActivationBlock},
          NumericsClass::kInteger,
          {.quantise = &quantise<F, kType>}};
}

template <typename F>
struct IntegerRows {
  static constexpr KernelRow kRows[] = {
      integer_direct_row<F, Layout::kQ8_0, ActivationType::kInt16>("matmul_q8_0_int16_direct"),
      integer_direct_row<F, Layout::kQ4_0, ActivationType::kInt16>("matmul_q4_0_int16_direct"),
      integer_direct_row<F, Layout::kQ4_1, ActivationType::kInt16>("matmul_q4_1_int16_direct"),
      integer_direct_row<F, Layout::kQ5_0, ActivationType::kInt16>("matmul_q5_0_int16_direct"),
      integer_direct_row<F, Layout::kQ5_1, ActivationType::kInt16>("matmul_q5_1_int16_direct"),
      integer_direct_row<F, Layout::kQ4K, ActivationType::kInt16>("matmul_q4_k_int16_direct"),
      integer_direct_row<F, Layout::kQ5K, ActivationType::kInt16>("matmul_q5_k_int16_direct"),
      integer_direct_row<F, Layout::kQ6K, ActivationType::kInt16>("matmul_q6_k_int16_direct"),
      integer_direct_row<F, Layout::kQ2K, ActivationType::kInt16>("matmul_q2_k_int16_direct"),
      integer_direct_row<F, Layout::kQ3K, ActivationType::kInt16>("matmul_q3_k_int16_direct"),
      integer_direct_row<F, Layout::kIQ4NL, ActivationType::kInt16>("matmul_iq4_nl_int16_direct"),
      integer_direct_row<F, Layout::kIQ4XS, ActivationType::kInt16>("matmul_iq4_xs_int16_direct"),
      integer_direct_row<F, Layout::kMXFP4, ActivationType::kInt16>("matmul_mxfp4_int16_direct"),
      integer_direct_row<F, Layout::kInt2G128, ActivationType::kInt16>(
          "matmul_int2_g128_int16_direct"),
      integer_direct_row<F, Layout::kInt2G64, ActivationType::kInt16>(
          "matmul_int2_g64_int16_direct"),
      integer_direct_row<F, Layout::kInt2G32, ActivationType::kInt16>(
          "matmul_int2_g32_int16_direct"),
      integer_direct_row<F, Layout::kInt4G128, ActivationType::kInt16>(
          "matmul_int4_g128_int16_direct"),
      integer_direct_row<F, Layout::kInt4G64, ActivationType::kInt16>(
          "matmul_int4_g64_int16_direct"),
      integer_direct_row<F, Layout::kInt4G32, ActivationType::kInt16>(
          "matmul_int4_g32_int16_direct"),
      integer_direct_row<F, Layout::kInt4WideG128, ActivationType::kInt16>(
          "matmul_int4w_g128_int16_direct"),
      integer_direct_row<F, Layout::kInt4WideG64, ActivationType::kInt16>(
          "matmul_int4w_g64_int16_direct"),
      integer_direct_row<F, Layout::kInt4WideG32, ActivationType::kInt16>(
          "matmul_int4w_g32_int16_direct"),
      integer_direct_row<F, Layout::kInt8G128, ActivationType::kInt16>(
          "matmul_int8_g128_int16_direct"),
      integer_direct_row<F, Layout::kInt8G64, ActivationType::kInt16>(
          "matmul_int8_g64_int16_direct"),
      integer_direct_row<F, Layout::kInt8G32, ActivationType::kInt16>(
          "matmul_int8_g32_int16_direct"),
      integer_direct_row<F, Layout::kNVFP4, ActivationType::kInt16>("matmul_nvfp4_int16_direct"),
      integer_blocked_row<F, Layout::kQ8_0, ActivationType::kInt16>("matmul_q8_0_int16_blocked"),
      integer_blocked_row<F, Layout::kQ4_0, ActivationType::kInt16>("matmul_q4_0_int16_blocked"),
      integer_blocked_row<F, Layout::kQ4_1, ActivationType::kInt16>("matmul_q4_1_int16_blocked"),
      integer_blocked_row<F, Layout::kQ5_0, ActivationType::kInt16>("matmul_q5_0_int16_blocked"),
      integer_blocked_row<F, Layout::kQ5_1, ActivationType::kInt16>("matmul_q5_1_int16_blocked"),
      integer_blocked_row<F, Layout::kQ4K, ActivationType::kInt16>("matmul_q4_k_int16_blocked"),
      integer_blocked_row<F, Layout::kQ5K, ActivationType::kInt16>("matmul_q5_k_int16_blocked"),
      integer_blocked_row<F, Layout::kQ6K, ActivationType::kInt16>("matmul_q6_k_int16_blocked"),
      integer_blocked_row<F, Layout::kQ2K, ActivationType::kInt16>("matmul_q2_k_int16_blocked"),
      integer_blocked_row<F, Layout::kQ3K, ActivationType::kInt16>("matmul_q3_k_int16_blocked"),
      integer_blocked_row<F, Layout::kIQ4NL, ActivationType::kInt16>("matmul_iq4_nl_int16_blocked"),
      integer_blocked_row<F, Layout::kIQ4XS, ActivationType::kInt16>("matmul_iq4_xs_int16_blocked"),
      integer_blocked_row<F, Layout::kMXFP4, ActivationType::kInt16>("matmul_mxfp4_int16_blocked"),
      integer_blocked_row<F, Layout::kInt2G128, ActivationType::kInt16>(
          "matmul_int2_g128_int16_blocked"),
      integer_blocked_row<F, Layout::kInt2G64, ActivationType::kInt16>(
          "matmul_int2_g64_int16_blocked"),
      integer_blocked_row<F, Layout::kInt2G32, ActivationType::kInt16>(
          "matmul_int2_g32_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4G128, ActivationType::kInt16>(
          "matmul_int4_g128_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4G64, ActivationType::kInt16>(
          "matmul_int4_g64_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4G32, ActivationType::kInt16>(
          "matmul_int4_g32_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG128, ActivationType::kInt16>(
          "matmul_int4w_g128_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG64, ActivationType::kInt16>(
          "matmul_int4w_g64_int16_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG32, ActivationType::kInt16>(
          "matmul_int4w_g32_int16_blocked"),
      integer_blocked_row<F, Layout::kInt8G128, ActivationType::kInt16>(
          "matmul_int8_g128_int16_blocked"),
      integer_blocked_row<F, Layout::kInt8G64, ActivationType::kInt16>(
          "matmul_int8_g64_int16_blocked"),
      integer_blocked_row<F, Layout::kInt8G32, ActivationType::kInt16>(
          "matmul_int8_g32_int16_blocked"),
      integer_blocked_row<F, Layout::kNVFP4, ActivationType::kInt16>("matmul_nvfp4_int16_blocked"),
      integer_direct_row<F, Layout::kQ8_0, ActivationType::kInt8>("matmul_q8_0_int8_direct"),
      integer_direct_row<F, Layout::kQ4_0, ActivationType::kInt8>("matmul_q4_0_int8_direct"),
      integer_direct_row<F, Layout::kQ4_1, ActivationType::kInt8>("matmul_q4_1_int8_direct"),
      integer_direct_row<F, Layout::kQ5_0, ActivationType::kInt8>("matmul_q5_0_int8_direct"),
      integer_direct_row<F, Layout::kQ5_1, ActivationType::kInt8>("matmul_q5_1_int8_direct"),
      integer_direct_row<F, Layout::kQ4K, ActivationType::kInt8>("matmul_q4_k_int8_direct"),
      integer_direct_row<F, Layout::kQ5K, ActivationType::kInt8>("matmul_q5_k_int8_direct"),
      integer_direct_row<F, Layout::kQ6K, ActivationType::kInt8>("matmul_q6_k_int8_direct"),
      integer_direct_row<F, Layout::kQ2K, ActivationType::kInt8>("matmul_q2_k_int8_direct"),
      integer_direct_row<F, Layout::kQ3K, ActivationType::kInt8>("matmul_q3_k_int8_direct"),
      integer_direct_row<F, Layout::kIQ4NL, ActivationType::kInt8>("matmul_iq4_nl_int8_direct"),
      integer_direct_row<F, Layout::kIQ4XS, ActivationType::kInt8>("matmul_iq4_xs_int8_direct"),
      integer_direct_row<F, Layout::kMXFP4, ActivationType::kInt8>("matmul_mxfp4_int8_direct"),
      integer_direct_row<F, Layout::kInt2G128, ActivationType::kInt8>(
          "matmul_int2_g128_int8_direct"),
      integer_direct_row<F, Layout::kInt2G64, ActivationType::kInt8>("matmul_int2_g64_int8_direct"),
      integer_direct_row<F, Layout::kInt2G32, ActivationType::kInt8>("matmul_int2_g32_int8_direct"),
      integer_direct_row<F, Layout::kInt4G128, ActivationType::kInt8>(
          "matmul_int4_g128_int8_direct"),
      integer_direct_row<F, Layout::kInt4G64, ActivationType::kInt8>("matmul_int4_g64_int8_direct"),
      integer_direct_row<F, Layout::kInt4G32, ActivationType::kInt8>("matmul_int4_g32_int8_direct"),
      integer_direct_row<F, Layout::kInt4WideG128, ActivationType::kInt8>(
          "matmul_int4w_g128_int8_direct"),
      integer_direct_row<F, Layout::kInt4WideG64, ActivationType::kInt8>(
          "matmul_int4w_g64_int8_direct"),
      integer_direct_row<F, Layout::kInt4WideG32, ActivationType::kInt8>(
          "matmul_int4w_g32_int8_direct"),
      integer_direct_row<F, Layout::kInt8G128, ActivationType::kInt8>(
          "matmul_int8_g128_int8_direct"),
      integer_direct_row<F, Layout::kInt8G64, ActivationType::kInt8>("matmul_int8_g64_int8_direct"),
      integer_direct_row<F, Layout::kInt8G32, ActivationType::kInt8>("matmul_int8_g32_int8_direct"),
      integer_direct_row<F, Layout::kNVFP4, ActivationType::kInt8>("matmul_nvfp4_int8_direct"),
      integer_blocked_row<F, Layout::kQ8_0, ActivationType::kInt8>("matmul_q8_0_int8_blocked"),
      integer_blocked_row<F, Layout::kQ4_0, ActivationType::kInt8>("matmul_q4_0_int8_blocked"),
      integer_blocked_row<F, Layout::kQ4_1, ActivationType::kInt8>("matmul_q4_1_int8_blocked"),
      integer_blocked_row<F, Layout::kQ5_0, ActivationType::kInt8>("matmul_q5_0_int8_blocked"),
      integer_blocked_row<F, Layout::kQ5_1, ActivationType::kInt8>("matmul_q5_1_int8_blocked"),
      integer_blocked_row<F, Layout::kQ4K, ActivationType::kInt8>("matmul_q4_k_int8_blocked"),
      integer_blocked_row<F, Layout::kQ5K, ActivationType::kInt8>("matmul_q5_k_int8_blocked"),
      integer_blocked_row<F, Layout::kQ6K, ActivationType::kInt8>("matmul_q6_k_int8_blocked"),
      integer_blocked_row<F, Layout::kQ2K, ActivationType::kInt8>("matmul_q2_k_int8_blocked"),
      integer_blocked_row<F, Layout::kQ3K, ActivationType::kInt8>("matmul_q3_k_int8_blocked"),
      integer_blocked_row<F, Layout::kIQ4NL, ActivationType::kInt8>("matmul_iq4_nl_int8_blocked"),
      integer_blocked_row<F, Layout::kIQ4XS, ActivationType::kInt8>("matmul_iq4_xs_int8_blocked"),
      integer_blocked_row<F, Layout::kMXFP4, ActivationType::kInt8>("matmul_mxfp4_int8_blocked"),
      integer_blocked_row<F, Layout::kInt2G128, ActivationType::kInt8>(
          "matmul_int2_g128_int8_blocked"),
      integer_blocked_row<F, Layout::kInt2G64, ActivationType::kInt8>(
          "matmul_int2_g64_int8_blocked"),
      integer_blocked_row<F, Layout::kInt2G32, ActivationType::kInt8>(
          "matmul_int2_g32_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4G128, ActivationType::kInt8>(
          "matmul_int4_g128_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4G64, ActivationType::kInt8>(
          "matmul_int4_g64_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4G32, ActivationType::kInt8>(
          "matmul_int4_g32_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG128, ActivationType::kInt8>(
          "matmul_int4w_g128_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG64, ActivationType::kInt8>(
          "matmul_int4w_g64_int8_blocked"),
      integer_blocked_row<F, Layout::kInt4WideG32, ActivationType::kInt8>(
          "matmul_int4w_g32_int8_blocked"),
      integer_blocked_row<F, Layout::kInt8G128, ActivationType::kInt8>(
          "matmul_int8_g128_int8_blocked"),
      integer_blocked_row<F, Layout::kInt8G64, ActivationType::kInt8>(
          "matmul_int8_g64_int8_blocked"),
      integer_blocked_row<F, Layout::kInt8G32, ActivationType::kInt8>(
          "matmul_int8_g32_int8_blocked"),
      integer_blocked_row<F, Layout::kNVFP4, ActivationType::kInt8>("matmul_nvfp4_int8_blocked"),
      quantise_row<F, ActivationType::kInt16>("quantise_int16"),
      quantise_row<F, ActivationType::kInt8>("quantise_int8"),
  };
  static constexpr int kCount = static_cast<int>(sizeof(kRows) / sizeof(kRows[0]));
};

}  // namespace
}  // namespace headrace::cpu
