// Weights of latent attention and of its index.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t query_rank(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.q_lora_rank;
}
int64_t query_inputs(const ModelConfig& config, const LayerConfig& layer) {
  return layer.latent.q_lora_rank > 0 ? layer.latent.q_lora_rank : config.hidden_size;
}
int64_t query_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.num_attention_heads} * layer.latent.qk_head_dim();
}
int64_t latent_width(const ModelConfig&, const LayerConfig& layer) { return layer.latent.width(); }
int64_t latent_rank(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.kv_lora_rank;
}
int64_t key_rows(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.qk_nope_head_dim;
}
int64_t latent_value_rows(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.v_head_dim;
}
int64_t head_rows(const ModelConfig&, const LayerConfig& layer) {  // of a head in kv_b_proj
  return int64_t{layer.latent.qk_nope_head_dim} + layer.latent.v_head_dim;
}
int64_t no_rows(const ModelConfig&, const LayerConfig&) { return 0; }
int64_t all_values(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.num_attention_heads} * layer.latent.v_head_dim;
}
int64_t index_heads(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.index_n_heads;
}
int64_t index_dim(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.index_head_dim;
}
int64_t index_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.latent.index_n_heads} * layer.latent.index_head_dim;
}

bool has_query_rank(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.q_lora_rank > 0;
}
bool has_index(const ModelConfig&, const LayerConfig& layer) {
  return layer.latent.index_n_heads > 0;
}

constexpr RoleNames kKvUp = {{"self_attn.kv_b_proj"}, {"attn_kv_b"}};

constexpr RoleRow kLatent[] = {
    {.role = Role::kQueryDown,
     .name = "query, to its low rank",
     .parts = {{{.names = {{"self_attn.q_a_proj"}, {"attn_q_a"}}, .outputs = query_rank}}},
     .inputs = hidden,
     .bias = &ModelConfig::qkv_bias,
     .present = has_query_rank},
    {.role = Role::kQueryDownNorm,
     .name = "norm of the query's low rank",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.q_a_layernorm"}, {"attn_q_a_norm"}},
                 .outputs = query_rank}}},
     .present = has_query_rank},
    {.role = Role::kQueryUp,
     .name = "query",
     .parts = {{{.names = {{"self_attn.q_b_proj", "self_attn.q_proj"}, {"attn_q_b", "attn_q"}},
                 .outputs = query_rows}}},
     .inputs = query_inputs},
    {.role = Role::kKvDown,
     .name = "latent and shared key",
     .parts = {{{.names = {{"self_attn.kv_a_proj_with_mqa"}, {"attn_kv_a_mqa"}},
                 .outputs = latent_width}}},
     .inputs = hidden,
     .bias = &ModelConfig::qkv_bias},
    {.role = Role::kKvDownNorm,
     .name = "norm of the latent",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.kv_a_layernorm"}, {"attn_kv_a_norm"}},
                 .outputs = latent_rank}}}},
    {.role = Role::kKeyUp,
     .name = "keys of the heads",
     .parts = {{{.names = {{}, {"attn_k_b"}}, .outputs = latent_rank}}},
     .inputs = key_rows,
     .experts = q_heads,
     .shared = {.names = kKvUp, .stride = head_rows, .first = no_rows, .transposed = true}},
    {.role = Role::kValueUp,
     .name = "values of the heads",
     .parts = {{{.names = {{}, {"attn_v_b"}}, .outputs = latent_value_rows}}},
     .inputs = latent_rank,
     .experts = q_heads,
     .shared = {.names = kKvUp, .stride = head_rows, .first = key_rows}},
    {.role = Role::kAttentionOut,
     .name = "attention output",
     .parts = {{{.names = {{"self_attn.o_proj"}, {"attn_output"}}, .outputs = hidden}}},
     .inputs = all_values,
     .bias = &ModelConfig::o_bias},
    {.role = Role::kIndexQuery,
     .name = "queries of the index",
     .parts = {{{.names = {{"self_attn.indexer.wq_b"}, {"indexer.attn_q_b"}},
                 .outputs = index_rows}}},
     .inputs = query_rank,
     .present = has_index},
    {.role = Role::kIndexKey,
     .name = "key of the index",
     .parts = {{{.names = {{"self_attn.indexer.wk"}, {"indexer.attn_k"}}, .outputs = index_dim}}},
     .inputs = hidden,
     .present = has_index},
    {.role = Role::kIndexKeyNorm,
     .name = "norm of the index key",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.indexer.k_norm"}, {"indexer.k_norm"}},
                 .outputs = index_dim}}},
     .present = has_index},
    {.role = Role::kIndexKeyNormBias,
     .name = "bias of the norm of the index key",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.indexer.k_norm.bias"}, {"indexer.k_norm.bias"}},
                 .outputs = index_dim}}},
     .present = has_index},
    {.role = Role::kIndexWeights,
     .name = "weights of the index heads",
     .parts = {{{.names = {{"self_attn.indexer.weights_proj"}, {"indexer.proj"}},
                 .outputs = index_heads}}},
     .inputs = hidden,
     .present = has_index},
};

}  // namespace

std::span<const RoleRow> latent_roles() { return kLatent; }

}  // namespace headrace
