// The kernel units: a plain one and one per instruction set.
#pragma once

#include <vector>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

extern const KernelUnit kReferenceUnit;
extern const KernelUnit kAvx2Unit;
extern const KernelUnit kAvxVnniUnit;
extern const KernelUnit kAvx512Unit;
extern const KernelUnit kAvx512VnniUnit;
extern const KernelUnit kAvx512Bf16Unit;
extern const KernelUnit kAmxUnit;
// The numbers of the AVX units in tiles: slower than kAmxUnit, for bits equal to theirs.
extern const KernelUnit kAmxIntegerUnit;

// The rows of all parts of a unit, in order; they live as long as the program.
std::vector<const KernelRow*> rows_of(const KernelUnit& unit);

}  // namespace headrace::cpu
