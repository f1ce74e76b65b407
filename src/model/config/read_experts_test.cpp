#include "model/config/read_experts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_experts_test {

using testing::FakeCheckpoint;

std::string text_of(std::string_view model_type, std::string_view more) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
          "max_position_embeddings": 512{}{}}})",
      model_type, more.empty() ? "" : ", ", more);
}

ModelConfig read(std::string_view model_type, std::string_view more = "") {
  const auto config = read_config_json(FakeCheckpoint(text_of(model_type, more)));
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

std::string message_of(std::string_view model_type, std::string_view more) {
  const auto config = read_config_json(FakeCheckpoint(text_of(model_type, more)));
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : config.error().message;
}

// The last layer's, which has experts in every default.
ExpertConfig experts_of(const ModelConfig& config) { return config.layers.back().experts; }

std::string mlps_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) text += layer.mlp == MlpKind::kDense ? 'd' : 'e';
  return text;
}

std::string windows_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) text += layer.sliding_window > 0 ? 's' : 'f';
  return text;
}

// ---- config.json --------------------------------------------------------------------------------

TEST(ExpertsJson, DefaultsAreTheFamilys) {
  struct Case {
    const char* model_type;
    int num_experts, per_token;
    int64_t width;
    RouterScore score;
    bool normalise;
    int64_t shared;
    bool shared_gate;
    bool selection_bias;
    const char* mlps;
  };
  constexpr Case kCases[] = {
      {"mixtral", 8, 2, 96, RouterScore::kSoftmax, true, 0, false, false, "eeeeee"},
      {"olmoe", 64, 8, 96, RouterScore::kSoftmax, false, 0, false, false, "eeeeee"},
      {"qwen2_moe", 60, 4, 1408, RouterScore::kSoftmax, false, 5632, true, false, "eeeeee"},
      {"qwen3_moe", 128, 8, 768, RouterScore::kSoftmax, false, 0, false, false, "eeeeee"},
      {"granitemoe", 8, 2, 96, RouterScore::kSoftmaxChosen, false, 0, false, false, "eeeeee"},
      {"gpt_oss", 128, 4, 96, RouterScore::kSoftmaxChosen, false, 0, false, false, "eeeeee"},
      {"glm4_moe", 128, 8, 1408, RouterScore::kSigmoid, true, 1408, false, true, "deeeee"},
      {"minimax_m2", 256, 8, 96, RouterScore::kSigmoid, true, 0, false, true, "eeeeee"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.model_type);
    const ModelConfig config = read(c.model_type);
    const ExpertConfig experts = experts_of(config);
    EXPECT_EQ(experts.num_experts, c.num_experts);
    EXPECT_EQ(experts.num_experts_per_token, c.per_token);
    EXPECT_EQ(experts.intermediate_size, c.width);
    EXPECT_EQ(experts.score, c.score);
    EXPECT_EQ(experts.normalise, c.normalise);
    EXPECT_EQ(experts.shared_intermediate_size, c.shared);
    EXPECT_EQ(experts.shared_gate, c.shared_gate);
    EXPECT_EQ(experts.selection_bias, c.selection_bias);
    EXPECT_EQ(experts.num_groups, 1);
    EXPECT_EQ(mlps_of(config), c.mlps);
    EXPECT_EQ(config.layers.back().intermediate_size, 0);
  }
}

TEST(ExpertsJson, CountsAreReadInEverySpelling) {
  for (const char* count : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    for (const char* chosen : {"num_experts_per_tok", "num_experts_per_token", "top_k_experts"}) {
      const std::string keys = fmt::format(R"("{}": 5, "{}": 3)", count, chosen);
      const ExpertConfig experts = experts_of(read("qwen3_moe", keys));
      EXPECT_EQ(experts.num_experts, 5) << keys;
      EXPECT_EQ(experts.num_experts_per_token, 3) << keys;
    }
  }
}

TEST(ExpertsJson, NoExpertsAreDenseLayers) {
  const ModelConfig config = read("qwen3_moe", R"("num_experts": 0)");
  EXPECT_EQ(mlps_of(config), "dddddd");
  EXPECT_EQ(config.layers[0].intermediate_size, 96);
  // The shared expert is then all there is.
  const ModelConfig shared =
      read("granitemoeshared", R"("num_local_experts": 0, "shared_intermediate_size": 48)");
  EXPECT_EQ(mlps_of(shared), "dddddd");
  EXPECT_EQ(shared.layers[0].intermediate_size, 48);
}

TEST(ExpertsJson, DenseLayersFollowTheRuleOrTheList) {
  struct Case {
    const char* model_type;
    const char* keys;
    const char* mlps;
  };
  constexpr Case kCases[] = {
      {"qwen3_moe", R"("decoder_sparse_step": 2)", "dedede"},
      {"qwen2_moe", R"("decoder_sparse_step": 3)", "ddedde"},
      {"qwen3_moe", R"("mlp_only_layers": [0, 4])", "deeede"},
      {"qwen3_moe", R"("mlp_only_layers": [1, 99, -1], "decoder_sparse_step": 2)", "dddede"},
      {"qwen3_moe", R"("mlp_only_layers": null)", "eeeeee"},
      {"glm4_moe", R"("first_k_dense_replace": 0)", "eeeeee"},
      {"glm4_moe", R"("first_k_dense_replace": 3)", "dddeee"},
      {"glm4_moe", R"("first_k_dense_replace": 100)", "dddddd"},
      {"glm4_moe",
       R"("mlp_layer_types": ["sparse", "dense", "sparse", "dense", "sparse", "sparse"])",
       "ededee"},
      {"mixtral", R"("first_k_dense_replace": 3, "mlp_only_layers": [1])", "eeeeee"},
  };
  for (const Case& c : kCases) {
    const ModelConfig config = read(c.model_type, c.keys);
    EXPECT_EQ(mlps_of(config), c.mlps) << c.keys;
    for (const LayerConfig& layer : config.layers) {
      EXPECT_EQ(layer.intermediate_size, layer.mlp == MlpKind::kDense ? 96 : 0) << c.keys;
    }
  }
}

TEST(ExpertsJson, ValuesOfTheRouterAreRead) {
  const ExpertConfig glm =
      experts_of(read("glm4_moe", R"("n_group": 8, "topk_group": 3, "routed_scaling_factor": 2.5,
                     "n_shared_experts": 2, "moe_intermediate_size": 32)"));
  EXPECT_EQ(glm.num_groups, 8);
  EXPECT_EQ(glm.num_groups_kept, 3);
  EXPECT_EQ(glm.group_score, GroupScore::kSumOfTwo);
  EXPECT_EQ(glm.scale, 2.5f);
  EXPECT_EQ(glm.normalise_epsilon, 1e-20f);
  EXPECT_EQ(glm.shared_intermediate_size, 64);
  const ExpertConfig plain = experts_of(read("glm4_moe", R"("norm_topk_prob": false)"));
  EXPECT_FALSE(plain.normalise);
  EXPECT_EQ(plain.normalise_epsilon, 0);
  EXPECT_TRUE(experts_of(read("olmoe", R"("norm_topk_prob": true)")).normalise);
  // Fixed by the family: not read.
  EXPECT_TRUE(experts_of(read("mixtral", R"("norm_topk_prob": false)")).normalise);
  EXPECT_EQ(experts_of(read("mixtral", R"("routed_scaling_factor": 3)")).scale, 1);
  EXPECT_EQ(experts_of(read("minimax_m2")).normalise_epsilon, 0);
}

TEST(ExpertsJson, SharedExpertsMayBeMissing) {
  const ExpertConfig none = experts_of(read("glm4_moe", R"("n_shared_experts": 0)"));
  EXPECT_EQ(none.shared_intermediate_size, 0);
  const ExpertConfig ungated =
      experts_of(read("qwen2_moe", R"("shared_expert_intermediate_size": 0)"));
  EXPECT_EQ(ungated.shared_intermediate_size, 0);
  EXPECT_FALSE(ungated.shared_gate);
  EXPECT_EQ(experts_of(read("granitemoeshared", R"("shared_intermediate_size": 40)"))
                .shared_intermediate_size,
            40);
}

TEST(ExpertsJson, GptOssHasBiasesSinksAndAClamp) {
  const ModelConfig config = read("gpt_oss", R"("hidden_act": "swiglu", "swiglu_limit": 5)");
  EXPECT_EQ(config.router_bias, Presence::kRequired);
  EXPECT_EQ(config.expert_bias, Presence::kRequired);
  EXPECT_EQ(config.qkv_bias, Presence::kRequired);
  EXPECT_EQ(config.o_bias, Presence::kRequired);
  EXPECT_EQ(config.transposed, Transposed::kExperts);
  EXPECT_TRUE(config.interleaved_experts);
  EXPECT_TRUE(config.layers[0].attention_sinks);
  EXPECT_EQ(config.layers[0].head_dim, 64);
  EXPECT_EQ(experts_of(config).swiglu_limit, 5);
  EXPECT_EQ(experts_of(config).swiglu_alpha, 1.702f);
  EXPECT_EQ(windows_of(config), "sfsfsf");
  EXPECT_EQ(config.layers[0].sliding_window, 128);
  const ModelConfig plain = read("mixtral");
  EXPECT_EQ(plain.router_bias, Presence::kAbsent);
  EXPECT_EQ(plain.expert_bias, Presence::kAbsent);
  EXPECT_EQ(plain.transposed, Transposed::kNone);
  EXPECT_FALSE(plain.layers[0].attention_sinks);
  EXPECT_EQ(experts_of(plain).swiglu_limit, 0);
}

// The class has a rope of its own where the file has none.
TEST(ExpertsJson, GptOssLeavesItsRopeOut) {
  const RopeConfig rope = read("gpt_oss").ropes.at(0);
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.rope_theta, 150000);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.rope_dims, 64);
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(32) + 1, 1e-12);
  const RopeConfig given =
      read("gpt_oss", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})").ropes.at(0);
  EXPECT_EQ(given.factor, 4);
  EXPECT_TRUE(given.truncate);
}

TEST(ExpertsJson, PartialRopesAreRead) {
  EXPECT_EQ(read("glm4_moe", R"("head_dim": 16)").ropes.at(0).rope_dims, 8);
  EXPECT_EQ(read("minimax_m2", R"("head_dim": 16)").ropes.at(0).rope_dims, 16);
  EXPECT_EQ(read("minimax_m2", R"("head_dim": 16, "rotary_dim": 8)").ropes.at(0).rope_dims, 8);
  const char* both = R"("head_dim": 16, "rotary_dim": 8,
                        "rope_parameters": {"partial_rotary_factor": 0.25})";
  EXPECT_EQ(read("minimax_m2", both).ropes.at(0).rope_dims, 4);
  EXPECT_EQ(message_of("minimax_m2", R"("head_dim": 16, "rotary_dim": 32)"),
            "config.json: partial_rotary_factor is 2, but must be above 0 and at most 1");
}

TEST(ExpertsJson, WindowsFollowTheFamily) {
  struct Case {
    const char* model_type;
    const char* keys;
    const char* windows;
  };
  constexpr Case kCases[] = {
      {"mixtral", "", "ffffff"},
      {"mixtral", R"("sliding_window": null)", "ffffff"},
      {"mixtral", R"("sliding_window": 16)", "ssssss"},
      {"qwen3_moe", R"("sliding_window": 16)", "ffffff"},
      {"qwen3_moe", R"("sliding_window": 16, "use_sliding_window": true)", "ssssss"},
      {"qwen3_moe", R"("use_sliding_window": true)", "ssssss"},
      {"qwen2_moe", R"("sliding_window": 16)", "ffffff"},
      {"qwen2_moe", R"("sliding_window": 16, "use_sliding_window": true)", "sfsfsf"},
      {"qwen2_moe", R"("sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3)",
       "sfsfff"},
      {"qwen2_moe", R"("sliding_window": 16, "use_sliding_window": true,
                       "layer_types": ["full_attention", "sliding_attention", "full_attention",
                                       "full_attention", "full_attention", "full_attention"])",
       "fsffff"},
      {"olmoe", R"("sliding_window": 16)", "ffffff"},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(windows_of(read(c.model_type, c.keys)), c.windows) << c.model_type << " " << c.keys;
  }
}

TEST(ExpertsJson, BiasesAndNormsOfAttentionFollowTheirFlags) {
  const ModelConfig off = read("qwen2_moe", R"("qkv_bias": false)");
  EXPECT_EQ(off.qkv_bias, Presence::kAbsent);
  EXPECT_EQ(read("qwen2_moe").qkv_bias, Presence::kRequired);
  EXPECT_EQ(read("qwen2_moe").o_bias, Presence::kAbsent);
  for (const char* type : {"olmoe", "qwen3_moe", "granitemoe"}) {
    const ModelConfig on = read(type, R"("attention_bias": true)");
    EXPECT_EQ(on.qkv_bias, Presence::kRequired) << type;
    EXPECT_EQ(on.o_bias, Presence::kRequired) << type;
    EXPECT_EQ(read(type).qkv_bias, Presence::kAbsent) << type;
  }
  const ModelConfig glm = read("glm4_moe", R"("attention_bias": true, "use_qk_norm": true)");
  EXPECT_EQ(glm.qkv_bias, Presence::kRequired);
  EXPECT_EQ(glm.o_bias, Presence::kAbsent);
  EXPECT_EQ(glm.layers[0].qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(read("glm4_moe").layers[0].qk_norm, QkNorm::kNone);
  EXPECT_EQ(read("olmoe").layers[0].qk_norm, QkNorm::kWhole);
}

TEST(ExpertsJson, OlmoeMayClipItsProjections) {
  EXPECT_EQ(read("olmoe", R"("clip_qkv": 8.5)").layers[5].qkv_clip, 8.5f);
  EXPECT_EQ(read("olmoe", R"("clip_qkv": null)").layers[0].qkv_clip, 0);
  EXPECT_EQ(read("olmoe").layers[0].qkv_clip, 0);
  EXPECT_EQ(read("qwen3_moe", R"("clip_qkv": 8.5)").layers[0].qkv_clip, 0);
}

TEST(ExpertsJson, WhatIsWrongIsNamed) {
  struct Case {
    const char* model_type;
    const char* keys;
    const char* message;
  };
  constexpr Case kCases[] = {
      {"mixtral", R"("num_local_experts": 5000)",
       "the model's num_experts is 5000, but must be between 1 and 4096"},
      {"mixtral", R"("num_local_experts": -1)", "num_local_experts is -1"},
      {"mixtral", R"("num_experts_per_tok": 9)",
       "the model's num_experts_per_token is 9, but must be between 1 and 8"},
      {"mixtral", R"("num_experts_per_tok": 0)", "the model's num_experts_per_token is 0"},
      {"mixtral", R"("intermediate_size": 1e300)", "intermediate_size is 1E300"},
      {"qwen3_moe", R"("moe_intermediate_size": 0)", "moe_intermediate_size is 0"},
      {"qwen3_moe", R"("decoder_sparse_step": 0)", "decoder_sparse_step is 0"},
      {"qwen3_moe", R"("mlp_only_layers": "all")", "mlp_only_layers is \"all\""},
      {"glm4_moe", R"("n_group": 3)", "1 of 3 groups of 128 experts are kept"},
      {"glm4_moe", R"("n_group": 32, "topk_group": 1)", "hold the 8 experts of a token"},
      {"glm4_moe", R"("n_group": 2, "topk_group": 3)",
       "the model's number of kept expert groups is 3, but must be between 1 and 2"},
      {"glm4_moe", R"("n_shared_experts": 1000000)", "the model's shared expert width is"},
      {"glm4_moe", R"("routed_scaling_factor": 1e30)", "the model's scale of expert weights"},
      {"glm4_moe", R"("mlp_layer_types": ["dense"])", "mlp_layer_types has 1 entries"},
      {"glm4_moe", R"("mlp_layer_types": ["a", "b", "c", "d", "e", "f"])",
       "mlp_layer_types has 'a', but layers are dense or sparse"},
      {"gpt_oss", R"("swiglu_limit": 0)", "swiglu_limit is 0, but must be above 0"},
      {"gpt_oss", R"("swiglu_alpha": 1e30)", "the model's swiglu_alpha is"},
      {"olmoe", R"("clip_qkv": 0)", "clip_qkv is 0, but must be above 0 or null"},
      {"olmoe", R"("clip_qkv": 1e300)", "the model's clip_qkv is inf"},
      {"olmoe", R"("clip_qkv": -8)", "clip_qkv is -8, but must be above 0 or null"},
  };
  for (const Case& c : kCases) {
    const std::string message = message_of(c.model_type, c.keys);
    EXPECT_NE(message.find(c.message), std::string::npos) << c.keys << ": " << message;
  }
}

// Only dense layers need the width of one.
TEST(ExpertsJson, TheWidthOfDenseLayersMayBeMissing) {
  constexpr const char* kText =
      R"({{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 256{}}})";
  EXPECT_TRUE(read_config_json(FakeCheckpoint(fmt::format(kText, ""))).ok());
  const auto config =
      read_config_json(FakeCheckpoint(fmt::format(kText, R"(, "mlp_only_layers": [1])")));
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message,
            "the model's intermediate_size is 0, but must be between 1 and 10000000");
}

// ---- GGUF ---------------------------------------------------------------------------------------

// A file with two layers; those listed have experts of width 24, four unless the key says
// otherwise.
FakeCheckpoint file_of(const char* architecture, const std::vector<int>& layers = {0, 1},
                       int64_t num_experts = 4, int64_t per_token = 2) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  const std::string prefix = std::string(architecture) + ".";
  file.key("general.architecture", std::string_view(architecture))
      .key(prefix + "embedding_length", int64_t{64})
      .key(prefix + "context_length", int64_t{512})
      .key(prefix + "block_count", int64_t{2})
      .key(prefix + "feed_forward_length", int64_t{96})
      .key(prefix + "attention.head_count", int64_t{4})
      .key(prefix + "attention.head_count_kv", int64_t{2})
      .key(prefix + "expert_count", num_experts)
      .key(prefix + "expert_used_count", per_token)
      .tensor("token_embd.weight", {256, 64});
  for (const int layer : layers) {
    file.tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer), {4, 64});
    file.tensor(fmt::format("blk.{}.ffn_down_exps.weight", layer), {4, 64, 24});
  }
  return file;
}

ModelConfig read(const FakeCheckpoint& file) {
  const auto config = read_config_gguf(file);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

TEST(ExpertsGguf, TheArchitectureTellsTheRouter) {
  struct Case {
    const char* architecture;
    const char* family;
    RouterScore score;
    bool normalise;
  };
  constexpr Case kCases[] = {
      {"llama", "mixtral", RouterScore::kSoftmax, true},
      {"olmoe", "olmoe", RouterScore::kSoftmax, false},
      {"qwen2moe", "qwen2_moe", RouterScore::kSoftmax, false},
      {"qwen3moe", "qwen3_moe", RouterScore::kSoftmax, true},
      {"granitemoe", "granitemoe", RouterScore::kSoftmaxChosen, false},
      {"gpt-oss", "gpt_oss", RouterScore::kSoftmaxChosen, false},
      {"glm4moe", "glm4_moe", RouterScore::kSigmoid, false},
      {"minimax-m2", "minimax_m2", RouterScore::kSigmoid, true},
      {"dots1", "dots1", RouterScore::kSigmoid, true},
      {"ernie4_5-moe", "ernie4_5_moe", RouterScore::kSoftmax, true},
      {"hunyuan-moe", "hunyuan_v1_moe", RouterScore::kSoftmax, true},
      {"lfm2moe", "lfm2_moe", RouterScore::kSigmoid, true},
      {"phimoe", "phimoe", RouterScore::kSparseMixer, false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.architecture);
    const ModelConfig config = read(file_of(c.architecture));
    EXPECT_EQ(config.family, c.family);
    EXPECT_EQ(mlps_of(config), "ee");
    const ExpertConfig experts = experts_of(config);
    EXPECT_EQ(experts.score, c.score);
    EXPECT_EQ(experts.normalise, c.normalise);
    EXPECT_EQ(experts.num_experts, 4);
    EXPECT_EQ(experts.num_experts_per_token, 2);
    EXPECT_EQ(experts.intermediate_size, 24);
    EXPECT_EQ(experts.shared_intermediate_size, 0);
    EXPECT_EQ(config.expert_bias, Presence::kIfPresent);
    EXPECT_FALSE(config.interleaved_experts);
    EXPECT_EQ(config.transposed, Transposed::kNone);
  }
}

// A number for each layer is one number if they are the same.
TEST(ExpertsJson, ListsOfOneNumber) {
  const ModelConfig config = read("hunyuan_v1_moe", R"("moe_topk": [3, 3, 3, 3, 3, 3],
                                                       "num_experts": [8, 8, 8, 8, 8, 8])");
  EXPECT_EQ(experts_of(config).num_experts_per_token, 3);
  EXPECT_EQ(experts_of(config).num_experts, 8);
  EXPECT_NE(message_of("hunyuan_v1_moe", R"("moe_topk": [3, 2], "num_experts": 8)")
                .find("must all be one whole number"),
            std::string::npos);
  EXPECT_NE(message_of("hunyuan_v1_moe", R"("moe_topk": [], "num_experts": 8)").find("num_experts"),
            std::string::npos);
}

TEST(ExpertsJson, ASparseMixerHasItsJitter) {
  EXPECT_EQ(experts_of(read("phimoe")).jitter, 0.01f);
  EXPECT_EQ(experts_of(read("phimoe", R"("router_jitter_noise": 0.25)")).jitter, 0.25f);
  EXPECT_EQ(experts_of(read("mixtral", R"("router_jitter_noise": 0.25)")).jitter, 0);
  EXPECT_NE(message_of("phimoe", R"("router_jitter_noise": -1)").find("router_jitter_noise"),
            std::string::npos);
  EXPECT_NE(message_of("phimoe", R"("num_experts_per_tok": 3)").find("num_experts_per_tok"),
            std::string::npos);
}

TEST(ExpertsJson, LayersOfConvolutionHaveExpertsToo) {
  const ModelConfig config =
      read("lfm2_moe", R"("num_dense_layers": 2, "layer_types": ["conv", "full_attention", "conv",
                          "conv", "full_attention", "conv"])");
  EXPECT_EQ(mlps_of(config), "ddeeee");
  EXPECT_EQ(config.layers[0].intermediate_size, 96);  // as stated: nothing is adjusted
  EXPECT_EQ(config.layers[2].intermediate_size, 0);
  EXPECT_EQ(config.layers[2].mixer, MixerKind::kShortConv);
  EXPECT_EQ(experts_of(config).score, RouterScore::kSigmoid);
  EXPECT_EQ(experts_of(config).normalise_epsilon, 1e-6f);
  EXPECT_EQ(experts_of(config).intermediate_size, 1792);
  EXPECT_NE(message_of("lfm2_moe", R"("use_expert_bias": false)").find("use_expert_bias"),
            std::string::npos);
}

TEST(ExpertsGguf, KeysChangeTheRouter) {
  FakeCheckpoint file = file_of("glm4moe");
  file.key("glm4moe.expert_gating_func", int64_t{1})
      .key("glm4moe.expert_weights_norm", true)
      .key("glm4moe.expert_weights_scale", 2.5)
      .key("glm4moe.expert_group_count", int64_t{2})
      .key("glm4moe.expert_group_used_count", int64_t{1});
  const ExpertConfig experts = experts_of(read(file));
  EXPECT_EQ(experts.score, RouterScore::kSoftmax);
  EXPECT_TRUE(experts.normalise);
  EXPECT_EQ(experts.normalise_epsilon, 1e-20f);
  EXPECT_EQ(experts.scale, 2.5f);
  EXPECT_EQ(experts.num_groups, 2);
  EXPECT_EQ(experts.num_groups_kept, 1);
  // None.
  FakeCheckpoint unscaled = file_of("glm4moe");
  unscaled.key("glm4moe.expert_weights_scale", 0.0);
  EXPECT_EQ(experts_of(read(unscaled)).scale, 1);
  FakeCheckpoint clipped = file_of("olmoe");
  clipped.key("olmoe.attention.clamp_kqv", 6.5);
  EXPECT_EQ(read(clipped).layers[0].qkv_clip, 6.5f);
  FakeCheckpoint other = file_of("glm4moe");
  other.key("glm4moe.expert_gating_func", int64_t{4});
  EXPECT_EQ(read_config_gguf(other).error().code, ErrorCode::kUnsupported);
}

TEST(ExpertsGguf, TensorsTellWhatIsThere) {
  FakeCheckpoint file = file_of("glm4moe", {1});
  file.tensor("blk.1.ffn_down_shexp.weight", {64, 40}).tensor("blk.1.exp_probs_b.bias", {4});
  file.tensor("blk.0.attn_q_norm.weight", {16});
  const ModelConfig config = read(file);
  EXPECT_EQ(mlps_of(config), "de");
  EXPECT_EQ(config.layers[0].intermediate_size, 96);
  EXPECT_EQ(experts_of(config).shared_intermediate_size, 40);
  EXPECT_FALSE(experts_of(config).shared_gate);
  EXPECT_TRUE(experts_of(config).selection_bias);
  EXPECT_EQ(config.layers[0].qk_norm, QkNorm::kPerHead);
  FakeCheckpoint plain = file_of("glm4moe");
  EXPECT_FALSE(experts_of(read(plain)).selection_bias);
  EXPECT_EQ(read(plain).layers[0].qk_norm, QkNorm::kNone);
  FakeCheckpoint gated = file_of("qwen2moe");
  gated.tensor("blk.1.ffn_down_shexp.weight", {64, 48});
  gated.tensor("blk.1.ffn_gate_inp_shexp.weight", {64});
  EXPECT_TRUE(experts_of(read(gated)).shared_gate);
}

TEST(ExpertsGguf, WhatIsWrongIsNamed) {
  const auto message = [](const FakeCheckpoint& file) {
    const auto config = read_config_gguf(file);
    EXPECT_FALSE(config.ok());
    return config.ok() ? "" : config.error().message;
  };
  FakeCheckpoint missing = file_of("qwen3moe");
  missing.remove("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(message(missing),
            "the GGUF file has no tensor blk.1.ffn_down_exps.weight of three dimensions");
  FakeCheckpoint flat = file_of("qwen3moe");
  flat.tensor("blk.0.ffn_down_exps.weight", {64, 24});
  EXPECT_NE(message(flat).find("blk.0.ffn_down_exps.weight"), std::string::npos);
  EXPECT_EQ(message(file_of("olmoe", {0, 1}, 4, 5)),
            "the model's num_experts_per_token is 5, but must be between 1 and 4");
  EXPECT_NE(message(file_of("olmoe", {0, 1}, int64_t{1} << 40))
                .find("olmoe.expert_count is 1099511627776"),
            std::string::npos);
  // An architecture whose networks have no experts.
  EXPECT_EQ(message(file_of("qwen3")),
            "this GGUF file has 4 experts per layer, but qwen3 networks have none in this version");
}

// Its files do not say that the ramp is not rounded.
TEST(ExpertsGguf, GptOssKeepsItsRamp) {
  FakeCheckpoint file = file_of("gpt-oss");
  file.key("gpt-oss.rope.scaling.type", std::string_view("yarn"))
      .key("gpt-oss.rope.scaling.factor", 32.0)
      .key("gpt-oss.rope.scaling.original_context_length", int64_t{4096})
      .key("gpt-oss.attention.sliding_window", int64_t{16});
  const ModelConfig config = read(file);
  EXPECT_FALSE(config.ropes.at(0).truncate);
  EXPECT_TRUE(read(file_of("qwen3moe")).ropes.at(0).truncate);
  EXPECT_EQ(windows_of(config), "sf");
  EXPECT_TRUE(config.layers[0].attention_sinks);
}

}  // namespace read_experts_test
}  // namespace headrace
