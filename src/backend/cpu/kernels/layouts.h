// The layout table: what the chunks of each packed layout hold. Plain data, usable by sealed units.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

// Columns as in LayoutInfo. chunk_bytes follow from the others; kernels_test checks the sum.
inline constexpr LayoutInfo kLayouts[kNumLayouts] = {
    {Layout::kF32, "f32x16", 1, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {Layout::kF16, "f16x16x2", 2, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {Layout::kBF16, "bf16x16x2", 2, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {Layout::kQ8_0, "q8_0x16", 32, 544, 2, 0, 0, 0, 0, 0, 0, 8, 0, 128, 0},
    {Layout::kQ4_0, "q4_0x16", 32, 288, 2, 0, 0, 0, 0, 0, 0, 4, 0, 8, 0},
    {Layout::kQ4_1, "q4_1x16", 32, 320, 2, 2, 0, 0, 0, 0, 0, 4, 0, 0, 0},
    {Layout::kQ5_0, "q5_0x16", 32, 352, 2, 0, 0, 0, 0, 0, 0, 4, 1, 16, 0},
    {Layout::kQ5_1, "q5_1x16", 32, 384, 2, 2, 0, 0, 0, 0, 0, 4, 1, 0, 0},
    {Layout::kQ4K, "q4_kx16", 256, 2304, 2, 2, 8, 4, 2, 1, 0, 4, 0, 0, 0},
    {Layout::kQ5K, "q5_kx16", 256, 2816, 2, 2, 8, 4, 2, 1, 0, 4, 1, 0, 0},
    {Layout::kQ6K, "q6_kx16", 256, 3360, 2, 0, 16, 8, 0, 0, 0, 4, 2, 32, 0},
    {Layout::kQ2K, "q2_kx16", 256, 1344, 2, 2, 16, 4, 0, 1, 0, 2, 0, 0, 0},
    {Layout::kQ3K, "q3_kx16", 256, 1760, 2, 0, 16, 4, 2, 0, 32, 2, 1, 4, 0},
    {Layout::kIQ4NL, "iq4_nlx16", 32, 288, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 1},
    {Layout::kIQ4XS, "iq4_xsx16", 256, 2208, 2, 0, 8, 4, 2, 0, 32, 4, 0, 0, 1},
    {Layout::kMXFP4, "mxfp4x16", 32, 272, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 2},
    {Layout::kInt2G128, "int2_g128x16", 128, 560, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1},
    {Layout::kInt2G64, "int2_g64x16", 64, 304, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1},
    {Layout::kInt2G32, "int2_g32x16", 32, 176, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1},
    {Layout::kInt4G128, "int4_g128x16", 128, 1072, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 1},
    {Layout::kInt4G64, "int4_g64x16", 64, 560, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 1},
    {Layout::kInt4G32, "int4_g32x16", 32, 304, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 1},
    {Layout::kInt4WideG128, "int4w_g128x16", 128, 1104, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1},
    {Layout::kInt4WideG64, "int4w_g64x16", 64, 592, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1},
    {Layout::kInt4WideG32, "int4w_g32x16", 32, 336, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1},
    {Layout::kInt8G128, "int8_g128x16", 128, 2128, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1},
    {Layout::kInt8G64, "int8_g64x16", 64, 1104, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1},
    {Layout::kInt8G32, "int8_g32x16", 32, 592, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1},
    {Layout::kNVFP4, "nvfp4x16", 256, 2368, 4, 0, 16, 8, 0, 0, 0, 4, 0, 0, 2, 0, 0, 1},
    {Layout::kE4M3, "e4m3x16", 128, 2112, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 3},
    {Layout::kE5M2, "e5m2x16", 128, 2112, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 4},
};

inline constexpr const LayoutInfo& layout_info(Layout layout) {
  return kLayouts[static_cast<int>(layout)];
}

// Bytes of the planes of `count` codes of `bits` bits, all lanes. A last word may be part empty.
inline constexpr int plane_bytes(int count, int bits) { return (count * bits + 31) / 32 * 64; }

// Inputs of a sub-block: those that share one scale (and minimum), at most the kActivationBlock
// that share an activation's scale.
inline constexpr int sub_block_inputs(const LayoutInfo& info) {
  const int inputs =
      info.num_sub_blocks > 0 ? info.block_inputs / info.num_sub_blocks : info.block_inputs;
  return inputs < kActivationBlock ? inputs : kActivationBlock;
}

inline constexpr bool has_float_codes(const LayoutInfo& info) { return info.table >= 3; }

// Where the parts of a chunk begin.
struct ChunkOffsets {
  int minimum, zero, sub_low, sub_min, sub_high, low, high, end;
};

inline constexpr ChunkOffsets chunk_offsets(const LayoutInfo& info) {
  ChunkOffsets at{};
  at.minimum = info.scale_bytes * kPanel;
  at.zero = at.minimum + info.min_bytes * kPanel;
  at.sub_low = at.zero + info.zero_bytes * kPanel;
  at.sub_min = at.sub_low + plane_bytes(info.num_sub_blocks, info.sub_low_bits);
  const int min_codes = info.sub_has_min != 0 ? info.num_sub_blocks : 0;
  at.sub_high = at.sub_min + plane_bytes(min_codes, info.sub_low_bits);
  at.low = at.sub_high + plane_bytes(info.num_sub_blocks + min_codes, info.sub_high_bits);
  at.high = at.low + plane_bytes(info.block_inputs, info.low_bits);
  at.end = at.high + plane_bytes(info.block_inputs, info.high_bits);
  return at;
}

// Whole chunks, but for codes of one plane: these end after the unit of the last input.
inline constexpr size_t panel_bytes(Layout layout, int64_t num_inputs) {
  const LayoutInfo& info = layout_info(layout);
  const int64_t blocks = (num_inputs + info.block_inputs - 1) / info.block_inputs;
  const auto num_bytes = static_cast<size_t>(blocks) * info.chunk_bytes;
  if (info.low_bits == 0 || info.high_bits > 0) return num_bytes;
  const int64_t missing_units = (blocks * info.block_inputs - num_inputs) / kActivationBlock;
  return num_bytes - static_cast<size_t>(missing_units) *
                         static_cast<size_t>(plane_bytes(kActivationBlock, info.low_bits));
}

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Doubled E2M1 values: with the halved e8m0 scale of the file these are exact integers.
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace headrace::cpu
