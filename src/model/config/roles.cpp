#include "model/config/roles.h"

#include <algorithm>

#include "model/config/families.h"
#include "model/config/role_tables.h"

namespace headrace {
namespace {

// ---- Extents and presence
// -------------------------------------------------------------------------

int64_t vocabulary(const ModelConfig& config, const LayerConfig&) { return config.vocab_size; }
int64_t position_rows(const ModelConfig& config, const LayerConfig&) {
  return config.max_position_embeddings + config.position_offset;
}
bool has_positions(const ModelConfig& config, const LayerConfig&) {
  return config.learned_positions;
}
bool has_embedding_norm(const ModelConfig& config, const LayerConfig&) {
  return config.embedding_norm;
}
bool has_own_head(const ModelConfig& config, const LayerConfig&) {
  return !config.tie_word_embeddings;
}

// ---- Tables -------------------------------------------------------------------------------------

constexpr RoleRow kNetwork[] = {
    {.role = Role::kEmbedding,
     .name = "embedding",
     .place = RolePlace::kBody,
     .pack = WeightRole::kEmbedding,
     .parts = {{{.names = {{"embed_tokens", "embeddings", "embedding"}, {"token_embd"}},
                 .outputs = vocabulary}}},
     .inputs = hidden},
    {.role = Role::kPositions,
     .name = "positions",
     .place = RolePlace::kBody,
     .pack = WeightRole::kEmbedding,
     .parts = {{{.names = {{"embed_positions"}, {"position_embd"}}, .outputs = position_rows}}},
     .inputs = hidden,
     .present = has_positions},
    {.role = Role::kEmbeddingNorm,
     .name = "norm of the embedding",
     .form = RoleForm::kNorm,
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"embed_norm"}, {"token_embd_norm"}}, .outputs = hidden}}},
     .row_norm = true,
     .present = has_embedding_norm},
    {.role = Role::kFinalNorm,
     .name = "final norm",
     .form = RoleForm::kNorm,
     .place = RolePlace::kBody,
     .parts = {{{.names = {{"norm", "embedding_norm", "norm_f"},
                           {"output_norm", "token_embd_norm"}},
                 .outputs = hidden}}},
     .row_norm = true},
    {.role = Role::kHead,
     .name = "head",
     .place = RolePlace::kHead,
     .parts = {{{.names = {{"lm_head"}, {"output"}}, .outputs = vocabulary}}},
     .inputs = hidden,
     .bias = &ModelConfig::head_bias,
     .present = has_own_head},
};

constexpr RoleRow norm_row(Role role, std::string_view name, NormSlot slot) {
  return {.role = role,
          .name = name,
          .form = RoleForm::kNorm,
          .parts = {{{.outputs = hidden}}},
          .row_norm = true,
          .norm_slot = slot};
}
constexpr RoleRow kNorms[] = {
    norm_row(Role::kAttentionNorm, "attention norm", kNormAttention),
    norm_row(Role::kPostAttentionNorm, "norm after attention", kNormPostAttention),
    norm_row(Role::kMlpNorm, "MLP norm", kNormMlp),
    norm_row(Role::kPostMlpNorm, "norm after the MLP", kNormPostMlp),
};

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
template <auto Member>
double latent_value_of(const LayerConfig& layer) {
  return static_cast<double>(layer.latent.*Member);
}
template <auto Member>
double expert_value_of(const LayerConfig& layer) {
  return static_cast<double>(layer.experts.*Member);
}

constexpr HonouredRow attention_value(std::string_view name, double (*value)(const LayerConfig&),
                                      double unset = 0) {
  return {name, value, unset, any_of(MixerKind::kAttention), 0};
}
constexpr HonouredRow softmax_value(std::string_view name, double (*value)(const LayerConfig&),
                                    double unset = 0) {
  return {name, value, unset, any_of(MixerKind::kAttention, MixerKind::kLatent), 0};
}
constexpr HonouredRow latent_value(std::string_view name, double (*value)(const LayerConfig&)) {
  return {name, value, 0, any_of(MixerKind::kLatent), 0};
}
constexpr HonouredRow expert_value(std::string_view name, double (*value)(const LayerConfig&),
                                   double unset = 0) {
  return {name, value, unset, 0, any_of(MlpKind::kExperts, MlpKind::kDenseAndExperts)};
}

template <auto Member>
constexpr HonouredRow delta_value(std::string_view name, double unset = 0) {
  return {name, [](const LayerConfig& layer) { return static_cast<double>(layer.delta.*Member); },
          unset, any_of(MixerKind::kGatedDelta, MixerKind::kChannelDelta), 0};
}

template <auto Member>
constexpr HonouredRow scan_value(std::string_view name, double unset = 0) {
  return {name, [](const LayerConfig& layer) { return static_cast<double>(layer.scan.*Member); },
          unset, any_of(MixerKind::kScan), 0};
}

constexpr HonouredRow kHonoured[] = {
    softmax_value("num_attention_heads", value_of<&LayerConfig::num_attention_heads>),
    attention_value("num_key_value_heads", value_of<&LayerConfig::num_key_value_heads>),
    attention_value("head_dim", value_of<&LayerConfig::head_dim>),
    attention_value("sliding_window", value_of<&LayerConfig::sliding_window>),
    softmax_value("rope_idx", value_of<&LayerConfig::rope_idx>, -1),
    softmax_value("attention_scale", value_of<&LayerConfig::attention_scale>, 1),
    attention_value("attention_softcap", value_of<&LayerConfig::attention_softcap>),
    attention_value("qk_norm", value_of<&LayerConfig::qk_norm>),
    attention_value("attention_gate", value_of<&LayerConfig::attention_gate>),
    attention_value("qkv_clip", value_of<&LayerConfig::qkv_clip>),
    attention_value("attention_sinks", value_of<&LayerConfig::attention_sinks>),
    latent_value("q_lora_rank", latent_value_of<&LatentConfig::q_lora_rank>),
    latent_value("kv_lora_rank", latent_value_of<&LatentConfig::kv_lora_rank>),
    latent_value("qk_nope_head_dim", latent_value_of<&LatentConfig::qk_nope_head_dim>),
    latent_value("qk_rope_head_dim", latent_value_of<&LatentConfig::qk_rope_head_dim>),
    latent_value("v_head_dim", latent_value_of<&LatentConfig::v_head_dim>),
    latent_value("index_n_heads", latent_value_of<&LatentConfig::index_n_heads>),
    latent_value("index_head_dim", latent_value_of<&LatentConfig::index_head_dim>),
    latent_value("index_topk", latent_value_of<&LatentConfig::index_topk>),
    delta_value<&DeltaConfig::num_key_heads>("linear_num_key_heads"),
    delta_value<&DeltaConfig::num_value_heads>("linear_num_value_heads"),
    delta_value<&DeltaConfig::key_head_dim>("linear_key_head_dim"),
    delta_value<&DeltaConfig::value_head_dim>("linear_value_head_dim"),
    delta_value<&DeltaConfig::conv_kernel>("linear_conv_kernel_dim"),
    delta_value<&DeltaConfig::tiled_heads>("tiled heads"),
    {"taps of the short convolution",
     [](const LayerConfig& layer) { return static_cast<double>(layer.short_conv.num_taps); }, 0,
     any_of(MixerKind::kShortConv), 0},
    scan_value<&ScanConfig::num_heads>("heads of the scan"),
    scan_value<&ScanConfig::head_dim>("head width of the scan"),
    scan_value<&ScanConfig::num_groups>("groups of the scan"),
    scan_value<&ScanConfig::state_width>("state width of the scan"),
    scan_value<&ScanConfig::num_taps>("taps of the scan"),
    scan_value<&ScanConfig::time_step_min>("least time step"),
    scan_value<&ScanConfig::time_step_max>("largest time step",
                                           std::numeric_limits<double>::infinity()),
    attention_value("value_norm", value_of<&LayerConfig::value_norm>),
    attention_value("values_are_keys", value_of<&LayerConfig::values_are_keys>),
    attention_value("kv_source_layer", value_of<&LayerConfig::kv_source_layer>, -1),
    {"xielu of positive inputs",
     [](const LayerConfig& layer) { return static_cast<double>(layer.xielu.positive); }, 0, 0,
     any_of(MlpKind::kPlain)},
    {"xielu of negative inputs",
     [](const LayerConfig& layer) { return static_cast<double>(layer.xielu.negative); }, 0, 0,
     any_of(MlpKind::kPlain)},
    {"intermediate_size", value_of<&LayerConfig::intermediate_size>, 0, 0,
     any_of(MlpKind::kDense, MlpKind::kPlain, MlpKind::kDenseAndExperts, MlpKind::kSparse)},
    {"deviations of the gate", value_of<&LayerConfig::gate_deviations>, 0, 0,
     any_of(MlpKind::kSparse)},
    expert_value("num_experts", expert_value_of<&ExpertConfig::num_experts>),
    expert_value("num_experts_per_token", expert_value_of<&ExpertConfig::num_experts_per_token>),
    expert_value("expert width", expert_value_of<&ExpertConfig::intermediate_size>),
    expert_value("expert normalise", expert_value_of<&ExpertConfig::normalise>),
    expert_value("expert scale", expert_value_of<&ExpertConfig::scale>, 1),
    expert_value("router score", expert_value_of<&ExpertConfig::score>),
    expert_value("router jitter", expert_value_of<&ExpertConfig::jitter>),
    expert_value("router selection bias", expert_value_of<&ExpertConfig::selection_bias>),
    expert_value("expert groups", expert_value_of<&ExpertConfig::num_groups>, 1),
    expert_value("expert groups kept", expert_value_of<&ExpertConfig::num_groups_kept>, 1),
    expert_value("expert group score", expert_value_of<&ExpertConfig::group_score>),
    expert_value("expert normalise epsilon", expert_value_of<&ExpertConfig::normalise_epsilon>),
    expert_value("swiglu_alpha", expert_value_of<&ExpertConfig::swiglu_alpha>),
    expert_value("swiglu_limit", expert_value_of<&ExpertConfig::swiglu_limit>),
    expert_value("shared expert width", expert_value_of<&ExpertConfig::shared_intermediate_size>),
    expert_value("shared expert gate", expert_value_of<&ExpertConfig::shared_gate>),
};

// ---- Kinds --------------------------------------------------------------------------------------

int64_t dense_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return num_rows * layer.intermediate_size;
}
int64_t sparse_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return 2 * num_rows * layer.intermediate_size;
}
int64_t latent_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return LatentRoom(layer, num_rows).num_floats;
}
int64_t expert_room(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows) {
  return ExpertRoom(config, layer, num_rows).num_floats;
}
// The activations of the dense MLP, which are done with, and the experts' room share a place.
int64_t dense_and_expert_room(const ModelConfig& config, const LayerConfig& layer,
                              int64_t num_rows) {
  return dense_result_floats(config, num_rows) +
         std::max(dense_room(config, layer, num_rows), expert_room(config, layer, num_rows));
}

int64_t delta_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return DeltaRoom(layer, num_rows).num_floats;
}

int64_t short_conv_room(const ModelConfig& config, const LayerConfig&, int64_t num_rows) {
  return 4 * num_rows * config.hidden_size;
}
int64_t scan_room(const ModelConfig&, const LayerConfig& layer, int64_t num_rows) {
  return ScanRoom(layer.scan, num_rows).num_floats;
}
int64_t no_room(const ModelConfig&, const LayerConfig&, int64_t) { return 0; }

const MixerRow kMixers[] = {
    {MixerKind::kAttention, "attention", attention_roles()},
    {MixerKind::kGatedDelta, "gated delta", delta_roles(), delta_room},
    {MixerKind::kChannelDelta, "channel delta", channel_delta_roles(), delta_room},
    {MixerKind::kLatent, "latent attention", latent_roles(), latent_room},
    {MixerKind::kShortConv, "short convolution", short_conv_roles(), short_conv_room},
    {MixerKind::kScan, "state space scan", scan_roles(), scan_room}};
const MlpRow kMlps[] = {{MlpKind::kDense, "dense", dense_roles(), dense_room},
                        {MlpKind::kPlain, "plain", plain_roles(), dense_room},
                        {MlpKind::kExperts, "experts", expert_roles(), expert_room},
                        {MlpKind::kNone, "none", {}, no_room},
                        {MlpKind::kSparse, "sparse", sparse_roles(), sparse_room},
                        {MlpKind::kDenseAndExperts, "dense and experts", dense_and_expert_roles(),
                         dense_and_expert_room}};

// Where the next array of a room begins: each at a 64-byte boundary.
int64_t take_floats(int64_t count, int64_t* num_floats) {
  const int64_t start = *num_floats;
  *num_floats += (count + 15) / 16 * 16;
  return start;
}

}  // namespace

LatentRoom::LatentRoom(const LayerConfig& layer, int64_t num_rows) {
  const LatentConfig& latent = layer.latent;
  const int64_t head_rows = num_rows * layer.num_attention_heads;
  const auto take = [this](int64_t count) { return take_floats(count, &num_floats); };
  query_rank = take(num_rows * latent.q_lora_rank);
  queries = take(head_rows * latent.qk_head_dim());
  keys = take(num_rows * latent.width());
  latent_queries = take(head_rows * latent.width());
  latent_values = take(head_rows * latent.kv_lora_rank);
  values = take(head_rows * latent.v_head_dim);
  index_queries = take(num_rows * latent.index_n_heads * latent.index_head_dim);
  index_keys = take(num_rows * latent.index_head_dim);
  index_weights = take(num_rows * latent.index_n_heads);
  kept = take(latent.index_n_heads > 0 ? num_rows * kept_words(latent.index_topk) : 0);
}

ExpertRoom::ExpertRoom(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows) {
  const int64_t num_slots = num_rows * layer.experts.num_experts_per_token;
  const auto take = [this](int64_t count) { return take_floats(count, &num_floats); };
  logits = take(num_rows * layer.experts.num_experts);
  experts = take(num_slots);
  weights = take(num_slots);
  slots = take(num_slots);
  rows = take(num_slots);
  first_slot = take(int64_t{layer.experts.num_experts} + 1);
  const int64_t widest = std::max(config.hidden_size, layer.experts.intermediate_size);
  slot_inputs = take(num_slots * padded_expert_inputs(widest));
  slot_activations = take(num_slots * layer.experts.intermediate_size);
  slot_outputs = take(num_slots * padded_expert_inputs(config.hidden_size));
  mixed = take(num_rows * config.hidden_size);
  const int64_t shared_width = layer.experts.shared_intermediate_size;
  shared = take(shared_width > 0 ? num_rows * config.hidden_size : 0);
  shared_activations = take(num_rows * shared_width);
  shared_factors = take(shared_width > 0 ? num_rows : 0);
}

DeltaRoom::DeltaRoom(const LayerConfig& layer, int64_t num_rows) {
  const DeltaConfig& delta = layer.delta;
  const bool has_channels = layer.mixer == MixerKind::kChannelDelta;
  const auto take = [this, num_rows](int64_t columns) {
    return take_floats(num_rows * columns, &num_floats);
  };
  const int64_t values = int64_t{delta.num_value_heads} * delta.value_head_dim;
  qkv_width = int64_t{2} * delta.num_key_heads * delta.key_head_dim + values;
  width = qkv_width +
          (has_channels ? delta.num_value_heads : values + int64_t{2} * delta.num_value_heads);
  projection = take(width);
  mixed = take(qkv_width);
  out = take(values);
  if (!has_channels) return;
  low = take(delta.value_head_dim);
  decay = take(values);
  gate = take(values);
}

ScanRoom::ScanRoom(const ScanConfig& scan, int64_t num_rows) {
  const auto take = [this, num_rows](int64_t columns) {
    return take_floats(num_rows * columns, &num_floats);
  };
  projected = take(scan.projection_width());
  mixed = take(scan.num_channels());
  scanned = take(scan.inner_size());
}

const MixerRow& mixer_row(MixerKind kind) {
  for (const MixerRow& row : kMixers) {
    if (row.kind == kind) return row;
  }
  CHECK(false, "mixer {}", static_cast<int>(kind));
}

const MlpRow& mlp_row(MlpKind kind) {
  for (const MlpRow& row : kMlps) {
    if (row.kind == kind) return row;
  }
  CHECK(false, "MLP {}", static_cast<int>(kind));
}

namespace {

const NameRow* own_names(const Family& family, Role role) {
  for (const NameRow& row : family.form.names.roles) {
    if (row.role == role) return &row;
  }
  return nullptr;
}

}  // namespace

const RoleRow& role_row(Role role) {
  std::vector<std::span<const RoleRow>> tables = {
      kNetwork,       per_layer_network_roles(), kNorms, layer_end_roles(), stream_network_roles(),
      stream_roles(), prediction_roles()};
  for (const MixerRow& mixer : kMixers) tables.push_back(mixer.roles);
  for (const MlpRow& mlp : kMlps) tables.push_back(mlp.roles);
  for (const std::span<const RoleRow> table : tables) {
    for (const RoleRow& row : table) {
      if (row.role == role) return row;
    }
  }
  CHECK(false, "no row for role {}", static_cast<int>(role));
}

RoleNames role_names(const ModelConfig& config, const RoleRow& row, const PartRow& part) {
  const Family& family = family_named(config.family);
  if (row.norm_slot >= 0) {
    const auto slot = static_cast<size_t>(row.norm_slot);
    return {{family.block->safetensors[slot]}, {family.block->gguf[slot]}};
  }
  RoleNames names = part.names;
  const auto idx = static_cast<size_t>(&part - row.parts.data());
  const NameRow* own = own_names(family, row.role);
  if (own != nullptr && idx < own->parts.size() && !own->parts[idx].empty()) {
    names.safetensors = {own->parts[idx]};
  }
  return names;
}

RoleNames fused_names(const ModelConfig& config, const RoleRow& row) {
  RoleNames names = row.fused;
  const NameRow* own = own_names(family_named(config.family), row.role);
  if (own != nullptr && !own->fused.empty()) names.safetensors = {own->fused};
  return names;
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
  for (const RoleRow& row : per_layer_network_roles()) append(row, kNoLayer, none);
  for (const RoleRow& row : stream_network_roles()) append(row, kNoLayer, none);
  const int num_layers = config.num_layers() + static_cast<int>(config.prediction.size());
  for (int i = 0; i < num_layers; ++i) {
    const LayerConfig& layer = config.weight_layer(i);
    if (i >= config.num_layers()) {
      for (const RoleRow& row : prediction_roles()) append(row, i, layer);
    }
    for (const std::span<const RoleRow> table :
         {mixer_row(layer.mixer).roles, mlp_row(layer.mlp).roles, std::span<const RoleRow>(kNorms),
          layer_end_roles(), stream_roles()}) {
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
