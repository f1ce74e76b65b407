#include "model/mlp.h"

namespace headrace {

void run_dense_mlp(const StepContext& step, const MlpWeights& weights, const float* x,
                   const BranchOutput& output) {
  step.backend.gated_linear(*weights.gate_up.weight, x, step.num_rows, step.config.activation,
                            weights.gate_up.bias_or_null(), step.workspace.mlp);
  const Epilogue epilogue{
      .bias = weights.down.bias_or_null(), .residual = output.residual, .scale = output.scale};
  step.backend.linear(*weights.down.weight, step.workspace.mlp, step.num_rows, epilogue,
                      output.out);
}

}  // namespace headrace
