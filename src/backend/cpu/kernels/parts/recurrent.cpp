// Layers that keep a state of a sequence: convolution along its positions, state space scan.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/conv.h"
#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/generic/scan.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

using F = HEADRACE_LANES;

constexpr KernelRow recurrent_row(KernelOp op, const char* name, KernelFunction function) {
  return plain_row(op, name, F::kIsa, NumericsClass::kFma, function);
}

constexpr KernelRow kRows[] = {
    recurrent_row(KernelOp::kConv, "conv", {.conv = &conv<F>}),
    recurrent_row(KernelOp::kScan, "scan", {.scan = &scan<F>}),
};

}  // namespace

extern const KernelPart kRecurrent;
const KernelPart kRecurrent = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace headrace::cpu::HEADRACE_UNIT
