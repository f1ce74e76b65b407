// bf16 activations times coded panels in tiles (AMX, or its model), where there is AVX512-FP16.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/bf16_codes.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kTilesBf16Codes;
const KernelPart kTilesBf16Codes = PartRows<Bf16CodesRows<HEADRACE_LANES>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
