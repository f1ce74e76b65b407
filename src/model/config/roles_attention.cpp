// Weights of softmax attention.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t kv_heads(const ModelConfig&, const LayerConfig& layer) { return layer.num_key_value_heads; }
bool has_own_keys(const LayerConfig& layer) { return layer.kv_source_layer < 0; }
int64_t k_rows(const ModelConfig&, const LayerConfig& layer) {
  return has_own_keys(layer) ? int64_t{layer.num_key_value_heads} * layer.head_dim : 0;
}
int64_t v_rows(const ModelConfig& config, const LayerConfig& layer) {
  return layer.values_are_keys ? 0 : k_rows(config, layer);
}

// A weight for all heads together, not one that they share.
bool has_wide_norm(const LayerConfig& layer) {
  return layer.qk_norm == QkNorm::kWhole || layer.qk_norm == QkNorm::kLayerPerHead;
}

int64_t q_norm_size(const ModelConfig& config, const LayerConfig& layer) {
  return has_wide_norm(layer) ? q_rows(config, layer) : layer.head_dim;
}

int64_t k_norm_size(const ModelConfig& config, const LayerConfig& layer) {
  return has_wide_norm(layer) ? k_rows(config, layer) : layer.head_dim;
}

bool has_qk_norm(const ModelConfig&, const LayerConfig& layer) {
  return layer.qk_norm != QkNorm::kNone;
}
// Of each head the query, then the gate.
int64_t gate_rows(const ModelConfig& config, const LayerConfig& layer) {
  return layer.attention_gate ? q_rows(config, layer) : 0;
}
int64_t gated_rows(const ModelConfig& config, const LayerConfig& layer) {
  return q_rows(config, layer) + gate_rows(config, layer);
}
int64_t query_row(const LayerConfig& layer, int64_t row) {
  return row + row / layer.head_dim * layer.head_dim;
}
int64_t gate_row(const LayerConfig& layer, int64_t row) {
  return query_row(layer, row) + layer.head_dim;
}
bool has_k_norm(const ModelConfig& config, const LayerConfig& layer) {
  return has_qk_norm(config, layer) && has_own_keys(layer);
}
bool has_sinks(const ModelConfig&, const LayerConfig& layer) { return layer.attention_sinks; }

constexpr RoleRow kAttention[] = {
    {.role = Role::kQkv,
     .name = "query, key and value",
     .parts = {{{.names = {{"self_attn.q_proj"}, {"attn_q"}},
                 .outputs = q_rows,
                 .heads = q_heads,
                 .stored_outputs = gated_rows,
                 .stored_row = query_row},
                {.names = {{"self_attn.k_proj"}, {"attn_k"}}, .outputs = k_rows, .heads = kv_heads},
                {.names = {{"self_attn.v_proj"}, {"attn_v"}}, .outputs = v_rows},
                {.names = {{"self_attn.q_proj"}, {"attn_q"}},
                 .outputs = gate_rows,
                 .stored_outputs = gated_rows,
                 .stored_row = gate_row}}},
     .fused = {{"self_attn.qkv_proj"}, {"attn_qkv"}},
     .inputs = hidden,
     .bias = &ModelConfig::qkv_bias},
    {.role = Role::kAttentionOut,
     .name = "attention output",
     .parts = {{{.names = {{"self_attn.o_proj", "self_attn.out_proj"}, {"attn_output"}},
                 .outputs = hidden}}},
     .inputs = q_rows,
     .bias = &ModelConfig::o_bias},
    {.role = Role::kQNorm,
     .name = "query norm",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"self_attn.q_norm", "self_attn.q_layernorm"}, {"attn_q_norm"}},
                 .outputs = q_norm_size}}},
     .present = has_qk_norm},
    {.role = Role::kKNorm,
     .name = "key norm",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"self_attn.k_norm", "self_attn.k_layernorm"}, {"attn_k_norm"}},
                 .outputs = k_norm_size}}},
     .present = has_k_norm},
    {.role = Role::kSinks,
     .name = "sinks",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.sinks"}, {"attn_sinks"}}, .outputs = q_heads}}},
     .present = has_sinks},
};

}  // namespace

std::span<const RoleRow> attention_roles() { return kAttention; }

}  // namespace headrace
