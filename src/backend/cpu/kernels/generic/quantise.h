// Activations as whole numbers with one scale per block (kernels.h), the same bits as the reference
// on every instruction set: each step is one rounding or exact.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

inline float float_of_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

struct ActivationScale {
  float scale, factor;  // X = round(x * factor)
};

template <ActivationType kType>
inline ActivationScale activation_scale(float largest) {
  if (kType == ActivationType::kInt8) return {largest / kInt8Limit, kInt8Limit / largest};
  const float bound = largest * kInt16Margin;
  uint32_t bits;
  __builtin_memcpy(&bits, &bound, sizeof(bits));
  const uint32_t exponent = bits >> 23;  // biased
  return {float_of_bits((exponent - kInt16Bits) << 23),
          float_of_bits((254 - exponent + kInt16Bits) << 23)};
}

// Codes of one block; returns its factors.
template <typename F, ActivationType kType>
[[gnu::always_inline]] inline BlockFactors quantise_block(const float* x, uint8_t* codes) {
  using V = typename F::V;
  using I = typename F::I;
  constexpr int32_t kInfinityBits = 0x7F800000;
  const V values[2] = {F::load(x), F::load(x + 16)};
  // Magnitudes order as their bits do; infinity and NaN come last.
  const int32_t largest_bits =
      F::fold_max_words(F::max_words(F::abs_bits(values[0]), F::abs_bits(values[1])));
  const bool finite = largest_bits < kInfinityBits;
  const float largest = float_of_bits(static_cast<uint32_t>(largest_bits));
  const bool empty = !finite || largest < kSmallestActivation;
  const ActivationScale by = empty ? ActivationScale{} : activation_scale<kType>(largest);
  int32_t half[2] = {};
  for (int i = 0; i < 2; ++i) {
    I code = F::zero_words();
    if (!empty) code = F::to_words(F::mul(values[i], F::set(by.factor)));
    half[i] = F::fold_add_words(code);
    if constexpr (kType == ActivationType::kInt16) {
      F::store_low_bytes(codes + kActivationBlock + 16 * i, code);
      code = F::template shift_right_signed<8>(F::add_words(code, F::set_bits(128)));
    }
    F::store_low_bytes(codes + 16 * i, code);
  }
  BlockFactors factors{};
  factors.scale = finite ? by.scale : __builtin_nanf("");
  const int32_t sum = half[0] + half[1];
  factors.sum = factors.scale * static_cast<float>(sum);
  factors.minus_sum = -sum;
  for (int i = 0; i < 2; ++i) {
    factors.half_sums[i] = factors.scale * static_cast<float>(half[i]);
    factors.minus_half_sums[i] = -half[i];
  }
  return factors;
}

template <typename F, ActivationType kType>
void quantise(const QuantiseArgs& args) {
  constexpr int64_t kRecord = activation_record_bytes(kType);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.num_inputs;
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      uint8_t* record = args.out + slice / kSliceInputs * args.slice_stride + m * kRecord;
      uint8_t* factors = record + kSliceBlocks * activation_code_bytes(kType);
      const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
      for (int64_t k = 0; k < count; k += kActivationBlock) {
        const BlockFactors block = quantise_block<F, kType>(x + slice + k, record);
        __builtin_memcpy(factors, &block, sizeof(block));
        record += activation_code_bytes(kType);
        factors += sizeof(block);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
