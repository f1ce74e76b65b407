// A gated MLP that keeps of its gate what stands out among a token's own numbers.
#include "model/mlp_kinds.h"

namespace headrace {

void run_sparse(const StepContext& step, int layer_idx, const RoleWeights& weights,
                const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  const DevicePtr<float> gate = step.workspace.mlp;
  const DevicePtr<float> up = gate + step.num_rows * layer.intermediate_size;
  step.backend.linear(weights.weight(Role::kGate), branch.input, step.num_rows, {}, gate);
  step.backend.linear(weights.weight(Role::kUp), branch.input, step.num_rows, {}, up);
  step.backend.sparse_gate({.gate = gate,
                            .up = up,
                            .out = up,
                            .num_rows = step.num_rows,
                            .width = layer.intermediate_size,
                            .deviations = layer.gate_deviations,
                            .activation = step.config.activation});
  step.backend.linear(weights.weight(Role::kDown), up, step.num_rows, branch.epilogue, branch.out);
}

}  // namespace headrace
