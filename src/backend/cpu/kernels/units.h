// The one symbol that each kernel unit exports.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

extern const KernelUnit kReferenceUnit;
extern const KernelUnit kAvx2Unit;
extern const KernelUnit kAvxVnniUnit;
extern const KernelUnit kAvx512Unit;
extern const KernelUnit kAvx512VnniUnit;
extern const KernelUnit kAvx512Bf16Unit;
extern const KernelUnit kAmxUnit;

}  // namespace headrace::cpu
