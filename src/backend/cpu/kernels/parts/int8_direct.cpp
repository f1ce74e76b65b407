// Few rows of 8-bit activations times coded panels.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/int_direct.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kInt8Direct;
const KernelPart kInt8Direct =
    PartRows<IntegerDirectRows<HEADRACE_LANES, ActivationType::kInt8>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
