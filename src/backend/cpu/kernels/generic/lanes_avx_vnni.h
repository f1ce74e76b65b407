// AVX2 with four-byte products (AVX-VNNI, 256 bits): the wrapper of the unit avx_vnni, for its
// integer products.
#pragma once

#include "backend/cpu/kernels/generic/lanes_avx2.h"

namespace headrace::cpu {
namespace {

struct AvxVnni : Avx2 {
  static constexpr uint32_t kIsa = kAvxVnniUnitIsa;
  static constexpr bool kSaturates = false;

  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    return {_mm256_dpbusd_avx_epi32(acc.low, codes.low, x.low),
            _mm256_dpbusd_avx_epi32(acc.high, codes.high, x.high)};
  }
};

}  // namespace
}  // namespace headrace::cpu
