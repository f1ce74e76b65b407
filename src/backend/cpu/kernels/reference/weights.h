// The reference unit reads packed weights one by one, by the definition of the layouts (kernels.h).
// Included by it and by the verification alone, which are compiled with baseline flags: no
// contraction to FMA, any x86-64.
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/layouts.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

inline float load_half(const uint8_t* chunk, int offset, int lane) {
  uint16_t bits;
  std::memcpy(&bits, chunk + offset + 2 * lane, sizeof(bits));
  return f16_to_float(bits);
}

// Code `index` of a plane of `bits`-bit codes at `plane`, for one lane.
inline uint32_t plane_code(const uint8_t* plane, int index, int bits, int lane) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  uint32_t word;
  std::memcpy(&word, plane + (index / per_word) * 64 + 4 * lane, sizeof(word));
  return (word >> (8 * (i % 4) + bits * (i / 4))) & ((1u << bits) - 1u);
}

// The same code of all 16 lanes; lanes innermost so that the compiler can use vectors.
inline void plane_codes(const uint8_t* plane, int index, int bits, uint32_t* codes) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  const int shift = 8 * (i % 4) + bits * (i / 4);
  const uint32_t mask = (1u << bits) - 1u;
  uint32_t words[kPanel];
  std::memcpy(words, plane + (index / per_word) * 64, sizeof(words));
  for (int n = 0; n < kPanel; ++n) codes[n] = (words[n] >> shift) & mask;
}

inline float e8m0_half(uint8_t e) {
  return bits_to_float(e < 2 ? 0x00200000u << e : uint32_t{e - 1u} << 23);
}

inline float load_float(const uint8_t* chunk, int lane) {
  float value;
  std::memcpy(&value, chunk + 4 * lane, sizeof(value));
  return value;
}

// The factor that a chunk begins with.
inline float chunk_scale(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk,
                         int lane) {
  if (info.scale_bytes == 1) return e8m0_half(chunk[lane]);
  if (info.scale_bytes == 4) return load_float(chunk, lane);
  if (info.split_scale == 0) return load_half(chunk, 0, lane);
  uint16_t top;
  std::memcpy(&top, chunk + 2 * lane, sizeof(top));
  return bits_to_float(uint32_t{top} << 16 | uint32_t{chunk[at.zero + lane] & 0xF0u} << 8);
}

inline int lane_zero(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk,
                     int lane) {
  if (info.zero_bytes == 0) return info.zero;
  return chunk[at.zero + lane] & (info.split_scale != 0 ? 0x0F : 0xFF);
}

// Scale and offset of sub-block s, per lane.
inline void block_factors(const LayoutInfo& info, const uint8_t* chunk, int s, float* scale,
                          float* offset) {
  const ChunkOffsets at = chunk_offsets(info);
  for (int n = 0; n < kPanel; ++n) {
    float d = chunk_scale(info, at, chunk, n);
    float m = info.min_bytes != 0 ? load_half(chunk, at.minimum, n) : 0.0f;
    if (info.sub_float != 0) {
      d = e4m3_to_float(static_cast<uint8_t>(plane_code(chunk + at.sub_low, s, 8, n))) / d;
    } else if (info.num_sub_blocks > 0) {
      uint32_t code = plane_code(chunk + at.sub_low, s, info.sub_low_bits, n);
      int sub = info.sub_low_bits == 8 ? static_cast<int8_t>(code) : static_cast<int>(code);
      if (info.sub_high_bits > 0) {
        sub |= static_cast<int>(plane_code(chunk + at.sub_high, s, info.sub_high_bits, n)
                                << info.sub_low_bits);
      }
      d *= static_cast<float>(sub - info.sub_zero);
      if (info.sub_has_min != 0) {
        uint32_t sub_min = plane_code(chunk + at.sub_min, s, info.sub_low_bits, n);
        if (info.sub_high_bits > 0) {
          sub_min |= plane_code(chunk + at.sub_high, info.num_sub_blocks + s, info.sub_high_bits, n)
                     << info.sub_low_bits;
        }
        m = -(m * static_cast<float>(sub_min));
      }
    }
    scale[n] = d;
    offset[n] = m;
  }
}

// What the codes of input k stand for: zero point subtracted or table looked up (whole numbers), or
// an 8-bit float.
inline void code_values(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk, int k,
                        float* values) {
  uint32_t codes[kPanel];
  plane_codes(chunk + at.low, k, info.low_bits, codes);
  if (info.high_bits > 0) {
    uint32_t high[kPanel];
    plane_codes(chunk + at.high, k, info.high_bits, high);
    for (int n = 0; n < kPanel; ++n) codes[n] |= high[n] << info.low_bits;
  }
  if (has_float_codes(info)) {
    for (int n = 0; n < kPanel; ++n) {
      const auto code = static_cast<uint8_t>(codes[n]);
      values[n] = info.table == 3 ? e4m3_to_float(code) : e5m2_to_float(code);
    }
  } else if (info.table != 0) {
    const int8_t* table = info.table == 1 ? kIq4Values : kFp4Values;
    for (int n = 0; n < kPanel; ++n) values[n] = static_cast<float>(table[codes[n]]);
  } else {
    for (int n = 0; n < kPanel; ++n) {
      values[n] = static_cast<float>(static_cast<int>(codes[n]) - lane_zero(info, at, chunk, n));
    }
  }
}

inline void unpack_quantised(const LayoutInfo& info, const UnpackArgs& args) {
  const ChunkOffsets at = chunk_offsets(info);
  const int sub_inputs = sub_block_inputs(info);
  float scale[kPanel];
  float offset[kPanel];
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t k = args.first + i;
    const uint8_t* chunk = args.panel + (k / info.block_inputs) * info.chunk_bytes;
    const int in_block = static_cast<int>(k % info.block_inputs);
    if (in_block % sub_inputs == 0) {
      block_factors(info, chunk, in_block / sub_inputs, scale, offset);
    }
    float* values = args.values + i * kPanel;
    code_values(info, at, chunk, in_block, values);
    for (int n = 0; n < kPanel; ++n) values[n] *= scale[n];
    if (info.min_bytes != 0) {
      for (int n = 0; n < kPanel; ++n) values[n] += offset[n];
    }
  }
}

template <Layout kLayout>
inline void unpack(const UnpackArgs& args) {
  if constexpr (kLayout == Layout::kF32) {
    std::memcpy(args.values, args.panel + args.first * 64, static_cast<size_t>(args.count) * 64);
  } else if constexpr (kLayout == Layout::kF16 || kLayout == Layout::kBF16) {
    for (int64_t i = 0; i < args.count; ++i) {
      uint32_t words[kPanel];
      std::memcpy(words, args.panel + (args.first + i) / 2 * 64, sizeof(words));
      const int shift = static_cast<int>((args.first + i) % 2) * 16;
      for (int n = 0; n < kPanel; ++n) {
        const auto bits = static_cast<uint16_t>(words[n] >> shift);
        args.values[i * kPanel + n] =
            kLayout == Layout::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
      }
    }
  } else {
    unpack_quantised(layout_info(kLayout), args);
  }
}

}  // namespace
}  // namespace headrace::cpu
