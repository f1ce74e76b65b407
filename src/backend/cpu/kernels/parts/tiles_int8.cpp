// 8-bit activations times coded panels in tiles (AMX, or its model).

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/integer.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kTilesInt8;
const KernelPart kTilesInt8 =
    PartRows<IntegerTilesRows<HEADRACE_LANES, ActivationType::kInt8>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
