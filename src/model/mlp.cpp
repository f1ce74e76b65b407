#include "model/mlp.h"

namespace headrace {

void run_dense_mlp(const StepContext& step, const MlpWeights& weights, const Branch& branch) {
  step.backend.gated_linear(*weights.gate_up.weight, branch.input, step.num_rows,
                            step.config.activation, weights.gate_up.bias_or_null(),
                            step.workspace.mlp);
  step.backend.linear(*weights.down.weight, step.workspace.mlp, step.num_rows,
                      branch.with_bias(weights.down.bias_or_null()), branch.out);
}

}  // namespace headrace
