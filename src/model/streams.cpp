#include "model/streams.h"

namespace headrace {
namespace {

int64_t floats_of_stream(const StepContext& step) {
  return int64_t{step.workspace.max_rows} * step.config.hidden_size;
}

DevicePtr<float> stream(const StepContext& step, int idx) {
  return step.workspace.streams + idx * floats_of_stream(step);
}

// Of the residual stream and those from the place `first` on.
StreamArgs args_of(const StepContext& step, StreamMix mix, int first = 1) {
  return {.mix = mix,
          .num_streams = step.config.num_streams,
          .hidden = step.workspace.hidden,
          .streams = stream(step, first),
          .stream_stride = floats_of_stream(step),
          .num_rows = step.num_rows,
          .width = step.config.hidden_size};
}

// What the modes of rows are made of, [M, num_streams].
DevicePtr<const float> route(const StepContext& step, const RoleWeights& layer,
                             DevicePtr<const float> rows) {
  const ModelConfig& config = step.config;
  const Norm norm{config.norm, layer.vector(Role::kStreamRouterNorm), config.norm_eps};
  step.backend.linear(layer.weight(Role::kStreamRouter), {rows, norm, step.workspace.normed},
                      step.num_rows, {.scale = 1 / static_cast<float>(config.hidden_size)},
                      step.workspace.mlp);
  return step.workspace.mlp;
}

}  // namespace

DevicePtr<float> active_stream(const StepContext& step) { return stream(step, 0); }

void open_streams(const StepContext& step, const RoleWeights& network) {
  const PackedWeight& weight = network.weight(Role::kStreamIn);
  for (int i = 1; i < step.config.num_streams; ++i) {
    step.backend.linear(weight.expert(i - 1), step.workspace.hidden, step.num_rows, {},
                        stream(step, i));
  }
  step.backend.mix_streams(args_of(step, StreamMix::kLevel));
}

// Each product goes to the place of the stream before, which is done with.
void close_streams(const StepContext& step, const RoleWeights& network) {
  const PackedWeight& weight = network.weight(Role::kStreamOut);
  for (int i = 1; i < step.config.num_streams; ++i) {
    step.backend.linear(weight.expert(i - 1), stream(step, i), step.num_rows, {},
                        stream(step, i - 1));
  }
  step.backend.mix_streams(args_of(step, StreamMix::kAverage, 0));
}

void predict_streams(const StepContext& step, const RoleWeights& layer) {
  StreamArgs args = args_of(step, StreamMix::kPredict);
  args.routed = route(step, layer, step.workspace.hidden);
  args.coefs = layer.vector(Role::kStreamPredict);
  step.backend.mix_streams(args);
}

void run_low_rank(const StepContext& step, const RoleWeights& layer, const Norm& norm) {
  const ModelConfig& config = step.config;
  Workspace& workspace = step.workspace;
  const DevicePtr<float> active = active_stream(step);
  step.backend.norm({.kind = norm.kind,
                     .x = workspace.hidden,
                     .weight = norm.weight,
                     .residual = workspace.hidden,
                     .out = active,
                     .num_rows = step.num_rows,
                     .width = config.hidden_size,
                     .eps = norm.eps});
  step.backend.linear(layer.weight(Role::kLowRankDown), {workspace.hidden, norm, workspace.normed},
                      step.num_rows, {}, workspace.mlp);
  const Norm after{config.norm, layer.vector(Role::kLowRankNorm), config.norm_eps};
  step.backend.linear(layer.weight(Role::kLowRankUp), workspace.mlp, step.num_rows,
                      {.residual = active, .post_norm = after, .branch = workspace.branch}, active);
}

void correct_streams(const StepContext& step, const RoleWeights& layer) {
  StreamArgs args = args_of(step, StreamMix::kCorrect);
  args.activated = active_stream(step);
  args.routed = route(step, layer, active_stream(step));
  args.coefs = layer.vector(Role::kStreamCorrect);
  args.scale = layer.vector(Role::kStreamScale);
  args.scaled = step.workspace.normed;
  step.backend.mix_streams(args);
}

void spread_active(const StepContext& step) {
  StreamArgs args = args_of(step, StreamMix::kSpread);
  args.activated = active_stream(step);
  step.backend.mix_streams(args);
}

}  // namespace headrace
