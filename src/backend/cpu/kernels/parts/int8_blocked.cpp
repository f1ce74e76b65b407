// Many rows of 8-bit activations times coded panels.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/int_blocked.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kInt8Blocked;
const KernelPart kInt8Blocked =
    PartRows<IntegerBlockedRows<HEADRACE_LANES, ActivationType::kInt8>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
