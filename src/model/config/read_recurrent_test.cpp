// Layers of short convolution and of state space scans, as config.json and GGUF keys say them.
#include "model/config/read_recurrent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_recurrent_test {

using testing::FakeCheckpoint;

Result<ModelConfig> read(std::string_view keys) {
  return read_config_json(FakeCheckpoint(
      fmt::format(R"({{"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 4{}}})", keys)));
}
ModelConfig config_of(std::string_view keys) {
  const Result<ModelConfig> config = read(keys);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}
std::string error_of(std::string_view keys) {
  const Result<ModelConfig> config = read(keys);
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : config.error().message;
}

// a: attention, c: short convolution, s: scan.
std::string mixers_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) {
    text += layer.mixer == MixerKind::kAttention ? 'a'
            : layer.mixer == MixerKind::kScan    ? 's'
                                                 : 'c';
  }
  return text;
}

// ---- lfm2 ---------------------------------------------------------------------------------------

constexpr std::string_view kLfm2 =
    R"(, "model_type": "lfm2", "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2)";

ModelConfig lfm2(std::string_view more) { return config_of(fmt::format("{}{}", kLfm2, more)); }

TEST(ReadShortConv, AListOfTypesWinsOverOneOfNumbersAndThisOverAllAttention) {
  EXPECT_EQ(mixers_of(lfm2("")), "aaaa");
  EXPECT_EQ(mixers_of(lfm2(R"(, "full_attn_idxs": [1, 3])")), "caca");
  EXPECT_EQ(mixers_of(lfm2(R"(, "full_attn_idxs": [0, 9, -1],
      "layer_types": ["conv", "conv", "full_attention", "conv"])")),
            "ccac");
  EXPECT_EQ(mixers_of(lfm2(R"(, "full_attn_idxs": [0, 9, -1])")), "accc");
  EXPECT_NE(error_of(fmt::format(R"({}, "layer_types": ["conv"])", kLfm2)).find("1 entries"),
            std::string::npos);
  EXPECT_NE(error_of(fmt::format(R"({}, "layer_types": ["conv", "conv", "conv", "swirl"])", kLfm2))
                .find("'swirl'"),
            std::string::npos);
}

TEST(ReadShortConv, LayersHaveTheirTapsAndNothingOfAttention) {
  const ModelConfig config = lfm2(R"(, "full_attn_idxs": [2], "conv_L_cache": 5,
                                     "conv_bias": true)");
  const LayerConfig& layer = config.layers[0];
  EXPECT_EQ(layer.short_conv.num_taps, 5);
  EXPECT_EQ(layer.num_attention_heads, 0);
  EXPECT_EQ(layer.rope_idx, -1);
  EXPECT_EQ(layer.qk_norm, QkNorm::kNone);
  EXPECT_EQ(config.conv_bias, Presence::kRequired);
  EXPECT_EQ(config.mixer_bias, Presence::kRequired);
  EXPECT_EQ(config.layers[2].qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(config.layers[2].short_conv.num_taps, 0);
  EXPECT_EQ(lfm2(R"(, "full_attn_idxs": [])").layers[0].short_conv.num_taps, 3);
  EXPECT_EQ(lfm2("").conv_bias, Presence::kAbsent);
}

TEST(ReadShortConv, TheMlpIsTwoThirdsRoundedUpUnlessToldOtherwise) {
  EXPECT_EQ(lfm2("").layers[0].intermediate_size, 256);
  EXPECT_EQ(lfm2(R"(, "block_multiple_of": 16)").layers[0].intermediate_size, 64);
  EXPECT_EQ(lfm2(R"(, "block_multiple_of": 16, "block_ff_dim": 100)").layers[0].intermediate_size,
            80);
  EXPECT_EQ(lfm2(R"(, "block_multiple_of": 1, "block_ffn_dim_multiplier": 1.5)")
                .layers[0]
                .intermediate_size,
            96);
  EXPECT_EQ(lfm2(R"(, "block_auto_adjust_ff_dim": false)").layers[0].intermediate_size, 96);
  EXPECT_NE(error_of(fmt::format(R"({}, "block_ffn_dim_multiplier": -2)", kLfm2))
                .find("block_ffn_dim_multiplier"),
            std::string::npos);
}

TEST(ReadShortConv, TheHeadIsTiedByItsOwnKeyBeforeTheUsualOne) {
  EXPECT_TRUE(lfm2("").tie_word_embeddings);
  EXPECT_FALSE(lfm2(R"(, "tie_word_embeddings": false)").tie_word_embeddings);
  EXPECT_TRUE(lfm2(R"(, "tie_word_embeddings": false, "tie_embedding": true)").tie_word_embeddings);
}

TEST(ReadShortConv, TapsHaveBounds) {
  for (const int taps : {1, 17}) {
    EXPECT_NE(error_of(fmt::format(R"({}, "full_attn_idxs": [1], "conv_L_cache": {})", kLfm2, taps))
                  .find("conv_L_cache"),
              std::string::npos);
  }
}

// ---- mamba2 -------------------------------------------------------------------------------------

ModelConfig mamba2(std::string_view more) {
  return config_of(
      fmt::format(R"(, "model_type": "mamba2", "head_dim": 16, "n_groups": 2{})", more));
}

TEST(ReadScan, LayersAreAMixerOnly) {
  const ModelConfig config = mamba2("");
  EXPECT_EQ(mixers_of(config), "ssss");
  EXPECT_TRUE(config.ropes.empty());
  const LayerConfig& layer = config.layers[0];
  EXPECT_EQ(layer.mlp, MlpKind::kNone);
  EXPECT_EQ(layer.intermediate_size, 0);
  EXPECT_EQ(layer.scan.num_heads, 8);  // of 2 * 64
  EXPECT_EQ(layer.scan.head_dim, 16);
  EXPECT_EQ(layer.scan.num_groups, 2);
  EXPECT_EQ(layer.scan.state_width, 128);
  EXPECT_EQ(layer.scan.num_taps, 4);
  EXPECT_EQ(layer.scan.num_channels(), 128 + 2 * 2 * 128);
  EXPECT_EQ(layer.scan.projection_width(), 128 + 128 + 2 * 2 * 128 + 8);
  EXPECT_EQ(config.conv_bias, Presence::kRequired);
  EXPECT_EQ(config.mixer_bias, Presence::kAbsent);
}

TEST(ReadScan, KeysOfAttentionAreNotRead) {
  const ModelConfig config = mamba2(
      R"(, "num_attention_heads": 3, "num_key_value_heads": 2, "intermediate_size": 7, "num_heads": 8,
           "use_bias": true, "use_conv_bias": false)");
  EXPECT_EQ(config.layers[0].num_attention_heads, 0);
  EXPECT_EQ(config.layers[0].scan.inner_size(), 128);
  EXPECT_EQ(config.mixer_bias, Presence::kRequired);
  EXPECT_EQ(config.conv_bias, Presence::kAbsent);
}

TEST(ReadScan, TimeStepsAreLimitedByNumbersOrInfinity) {
  EXPECT_EQ(mamba2("").layers[0].scan.time_step_min, 0);
  EXPECT_TRUE(std::isinf(mamba2("").layers[0].scan.time_step_max));
  const ScanConfig limited = mamba2(R"(, "time_step_limit": [0.01, 0.5])").layers[0].scan;
  EXPECT_FLOAT_EQ(limited.time_step_min, 0.01f);
  EXPECT_FLOAT_EQ(limited.time_step_max, 0.5f);
  const ScanConfig open =
      mamba2(R"(, "time_step_limit": [0.25, {"__float__": "Infinity"}])").layers[0].scan;
  EXPECT_FLOAT_EQ(open.time_step_min, 0.25f);
  EXPECT_TRUE(std::isinf(open.time_step_max));
  constexpr std::string_view kStart = R"(, "model_type": "mamba2", "head_dim": 16, "n_groups": 2)";
  for (const char* limits : {"[0.1]", "3", R"([0, {"__float__": "NaN"}])", R"([0, "x"])"}) {
    EXPECT_NE(error_of(fmt::format(R"({}, "time_step_limit": {})", kStart, limits))
                  .find("time_step_limit"),
              std::string::npos)
        << limits;
  }
  EXPECT_NE(
      error_of(fmt::format(R"({}, "time_step_limit": [2, 1])", kStart)).find("largest time step"),
      std::string::npos);
}

TEST(ReadScan, HeadsMakeTheInnerWidthAndGroupsDivideThem) {
  EXPECT_NE(error_of(R"(, "model_type": "mamba2", "head_dim": 16, "num_heads": 7)").find("7 heads"),
            std::string::npos);
  EXPECT_NE(error_of(R"(, "model_type": "mamba2", "head_dim": 16, "n_groups": 3)").find("3 groups"),
            std::string::npos);
  EXPECT_NE(error_of(R"(, "model_type": "mamba2", "head_dim": 16, "n_groups": 2,
                         "state_size": 5000)")
                .find("state width"),
            std::string::npos);
}

// ---- GGUF ---------------------------------------------------------------------------------------

FakeCheckpoint gguf_of(std::string_view architecture) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  file.key("general.architecture", architecture);  // a view: literals only
  const auto key = [&](std::string_view name, int64_t value) {
    file.key(fmt::format("{}.{}", architecture, name), value);
  };
  key("embedding_length", 64);
  key("block_count", 2);
  key("context_length", 512);
  file.tensor("token_embd.weight", {256, 64});
  return file;
}

FakeCheckpoint mamba2_gguf(int64_t num_heads) {
  FakeCheckpoint file = gguf_of("mamba2");
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"attention.head_count", 0},
                                                              {"feed_forward_length", 0},
                                                              {"ssm.conv_kernel", 4},
                                                              {"ssm.inner_size", 128},
                                                              {"ssm.state_size", 16},
                                                              {"ssm.time_step_rank", num_heads},
                                                              {"ssm.group_count", 2}}) {
    file.key(fmt::format("mamba2.{}", name), value);
  }
  for (const int layer : {0, 1}) file.tensor(fmt::format("blk.{}.ssm_in.weight", layer), {328, 64});
  return file;
}

TEST(ReadScan, AGgufFileOfScansHasNoHeadsAndNoMlp) {
  const Result<ModelConfig> config = read_config_gguf(mamba2_gguf(8));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(mixers_of(*config), "ss");
  EXPECT_EQ(config->layers[1].scan.head_dim, 16);
  EXPECT_EQ(config->layers[1].scan.num_groups, 2);
  EXPECT_EQ(config->conv_bias, Presence::kIfPresent);
  const Result<ModelConfig> odd = read_config_gguf(mamba2_gguf(9));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("ssm.inner_size"), std::string::npos);
}

TEST(ReadShortConv, AGgufFileTellsItsLayersByTheirTensors) {
  FakeCheckpoint file = gguf_of("lfm2");
  file.key("lfm2.attention.head_count", int64_t{4});
  file.key("lfm2.attention.head_count_kv", std::vector<int64_t>{0, 2});
  file.key("lfm2.feed_forward_length", int64_t{96});
  file.key("lfm2.shortconv.l_cache", int64_t{3});
  file.tensor("blk.0.shortconv.in_proj.weight", {192, 64});
  const Result<ModelConfig> config = read_config_gguf(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(mixers_of(*config), "ca");
  EXPECT_EQ(config->layers[0].short_conv.num_taps, 3);
  EXPECT_EQ(config->layers[1].num_key_value_heads, 2);
  file.remove("blk.0.shortconv.in_proj.weight");
  EXPECT_FALSE(read_config_gguf(file).ok());  // attention without keys
}

}  // namespace read_recurrent_test
}  // namespace headrace
