#include "model/config/roles.h"

#include <algorithm>

namespace headrace {
namespace {

// ---- Extents ------------------------------------------------------------------------------------

int64_t hidden(const ModelConfig& config, const LayerConfig&) { return config.hidden_size; }
int64_t vocabulary(const ModelConfig& config, const LayerConfig&) { return config.vocab_size; }
int64_t q_heads(const ModelConfig&, const LayerConfig& layer) { return layer.num_attention_heads; }
int64_t kv_heads(const ModelConfig&, const LayerConfig& layer) { return layer.num_key_value_heads; }
int64_t q_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.num_attention_heads} * layer.head_dim;
}
int64_t kv_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.num_key_value_heads} * layer.head_dim;
}
int64_t mlp_width(const ModelConfig&, const LayerConfig& layer) { return layer.intermediate_size; }
int64_t experts(const ModelConfig&, const LayerConfig& layer) { return layer.num_experts; }
int64_t expert_width(const ModelConfig&, const LayerConfig& layer) {
  return layer.moe_intermediate_size;
}
int64_t q_norm_size(const ModelConfig& config, const LayerConfig& layer) {
  return layer.qk_norm == QkNorm::kWhole ? q_rows(config, layer) : layer.head_dim;
}
int64_t k_norm_size(const ModelConfig& config, const LayerConfig& layer) {
  return layer.qk_norm == QkNorm::kWhole ? kv_rows(config, layer) : layer.head_dim;
}

// ---- Presence -----------------------------------------------------------------------------------

bool has_qk_norm(const ModelConfig&, const LayerConfig& layer) {
  return layer.qk_norm != QkNorm::kNone;
}
bool has_sinks(const ModelConfig&, const LayerConfig& layer) { return layer.attention_sinks; }
bool has_own_head(const ModelConfig& config, const LayerConfig&) {
  return !config.tie_word_embeddings;
}

// ---- Tables -------------------------------------------------------------------------------------

constexpr RoleRow kNetwork[] = {
    {.role = Role::kEmbedding,
     .name = "embedding",
     .place = RolePlace::kBody,
     .pack = WeightRole::kEmbedding,
     .parts = {{{.names = {{"embed_tokens"}, {"token_embd"}}, .outputs = vocabulary}}},
     .inputs = hidden},
    {.role = Role::kFinalNorm,
     .name = "final norm",
     .form = RoleForm::kNorm,
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"norm"}, {"output_norm"}}, .outputs = hidden}}}},
    {.role = Role::kHead,
     .name = "head",
     .place = RolePlace::kHead,
     .parts = {{{.names = {{"lm_head"}, {"output"}}, .outputs = vocabulary}}},
     .inputs = hidden,
     .present = has_own_head},
};

constexpr RoleRow norm_row(Role role, std::string_view name, NormSlot slot) {
  return {.role = role,
          .name = name,
          .form = RoleForm::kNorm,
          .parts = {{{.outputs = hidden}}},
          .norm_slot = slot};
}
constexpr RoleRow kNorms[] = {
    norm_row(Role::kAttentionNorm, "attention norm", kNormAttention),
    norm_row(Role::kPostAttentionNorm, "norm after attention", kNormPostAttention),
    norm_row(Role::kMlpNorm, "MLP norm", kNormMlp),
    norm_row(Role::kPostMlpNorm, "norm after the MLP", kNormPostMlp),
};

constexpr RoleRow kAttention[] = {
    {.role = Role::kQkv,
     .name = "query, key and value",
     .parts =
         {{{.names = {{"self_attn.q_proj"}, {"attn_q"}}, .outputs = q_rows, .heads = q_heads},
           {.names = {{"self_attn.k_proj"}, {"attn_k"}}, .outputs = kv_rows, .heads = kv_heads},
           {.names = {{"self_attn.v_proj"}, {"attn_v"}}, .outputs = kv_rows}}},
     .fused = {{"self_attn.qkv_proj"}, {"attn_qkv"}},
     .inputs = hidden,
     .bias = &ModelConfig::qkv_bias},
    {.role = Role::kAttentionOut,
     .name = "attention output",
     .parts = {{{.names = {{"self_attn.o_proj"}, {"attn_output"}}, .outputs = hidden}}},
     .inputs = q_rows,
     .bias = &ModelConfig::o_bias},
    {.role = Role::kQNorm,
     .name = "query norm",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"self_attn.q_norm"}, {"attn_q_norm"}}, .outputs = q_norm_size}}},
     .present = has_qk_norm},
    {.role = Role::kKNorm,
     .name = "key norm",
     .form = RoleForm::kNorm,
     .parts = {{{.names = {{"self_attn.k_norm"}, {"attn_k_norm"}}, .outputs = k_norm_size}}},
     .present = has_qk_norm},
    {.role = Role::kSinks,
     .name = "sinks",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"self_attn.sinks"}, {"attn_sinks"}}, .outputs = q_heads}}},
     .present = has_sinks},
};

// GGUF has no name for a fused gate and up: ffn_up then holds both (and ffn_gate is absent).
constexpr RoleRow kDense[] = {
    {.role = Role::kGateUp,
     .name = "gate and up",
     .pack = WeightRole::kGateUp,
     .parts = {{{.names = {{"mlp.gate_proj"}, {"ffn_gate"}}, .outputs = mlp_width},
                {.names = {{"mlp.up_proj"}, {"ffn_up"}}, .outputs = mlp_width}}},
     .fused = {{"mlp.gate_up_proj"}, {"ffn_up"}},
     .inputs = hidden,
     .bias = &ModelConfig::mlp_bias},
    {.role = Role::kDown,
     .name = "down",
     .parts = {{{.names = {{"mlp.down_proj"}, {"ffn_down"}}, .outputs = hidden}}},
     .inputs = mlp_width,
     .bias = &ModelConfig::mlp_bias},
};

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

constexpr std::span<const RoleRow> kTables[] = {kNetwork, kNorms, kAttention, kDense, kExperts};

// ---- Honoured values ----------------------------------------------------------------------------

template <typename... Kinds>
constexpr uint32_t any_of(Kinds... kinds) {
  return (0u | ... | (1u << static_cast<int>(kinds)));
}

// A value of LayerConfig and the kinds whose function reads it.
struct HonouredRow {
  std::string_view name;
  double (*value)(const LayerConfig&);
  double unset;
  uint32_t mixers;
  uint32_t mlps;
};

template <auto Member>
double value_of(const LayerConfig& layer) {
  return static_cast<double>(layer.*Member);
}

constexpr HonouredRow attention_value(std::string_view name, double (*value)(const LayerConfig&),
                                      double unset = 0) {
  return {name, value, unset, any_of(MixerKind::kAttention), 0};
}
constexpr HonouredRow expert_value(std::string_view name, double (*value)(const LayerConfig&),
                                   double unset = 0) {
  return {name, value, unset, 0, any_of(MlpKind::kExperts)};
}

constexpr HonouredRow kHonoured[] = {
    attention_value("num_attention_heads", value_of<&LayerConfig::num_attention_heads>),
    attention_value("num_key_value_heads", value_of<&LayerConfig::num_key_value_heads>),
    attention_value("head_dim", value_of<&LayerConfig::head_dim>),
    attention_value("sliding_window", value_of<&LayerConfig::sliding_window>),
    attention_value("rope_idx", value_of<&LayerConfig::rope_idx>, -1),
    attention_value("attention_scale", value_of<&LayerConfig::attention_scale>, 1),
    attention_value("attention_softcap", value_of<&LayerConfig::attention_softcap>),
    attention_value("qk_norm", value_of<&LayerConfig::qk_norm>),
    attention_value("attention_sinks", value_of<&LayerConfig::attention_sinks>),
    {"kv_source_layer", value_of<&LayerConfig::kv_source_layer>, -1, 0, 0},
    {"intermediate_size", value_of<&LayerConfig::intermediate_size>, 0, 0, any_of(MlpKind::kDense)},
    expert_value("num_experts", value_of<&LayerConfig::num_experts>),
    expert_value("num_experts_per_token", value_of<&LayerConfig::num_experts_per_token>),
    expert_value("moe_intermediate_size", value_of<&LayerConfig::moe_intermediate_size>),
    expert_value("norm_topk_prob", value_of<&LayerConfig::norm_topk_prob>),
    expert_value("routed_scaling_factor", value_of<&LayerConfig::routed_scaling_factor>, 1),
    {"shared_expert_intermediate_size", value_of<&LayerConfig::shared_expert_intermediate_size>, 0,
     0, 0},
};

// ---- Kinds --------------------------------------------------------------------------------------

int64_t dense_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return num_rows * layer.intermediate_size;
}
int64_t expert_room(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows) {
  return ExpertRoom(config, layer, num_rows).num_floats;
}

constexpr MixerRow kMixers[] = {{MixerKind::kAttention, "attention", kAttention}};
constexpr MlpRow kMlps[] = {{MlpKind::kDense, "dense", kDense, dense_room},
                            {MlpKind::kExperts, "experts", kExperts, expert_room}};

}  // namespace

ExpertRoom::ExpertRoom(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows) {
  const int64_t num_slots = num_rows * layer.num_experts_per_token;
  const auto take = [this](int64_t count) {
    const int64_t start = num_floats;
    num_floats += (count + 15) / 16 * 16;
    return start;
  };
  logits = take(num_rows * layer.num_experts);
  experts = take(num_slots);
  weights = take(num_slots);
  slots = take(num_slots);
  rows = take(num_slots);
  first_slot = take(int64_t{layer.num_experts} + 1);
  slot_inputs = take(num_slots * config.hidden_size);
  slot_activations = take(num_slots * layer.moe_intermediate_size);
  slot_outputs = take(num_slots * config.hidden_size);
  mixed = take(num_rows * config.hidden_size);
}

std::span<const PartRow> RoleRow::used_parts() const {
  size_t count = 0;
  while (count < parts.size() && parts[count].outputs != nullptr) ++count;
  return std::span(parts).first(count);
}

std::span<const std::string_view> RoleNames::in(CheckpointKind kind) const {
  const std::span<const std::string_view> all =
      kind == CheckpointKind::kGguf ? std::span<const std::string_view>(gguf) : safetensors;
  return all.first(static_cast<size_t>(std::find(all.begin(), all.end(), "") - all.begin()));
}

const MixerRow& mixer_row(MixerKind kind) {
  const MixerRow& row = kMixers[static_cast<size_t>(kind)];
  CHECK(row.kind == kind, "mixer {}", static_cast<int>(kind));
  return row;
}

const MlpRow& mlp_row(MlpKind kind) {
  const MlpRow& row = kMlps[static_cast<size_t>(kind)];
  CHECK(row.kind == kind, "MLP {}", static_cast<int>(kind));
  return row;
}

const RoleRow& role_row(Role role) {
  for (const std::span<const RoleRow> table : kTables) {
    for (const RoleRow& row : table) {
      if (row.role == role) return row;
    }
  }
  CHECK(false, "no row for role {}", static_cast<int>(role));
}

RoleNames role_names(const ModelConfig& config, const RoleRow& row, const PartRow& part) {
  if (row.norm_slot < 0) return part.names;
  const BlockForm& block = *family_named(config.family).block;
  const auto slot = static_cast<size_t>(row.norm_slot);
  return {{block.safetensors[slot]}, {block.gguf[slot]}};
}

std::vector<RoleSlot> role_slots(const ModelConfig& config) {
  std::vector<RoleSlot> slots;
  const LayerConfig none;
  const auto append = [&](const RoleRow& row, int layer_idx, const LayerConfig& layer) {
    if (row.present != nullptr && !row.present(config, layer)) return;
    if (row.norm_slot >= 0 && role_names(config, row, row.parts[0]).safetensors[0].empty()) return;
    slots.push_back({layer_idx, &row});
  };
  for (const RoleRow& row : kNetwork) {
    if (row.place != RolePlace::kHead) append(row, kNoLayer, none);
  }
  for (int i = 0; i < config.num_layers(); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    for (const std::span<const RoleRow> table :
         {mixer_row(layer.mixer).roles, mlp_row(layer.mlp).roles,
          std::span<const RoleRow>(kNorms)}) {
      for (const RoleRow& row : table) append(row, i, layer);
    }
  }
  for (const RoleRow& row : kNetwork) {
    if (row.place == RolePlace::kHead) append(row, kNoLayer, none);
  }
  return slots;
}

Status check_honoured(const LayerConfig& layer, int layer_idx) {
  for (const HonouredRow& row : kHonoured) {
    if (row.value(layer) == row.unset) continue;
    if ((row.mixers & any_of(layer.mixer)) != 0 || (row.mlps & any_of(layer.mlp)) != 0) continue;
    return make_error(ErrorCode::kUnsupported,
                      "layer {} has {} {}, but neither its mixer ({}) nor its MLP ({}) heeds that",
                      layer_idx, row.name, row.value(layer), mixer_row(layer.mixer).name,
                      mlp_row(layer.mlp).name);
  }
  return {};
}

}  // namespace headrace
