// Vectors of sixteen floats and what passes over the vocabulary do with them: loads and stores of
// whole and last ones, exponentials, sums in one order.
//
// Plain arithmetic without fused operations: the bits are equal however it is compiled. All is
// inlined into the pass that uses it, and so compiled for that pass's processor. Only for
// vocab_passes.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

// Vectors are passed between functions that are always inlined, so their calling convention is
// nobody's concern.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace headrace::vocab {

inline constexpr size_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Doubles = double __attribute__((vector_size(128)));
using Longs = int64_t __attribute__((vector_size(128)));
using Bytes = uint8_t __attribute__((vector_size(16)));
using EightFloats = float __attribute__((vector_size(32)));
using EightDoubles = double __attribute__((vector_size(64)));
using FourFloats = float __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));

// Several vectors at a time where the processor has registers for them: the steps of an exponential
// wait for each other, those of several do not.
template <size_t kWide>
struct Wide;
template <>
struct Wide<kLanes> {
  using Floats = float __attribute__((vector_size(64)));
  using Ints = int32_t __attribute__((vector_size(64)));
};
template <>
struct Wide<4 * kLanes> {
  using Floats = float __attribute__((vector_size(256)));
  using Ints = int32_t __attribute__((vector_size(256)));
};

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
inline constexpr float kRoundToInteger = 0x1.8p23f;  // adding it leaves no bits below 1

// A part of a row as sixteen floats; lanes past the end hold `rest`.
[[gnu::always_inline]] inline Floats load(const float* values, size_t left, float rest) {
  Floats loaded;
  if (left >= kLanes) {
    std::memcpy(&loaded, values, sizeof(loaded));
    return loaded;
  }
  for (size_t i = 0; i < kLanes; ++i) loaded[i] = i < left ? values[i] : rest;
  return loaded;
}

// The same, widened: from memory without a step to pick the halves apart.
[[gnu::always_inline]] inline Doubles load_wide(const float* values, size_t left) {
  EightDoubles halves[2];
  EightFloats half;
  if (left >= kLanes) {
    std::memcpy(&half, values, sizeof(half));
    halves[0] = __builtin_convertvector(half, EightDoubles);
    std::memcpy(&half, values + kLanes / 2, sizeof(half));
    halves[1] = __builtin_convertvector(half, EightDoubles);
  } else {
    for (size_t i = 0; i < kLanes; ++i) halves[i / 8][i % 8] = i < left ? double{values[i]} : 0;
  }
  Doubles wide;
  std::memcpy(&wide, halves, sizeof(wide));
  return wide;
}

// As many of the lanes as are left.
[[gnu::always_inline]] inline void store(const Floats& lanes, size_t left, float* values) {
  if (left >= kLanes) {
    std::memcpy(values, &lanes, sizeof(lanes));
  } else {
    std::memcpy(values, &lanes, left * sizeof(float));
  }
}

// body(i, left) for each sixteen of [first, end): the last ones by a copy of the code, so that the
// loop knows that there are sixteen.
template <typename Body>
[[gnu::always_inline]] inline void each_vector(size_t first, size_t end, const Body& body) {
  size_t i = first;
  for (; i + kLanes <= end; i += kLanes) body(i, kLanes);
  if (i < end) body(i, end - i);
}

struct Nothing {
  void operator()() const {}
};

// exp(max(x, -87)). Method: x = n ln2 + r with |r| <= ln2 / 2 (Cody and Waite), then a Taylor
// polynomial of degree 7. beside() is called kBeside times, for work that can be done while each
// step of this waits for the one before.
inline constexpr size_t kBeside = 4;
template <typename F, typename I, typename Beside = Nothing>
[[gnu::always_inline]] inline F bounded_exp_of(const F& x, const Beside& beside = {}) {
  const F low = F{} - 87.0f;
  const F clamped = x < low ? low : x;
  const F rounded = clamped * 1.44269504f + kRoundToInteger;
  const F n = rounded - kRoundToInteger;
  beside();
  const F r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  F p = F{} + 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  beside();
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  beside();
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  beside();
  // The lowest bits of what was rounded are those of n; the others are shifted out.
  I bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + 127) << 23;
  F scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

// The same, 0 below exp(-87).
template <typename F, typename I>
[[gnu::always_inline]] inline F exp_of(const F& x) {
  return x < F{} - 87.0f ? F{} : bounded_exp_of<F, I>(x);
}

[[gnu::always_inline]] inline double sum_of(const Doubles& lanes) {
  FourDoubles quarters[kLanes / 4];
  std::memcpy(quarters, &lanes, sizeof(quarters));
  const FourDoubles sum = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace headrace::vocab
