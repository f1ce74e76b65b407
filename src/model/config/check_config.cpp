#include "model/config/check_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/config/roles.h"

namespace headrace {
namespace {

struct Range {
  std::string_view field;
  double value, low, high;
};

// The bounds keep every product of sizes far inside 64 bits; no published model is near them.
Status check_ranges(std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;  // NaN fails
    return make_error(ErrorCode::kInvalidArgument,
                      "the model's {} is {}, but must be between {} and {}", range.field,
                      range.value, range.low, range.high);
  }
  return {};
}

Status check_attention(const LayerConfig& layer, int num_ropes) {
  TRY(check_ranges({
      {"num_attention_heads", static_cast<double>(layer.num_attention_heads), 1, 4096},
      {"num_key_value_heads", static_cast<double>(layer.num_key_value_heads), 1, 4096},
      {"head_dim", static_cast<double>(layer.head_dim), 1, kMaxHeadDim},
      {"sliding_window", static_cast<double>(layer.sliding_window), 0, 1e12},
      {"attention scale", layer.attention_scale, -1e6, 1e6},
      {"attention softcap", layer.attention_softcap, 0, 1e9},
      {"clip_qkv", layer.qkv_clip, 0, 1e30},
  }));
  if (layer.num_attention_heads % layer.num_key_value_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "num_attention_heads is {}, but must be a multiple of num_key_value_heads, "
                      "which is {}",
                      layer.num_attention_heads, layer.num_key_value_heads);
  }
  CHECK(layer.rope_idx < num_ropes);
  return {};
}

Status check_index(const LatentConfig& latent) {
  if (latent.index_n_heads == 0) return {};
  TRY(check_ranges({
      {"index_n_heads", static_cast<double>(latent.index_n_heads), 1, kMaxIndexHeads},
      {"index_head_dim", static_cast<double>(latent.index_head_dim), 1, kMaxHeadDim},
      {"index_topk", static_cast<double>(latent.index_topk), 1, 8192},
      {"q_lora_rank", static_cast<double>(latent.q_lora_rank), 1, 1e5},
  }));
  return check_ranges({{"qk_rope_head_dim", static_cast<double>(latent.qk_rope_head_dim), 0,
                        static_cast<double>(latent.index_head_dim)}});
}

Status check_latent(const LayerConfig& layer, int num_ropes) {
  const LatentConfig& latent = layer.latent;
  TRY(check_ranges({
      {"num_attention_heads", static_cast<double>(layer.num_attention_heads), 1, 4096},
      {"attention scale", layer.attention_scale, -1e6, 1e6},
      {"q_lora_rank", static_cast<double>(latent.q_lora_rank), 0, 1e5},
      {"kv_lora_rank", static_cast<double>(latent.kv_lora_rank), 1, kMaxRowWidth},
      {"qk_nope_head_dim", static_cast<double>(latent.qk_nope_head_dim), 1, 4096},
      {"qk_rope_head_dim", static_cast<double>(latent.qk_rope_head_dim), 0, kMaxRowWidth},
      {"v_head_dim", static_cast<double>(latent.v_head_dim), 1, 4096},
      {"latent and rotated width", static_cast<double>(latent.width()), 1, kMaxRowWidth},
  }));
  CHECK(layer.rope_idx < num_ropes);
  return check_index(latent);
}

// The width that a rope of the layer may rotate.
int rope_limit(const LayerConfig& layer) {
  if (layer.mixer == MixerKind::kLatent) return layer.latent.qk_rope_head_dim;
  return layer.mixer == MixerKind::kAttention ? layer.head_dim : kMaxHeadDim;
}

Status check_groups(const ExpertConfig& experts) {
  TRY(check_ranges({{"number of expert groups", static_cast<double>(experts.num_groups), 1,
                     static_cast<double>(experts.num_experts)}}));
  TRY(check_ranges({{"number of kept expert groups", static_cast<double>(experts.num_groups_kept),
                     1, static_cast<double>(experts.num_groups)}}));
  const int of_group = experts.num_experts / experts.num_groups;
  if (experts.num_experts % experts.num_groups != 0 ||
      of_group * experts.num_groups_kept < experts.num_experts_per_token) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} of {} groups of {} experts are kept, but groups must be of equal size "
                      "and hold the {} experts of a token",
                      experts.num_groups_kept, experts.num_groups, experts.num_experts,
                      experts.num_experts_per_token);
  }
  return {};
}

Status check_experts(const ExpertConfig& experts) {
  TRY(check_ranges({{"num_experts", static_cast<double>(experts.num_experts), 1,
                     static_cast<double>(kMaxExperts)}}));
  TRY(check_ranges({
      {"num_experts_per_token", static_cast<double>(experts.num_experts_per_token), 1,
       static_cast<double>(experts.num_experts)},
      {"expert width", static_cast<double>(experts.intermediate_size), 1, 1e7},
      {"shared expert width", static_cast<double>(experts.shared_intermediate_size), 0, 1e7},
      {"epsilon of expert weights", experts.normalise_epsilon, 0, 1},
      {"scale of expert weights", experts.scale, -1e6, 1e6},
      {"router_jitter_noise", experts.jitter, 0, 1},
      {"swiglu_alpha", experts.swiglu_alpha, -1e6, 1e6},
      {"swiglu_limit", experts.swiglu_limit, 0, 1e30},
  }));
  return check_groups(experts);
}

Status check_delta(const DeltaConfig& delta) {
  TRY(check_ranges({
      {"linear_num_key_heads", static_cast<double>(delta.num_key_heads), 1, 4096},
      {"linear_num_value_heads", static_cast<double>(delta.num_value_heads), 1, 4096},
      {"linear_key_head_dim", static_cast<double>(delta.key_head_dim), 1, kMaxDeltaDim},
      {"linear_value_head_dim", static_cast<double>(delta.value_head_dim), 1, kMaxDeltaDim},
      {"linear_conv_kernel_dim", static_cast<double>(delta.conv_kernel), 2, kMaxTaps},
  }));
  if (delta.num_value_heads % delta.num_key_heads == 0) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "linear_num_value_heads is {}, but must be a multiple of "
                    "linear_num_key_heads, which is {}",
                    delta.num_value_heads, delta.num_key_heads);
}

Status check_channel_delta(const DeltaConfig& delta) {
  TRY(check_delta(delta));
  CHECK(delta.num_key_heads == delta.num_value_heads && !delta.tiled_heads &&
            delta.key_head_dim == delta.value_head_dim,
        "heads of channel decay are read as of one size");
  return {};
}

Status check_scan(const ScanConfig& scan) {
  TRY(check_ranges({
      {"number of scan heads", static_cast<double>(scan.num_heads), 1, 4096},
      {"scan head width", static_cast<double>(scan.head_dim), 1, 4096},
      {"number of scan groups", static_cast<double>(scan.num_groups), 1,
       static_cast<double>(scan.num_heads)},
      {"scan state width", static_cast<double>(scan.state_width), 1, 4096},
      {"number of taps", static_cast<double>(scan.num_taps), 2, kMaxTaps},
      {"least time step", scan.time_step_min, 0, 1e30},
      {"largest time step", scan.time_step_max, scan.time_step_min,
       std::numeric_limits<double>::infinity()},
  }));
  if (scan.num_heads % scan.num_groups == 0) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "the scan has {} heads, but their number must be a multiple of its {} groups",
                    scan.num_heads, scan.num_groups);
}

Status check_mixer(const LayerConfig& layer, int num_ropes) {
  switch (layer.mixer) {
    case MixerKind::kAttention:
      return check_attention(layer, num_ropes);
    case MixerKind::kGatedDelta:
      return check_delta(layer.delta);
    case MixerKind::kChannelDelta:
      return check_channel_delta(layer.delta);
    case MixerKind::kLatent:
      return check_latent(layer, num_ropes);
    case MixerKind::kShortConv:
      return check_ranges(
          {{"conv_L_cache", static_cast<double>(layer.short_conv.num_taps), 2, kMaxTaps}});
    case MixerKind::kScan:
      return check_scan(layer.scan);
  }
  CHECK(false, "mixer {}", static_cast<int>(layer.mixer));
}

// The layer whose keys and values a layer reads has some of the shape that it needs.
Status check_source(const ModelConfig& config, int layer_idx) {
  const LayerConfig& layer = config.layers[static_cast<size_t>(layer_idx)];
  const int source_idx = layer.kv_source_layer;
  if (source_idx < 0) return {};
  const bool before = source_idx < layer_idx;
  const LayerConfig& source = config.layers[static_cast<size_t>(before ? source_idx : layer_idx)];
  if (before && source.kv_source_layer < 0 && source.mixer == layer.mixer &&
      source.head_dim == layer.head_dim && source.sliding_window == layer.sliding_window &&
      source.num_key_value_heads == layer.num_key_value_heads) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "layer {} is to read the keys and values of layer {}, but that must be an "
                    "earlier layer with keys of its own, heads of the same width and number, and "
                    "the same window",
                    layer_idx, source_idx);
}

// Each token has a row in the table of the layers' inputs; with streams, those that have none have
// the first.
Status check_layer_inputs(const ModelConfig& config) {
  TRY(check_ranges({{"hidden_size_per_layer_input",
                     static_cast<double>(config.hidden_size_per_layer_input), 0, 1e5}}));
  if (config.hidden_size_per_layer_input == 0) return {};
  return check_ranges(
      {{"vocab_size_per_layer_input", static_cast<double>(config.vocab_size_per_layer_input),
        config.num_streams > 1 ? 1 : static_cast<double>(config.vocab_size), 1e8}});
}

Status check_streams(const ModelConfig& config) {
  TRY(check_ranges(
      {{"altup_num_inputs", static_cast<double>(config.num_streams), 1, kMaxStreams}}));
  if (config.num_streams == 1) return {};
  return check_ranges({{"laurel_rank", static_cast<double>(config.laurel_rank), 1, 1e5}});
}

Status check_mlp(const LayerConfig& layer) {
  if (layer.mlp == MlpKind::kNone) return {};
  if (layer.mlp != MlpKind::kExperts) {
    TRY(check_ranges({{"intermediate_size", static_cast<double>(layer.intermediate_size), 1, 1e7},
                      {"deviations of the gate", layer.gate_deviations, -100, 100}}));
  }
  const bool has_experts = layer.mlp == MlpKind::kExperts || layer.mlp == MlpKind::kDenseAndExperts;
  return has_experts ? check_experts(layer.experts) : Status();
}

// Its curve is stated for each layer, and only a plain MLP has one.
Status check_activation(const ModelConfig& config, const LayerConfig& layer) {
  if (config.activation != Activation::kXielu) return {};
  if (layer.mlp != MlpKind::kPlain) {
    return make_error(ErrorCode::kUnsupported,
                      "the activation is xielu, but {} networks have an MLP with a gate",
                      config.family);
  }
  return check_ranges({{"xielu alpha_p", layer.xielu.positive, 0, 1e6},
                       {"xielu alpha_n", layer.xielu.negative, 0, 1e6},
                       {"xielu beta", layer.xielu.beta, 0, 1e6},
                       {"xielu eps", layer.xielu.eps, -1, 1}});
}

Status check_factors(std::string_view name, const std::vector<float>& factors, int rope_dims,
                     bool required) {
  if (factors.empty() && !required) return {};
  if (static_cast<int>(factors.size()) != rope_dims / 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope {} has {} entries, but half of the {} rotated dimensions are needed",
                      name, factors.size(), rope_dims);
  }
  for (float factor : factors) {
    TRY(check_ranges({{name, factor, 1e-30, 3e38}}));
  }
  return {};
}

Status check_rope(const RopeConfig& rope, int head_dim) {
  const bool has_original = rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn ||
                            rope.type == RopeType::kLongrope;
  TRY(check_ranges({
      {"rotated width", static_cast<double>(rope.rope_dims), 2, static_cast<double>(head_dim)},
      {"rope_theta", rope.rope_theta, 1.0 + 1e-9, 1e30},
      {"rope factor", rope.factor, 1e-6, 1e6},
      {"rope attention factor", rope.attention_factor, 1e-6, 1e6},
      {"mscale_all_dim", rope.mscale_all_dim, -1e6, 1e6},
      {"rotated pairs", static_cast<double>(rope.rotated_pairs), 0, rope.rope_dims / 2.0},
  }));
  if (rope.rope_dims % 2 != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the rotated width is {}, but must be an even number", rope.rope_dims);
  }
  if (has_original) {
    TRY(check_ranges({{"original_max_position_embeddings",
                       static_cast<double>(rope.original_max_position_embeddings), 2, 1e12}}));
  }
  if (rope.type == RopeType::kLlama3) {
    TRY(check_ranges(
        {{"low_freq_factor", rope.low_freq_factor, 1e-6, 1e6},
         {"high_freq_factor", rope.high_freq_factor, rope.low_freq_factor * (1 + 1e-9), 1e6}}));
  }
  if (rope.type == RopeType::kYarn) {
    TRY(check_ranges(
        {{"beta_fast", rope.beta_fast, 1e-6, 1e6}, {"beta_slow", rope.beta_slow, 1e-6, 1e6}}));
  }
  if (rope.type == RopeType::kDynamic) {
    // The base grows with an exponent r / (r - 2).
    TRY(check_ranges({{"rotated width", static_cast<double>(rope.rope_dims), 4, 4096},
                      {"rope factor", rope.factor, 1, 1e6}}));
  }
  const bool longrope = rope.type == RopeType::kLongrope;
  TRY(check_factors("short_factor", rope.short_factor, rope.rope_dims, longrope));
  TRY(check_factors("long_factor", rope.long_factor, rope.rope_dims, longrope));
  return check_factors("frequency divisors", rope.frequency_divisor, rope.rope_dims, false);
}

// Of the layers that a rope is for.
int narrowest_head(const ModelConfig& config, int rope_idx) {
  int head_dim = kMaxHeadDim;
  for (const LayerConfig& layer : config.layers) {
    if (layer.rope_idx == rope_idx) head_dim = std::min(head_dim, rope_limit(layer));
  }
  return head_dim;
}

}  // namespace

Status check_config(const ModelConfig& config) {
  TRY(check_ranges({
      {"vocab_size", static_cast<double>(config.vocab_size), 1, 1e8},
      {"hidden_size", static_cast<double>(config.hidden_size), 1, 1e6},
      {"number of layers", static_cast<double>(config.layers.size()), 1, 1e4},
      {"max_position_embeddings", static_cast<double>(config.max_position_embeddings), 1, 1e12},
      {"norm epsilon", config.norm_eps, 0, 1},
      {"embedding scale", config.embedding_scale, -1e6, 1e6},
      {"residual scale", config.residual_scale, -1e6, 1e6},
      {"logit scale", config.logit_scale, -1e6, 1e6},
      {"logit softcap", config.logit_softcap, 0, 1e9},
      {"position scale", config.query_position_beta, -1e6, 1e6},
      {"max_alibi_bias", config.alibi_max_bias, 0, 1e4},
  }));
  if (config.query_position_beta != 0) {
    TRY(check_ranges({{"original_max_position_embeddings",
                       static_cast<double>(config.query_position_original), 1, 1e12}}));
  }
  const int num_ropes = static_cast<int>(config.ropes.size());
  for (const LayerConfig& layer : config.layers) {
    TRY(check_mixer(layer, num_ropes));
    TRY(check_mlp(layer));
    TRY(check_activation(config, layer));
  }
  TRY(check_layer_inputs(config));
  TRY(check_streams(config));
  for (int i = 0; i < config.num_layers(); ++i) {
    TRY(check_source(config, i));
    TRY(check_honoured(config.layers[static_cast<size_t>(i)], i));
  }
  // Used by a layer or not: there is a table for each.
  for (int i = 0; i < num_ropes; ++i) {
    TRY(check_rope(config.ropes[static_cast<size_t>(i)], narrowest_head(config, i)));
  }
  return {};
}

}  // namespace headrace
