// Products of bf16 weights with bf16 activations by AVX-512 BF16; the rest comes from the units
// after it: integer products from avx512_vnni, float32 ones from avx512.

#include "backend/cpu/kernels/generic/bf16_matmul.h"

namespace headrace::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
  static constexpr uint32_t kIsa = Avx512::kIsa | kIsaAvx512Bf16;

  static V dot_bf16(V acc, I x, I w) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace

extern const KernelUnit kAvx512Bf16Unit;
const KernelUnit kAvx512Bf16Unit = {"avx512_bf16", Avx512Bf16::kIsa, Bf16Rows<Avx512Bf16>::kRows,
                                    Bf16Rows<Avx512Bf16>::kCount};

}  // namespace headrace::cpu
