// A copy of the AVX-512 unit with switchable bugs (generic/bugs.h); named kMutantAvx512Unit by its
// flags.
#include "backend/cpu/kernels/avx512.cpp"
