// Softmax attention over the layer's keys and values.
#include "model/mixer_kinds.h"

namespace headrace {

void run_attention(const StepContext& step, int layer_idx, const RoleWeights& weights,
                   const Branch& branch) {
  const ModelConfig& config = step.config;
  const LayerConfig& layer = config.layers[static_cast<size_t>(layer_idx)];
  Workspace& workspace = step.workspace;
  const bool has_own_keys = layer.kv_source_layer < 0;
  const KvLayer kv = step.kv.layer(has_own_keys ? layer_idx : layer.kv_source_layer);

  QkvArgs qkv;
  qkv.q_out = workspace.q;
  qkv.num_rows = step.num_rows;
  qkv.num_heads = layer.num_attention_heads;
  const int64_t q_width = int64_t{layer.num_attention_heads} * layer.head_dim;
  qkv.num_others = layer.attention_gate ? q_width : 0;
  qkv.kv = kv;
  qkv.kv_parts = !has_own_keys ? 0 : layer.values_are_keys ? 1 : 2;
  qkv.step = step.geometry;
  qkv.qk_norm = layer.qk_norm;
  qkv.q_norm_weight = weights.vector(Role::kQNorm);
  qkv.k_norm_weight = weights.vector(Role::kKNorm);
  qkv.value_norm = layer.value_norm;
  qkv.norm_eps = config.norm_eps;
  qkv.norm_after_rope = config.qk_norm_after_rope;
  qkv.clip = layer.qkv_clip;
  if (layer.rope_idx >= 0) {
    const auto rope_idx = static_cast<size_t>(layer.rope_idx);
    qkv.pairing = config.ropes[rope_idx].pairing;
    qkv.rope_dims = config.ropes[rope_idx].rope_dims;
    qkv.rope_cos = workspace.ropes[rope_idx].cos;
    qkv.rope_sin = workspace.ropes[rope_idx].sin;
  }
  if (config.query_position_beta != 0) qkv.q_row_scale = workspace.q_row_scale;
  step.backend.qkv_linear(weights.weight(Role::kQkv), branch.input, weights.vector(Role::kQkv),
                          workspace.qkv, qkv);

  AttentionArgs attention;
  attention.q = workspace.q;
  attention.out = workspace.attended;
  attention.num_heads = layer.num_attention_heads;
  attention.kv = kv;
  attention.step = step.geometry;
  attention.scale = layer.attention_scale;
  attention.softcap = layer.attention_softcap;
  attention.window = layer.sliding_window;
  attention.sinks = weights.vector(Role::kSinks);
  attention.slopes = workspace.alibi_slopes;
  if (layer.attention_gate) {
    const int64_t kv_width = int64_t{layer.num_key_value_heads} * layer.head_dim;
    attention.gate = workspace.qkv + q_width + 2 * kv_width;
    attention.gate_stride = 2 * (q_width + kv_width);
  }
  step.backend.attention(attention);

  step.backend.linear(weights.weight(Role::kAttentionOut), workspace.attended, step.num_rows,
                      branch.with_bias(weights.vector(Role::kAttentionOut)), branch.out);
}

KeptState keep_attention(const ModelConfig& config, const LayerConfig& layer, KvType type) {
  if (layer.kv_source_layer >= 0) return {};
  // A window that no context fills is full attention.
  const int64_t longest = config.max_position_embeddings;
  const bool is_full =
      layer.sliding_window == 0 || (longest > 0 && layer.sliding_window >= longest);
  return {.policy = is_full ? CachePolicy::kFull : CachePolicy::kWindow,
          .window = is_full ? 0 : layer.sliding_window,
          .pieces = {{{"keys", type, layer.num_key_value_heads, layer.head_dim},
                      {"values", type, layer.num_key_value_heads, layer.head_dim}}}};
}

}  // namespace headrace
