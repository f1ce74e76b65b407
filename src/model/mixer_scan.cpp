// State space layer: a projection whose x, B and C a convolution mixes with those of the tokens
// before, then the scan of each head, its gate and norm.
#include "model/config/roles.h"
#include "model/mixer_kinds.h"

namespace headrace {
namespace {

CausalConvArgs conv_args(const StepContext& step, const ScanConfig& scan,
                         const RoleWeights& weights, DevicePtr<const float> projected) {
  CausalConvArgs args;
  args.x = projected + scan.inner_size();
  args.row_stride = scan.projection_width();
  args.num_rows = step.num_rows;
  args.num_channels = scan.num_channels();
  args.num_taps = scan.num_taps;
  args.weight = weights.vector(Role::kScanTaps);
  args.bias = weights.vector(Role::kScanTapsBias);
  args.silu = true;
  args.step = step.geometry;
  return args;
}

ScanArgs scan_args(const StepContext& step, const ScanConfig& scan, const RoleWeights& weights,
                   DevicePtr<const float> projected) {
  ScanArgs args;
  args.gate = projected;
  args.time_step = projected + scan.inner_size() + scan.num_channels();
  args.row_stride = scan.projection_width();
  args.num_rows = step.num_rows;
  args.num_heads = scan.num_heads;
  args.head_dim = scan.head_dim;
  args.num_groups = scan.num_groups;
  args.state_width = scan.state_width;
  args.decay_rate = weights.vector(Role::kScanDecay);
  args.time_step_bias = weights.vector(Role::kScanStepBias);
  args.skip = weights.vector(Role::kScanSkip);
  args.time_step_min = scan.time_step_min;
  args.time_step_max = scan.time_step_max;
  args.norm_weight = weights.vector(Role::kScanNorm);
  args.norm_eps = step.config.norm_eps;
  args.step = step.geometry;
  return args;
}

}  // namespace

void run_scan(const StepContext& step, int layer_idx, const RoleWeights& weights,
              const Branch& branch) {
  const ScanConfig& scan = step.config.layers[static_cast<size_t>(layer_idx)].scan;
  const std::span<const KvPlaneView> state = step.kv.state(layer_idx);
  const ScanRoom room(scan, step.num_rows);
  const DevicePtr<float> projected = step.workspace.mixer + room.projected;
  step.backend.linear(weights.weight(Role::kScanInput), branch.input, step.num_rows,
                      {.bias = weights.vector(Role::kScanInput)}, projected);

  CausalConvArgs conv = conv_args(step, scan, weights, projected);
  conv.state = state.front();
  conv.out = step.workspace.mixer + room.mixed;
  step.backend.causal_conv(conv);

  ScanArgs args = scan_args(step, scan, weights, projected);
  args.mixed = conv.out;
  args.state = state.subspan(1);
  args.out = step.workspace.mixer + room.scanned;
  step.backend.scan(args);

  step.backend.linear(weights.weight(Role::kScanOut), args.out, step.num_rows,
                      branch.with_bias(weights.vector(Role::kScanOut)), branch.out);
}

// A piece for the convolution, then one for each head.
KeptState keep_scan(const ModelConfig& /*config*/, const LayerConfig& layer, KvType /*type*/) {
  const ScanConfig& scan = layer.scan;
  KeptState kept{.policy = CachePolicy::kState, .pieces = {}};
  kept.pieces.push_back(
      {{"convolution", KvType::kF32, scan.num_taps - 1, static_cast<int>(scan.num_channels())}});
  for (int head = 0; head < scan.num_heads; ++head) {
    kept.pieces.push_back({{"scan state", KvType::kF32, scan.state_width, scan.head_dim}});
  }
  return kept;
}

}  // namespace headrace
