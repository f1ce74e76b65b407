// 16-bit activations times coded panels in tiles (AMX, or its model).

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/integer.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kTilesInt16;
const KernelPart kTilesInt16 =
    PartRows<IntegerTilesRows<HEADRACE_LANES, ActivationType::kInt16>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
