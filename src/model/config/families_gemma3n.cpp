// Gemma 3n: streams beside the residual one, keys of other layers, inputs of each layer.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr LayerShapesRow kGemma3nShapes = {
    .hidden_size_per_layer_input = 256, .vocab_size_per_layer_input = 262144, .num_shared = 15};
constexpr StreamRow kGemma3nStreams = {
    .num_streams = 4, .laurel_rank = 64, .num_sparse = 10, .share = 0.95};

constexpr Family kGemma3nFamilies[] = {
    {.name = "gemma3n",
     .model_types = {"gemma3n_text", "gemma3n"},
     .block = &kSandwich,
     .qk_norm = QkNorm::kPerHead,
     .value_norm = true,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_attention_heads = 8,
                  .num_key_value_heads = 2,
                  .head_dim = 256,
                  .max_position_embeddings = 32768,
                  .intermediate_size = 16384,
                  .activation_key = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .tied = true},
     .rope = {.theta = 1e6,
              .per_layer_type = true,
              .sliding_key = "rope_local_base_freq",
              .sliding_theta = 1e4},
     .window = {.rule = WindowRule::kPeriod, .window = 512, .period = 5},
     .scale = {.embedding_sqrt_hidden = true,
               .attention = 1,
               .logit_softcap_read = true,
               .logit_softcap = 30},
     .gguf = {.architecture = "gemma3n"},
     .shapes = &kGemma3nShapes,
     .streams = &kGemma3nStreams},
};

}  // namespace

std::span<const Family> gemma3n_families() { return kGemma3nFamilies; }

}  // namespace headrace
