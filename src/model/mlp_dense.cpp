// The one MLP of a layer: W_down(act(W_gate x) * W_up x).
#include "model/mlp_kinds.h"

namespace headrace {

void run_dense(const StepContext& step, int /*layer_idx*/, const RoleWeights& weights,
               const Branch& branch) {
  step.backend.gated_linear(weights.weight(Role::kGateUp), branch.input, step.num_rows,
                            step.config.activation, weights.vector(Role::kGateUp),
                            step.workspace.mlp);
  step.backend.linear(weights.weight(Role::kDown), step.workspace.mlp, step.num_rows,
                      branch.with_bias(weights.vector(Role::kDown)), branch.out);
}

}  // namespace headrace
