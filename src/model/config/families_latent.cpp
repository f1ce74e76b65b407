// Families whose layers have latent attention.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr LatentRow kDeepseek = {};
constexpr LatentRow kDeepseek3 = {.interleave_key = "rope_interleave"};
constexpr LatentRow kDeepseekIndexed = {.indexed = true};

constexpr Family kFamilies[] = {
    {.name = "deepseek_v2",
     .model_types = {"deepseek_v2"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek2"},
     .latent = &kDeepseek},
    {.name = "deepseek_v3",
     .model_types = {"deepseek_v3"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 4096},
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek2"},
     .latent = &kDeepseek3},
    {.name = "deepseek_v32",
     .model_types = {"deepseek_v32"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 4096},
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek32"},
     .latent = &kDeepseekIndexed},
};

}  // namespace

std::span<const Family> latent_families() { return kFamilies; }

}  // namespace headrace
