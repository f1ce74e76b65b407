// The rows that every unit built from the generic algorithms has.
#pragma once

#include "backend/cpu/kernels/generic/attention.h"
#include "backend/cpu/kernels/generic/int_rows.h"
#include "backend/cpu/kernels/generic/matmul.h"
#include "backend/cpu/kernels/generic/qkv.h"

namespace headrace::cpu {
namespace {

// From here on a slice is unpacked once for all rows, not converted for each tile of them
// (measured).
template <typename F, Layout kLayout>
constexpr int32_t min_float_blocked_rows() {
  constexpr bool kIsFloat8 = layout_info(kLayout).low_bits != 0;
  if (F::kBlockPanels == 1) return kIsFloat8 ? 6 : 12;
  if (kIsFloat8) return 12;
  return kLayout == Layout::kF16 ? 24 : 96;
}

template <typename F, Layout kLayout>
constexpr KernelRow direct_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          F::kIsa,
          kLayout,
          ActivationType::kF32,
          1,
          {F::kDenseRows, F::kDenseDirectPanels * kPanel, kSliceInputs},
          NumericsClass::kFma,
          {.matmul = &matmul_direct<F, kLayout>}};
}
template <typename F, Layout kLayout>
constexpr KernelRow blocked_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          F::kIsa,
          kLayout,
          ActivationType::kF32,
          min_float_blocked_rows<F, kLayout>(),
          {F::kBlockRows, F::kBlockPanels * kPanel, kSliceInputs},
          NumericsClass::kFma,
          {.matmul = &matmul_blocked<F, kLayout>}};
}
template <typename F, Layout kLayout>
constexpr KernelRow unpack_row(const char* name) {
  return {KernelOp::kUnpack,
          name,
          F::kIsa,
          kLayout,
          ActivationType::kF32,
          1,
          {1, kPanel, kSliceInputs},
          NumericsClass::kFma,
          {.unpack = &unpack<F, kLayout>}};
}
template <typename F>
constexpr KernelRow plain_row(KernelOp op, const char* name, KernelFunction function) {
  return {op,
          name,
          F::kIsa,
          Layout::kCount,
          ActivationType::kF32,
          1,
          {1, kPanel, 1},
          NumericsClass::kFma,
          function};
}

template <typename F>
struct FloatRows {
  static constexpr KernelRow kRows[] = {
      direct_row<F, Layout::kF32>("matmul_f32_direct"),
      direct_row<F, Layout::kF16>("matmul_f16_direct"),
      direct_row<F, Layout::kBF16>("matmul_bf16_direct"),
      direct_row<F, Layout::kE4M3>("matmul_e4m3_direct"),
      direct_row<F, Layout::kE5M2>("matmul_e5m2_direct"),
      blocked_row<F, Layout::kF32>("matmul_f32_blocked"),
      blocked_row<F, Layout::kF16>("matmul_f16_blocked"),
      blocked_row<F, Layout::kBF16>("matmul_bf16_blocked"),
      blocked_row<F, Layout::kE4M3>("matmul_e4m3_blocked"),
      blocked_row<F, Layout::kE5M2>("matmul_e5m2_blocked"),
      unpack_row<F, Layout::kF32>("unpack_f32"),
      unpack_row<F, Layout::kF16>("unpack_f16"),
      unpack_row<F, Layout::kBF16>("unpack_bf16"),
      unpack_row<F, Layout::kQ8_0>("unpack_q8_0"),
      unpack_row<F, Layout::kQ4_0>("unpack_q4_0"),
      unpack_row<F, Layout::kQ4_1>("unpack_q4_1"),
      unpack_row<F, Layout::kQ5_0>("unpack_q5_0"),
      unpack_row<F, Layout::kQ5_1>("unpack_q5_1"),
      unpack_row<F, Layout::kQ4K>("unpack_q4_k"),
      unpack_row<F, Layout::kQ5K>("unpack_q5_k"),
      unpack_row<F, Layout::kQ6K>("unpack_q6_k"),
      unpack_row<F, Layout::kQ2K>("unpack_q2_k"),
      unpack_row<F, Layout::kQ3K>("unpack_q3_k"),
      unpack_row<F, Layout::kIQ4NL>("unpack_iq4_nl"),
      unpack_row<F, Layout::kIQ4XS>("unpack_iq4_xs"),
      unpack_row<F, Layout::kMXFP4>("unpack_mxfp4"),
      unpack_row<F, Layout::kInt2G128>("unpack_int2_g128"),
      unpack_row<F, Layout::kInt2G64>("unpack_int2_g64"),
      unpack_row<F, Layout::kInt2G32>("unpack_int2_g32"),
      unpack_row<F, Layout::kInt4G128>("unpack_int4_g128"),
      unpack_row<F, Layout::kInt4G64>("unpack_int4_g64"),
      unpack_row<F, Layout::kInt4G32>("unpack_int4_g32"),
      unpack_row<F, Layout::kInt4WideG128>("unpack_int4w_g128"),
      unpack_row<F, Layout::kInt4WideG64>("unpack_int4w_g64"),
      unpack_row<F, Layout::kInt4WideG32>("unpack_int4w_g32"),
      unpack_row<F, Layout::kInt8G128>("unpack_int8_g128"),
      unpack_row<F, Layout::kInt8G64>("unpack_int8_g64"),
      unpack_row<F, Layout::kInt8G32>("unpack_int8_g32"),
      unpack_row<F, Layout::kNVFP4>("unpack_nvfp4"),
      unpack_row<F, Layout::kE4M3>("unpack_e4m3"),
      unpack_row<F, Layout::kE5M2>("unpack_e5m2"),
      plain_row<F>(KernelOp::kFinish, "finish", {.finish = &finish<F>}),
      plain_row<F>(KernelOp::kGate, "gate", {.gate = &gate<F>}),
      plain_row<F>(KernelOp::kNorm, "norm", {.norm = &norm<F>}),
      plain_row<F>(KernelOp::kQkv, "qkv", {.qkv = &qkv<F>}),
      plain_row<F>(KernelOp::kAttention, "attention", {.attention = &attention<F>}),
  };
  static constexpr int kCount = static_cast<int>(sizeof(kRows) / sizeof(kRows[0]));
};

// All rows of a unit that needs nothing from another.
template <typename F>
struct UnitRows {
  static constexpr int kCount = FloatRows<F>::kCount + IntegerRows<F>::kCount;
  struct Table {
    KernelRow rows[kCount];
  };
  static constexpr Table joined() {
    Table table{};
    int i = 0;
    for (const KernelRow& row : IntegerRows<F>::kRows) table.rows[i++] = row;
    for (const KernelRow& row : FloatRows<F>::kRows) table.rows[i++] = row;
    return table;
  }
  static constexpr Table kTable = joined();
};

}  // namespace
}  // namespace headrace::cpu
