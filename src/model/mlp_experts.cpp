// A mixture of experts: of each token those that its router's scores are largest for, and those
// that every token has.
#include "model/config/roles.h"
#include "model/mlp_kinds.h"

namespace headrace {
namespace {

Router router_of(const ExpertConfig& config) {
  return {.score = config.score,
          .num_groups = config.num_groups,
          .num_groups_kept = config.num_groups_kept,
          .group_score = config.group_score,
          .normalise = config.normalise,
          .normalise_epsilon = config.normalise_epsilon,
          .scale = config.scale,
          .jitter = config.jitter};
}

// The expert that every token has, [M, hidden_size], without its gate; null: there is none.
DevicePtr<const float> run_shared(const StepContext& step, const ExpertConfig& config,
                                  const RoleWeights& weights, const Branch& branch,
                                  const ExpertRoom& room) {
  if (config.shared_intermediate_size == 0) return {};
  const DevicePtr<float> activations = step.workspace.mlp + room.shared_activations;
  const DevicePtr<float> out = step.workspace.mlp + room.shared;
  step.backend.gated_linear(weights.weight(Role::kSharedGateUp), branch.input, step.num_rows,
                            step.config.activation, {}, activations);
  step.backend.linear(weights.weight(Role::kSharedDown), activations, step.num_rows, {}, out);
  return out;
}

Routing routing_of(const StepContext& step, const ExpertConfig& config, const ExpertRoom& room,
                   DevicePtr<float> floats) {
  const auto integers = [&](int64_t start) { return (floats + start).cast<int32_t>(); };
  return {.num_rows = step.num_rows,
          .num_experts = config.num_experts,
          .num_chosen = config.num_experts_per_token,
          .experts = integers(room.experts),
          .weights = floats + room.weights,
          .slots = integers(room.slots),
          .rows = integers(room.rows),
          .first_slot = integers(room.first_slot)};
}

}  // namespace

ExpertsArgs experts_of(const StepContext& step, const LayerConfig& layer,
                       const RoleWeights& weights, const ExpertRoom& room,
                       DevicePtr<float> floats) {
  const ExpertConfig& config = layer.experts;
  return {.gate_up = &weights.weight(Role::kExpertGateUp),
          .down = &weights.weight(Role::kExpertDown),
          .input = DevicePtr<float>(),
          .route = {.logits = floats + room.logits,
                    .router = router_of(config),
                    .selection_bias = weights.vector(Role::kRouterSelectionBias),
                    .expert_scale = weights.vector(Role::kExpertScale)},
          .routing = routing_of(step, config, room, floats),
          .activation = step.config.activation,
          .clamp = {config.swiglu_alpha, config.swiglu_limit},
          .gate_up_bias = weights.vector(Role::kExpertGateUp),
          .down_bias = weights.vector(Role::kExpertDown),
          .shared_gate = weights.vector(Role::kSharedGate),
          .slot_inputs = floats + room.slot_inputs,
          .slot_activations = floats + room.slot_activations,
          .slot_outputs = floats + room.slot_outputs,
          .mixed = floats + room.mixed,
          .shared_factors = floats + room.shared_factors,
          .out = {}};
}

void run_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                 const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  const ExpertRoom room(step.config, layer, step.num_rows);
  ExpertsArgs experts = experts_of(step, layer, weights, room, step.workspace.mlp);
  step.backend.linear(weights.weight(Role::kRouter), branch.input, step.num_rows,
                      {.bias = weights.vector(Role::kRouter)}, step.workspace.mlp + room.logits);
  experts.counts = step.workspace.expert_rows + num_experts_before(step.config, layer_idx);
  experts.input = branch.input;
  experts.shared = run_shared(step, layer.experts, weights, branch, room);
  experts.epilogue = branch.epilogue;
  experts.out = branch.out;
  step.backend.experts(experts);
}

}  // namespace headrace
