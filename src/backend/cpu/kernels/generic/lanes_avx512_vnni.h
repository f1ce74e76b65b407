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
  // clang makes a multiplication and an addition of the intrinsic, to shorten chains of them; here
  // operations count.
  static I dot2(I acc, I codes, I x) {
#if defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
    return acc;
#else
    return _mm512_dpwssd_epi32(acc, codes, x);
#endif
  }
  // x: the same word in all lanes.
  static I dot2_word(I acc, I codes, const uint8_t* x) {
#if defined(__AVX512VNNI__)
    const auto* word = reinterpret_cast<const int32_t*>(x);
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*word));
    return acc;
#else
    return dot2(acc, codes, broadcast_word(x));
#endif
  }
};

}  // namespace
}  // namespace headrace::cpu
