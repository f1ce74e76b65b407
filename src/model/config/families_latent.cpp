// Families whose layers have latent attention.
#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr LatentRow kDeepseek = {};
constexpr LatentRow kDeepseek3 = {.interleave_key = "rope_interleave"};
constexpr LatentRow kDeepseekIndexed = {.indexed = true};

// GGUF files of both generations are of one architecture, which is read as the first family that
// has it: what a file says of its experts counts, and the epsilon is that of the later generation.
constexpr ExpertRow kDeepseekExperts = {.num_experts = 64,
                                        .num_experts_per_token = 6,
                                        .width = 1407,
                                        .normalise_epsilon = 1e-20,
                                        .scale = true,
                                        .groups = true,
                                        .groups_if = "group_limited_greedy",
                                        .group_score = GroupScore::kMaximum,
                                        .shared_count = 2,
                                        .dense = DenseLayers::kLeading};
constexpr ExpertRow kDeepseek3Experts = {.num_experts = 256,
                                         .num_experts_per_token = 8,
                                         .width = 2048,
                                         .score = RouterScore::kSigmoid,
                                         .normalise = {"norm_topk_prob", true},
                                         .normalise_epsilon = 1e-20,
                                         .scale = true,
                                         .default_scale = 2.5,
                                         .selection_bias = true,
                                         .groups = true,
                                         .num_groups = 8,
                                         .num_groups_kept = 4,
                                         .shared_count = 1,
                                         .dense = DenseLayers::kLeading,
                                         .num_leading = 3};

constexpr Family kLatentFamilies[] = {
    {.name = "deepseek_v2",
     .model_types = {"deepseek_v2"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek2"},
     .latent = &kDeepseek,
     .experts = &kDeepseekExperts,
     .prediction = &kPredictionBehind},
    {.name = "deepseek_v3",
     .model_types = {"deepseek_v3"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 4096},
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek2"},
     .latent = &kDeepseek3,
     .experts = &kDeepseek3Experts,
     .prediction = &kPredictionBehind},
    {.name = "deepseek_v32",
     .model_types = {"deepseek_v32"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 4096},
     .rope = {.pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "deepseek32"},
     .latent = &kDeepseekIndexed,
     .experts = &kDeepseek3Experts,
     .prediction = &kPredictionBehind},
};

}  // namespace

std::span<const Family> latent_families() { return kLatentFamilies; }

}  // namespace headrace
