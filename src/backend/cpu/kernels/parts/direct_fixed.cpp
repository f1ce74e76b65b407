// Fixed-point activations times coded panels for few rows, in vectors.

#include "backend/cpu/kernels/amx/fixed_direct.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kDirectFixed;
const KernelPart kDirectFixed = PartRows<FixedDirectRows>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
