// Products of bf16 weights with bf16 activations.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/bf16_matmul.h"

namespace headrace::cpu::HEADRACE_UNIT {

extern const KernelPart kBf16;
const KernelPart kBf16 = Bf16Rows<HEADRACE_LANES>::kPart;

}  // namespace headrace::cpu::HEADRACE_UNIT
