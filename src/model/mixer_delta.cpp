// The gated delta rule behind a causal convolution, with a decay for each head or each key
// dimension.
#include "model/config/roles.h"
#include "model/mixer_kinds.h"

namespace headrace {
namespace {

// What both forms have: the layer's sizes, its room and what it keeps.
struct DeltaLayer {
  DeltaLayer(const StepContext& context, int layer_idx)
      : step(context),
        config(context.config.layers[static_cast<size_t>(layer_idx)].delta),
        room(context.config.layers[static_cast<size_t>(layer_idx)], context.num_rows),
        kept(context.kv.state(layer_idx)) {}

  DevicePtr<float> floats(int64_t start) const { return step.workspace.mixer + start; }

  // The projection's q, k and v, each with those of the tokens before.
  void convolve(DevicePtr<const float> taps) const {
    CausalConvArgs args;
    args.x = floats(room.projection);
    args.row_stride = room.width;
    args.num_rows = step.num_rows;
    args.num_channels = room.qkv_width;
    args.num_taps = config.conv_kernel;
    args.weight = taps;
    args.silu = true;
    args.state = kept[0];
    args.step = step.geometry;
    args.out = floats(room.mixed);
    step.backend.causal_conv(args);
  }

  // Without beta, decay and gate.
  DeltaArgs args(const RoleWeights& weights) const {
    DeltaArgs args;
    args.num_rows = step.num_rows;
    args.step = step.geometry;
    args.num_key_heads = config.num_key_heads;
    args.num_value_heads = config.num_value_heads;
    args.key_dim = config.key_head_dim;
    args.value_dim = config.value_head_dim;
    args.tiled_heads = config.tiled_heads;
    args.qkv = floats(room.mixed);
    args.decay_rate = weights.vector(Role::kDeltaDecayRate);
    args.decay_bias = weights.vector(Role::kDeltaDecayBias);
    args.norm_weight = weights.vector(Role::kDeltaNorm);
    args.norm_eps = step.config.norm_eps;
    args.state = kept.subspan(1);
    args.out = floats(room.out);
    return args;
  }

  void project_out(const RoleWeights& weights, const Branch& branch) const {
    step.backend.linear(weights.weight(Role::kDeltaOut), floats(room.out), step.num_rows,
                        branch.epilogue, branch.out);
  }

  const StepContext& step;
  const DeltaConfig& config;
  const DeltaRoom room;
  const std::span<const KvPlaneView> kept;
};

// The rows that the branch works on, normed for all who read them.
DevicePtr<const float> normed_rows(const StepContext& step, const Input& input) {
  if (!input.norm.weight) return input.x;
  step.backend.norm({.kind = input.norm.kind,
                     .x = input.x,
                     .weight = input.norm.weight,
                     .out = input.normed,
                     .num_rows = step.num_rows,
                     .width = step.config.hidden_size,
                     .eps = input.norm.eps});
  return input.normed;
}

}  // namespace

void run_delta(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch) {
  const DeltaLayer layer(step, layer_idx);
  const DeltaConfig& config = layer.config;
  const DevicePtr<float> projection = layer.floats(layer.room.projection);
  step.backend.linear(weights.weight(Role::kDeltaInput), branch.input, step.num_rows, {},
                      projection);
  layer.convolve(weights.vector(Role::kDeltaTaps));
  DeltaArgs args = layer.args(weights);
  // Behind q, k and v in each row: z, b, a.
  args.gate = projection + layer.room.qkv_width;
  args.beta =
      projection + layer.room.qkv_width + int64_t{config.num_value_heads} * config.value_head_dim;
  args.decay = args.beta + config.num_value_heads;
  args.gate_stride = args.beta_stride = args.decay_stride = layer.room.width;
  step.backend.delta(args);
  layer.project_out(weights, branch);
}

void run_channel_delta(const StepContext& step, int layer_idx, const RoleWeights& weights,
                       const Branch& branch) {
  const DeltaLayer layer(step, layer_idx);
  const DeltaConfig& config = layer.config;
  const DevicePtr<const float> x = normed_rows(step, branch.input);
  const auto project = [&](Role role, DevicePtr<const float> from, int64_t to) {
    step.backend.linear(weights.weight(role), from, step.num_rows, {}, layer.floats(to));
  };
  project(Role::kChannelInput, x, layer.room.projection);
  layer.convolve(weights.vector(Role::kChannelTaps));
  project(Role::kDecayDown, x, layer.room.low);
  project(Role::kDecayUp, layer.floats(layer.room.low), layer.room.decay);
  project(Role::kDeltaGateDown, x, layer.room.low);
  project(Role::kDeltaGateUp, layer.floats(layer.room.low), layer.room.gate);
  DeltaArgs args = layer.args(weights);
  args.beta = layer.floats(layer.room.projection) + layer.room.qkv_width;
  args.beta_stride = layer.room.width;
  args.decay = layer.floats(layer.room.decay);
  args.gate = layer.floats(layer.room.gate);
  args.gate_stride = args.decay_stride = int64_t{config.num_value_heads} * config.value_head_dim;
  args.decay_dims = config.key_head_dim;
  args.activation = Activation::kSigmoid;
  step.backend.delta(args);
  layer.project_out(weights, branch);
}

// The last inputs of the convolution, then a state for each value head.
KeptState keep_delta(const ModelConfig&, const LayerConfig& layer, KvType /*type*/) {
  const DeltaConfig& delta = layer.delta;
  const int64_t channels = DeltaRoom(layer, 0).qkv_width;
  KeptState kept{.policy = CachePolicy::kState, .pieces = {}};
  kept.pieces.push_back(
      {{"convolution", KvType::kF32, delta.conv_kernel - 1, static_cast<int>(channels)}});
  const int64_t width = delta_state_width(delta.key_head_dim, delta.value_head_dim);
  for (int head = 0; head < delta.num_value_heads; ++head) {
    kept.pieces.push_back({{"delta state", KvType::kF32, 1, static_cast<int>(width)}});
  }
  return kept;
}

}  // namespace headrace
