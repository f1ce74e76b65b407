// f16 arithmetic of AVX512-FP16 in plain AVX2, for the model of that instruction set
// (avx512_model/immintrin.h), whose other functions are compiled without optimisation. Not by way
// of double_to_f16(), which the plain unit takes: what is compared does not share its rounding.
#pragma once

#include <cstdint>

namespace headrace::cpu {

inline constexpr int kHalvesOfVector = 32;

// out[i] = a[i] b[i] + c[i], rounded once: nearest, ties to even, denormals as they are. What is
// rounded is exact in double for numbers of the kernels.
void multiply_add_halves(const uint16_t* a, const uint16_t* b, const uint16_t* c, uint16_t* out);

}  // namespace headrace::cpu
