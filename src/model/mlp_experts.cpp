// A mixture of experts: of each token those that its router's scores are largest for.
#include "model/config/roles.h"
#include "model/mlp_kinds.h"

namespace headrace {
namespace {

// The rows that the branch works on, normed for all who read them.
DevicePtr<const float> normed_rows(const StepContext& step, const Input& input) {
  if (!input.norm.weight) return input.x;
  step.backend.norm(NormArgs{.kind = input.norm.kind,
                             .x = input.x,
                             .weight = input.norm.weight,
                             .out = input.normed,
                             .num_rows = step.num_rows,
                             .width = step.config.hidden_size,
                             .eps = input.norm.eps});
  return input.normed;
}

}  // namespace

// Of each token the experts that its router's scores are largest for; their sum, weighted.
void run_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                 const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  const ExpertRoom room(step.config, layer, step.num_rows);
  const auto floats = [&](int64_t start) { return step.workspace.mlp + start; };
  const auto integers = [&](int64_t start) { return floats(start).cast<int32_t>(); };
  const DevicePtr<const float> x = normed_rows(step, branch.input);
  step.backend.linear(weights.weight(Role::kRouter), x, step.num_rows, {}, floats(room.logits));
  const Routing routing{.num_rows = step.num_rows,
                        .num_experts = layer.experts.num_experts,
                        .num_chosen = layer.experts.num_experts_per_token,
                        .experts = integers(room.experts),
                        .weights = floats(room.weights),
                        .slots = integers(room.slots),
                        .rows = integers(room.rows),
                        .first_slot = integers(room.first_slot)};
  step.backend.route({.logits = floats(room.logits),
                      .normalise = layer.experts.normalise,
                      .scale = layer.experts.scale,
                      .routing = routing});
  step.backend.experts({.gate_up = &weights.weight(Role::kExpertGateUp),
                        .down = &weights.weight(Role::kExpertDown),
                        .x = x,
                        .routing = routing,
                        .activation = step.config.activation,
                        .slot_inputs = floats(room.slot_inputs),
                        .slot_activations = floats(room.slot_activations),
                        .slot_outputs = floats(room.slot_outputs),
                        .mixed = floats(room.mixed),
                        .epilogue = branch.epilogue,
                        .out = branch.out});
}

}  // namespace headrace
