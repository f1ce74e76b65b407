#include "model/config/read_recurrent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headrace {
namespace {

Presence presence(bool required) { return required ? Presence::kRequired : Presence::kAbsent; }

// No tables for a network that rotates nothing.
void drop_unused_ropes(ModelConfig* config) {
  const auto rotates = [](const LayerConfig& layer) { return layer.rope_idx >= 0; };
  if (std::none_of(config->layers.begin(), config->layers.end(), rotates)) config->ropes.clear();
}

void make_scan_layer(const ScanConfig& scan, bool has_mlp, LayerConfig* layer) {
  clear_attention(layer);
  layer->mixer = MixerKind::kScan;
  layer->scan = scan;
  if (has_mlp) return;
  layer->mlp = MlpKind::kNone;
  layer->intermediate_size = 0;
}

// ---- config.json --------------------------------------------------------------------------------

// Whether each layer is one of attention, by a list of its types.
Result<std::vector<bool>> listed_attention(const JsonObject& json, std::string_view recurrent,
                                           size_t num_layers) {
  std::vector<std::string> types = TRY(json.texts("layer_types"));
  if (types.empty()) types = TRY(json.texts("layers_block_type"));
  std::vector<bool> attention;
  for (const std::string& type : types) {
    const bool attends = type == "full_attention" || type == "attention";
    if (!attends && type != recurrent && type != "linear_attention" && type != "mamba") {
      return make_error(ErrorCode::kUnsupported,
                        "config.json: layer_types has '{}', but these layers are full_attention or "
                        "{}",
                        type, recurrent);
    }
    attention.push_back(attends);
  }
  if (attention.empty() || attention.size() == num_layers) return attention;
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: layer_types has {} entries, but num_hidden_layers is {}",
                    attention.size(), num_layers);
}

// Without a list of types, the layers that full_attn_idxs names; without that, all.
Result<std::vector<bool>> short_conv_layers(const JsonObject& json, size_t num_layers) {
  std::vector<bool> attention = TRY(listed_attention(json, "conv", num_layers));
  if (!attention.empty()) return attention;
  if (!json.has_value("full_attn_idxs")) return std::vector<bool>(num_layers, true);
  attention.assign(num_layers, false);
  for (const double layer : TRY(json.numbers("full_attn_idxs"))) {
    const bool is_there = layer >= 0 && layer < static_cast<double>(num_layers);
    if (is_there) attention[static_cast<size_t>(layer)] = true;
  }
  return attention;
}

// The file may state a width of which the network takes two thirds, rounded up.
Result<int64_t> short_conv_mlp_width(const ShortConvRow& row, const JsonObject& json,
                                     int64_t stated) {
  if (!row.adjusts_width) return stated;
  double width = static_cast<double>(TRY(json.small_integer("block_ff_dim", stated)));
  if (!TRY(json.boolean("block_auto_adjust_ff_dim", true))) return static_cast<int64_t>(width);
  const double factor = TRY(json.number("block_ffn_dim_multiplier", 1));
  const int64_t multiple = TRY(json.small_integer("block_multiple_of", 256));
  width = std::floor(factor * std::floor(2 * width / 3));
  if (!(width >= 1 && width <= 1e7)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: block_ffn_dim_multiplier makes the MLP {} wide, but it must be "
                      "between 1 and 1e7",
                      width);
  }
  return (static_cast<int64_t>(width) + multiple - 1) / multiple * multiple;
}

Status read_short_conv(const ShortConvRow& row, const JsonObject& json, ModelConfig* config) {
  const ShortConvConfig conv{TRY(json.small_integer("conv_L_cache", row.num_taps))};
  const bool bias = TRY(json.boolean("conv_bias", false));
  config->conv_bias = config->mixer_bias = presence(bias);
  config->tie_word_embeddings = TRY(json.boolean("tie_embedding", config->tie_word_embeddings));
  const int64_t width =
      TRY(short_conv_mlp_width(row, json, config->layers.front().intermediate_size));
  const std::vector<bool> attention = TRY(short_conv_layers(json, config->layers.size()));
  for (size_t i = 0; i < attention.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (layer.mlp == MlpKind::kDense) layer.intermediate_size = width;
    if (attention[i]) continue;
    clear_attention(&layer);
    layer.mixer = MixerKind::kShortConv;
    layer.short_conv = conv;
  }
  return {};
}

// A number that may be infinite: {"__float__": "Infinity"}.
Result<float> limit_of(const boost::json::value& value) {
  if (value.is_object()) {
    const boost::json::value* text = value.get_object().if_contains("__float__");
    if (text != nullptr && text->is_string() && text->get_string() == "Infinity") {
      return std::numeric_limits<float>::infinity();
    }
  } else if (value.is_number()) {
    return value.to_number<float>();
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: time_step_limit must hold two numbers");
}

Status read_time_steps(const JsonObject& json, ScanConfig* scan) {
  if (!json.has_value("time_step_limit")) return {};
  const boost::json::value& limits = *json.find("time_step_limit");
  if (!limits.is_array() || limits.get_array().size() != 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: time_step_limit must hold two numbers");
  }
  scan->time_step_min = TRY(limit_of(limits.get_array()[0]));
  scan->time_step_max = TRY(limit_of(limits.get_array()[1]));
  return {};
}

// The inner width is a multiple of the hidden size, and the heads' together.
Status read_heads(const ScanRow& row, const JsonObject& json, int64_t hidden, ScanConfig* scan) {
  const int64_t inner = hidden * TRY(json.small_integer(row.expand_key, 2));
  const boost::json::value* stated = json.find(row.head_dim_key);
  const bool is_auto = stated == nullptr || stated->is_string();
  int64_t dim = row.head_dim;
  if (!is_auto) dim = TRY(json.small_integer(row.head_dim_key, dim));
  const int64_t fallback = dim == 0 ? 128 : std::max<int64_t>(1, inner / dim);
  scan->num_heads = TRY(json.small_integer(row.num_heads_key, fallback));
  if (dim == 0) dim = inner / scan->num_heads;
  if (dim * scan->num_heads != inner || dim > 1'000'000) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: {} heads of {} make {}, but {} times hidden_size is {}",
                      scan->num_heads, dim, dim * scan->num_heads, row.expand_key, inner);
  }
  scan->head_dim = static_cast<int>(dim);
  return {};
}

Status read_scan(const ScanRow& row, const JsonObject& json, ModelConfig* config) {
  ScanConfig scan;
  TRY(read_heads(row, json, config->hidden_size, &scan));
  scan.num_groups = TRY(json.small_integer(row.num_groups_key, row.num_groups));
  scan.state_width = TRY(json.small_integer(row.state_width_key, row.state_width));
  scan.num_taps = TRY(json.small_integer(row.num_taps_key, 4));
  TRY(read_time_steps(json, &scan));
  config->conv_bias = presence(TRY(json.boolean(row.conv_bias_key, true)));
  config->mixer_bias = presence(TRY(json.boolean(row.bias_key, false)));
  std::vector<bool> attention(config->layers.size(), false);
  bool rotates = false;
  if (row.hybrid) {
    const std::vector<bool> listed = TRY(listed_attention(json, "mamba", attention.size()));
    if (!listed.empty()) attention = listed;
    rotates = TRY(json.text("position_embedding_type", "")) == "rope";
  }
  for (size_t i = 0; i < attention.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (!rotates) layer.rope_idx = -1;
    if (!attention[i]) make_scan_layer(scan, row.hybrid, &layer);
  }
  return {};
}

// ---- GGUF ---------------------------------------------------------------------------------------

Result<int> gguf_size(const GgufKeys& keys, std::string_view key,
                      std::optional<int64_t> fallback = {}) {
  const int64_t value = TRY(keys.integer(key, fallback));
  if (value >= 1 && value <= 1'000'000'000) return static_cast<int>(value);
  return make_error(ErrorCode::kInvalidArgument,
                    "GGUF key {} is {}, but must be between 1 and 1000000000", keys.name(key),
                    value);
}

bool has_tensor(const Checkpoint& checkpoint, size_t layer, std::string_view name) {
  return checkpoint.find(fmt::format("blk.{}.{}", layer, name)) != nullptr;
}

Status read_short_conv(const ShortConvRow& row, const GgufKeys& keys, const Checkpoint& checkpoint,
                       ModelConfig* config) {
  const ShortConvConfig conv{TRY(gguf_size(keys, "shortconv.l_cache", row.num_taps))};
  config->conv_bias = config->mixer_bias = Presence::kIfPresent;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if (!has_tensor(checkpoint, i, "shortconv.in_proj.weight")) continue;
    clear_attention(&config->layers[i]);
    config->layers[i].mixer = MixerKind::kShortConv;
    config->layers[i].short_conv = conv;
  }
  return {};
}

Status read_scan(const ScanRow& row, const GgufKeys& keys, const Checkpoint& checkpoint,
                 ModelConfig* config) {
  ScanConfig scan;
  scan.num_heads = TRY(gguf_size(keys, "ssm.time_step_rank"));
  const int inner = TRY(gguf_size(keys, "ssm.inner_size"));
  if (inner % scan.num_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "GGUF key {} is {}, but must be a multiple of {}",
                      keys.name("ssm.inner_size"), inner, scan.num_heads);
  }
  scan.head_dim = inner / scan.num_heads;
  scan.num_groups = TRY(gguf_size(keys, "ssm.group_count", 1));
  scan.state_width = TRY(gguf_size(keys, "ssm.state_size"));
  scan.num_taps = TRY(gguf_size(keys, "ssm.conv_kernel"));
  config->conv_bias = config->mixer_bias = Presence::kIfPresent;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if (has_tensor(checkpoint, i, "ssm_in.weight")) {
      make_scan_layer(scan, row.hybrid, &config->layers[i]);
    }
  }
  return {};
}

}  // namespace

Status read_recurrent(const Family& family, const JsonObject& json, ModelConfig* config) {
  if (family.short_conv != nullptr) TRY(read_short_conv(*family.short_conv, json, config));
  if (family.scan != nullptr) TRY(read_scan(*family.scan, json, config));
  if (family.short_conv != nullptr || family.scan != nullptr) drop_unused_ropes(config);
  return {};
}

Status read_recurrent(const Family& family, const GgufKeys& keys, const Checkpoint& checkpoint,
                      ModelConfig* config) {
  if (family.short_conv != nullptr) {
    TRY(read_short_conv(*family.short_conv, keys, checkpoint, config));
  }
  if (family.scan != nullptr) TRY(read_scan(*family.scan, keys, checkpoint, config));
  if (family.short_conv != nullptr || family.scan != nullptr) drop_unused_ropes(config);
  return {};
}

}  // namespace headrace
