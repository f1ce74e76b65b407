// The rows of the family table, a file for each kind of network, and what rows of several files
// share. For families.cpp, which makes one table of them, and the files of rows.
#pragma once

#include <span>

#include "model/config/family.h"

namespace headrace {

std::span<const Family> dense_families();
std::span<const Family> gated_families();
std::span<const Family> routed_families();
std::span<const Family> plain_families();
std::span<const Family> delta_families();
std::span<const Family> latent_families();
std::span<const Family> expert_families();
std::span<const Family> recurrent_families();
std::span<const Family> gemma4_families();
std::span<const Family> gemma3n_families();

inline constexpr NormNames kGgufSandwich = {"attn_norm", "post_attention_norm", "ffn_norm",
                                            "post_ffw_norm"};

inline constexpr BlockForm kPre = {
    .safetensors = {"input_layernorm", "", "post_attention_layernorm", ""},
    .gguf = {"attn_norm", "", "ffn_norm", ""}};
// The same block; its GGUF files name the second norm after the position, not the use.
inline constexpr BlockForm kPreSeed = {
    .safetensors = {"input_layernorm", "", "post_attention_layernorm", ""},
    .gguf = {"attn_norm", "", "post_attention_norm", ""}};
// Two norms of the same input, one for each branch.
inline constexpr BlockForm kParallelTwo = {
    .parallel = true,
    .safetensors = {"input_layernorm", "", "post_attention_layernorm", ""},
    .gguf = {"attn_norm", "", "ffn_norm", ""}};
inline constexpr BlockForm kPost = {
    .pre_norms = false,
    .post_norms = true,
    .safetensors = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"},
    .gguf = {"", "post_attention_norm", "", "post_ffw_norm"}};
inline constexpr BlockForm kSandwich = {
    .post_norms = true,
    .safetensors = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                    "post_feedforward_layernorm"},
    .gguf = kGgufSandwich};
// Glm4's post_attention_layernorm stands before the MLP.
inline constexpr BlockForm kSandwichGlm4 = {
    .post_norms = true,
    .safetensors = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
                    "post_mlp_layernorm"},
    .gguf = kGgufSandwich};
inline constexpr BlockForm kParallel = {.parallel = true,
                                        .safetensors = {"input_layernorm", "", "", ""},
                                        .gguf = {"attn_norm", "", "", ""}};

inline constexpr ScaleRow kGraniteScale = {.embedding_key = "embedding_multiplier",
                                           .residual_key = "residual_multiplier",
                                           .attention_key = "attention_multiplier",
                                           .logit_key = "logits_scaling",
                                           .logit_divides = true};

inline constexpr PredictionRow kPredictionBehind = {};

inline constexpr BiasRule kBiasFlag = {"attention_bias", false};
inline constexpr BiasRule kBiasFlagOn = {"attention_bias", true};
inline constexpr BiasRule kBiasAlways = {"", true};
inline constexpr BiasRule kMlpBiasFlag = {"mlp_bias", false};

}  // namespace headrace
