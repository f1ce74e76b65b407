// The rows of the AMX units with ModelTiles in place of the instructions. What else they need of
// the processor depends on the build: AVX2, or AVX-512 VNNI.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

extern const KernelUnit kAmxModelUnit;
extern const KernelUnit kAmxIntegerModelUnit;

}  // namespace headrace::cpu
