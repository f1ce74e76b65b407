// Weights of a mixture of experts.
#include <iterator>
#include <vector>

#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t experts(const ModelConfig&, const LayerConfig& layer) { return layer.experts.num_experts; }
int64_t expert_width(const ModelConfig&, const LayerConfig& layer) {
  return layer.experts.intermediate_size;
}

int64_t shared_width(const ModelConfig&, const LayerConfig& layer) {
  return layer.experts.shared_intermediate_size;
}
bool has_selection_bias(const ModelConfig&, const LayerConfig& layer) {
  return layer.experts.selection_bias;
}
bool has_shared(const ModelConfig&, const LayerConfig& layer) {
  return layer.experts.shared_intermediate_size > 0;
}
bool has_shared_gate(const ModelConfig&, const LayerConfig& layer) {
  return layer.experts.shared_gate;
}

constexpr RoleRow kExperts[] = {
    {.role = Role::kRouter,
     .name = "router",
     .pack = WeightRole::kRouter,
     .parts = {{{.names = {{"mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router.layer",
                            "mlp.router"},
                           {"ffn_gate_inp"}},
                 .outputs = experts}}},
     .inputs = hidden,
     .bias = &ModelConfig::router_bias},
    {.role = Role::kRouterSelectionBias,
     .name = "selection bias of the router",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"mlp.gate.e_score_correction_bias",
                            "block_sparse_moe.gate.e_score_correction_bias",
                            "block_sparse_moe.e_score_correction_bias"},
                           {"exp_probs_b.bias", "exp_probs_b"}},
                 .outputs = experts}}},
     .present = has_selection_bias},
    {.role = Role::kExpertGateUp,
     .name = "gate and up of the experts",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"mlp.experts.{}.gate_proj", "block_sparse_moe.experts.{}.w1"},
                           {"ffn_gate_exps"}},
                 .outputs = expert_width},
                {.names = {{"mlp.experts.{}.up_proj", "block_sparse_moe.experts.{}.w3"},
                           {"ffn_up_exps"}},
                 .outputs = expert_width}}},
     .fused = {{"mlp.experts.gate_up_proj", "block_sparse_moe.input_linear"}, {"ffn_gate_up_exps"}},
     .inputs = hidden,
     .experts = experts,
     .bias = &ModelConfig::expert_bias},
    {.role = Role::kExpertDown,
     .name = "down of the experts",
     .parts = {{{.names = {{"mlp.experts.{}.down_proj", "block_sparse_moe.experts.{}.w2",
                            "mlp.experts.down_proj", "block_sparse_moe.output_linear"},
                           {"ffn_down_exps"}},
                 .outputs = hidden}}},
     .inputs = expert_width,
     .experts = experts,
     .bias = &ModelConfig::expert_bias},
    {.role = Role::kSharedGateUp,
     .name = "gate and up of the shared expert",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj",
                            "block_sparse_moe.shared_experts.gate_proj"},
                           {"ffn_gate_shexp"}},
                 .outputs = shared_width},
                {.names = {{"mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj",
                            "block_sparse_moe.shared_experts.up_proj"},
                           {"ffn_up_shexp"}},
                 .outputs = shared_width}}},
     .fused = {{"shared_mlp.input_linear"}},
     .inputs = hidden,
     .present = has_shared},
    {.role = Role::kSharedDown,
     .name = "down of the shared expert",
     .parts = {{{.names = {{"mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj",
                            "block_sparse_moe.shared_experts.down_proj",
                            "shared_mlp.output_linear"},
                           {"ffn_down_shexp"}},
                 .outputs = hidden}}},
     .inputs = shared_width,
     .present = has_shared},
    {.role = Role::kSharedGate,
     .name = "gate of the shared expert",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"mlp.shared_expert_gate"}, {"ffn_gate_inp_shexp"}},
                 .outputs = hidden}}},
     .present = has_shared_gate},
};

// Experts beside a dense MLP: tensors of the layer itself.
constexpr RoleRow kBesideDense[] = {
    {.role = Role::kRouter,
     .name = "router",
     .pack = WeightRole::kRouter,
     .parts = {{{.names = {{"router.proj"}, {"ffn_gate_inp"}}, .outputs = experts}}},
     .inputs = hidden},
    {.role = Role::kRouterScale,
     .name = "factors of the router's inputs",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"router.scale"}, {"ffn_gate_inp.scale"}}, .outputs = hidden}}}},
    {.role = Role::kExpertScale,
     .name = "factors of the experts",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"router.per_expert_scale"}, {"ffn_down_exps.scale"}},
                 .outputs = experts}}},
     .optional = true},
    {.role = Role::kExpertGateUp,
     .name = "gate and up of the experts",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"experts.{}.gate_proj"}, {"ffn_gate_exps"}}, .outputs = expert_width},
                {.names = {{"experts.{}.up_proj"}, {"ffn_up_exps"}}, .outputs = expert_width}}},
     .fused = {{"experts.gate_up_proj"}, {"ffn_gate_up_exps"}},
     .inputs = hidden,
     .experts = experts},
    {.role = Role::kExpertDown,
     .name = "down of the experts",
     .parts = {{{.names = {{"experts.{}.down_proj", "experts.down_proj"}, {"ffn_down_exps"}},
                 .outputs = hidden}}},
     .inputs = expert_width,
     .experts = experts,
     .scale_apart = true},
    {.role = Role::kPostDenseNorm,
     .name = "norm after the dense MLP",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"post_feedforward_layernorm_1"}, {"post_ffw_norm_1"}},
                 .outputs = hidden}}}},
    {.role = Role::kExpertNorm,
     .name = "norm before the experts",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"pre_feedforward_layernorm_2"}, {"pre_ffw_norm_2"}},
                 .outputs = hidden}}}},
    {.role = Role::kPostExpertNorm,
     .name = "norm after the experts",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"post_feedforward_layernorm_2"}, {"post_ffw_norm_2"}},
                 .outputs = hidden}}}},
};

}  // namespace

std::span<const RoleRow> expert_roles() { return kExperts; }

std::span<const RoleRow> dense_and_expert_roles() {
  static const std::vector<RoleRow> kAll = [] {
    std::vector<RoleRow> all(dense_roles().begin(), dense_roles().end());
    all.insert(all.end(), std::begin(kBesideDense), std::end(kBesideDense));
    return all;
  }();
  return kAll;
}

}  // namespace headrace
