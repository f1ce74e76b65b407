// The delta rule: its inputs and the recurrence.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/delta.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

using F = HEADRACE_LANES;

constexpr KernelRow kRows[] = {
    plain_row(KernelOp::kDeltaInputs, "delta_inputs", F::kIsa, NumericsClass::kFma,
              {.delta_inputs = &delta_inputs<F>}),
    plain_row(KernelOp::kDelta, "delta", F::kIsa, NumericsClass::kFma, {.delta = &delta<F>}),
};

}  // namespace

extern const KernelPart kDelta;
const KernelPart kDelta = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace headrace::cpu::HEADRACE_UNIT
