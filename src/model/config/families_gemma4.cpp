// Families whose layers differ in shape.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr LayerShapesRow kGemma4Shapes = {.global_head_dim = 512,
                                          .hidden_size_per_layer_input = 256,
                                          .vocab_size_per_layer_input = 262144};

constexpr Family kGemma4Families[] = {
    {.name = "gemma4",
     .model_types = {"gemma4_text", "gemma4"},
     .block = &kSandwich,
     .qk_norm = QkNorm::kPerHead,
     .value_norm = true,
     .layer_scalar = true,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 8,
                  .num_key_value_heads = 4,
                  .head_dim = 256,
                  .max_position_embeddings = 131072,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .tied = true},
     .rope = {.theta = 1e6, .per_layer_type = true, .sliding_theta = 1e4, .proportional = 0.25},
     .window = {.rule = WindowRule::kPeriod, .window = 512, .period = 6, .last_is_full = true},
     .scale = {.embedding_sqrt_hidden = true, .attention = 1, .logit_softcap_read = true},
     .gguf = {.architecture = "gemma4"},
     .shapes = &kGemma4Shapes},
};

}  // namespace

std::span<const Family> gemma4_families() { return kGemma4Families; }

}  // namespace headrace
