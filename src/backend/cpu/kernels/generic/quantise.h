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
  float scale, factor;  // X = round(x * factor); factor 0 where X is 0
};

// The largest magnitude of `count` inputs; infinity if it is none that X can stand for.
template <typename F, ActivationType kType>
[[gnu::always_inline]] inline float largest_activation(const float* x, int64_t count) {
  constexpr uint32_t kInfinityBits = 0x7F800000;
  // Magnitudes order as their bits do; infinity and NaN come last.
  typename F::I bits = F::abs_bits(F::load(x));
  for (int64_t i = 16; i < count; i += 16) {
    bits = F::max_words(bits, F::abs_bits(F::load(x + i)));
  }
  const auto largest_bits = static_cast<uint32_t>(F::fold_max_words(bits));
  if (largest_bits >= kInfinityBits) return float_of_bits(kInfinityBits);
  const float largest = float_of_bits(largest_bits);
  if (kType == ActivationType::kInt16 && largest >= kEndOfActivations) {
    return float_of_bits(kInfinityBits);
  }
  return largest;
}

template <ActivationType kType>
inline ActivationScale activation_scale(float largest) {
  if (largest < kSmallestActivation) return {kType == ActivationType::kInt8 ? 0.0f : 1.0f, 0.0f};
  if (kType == ActivationType::kInt8) return {largest / kInt8Limit, kInt8Limit / largest};
  const float bound = mutant(Bug::kQuantiseMarginMissing) ? largest : largest * kInt16Margin;
  uint32_t bits;
  __builtin_memcpy(&bits, &bound, sizeof(bits));
  const uint32_t exponent = bits >> 23;  // biased
  return {float_of_bits((exponent - kInt16Bits) << 23),
          float_of_bits((254 - exponent + kInt16Bits) << 23)};
}

// Codes of one block; returns its factors.
template <typename F, ActivationType kType>
[[gnu::always_inline]] inline BlockFactors quantise_block(const float* x, const ActivationScale& by,
                                                          uint8_t* codes) {
  using I = typename F::I;
  int32_t half[2] = {};
  for (int i = 0; i < 2; ++i) {
    I code = F::zero_words();  // also where x is no number
    if (by.factor != 0.0f) code = F::to_words(F::mul(F::load(x + 16 * i), F::set(by.factor)));
    half[i] = F::fold_add_words(code);
    if constexpr (kType == ActivationType::kInt16) {
      I low = code;
      if (mutant(Bug::kQuantiseLowTermSign)) {
        low = F::to_words(F::mul(F::load(x + 16 * i), F::set(-by.factor)));
      }
      F::store_low_bytes(codes + kActivationBlock + 16 * i, low);
      code = F::template shift_right_signed<8>(
          F::add_words(code, F::set_bits(mutant(Bug::kQuantiseHighNotRounded) ? 0 : 128)));
    }
    F::store_low_bytes(codes + 16 * i, code);
  }
  BlockFactors factors{};
  factors.scale = by.scale;
  const int32_t sum = half[0] + half[1];
  factors.sum = by.scale * static_cast<float>(sum);
  factors.minus_sum = mutant(Bug::kQuantiseSumSign) ? sum : -sum;
  for (int i = 0; i < 2; ++i) {
    const int from = mutant(Bug::kQuantiseHalvesSwapped) ? 1 - i : i;
    factors.half_sums[i] = by.scale * static_cast<float>(half[from]);
    factors.minus_half_sums[i] = -half[i];
  }
  return factors;
}

template <typename F, ActivationType kType>
void quantise(const QuantiseArgs& args) {
  constexpr int64_t kRecord = activation_record_bytes(kType);
  constexpr float kInfinity = __builtin_inff();
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      const float* x = args.x + m * args.num_inputs + slice;
      const int64_t stride = mutant(Bug::kQuantiseSliceStrideIgnored) ? kRecord : args.slice_stride;
      uint8_t* record = args.out + slice / kSliceInputs * stride + m * kRecord;
      uint8_t* factors = record + kSliceBlocks * activation_code_bytes(kType);
      const int64_t count = smaller(kSliceInputs, args.num_inputs - slice) -
                            (mutant(Bug::kQuantiseLastBlockSkipped) ? kActivationBlock : 0);
      float largest[kSliceBlocks];
      bool finite = true;
      for (int64_t k = 0; k < count; k += kActivationBlock) {
        const float value = largest_activation<F, kType>(x + k, kActivationBlock);
        largest[k / kActivationBlock] = value;
        finite = finite && value < kInfinity;
      }
      for (int64_t k = 0; k < count; k += kActivationBlock) {
        const float value = largest[k / kActivationBlock];
        const bool usable = kType == ActivationType::kInt16 ? finite : value < kInfinity;
        const ActivationScale by =
            usable ? activation_scale<kType>(value)
                   : ActivationScale{mutant(Bug::kQuantiseNanHidden) ? 1.0f : __builtin_nanf(""),
                                     0.0f};
        const BlockFactors block = quantise_block<F, kType>(x + k, by, record);
        __builtin_memcpy(factors, &block, sizeof(block));
        record += activation_code_bytes(kType);
        factors += sizeof(block);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
