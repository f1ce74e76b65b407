// Few rows of 16-bit activations times coded panels.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/int_direct.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kInt16Direct;
const KernelPart kInt16Direct =
    PartRows<IntegerDirectRows<HEADRACE_LANES, ActivationType::kInt16>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
