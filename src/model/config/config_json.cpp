// config.json to ModelConfig. Both generations of keys give the same configuration; a list of layer
// types wins over every rule.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "model/config/check_config.h"
#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/config/json_object.h"
#include "model/config/layer_shapes.h"
#include "model/config/read_delta.h"
#include "model/config/read_experts.h"
#include "model/config/read_form.h"
#include "model/config/read_latent.h"
#include "model/config/read_prediction.h"
#include "model/config/read_recurrent.h"
#include "model/config/read_streams.h"
#include "model/config/read_xielu.h"
#include "model/config/roles.h"
#include "model/config/rope_config.h"

namespace headrace {
namespace {

// The rope dictionary of one kind of layer, and where its defaults come from.
struct RopeSource {
  std::optional<JsonObject> dict;
  const JsonObject* top = nullptr;  // null: top-level keys do not apply
  double theta = 1e4;
  int head_dim = 0;         // of the layers that have it
  double proportional = 0;  // without a dictionary: proportional, of this share
};

class ConfigReader {
 public:
  ConfigReader(const Family& family, JsonObject object) : family_(family), json_(object) {}

  Result<ModelConfig> read() {
    TRY(read_sizes());
    TRY(read_numerics());
    TRY(read_scales());
    TRY(read_windows());
    TRY(read_latent());
    if (family_.shapes != nullptr) TRY(read_layer_shapes(*family_.shapes, json_, &config_));
    TRY(read_streams(family_, json_, &config_));
    TRY(read_ropes());
    TRY(read_delta(family_, json_, &config_));
    if (family_.experts != nullptr) TRY(read_experts_json(*family_.experts, json_, &config_));
    set_latent_scales(&config_);
    TRY(read_form(family_, json_, &config_));
    TRY(read_recurrent(family_, json_, &config_));
    return std::move(config_);
  }

 private:
  Status read_sizes();
  Status read_widths();
  Status read_numerics();
  Status read_attention();
  Status read_scales();
  Status read_windows();
  Status read_latent();
  Status read_ropes();
  Status read_rope_layers();
  Result<RopeConfig> read_rope(const RopeSource& source, bool truncate);
  Result<double> read_partial(const JsonObject& dict, const JsonObject& top) const;
  RopeConfig default_yarn() const;
  Status read_rotated(const RopeSource& source, RopeConfig* rope);
  Result<Presence> bias(const BiasRule& rule);
  Result<std::vector<std::string>> layer_types();
  int head_dim_of(bool sliding) const;
  Result<bool> is_listed_sliding(size_t layer_idx, const std::string& type) const;
  Result<bool> is_sliding(size_t layer_idx);

  const Family& family_;
  JsonObject json_;
  ModelConfig config_;
  int64_t window_ = 0;
};

std::vector<float> as_floats(const std::vector<double>& numbers) {
  return {numbers.begin(), numbers.end()};
}

Status ConfigReader::read_sizes() {
  const DefaultRow& defaults = family_.defaults;
  config_.hidden_size = TRY(json_.small_integer("hidden_size"));
  config_.vocab_size = TRY(json_.integer("vocab_size", 0));  // 0: as many as the embedding has rows
  const int64_t longest = TRY(json_.integer("model_max_length", defaults.max_position_embeddings));
  config_.max_position_embeddings = TRY(json_.integer("max_position_embeddings", longest));
  LayerConfig layer;
  // Where all layers have experts it may be missing.
  const int factor = family_.form.mlp_factor;
  std::optional<int64_t> width;
  if (factor > 0) width = factor * config_.hidden_size;
  if (defaults.intermediate_size > 0) width = defaults.intermediate_size;
  if (family_.experts != nullptr) width = 0;
  const boost::json::value* stated = json_.find("intermediate_size");
  const bool has_list = stated != nullptr && stated->is_array();
  if (!has_list) {
    layer.intermediate_size =
        TRY(json_.small_integer("intermediate_size", width, family_.experts == nullptr ? 1 : 0));
  }
  const auto heads = defaults.num_attention_heads == 0
                         ? std::nullopt
                         : std::optional<int64_t>(defaults.num_attention_heads);
  layer.num_attention_heads = TRY(json_.small_integer("num_attention_heads", heads));
  const int64_t kv_heads = defaults.num_key_value_heads == 0 || json_.is_null("num_key_value_heads")
                               ? layer.num_attention_heads
                               : defaults.num_key_value_heads;
  layer.num_key_value_heads = TRY(json_.small_integer("num_key_value_heads", kv_heads));
  const std::string_view multi_query = family_.form.multi_query_key;
  if (!multi_query.empty() && TRY(json_.boolean(multi_query, true))) layer.num_key_value_heads = 1;
  const int64_t from_width = config_.hidden_size / layer.num_attention_heads;
  layer.head_dim = static_cast<int>(from_width);
  if (!defaults.head_dim_from_width) {
    const int64_t fallback = defaults.head_dim == 0 ? from_width : defaults.head_dim;
    layer.head_dim = TRY(json_.small_integer("head_dim", fallback));
  }
  const int num_layers = TRY(json_.small_integer("num_hidden_layers"));
  if (num_layers > 10'000) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: num_hidden_layers is {}, but must be at most 10000",
                      num_layers);
  }
  config_.layers.assign(static_cast<size_t>(num_layers), layer);
  return has_list ? read_widths() : Status();
}

// A width for the MLP of each layer.
Status ConfigReader::read_widths() {
  const std::vector<double> widths = TRY(json_.numbers("intermediate_size"));
  const bool whole = std::all_of(widths.begin(), widths.end(), [](double width) {
    return width >= 1 && width <= 1e6 && width == std::floor(width);
  });
  if (widths.size() != config_.layers.size() || !whole) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: intermediate_size has {} entries, but must be a whole number "
                      "up to 1000000, or one for each of {} layers",
                      widths.size(), config_.layers.size());
  }
  for (size_t i = 0; i < widths.size(); ++i) {
    config_.layers[i].intermediate_size = static_cast<int64_t>(widths[i]);
  }
  return {};
}

Result<Presence> ConfigReader::bias(const BiasRule& rule) {
  return TRY(holds(json_, rule)) ? Presence::kRequired : Presence::kAbsent;
}

Status ConfigReader::read_attention() {
  const bool normed = !family_.qk_norm_flag || TRY(json_.boolean("use_qk_norm", false));
  double clip = 0;
  if (family_.clip_qkv) {
    clip = TRY(json_.number("clip_qkv", 0));
    if (clip < 0 || (clip == 0 && json_.has_value("clip_qkv"))) {
      return make_error(ErrorCode::kInvalidArgument,
                        "config.json: clip_qkv is {}, but must be above 0 or null", clip);
    }
  }
  for (LayerConfig& layer : config_.layers) {
    layer.qk_norm = normed ? family_.qk_norm : QkNorm::kNone;
    layer.qkv_clip = static_cast<float>(clip);
    layer.value_norm = family_.value_norm;
    layer.attention_gate = family_.attention_gate;
    layer.attention_sinks = family_.attention_sinks;
  }
  return {};
}

Status ConfigReader::read_numerics() {
  const DefaultRow& defaults = family_.defaults;
  config_.norm = family_.norm;
  config_.layer_scalar = family_.layer_scalar;
  config_.norm_weight_plus_one = family_.norm_weight_plus_one;
  config_.norm_eps = static_cast<float>(TRY(json_.number(defaults.eps_key, defaults.eps)));
  TRY(read_attention());
  config_.pre_norms = family_.block->pre_norms;
  config_.post_norms = family_.block->post_norms;
  config_.parallel_block = family_.block->parallel;
  config_.qkv_bias = TRY(bias(family_.qkv_bias));
  config_.o_bias = TRY(bias(family_.o_bias));
  config_.mlp_bias = TRY(bias(family_.mlp_bias));
  config_.tie_word_embeddings = TRY(json_.boolean("tie_word_embeddings", defaults.tied));
  std::string activation(defaults.activation);
  if (!defaults.activation_key.empty()) {
    activation = TRY(json_.text(defaults.activation_key, activation));
  }
  config_.activation = TRY(activation_named(activation));
  if (TRY(json_.boolean("use_bidirectional_attention", false))) {
    return make_error(
        ErrorCode::kUnsupported,
        "config.json sets use_bidirectional_attention: this is an embedding or vision "
        "variant of {}, not a text generator",
        family_.name);
  }
  return {};
}

Status ConfigReader::read_scales() {
  const ScaleRow& scale = family_.scale;
  const auto number = [this](std::string_view key, double fallback) -> Result<double> {
    if (key.empty()) return fallback;
    return json_.number(key, fallback);
  };
  const double hidden = static_cast<double>(config_.hidden_size);
  const double embedding = scale.embedding_sqrt_hidden ? std::sqrt(hidden) : 1.0;
  config_.embedding_scale = static_cast<float>(TRY(number(scale.embedding_key, embedding)));
  config_.residual_scale = static_cast<float>(TRY(number(scale.residual_key, 1)));
  double attention = 1 / std::sqrt(static_cast<double>(config_.layers[0].head_dim));
  if (scale.attention > 0) attention = scale.attention;
  if (!scale.attention_key.empty()) attention = TRY(number(scale.attention_key, 1));
  if (!scale.attention_scalar_key.empty()) {
    attention = 1 / std::sqrt(TRY(number(scale.attention_scalar_key, scale.attention_scalar)));
  }
  const double logit = TRY(number(scale.logit_key, scale.logit_scale));
  config_.logit_scale = static_cast<float>(scale.logit_divides ? 1 / logit : logit);
  // A cap that is there but null is switched off; an absent one has the family's default.
  const auto softcap = [&](std::string_view key, double fallback) -> Result<float> {
    return static_cast<float>(TRY(json_.number(key, json_.is_null(key) ? 0 : fallback)));
  };
  float attention_softcap = 0;
  if (scale.attention_softcap > 0) {
    attention_softcap = TRY(softcap("attn_logit_softcapping", scale.attention_softcap));
  }
  for (LayerConfig& layer : config_.layers) {
    layer.attention_scale = static_cast<float>(attention);
    layer.attention_softcap = attention_softcap;
  }
  if (scale.logit_softcap_read) {
    config_.logit_softcap = TRY(softcap("final_logit_softcapping", scale.logit_softcap));
  }
  return {};
}

// Types of layers as runs, [[["global", "local"], 12]], one after the other.
Result<std::vector<std::string>> repeated_types(const JsonObject& json, size_t num_layers) {
  std::vector<std::string> types;
  const boost::json::value* runs = json.find("attention_types");
  if (runs == nullptr || !runs->is_array()) return types;
  const auto bad = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: attention_types must hold runs [[\"global\", ..], times] of {} "
                      "layers in all",
                      num_layers);
  };
  for (const boost::json::value& run : runs->get_array()) {
    if (!run.is_array() || run.get_array().size() != 2) return bad();
    const boost::json::value& names = run.get_array()[0];
    const boost::json::value& times = run.get_array()[1];
    if (!names.is_array() || !times.is_int64()) return bad();
    for (int64_t i = 0; i < times.get_int64() && types.size() <= num_layers; ++i) {
      for (const boost::json::value& name : names.get_array()) {
        if (!name.is_string()) return bad();
        types.emplace_back(name.get_string());
      }
      if (names.get_array().empty()) return bad();
    }
  }
  return types;
}

// The type of each layer as a list: the file's own, or one made of a pattern like "LLLG", whose
// last layer is always full.
Result<std::vector<std::string>> ConfigReader::layer_types() {
  std::vector<std::string> types = TRY(json_.texts("layer_types"));
  const std::string_view key = family_.window.period_key;
  const boost::json::value* pattern = key.empty() ? nullptr : json_.find(key);
  if (types.empty()) types = TRY(repeated_types(json_, config_.layers.size()));
  if (types.empty() && pattern != nullptr && pattern->is_string()) {
    const std::string letters = TRY(json_.text(key));
    for (size_t i = 0; i < config_.layers.size() && !letters.empty(); ++i) {
      const bool is_local = letters[i % letters.size()] == 'L' && i + 1 < config_.layers.size();
      types.push_back(is_local ? "sliding_attention" : "full_attention");
    }
  }
  if (!types.empty() && types.size() != config_.layers.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: layer_types has {} entries, but num_hidden_layers is {}",
                      types.size(), config_.layers.size());
  }
  return types;
}

Result<bool> ConfigReader::is_listed_sliding(size_t layer_idx, const std::string& type) const {
  if (type == "sliding_attention" || type == "local") return true;
  if (type == "full_attention" || type == "attention" || type == "global") return false;
  return make_error(ErrorCode::kUnsupported,
                    "config.json: layer_types[{}] is '{}', but {} layers are full_attention or "
                    "sliding_attention",
                    layer_idx, type, family_.name);
}

// By the family's rule, where no list says it.
Result<bool> ConfigReader::is_sliding(size_t layer_idx) {
  const auto idx = static_cast<int64_t>(layer_idx);
  const WindowRow& row = family_.window;
  if (row.rule == WindowRule::kFromLayer || row.rule == WindowRule::kEvenBelow) {
    const int64_t limit = TRY(json_.integer("max_window_layers", 28));
    return row.rule == WindowRule::kFromLayer ? idx >= limit : idx % 2 == 0 && idx < limit;
  }
  if (row.rule == WindowRule::kPeriod) {
    int64_t period = row.period;
    if (!row.period_key.empty()) period = TRY(json_.small_integer(row.period_key, period));
    return (idx + (row.full_first ? 0 : 1)) % period != 0;
  }
  return row.rule != WindowRule::kNoRopeLayers || config_.layers[layer_idx].rope_idx < 0;
}

Status ConfigReader::read_windows() {
  TRY(read_rope_layers());
  const WindowRow& row = family_.window;
  if (row.rule == WindowRule::kNone) return {};
  window_ = TRY(json_.integer("sliding_window", json_.is_null("sliding_window") ? 0 : row.window));
  const bool has_flag = row.rule != WindowRule::kAll && row.rule != WindowRule::kPeriod &&
                        row.rule != WindowRule::kListed;
  if (has_flag && !TRY(json_.boolean("use_sliding_window", false))) window_ = 0;
  if (window_ == 0) return {};
  std::vector<std::string> types;
  const bool is_all = row.rule == WindowRule::kAll || row.rule == WindowRule::kAllIfFlag;
  if (!is_all) types = TRY(layer_types());
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const bool slides = types.empty() ? TRY(is_sliding(i)) : TRY(is_listed_sliding(i, types[i]));
    if (row.last_is_full && i + 1 == config_.layers.size()) continue;
    if (slides) config_.layers[i].sliding_window = window_;
  }
  return {};
}

Status ConfigReader::read_latent() {
  if (family_.latent == nullptr) return {};
  const LatentConfig latent = TRY(read_latent_json(json_, *family_.latent));
  for (LayerConfig& layer : config_.layers) set_latent(latent, &layer);
  return {};
}

// The width that a rope rotates, but for a partial factor.
int rope_width(const LayerConfig& layer) {
  return layer.mixer == MixerKind::kLatent ? layer.latent.qk_rope_head_dim : layer.head_dim;
}

// Which layers a list or an interval of the file leaves without rope; the window rule may ask.
Status ConfigReader::read_rope_layers() {
  if (family_.rope.layers == RopeLayers::kNone) return {};
  for (LayerConfig& layer : config_.layers) layer.rope_idx = 0;
  if (family_.rope.layers != RopeLayers::kListed) return {};
  const std::vector<double> listed = TRY(json_.numbers("no_rope_layers"));
  if (!listed.empty() && listed.size() < config_.layers.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: no_rope_layers has {} entries, but num_hidden_layers is {}",
                      listed.size(), config_.layers.size());
  }
  const int interval = TRY(json_.small_integer("no_rope_layer_interval", 4));
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    // The name notwithstanding, 1 means that rope is used.
    const bool used = listed.empty() ? (static_cast<int>(i) + 1) % interval != 0 : listed[i] != 0;
    config_.layers[i].rope_idx = used ? 0 : -1;
  }
  return {};
}

// The share of head_dim that is rotated.
Result<double> ConfigReader::read_partial(const JsonObject& dict, const JsonObject& top) const {
  const RopeRow& row = family_.rope;
  double partial = 1;
  if (row.partial > 0) {
    double fallback = row.partial;
    if (!row.dims_key.empty() && top.has_value(row.dims_key)) {
      fallback = TRY(top.number(row.dims_key)) / config_.layers[0].head_dim;
    }
    partial = TRY(top.number("partial_rotary_factor", fallback));
    partial = TRY(dict.number("partial_rotary_factor", partial));
  }
  if (partial > 0 && partial <= 1) return partial;
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: partial_rotary_factor is {}, but must be above 0 and at most 1",
                    partial);
}

// What a family has that leaves its rope dictionary out.
RopeConfig ConfigReader::default_yarn() const {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.pairing = family_.rope.pairing;
  rope.rope_dims = config_.layers[0].head_dim;
  rope.rope_theta = family_.rope.theta;
  rope.factor = family_.rope.yarn_factor;
  rope.truncate = false;
  rope.max_position_embeddings = config_.max_position_embeddings;
  rope.original_max_position_embeddings = family_.rope.yarn_original;
  rope.attention_factor = rope_attention_factor(rope, {});
  return rope;
}

// The head width of layers with a window or without; of any, if there are no such layers.
int ConfigReader::head_dim_of(bool sliding) const {
  for (const LayerConfig& layer : config_.layers) {
    if ((layer.sliding_window > 0) == sliding) return rope_width(layer);
  }
  return rope_width(config_.layers[0]);
}

// How much of a head turns.
Status ConfigReader::read_rotated(const RopeSource& source, RopeConfig* rope) {
  static const boost::json::object empty;
  const JsonObject none(empty);
  const JsonObject& dict = source.dict ? *source.dict : none;
  if (rope->type == RopeType::kProportional) {
    const double share = source.dict ? 1 : source.proportional;
    const double partial = TRY(dict.number("partial_rotary_factor", share));
    rope->rope_dims = source.head_dim;
    rope->rotated_pairs = static_cast<int>(source.head_dim * std::clamp(partial, 0.0, 1.0) / 2);
    return {};
  }
  const JsonObject& top = source.top != nullptr ? *source.top : none;
  rope->rope_dims = static_cast<int>(source.head_dim * TRY(read_partial(dict, top)));
  return {};
}

// The factor of cos and sin, stated apart for short and for long sequences.
Result<double> one_mscale(const JsonObject& dict) {
  const double long_one = TRY(dict.number("long_mscale"));
  const double short_one = TRY(dict.number("short_mscale", long_one));
  if (long_one == short_one) return long_one;
  return make_error(ErrorCode::kUnsupported,
                    "config.json: short_mscale is {} and long_mscale {}, but this version runs "
                    "only models where both are the same",
                    short_one, long_one);
}

// A dynamic rope with an alpha is a longer base, whatever the length of the sequence.
Status read_stretch(const JsonObject& dict, RopeConfig* rope) {
  const double alpha = TRY(dict.number("alpha", 0));
  if (rope->type != RopeType::kDynamic || alpha == 0) return {};
  if (alpha < 1 || alpha > 1e6 || rope->rope_dims < 4) {
    return make_error(ErrorCode::kInvalidArgument,
                      "config.json: alpha is {} for {} rotated dimensions, but must be between 1 "
                      "and 1e6 for at least 4",
                      alpha, rope->rope_dims);
  }
  rope->type = RopeType::kDefault;
  rope->rope_theta *= std::pow(alpha, rope->rope_dims / (rope->rope_dims - 2.0));
  return {};
}

Result<RopeConfig> ConfigReader::read_rope(const RopeSource& source, bool truncate) {
  static const boost::json::object empty;
  const JsonObject none(empty);
  const JsonObject& dict = source.dict ? *source.dict : none;
  const JsonObject& top = source.top != nullptr ? *source.top : none;
  RopeConfig rope;
  rope.pairing = family_.rope.pairing;
  if (family_.latent != nullptr && !family_.latent->interleave_key.empty() &&
      !TRY(json_.boolean(family_.latent->interleave_key, true))) {
    rope.pairing = RopePairing::kHalf;
  }
  const bool proportional = !source.dict && source.proportional > 0;
  std::string type = TRY(dict.text("type", proportional ? "proportional" : "default"));
  type = TRY(dict.text("rope_type", type));
  rope.type = TRY(rope_type_named(type));
  if (family_.rope.yarn_is_longrope && rope.type == RopeType::kYarn) {
    rope.type = RopeType::kLongrope;
  }
  rope.truncate = truncate;
  const double top_theta = TRY(top.number("rope_theta", source.theta));
  rope.rope_theta = TRY(dict.number("rope_theta", top_theta));
  TRY(read_rotated(source, &rope));
  rope.max_position_embeddings = config_.max_position_embeddings;
  TRY(read_stretch(dict, &rope));
  // A top-level original length overrides the dictionary's.
  int64_t original =
      TRY(dict.integer("original_max_position_embeddings", config_.max_position_embeddings));
  if (family_.rope.original != 0) original = family_.rope.original;
  original = TRY(json_.integer("original_max_position_embeddings", original));
  rope.original_max_position_embeddings = original;
  const double ratio = static_cast<double>(config_.max_position_embeddings) /
                       static_cast<double>(std::max<int64_t>(original, 1));
  const bool has_ratio = rope.type == RopeType::kYarn || rope.type == RopeType::kLongrope;
  if (rope.type != RopeType::kDefault) {
    std::optional<double> factor;
    if (has_ratio) factor = ratio;
    if (rope.type == RopeType::kProportional) factor = 1;
    rope.factor = TRY(dict.number("factor", factor));
  }
  if (rope.type == RopeType::kLlama3) {
    rope.low_freq_factor = TRY(dict.number("low_freq_factor"));
    rope.high_freq_factor = TRY(dict.number("high_freq_factor"));
  }
  const double fast = TRY(dict.number("beta_fast", 0));
  const double slow = TRY(dict.number("beta_slow", 0));
  rope.beta_fast = fast == 0 ? 32 : fast;
  rope.beta_slow = slow == 0 ? 1 : slow;
  rope.short_factor = as_floats(TRY(dict.numbers("short_factor")));
  rope.long_factor = as_floats(TRY(dict.numbers("long_factor")));
  RopeMscale mscale;
  mscale.attention_factor = TRY(dict.number("attention_factor", 0));
  mscale.mscale = TRY(dict.number("mscale", 0));
  mscale.mscale_all_dim = TRY(dict.number("mscale_all_dim", 0));
  if (dict.has_value("long_mscale")) mscale.attention_factor = TRY(one_mscale(dict));
  rope.attention_factor = rope_attention_factor(rope, mscale);
  rope.mscale_all_dim = mscale.mscale_all_dim;
  return rope;
}

Status ConfigReader::read_ropes() {
  const RopeRow& row = family_.rope;
  if (row.layers == RopeLayers::kNone) return {};
  std::optional<JsonObject> dict = TRY(json_.object("rope_scaling"));
  if (!dict || dict->empty()) dict = TRY(json_.object("rope_parameters"));
  if (row.required && !dict) {
    return make_error(ErrorCode::kNotFound, "config.json has no rope_parameters, which {} needs",
                      family_.name);
  }
  RopeSource full{dict, &json_, row.theta, head_dim_of(false), row.proportional};
  RopeSource sliding{std::nullopt, nullptr, row.sliding_theta, head_dim_of(true)};
  if (row.per_layer_type && !row.sliding_key.empty()) {
    sliding.theta = TRY(json_.number(row.sliding_key, row.sliding_theta));
  }
  if (dict && (dict->has("full_attention") || dict->has("sliding_attention"))) {
    full.dict = TRY(dict->object("full_attention"));
    sliding.dict = TRY(dict->object("sliding_attention"));
  }
  // Yarn's truncate is read beside the layer types, never inside one.
  const bool truncate = dict ? TRY(dict->boolean("truncate", true)) : true;
  const bool is_left_out = !dict && row.yarn_factor > 0;
  config_.ropes.push_back(is_left_out ? default_yarn() : TRY(read_rope(full, truncate)));
  if (row.per_layer_type) config_.ropes.push_back(TRY(read_rope(sliding, truncate)));
  for (LayerConfig& layer : config_.layers) {
    const bool is_window = layer.sliding_window > 0;
    const bool all = row.layers == RopeLayers::kSlidingIfWindow && window_ == 0;
    const bool by_window =
        row.layers == RopeLayers::kSliding || row.layers == RopeLayers::kSlidingIfWindow;
    if (by_window && !is_window && !all) layer.rope_idx = -1;
    if (row.per_layer_type && is_window) layer.rope_idx = 1;
  }
  if (row.position_scale && dict) {
    config_.query_position_beta = static_cast<float>(TRY(dict->number("llama_4_scaling_beta", 0)));
    config_.query_position_original = config_.ropes[0].original_max_position_embeddings;
  }
  return {};
}

Status append_ids(const JsonObject& json, std::string_view key, std::vector<int32_t>* ids) {
  if (!json.has_value(key)) return {};
  std::vector<double> values;
  if (json.find(key)->is_array()) {
    values = TRY(json.numbers(key));
  } else {
    values.push_back(TRY(json.number(key)));
  }
  for (double value : values) {
    if (value < 0 || value > 0x7FFFFFFF || value != std::floor(value)) continue;
    const auto id = static_cast<int32_t>(value);
    if (std::find(ids->begin(), ids->end(), id) == ids->end()) ids->push_back(id);
  }
  return {};
}

// End-of-generation ids: the configuration names one or more, generation_config.json often more.
Status read_special_ids(const Checkpoint& checkpoint, const JsonObject& json, ModelConfig* config) {
  TRY(append_ids(json, "eos_token_id", &config->eos_token_ids));
  std::vector<int32_t> bos;
  TRY(append_ids(json, "bos_token_id", &bos));
  if (!bos.empty()) config->bos_token_id = bos.front();
  const std::optional<std::string> text = checkpoint.sidecar("generation_config.json");
  if (!text) return {};
  constexpr std::string_view kFile = "generation_config.json";
  const boost::json::value generation = TRY(parse_json_object(*text, kFile));
  return append_ids(JsonObject(generation.get_object(), nullptr, kFile), "eos_token_id",
                    &config->eos_token_ids);
}

// Rows of the embedding stand in for a vocab_size that the file leaves to its class.
int64_t embedding_rows(const Checkpoint& checkpoint, const ModelConfig& config) {
  const RoleRow& row = role_row(Role::kEmbedding);
  const RoleNames names = role_names(config, row, row.parts[0]);
  for (const NamePrefix& prefix : name_prefixes(checkpoint.kind(), &family_named(config.family))) {
    for (const std::string_view name : names.in(checkpoint.kind())) {
      const TensorView* table = checkpoint.find(fmt::format("{}{}.weight", prefix.body, name));
      if (table != nullptr && table->rank == 2) return table->dim(0);
    }
  }
  return 0;
}

}  // namespace

Result<ModelConfig> read_config_json(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.sidecar("config.json");
  if (!text) {
    return make_error(ErrorCode::kNotFound, "no config.json beside the weights of {}",
                      checkpoint.path());
  }
  const boost::json::value root = TRY(parse_json_object(*text, "config.json"));
  const JsonObject outer(root.get_object());
  std::string model_type = TRY(outer.text("model_type", ""));
  JsonObject inner = outer;
  // A multimodal wrapper keeps the language model's settings one level down.
  if (const auto nested = TRY(outer.object("text_config"))) {
    inner = JsonObject(root.get_object().at("text_config").get_object(), &root.get_object());
    model_type = TRY(nested->text("model_type", model_type));
  }
  if (model_type.empty()) {
    return make_error(ErrorCode::kNotFound, "config.json has no model_type, which is needed");
  }
  const Family* family = TRY(find_family(model_type, inner));
  if (family == nullptr) return unknown_family_error(model_type, checkpoint);
  inner = inner.with_names(family->form.keys);
  ModelConfig config = TRY(ConfigReader(*family, inner).read());
  config.family = family->name;
  const std::vector<std::string> architectures = TRY(outer.texts("architectures"));
  config.architecture = architectures.empty() ? model_type : architectures.front();
  config.source_dtype = TRY(inner.text("torch_dtype", "float32"));
  config.source_dtype = TRY(inner.text("dtype", config.source_dtype));
  if (config.vocab_size == 0) config.vocab_size = embedding_rows(checkpoint, config);
  TRY(read_special_ids(checkpoint, inner, &config));
  TRY(read_xielu(checkpoint, &config));
  if (family->prediction != nullptr) {
    config.num_nextn_predict_layers = TRY(inner.small_integer("num_nextn_predict_layers", 0, 0));
  }
  read_prediction(checkpoint, &config);
  TRY(check_config(config));
  return config;
}

}  // namespace headrace
