// Integer activations times coded panels (class kInteger, kernels.h): what both ways to compute it
// share, and the scratch of a slice.
//
// int_direct.h is for few rows: codes go from memory through registers to the sums. int_blocked.h
// is for more: code bytes and factors of a slice of two panels are unpacked once into scratch (L1)
// and used by all rows, a tile of rows at a time. Sums of X times code are exact in 32 bits:
// |sum| <= 32 * 255 * 32768 < 2^28.
//
// Units that lack four-byte products add those of bytes in 16 bits for as many inputs as these hold
// (16 bits of small codes hold all 32). Blocked they multiply 16-bit activations whole, with codes
// widened to 16 bits less their zero, and so 8-bit ones where two products of bytes would saturate.
#pragma once

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

constexpr int log2_of(int value) { return value <= 1 ? 0 : 1 + log2_of(value / 2); }

// The least 2^n - 1 from 15 on that codes do not exceed.
constexpr int code_bound(int max_code) {
  int bound = 15;
  while (bound < max_code) bound = 2 * bound + 1;
  return bound;
}

// Activations and codes as 16-bit words: where there are two terms or all eight bits of a code, and
// bytes take three instructions and more.
template <typename F, Layout kLayout, ActivationType kType>
inline constexpr bool kUsesWords =
    F::kSaturates && (kType == ActivationType::kInt16 || CodedWeights<F, kLayout>::kMaxCode > 127);

// Groups of 4 inputs whose products of codes up to a code_bound() with bytes of activations have
// sums of two and two that 16 bits hold; 0 where four products are added at once.
template <typename F>
constexpr int groups_in_halves(int bound) {
  return F::kSaturates ? 128 / (bound + 1) : 0;
}
static_assert(8 * 2 * 15 * 128 <= 32767 && 4 * 2 * 31 * 128 <= 32767 && 2 * 2 * 63 * 128 <= 32767 &&
              2 * 127 * 128 <= 32767);

// Sums of the products of rows with panels, and what 16 bits hold of them.
template <typename F, int kRows, int kPanels>
struct ProductSums {
  typename F::I words[kRows][kPanels];
  typename F::I halves[kRows][kPanels];
};

// sum plus the products of group kGroup of a sub-block of kGroups groups. halves: what is not added
// to it yet.
template <typename F, int kMaxCode, int kGroup, int kGroups>
[[gnu::always_inline]] inline void add_products(typename F::I codes, typename F::I x,
                                                typename F::I& halves, typename F::I& sum) {
  constexpr int kRun = groups_in_halves<F>(kMaxCode);
  if constexpr (kRun == 0) {
    sum = F::template dot4<kMaxCode>(sum, codes, x);
  } else {
    const typename F::I products = F::multiply_bytes(codes, x);
    halves = kGroup % kRun == 0 ? products : F::add_halves(halves, products);
    F::keep_whole(&halves);
    if constexpr (kGroup % kRun == kRun - 1 || kGroup == kGroups - 1) {
      sum = F::add_words(sum, F::add_pairs(halves));
    }
  }
}

// Rows of a tile that int_direct.h computes at most.
template <typename F, ActivationType kType>
inline constexpr int kIntegerDirectRows =
    kType == ActivationType::kInt16 ? F::kDirectRowsInt16 : F::kDirectRowsInt8;

// Scratch of a slice of kPanels panels: code bytes [block][group of 4 inputs][panel] or code words
// [block][group][even inputs, odd inputs][panel], then scales and offsets (or zero points of the
// lanes) [sub-block][panel], 64 bytes each; then the words of some rows' activations, as widen_rows
// leaves them.
template <int kPanels, bool kWords = false>
struct SliceScratch {
  static constexpr int kGroups = kSliceInputs / 4;
  static constexpr int kMaxSubBlocks = kSliceInputs / 16;
  static constexpr int kGroupBytes = (kWords ? 2 : 1) * kPanels * 64;
  static constexpr int kScales = kGroups * kGroupBytes;
  static constexpr int kOffsets = kScales + kMaxSubBlocks * kPanels * 64;
  static constexpr int kPoison = kOffsets + kMaxSubBlocks * kPanels * 64;
  static constexpr int kActivations = kPoison + kPanels * 64;
  static constexpr int kRowBytes = kWords ? kSliceInputs * 2 : 0;  // of activations
  static constexpr int kMaxBytes = kMatmulScratchFloats * static_cast<int>(sizeof(float));
  static constexpr int kMaxRows = kWords ? (kMaxBytes - kActivations) / (kSliceInputs * 2) : 0;
};
static_assert(SliceScratch<2>::kActivations <= SliceScratch<2>::kMaxBytes);
static_assert(SliceScratch<2, true>::kMaxRows >= 12);

// Factors of the sub-blocks of a super-block, `stride` bytes apart.
template <typename F, Layout kLayout>
__attribute__((noinline)) void unpack_factors(const uint8_t* chunk, uint8_t* scales,
                                              uint8_t* offsets, int64_t stride) {
  using W = CodedWeights<F, kLayout>;
  static_assert(W::kHasSubs && W::kInfo.block_inputs == kSliceInputs);
  unrolled<0, W::kInfo.num_sub_blocks>([&](auto s) __attribute__((always_inline)) {
    const typename W::Factors f = W::factors(chunk, s.value);
    F::store(reinterpret_cast<float*>(scales + s.value * stride), f.scale);
    if constexpr (W::kHasMinimum) {
      F::store(reinterpret_cast<float*>(offsets + s.value * stride), f.offset);
    }
  });
}
inline const uint8_t* block_factors(const uint8_t* record, ActivationType type, int block) {
  return record + kSliceBlocks * activation_code_bytes(type) +
         static_cast<size_t>(block) * sizeof(BlockFactors);
}
// The three numbers of BlockFactors that sub-block `part` of kSubInputs inputs uses.
template <int kSubInputs>
inline const uint8_t* x_sum_at(const uint8_t* factors, int part) {
  return factors + (kSubInputs == kActivationBlock ? 4 : 8 + 4 * part);
}
template <int kSubInputs>
inline const uint8_t* x_minus_sum_at(const uint8_t* factors, int part) {
  return factors + (kSubInputs == kActivationBlock ? 16 : 20 + 4 * part);
}
static_assert(__builtin_offsetof(BlockFactors, sum) == 4);
static_assert(__builtin_offsetof(BlockFactors, half_sums) == 8);
static_assert(__builtin_offsetof(BlockFactors, minus_sum) == 16);
static_assert(__builtin_offsetof(BlockFactors, minus_half_sums) == 20);

inline float load_float(const uint8_t* p) {
  float value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

}  // namespace
}  // namespace headrace::cpu
