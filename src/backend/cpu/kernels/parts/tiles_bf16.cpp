// bf16 activations times bf16 panels in tiles (AMX, or its model).

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/bf16.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kTilesBf16;
const KernelPart kTilesBf16 = Bf16TilesRows<HEADRACE_LANES>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
