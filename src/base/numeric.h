// Exact conversions between float32 and the storage formats of checkpoints; division rounded up.
//
// Widening is exact for every input, including subnormals, infinities and NaN. Narrowing rounds to
// nearest, ties to even. Sources: IEEE 754 (f16), bfloat16 = upper half of f32, OCP FP8 (e4m3fn has
// no infinity, 0x7F/0xFF are NaN; e5m2 follows IEEE), OCP MX (e8m0: a power of two, 255 is NaN).
#pragma once

#include <bit>
#include <cstdint>

namespace headrace {

// The least whole number that is not below a / b; a >= 0, b > 0.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t float_to_bits(float value) { return std::bit_cast<uint32_t>(value); }

// Integers in the order of floats, -0 and +0 both 0; not for NaN. Compilers make vectors of a
// largest integer, not of a largest float.
inline int32_t float_order(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t magnitude = bits & 0x7FFFFFFF;
  return bits < 0 ? -magnitude : magnitude;
}

inline float bf16_to_float(uint16_t value) { return bits_to_float(uint32_t{value} << 16); }

inline uint16_t float_to_bf16(float value) {
  uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Selects instead of branches, so that loops over it become vector code; no step sees a subnormal,
// so a thread that flushes them gets the same bits.
inline float f16_to_float(uint16_t value) {
  const uint32_t sign = uint32_t{value & 0x8000u} << 16;
  const uint32_t magnitude = uint32_t{value & 0x7FFFu} << 13;
  const uint32_t normal = magnitude + 0x38000000u;
  // mantissa * 2^-24, as the distance of a number in [2^-14, 2^-13) from 2^-14.
  const uint32_t subnormal = float_to_bits(bits_to_float(magnitude + 0x38800000u) - 0x1p-14f);
  const uint32_t finite = magnitude < 0x00800000u ? subnormal : normal;
  return bits_to_float(sign | (magnitude >= 0x0F800000u ? magnitude + 0x70000000u : finite));
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the mantissa so that the FPU rounds to the f16 subnormal grid.
    const float aligned = bits_to_float(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (float_to_bits(aligned) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

inline float e4m3_to_float(uint8_t value) {
  const uint32_t sign = uint32_t{value & 0x80u} << 24;
  const uint32_t magnitude = uint32_t{value & 0x7Fu} << 20;
  const uint32_t normal = magnitude + 0x3C000000u;
  const uint32_t subnormal = float_to_bits(bits_to_float(magnitude + 0x3C800000u) - 0x1p-6f);
  const uint32_t finite = magnitude < 0x00800000u ? subnormal : normal;
  return bits_to_float(sign | (magnitude == 0x07F00000u ? 0x7FC00000u : finite));
}

inline float e5m2_to_float(uint8_t value) {
  return f16_to_float(static_cast<uint16_t>(uint16_t{value} << 8));
}

// 2^(value - 127); value 0 is 2^-127, a float32 subnormal.
inline float e8m0_to_float(uint8_t value) {
  if (value == 0xFF) return bits_to_float(0x7FC00000u);
  return bits_to_float(value == 0 ? 0x00400000u : uint32_t{value} << 23);
}

}  // namespace headrace
