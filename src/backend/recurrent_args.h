// Arguments of the ops that carry a state from token to token. Rules as in backend.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "backend/activation.h"
#include "backend/device_memory.h"
#include "backend/kv_planes.h"

namespace headrace {

class StepGeometry;

// A convolution of each channel along the positions of a sequence:
//   out[m][c] = out_gate[m][c] * act(bias[c] + sum over j of weight[j][c] * input(p - num_taps + 1
//   + j)[c])
// added in the order of j; p is the position of row m, input the row's in_gate * x, and 0 before
// position 0. The state after a position is the last num_taps - 1 inputs, the latest last.
struct CausalConvArgs {
  DevicePtr<const float> x;         // [M, num_channels], row_stride floats between rows
  DevicePtr<const float> in_gate;   // as x, or null: 1
  DevicePtr<const float> out_gate;  // as x, or null: 1
  int64_t row_stride = 0;
  int64_t num_rows = 0;
  int64_t num_channels = 0;
  int num_taps = 0;               // 2 to kMaxTaps
  DevicePtr<const float> weight;  // [num_taps, num_channels]
  DevicePtr<const float> bias;    // [num_channels], or null
  bool silu = false;              // act; else none
  KvPlaneView state;              // num_taps - 1 heads of num_channels
  const StepGeometry* step = nullptr;
  DevicePtr<float> out;  // [M, num_channels]; apart from x and the gates
};
inline constexpr int kMaxTaps = 16;

// The state space scan, for each head token by token, then a gate and a norm over groups of heads:
//   t = clamp(softplus(time_step + time_step_bias)), of the row and head
//   S = exp(decay_rate * t) S + (t x) b^T;   y = S c + skip * x
//   out = norm_weight * rms(y * silu(gate)), each group's heads for themselves
// Head h reads b and c of group h / (num_heads / num_groups). The state is S of each head, kept as
// [state_width, head_dim].
struct ScanArgs {
  // [M, num_heads * head_dim + 2 * num_groups * state_width]: x, then b, then c.
  DevicePtr<const float> mixed;
  DevicePtr<const float> gate;       // [M, num_heads * head_dim], row_stride floats between rows
  DevicePtr<const float> time_step;  // [M, num_heads], likewise
  int64_t row_stride = 0;
  int64_t num_rows = 0;
  int num_heads = 0;
  int head_dim = 0;
  int num_groups = 0;
  int state_width = 0;
  DevicePtr<const float> decay_rate;      // [num_heads]
  DevicePtr<const float> time_step_bias;  // [num_heads]
  DevicePtr<const float> skip;            // [num_heads]
  float time_step_min = 0;
  float time_step_max = std::numeric_limits<float>::infinity();
  DevicePtr<const float> norm_weight;  // [num_heads * head_dim]
  float norm_eps = 1e-6f;
  // Of each head one plane of state_width heads of head_dim; outlives the step.
  std::span<const KvPlaneView> state;
  const StepGeometry* step = nullptr;
  DevicePtr<float> out;  // [M, num_heads * head_dim]; apart from all others
};

inline constexpr int kMaxDeltaDim = 512;  // largest key_dim and value_dim

// The gated delta rule. Value head h keeps a state S [key_dim, value_dim]; with q, k of its key
// head made ready (x / sqrt(sum x^2 + 1e-6), q times key_dim^-1/2), for the rows of a span in
// order:
//   beta = sigmoid(beta), decay = exp(decay_rate * softplus(decay + decay_bias))
//   S = decay * S; e = beta * (v - S^T k); S = S + k e^T; o = S^T q
//   out = norm(o) * norm_weight * activation(gate)
// with a decay for the head, or for each of its key dimensions (decay_dims = key_dim). A span reads
// the state of the position before it and writes that of its last (model/cache_groups.h).
struct DeltaArgs {
  int64_t num_rows = 0;
  const StepGeometry* step = nullptr;  // of the same rows
  int num_key_heads = 0;
  int num_value_heads = 0;  // a multiple of num_key_heads
  int key_dim = 0;
  int value_dim = 0;
  // Value head h is served by key head h % num_key_heads; else by h / (value heads per key head).
  bool tiled_heads = false;
  // [M, 2 * num_key_heads * key_dim + num_value_heads * value_dim]: q, k, v; q and k are changed.
  DevicePtr<float> qkv;
  // Columns of wider rows: num_value_heads (times decay_dims) of every stride; changed.
  DevicePtr<float> beta;
  int64_t beta_stride = 0;
  DevicePtr<float> decay;
  int64_t decay_stride = 0;
  int decay_dims = 1;
  DevicePtr<const float> decay_rate;  // [num_value_heads], negative
  DevicePtr<const float> decay_bias;  // [num_value_heads * decay_dims]
  // num_value_heads * value_dim of every gate_stride.
  DevicePtr<const float> gate;
  int64_t gate_stride = 0;
  Activation activation = Activation::kSilu;
  DevicePtr<const float> norm_weight;  // [value_dim]
  float norm_eps = 1e-6f;
  // Of each value head: delta_state_width() numbers. Good until the step is done.
  std::span<const KvPlaneView> state;
  DevicePtr<float> out;  // [M, num_value_heads * value_dim]
};

// Numbers that the back end keeps of one head's state.
inline int64_t delta_state_width(int64_t key_dim, int64_t value_dim) {
  return key_dim * ((value_dim + 15) / 16 * 16);
}

}  // namespace headrace
