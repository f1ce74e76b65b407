#include "model/config/layer_shapes.h"

#include <algorithm>
#include <charconv>

namespace headrace {
namespace {

// "05" is layer 5.
Result<size_t> layer_named(std::string_view key, size_t num_layers) {
  size_t layer = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
  if (error != std::errc() || end != key.data() + key.size() || layer >= num_layers) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: per_layer_config has an entry '{}', but there are layers 0 to "
                      "{}",
                      key, num_layers - 1);
  }
  return layer;
}

Status read_layer(const JsonObject& entry, std::string_view name, LayerConfig* layer) {
  for (const std::string_view key : entry.keys()) {
    if (key == "head_dim") {
      layer->head_dim = TRY(entry.small_integer(key, layer->head_dim));
    } else if (key == "num_key_value_heads") {
      layer->num_key_value_heads = TRY(entry.small_integer(key, layer->num_key_value_heads));
    } else {
      return make_error(
          ErrorCode::kUnsupported,
          "config.json: per_layer_config gives layer {} its own {}, but only head_dim "
          "and num_key_value_heads of a layer may be its own",
          name, key);
    }
  }
  return {};
}

// A list for each layer wins over what full layers have in common.
Status read_heads(const LayerShapesRow& row, const JsonObject& json, ModelConfig* config) {
  if (json.has("per_layer_config")) {
    const auto listed = TRY(json.object("per_layer_config"));
    if (!listed) return {};
    for (const std::string_view key : listed->keys()) {
      const size_t idx = TRY(layer_named(key, config->layers.size()));
      if (const auto entry = TRY(listed->object(key))) {
        TRY(read_layer(*entry, key, &config->layers[idx]));
      }
    }
    return {};
  }
  const int head_dim = TRY(json.small_integer("global_head_dim", row.global_head_dim, 0));
  const bool has_heads =
      TRY(json.boolean("attention_k_eq_v", false)) && json.has_value("num_global_key_value_heads");
  for (LayerConfig& layer : config->layers) {
    if (layer.sliding_window > 0) continue;
    if (head_dim > 0) layer.head_dim = head_dim;
    if (!has_heads) continue;
    layer.num_key_value_heads = TRY(json.small_integer("num_global_key_value_heads"));
  }
  return {};
}

bool same_kind(const LayerConfig& a, const LayerConfig& b) {
  return a.sliding_window == b.sliding_window;
}

// The last num_shared layers read the keys and values of the last layer of their kind before them.
Status share_keys(int64_t num_shared, ModelConfig* config) {
  const auto num_layers = static_cast<int64_t>(config->layers.size());
  if (num_shared < 0 || num_shared >= num_layers) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} layers are to read the keys and values of layers before them, but the "
                      "model has {} layers",
                      num_shared, num_layers);
  }
  const auto first = static_cast<size_t>(num_layers - num_shared);
  for (size_t i = first; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    size_t source = first;
    while (source > 0 && !same_kind(config->layers[source - 1], layer)) --source;
    if (source == 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "layer {} is to read the keys and values of an earlier layer with the same "
                        "window, but none of the first {} is one",
                        i, first);
    }
    const LayerConfig& read = config->layers[source - 1];
    layer.kv_source_layer = static_cast<int>(source - 1);
    layer.num_key_value_heads = read.num_key_value_heads;
    layer.values_are_keys = false;
  }
  return {};
}

// Experts beside the MLP of every layer.
void add_experts(const ExpertConfig& experts, ModelConfig* config) {
  for (LayerConfig& layer : config->layers) {
    layer.mlp = MlpKind::kDenseAndExperts;
    layer.experts = experts;
    layer.experts.normalise = true;
  }
}

Status read_experts(const JsonObject& json, ModelConfig* config) {
  if (!TRY(json.boolean("enable_moe_block", false))) return {};
  ExpertConfig experts;
  experts.num_experts = TRY(json.small_integer("num_experts"));
  experts.num_experts_per_token = TRY(json.small_integer("top_k_experts"));
  experts.intermediate_size = TRY(json.small_integer("moe_intermediate_size"));
  add_experts(experts, config);
  return {};
}

// A whole number far inside int; check_config says what is wrong with one out of all bounds.
Result<int> size_of(const GgufKeys& keys, std::string_view key, std::optional<int64_t> fallback) {
  return static_cast<int>(std::clamp<int64_t>(TRY(keys.integer(key, fallback)), 0, 1 << 24));
}

Status read_experts(const GgufKeys& keys, ModelConfig* config) {
  ExpertConfig experts;
  experts.num_experts = TRY(size_of(keys, "expert_count", 0));
  if (experts.num_experts == 0) return {};
  experts.num_experts_per_token = TRY(size_of(keys, "expert_used_count", {}));
  experts.intermediate_size = TRY(size_of(keys, "expert_feed_forward_length", {}));
  add_experts(experts, config);
  return {};
}

}  // namespace

Status read_layer_shapes(const LayerShapesRow& row, const JsonObject& json, ModelConfig* config) {
  TRY(read_heads(row, json, config));
  const bool values_are_keys = TRY(json.boolean("attention_k_eq_v", false));
  for (LayerConfig& layer : config->layers) {
    layer.values_are_keys = values_are_keys && layer.sliding_window == 0;
  }
  TRY(share_keys(TRY(json.integer("num_kv_shared_layers", row.num_shared)), config));
  const bool wide = TRY(json.boolean("use_double_wide_mlp", false));
  for (LayerConfig& layer : config->layers) {
    if (wide && layer.kv_source_layer >= 0) layer.intermediate_size *= 2;
  }
  TRY(read_experts(json, config));
  const bool has_none = json.is_null("hidden_size_per_layer_input");
  config->hidden_size_per_layer_input = TRY(
      json.integer("hidden_size_per_layer_input", has_none ? 0 : row.hidden_size_per_layer_input));
  config->vocab_size_per_layer_input =
      TRY(json.integer("vocab_size_per_layer_input", row.vocab_size_per_layer_input));
  return {};
}

Status read_layer_shapes(const Checkpoint& checkpoint, const GgufKeys& keys, ModelConfig* config) {
  const int window_dim =
      TRY(size_of(keys, "attention.key_length_swa", config->layers.front().head_dim));
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (layer.sliding_window > 0) layer.head_dim = window_dim;
    const auto has = [&](std::string_view name) {
      return checkpoint.find(fmt::format("blk.{}.{}.weight", i, name)) != nullptr;
    };
    layer.values_are_keys = !has("attn_v") && !has("attn_qkv");
  }
  TRY(share_keys(TRY(keys.integer("attention.shared_kv_layers", 0)), config));
  TRY(read_experts(keys, config));
  config->hidden_size_per_layer_input = TRY(keys.integer("embedding_length_per_layer_input", 0));
  const TensorView* table = checkpoint.find("per_layer_token_embd.weight");
  if (table != nullptr && table->rank == 2) config->vocab_size_per_layer_input = table->dim(0);
  return {};
}

}  // namespace headrace
