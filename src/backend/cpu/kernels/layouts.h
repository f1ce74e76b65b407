// The layout table: what the chunks of each packed layout hold. Plain data, usable by sealed units.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

// chunk_bytes follow from the other columns; kernels_test checks the sum.
inline constexpr LayoutInfo kLayouts[kNumLayouts] = {
#define HEADRACE_LAYOUT(id, ...) {Layout::k##id, __VA_ARGS__},
    HEADRACE_LAYOUTS(HEADRACE_LAYOUT)
#undef HEADRACE_LAYOUT
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
// Multiplied with integer activations; the others with floats.
inline constexpr bool has_integer_codes(const LayoutInfo& info) {
  return info.low_bits > 0 && !has_float_codes(info);
}
// Of safetensors' weights in several tensors: codes with scales by groups.
inline constexpr bool is_of_groups(const LayoutInfo& info) {
  return info.zero_bytes != 0 || info.sub_float != 0;
}

// Codes as signed numbers of few bits (class kFixed): q - center. Where a layout has minima or
// zeros by lane, an offset makes up for the center. Of linear codes the factor alone is rounded,
// for which their range must leave bits enough. Where their scales are short, whole factors of a
// unit that is a power of two can be exactly these: 12 bits beside four of code hold f16's 11.
struct FixedCode {
  int bits;
  int center;
  bool has_offset;
  bool is_linear;
  bool has_exact_factors;
  constexpr int range() const { return 1 << (bits - 1); }
};
inline constexpr FixedCode fixed_code(const LayoutInfo& info) {
  const int code_bits = info.low_bits + info.high_bits;
  const bool is_short = info.scale_bytes <= 2 && info.num_sub_blocks == 0;
  if (info.table == 1) return {8, 0, false, false, false};
  if (info.table == 2) return {5, 0, false, is_short, is_short};  // e8m0: one bit
  const bool is_linear = code_bits <= 4 && info.scale_bytes <= 2;
  const bool is_exact = is_linear && is_short;
  if (info.min_bytes != 0 || info.zero_bytes != 0) {
    return {code_bits, 1 << (code_bits - 1), true, is_linear, is_exact};
  }
  int bits = 1;
  while (info.zero > 1 << (bits - 1) || (1 << code_bits) - info.zero > 1 << (bits - 1)) ++bits;
  return {bits, info.zero, false, is_linear, is_exact};
}

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
