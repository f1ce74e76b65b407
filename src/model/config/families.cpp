#include "model/config/families.h"

namespace headrace {
namespace {

constexpr NormNames kGgufSandwich = {"attn_norm", "post_attention_norm", "ffn_norm",
                                     "post_ffw_norm"};

constexpr BlockForm kPre = {.safetensors = {"input_layernorm", "", "post_attention_layernorm", ""},
                            .gguf = {"attn_norm", "", "ffn_norm", ""}};
// The same block; its GGUF files name the second norm after the position, not the use.
constexpr BlockForm kPreSeed = {
    .safetensors = {"input_layernorm", "", "post_attention_layernorm", ""},
    .gguf = {"attn_norm", "", "post_attention_norm", ""}};
constexpr BlockForm kPost = {
    .pre_norms = false,
    .post_norms = true,
    .safetensors = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"},
    .gguf = {"", "post_attention_norm", "", "post_ffw_norm"}};
constexpr BlockForm kSandwich = {
    .post_norms = true,
    .safetensors = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                    "post_feedforward_layernorm"},
    .gguf = kGgufSandwich};
// Glm4's post_attention_layernorm stands before the MLP.
constexpr BlockForm kSandwichGlm4 = {
    .post_norms = true,
    .safetensors = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
                    "post_mlp_layernorm"},
    .gguf = kGgufSandwich};
constexpr BlockForm kParallel = {.parallel = true,
                                 .safetensors = {"input_layernorm", "", "", ""},
                                 .gguf = {"attn_norm", "", "", ""}};

constexpr BiasRule kBiasFlag = {"attention_bias", false};
constexpr BiasRule kBiasFlagOn = {"attention_bias", true};
constexpr BiasRule kBiasAlways = {"", true};
constexpr BiasRule kMlpBiasFlag = {"mlp_bias", false};

constexpr Family kFamilies[] = {
    {.name = "llama",
     .model_types = {"llama"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .mlp_bias = kMlpBiasFlag,
     .gguf = {.architecture = "llama", .permuted = true}},
    {.name = "mistral",
     .model_types = {"mistral"},
     .block = &kPre,
     .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072},
     .window = {.rule = WindowRule::kAll, .window = 4096},
     .gguf = {.architecture = "llama", .permuted = true, .default_window = false}},
    {.name = "ministral3",
     .model_types = {"ministral3"},
     .block = &kPre,
     .defaults = {.num_key_value_heads = 8,
                  .head_dim = 128,
                  .max_position_embeddings = 262144,
                  .eps = 1e-5},
     .rope = {.theta = 1e6, .position_scale = true, .required = true},
     .window = {.rule = WindowRule::kAll},
     .gguf = {.architecture = "mistral3", .permuted = true, .default_window = false}},
    {.name = "qwen2",
     .model_types = {"qwen2"},
     .block = &kPre,
     .qkv_bias = kBiasAlways,
     .defaults = {.num_key_value_heads = 32, .max_position_embeddings = 32768},
     .window = {.rule = WindowRule::kFromLayer, .window = 4096},
     .gguf = {.architecture = "qwen2", .default_window = false}},
    {.name = "qwen3",
     .model_types = {"qwen3"},
     .block = &kPre,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768},
     .window = {.rule = WindowRule::kFromLayer, .window = 4096},
     .gguf = {.architecture = "qwen3", .default_window = false}},
    {.name = "gemma2",
     .model_types = {"gemma2"},
     .block = &kSandwich,
     .norm_weight_plus_one = true,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 8,
                  .num_key_value_heads = 4,
                  .head_dim = 256,
                  .max_position_embeddings = 8192,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .tied = true},
     .window = {.rule = WindowRule::kPeriod, .window = 4096, .period = 2},
     .scale = {.embedding_sqrt_hidden = true,
               .attention_scalar_key = "query_pre_attn_scalar",
               .attention_scalar = 256,
               .attention_softcap = 50,
               .logit_softcap_read = true,
               .logit_softcap = 30},
     .gguf = {.architecture = "gemma2", .wide_scale_layers = 46}},
    {.name = "gemma3",
     .model_types = {"gemma3_text", "gemma3"},
     .block = &kSandwich,
     .norm_weight_plus_one = true,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 8,
                  .num_key_value_heads = 4,
                  .head_dim = 256,
                  .max_position_embeddings = 131072,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .tied = true},
     .rope = {.theta = 1e6,
              .per_layer_type = true,
              .sliding_key = "rope_local_base_freq",
              .sliding_theta = 1e4},
     .window = {.rule = WindowRule::kPeriod,
                .window = 4096,
                .period = 6,
                .period_key = "sliding_window_pattern"},
     .scale = {.embedding_sqrt_hidden = true,
               .attention_scalar_key = "query_pre_attn_scalar",
               .attention_scalar = 256,
               .logit_softcap_read = true},
     .gguf = {.architecture = "gemma3", .wide_scale_layers = 62}},
    {.name = "phi3",
     .model_types = {"phi3"},
     .block = &kPre,
     .defaults = {.max_position_embeddings = 4096, .eps = 1e-5},
     .rope = {.partial = 1.0, .yarn_is_longrope = true, .original = 4096},
     .window = {.rule = WindowRule::kAll},
     .gguf = {.architecture = "phi3", .default_window = false}},
    {.name = "olmo2",
     .model_types = {"olmo2"},
     .block = &kPost,
     .qk_norm = QkNorm::kWhole,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.eps = 1e-5},
     .gguf = {.architecture = "olmo2"}},
    {.name = "olmo3",
     .model_types = {"olmo3"},
     .block = &kPost,
     .qk_norm = QkNorm::kWhole,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.eps = 1e-5},
     .rope = {.theta = 5e5, .per_layer_type = true, .sliding_theta = 5e5},
     .window = {.rule = WindowRule::kPeriod, .window = 4096, .period = 4},
     .gguf = {.architecture = "olmo2", .default_window = false, .sliding_theta_is_base = true}},
    {.name = "granite",
     .model_types = {"granite"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .mlp_bias = kMlpBiasFlag,
     .scale = {.embedding_key = "embedding_multiplier",
               .residual_key = "residual_multiplier",
               .attention_key = "attention_multiplier",
               .logit_key = "logits_scaling",
               .logit_divides = true},
     .gguf = {.architecture = "granite", .permuted = true, .finetuned_rope = true}},
    {.name = "smollm3",
     .model_types = {"smollm3"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .mlp_bias = kMlpBiasFlag,
     .defaults = {.num_key_value_heads = 4, .max_position_embeddings = 32768, .tied = true},
     .rope = {.theta = 2e6, .layers = RopeLayers::kListed},
     .window = {.rule = WindowRule::kNoRopeLayers},
     .gguf = {.architecture = "smollm3", .permuted = true, .default_window = false}},
    {.name = "exaone4",
     .model_types = {"exaone4"},
     .block = &kPost,
     .qk_norm = QkNorm::kPerHead,
     .defaults = {.num_key_value_heads = 32, .eps = 1e-5},
     .rope = {.layers = RopeLayers::kSlidingIfWindow},
     .window = {.rule = WindowRule::kPeriod,
                .window = 4096,
                .period = 4,
                .period_key = "sliding_window_pattern"},
     .gguf = {.architecture = "exaone4", .window_layers = 64}},
    {.name = "glm4",
     .model_types = {"glm4"},
     .block = &kSandwichGlm4,
     .qkv_bias = kBiasFlagOn,
     .defaults = {.num_key_value_heads = 2,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .eps = 1.5625e-7},
     .rope = {.pairing = RopePairing::kInterleaved, .partial = 0.5},
     .gguf = {.architecture = "glm4", .sections_mean_half = true}},
    {.name = "seed_oss",
     .model_types = {"seed_oss"},
     .block = &kPreSeed,
     .qkv_bias = kBiasFlagOn,
     .o_bias = {"attention_out_bias", false},
     .mlp_bias = kMlpBiasFlag,
     .defaults = {.num_key_value_heads = 8, .head_dim = 128, .max_position_embeddings = 524288},
     .gguf = {.architecture = "seed_oss"}},
    {.name = "cohere2",
     .model_types = {"cohere2"},
     .block = &kParallel,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.head_dim_from_width = true,
                  .max_position_embeddings = 8192,
                  .eps_key = "layer_norm_eps",
                  .eps = 1e-5,
                  .tied = true},
     .rope = {.pairing = RopePairing::kInterleaved, .layers = RopeLayers::kSliding},
     .window = {.rule = WindowRule::kPeriod,
                .window = 4096,
                .period = 4,
                .period_key = "sliding_window_pattern"},
     .scale = {.logit_key = "logit_scale", .logit_scale = 0.0625},
     .gguf = {.architecture = "cohere2"}},
};

constexpr NamePrefix kSafetensorsPrefixes[] = {
    {"model.", ""},
    {"model.language_model.", ""},
    {"language_model.model.", "language_model."},
    {"", ""},
};
constexpr NamePrefix kGgufPrefixes[] = {{"", ""}};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& family_named(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
  }
  CHECK(false, "no family named {}", name);
}

const Family* find_family_by_model_type(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    for (std::string_view known : family.model_types) {
      if (!known.empty() && known == model_type) return &family;
    }
  }
  return nullptr;
}

const Family* find_family_by_gguf(std::string_view architecture, bool has_window) {
  const Family* found = nullptr;
  for (const Family& family : kFamilies) {
    if (family.gguf.architecture != architecture) continue;
    if (found == nullptr || (family.window.rule != WindowRule::kNone) == has_window) {
      found = &family;
    }
  }
  return found;
}

std::string_view layer_prefix(CheckpointKind kind) {
  return kind == CheckpointKind::kGguf ? "blk." : "layers.";
}

std::span<const NamePrefix> name_prefixes(CheckpointKind kind) {
  if (kind == CheckpointKind::kGguf) return kGgufPrefixes;
  return kSafetensorsPrefixes;
}

}  // namespace headrace
