// The reference unit: the delta rule as it is written, one row and one column after the other.

#include <cmath>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/norm.h"

namespace headrace::cpu {
namespace {

void unit_length(float* x, int64_t dims, float scale) {
  const float factor =
      1.0f / std::sqrt(lane_sum(x, dims, [](float v) { return v * v; }) + kDeltaNormEps);
  for (int64_t i = 0; i < dims; ++i) x[i] = x[i] * factor * scale;
}

float softplus(float x) { return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

void delta_inputs(const DeltaInputsArgs& args) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(args.key_dim));
  for (int64_t m = 0; m < args.num_rows; ++m) {
    float* q = args.qkv + m * args.qkv_stride;
    float* k = q + args.key_heads * args.key_dim;
    for (int64_t h = 0; h < args.key_heads; ++h) {
      unit_length(q + h * args.key_dim, args.key_dim, scale);
      unit_length(k + h * args.key_dim, args.key_dim, 1.0f);
    }
    float* beta = args.beta + m * args.beta_stride;
    float* decay = args.decay + m * args.decay_stride;
    for (int64_t h = 0; h < args.value_heads; ++h) {
      beta[h] = 1.0f / (1.0f + std::exp(-beta[h]));
      for (int64_t i = h * args.decay_dims; i < (h + 1) * args.decay_dims; ++i) {
        decay[i] = std::exp(args.decay_rate[h] * softplus(decay[i] + args.decay_bias[i]));
      }
    }
  }
}

// A column of the state, as one row finds it and leaves it.
struct Column {
  float* state;  // [key_dim], kPanel floats apart

  float update(const DeltaRowsArgs& args, int64_t row, int64_t column) const {
    const float* k = args.k + row * args.qkv_stride;
    const float* q = args.q + row * args.qkv_stride;
    const float* decay = args.decay + row * args.decay_stride;
    const int64_t step = args.decay_dims == 1 ? 0 : 1;
    float p = 0.0f, out = 0.0f;
    for (int64_t i = 0; i < args.key_dim; ++i) p += state[i * kPanel] * (decay[i * step] * k[i]);
    const float v = args.v[row * args.qkv_stride + column];
    const float e = args.beta[row * args.beta_stride] * (v - p);
    for (int64_t i = 0; i < args.key_dim; ++i) {
      float& s = state[i * kPanel];
      s = decay[i * step] * s + k[i] * e;
      out += s * q[i];
    }
    return out;
  }
};

void delta(const DeltaRowsArgs& args) {
  const int64_t panel_floats = delta_panel_floats(args.key_dim);
  for (int64_t p = args.first_panel; p < args.first_panel + args.num_panels; ++p) {
    float* panel = args.to + p * panel_floats;
    for (int64_t i = 0; i < panel_floats; ++i) {
      panel[i] = args.from == nullptr ? 0.0f : args.from[p * panel_floats + i];
    }
    for (int64_t n = 0; n < kPanel && p * kPanel + n < args.value_dim; ++n) {
      const Column column{panel + n};
      for (int64_t m = 0; m < args.num_rows; ++m) {
        args.out[m * args.out_stride + p * kPanel + n] = column.update(args, m, p * kPanel + n);
      }
    }
  }
}

constexpr KernelRow kRows[] = {
    plain_row(KernelOp::kDeltaInputs, "delta_inputs", 0, NumericsClass::kReference,
              {.delta_inputs = &delta_inputs}),
    plain_row(KernelOp::kDelta, "delta", 0, NumericsClass::kReference, {.delta = &delta})};

}  // namespace

namespace reference {

extern const KernelPart kDelta;
const KernelPart kDelta = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace reference
}  // namespace headrace::cpu
