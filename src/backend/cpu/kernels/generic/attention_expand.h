// Keys and values of one KV block as floats, once for all rows of a tile.
#pragma once

#include "backend/cpu/kernels/generic/kv_codes.h"

namespace headrace::cpu {
namespace {

// Keys of one block to [dims][kKvStep] floats, from column 0 of `to`. Asks for the bytes at `next`
// meanwhile.
template <typename F, KvDtype kType>
void load_keys(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to) {
  constexpr int kCodes = kv_word_codes(kType);
  for (int64_t d = 0; d < dims; d += kCodes) {
    KvWords<F, kType> words;
    const int64_t at = d / kCodes * kv_line_bytes(kType);
    words.load(plane + at);
    prefetch_line<F, kType>(next + at);
    unrolled<0, kCodes>([&](auto code) __attribute__((always_inline)) {
      F::store(to + (d + code.value) * kKvStep, words.template code<code.value>());
    });
  }
}

// Values of one block to [kKvBlock][dims] floats.
template <typename F, KvDtype kType>
void load_values(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to) {
  constexpr int kCodes = kv_word_codes(kType);
  for (int64_t t = 0; t < kKvBlock; t += kCodes) {
    for (int64_t d = 0; d < dims; d += 16) {
      const int64_t at = (t / kCodes * dims + d) / 16 * kv_line_bytes(kType);
      KvWords<F, kType> words;
      words.load(plane + at);
      prefetch_line<F, kType>(next + at);
      unrolled<0, kCodes>([&](auto code) __attribute__((always_inline)) {
        F::store(to + (t + code.value) * dims + d, words.template code<code.value>());
      });
    }
  }
}

template <typename F>
struct KvLoader {
  void (*keys)(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to);
  void (*values)(const uint8_t* plane, const uint8_t* next, int64_t dims, float* to);
};

template <typename F, KvDtype kType>
constexpr KvLoader<F> kv_loader() {
  return {&load_keys<F, kType>, &load_values<F, kType>};
}

template <typename F>
struct KvLoaders {  // by KvDtype
  static constexpr KvLoader<F> kRows[kNumKvDtypes] = {
      kv_loader<F, KvDtype::kF32>(),  kv_loader<F, KvDtype::kBF16>(),
      kv_loader<F, KvDtype::kF16>(),  kv_loader<F, KvDtype::kFp8>(),
      kv_loader<F, KvDtype::kInt8>(), kv_loader<F, KvDtype::kInt16>()};
};

}  // namespace
}  // namespace headrace::cpu
