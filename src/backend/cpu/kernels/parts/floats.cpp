// Float32 activations times dense panels and 8-bit floats; weights of all layouts as floats.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/float_matmul.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kFloats;
const KernelPart kFloats =
    PartRows<FloatDirectRows<HEADRACE_LANES>, FloatBlockedRows<HEADRACE_LANES>,
             UnpackRows<HEADRACE_LANES>>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
