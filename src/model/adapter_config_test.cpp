#include "model/adapter_config.h"

#include <gtest/gtest.h>

namespace headrace {
namespace adapter_config_test {

AdapterConfig read(std::string_view text) {
  auto config = read_adapter_config(text);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? std::move(config).value() : AdapterConfig{};
}

std::string message_of(std::string_view text) {
  const auto config = read_adapter_config(text);
  EXPECT_FALSE(config.ok()) << text;
  return config.ok() ? "" : config.error().message;
}

TEST(AdapterConfig, ScalesFollowRankAndAlpha) {
  const AdapterConfig plain = read(R"({"peft_type": "LORA", "r": 16, "lora_alpha": 8})");
  EXPECT_EQ(plain.rank_of("model.layers.0.self_attn.q_proj").value(), 16);
  EXPECT_EQ(plain.scale_of("q_proj", 16).value(), 0.5f);
  const AdapterConfig stable = read(R"({"r": 16, "lora_alpha": 8, "use_rslora": true})");
  EXPECT_EQ(stable.scale_of("q_proj", 16).value(), 2.0f);
  EXPECT_EQ(read("{}").scale_of("q_proj", 8).value(), 1.0f) << "the defaults of the format";
}

// A pattern is matched with a whole name, or with its end behind a dot; the first one counts.
TEST(AdapterConfig, PatternsAreMatchedFromADotToTheEnd) {
  const AdapterConfig config = read(
      R"({"r": 8, "lora_alpha": 8, "rank_pattern": {"layers.0.mlp.down_proj": 3, "k_proj|v_proj": 4,
          "layers\\.1\\..*q_proj": 70, "q_proj": 5}, "alpha_pattern": {".*\\.up_proj": 16}})");
  EXPECT_EQ(config.rank_of("model.layers.0.mlp.down_proj").value(), 3);
  EXPECT_EQ(config.rank_of("model.layers.10.mlp.down_proj").value(), 8);
  EXPECT_EQ(config.rank_of("model.layers.1.self_attn.q_proj").value(), 70);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.q_proj").value(), 5);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.v_proj").value(), 4);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.qq_proj").value(), 8);
  EXPECT_EQ(config.scale_of("model.layers.0.mlp.up_proj", 8).value(), 2.0f);
  EXPECT_EQ(config.scale_of("up_proj", 8).value(), 1.0f) << "the pattern wants a dot";
}

TEST(AdapterConfig, PatternsThatCannotBeMatchedAreErrors) {
  const AdapterConfig broken = read(R"({"rank_pattern": {"(": 3}})");
  EXPECT_NE(broken.rank_of("q_proj").error().message.find("'('"), std::string::npos);
  const AdapterConfig slow = read(R"({"alpha_pattern": {"(x+x+)+y": 3}})");
  const auto scale = slow.scale_of(std::string(200, 'x'), 8);  // ends, one way or the other
  if (!scale.ok()) {
    EXPECT_EQ(scale.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(AdapterConfig, WhatCannotBeLoadedIsNamed) {
  EXPECT_NE(message_of(R"({"peft_type": "IA3"})").find("IA3"), std::string::npos);
  EXPECT_NE(message_of(R"({"use_qalora": true})").find("use_qalora"), std::string::npos);
  EXPECT_NE(message_of(R"({"alora_invocation_tokens": [1]})").find("alora"), std::string::npos);
  EXPECT_NE(message_of(R"({"bias": "some"})").find("bias"), std::string::npos);
  EXPECT_NE(message_of(R"({"r": 0})").find("1 to 256"), std::string::npos);
  EXPECT_NE(message_of(R"({"r": 257})").find("1 to 256"), std::string::npos);
  EXPECT_NE(message_of(R"({"rank_pattern": {"q": 1e9}})").find("q"), std::string::npos);
  EXPECT_NE(message_of(R"({"lora_alpha": 1e300})").find("lora_alpha"), std::string::npos);
  EXPECT_FALSE(message_of("[]").empty());
  EXPECT_FALSE(message_of("{").empty());
  EXPECT_FALSE(message_of(R"({"r": "x"})").empty());
  EXPECT_FALSE(message_of(R"({"rank_pattern": 3})").empty());
  const std::string longest(2000, 'a');
  EXPECT_NE(message_of(R"({"rank_pattern": {")" + longest + R"(": 3}})").find("1024"),
            std::string::npos);
  EXPECT_TRUE(read_adapter_config(R"({"use_qalora": false, "layer_replication": null})").ok());
}

// Some ways to begin take their part out of the base's weights.
TEST(AdapterConfig, BeginningsThatChangeTheBaseAreRefused) {
  for (const char* value : {"pissa", "pissa_niter_16", "corda", "olora", "loftq"}) {
    const std::string text = std::string(R"({"init_lora_weights": ")") + value + R"("})";
    EXPECT_NE(message_of(text).find(value), std::string::npos) << value;
  }
  for (const char* value : {"true", "false", "null", R"("gaussian")", R"("eva")", R"("mica")"}) {
    read(std::string(R"({"init_lora_weights": )") + value + "}");
  }
}

}  // namespace adapter_config_test
}  // namespace headrace
