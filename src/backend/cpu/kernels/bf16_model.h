// The arithmetic of the bf16 instructions (VDPBF16PS, TDPBF16PS) in plain C++: one operation each.
//
// Both round to nearest even, take denormals for zeros and turn a denormal result into a zero of
// its sign, whatever the thread's control register says.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/numeric.h"

namespace headrace::cpu {

inline float without_denormal(float v) {
  return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
}

// a b + c, a and b bf16 values. The result is tiny, and becomes zero, if it lies below the normal
// numbers when rounded to 24 bits as if exponents had no end: results that would round up to 2^-126
// in denormal steps alone are tiny. The sum in double is exact wherever that matters: a product of
// bf16 values has 16 bits.
inline float bf16_fma(float a, float b, float c) {
  a = without_denormal(a);
  b = without_denormal(b);
  c = without_denormal(c);
  const float result = std::fma(a, b, c);
  if (std::fabs(result) > 0x1p-126f) return result;
  const double sum = double{a} * double{b} + double{c};
  const bool tiny = std::fabs(sum) < 0x1p-126 - 0x1p-151;
  return tiny ? std::copysign(0.0f, result) : result;
}

// The f16 bits of a number that is exact in double, rounded once: AVX512-FP16, which has denormals
// whatever the control register says. By way of a float rounded to odd where it is not exact, which
// is no tie of fewer bits.
inline uint16_t double_to_f16(double v) {
  const auto nearest = static_cast<float>(v);
  const double rest = std::fabs(v) - std::fabs(double{nearest});
  uint32_t bits = float_to_bits(nearest);
  if (rest < 0) bits = (bits - 1) | 1;
  if (rest > 0) bits |= 1;
  return float_to_f16(bits_to_float(bits));
}

// A sum of floats that is denormal is exact, so there is nothing to round.
inline float bf16_add(float a, float b) {
  return without_denormal(without_denormal(a) + without_denormal(b));
}

}  // namespace headrace::cpu
