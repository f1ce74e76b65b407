// A copy of the AVX-512 BF16 unit with switchable bugs (generic/bugs.h); named
// kMutantAvx512Bf16Unit by its flags.
#include "backend/cpu/kernels/avx512_bf16.cpp"
