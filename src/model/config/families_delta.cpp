// Networks with layers of the gated delta rule.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr DeltaRow kDelta;
constexpr DeltaRow kTiledDelta = {.gguf_tiled = true};
constexpr DeltaRow kChannels = {.channels = true};
constexpr LatentRow kNoRank = {.q_lora_rank = 0};

constexpr ExpertRow kQwen3Next = {.num_experts = 512,
                                  .num_experts_per_token = 10,
                                  .width = 512,
                                  .normalise = {"norm_topk_prob", true},
                                  .gguf_normalise = true,
                                  .shared_width_key = "shared_expert_intermediate_size",
                                  .shared_width = 512,
                                  .shared_gate = true,
                                  .dense = DenseLayers::kStep};
constexpr ExpertRow kQwen35Moe = {.num_experts = 256,
                                  .num_experts_per_token = 8,
                                  .width = 512,
                                  .normalise = {"", true},
                                  .gguf_normalise = true,
                                  .shared_width_key = "shared_expert_intermediate_size",
                                  .shared_width = 512,
                                  .shared_gate = true};
constexpr ExpertRow kKimi = {.num_experts = 256,
                             .num_experts_per_token = 8,
                             .width = 1024,
                             .score = RouterScore::kSigmoid,
                             .normalise = {"moe_renormalize", true},
                             .gguf_normalise = true,
                             .normalise_epsilon = 1e-20,
                             .scale = true,
                             .default_scale = 2.446,
                             .selection_bias = true,
                             .groups = true,
                             .shared_count = 1,
                             .dense = DenseLayers::kLeading,
                             .num_leading = 1};

constexpr PredictionRow kPredictionApart = {.prefix = "mtp.", .layer_prefix = "mtp.layers.0."};

constexpr Family kDeltaFamilies[] = {
    {.name = "qwen3_5",
     .model_types = {"qwen3_5_text", "qwen3_5"},
     .block = &kPreSeed,
     .norm_weight_plus_one = true,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 16,
                  .num_key_value_heads = 4,
                  .head_dim = 256,
                  .max_position_embeddings = 32768},
     .rope = {.partial = 0.25},
     .gguf = {.architecture = "qwen35"},
     .attention_gate = true,
     .delta = &kTiledDelta},
    {.name = "qwen3_5_moe",
     .model_types = {"qwen3_5_moe_text", "qwen3_5_moe"},
     .block = &kPreSeed,
     .norm_weight_plus_one = true,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 16,
                  .num_key_value_heads = 2,
                  .head_dim = 256,
                  .max_position_embeddings = 32768},
     .rope = {.partial = 0.25},
     .gguf = {.architecture = "qwen35moe"},
     .attention_gate = true,
     .delta = &kTiledDelta,
     .experts = &kQwen35Moe},
    {.name = "qwen3_next",
     .model_types = {"qwen3_next"},
     .block = &kPreSeed,
     .norm_weight_plus_one = true,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 16,
                  .num_key_value_heads = 2,
                  .head_dim = 256,
                  .max_position_embeddings = 32768},
     .rope = {.partial = 0.25},
     .gguf = {.architecture = "qwen3next"},
     .attention_gate = true,
     .delta = &kDelta,
     .experts = &kQwen3Next,
     .prediction = &kPredictionApart},
    {.name = "kimi_linear",
     .model_types = {"kimi_linear"},
     .block = &kPre,
     .defaults = {.num_attention_heads = 32, .num_key_value_heads = 32, .eps = 1e-5},
     .rope = {.layers = RopeLayers::kNone},
     .gguf = {.architecture = "kimi-linear"},
     .delta = &kChannels,
     .latent = &kNoRank,
     .experts = &kKimi},
};

}  // namespace

std::span<const Family> delta_families() { return kDeltaFamilies; }

}  // namespace headrace
