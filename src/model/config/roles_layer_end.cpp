// Weights of what a layer does after its MLP: the token's own input of that layer, and a factor.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t one(const ModelConfig&, const LayerConfig&) { return 1; }
int64_t input_size(const ModelConfig& config, const LayerConfig&) {
  return config.hidden_size_per_layer_input;
}
int64_t all_inputs(const ModelConfig& config, const LayerConfig&) {
  return config.num_layers() * config.hidden_size_per_layer_input;
}
int64_t input_vocabulary(const ModelConfig& config, const LayerConfig&) {
  return config.vocab_size_per_layer_input;
}
bool has_inputs(const ModelConfig& config, const LayerConfig&) {
  return config.hidden_size_per_layer_input > 0;
}
bool has_scalar(const ModelConfig& config, const LayerConfig&) { return config.layer_scalar; }

constexpr RoleRow kLayerInputs[] = {
    {.role = Role::kPerLayerEmbedding,
     .name = "embedding of each layer",
     .place = RolePlace::kBody,
     .pack = WeightRole::kEmbedding,
     .parts = {{{.names = {{"embed_tokens_per_layer"}, {"per_layer_token_embd"}},
                 .outputs = input_vocabulary}}},
     .inputs = all_inputs,
     .present = has_inputs},
    {.role = Role::kPerLayerProjection,
     .name = "projection to each layer",
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"per_layer_model_projection"}, {"per_layer_model_proj"}},
                 .outputs = all_inputs}}},
     .inputs = hidden,
     .present = has_inputs},
    {.role = Role::kPerLayerNorm,
     .name = "norm of each layer's input",
     .form = RoleForm::kNorm,
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"per_layer_projection_norm"}, {"per_layer_proj_norm"}},
                 .outputs = input_size}}},
     .present = has_inputs},
};

constexpr RoleRow kLayer[] = {
    {.role = Role::kPerLayerGate,
     .name = "gate of the layer's input",
     .parts = {{{.names = {{"per_layer_input_gate"}, {"inp_gate"}}, .outputs = input_size}}},
     .inputs = hidden,
     .present = has_inputs},
    {.role = Role::kPerLayerOut,
     .name = "projection of the layer's input",
     .parts = {{{.names = {{"per_layer_projection"}, {"proj"}}, .outputs = hidden}}},
     .inputs = input_size,
     .present = has_inputs},
    {.role = Role::kPostPerLayerNorm,
     .name = "norm after the layer's input",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"post_per_layer_input_norm"}, {"post_norm"}}, .outputs = hidden}}},
     .present = has_inputs},
    {.role = Role::kLayerScalar,
     .name = "factor of the layer",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"layer_scalar"}, {"layer_output_scale"}}, .outputs = one}}},
     .optional = true,
     .present = has_scalar},
};

}  // namespace

std::span<const RoleRow> per_layer_network_roles() { return kLayerInputs; }
std::span<const RoleRow> layer_end_roles() { return kLayer; }

}  // namespace headrace
