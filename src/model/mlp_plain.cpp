// The MLP without a gate: W_down act(W_up x).
#include "model/mlp_kinds.h"

namespace headrace {

void run_plain(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch) {
  step.backend.activated_linear(weights.weight(Role::kUp), branch.input, step.num_rows,
                                {.activation = step.config.activation,
                                 .bias = weights.vector(Role::kUp),
                                 .xielu = step.config.layers[static_cast<size_t>(layer_idx)].xielu},
                                step.workspace.mlp);
  step.backend.linear(weights.weight(Role::kDown), step.workspace.mlp, step.num_rows,
                      branch.with_bias(weights.vector(Role::kDown)), branch.out);
}

}  // namespace headrace
