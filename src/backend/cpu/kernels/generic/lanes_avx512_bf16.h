// AVX-512 with products of bf16 pairs: the wrapper of the unit avx512_bf16, for its products of
// bf16 weights with bf16 activations.
#pragma once

#include "backend/cpu/kernels/generic/lanes_avx512.h"

namespace headrace::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
  static constexpr uint32_t kIsa = kAvx512Bf16UnitIsa;

  static V dot_bf16(V acc, I x, I w) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace
}  // namespace headrace::cpu
