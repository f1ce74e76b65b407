#include "model/mlp.h"

namespace headrace {
namespace {

// W_down(act(W_gate x) * W_up x).
void run_dense(const StepContext& step, int /*layer_idx*/, const RoleWeights& weights,
               const Branch& branch) {
  step.backend.gated_linear(weights.weight(Role::kGateUp), branch.input, step.num_rows,
                            step.config.activation, weights.vector(Role::kGateUp),
                            step.workspace.mlp);
  step.backend.linear(weights.weight(Role::kDown), step.workspace.mlp, step.num_rows,
                      branch.with_bias(weights.vector(Role::kDown)), branch.out);
}

using RunMlp = void (*)(const StepContext&, int layer_idx, const RoleWeights&, const Branch&);
constexpr RunMlp kRun[] = {run_dense};  // by MlpKind

}  // namespace

void run_mlp(const StepContext& step, int layer_idx, const RoleWeights& weights,
             const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  kRun[static_cast<size_t>(layer.mlp)](step, layer_idx, weights, branch);
}

}  // namespace headrace
