// GGUF keys to ModelConfig: what the file says, and what its architecture implies because
// converters leave it out.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "model/config/check_config.h"
#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/config/gguf_keys.h"
#include "model/config/layer_shapes.h"
#include "model/config/read_delta.h"
#include "model/config/read_experts.h"
#include "model/config/read_form.h"
#include "model/config/read_latent.h"
#include "model/config/read_prediction.h"
#include "model/config/read_recurrent.h"
#include "model/config/read_streams.h"
#include "model/config/read_xielu.h"
#include "model/config/rope_config.h"

namespace headrace {
namespace {

class GgufReader {
 public:
  GgufReader(const Family& family, const Checkpoint& checkpoint)
      : family_(family),
        checkpoint_(checkpoint),
        metadata_(checkpoint.metadata()),
        keys_(checkpoint.metadata(), family.gguf.architecture) {}

  Result<ModelConfig> read() {
    TRY(read_sizes());
    TRY(read_head_sizes());
    TRY(read_latent());
    read_numerics();
    read_scales();
    TRY(read_windows());
    if (family_.shapes != nullptr) TRY(read_layer_shapes(checkpoint_, keys_, &config_));
    TRY(read_streams(family_, keys_, checkpoint_, &config_));
    TRY(read_ropes());
    TRY(read_delta(family_, keys_, &config_));
    if (family_.experts != nullptr) {
      TRY(read_experts_gguf(*family_.experts, keys_, checkpoint_, &config_));
    }
    set_latent_scales(&config_);
    read_form(family_, checkpoint_, &config_);
    TRY(read_recurrent(family_, keys_, checkpoint_, &config_));
    return std::move(config_);
  }

 private:
  Result<std::vector<float>> factors(std::string_view name) const;
  Status read_sizes();
  Result<int64_t> read_head_dim(int64_t num_heads) const;
  Status read_latent();
  Status read_head_sizes();
  void read_numerics();
  void read_scales();
  Status read_windows();
  Status read_ropes();
  Result<RopeConfig> read_rope();

  const Family& family_;
  const Checkpoint& checkpoint_;
  const Metadata& metadata_;
  GgufKeys keys_;
  ModelConfig config_;
  int64_t window_ = 0;
};

Status GgufReader::read_sizes() {
  config_.hidden_size = TRY(keys_.integer("embedding_length"));
  config_.max_position_embeddings =
      TRY(keys_.integer("context_length", family_.defaults.max_position_embeddings));
  // Prediction heads are appended as layers; they are not run.
  const int64_t appended = TRY(keys_.integer("nextn_predict_layers", 0));
  const int64_t num_blocks = TRY(keys_.integer("block_count"));
  if (num_blocks < 1 || num_blocks > 10'000 || appended < 0 || appended >= num_blocks) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "GGUF key {} is {} with {} of them appended, but 1 to 10000 layers are needed",
        keys_.name("block_count"), num_blocks, appended);
  }
  const int64_t num_layers = num_blocks - appended;
  config_.num_nextn_predict_layers = static_cast<int>(appended);
  config_.layers.resize(static_cast<size_t>(num_layers));
  const TensorView* table = checkpoint_.find("token_embd.weight");
  if (table == nullptr || table->rank != 2) {
    return make_error(ErrorCode::kNotFound, "the GGUF file has no matrix token_embd.weight");
  }
  config_.vocab_size = table->dim(0);  // the token list may be longer or shorter
  config_.tie_word_embeddings = checkpoint_.find("output.weight") == nullptr;
  return {};
}

Result<int64_t> GgufReader::read_head_dim(int64_t num_heads) const {
  const int64_t head_dim = TRY(
      keys_.integer("attention.key_length", num_heads == 0 ? 1 : config_.hidden_size / num_heads));
  const int64_t value_dim = TRY(keys_.integer("attention.value_length", head_dim));
  if (value_dim == head_dim && head_dim >= 1 && head_dim <= 4096) return head_dim;
  return make_error(ErrorCode::kUnsupported,
                    "the GGUF file's keys have {} and its values {} dimensions per head, but both "
                    "must be the same number up to 4096",
                    head_dim, value_dim);
}

Status GgufReader::read_latent() {
  if (family_.latent == nullptr) return {};
  const LatentConfig latent = TRY(read_latent_gguf(keys_, *family_.latent));
  for (LayerConfig& layer : config_.layers) set_latent(latent, &layer);
  return {};
}

Status GgufReader::read_head_sizes() {
  const std::vector<int64_t> heads =
      TRY(keys_.per_layer("attention.head_count", config_.layers.size()));
  const std::vector<int64_t> kv_heads =
      TRY(keys_.per_layer("attention.head_count_kv", config_.layers.size(), -1));
  const std::vector<int64_t> widths =
      TRY(keys_.per_layer("feed_forward_length", config_.layers.size()));
  // Layers of another kind than attention have no key-value heads, and some no MLP; networks of
  // such layers alone have no heads.
  const bool is_mixed = family_.short_conv != nullptr || family_.scan != nullptr;
  const int64_t least = is_mixed ? 0 : 1;
  if (heads.front() < least || heads.front() > 4096) {
    return make_error(ErrorCode::kInvalidArgument,
                      "GGUF key {} is {}, but must be between {} and 4096",
                      keys_.name("attention.head_count"), heads.front(), least);
  }
  const int64_t head_dim = family_.latent != nullptr ? 0 : TRY(read_head_dim(heads.front()));
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    LayerConfig& layer = config_.layers[i];
    const int64_t kv = kv_heads[i] == -1 ? heads[i] : kv_heads[i];
    const int64_t least_kv = family_.delta != nullptr ? 0 : least;  // of layers of another kind
    if (kv < least_kv || kv > heads[i] || heads[i] > 4096 || widths[i] < least) {
      return make_error(ErrorCode::kUnsupported,
                        "layer {} of the GGUF file has {} heads, {} key-value heads and MLP width "
                        "{}, but every layer needs attention and an MLP",
                        i, heads[i], kv, widths[i]);
    }
    layer.num_attention_heads = static_cast<int>(heads[i]);
    layer.num_key_value_heads = static_cast<int>(kv);
    layer.head_dim = static_cast<int>(head_dim);
    layer.intermediate_size = widths[i];
  }
  return {};
}

void GgufReader::read_numerics() {
  config_.norm = family_.norm;
  // Some converters write the key of the other kind.
  const bool rms = family_.norm == NormKind::kRms;
  constexpr std::string_view kRmsKey = "attention.layer_norm_rms_epsilon";
  constexpr std::string_view kLayerKey = "attention.layer_norm_epsilon";
  const double eps = keys_.number(rms ? kLayerKey : kRmsKey, family_.defaults.eps);
  config_.norm_eps = static_cast<float>(keys_.number(rms ? kRmsKey : kLayerKey, eps));
  config_.layer_scalar = family_.layer_scalar;
  const bool normed =
      !family_.qk_norm_flag || checkpoint_.find("blk.0.attn_q_norm.weight") != nullptr;
  for (LayerConfig& layer : config_.layers) {
    layer.qk_norm = normed ? family_.qk_norm : QkNorm::kNone;
    layer.value_norm = family_.value_norm;
    layer.attention_gate = family_.attention_gate;
    layer.attention_sinks = family_.attention_sinks;
    if (family_.clip_qkv) {
      layer.qkv_clip = static_cast<float>(keys_.number("attention.clamp_kqv", 0));
    }
  }
  config_.pre_norms = family_.block->pre_norms;
  config_.post_norms = family_.block->post_norms;
  config_.parallel_block = family_.block->parallel;
  config_.qkv_bias = config_.o_bias = config_.mlp_bias = Presence::kIfPresent;
  config_.permuted_qk = family_.gguf.permuted;
  const Result<Activation> activation = activation_named(family_.defaults.activation);
  config_.activation = activation.value();
}

void GgufReader::read_scales() {
  const ScaleRow& scale = family_.scale;
  const LayerConfig& layer = config_.layers.front();
  const auto hidden = static_cast<double>(config_.hidden_size);
  double embedding = scale.embedding_sqrt_hidden ? std::sqrt(hidden) : 1;
  if (!scale.embedding_key.empty()) embedding = keys_.number("embedding_scale", 1);
  config_.embedding_scale = static_cast<float>(embedding);
  if (!scale.residual_key.empty()) {
    config_.residual_scale = static_cast<float>(keys_.number("residual_scale", 1));
  }
  double attention = 1 / std::sqrt(static_cast<double>(layer.head_dim));
  if (config_.num_layers() == family_.gguf.wide_scale_layers) {
    attention = 1 / std::sqrt(hidden / layer.num_attention_heads);
  }
  if (scale.attention > 0) attention = scale.attention;
  attention = keys_.number("attention.scale", attention);
  if (!scale.logit_key.empty()) {
    const double logit = keys_.number("logit_scale", scale.logit_scale);
    config_.logit_scale = static_cast<float>(scale.logit_divides ? 1 / logit : logit);
  }
  double softcap = 0;
  if (scale.attention_softcap > 0) {
    softcap = keys_.number("attn_logit_softcapping", scale.attention_softcap);
  }
  for (LayerConfig& each : config_.layers) {
    each.attention_scale = static_cast<float>(attention);
    each.attention_softcap = static_cast<float>(softcap);
  }
  if (scale.logit_softcap_read) {
    config_.logit_softcap =
        static_cast<float>(keys_.number("final_logit_softcapping", scale.logit_softcap));
  }
}

Status GgufReader::read_windows() {
  const WindowRow& row = family_.window;
  const GgufRow& gguf = family_.gguf;
  if (row.rule == WindowRule::kNone) return {};
  const bool deep = gguf.window_layers == 0 || config_.num_layers() == gguf.window_layers;
  window_ =
      TRY(keys_.integer("attention.sliding_window", gguf.default_window && deep ? row.window : 0));
  if (window_ <= 0) return {};
  // The period is a number, the row's own, or spelled out as one flag per layer.
  int64_t period = row.period;
  std::vector<int64_t> flags;
  if (const auto pattern = metadata_.integers(keys_.name("attention.sliding_window_pattern"))) {
    if (pattern->size() == 1) {
      period = pattern->front();
    } else if (pattern->size() >= config_.layers.size()) {
      flags = *pattern;
    }
  }
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    bool slides = row.rule == WindowRule::kAll || row.rule == WindowRule::kAllIfFlag;
    if (period > 0) slides = static_cast<int64_t>(i) % period < period - 1;
    if (!flags.empty()) slides = flags[i] != 0;
    if (row.last_is_full && i + 1 == config_.layers.size()) slides = false;
    if (slides) config_.layers[i].sliding_window = window_;
  }
  return {};
}

Result<std::vector<float>> GgufReader::factors(std::string_view name) const {
  const TensorView* tensor = checkpoint_.find(name);
  std::vector<float> values;
  if (tensor == nullptr) return values;
  const int64_t count = tensor->num_elements();
  if (tensor->dtype != DType::kF32 || count < 1 || count > 4096) {
    return make_error(ErrorCode::kUnsupported,
                      "tensor {} is {} {}, but must hold 1 to 4096 numbers of F32", name,
                      dtype_name(tensor->dtype), tensor->shape_string());
  }
  values.resize(static_cast<size_t>(count));
  dtype_row(tensor->dtype).dequantise(tensor->data, count, values.data());
  return values;
}

Result<RopeConfig> GgufReader::read_rope() {
  RopeConfig rope;
  rope.pairing = family_.rope.pairing;
  const auto sections = metadata_.integers(keys_.name("rope.dimension_sections"));
  const bool has_sections =
      sections && std::any_of(sections->begin(), sections->end(), [](int64_t n) { return n != 0; });
  if (has_sections && family_.gguf.sections_mean_half) rope.pairing = RopePairing::kHalf;
  const auto full = std::find_if(config_.layers.begin(), config_.layers.end(),
                                 [](const LayerConfig& l) { return l.sliding_window == 0; });
  const int head_dim = (full == config_.layers.end() ? config_.layers.front() : *full).head_dim;
  rope.rope_dims = static_cast<int>(
      std::clamp<int64_t>(TRY(keys_.integer("rope.dimension_count", head_dim)), 0, 1 << 20));
  if (family_.gguf.permuted && (rope.rope_dims != head_dim || head_dim % 2 != 0)) {
    return make_error(ErrorCode::kUnsupported,
                      "GGUF key {} is {}, but {} files need the even head size, which is {}",
                      keys_.name("rope.dimension_count"), rope.rope_dims, family_.gguf.architecture,
                      head_dim);
  }
  rope.rope_theta = keys_.number("rope.freq_base", 1e4);
  rope.factor = keys_.number("rope.scaling.factor", keys_.number("rope.scale_linear", 1));
  if (rope.factor == 0) rope.factor = 1;
  const std::string_view type = metadata_.text(keys_.name("rope.scaling.type"))
                                    .value_or(rope.factor == 1 ? "none" : "linear");
  rope.type = TRY(rope_type_named(type));
  if (rope.type == RopeType::kDefault) rope.factor = 1;
  rope.max_position_embeddings = config_.max_position_embeddings;
  rope.original_max_position_embeddings =
      TRY(keys_.integer("rope.scaling.original_context_length", config_.max_position_embeddings));
  rope.beta_fast = keys_.number("rope.scaling.yarn_beta_fast", 32);
  rope.beta_slow = keys_.number("rope.scaling.yarn_beta_slow", 1);
  rope.truncate = family_.rope.yarn_factor == 0;
  rope.frequency_divisor = TRY(factors("rope_freqs.weight"));
  rope.short_factor = TRY(factors("rope_factors_short.weight"));
  rope.long_factor = TRY(factors("rope_factors_long.weight"));
  RopeMscale mscale;
  if (!rope.long_factor.empty()) {
    rope.type = RopeType::kLongrope;
    mscale.attention_factor = keys_.number("rope.scaling.attn_factor", 0);
    rope.factor = static_cast<double>(config_.max_position_embeddings) /
                  static_cast<double>(std::max<int64_t>(rope.original_max_position_embeddings, 1));
  } else {
    mscale.attention_factor = keys_.number("rope.scaling.yarn_attn_factor", 0);
    mscale.mscale_all_dim = keys_.number("rope.scaling.yarn_log_multiplier", 0);
    mscale.mscale = mscale.mscale_all_dim == 0 ? 0 : 1;
    // Converters write a tenth of it here, and leave out mscale, which is the same number.
    if (family_.latent != nullptr) {
      mscale.mscale = mscale.mscale_all_dim = rope.mscale_all_dim = 10 * mscale.mscale_all_dim;
    }
  }
  rope.attention_factor = rope_attention_factor(rope, mscale);
  return rope;
}

Status GgufReader::read_ropes() {
  const RopeRow& row = family_.rope;
  if (row.layers == RopeLayers::kNone || family_.form.alibi.on.value) return {};
  const GgufRow& gguf = family_.gguf;
  const RopeConfig full = TRY(read_rope());
  config_.ropes.push_back(full);
  if (row.per_layer_type) {
    RopeConfig sliding;
    sliding.pairing = full.pairing;
    sliding.rope_dims = static_cast<int>(std::clamp<int64_t>(
        TRY(keys_.integer("rope.dimension_count_swa", full.rope_dims)), 0, 1 << 20));
    sliding.rope_theta = keys_.number(
        "rope.freq_base_swa", gguf.sliding_theta_is_base ? full.rope_theta : row.sliding_theta);
    config_.ropes.push_back(sliding);
  }
  const bool finetuned = metadata_.boolean(keys_.name("rope.scaling.finetuned")).value_or(true);
  const bool off = gguf.finetuned_rope && !finetuned;
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    LayerConfig& layer = config_.layers[i];
    const bool is_window = layer.sliding_window > 0;
    const bool all = row.layers == RopeLayers::kAll ||
                     (row.layers == RopeLayers::kSlidingIfWindow && window_ <= 0);
    const bool listed = row.layers == RopeLayers::kListed && (i + 1) % 4 != 0;
    const bool by_window = row.layers != RopeLayers::kListed && is_window;
    layer.rope_idx = !off && (all || listed || by_window) ? 0 : -1;
    if (row.per_layer_type && is_window) layer.rope_idx = 1;
  }
  if (row.position_scale) {
    config_.query_position_beta =
        static_cast<float>(keys_.number("attention.temperature_scale", 0));
    config_.query_position_original = full.original_max_position_embeddings;
  }
  return {};
}

// The storage format that holds most of the file's bytes.
std::string main_dtype(const Checkpoint& checkpoint) {
  std::map<DType, size_t> bytes;
  for (const std::string& name : checkpoint.names()) {
    const TensorView* tensor = checkpoint.find(name);
    if (tensor != nullptr) bytes[tensor->dtype] += tensor->num_bytes;
  }
  const auto largest = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == bytes.end() ? "" : std::string(dtype_name(largest->first));
}

void read_special_ids(const Metadata& metadata, ModelConfig* config) {
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = metadata.integer(key);
    if (!id || *id < 0 || *id >= config->vocab_size) continue;
    config->eos_token_ids.push_back(static_cast<int32_t>(*id));
  }
  const auto bos = metadata.integer("tokenizer.ggml.bos_token_id");
  if (bos && *bos >= 0 && *bos < config->vocab_size) {
    config->bos_token_id = static_cast<int32_t>(*bos);
  }
}

}  // namespace

Result<ModelConfig> read_config_gguf(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  const std::string_view kind = metadata.text("general.type").value_or("model");
  if (kind != "model") {
    return make_error(ErrorCode::kUnsupported,
                      "the GGUF file is of type '{}', but a model is needed", kind);
  }
  const auto architecture = metadata.text("general.architecture");
  if (!architecture) {
    return make_error(ErrorCode::kNotFound, "the GGUF file has no key general.architecture");
  }
  const std::string prefix(*architecture);
  const int64_t window = metadata.integer(prefix + ".attention.sliding_window").value_or(0);
  const int64_t num_experts = metadata.integer(prefix + ".expert_count").value_or(0);
  const Family* family =
      find_family_by_gguf(*architecture, window > 0, num_experts > 0, &checkpoint);
  if (family == nullptr) return unknown_family_error(*architecture, checkpoint);
  const bool may_have = family->experts != nullptr || family->shapes != nullptr;
  if (num_experts > 0 && !may_have) {
    return make_error(
        ErrorCode::kUnsupported,
        "this GGUF file has {} experts per layer, but {} networks have none in this version",
        num_experts, family->name);
  }
  if (!metadata.boolean(prefix + ".attention.causal").value_or(true)) {
    return make_error(ErrorCode::kUnsupported,
                      "the GGUF file's attention is not causal: it is no text generator");
  }
  ModelConfig config = TRY(GgufReader(*family, checkpoint).read());
  config.family = family->name;
  config.architecture = prefix;
  config.source_dtype = main_dtype(checkpoint);
  read_special_ids(metadata, &config);
  TRY(read_xielu(checkpoint, &config));
  read_prediction(checkpoint, &config);
  TRY(check_config(config));
  return config;
}

}  // namespace headrace
