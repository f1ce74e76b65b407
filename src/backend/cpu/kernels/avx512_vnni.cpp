// Integer products of AVX-512 VNNI; the rest comes from the avx512 unit.

#include "backend/cpu/kernels/generic/int_rows.h"
#include "backend/cpu/kernels/generic/lanes_avx512.h"

namespace headrace::cpu {
namespace {

struct Avx512Vnni : Avx512 {
  static constexpr uint32_t kIsa = Avx512::kIsa | kIsaAvx512Vnni;
  static constexpr bool kSaturates = false;
  static constexpr int kDirectRowsInt16 = 4;  // with both terms, the sums fill the registers
  static constexpr int kDirectRowsInt8 = 6;

  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    return _mm512_dpbusd_epi32(acc, codes, x);
  }
};

}  // namespace

extern const KernelUnit kAvx512VnniUnit;
const KernelUnit kAvx512VnniUnit = {"avx512_vnni", Avx512Vnni::kIsa, IntegerRows<Avx512Vnni>::kRows,
                                    IntegerRows<Avx512Vnni>::kCount};

}  // namespace headrace::cpu
