// The reference unit: finish of linear layers, gated activations, norms; what adapters add.

#include <cmath>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/norm.h"

namespace headrace::cpu {
namespace {

float activated(GateKind kind, float x) {
  constexpr float kRootTwoOverPi = 0.7978845608028654f;
  constexpr float kRootHalf = 0.7071067811865476f;
  switch (kind) {
    case GateKind::kSilu:
      return x / (1.0f + std::exp(-x));
    case GateKind::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
    case GateKind::kGelu:
      return 0.5f * x * std::erfc(-x * kRootHalf);
    case GateKind::kRelu:
      return x < 0.0f ? 0.0f : x;  // NaN stays NaN
    case GateKind::kReluSquared:
      return x < 0.0f ? 0.0f : x * x;
    case GateKind::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case GateKind::kXielu:
    case GateKind::kClampedSwiglu:
      break;  // not of one operand
  }
  return x;
}

float xielu(const XieluCurve& curve, float x) {
  if (x > 0.0f) return (curve.positive * x + curve.beta) * x;
  return (std::expm1(x > curve.eps ? curve.eps : x) - x) * curve.negative + curve.beta * x;
}

void finish(const FinishArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t n = 0; n < args.num_outputs; ++n) {
      float value = args.sums[m * args.sums_stride + n];
      if (args.bias != nullptr) value += args.bias[n];
      value *= args.scale;
      if (args.residual != nullptr) value += args.residual[m * args.out_stride + n];
      if (args.softcap > 0) value = args.softcap * std::tanh(value / args.softcap);
      args.out[m * args.out_stride + n] = value;
    }
  }
}

// Comparisons let a NaN through.
float clamped_swiglu(float g, float u, float alpha, float limit) {
  if (g > limit) g = limit;
  if (u > limit) u = limit;
  if (u < -limit) u = -limit;
  return g / (1.0f + std::exp(-(alpha * g))) * (u + 1.0f);
}

float gated(const GateArgs& args, float g, float u) {
  if (args.kind == GateKind::kClampedSwiglu) return clamped_swiglu(g, u, args.alpha, args.limit);
  if (args.kind == GateKind::kXielu) return xielu(args.xielu, g) * u;
  return activated(args.kind, g) * u;
}

void gate(const GateArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t n = 0; n < args.num_outputs; ++n) {
      float g = args.gate[m * args.gate_stride + n];
      float u = args.up == nullptr ? 1.0f : args.up[m * args.up_stride + n];
      if (args.gate_bias != nullptr) g += args.gate_bias[n];
      if (args.up_bias != nullptr) u += args.up_bias[n];
      args.out[m * args.out_stride + n] = gated(args, g, u);
    }
  }
}

void norm(const NormRowsArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.width;
    const float* residual = args.residual == nullptr ? nullptr : args.residual + m * args.width;
    float* out = args.out + m * args.width;
    float mean, factor;
    norm_factors(x, args.width, args.eps, args.subtract_mean, &mean, &factor);
    const float gain = args.gain == nullptr ? 1.0f : *args.gain;
    for (int64_t i = 0; i < args.width; ++i) {
      float normed = (x[i] - mean) * factor * args.weight[i];
      if (args.bias != nullptr) normed += args.bias[i];
      const float value = args.scale * normed;
      out[i] = gain * (residual == nullptr ? value : residual[i] + value);
    }
  }
}

// Number `at` of rank `rank`, of blocks that have more than that.
float adapter_number(const AdapterBlocks& blocks, int64_t rank, int64_t at) {
  constexpr int kHalf = kAdapterBlock / 2;
  const int64_t place = at % kAdapterBlock;
  const uint8_t* run = blocks.values + at / kAdapterBlock * adapter_block_bytes(blocks) +
                       rank * kAdapterBlock * adapter_number_bytes(blocks.form);
  if (blocks.form == AdapterForm::kF32) return reinterpret_cast<const float*>(run)[place];
  const uint32_t half = reinterpret_cast<const uint16_t*>(run)[2 * (place % kHalf) + place / kHalf];
  const uint32_t bits = half << 16;
  if (blocks.form == AdapterForm::kInt16) return static_cast<float>(static_cast<int32_t>(bits));
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

void shrink(const ShrinkArgs& args) {
  const int64_t group_bytes = num_adapter_blocks(args.num_inputs) * adapter_block_bytes(args.a);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.x_stride;
    for (int64_t j = 0; j < args.rank; ++j) {
      AdapterBlocks group = args.a;
      group.values += j / kAdapterRanks * group_bytes;
      float sum = 0.0f;
      for (int64_t k = 0; k < args.num_inputs; ++k) {
        sum += x[k] * adapter_number(group, j % kAdapterRanks, k);
      }
      args.out[m * args.out_stride + j] = args.factors[j] * sum;
    }
  }
}

void expand(const ExpandArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* low = args.low + m * args.low_stride;
    for (int64_t n = 0; n < args.num_outputs; ++n) {
      float sum = args.sums[m * args.sums_stride + n];
      for (int64_t j = 0; j < args.b.ranks; ++j) {
        sum += low[j] * adapter_number(args.b, j, args.skipped + n);
      }
      if (args.factors != nullptr) sum *= args.factors[n];
      if (args.bias != nullptr) sum += args.bias[n];
      args.sums[m * args.sums_stride + n] = sum;
    }
  }
}

constexpr KernelRow elementwise_row(KernelOp op, const char* name, KernelFunction function) {
  return plain_row(op, name, 0, NumericsClass::kReference, function);
}

constexpr KernelRow kRows[] = {
    elementwise_row(KernelOp::kFinish, "finish", {.finish = &finish}),
    elementwise_row(KernelOp::kGate, "gate", {.gate = &gate}),
    elementwise_row(KernelOp::kNorm, "norm", {.norm = &norm}),
    elementwise_row(KernelOp::kShrink, "shrink", {.shrink = &shrink}),
    elementwise_row(KernelOp::kExpand, "expand", {.expand = &expand}),
};

}  // namespace

namespace reference {

extern const KernelPart kElementwise;
const KernelPart kElementwise = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace reference
}  // namespace headrace::cpu
