// AVX-512 with four-byte products (VNNI): the wrapper of the unit avx512_vnni, for its integer
// products.
#pragma once

#include "backend/cpu/kernels/generic/lanes_avx512.h"

namespace headrace::cpu {
namespace {

struct Avx512Vnni : Avx512 {
  static constexpr uint32_t kIsa = kAvx512VnniUnitIsa;
  static constexpr bool kSaturates = false;
  static constexpr int kDirectRowsInt16 = 4;  // with both terms, the sums fill the registers
  static constexpr int kDirectRowsInt8 = 6;

  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    return _mm512_dpbusd_epi32(acc, codes, x);
  }
  static I dot2(I acc, I codes, I x) { return _mm512_dpwssd_epi32(acc, codes, x); }
};

}  // namespace
}  // namespace headrace::cpu
