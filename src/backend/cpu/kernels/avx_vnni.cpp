// Integer products of AVX-VNNI (256 bits); the rest comes from the avx2 unit.

#include "backend/cpu/kernels/generic/int_rows.h"
#include "backend/cpu/kernels/generic/lanes_avx2.h"

namespace headrace::cpu {
namespace {

struct AvxVnni : Avx2 {
  static constexpr uint32_t kIsa = Avx2::kIsa | kIsaAvxVnni;
  static constexpr bool kSaturates = false;

  template <int kMaxCode>
  static I dot4(I acc, I codes, I x) {
    return {_mm256_dpbusd_avx_epi32(acc.low, codes.low, x.low),
            _mm256_dpbusd_avx_epi32(acc.high, codes.high, x.high)};
  }
};

}  // namespace

extern const KernelUnit kAvxVnniUnit;
const KernelUnit kAvxVnniUnit = {"avx_vnni", AvxVnni::kIsa, IntegerRows<AvxVnni>::kRows,
                                 IntegerRows<AvxVnni>::kCount};

}  // namespace headrace::cpu
