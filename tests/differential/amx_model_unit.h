// The rows of the AMX unit with ModelTiles in place of the instructions; they need AVX-512 only.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

extern const KernelUnit kAmxModelUnit;

}  // namespace headrace::cpu
