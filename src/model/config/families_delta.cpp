// Networks with layers of the gated delta rule.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr DeltaRow kTiledDelta = {.gguf_tiled = true};

constexpr Family kFamilies[] = {
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
};

}  // namespace

std::span<const Family> delta_families() { return kFamilies; }

}  // namespace headrace
