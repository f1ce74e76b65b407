// Weights of a mixture of experts.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t experts(const ModelConfig&, const LayerConfig& layer) { return layer.num_experts; }
int64_t expert_width(const ModelConfig&, const LayerConfig& layer) {
  return layer.moe_intermediate_size;
}

constexpr RoleRow kExperts[] = {
    {.role = Role::kRouter,
     .name = "router",
     .parts = {{{.names = {{"mlp.gate", "block_sparse_moe.gate"}, {"ffn_gate_inp"}},
                 .outputs = experts}}},
     .inputs = hidden},
    {.role = Role::kExpertGateUp,
     .name = "gate and up of the experts",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"mlp.experts.{}.gate_proj", "block_sparse_moe.experts.{}.w1"},
                           {"ffn_gate_exps"}},
                 .outputs = expert_width},
                {.names = {{"mlp.experts.{}.up_proj", "block_sparse_moe.experts.{}.w3"},
                           {"ffn_up_exps"}},
                 .outputs = expert_width}}},
     .fused = {{"mlp.experts.gate_up_proj"}, {"ffn_gate_up_exps"}},
     .inputs = hidden,
     .experts = experts},
    {.role = Role::kExpertDown,
     .name = "down of the experts",
     .parts = {{{.names = {{"mlp.experts.{}.down_proj", "block_sparse_moe.experts.{}.w2",
                            "mlp.experts.down_proj"},
                           {"ffn_down_exps"}},
                 .outputs = hidden}}},
     .inputs = expert_width,
     .experts = experts},
};

}  // namespace

std::span<const RoleRow> expert_roles() { return kExperts; }

}  // namespace headrace
