// Fixed-point activations times coded panels in tiles (AMX, or its model).

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/fixed.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kTilesFixed;
const KernelPart kTilesFixed = PartRows<FixedTilesRows<HEADRACE_LANES>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
