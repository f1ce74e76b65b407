// Weights of the gated delta rule.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t key_rows(const DeltaConfig& delta) {
  return int64_t{delta.num_key_heads} * delta.key_head_dim;
}
int64_t value_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.delta.num_value_heads} * layer.delta.value_head_dim;
}
int64_t qkv_rows(const ModelConfig& config, const LayerConfig& layer) {
  return 2 * key_rows(layer.delta) + value_rows(config, layer);
}
int64_t value_heads(const ModelConfig&, const LayerConfig& layer) {
  return layer.delta.num_value_heads;
}
int64_t value_dim(const ModelConfig&, const LayerConfig& layer) {
  return layer.delta.value_head_dim;
}
int64_t num_taps(const ModelConfig&, const LayerConfig& layer) { return layer.delta.conv_kernel; }

// ---- One tensor for q, k, v and z, by key head: its q, its k, then v and z of its value heads ---

int64_t qkvz_rows(const ModelConfig& config, const LayerConfig& layer) {
  return qkv_rows(config, layer) + value_rows(config, layer);
}
int64_t values_of_key_head(const DeltaConfig& delta) {
  return int64_t{delta.num_value_heads / delta.num_key_heads} * delta.value_head_dim;
}
// Row `row` of a part that has `of_head` rows of each key head, which begin `first` rows behind it.
int64_t row_by_key_head(const DeltaConfig& delta, int64_t row, int64_t of_head, int64_t first) {
  const int64_t all = int64_t{2} * delta.key_head_dim + 2 * values_of_key_head(delta);
  return row / of_head * all + first + row % of_head;
}
int64_t qkv_row(const LayerConfig& layer, int64_t row) {
  const DeltaConfig& delta = layer.delta;
  const int64_t keys = key_rows(delta), dim = delta.key_head_dim;
  if (row < keys) return row_by_key_head(delta, row, dim, 0);
  if (row < 2 * keys) return row_by_key_head(delta, row - keys, dim, dim);
  return row_by_key_head(delta, row - 2 * keys, values_of_key_head(delta), 2 * dim);
}
int64_t z_row(const LayerConfig& layer, int64_t row) {
  const int64_t values = values_of_key_head(layer.delta);
  return row_by_key_head(layer.delta, row, values, 2 * layer.delta.key_head_dim + values);
}

// ---- And one for b and a: b of its value heads, then a -----------------------------------------

int64_t ba_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{2} * layer.delta.num_value_heads;
}
int64_t b_row(const LayerConfig& layer, int64_t row) {
  const int64_t heads = layer.delta.num_value_heads / layer.delta.num_key_heads;
  return row / heads * 2 * heads + row % heads;
}
int64_t a_row(const LayerConfig& layer, int64_t row) {
  return b_row(layer, row) + layer.delta.num_value_heads / layer.delta.num_key_heads;
}

// ---- What both forms have -----------------------------------------------------------------------

int64_t decay_rows(const ModelConfig& config, const LayerConfig& layer) {
  return layer.mixer == MixerKind::kChannelDelta ? value_rows(config, layer)
                                                 : value_heads(config, layer);
}

constexpr RoleRow kDecayRate = {
    .role = Role::kDeltaDecayRate,
    .name = "decay of the delta rule",
    .form = RoleForm::kDecay,
    .parts = {{{.names = {{"linear_attn.A_log", "self_attn.A_log"}, {"ssm_a"}},
                .outputs = value_heads}}}};
constexpr RoleRow kDecayBias = {
    .role = Role::kDeltaDecayBias,
    .name = "bias of the decay",
    .form = RoleForm::kVector,
    .parts = {{{.names = {{"linear_attn.dt_bias", "self_attn.dt_bias"}, {"ssm_dt.bias"}},
                .outputs = decay_rows}}}};
constexpr RoleRow kNorm = {
    .role = Role::kDeltaNorm,
    .name = "norm of the delta rule",
    .form = RoleForm::kVector,
    .parts = {{{.names = {{"linear_attn.norm", "self_attn.o_norm"}, {"ssm_norm"}},
                .outputs = value_dim}}}};
constexpr RoleRow kOut = {
    .role = Role::kDeltaOut,
    .name = "output of the delta rule",
    .parts = {{{.names = {{"linear_attn.out_proj", "self_attn.o_proj"}, {"ssm_out", "attn_output"}},
                .outputs = hidden}}},
    .inputs = value_rows};

constexpr RoleRow kDelta[] = {
    {.role = Role::kDeltaInput,
     .name = "input of the delta rule",
     .parts =
         {{{.names = {{"linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz"},
                      {"attn_qkv", "ssm_in"}},
            .outputs = qkv_rows,
            .stored_outputs = qkvz_rows,
            .stored_row = qkv_row},
           {.names = {{"linear_attn.in_proj_z", "linear_attn.in_proj_qkvz"},
                      {"attn_gate", "ssm_in"}},
            .outputs = value_rows,
            .stored_outputs = qkvz_rows,
            .stored_row = z_row},
           {.names = {{"linear_attn.in_proj_b", "linear_attn.in_proj_ba"}, {"ssm_beta", "ssm_ba"}},
            .outputs = value_heads,
            .stored_outputs = ba_rows,
            .stored_row = b_row},
           {.names = {{"linear_attn.in_proj_a", "linear_attn.in_proj_ba"}, {"ssm_alpha", "ssm_ba"}},
            .outputs = value_heads,
            .stored_outputs = ba_rows,
            .stored_row = a_row}}},
     .inputs = hidden},
    {.role = Role::kDeltaTaps,
     .name = "taps of the delta rule",
     .form = RoleForm::kTaps,
     .parts = {{{.names = {{"linear_attn.conv1d"}, {"ssm_conv1d"}}, .outputs = qkv_rows}}},
     .inputs = num_taps},
    kDecayRate,
    kDecayBias,
    kNorm,
    kOut,
};

// ---- A decay for each key dimension: projections apart, decay and gate of low rank --------------

constexpr RoleRow low_rank(Role role, std::string_view name, RoleNames names, bool is_down) {
  return {.role = role,
          .name = name,
          .parts = {{{.names = names, .outputs = is_down ? value_dim : value_rows}}},
          .inputs = is_down ? hidden : value_dim};
}

constexpr RoleRow kChannels[] = {
    {.role = Role::kChannelInput,
     .name = "input of the channel delta rule",
     .parts = {{{.names = {{"self_attn.q_proj"}, {"attn_q"}}, .outputs = value_rows},
                {.names = {{"self_attn.k_proj"}, {"attn_k"}}, .outputs = value_rows},
                {.names = {{"self_attn.v_proj"}, {"attn_v"}}, .outputs = value_rows},
                {.names = {{"self_attn.b_proj"}, {"ssm_beta"}}, .outputs = value_heads}}},
     .inputs = hidden},
    {.role = Role::kChannelTaps,
     .name = "taps of the channel delta rule",
     .form = RoleForm::kTaps,
     .parts = {{{.names = {{"self_attn.q_conv1d"}, {"ssm_conv1d_q"}}, .outputs = value_rows},
                {.names = {{"self_attn.k_conv1d"}, {"ssm_conv1d_k"}}, .outputs = value_rows},
                {.names = {{"self_attn.v_conv1d"}, {"ssm_conv1d_v"}}, .outputs = value_rows}}},
     .inputs = num_taps},
    low_rank(Role::kDecayDown, "decay, down", {{"self_attn.f_a_proj"}, {"ssm_f_a"}}, true),
    low_rank(Role::kDecayUp, "decay, up", {{"self_attn.f_b_proj"}, {"ssm_f_b"}}, false),
    low_rank(Role::kDeltaGateDown, "gate, down", {{"self_attn.g_a_proj"}, {"ssm_g_a"}}, true),
    low_rank(Role::kDeltaGateUp, "gate, up", {{"self_attn.g_b_proj"}, {"ssm_g_b"}}, false),
    kDecayRate,
    kDecayBias,
    kNorm,
    kOut,
};

}  // namespace

std::span<const RoleRow> delta_roles() { return kDelta; }
std::span<const RoleRow> channel_delta_roles() { return kChannels; }

}  // namespace headrace
