// Weights of streams beside the residual one, of the low-rank branch beside attention, and of MLPs
// whose gates keep what stands out.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

bool has_streams(const ModelConfig& config, const LayerConfig&) { return config.num_streams > 1; }
bool has_scale(const ModelConfig& config, const LayerConfig&) {
  return config.num_streams > 1 && config.stream_scale;
}
int64_t others(const ModelConfig& config, const LayerConfig&) { return config.num_streams - 1; }
int64_t streams(const ModelConfig& config, const LayerConfig&) { return config.num_streams; }
int64_t streams_squared(const ModelConfig& config, const LayerConfig&) {
  return int64_t{config.num_streams} * config.num_streams;
}
int64_t streams_cubed(const ModelConfig& config, const LayerConfig& layer) {
  return streams_squared(config, layer) * config.num_streams;
}
int64_t low_rank(const ModelConfig& config, const LayerConfig&) { return config.laurel_rank; }
int64_t streams_mlp_width(const ModelConfig&, const LayerConfig& layer) {
  return layer.intermediate_size;
}

constexpr RoleRow kStreamsNetwork[] = {
    {.role = Role::kStreamIn,
     .name = "projections to the streams",
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"altup_projections.{}"}, {"altup_proj"}}, .outputs = hidden}}},
     .inputs = hidden,
     .experts = others,
     .present = has_streams},
    {.role = Role::kStreamOut,
     .name = "projections of the streams",
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"altup_unembed_projections.{}"}, {"altup_unembd_proj"}},
                 .outputs = hidden}}},
     .inputs = hidden,
     .experts = others,
     .present = has_streams},
};

constexpr RoleRow kStreamsLayer[] = {
    {.role = Role::kStreamRouterNorm,
     .name = "norm before the router of streams",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"altup.router_norm"}, {"altup_router_norm"}}, .outputs = hidden}}},
     .present = has_streams},
    {.role = Role::kStreamRouter,
     .name = "router of streams",
     .pack = WeightRole::kRouter,
     .parts = {{{.names = {{"altup.modality_router"}, {"altup_router"}}, .outputs = streams}}},
     .inputs = hidden,
     .present = has_streams},
    {.role = Role::kStreamPredict,
     .name = "coefficients of predicted streams",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"altup.prediction_coefs"}, {"altup_predict_coef"}},
                 .outputs = streams_cubed}}},
     .present = has_streams},
    {.role = Role::kStreamCorrect,
     .name = "coefficients of corrected streams",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"altup.correction_coefs"}, {"altup_correct_coef"}},
                 .outputs = streams_squared}}},
     .present = has_streams},
    {.role = Role::kStreamScale,
     .name = "scale of the corrected stream",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"altup.correct_output_scale"}, {"altup_correct_scale"}},
                 .outputs = hidden}}},
     .present = has_scale},
    {.role = Role::kLowRankDown,
     .name = "low-rank branch, down",
     .parts = {{{.names = {{"laurel.linear_left"}, {"laurel_l"}}, .outputs = low_rank}}},
     .inputs = hidden,
     .present = has_streams},
    {.role = Role::kLowRankUp,
     .name = "low-rank branch, up",
     .parts = {{{.names = {{"laurel.linear_right"}, {"laurel_r"}}, .outputs = hidden}}},
     .inputs = low_rank,
     .present = has_streams},
    {.role = Role::kLowRankNorm,
     .name = "norm after the low-rank branch",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"laurel.post_laurel_norm"}, {"laurel_post_norm"}}, .outputs = hidden}}},
     .present = has_streams},
};

constexpr RoleRow kSparse[] = {
    {.role = Role::kGate,
     .name = "gate",
     .parts = {{{.names = {{"mlp.gate_proj"}, {"ffn_gate"}}, .outputs = streams_mlp_width}}},
     .inputs = hidden},
    {.role = Role::kUp,
     .name = "up",
     .parts = {{{.names = {{"mlp.up_proj"}, {"ffn_up"}}, .outputs = streams_mlp_width}}},
     .inputs = hidden},
    {.role = Role::kDown,
     .name = "down",
     .parts = {{{.names = {{"mlp.down_proj"}, {"ffn_down"}}, .outputs = hidden}}},
     .inputs = streams_mlp_width},
};

}  // namespace

std::span<const RoleRow> stream_network_roles() { return kStreamsNetwork; }
std::span<const RoleRow> stream_roles() { return kStreamsLayer; }
std::span<const RoleRow> sparse_roles() { return kSparse; }

}  // namespace headrace
