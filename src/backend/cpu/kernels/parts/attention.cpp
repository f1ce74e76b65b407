// Attention.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/attention.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

constexpr KernelRow kRows[] = {plain_row(KernelOp::kAttention, "attention", HEADRACE_LANES::kIsa,
                                         NumericsClass::kFma,
                                         {.attention = &attention<HEADRACE_LANES>})};

}  // namespace

extern const KernelPart kAttention;
const KernelPart kAttention = {kRows, 1};

}  // namespace headrace::cpu::HEADRACE_UNIT
