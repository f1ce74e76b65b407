// The learned activation of each layer, as both kinds of files say it.
#include "model/config/read_xielu.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/config/config_files.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_xielu_test {

using testing::FakeCheckpoint;

std::string text_of(std::string_view model_type) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
          "rope_parameters": {{"rope_type": "default", "rope_theta": 1e4}},
          "hidden_act": "xielu"}})",
      model_type);
}

FakeCheckpoint saved() {
  FakeCheckpoint file(text_of("apertus"));
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.act_fn.", i);
    file.tensor_of(prefix + "alpha_p", {1}, {0.5f + static_cast<float>(i)});
    file.tensor_of(prefix + "alpha_n", {1}, {-0.25f});
  }
  return file;
}

std::string message_of(const FakeCheckpoint& file) {
  const auto config =
      file.kind() == CheckpointKind::kGguf ? read_config_gguf(file) : read_config_json(file);
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : config.error().message;
}

float softplus(double x) { return static_cast<float>(std::log(1 + std::exp(x))); }

TEST(ReadXielu, EachLayerHasTheCurveOfItsTensors) {
  FakeCheckpoint file = saved();
  file.tensor_of("model.layers.1.mlp.act_fn.beta", {}, {0.75f});
  file.tensor_of("model.layers.1.mlp.act_fn.eps", {}, {-1e-5f});
  const auto config = read_config_json(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const Xielu &first = config->layers[0].xielu, &second = config->layers[1].xielu;
  EXPECT_FLOAT_EQ(first.positive, softplus(0.5));
  EXPECT_FLOAT_EQ(first.negative, 0.5f + softplus(-0.25));
  EXPECT_EQ(first.beta, 0.5f);
  EXPECT_EQ(first.eps, -1e-6f);
  EXPECT_FLOAT_EQ(second.positive, softplus(1.5));
  EXPECT_FLOAT_EQ(second.negative, 0.75f + softplus(-0.25));
  EXPECT_EQ(second.beta, 0.75f);
  EXPECT_EQ(second.eps, -1e-5f);
  EXPECT_EQ(config->layers[0].mlp, MlpKind::kPlain);
}

TEST(ReadXielu, WhatIsMissingOrIsNoNumberIsNamed) {
  FakeCheckpoint missing = saved();
  missing.remove("model.layers.1.mlp.act_fn.alpha_n");
  EXPECT_EQ(message_of(missing), "layer 1 has no alpha_n, which its activation xielu needs");
  FakeCheckpoint two = saved();
  two.tensor("model.layers.0.mlp.act_fn.alpha_p", {2});
  EXPECT_NE(message_of(two).find("one number"), std::string::npos);
  FakeCheckpoint coded = saved();
  coded.tensor("model.layers.0.mlp.act_fn.alpha_p", {1}, DType::kI32);
  EXPECT_NE(message_of(coded).find("one number"), std::string::npos);
  FakeCheckpoint steep = saved();
  steep.tensor_of("model.layers.0.mlp.act_fn.alpha_p", {1}, {1e9f});
  EXPECT_NE(message_of(steep).find("xielu alpha_p"), std::string::npos);
}

// A gate has no curve.
TEST(ReadXielu, NetworksWithGatesAreRefused) {
  FakeCheckpoint file = saved();
  file.file("config.json", text_of("llama"));
  EXPECT_NE(message_of(file).find("llama networks have an MLP with a gate"), std::string::npos);
}

FakeCheckpoint gguf() {
  FakeCheckpoint file(CheckpointKind::kGguf);
  const std::string prefix = "apertus.";
  file.key("general.architecture", std::string_view("apertus"))
      .key(prefix + "embedding_length", int64_t{64})
      .key(prefix + "context_length", int64_t{512})
      .key(prefix + "block_count", int64_t{2})
      .key(prefix + "feed_forward_length", int64_t{96})
      .key(prefix + "attention.head_count", int64_t{4})
      .key(prefix + "attention.head_count_kv", int64_t{2})
      .tensor("token_embd.weight", {256, 64});
  return file;
}

TEST(ReadXielu, GgufFilesHaveOneNumberForAllLayers) {
  FakeCheckpoint file = gguf();
  file.key("xielu.alpha_p", 0.5).key("xielu.alpha_n", -0.25);
  const auto config = read_config_gguf(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  for (const LayerConfig& layer : config->layers) {
    EXPECT_FLOAT_EQ(layer.xielu.positive, softplus(0.5));
    EXPECT_FLOAT_EQ(layer.xielu.negative, 0.5f + softplus(-0.25));
  }
  EXPECT_EQ(message_of(gguf()), "layer 0 has no alpha_p, which its activation xielu needs");
}

}  // namespace read_xielu_test
}  // namespace headrace
