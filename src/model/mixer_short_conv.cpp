// Short convolution: W_out (C * conv(B * x)), where B, C and x are thirds of a projection.
#include "model/config/roles.h"
#include "model/mixer_kinds.h"

namespace headrace {

void run_short_conv(const StepContext& step, int layer_idx, const RoleWeights& weights,
                    const Branch& branch) {
  const int64_t width = step.config.hidden_size;
  const DevicePtr<float> projected = step.workspace.mixer;
  step.backend.linear(weights.weight(Role::kShortConvInput), branch.input, step.num_rows,
                      {.bias = weights.vector(Role::kShortConvInput)}, projected);

  CausalConvArgs conv;
  conv.x = projected + 2 * width;
  conv.in_gate = projected;
  conv.out_gate = projected + width;
  conv.row_stride = 3 * width;
  conv.num_rows = step.num_rows;
  conv.num_channels = width;
  conv.num_taps = step.config.layers[static_cast<size_t>(layer_idx)].short_conv.num_taps;
  conv.weight = weights.vector(Role::kShortConvTaps);
  conv.bias = weights.vector(Role::kShortConvBias);
  conv.state = step.kv.state(layer_idx).front();
  conv.step = step.geometry;
  conv.out = projected + step.num_rows * conv.row_stride;
  step.backend.causal_conv(conv);

  step.backend.linear(weights.weight(Role::kShortConvOut), conv.out, step.num_rows,
                      branch.with_bias(weights.vector(Role::kShortConvOut)), branch.out);
}

KeptState keep_short_conv(const ModelConfig& config, const LayerConfig& layer, KvType /*type*/) {
  const auto width = static_cast<int>(config.hidden_size);
  return {.policy = CachePolicy::kState,
          .pieces = {{{"convolution", KvType::kF32, layer.short_conv.num_taps - 1, width}}}};
}

}  // namespace headrace
