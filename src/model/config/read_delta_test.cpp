#include "model/config/read_delta.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_delta_test {

using testing::FakeCheckpoint;

std::string config_of(std::string_view more = "") {
  return fmt::format(
      R"({{"model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 256,
          "max_position_embeddings": 512{}{}}})",
      more.empty() ? "" : ", ", more);
}

ModelConfig read(std::string_view more = "") {
  const auto config = read_config_json(FakeCheckpoint(config_of(more)));
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

std::string error_of(std::string_view more) {
  const auto config = read_config_json(FakeCheckpoint(config_of(more)));
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : config.error().message;
}

std::string kinds_of(const ModelConfig& config) {
  std::string kinds;
  for (const LayerConfig& layer : config.layers) {
    kinds += layer.mixer == MixerKind::kGatedDelta ? 'd' : 'a';
  }
  return kinds;
}

TEST(ReadDelta, EveryFourthLayerIsAttentionUnlessTheFileSaysOtherwise) {
  EXPECT_EQ(kinds_of(read()), "dddadd");
  EXPECT_EQ(kinds_of(read(R"("full_attention_interval": 3)")), "ddadda");
  EXPECT_EQ(kinds_of(read(R"("full_attention_interval": 3,
      "layer_types": ["full_attention", "linear_attention", "linear_attention",
                      "linear_attention", "full_attention", "linear_attention"])")),
            "adddad");
}

TEST(ReadDelta, SizesAreTheFilesOrTheFamilys) {
  const LayerConfig defaults = read().layers[0];
  EXPECT_EQ(defaults.delta.num_key_heads, 16);
  EXPECT_EQ(defaults.delta.num_value_heads, 32);
  EXPECT_EQ(defaults.delta.key_head_dim, 128);
  EXPECT_EQ(defaults.delta.value_head_dim, 128);
  EXPECT_EQ(defaults.delta.conv_kernel, 4);
  const LayerConfig layer = read(R"("linear_num_key_heads": 3, "linear_num_value_heads": 6,
      "linear_key_head_dim": 24, "linear_value_head_dim": 40, "linear_conv_kernel_dim": 3)")
                                .layers[0];
  EXPECT_EQ(layer.delta.num_key_heads, 3);
  EXPECT_EQ(layer.delta.num_value_heads, 6);
  EXPECT_EQ(layer.delta.key_head_dim, 24);
  EXPECT_EQ(layer.delta.value_head_dim, 40);
  EXPECT_EQ(layer.delta.conv_kernel, 3);
  EXPECT_FALSE(layer.delta.tiled_heads);
}

// A layer of the delta rule has nothing of attention, one of attention nothing of the delta rule.
TEST(ReadDelta, LayersHoldWhatIsTheirs) {
  const ModelConfig config = read();
  const LayerConfig &delta = config.layers[0], &attention = config.layers[3];
  EXPECT_EQ(delta.num_attention_heads, 0);
  EXPECT_EQ(delta.rope_idx, -1);
  EXPECT_FALSE(delta.attention_gate);
  EXPECT_EQ(delta.intermediate_size, 96);
  EXPECT_TRUE(attention.attention_gate);
  EXPECT_EQ(attention.head_dim, 256);
  EXPECT_EQ(attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(attention.delta.num_key_heads, 0);
  EXPECT_EQ(config.ropes[0].rope_dims, 64);
  EXPECT_TRUE(config.norm_weight_plus_one);
}

// ---- A decay for each key dimension -------------------------------------------------------------

ModelConfig read_channels(std::string_view more) {
  const auto config = read_config_json(FakeCheckpoint(fmt::format(
      R"({{"model_type": "kimi_linear", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 256,
          "model_max_length": 512, "num_experts": 4, "num_experts_per_token": 2,
          "qk_rope_head_dim": 8, {}}})",
      more)));
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

std::string channel_kinds_of(const ModelConfig& config) {
  std::string kinds;
  for (const LayerConfig& layer : config.layers) {
    kinds += layer.mixer == MixerKind::kChannelDelta ? 'd' : '-';
    EXPECT_EQ(layer.mixer == MixerKind::kLatent, kinds.back() == '-');
  }
  return kinds;
}

// Older files count their layers from 1, and keep the sizes in the same dictionary.
TEST(ReadDelta, ChannelsAreReadFromBothGenerationsOfKeys) {
  const ModelConfig older = read_channels(
      R"("linear_attn_config": {"full_attn_layers": [2, 6], "kda_layers": [1, 3, 4, 5],
          "num_heads": 3, "head_dim": 24, "short_conv_kernel_size": 5})");
  EXPECT_EQ(channel_kinds_of(older), "d-ddd-");
  const DeltaConfig& delta = older.layers[0].delta;
  EXPECT_EQ(delta.num_key_heads, 3);
  EXPECT_EQ(delta.num_value_heads, 3);
  EXPECT_EQ(delta.key_head_dim, 24);
  EXPECT_EQ(delta.value_head_dim, 24);
  EXPECT_EQ(delta.conv_kernel, 5);
  EXPECT_EQ(older.max_position_embeddings, 512);
  const ModelConfig newer = read_channels(
      R"("linear_num_heads": 2, "linear_head_dim": 16, "layer_types": ["linear_attention",
          "full_attention", "linear_attention", "linear_attention", "linear_attention",
          "linear_attention"])");
  EXPECT_EQ(channel_kinds_of(newer), "d-dddd");
  EXPECT_EQ(newer.layers[0].delta.num_value_heads, 2);
  EXPECT_EQ(newer.layers[0].delta.conv_kernel, 4);
  EXPECT_EQ(newer.layers[1].rope_idx, -1);  // its rope slice is not rotated
  EXPECT_EQ(channel_kinds_of(read_channels(R"("linear_num_heads": 2)")), "dddd-d");
}

TEST(ReadDelta, AbsurdSizesAreRefused) {
  struct Case {
    const char* more;
    const char* message;
  };
  constexpr Case kCases[] = {
      {R"("layer_types": ["full_attention"])", "layer_types has 1 entries"},
      {R"("layer_types": ["sliding_attention", "full_attention", "full_attention",
                          "full_attention", "full_attention", "full_attention"])",
       "layer_types[0] is 'sliding_attention'"},
      {R"("full_attention_interval": 0)", "full_attention_interval is 0"},
      {R"("linear_num_key_heads": 5)", "must be a multiple of linear_num_key_heads"},
      {R"("linear_num_value_heads": 4112)", "linear_num_value_heads is 4112"},
      {R"("linear_key_head_dim": 513)", "linear_key_head_dim is 513"},
      {R"("linear_value_head_dim": 100000)", "linear_value_head_dim is 100000"},
      {R"("linear_conv_kernel_dim": 1)", "linear_conv_kernel_dim is 1"},
      {R"("linear_conv_kernel_dim": 1000)", "linear_conv_kernel_dim is 1000"},
  };
  for (const Case& c : kCases) {
    const std::string message = error_of(c.more);
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
}

}  // namespace read_delta_test
}  // namespace headrace
