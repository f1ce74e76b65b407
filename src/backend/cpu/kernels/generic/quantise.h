// Activations as whole numbers with one scale per block (kernels.h), the same bits as the reference
// on every instruction set: each step is one rounding or exact.
//
// A slice at a time: what is reduced over a block (its largest magnitude, its sums) is reduced for
// all blocks of the slice in the same few instructions, and scales and factors are made in lanes.
// Lanes 2 b and 2 b + 1 are of block b: of its halves, or the same twice.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

template <typename F>
struct SliceScales {
  typename F::V scale;
  typename F::V factor;  // X = round(x * factor); 0 where X is 0
  bool clean;            // no input of the slice is such that X cannot stand for it
};

template <ActivationType kType>
inline constexpr float kEndOfType =
    kType == ActivationType::kInt16 ? kEndOfActivations : __builtin_inff();

// By the largest magnitudes of the blocks, in the order of their bits, in which infinity and NaN
// come last.
template <typename F, ActivationType kType>
[[gnu::always_inline]] inline SliceScales<F> slice_scales(typename F::I largest_bits) {
  using V = typename F::V;
  constexpr float kEnd = kEndOfType<kType>;
  const V largest = F::as_floats(largest_bits);
  V scale, factor;
  if constexpr (kType == ActivationType::kInt8) {
    scale = F::div(largest, F::set(kInt8Limit));
    factor = F::div(F::set(kInt8Limit), largest);
  } else {
    const V bound = F::mul(largest, F::set(kInt16Margin));
    const auto exponent = F::template shift_right<23>(F::as_words(bound));  // biased
    const auto bits = F::set_bits(kInt16Bits), one = F::set_bits(254 + kInt16Bits);
    scale = F::as_floats(F::template shift_left<23>(F::sub_words(exponent, bits)));
    factor = F::as_floats(F::template shift_left<23>(F::sub_words(one, exponent)));
  }
  const V smallest = F::set(kSmallestActivation);
  const V no_scale = F::set(kType == ActivationType::kInt8 ? 0.0f : 1.0f);
  scale = F::select_less(largest, smallest, no_scale, scale);
  factor = F::select_less(largest, smallest, F::zero(), factor);
  uint32_t end_bits;
  __builtin_memcpy(&end_bits, &kEnd, sizeof(end_bits));
  const bool clean = static_cast<uint32_t>(F::fold_max_words(largest_bits)) < end_bits;
  if (clean) [[likely]]
    return {scale, factor, true};
  const V none = F::set(__builtin_nanf(""));
  if (kType == ActivationType::kInt16) return {none, F::zero(), false};
  const V end = F::set(kEnd);
  return {F::select_less(largest, end, scale, none),
          F::select_less(largest, end, factor, F::zero()), false};
}

// Copies blocks whose factor is not 0; zeros take the place of the others.
template <typename F>
__attribute__((noinline)) void copy_usable(const float* x, const float* factors, int num_blocks,
                                           float* out) {
  for (int k = 0; k < num_blocks * kActivationBlock; k += 16) {
    const bool usable = factors[k / kActivationBlock * 2] != 0.0f;
    F::store(out + k, usable ? F::load(x + k) : F::zero());
  }
}

template <typename F>
[[gnu::always_inline]] inline void store_factors(typename F::V scale, typename F::I halves,
                                                 int num_blocks, uint8_t* out) {
  using V = typename F::V;
  using I = typename F::I;
  const I sums = F::add_words(halves, F::swap_pairs(halves));
  const I minus = F::sub_words(F::zero_words(), halves);
  const I minus_sums = F::sub_words(F::zero_words(), sums);
  const V x_sums = F::mul(scale, F::to_float(sums));
  const V half_sums = F::mul(scale, F::to_float(halves));
  const I pairs[4] = {F::even_odd(F::as_words(scale), F::as_words(x_sums)), F::as_words(half_sums),
                      F::even_odd(minus_sums, F::swap_pairs(minus)), F::odd_or_zero(minus)};
  static_assert(sizeof(BlockFactors) == 32 && offsetof(BlockFactors, sum) == 4 &&
                offsetof(BlockFactors, half_sums) == 8 && offsetof(BlockFactors, minus_sum) == 16 &&
                offsetof(BlockFactors, minus_half_sums) == 20);
  F::store_quads(out, pairs, num_blocks);
}

// The blocks of one row in one slice.
template <typename F, ActivationType kType>
[[gnu::always_inline]] inline void quantise_slice(const float* x, int num_blocks, uint8_t* record) {
  using I = typename F::I;
  I parts[kSliceBlocks];
  for (int b = 0; b < num_blocks; ++b) {
    const float* block = x + b * kActivationBlock;
    parts[b] = F::max_words(F::abs_bits(F::load(block)), F::abs_bits(F::load(block + 16)));
  }
  for (int b = num_blocks; b < kSliceBlocks; ++b) parts[b] = F::zero_words();
  const SliceScales<F> by = slice_scales<F, kType>(F::fold_max_each(parts));
  alignas(64) float factors[16];
  F::store(factors, by.factor);
  alignas(64) float usable[kSliceInputs];
  if (!by.clean) [[unlikely]] {
    copy_usable<F>(x, factors, num_blocks, usable);
    x = usable;
  }
  for (int b = 0; b < num_blocks; ++b) {
    const float* block = x + b * kActivationBlock;
    uint8_t* codes = record + b * activation_code_bytes(kType);
    const auto factor = F::set(factors[2 * b]);
    const I packed = F::pack_words(F::to_words(F::mul(F::load(block), factor)),
                                   F::to_words(F::mul(F::load(block + 16), factor)));
    if constexpr (kType == ActivationType::kInt16) {
      F::store_terms(codes, F::add_halves(packed, F::set_bits(128u << 16 | 128u)), packed);
    } else {
      F::store_packed(codes, packed);
    }
    parts[b] = F::add_pairs(packed);
  }
  store_factors<F>(by.scale, F::fold_add_each(parts), num_blocks,
                   record + kSliceBlocks * activation_code_bytes(kType));
}

template <typename F, ActivationType kType>
void quantise(const QuantiseArgs& args) {
  constexpr int64_t kRecord = activation_record_bytes(kType);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      const float* x = args.x + m * args.num_inputs + slice;
      uint8_t* record = args.out + slice / kSliceInputs * args.slice_stride + m * kRecord;
      const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
      if (count == kSliceInputs) {
        quantise_slice<F, kType>(x, kSliceBlocks, record);
      } else {
        quantise_slice<F, kType>(x, static_cast<int>(count / kActivationBlock), record);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
