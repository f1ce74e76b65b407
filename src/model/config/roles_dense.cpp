// Weights of the one MLP of a layer.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t mlp_width(const ModelConfig&, const LayerConfig& layer) { return layer.intermediate_size; }

constexpr RoleRow kDown = {.role = Role::kDown,
                           .name = "down",
                           .parts = {{{.names = {{"mlp.down_proj", "shared_mlp.output_linear",
                                                  "block_sparse_moe.down_proj", "feed_forward.w2"},
                                                 {"ffn_down"}},
                                       .outputs = hidden}}},
                           .inputs = mlp_width,
                           .bias = &ModelConfig::mlp_bias};

// GGUF has no name for a fused gate and up: ffn_up then holds both (and ffn_gate is absent).
constexpr RoleRow kDense[] = {
    {.role = Role::kGateUp,
     .name = "gate and up",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"mlp.gate_proj", "block_sparse_moe.gate_proj", "feed_forward.w1"},
                           {"ffn_gate"}},
                 .outputs = mlp_width},
                {.names = {{"mlp.up_proj", "block_sparse_moe.up_proj", "feed_forward.w3"},
                           {"ffn_up"}},
                 .outputs = mlp_width}}},
     .fused = {{"mlp.gate_up_proj", "shared_mlp.input_linear"}, {"ffn_up"}},
     .inputs = hidden,
     .bias = &ModelConfig::mlp_bias},
    kDown,
};

constexpr RoleRow kPlain[] = {
    {.role = Role::kUp,
     .name = "up",
     .parts = {{{.names = {{"mlp.up_proj"}, {"ffn_up"}}, .outputs = mlp_width}}},
     .inputs = hidden,
     .bias = &ModelConfig::mlp_bias},
    kDown,
};

}  // namespace

std::span<const RoleRow> dense_roles() { return kDense; }
std::span<const RoleRow> plain_roles() { return kPlain; }

}  // namespace headrace
