// The rows of the AMX unit, over an implementation of the tile functions (amx/tile.h): the
// instructions for serving, their model for the tests.
//
// Coded panels are for 16 rows and more, as the rows before them (AVX-512 VNNI) give the same bits
// and waste no tile. bf16 panels have their own order of summation, so one row serves every M.
#pragma once

#include "backend/cpu/kernels/amx/bf16.h"
#include "backend/cpu/kernels/amx/integer.h"

namespace headrace::cpu {
namespace {

inline constexpr uint32_t kAmxIsa =
    Avx512::kIsa | kIsaAvx512Vnni | kIsaAmxTile | kIsaAmxInt8 | kIsaAmxBf16;

template <typename Tiles, Layout kLayout, ActivationType kType>
constexpr KernelRow integer_tiles_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          kAmxIsa,
          kLayout,
          kType,
          kTileRows,
          {kTileRows, 2 * kPanel, CodedWeights<Avx512, kLayout>::kSubInputs},
          NumericsClass::kInteger,
          {.matmul = &matmul_integer_tiles<Tiles, kLayout, kType>}};
}
template <typename Tiles, ActivationType kType>
constexpr KernelRow bf16_tiles_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          kAmxIsa,
          Layout::kBF16,
          kType,
          1,
          {2 * kTileRows, 2 * kPanel, kActivationBlock},
          NumericsClass::kBf16Tile,
          {.matmul = &matmul_bf16_tiles<Tiles, kType>}};
}
template <ActivationType kType>
constexpr KernelRow quantise_bf16_row(const char* name) {
  return {KernelOp::kQuantise,
          name,
          kAmxIsa,
          Layout::kCount,
          kType,
          1,
          {1, 1, kActivationBlock},
          NumericsClass::kBf16Tile,
          {.quantise = &quantise_bf16<kType>}};
}

template <typename Tiles>
struct AmxRows {
  static constexpr ActivationType kInt16 = ActivationType::kInt16;
  static constexpr ActivationType kInt8 = ActivationType::kInt8;
  static constexpr KernelRow kRows[] = {
      integer_tiles_row<Tiles, Layout::kQ8_0, kInt16>("matmul_q8_0_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4_0, kInt16>("matmul_q4_0_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4_1, kInt16>("matmul_q4_1_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5_0, kInt16>("matmul_q5_0_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5_1, kInt16>("matmul_q5_1_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4K, kInt16>("matmul_q4_k_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5K, kInt16>("matmul_q5_k_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ6K, kInt16>("matmul_q6_k_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ2K, kInt16>("matmul_q2_k_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ3K, kInt16>("matmul_q3_k_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kIQ4NL, kInt16>("matmul_iq4_nl_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kIQ4XS, kInt16>("matmul_iq4_xs_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kMXFP4, kInt16>("matmul_mxfp4_int16_tiles"),
      integer_tiles_row<Tiles, Layout::kQ8_0, kInt8>("matmul_q8_0_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4_0, kInt8>("matmul_q4_0_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4_1, kInt8>("matmul_q4_1_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5_0, kInt8>("matmul_q5_0_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5_1, kInt8>("matmul_q5_1_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ4K, kInt8>("matmul_q4_k_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ5K, kInt8>("matmul_q5_k_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ6K, kInt8>("matmul_q6_k_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ2K, kInt8>("matmul_q2_k_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kQ3K, kInt8>("matmul_q3_k_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kIQ4NL, kInt8>("matmul_iq4_nl_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kIQ4XS, kInt8>("matmul_iq4_xs_int8_tiles"),
      integer_tiles_row<Tiles, Layout::kMXFP4, kInt8>("matmul_mxfp4_int8_tiles"),
      bf16_tiles_row<Tiles, ActivationType::kBF16x2>("matmul_bf16_bf16x2_tiles"),
      bf16_tiles_row<Tiles, ActivationType::kBF16>("matmul_bf16_bf16_tiles"),
      quantise_bf16_row<ActivationType::kBF16x2>("quantise_bf16x2"),
      quantise_bf16_row<ActivationType::kBF16>("quantise_bf16"),
  };
  static constexpr int kCount = static_cast<int>(sizeof(kRows) / sizeof(kRows[0]));
};

}  // namespace
}  // namespace headrace::cpu
