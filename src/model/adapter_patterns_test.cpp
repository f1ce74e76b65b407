// Rank and scale of each module, and what adapter_config.json may not say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/adapter_config.h"

namespace headrace {
namespace adapter_patterns_test {

AdapterConfig config_of(std::string_view text) {
  auto config = read_adapter_config(text);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? std::move(config).value() : AdapterConfig{};
}

TEST(AdapterPatterns, ThePublishedDefaults) {
  const AdapterConfig config = config_of("{}");
  EXPECT_EQ(config.rank, 8);
  EXPECT_EQ(config.alpha, 8);
  EXPECT_FALSE(config.rank_stabilised);
  EXPECT_FALSE(config.has_magnitudes);
  EXPECT_FALSE(config.ties_embeddings);
  EXPECT_TRUE(config.base_model.empty());
  EXPECT_TRUE(config.saved_modules.empty());
  EXPECT_TRUE(config.ranks.empty());
  EXPECT_TRUE(config.alphas.empty());
}

TEST(AdapterPatterns, FilesAreReadAsPeftWritesThem) {
  const AdapterConfig config = config_of(
      R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
          "auto_mapping": null, "base_model_name_or_path": "org/base", "bias": "none",
          "corda_config": null, "ensure_weight_tying": true, "eva_config": null,
          "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
          "layer_replication": null, "layers_pattern": null, "loftq_config": {},
          "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05, "megatron_config": null,
          "modules_to_save": ["lm_head", "embed_tokens"], "peft_type": "LORA", "r": 64,
          "rank_pattern": {}, "revision": null, "target_modules": ["q_proj"],
          "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null,
          "use_dora": true, "use_qalora": false, "use_rslora": true})");
  EXPECT_EQ(config.base_model, "org/base");
  EXPECT_EQ(config.rank, 64);
  EXPECT_EQ(config.alpha, 32);
  EXPECT_TRUE(config.rank_stabilised);
  EXPECT_TRUE(config.has_magnitudes);
  EXPECT_TRUE(config.ties_embeddings);
  EXPECT_EQ(config.saved_modules, (std::vector<std::string>{"lm_head", "embed_tokens"}));
}

// The scale belongs to the module's own rank, whatever the common one is.
TEST(AdapterPatterns, ScalesTakeTheRankOfTheirModule) {
  struct Case {
    std::string_view keys;
    int64_t rank;
    double scale;
  };
  const Case cases[] = {
      {R"("r": 4, "lora_alpha": 6)", 4, 1.5},
      {R"("r": 4, "lora_alpha": 6)", 3, 2.0},
      {R"("r": 4, "lora_alpha": -6)", 4, -1.5},
      {R"("r": 4, "lora_alpha": 0)", 4, 0.0},
      {R"("r": 4, "lora_alpha": 6, "use_rslora": true)", 3, 6 / std::sqrt(3.0)},
      {R"("lora_alpha": 6, "alpha_pattern": {"q_proj": 9})", 3, 3.0},
      {R"("lora_alpha": 6, "alpha_pattern": {"q_proj": 9}, "use_rslora": true)", 9, 3.0},
      {R"("lora_alpha": 6, "alpha_pattern": {"k_proj": 9})", 3, 2.0},
      {R"("lora_alpha": 6, "alpha_pattern": {"q_proj": 0.75})", 3, 0.25},
  };
  for (const Case& c : cases) {
    const AdapterConfig config = config_of(fmt::format("{{{}}}", c.keys));
    EXPECT_FLOAT_EQ(config.scale_of("model.layers.0.self_attn.q_proj", c.rank).value(),
                    static_cast<float>(c.scale))
        << c.keys << " at rank " << c.rank;
  }
}

// Which of two patterns counts is where they stand in the file, not how exact they are.
TEST(AdapterPatterns, TheFirstInTheFileCounts) {
  const std::string_view name = "model.layers.3.mlp.down_proj";
  EXPECT_EQ(config_of(R"({"rank_pattern": {"down_proj": 2, "model.layers.3.mlp.down_proj": 5}})")
                .rank_of(name)
                .value(),
            2);
  EXPECT_EQ(config_of(R"({"rank_pattern": {"model.layers.3.mlp.down_proj": 5, "down_proj": 2}})")
                .rank_of(name)
                .value(),
            5);
  // Not the one that sorts first either.
  EXPECT_EQ(
      config_of(R"({"rank_pattern": {"z|.*down_proj": 2, "down_proj": 5}})").rank_of(name).value(),
      2);
}

TEST(AdapterPatterns, NamesAreMatchedWhole) {
  struct Case {
    std::string_view pattern, module;
    bool matches;
  };
  constexpr Case kCases[] = {
      {"q_proj", "q_proj", true},
      {"q_proj", "model.q_proj", true},
      {"q_proj", "model.q_proj.base", false},
      {"q_proj", "model.xq_proj", false},
      {"self_attn", "model.layers.0.self_attn.q_proj", false},
      {"layers.1.q", "model.layers.1.q", true},
      {"layers.1.q", "model.layers.11.q", false},
      {"layers.[0-3].q", "model.layers.2.q", true},
      {"layers.[0-3].q", "model.layers.4.q", false},
      {"a|b", "model.b", true},
      {"a|b", "model.ab", false},
      {"^q_proj$", "q_proj", true},
      {"", "", true},
      {"", "q_proj", false},
      {".*", "anything.at.all", true},
      {"Q_PROJ", "q_proj", false},
      {"layers\\.\\d+\\.q", "model.layers.42.q", true},
  };
  for (const Case& c : kCases) {
    AdapterConfig config;
    config.ranks.emplace_back(c.pattern, 3);
    const auto rank = config.rank_of(c.module);
    ASSERT_TRUE(rank.ok()) << c.pattern;
    EXPECT_EQ(*rank, c.matches ? 3 : 8) << "'" << c.pattern << "' and '" << c.module << "'";
  }
}

// A pattern behind the one that counts is not looked at, one before it is.
TEST(AdapterPatterns, BrokenPatternsAreNamed) {
  for (const std::string_view pattern : {"(", "[a", "*q", "a{2,1}", "(?<"}) {
    AdapterConfig config;
    config.alphas = {{"q_proj", 4.0}, {std::string(pattern), 2.0}};
    EXPECT_EQ(config.scale_of("q_proj", 8).value(), 0.5f) << pattern;
    const auto scale = config.scale_of("k_proj", 8);
    ASSERT_FALSE(scale.ok()) << pattern;
    EXPECT_EQ(scale.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(scale.error().message.starts_with(
        fmt::format("adapter_config.json: the pattern '{}' cannot be matched: ", pattern)))
        << scale.error().message;
  }
}

TEST(AdapterPatterns, ValuesOutOfBoundsAreNamed) {
  struct Case {
    std::string_view text;
    ErrorCode code;
    std::string_view message;
  };
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  constexpr ErrorCode kOther = ErrorCode::kUnsupported;
  constexpr Case kCases[] = {
      {R"({"r": 0})", kBad, "adapter_config.json: r is 0, but must be 1 to 256"},
      {R"({"r": -8})", kBad, "adapter_config.json: r is -8, but must be 1 to 256"},
      {R"({"r": 257})", kBad, "adapter_config.json: r is 257, but must be 1 to 256"},
      {R"({"rank_pattern": {"k_proj": 0}})", kBad,
       "adapter_config.json: k_proj is 0, but must be 1 to 256"},
      {R"({"lora_alpha": -1000001})", kBad,
       "adapter_config.json: lora_alpha is -1000001, but must be -1000000 to 1000000"},
      {R"({"alpha_pattern": {"k_proj": 2000000}})", kBad,
       "adapter_config.json: k_proj is 2000000, but must be -1000000 to 1000000"},
      {R"({"r": "x"})", kBad, "adapter_config.json: r is \"x\", but must be a whole number"},
      {R"({"lora_alpha": []})", kBad,
       "adapter_config.json: lora_alpha is [], but must be a finite number"},
      {R"({"rank_pattern": {"k_proj": true}})", kBad,
       "adapter_config.json: k_proj is true, but must be a whole number"},
      {R"({"rank_pattern": 3})", kBad,
       "adapter_config.json: rank_pattern is 3, but must be an object"},
      {R"({"bias": "yes"})", kBad,
       "adapter_config.json: bias is 'yes', but must be none, all or lora_only"},
      {R"({"peft_type": "LOHA"})", kOther,
       "adapter_config.json: peft_type is 'LOHA', but only LORA can be loaded"},
      {R"({"peft_type": "lora"})", kOther,
       "adapter_config.json: peft_type is 'lora', but only LORA can be loaded"},
      {R"({"layer_replication": [[0, 4]]})", kOther,
       "adapter_config.json: layer_replication is set, which cannot be loaded"},
      {R"({"trainable_token_indices": {"embed_tokens": [1]}})", kOther,
       "adapter_config.json: trainable_token_indices is set, which cannot be loaded"},
      {R"({"arrow_config": 0})", kOther,
       "adapter_config.json: arrow_config is set, which cannot be loaded"},
  };
  for (const Case& c : kCases) {
    const auto config = read_adapter_config(c.text);
    ASSERT_FALSE(config.ok()) << c.text;
    EXPECT_EQ(config.error().code, c.code) << c.text;
    EXPECT_EQ(config.error().message, c.message);
  }
}

TEST(AdapterPatterns, BoundsThemselvesAreAccepted) {
  EXPECT_EQ(config_of(R"({"r": 1})").rank, 1);
  EXPECT_EQ(config_of(R"({"r": 256, "lora_alpha": 1000000})").rank, 256);
  EXPECT_EQ(config_of(R"({"lora_alpha": -1000000})").alpha, -1e6);
  for (const std::string_view bias : {"none", "all", "lora_only"}) {
    EXPECT_TRUE(read_adapter_config(fmt::format(R"({{"bias": "{}"}})", bias)).ok()) << bias;
  }
  for (const std::string_view unset : {"null", "false", "[]", "{}"}) {
    const std::string text = fmt::format(R"({{"trainable_token_indices": {}}})", unset);
    EXPECT_TRUE(read_adapter_config(text).ok()) << text;
  }
  const std::string longest(1024, 'a');
  EXPECT_EQ(config_of(fmt::format(R"({{"rank_pattern": {{"{}": 3}}}})", longest)).ranks.size(), 1u);
}

// The number of patterns is bounded, as each is compiled for each module.
TEST(AdapterPatterns, ThereAreAFewThousandPatternsAtMost) {
  const auto with = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("{}\"p{}\": 3", i == 0 ? "" : ",", i);
    return fmt::format(R"({{"rank_pattern": {{{}}}}})", text);
  };
  EXPECT_EQ(config_of(with(4096)).ranks.size(), 4096u);
  const auto refused = read_adapter_config(with(4097));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "adapter_config.json: rank_pattern has 4097 entries, at most 4096 are read");
}

}  // namespace adapter_patterns_test
}  // namespace headrace
