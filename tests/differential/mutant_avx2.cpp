// A copy of the AVX2 unit with switchable bugs (generic/bugs.h); named kMutantAvx2Unit by its
// flags.
#include "backend/cpu/kernels/avx2.cpp"
