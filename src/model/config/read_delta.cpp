#include "model/config/read_delta.h"

#include <algorithm>
#include <string>
#include <vector>

namespace headrace {
namespace {

// What layers of the delta rule are in a network.
struct DeltaKind {
  MixerKind mixer;
  DeltaConfig config;
};

void make_delta_layer(const DeltaKind& delta, LayerConfig* layer) {
  clear_attention(layer);
  layer->mixer = delta.mixer;
  layer->delta = delta.config;
}

// All but every so many.
Status spread(const DeltaKind& delta, int64_t interval, ModelConfig* config) {
  if (interval < 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "full_attention_interval is {}, but must be at least 1", interval);
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if ((static_cast<int64_t>(i) + 1) % interval != 0) make_delta_layer(delta, &config->layers[i]);
  }
  return {};
}

Status spread_as_listed(const DeltaKind& delta, const std::vector<std::string>& types,
                        ModelConfig* config) {
  if (types.size() != config->layers.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: layer_types has {} entries, but num_hidden_layers is {}",
                      types.size(), config->layers.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention" || types[i] == "attention") continue;
    if (types[i] != "linear_attention") {
      return make_error(ErrorCode::kUnsupported,
                        "config.json: layer_types[{}] is '{}', but these layers are "
                        "full_attention or linear_attention",
                        i, types[i]);
    }
    make_delta_layer(delta, &config->layers[i]);
  }
  return {};
}

DeltaKind with_channels(int num_heads, int head_dim, int kernel) {
  return {MixerKind::kChannelDelta,
          {.num_key_heads = num_heads,
           .num_value_heads = num_heads,
           .key_head_dim = head_dim,
           .value_head_dim = head_dim,
           .conv_kernel = kernel}};
}

// ---- A decay for each key dimension -------------------------------------------------------------

// The layers of attention as older files list them, counted from 1; without a list every fourth but
// the first.
Status spread_channels(const DeltaRow& row, const JsonObject& older, const DeltaKind& delta,
                       ModelConfig* config) {
  const std::vector<double> listed = TRY(older.numbers("full_attn_layers"));
  for (size_t i = 0; i < config->layers.size(); ++i) {
    const bool is_fourth = i > 0 && static_cast<int64_t>(i) % row.interval == 0;
    const bool is_listed =
        std::find(listed.begin(), listed.end(), static_cast<double>(i + 1)) != listed.end();
    if (older.has("full_attn_layers") ? is_listed : is_fourth) continue;
    make_delta_layer(delta, &config->layers[i]);
  }
  return {};
}

Status read_channels(const DeltaRow& row, const JsonObject& json, ModelConfig* config) {
  static const boost::json::object kEmpty;
  const JsonObject older = TRY(json.object("linear_attn_config")).value_or(JsonObject(kEmpty));
  const auto size = [&](std::string_view older_key, std::string_view key,
                        int64_t fallback) -> Result<int> {
    return older.small_integer(older_key, TRY(json.small_integer(key, fallback)));
  };
  const DeltaKind delta =
      with_channels(TRY(size("num_heads", "linear_num_heads", row.num_value_heads)),
                    TRY(size("head_dim", "linear_head_dim", row.head_dim)),
                    TRY(size("short_conv_kernel_size", "linear_conv_kernel_dim", row.conv_kernel)));
  const std::vector<std::string> types = TRY(json.texts("layer_types"));
  if (!types.empty()) return spread_as_listed(delta, types, config);
  return spread_channels(row, older, delta, config);
}

// Layers of the delta rule have no heads of keys and values.
Status read_channels(const GgufKeys& keys, ModelConfig* config) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t heads = TRY(keys.integer("attention.head_count"));
  const int64_t dim = TRY(keys.integer("kda.head_dim"));
  const int64_t kernel = TRY(keys.integer("ssm.conv_kernel"));
  if (std::min({heads, dim, kernel}) < 1 || std::max({heads, dim, kernel}) > kMost) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the GGUF file has {} heads of {} and {} taps in its layers of the delta "
                      "rule, but each must be between 1 and {}",
                      heads, dim, kernel, kMost);
  }
  const DeltaKind delta =
      with_channels(static_cast<int>(heads), static_cast<int>(dim), static_cast<int>(kernel));
  const std::vector<int64_t> kv_heads =
      TRY(keys.per_layer("attention.head_count_kv", config->layers.size()));
  for (size_t i = 0; i < kv_heads.size(); ++i) {
    if (kv_heads[i] == 0) make_delta_layer(delta, &config->layers[i]);
  }
  return {};
}

}  // namespace

Status read_delta(const Family& family, const JsonObject& json, ModelConfig* config) {
  if (family.delta == nullptr) return {};
  const DeltaRow& row = *family.delta;
  if (row.channels) return read_channels(row, json, config);
  DeltaKind delta{MixerKind::kGatedDelta, {}};
  DeltaConfig& sizes = delta.config;
  sizes.num_key_heads = TRY(json.small_integer("linear_num_key_heads", row.num_key_heads));
  sizes.num_value_heads = TRY(json.small_integer("linear_num_value_heads", row.num_value_heads));
  sizes.key_head_dim = TRY(json.small_integer("linear_key_head_dim", row.head_dim));
  sizes.value_head_dim = TRY(json.small_integer("linear_value_head_dim", row.head_dim));
  sizes.conv_kernel = TRY(json.small_integer("linear_conv_kernel_dim", row.conv_kernel));
  const std::vector<std::string> types = TRY(json.texts("layer_types"));
  if (!types.empty()) return spread_as_listed(delta, types, config);
  return spread(delta, TRY(json.integer("full_attention_interval", row.interval)), config);
}

Status read_delta(const Family& family, const GgufKeys& keys, ModelConfig* config) {
  if (family.delta == nullptr) return {};
  if (family.delta->channels) return read_channels(keys, config);
  constexpr int64_t kMostHeads = 1 << 20;
  const int64_t key_heads = TRY(keys.integer("ssm.group_count"));
  const int64_t value_heads = TRY(keys.integer("ssm.time_step_rank"));
  const int64_t key_dim = TRY(keys.integer("ssm.state_size"));
  const int64_t inner = TRY(keys.integer("ssm.inner_size"));
  const int64_t kernel = TRY(keys.integer("ssm.conv_kernel"));
  for (const int64_t size : {key_heads, value_heads, key_dim, inner, kernel}) {
    if (size >= 1 && size <= kMostHeads) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "the GGUF file's {} sizes are {} key heads, {} value heads, {} and {} wide, "
                      "and {} taps, but each must be between 1 and {}",
                      family.name, key_heads, value_heads, key_dim, inner, kernel, kMostHeads);
  }
  if (inner % value_heads != 0) {
    return make_error(
        ErrorCode::kInvalidArgument, "GGUF key {} is {}, but must be a multiple of {}, which is {}",
        keys.name("ssm.inner_size"), inner, keys.name("ssm.time_step_rank"), value_heads);
  }
  const DeltaConfig sizes{.num_key_heads = static_cast<int>(key_heads),
                          .num_value_heads = static_cast<int>(value_heads),
                          .key_head_dim = static_cast<int>(key_dim),
                          .value_head_dim = static_cast<int>(inner / value_heads),
                          .conv_kernel = static_cast<int>(kernel),
                          .tiled_heads = family.delta->gguf_tiled};
  return spread({MixerKind::kGatedDelta, sizes},
                TRY(keys.integer("full_attention_interval", family.delta->interval)), config);
}

}  // namespace headrace
