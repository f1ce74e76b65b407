// What is done to rows between products: quantise, finish, gate, norm, queries and keys; what
// adapters add.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/adapter.h"
#include "backend/cpu/kernels/generic/qkv.h"
#include "backend/cpu/kernels/generic/quantise.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

using F = HEADRACE_LANES;

constexpr KernelRow elementwise_row(KernelOp op, const char* name, KernelFunction function) {
  return plain_row(op, name, F::kIsa, NumericsClass::kFma, function);
}

constexpr KernelRow kRows[] = {
    quantise_row(ActivationType::kInt16, "quantise_int16", F::kIsa, NumericsClass::kInteger,
                 &quantise<F, ActivationType::kInt16>),
    quantise_row(ActivationType::kInt8, "quantise_int8", F::kIsa, NumericsClass::kInteger,
                 &quantise<F, ActivationType::kInt8>),
    elementwise_row(KernelOp::kFinish, "finish", {.finish = &finish<F>}),
    elementwise_row(KernelOp::kGate, "gate", {.gate = &gate<F>}),
    elementwise_row(KernelOp::kNorm, "norm", {.norm = &norm<F>}),
    elementwise_row(KernelOp::kQkv, "qkv", {.qkv = &qkv<F>}),
    elementwise_row(KernelOp::kShrink, "shrink", {.shrink = &shrink<F>}),
    elementwise_row(KernelOp::kExpand, "expand", {.expand = &expand<F>}),
};

}  // namespace

extern const KernelPart kElementwise;
const KernelPart kElementwise = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace headrace::cpu::HEADRACE_UNIT
