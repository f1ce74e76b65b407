// A dense MLP and experts side by side, each with norms of its own:
//
//   a = N_a(MLP(N x));  c = N_c(experts(N_e x));  x += N_4(a + c)
//
// The router reads x itself: its logits are W_r(N(x) * s) * H^-1/2, N without a weight.
#include <cmath>

#include "model/mlp_kinds.h"

namespace headrace {
namespace {

Norm norm_of(const StepContext& step, const RoleWeights& weights, Role role) {
  return {step.config.norm, weights.vector(role), step.config.norm_eps};
}

// sum = a
void run_dense_part(const StepContext& step, const RoleWeights& weights, const Branch& branch,
                    DevicePtr<float> activations, DevicePtr<float> sum) {
  step.backend.gated_linear(weights.weight(Role::kGateUp), branch.input, step.num_rows,
                            step.config.activation, weights.vector(Role::kGateUp), activations);
  step.backend.linear(weights.weight(Role::kDown), activations, step.num_rows,
                      {.bias = weights.vector(Role::kDown),
                       .post_norm = norm_of(step, weights, Role::kPostDenseNorm),
                       .branch = step.workspace.branch},
                      sum);
}

// sum += c
void add_expert_part(const StepContext& step, const LayerConfig& layer, const RoleWeights& weights,
                     DevicePtr<float> floats, DevicePtr<float> sum) {
  const DevicePtr<float> x = step.workspace.hidden, normed = step.workspace.normed;
  const ExpertRoom room(step.config, layer, step.num_rows);
  const Input routed(x, norm_of(step, weights, Role::kRouterScale), normed);
  step.backend.linear(weights.weight(Role::kRouter), routed, step.num_rows,
                      {.scale = 1 / std::sqrt(static_cast<float>(step.config.hidden_size))},
                      floats + room.logits);
  ExpertsArgs experts = experts_of(step, layer, weights, room, floats);
  experts.input = Input(x, norm_of(step, weights, Role::kExpertNorm), normed);
  experts.epilogue = {.residual = sum,
                      .post_norm = norm_of(step, weights, Role::kPostExpertNorm),
                      .branch = step.workspace.branch};
  experts.out = sum;
  step.backend.experts(experts);
}

}  // namespace

void run_dense_and_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                           const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  const DevicePtr<float> sum = step.workspace.mlp;
  const DevicePtr<float> floats = sum + dense_result_floats(step.config, step.num_rows);
  run_dense_part(step, weights, branch, floats, sum);
  add_expert_part(step, layer, weights, floats, sum);
  const Epilogue& last = branch.epilogue;
  step.backend.norm({.kind = last.post_norm.kind,
                     .x = sum,
                     .weight = last.post_norm.weight,
                     .residual = last.residual,
                     .gain = last.gain,
                     .out = branch.out,
                     .num_rows = step.num_rows,
                     .width = step.config.hidden_size,
                     .eps = last.post_norm.eps,
                     .scale = last.scale});
}

}  // namespace headrace
