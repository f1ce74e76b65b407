#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace config_json_test {

using testing::FakeCheckpoint;

// A configuration of the family with some keys added: `"key": value, ...`.
std::string config_of(std::string_view model_type, std::string_view more = "") {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
          "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 512{}{}}})",
      model_type, more.empty() ? "" : ", ", more);
}

ModelConfig read(const std::string& text) {
  const auto config = read_config_json(FakeCheckpoint(text));
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

Error error_of(const std::string& text) {
  const auto config = read_config_json(FakeCheckpoint(text));
  EXPECT_FALSE(config.ok());
  return config.ok() ? Error{} : config.error();
}

std::string windows_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) text += layer.sliding_window > 0 ? 's' : 'f';
  return text;
}

std::string ropes_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) {
    text += layer.rope_idx < 0 ? '-' : static_cast<char>('0' + layer.rope_idx);
  }
  return text;
}

// What tells the family from others of its type, and what it needs.
std::string keys_of(const Family& family) {
  std::string text;
  for (const KeyValues* values : {&family.form.when, &family.form.needs}) {
    for (const KeyValue& row : *values) {
      if (!row.key.empty()) text += fmt::format(", \"{}\": {}", row.key, row.value);
    }
  }
  return text;
}

TEST(ConfigJson, EveryFamilyHasUsableDefaults) {
  int num_families = 0;
  for (const Family& family : families()) {
    // Enough heads for every family's default of key-value heads.
    const std::string text = config_of(family.model_types[0],
                                       R"("num_key_value_heads": 2, "head_dim": 16,
                                          "num_kv_shared_layers": 0,
                                          "rope_parameters": {"rope_type": "default"})" +
                                           keys_of(family));
    FakeCheckpoint file(text);
    for (int i = 0; family.defaults.activation == "xielu" && i < 8; ++i) {
      file.tensor(fmt::format("model.layers.{}.mlp.act_fn.alpha_p", i), {1});
      file.tensor(fmt::format("model.layers.{}.mlp.act_fn.alpha_n", i), {1});
    }
    const auto found = read_config_json(file);
    ASSERT_TRUE(found.ok()) << family.name << ": " << found.error().message;
    const ModelConfig& config = *found;
    EXPECT_EQ(config.family, family.name);
    EXPECT_EQ(config.num_layers(), 8);
    EXPECT_GT(config.norm_eps, 0);
    EXPECT_EQ(config.tie_word_embeddings, family.defaults.tied);
    ++num_families;
  }
  EXPECT_GE(num_families, 16);
}

TEST(ConfigJson, LlamaDefaultsFollowTheSizes) {
  const ModelConfig config = read(config_of("llama"));
  EXPECT_EQ(config.layers[0].num_key_value_heads, 4);
  EXPECT_EQ(config.layers[0].head_dim, 16);
  EXPECT_FLOAT_EQ(config.layers[0].attention_scale, 0.25f);
  EXPECT_EQ(config.ropes[0].rope_theta, 1e4);
  EXPECT_EQ(config.qkv_bias, Presence::kAbsent);
  EXPECT_EQ(windows_of(config), "ffffffff");
}

TEST(ConfigJson, BiasFlagsAreTheFamilys) {
  const ModelConfig llama = read(config_of("llama", R"("attention_bias": true, "mlp_bias": true)"));
  EXPECT_EQ(llama.qkv_bias, Presence::kRequired);
  EXPECT_EQ(llama.o_bias, Presence::kRequired);
  EXPECT_EQ(llama.mlp_bias, Presence::kRequired);
  const ModelConfig qwen = read(config_of("qwen2", R"("num_key_value_heads": 2)"));
  EXPECT_EQ(qwen.qkv_bias, Presence::kRequired);
  EXPECT_EQ(qwen.o_bias, Presence::kAbsent);
  const ModelConfig seed =
      read(config_of("seed_oss", R"("num_key_value_heads": 2, "attention_out_bias": true)"));
  EXPECT_EQ(seed.qkv_bias, Presence::kRequired);
  EXPECT_EQ(seed.o_bias, Presence::kRequired);
}

TEST(ConfigJson, WindowRules) {
  struct Case {
    std::string_view family, keys, windows;
  };
  const Case cases[] = {
      {"mistral", "", "ssssssss"},
      {"mistral", R"("sliding_window": null)", "ffffffff"},
      {"mistral", R"("sliding_window": 9, "layer_types": ["full_attention"])", "ssssssss"},
      {"phi3", "", "ffffffff"},
      {"phi3", R"("sliding_window": 9)", "ssssssss"},
      {"qwen2", R"("sliding_window": 9)", "ffffffff"},
      {"qwen2", R"("sliding_window": 9, "use_sliding_window": true)", "ffffffff"},
      {"qwen2", R"("use_sliding_window": true, "max_window_layers": 5)", "fffffsss"},
      {"gemma2", "", "sfsfsfsf"},
      {"gemma2", R"("sliding_window_pattern": 4)", "sfsfsfsf"},
      {"gemma3_text", "", "sssssfss"},
      {"gemma3_text", R"("sliding_window_pattern": 2)", "sfsfsfsf"},
      {"olmo3", "", "sssfsssf"},
      {"cohere2", "", "sssfsssf"},
      {"exaone4", R"("sliding_window_pattern": "LLG")", "ssfssfsf"},
      {"exaone4", R"("sliding_window": null, "sliding_window_pattern": null)", "ffffffff"},
      {"smollm3", R"("use_sliding_window": true, "sliding_window": 9)", "fffsfffs"},
      {"smollm3", R"("sliding_window": 9)", "ffffffff"},
      {"llama", R"("sliding_window": 9)", "ffffffff"},
  };
  for (const Case& row : cases) {
    SCOPED_TRACE(fmt::format("{} {}", row.family, row.keys));
    std::string keys(R"("num_key_value_heads": 2)");
    if (!row.keys.empty()) keys += fmt::format(", {}", row.keys);
    EXPECT_EQ(windows_of(read(config_of(row.family, keys))), row.windows);
  }
}

TEST(ConfigJson, AListOfLayerTypesWinsOverTheRule) {
  const std::string list =
      R"("sliding_window": 9, "num_key_value_heads": 2, "layer_types": ["full_attention",
      "sliding_attention", "full_attention", "full_attention", "sliding_attention",
      "full_attention", "full_attention", "full_attention"])";
  EXPECT_EQ(windows_of(read(config_of("gemma2", list))), "fsffsfff");
  EXPECT_EQ(windows_of(read(config_of("exaone4", list))), "fsffsfff");
  const Error error = error_of(config_of(
      "gemma2", R"("layer_types": ["a", "b", "c", "d", "e", "f", "g", "linear_attention"])"));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("layer_types[0] is 'a'"), std::string::npos) << error.message;
}

TEST(ConfigJson, RopeLayers) {
  EXPECT_EQ(ropes_of(read(config_of("smollm3", R"("num_key_value_heads": 2)"))), "000-000-");
  EXPECT_EQ(ropes_of(read(config_of("smollm3", R"("num_key_value_heads": 2,
            "no_rope_layers": [0, 1, 1, 1, 1, 1, 1, 0, 1])"))),
            "-000000-");
  EXPECT_EQ(ropes_of(read(config_of("cohere2"))), "000-000-");
  EXPECT_EQ(ropes_of(read(config_of("cohere2", R"("sliding_window": null)"))), "--------");
  const std::string kv = R"("num_key_value_heads": 2)";
  EXPECT_EQ(ropes_of(read(config_of("exaone4", kv))), "000-000-");
  EXPECT_EQ(ropes_of(read(config_of("exaone4", kv + R"(, "sliding_window": null)"))), "00000000");
  EXPECT_EQ(ropes_of(read(config_of("gemma3_text"))), "11111011");
}

TEST(ConfigJson, BasesPerLayerTypeInBothGenerations) {
  const std::string older =
      R"("rope_theta": 5e6, "rope_local_base_freq": 2e4,
         "rope_scaling": {"type": "linear", "factor": 8})";
  const std::string newer =
      R"("rope_parameters": {
           "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 5e6},
           "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})";
  for (const std::string& keys : {older, newer}) {
    const ModelConfig config = read(config_of("gemma3_text", keys));
    ASSERT_EQ(config.ropes.size(), 2u);
    EXPECT_EQ(config.ropes[0].type, RopeType::kLinear);
    EXPECT_EQ(config.ropes[0].factor, 8);
    EXPECT_EQ(config.ropes[0].rope_theta, 5e6);
    EXPECT_EQ(config.ropes[1].type, RopeType::kDefault);
    EXPECT_EQ(config.ropes[1].rope_theta, 2e4);
  }
  const ModelConfig olmo = read(config_of("olmo3", R"("rope_theta": 7e5,
      "rope_scaling": {"rope_type": "yarn", "factor": 8,
                       "original_max_position_embeddings": 64})"));
  EXPECT_EQ(olmo.ropes[0].type, RopeType::kYarn);
  EXPECT_EQ(olmo.ropes[0].rope_theta, 7e5);
  EXPECT_EQ(olmo.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(olmo.ropes[1].rope_theta, 5e5);
}

TEST(ConfigJson, BasesThatTheFileLeavesToTheFamily) {
  struct Case {
    std::string_view family;
    std::vector<double> bases;
  };
  const Case cases[] = {{"gemma3_text", {1e6, 1e4}}, {"olmo3", {5e5, 5e5}}, {"smollm3", {2e6}},
                        {"gemma2", {1e4}},           {"cohere2", {1e4}},    {"exaone4", {1e4}}};
  for (const Case& row : cases) {
    const ModelConfig config = read(config_of(row.family, R"("num_key_value_heads": 2)"));
    ASSERT_EQ(config.ropes.size(), row.bases.size()) << row.family;
    for (size_t i = 0; i < row.bases.size(); ++i) {
      EXPECT_EQ(config.ropes[i].rope_theta, row.bases[i]) << row.family;
    }
  }
  const ModelConfig glm = read(config_of("glm4", R"("num_key_value_heads": 2, "head_dim": 32)"));
  EXPECT_EQ(glm.ropes[0].rope_dims, 16);
  EXPECT_EQ(glm.ropes[0].pairing, RopePairing::kInterleaved);
}

TEST(ConfigJson, RopeDictionaryWinsOverTopLevelKeys) {
  const ModelConfig config =
      read(config_of("llama", R"("rope_theta": 3.0, "rope_parameters": {"rope_theta": 5.0},
                  "rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 7.0})"));
  EXPECT_EQ(config.ropes[0].rope_theta, 7.0);
  EXPECT_EQ(config.ropes[0].type, RopeType::kLinear);
  EXPECT_EQ(read(config_of("llama", R"("rope_scaling": {},
            "rope_parameters": {"rope_theta": 5.0})"))
                .ropes[0]
                .rope_theta,
            5.0);
}

TEST(ConfigJson, LongropeUnderItsOlderNames) {
  for (const char* type : {"su", "yarn", "longrope"}) {
    const ModelConfig config = read(
        config_of("phi3", fmt::format(R"("original_max_position_embeddings": 128, "rope_scaling":
        {{"type": "{}", "short_factor": [1,1,1,1,1,1,1,1], "long_factor": [2,2,2,2,2,2,2,2]}})",
                                      type)));
    EXPECT_EQ(config.ropes[0].type, RopeType::kLongrope);
    EXPECT_EQ(config.ropes[0].original_max_position_embeddings, 128);
    // sqrt(1 + ln 4 / ln 128)
    EXPECT_NEAR(config.ropes[0].attention_factor, 1.13389, 1e-5);
  }
}

TEST(ConfigJson, ScalesAndCaps) {
  const ModelConfig gemma = read(config_of("gemma2", R"("query_pre_attn_scalar": 16)"));
  EXPECT_FLOAT_EQ(gemma.embedding_scale, 8);
  EXPECT_FLOAT_EQ(gemma.layers[0].attention_scale, 0.25f);
  EXPECT_FLOAT_EQ(gemma.layers[0].attention_softcap, 50);
  EXPECT_FLOAT_EQ(gemma.logit_softcap, 30);
  const ModelConfig uncapped = read(
      config_of("gemma2", R"("attn_logit_softcapping": null, "final_logit_softcapping": null)"));
  EXPECT_EQ(uncapped.layers[0].attention_softcap, 0);
  EXPECT_EQ(uncapped.logit_softcap, 0);
  const ModelConfig third = read(config_of("gemma3_text", R"("attn_logit_softcapping": 50)"));
  EXPECT_EQ(third.layers[0].attention_softcap, 0);
  const ModelConfig granite = read(config_of(
      "granite", R"("logits_scaling": 4, "embedding_multiplier": 12, "residual_multiplier": 0.5,
                    "attention_multiplier": 0.125)"));
  EXPECT_FLOAT_EQ(granite.logit_scale, 0.25f);
  EXPECT_FLOAT_EQ(granite.embedding_scale, 12);
  EXPECT_FLOAT_EQ(granite.residual_scale, 0.5f);
  EXPECT_FLOAT_EQ(granite.layers[0].attention_scale, 0.125f);
  EXPECT_FLOAT_EQ(read(config_of("cohere2", R"("logit_scale": 4)")).logit_scale, 4);
}

TEST(ConfigJson, AWrapperHoldsTheTextConfiguration) {
  const std::string text = R"({"model_type": "gemma3", "eos_token_id": [1, 106],
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
                    "num_hidden_layers": 6, "sliding_window": 16}})";
  FakeCheckpoint checkpoint(text);
  checkpoint.tensor("language_model.model.embed_tokens.weight", {320, 64});
  checkpoint.file("generation_config.json", R"({"eos_token_id": [106, 50]})");
  const auto config = read_config_json(checkpoint);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->family, "gemma3");
  EXPECT_EQ(config->layers[0].num_attention_heads, 8);
  EXPECT_EQ(config->layers[0].head_dim, 256);
  EXPECT_EQ(config->vocab_size, 320);
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{1, 106, 50}));
  EXPECT_EQ(config->architecture, "Gemma3ForConditionalGeneration");
  checkpoint.file("generation_config.json", R"({"eos_token_id": "one"})");
  EXPECT_EQ(read_config_json(checkpoint).error().message,
            "generation_config.json: eos_token_id is \"one\", but must be a finite number");
}

TEST(ConfigJson, ErrorsNameTheKeyAndTheValue) {
  struct Case {
    std::string text, part;
    ErrorCode code;
  };
  const Case cases[] = {
      {"{", "not valid JSON", ErrorCode::kCorrupt},
      {"[1]", "must hold a JSON object", ErrorCode::kCorrupt},
      {"{}", "no model_type", ErrorCode::kNotFound},
      {R"({"model_type": "llama"})", "no hidden_size", ErrorCode::kNotFound},
      {config_of("llama", R"("head_dim": "x")"), "head_dim is \"x\"", ErrorCode::kInvalidArgument},
      {config_of("llama", R"("head_dim": 0)"), "head_dim is 0", ErrorCode::kInvalidArgument},
      {config_of("llama", R"("head_dim": 15)"), "even number", ErrorCode::kInvalidArgument},
      {config_of("llama", R"("num_key_value_heads": 3)"), "multiple", ErrorCode::kInvalidArgument},
      {config_of("llama", R"("hidden_act": "mish")"), "'mish'", ErrorCode::kUnsupported},
      {config_of("llama", R"("rms_norm_eps": -1)"), "norm epsilon", ErrorCode::kInvalidArgument},
      {config_of("llama", R"("rope_scaling": {"rope_type": "mrope"})"), "'mrope'",
       ErrorCode::kUnsupported},
      {config_of("llama", R"("rope_scaling": {"rope_type": "linear"})"), "no factor",
       ErrorCode::kNotFound},
      {config_of("llama", R"("rope_scaling": "linear")"), "rope_scaling",
       ErrorCode::kInvalidArgument},
      {config_of("llama", R"("rope_theta": 0)"), "rope_theta", ErrorCode::kInvalidArgument},
      {config_of("phi3", R"("rope_scaling": {"type": "su", "short_factor": [1]})"), "short_factor",
       ErrorCode::kInvalidArgument},
      {config_of("glm4", R"("num_key_value_heads": 2, "partial_rotary_factor": 1e300)"), "1e+300",
       ErrorCode::kInvalidArgument},
      {config_of("ministral3", ""), "rope_parameters", ErrorCode::kNotFound},
      {config_of("gemma3_text", R"("use_bidirectional_attention": true)"), "embedding",
       ErrorCode::kUnsupported},
  };
  for (const Case& row : cases) {
    const Error error = error_of(row.text);
    EXPECT_EQ(error.code, row.code) << error.message;
    EXPECT_NE(error.message.find(row.part), std::string::npos) << error.message;
  }
}

// A head beyond what the kernels take is refused when the file is read, not when it is run.
TEST(ConfigJson, HeadsAreAsWideAsKernelsTake) {
  const auto with = [](int head_dim) {
    return config_of("llama", fmt::format(R"("head_dim": {})", head_dim));
  };
  EXPECT_EQ(read(with(kMaxHeadDim)).layers[0].head_dim, kMaxHeadDim);
  EXPECT_NE(error_of(with(kMaxHeadDim + 1)).message.find("head_dim is 513"), std::string::npos);
}

// Tables are made for every rope, so one that no layer uses must be sound too.
TEST(ConfigJson, ARopeThatNoLayerUsesIsChecked) {
  const auto with = [](std::string_view factors) {
    return config_of("gemma3_text",
                     fmt::format(R"("num_key_value_heads": 2, "head_dim": 8, "sliding_window": 16,
                                    "sliding_window_pattern": 1000, "rope_scaling": {{
                                      "rope_type": "longrope", "short_factor": {0},
                                      "long_factor": {0}}})",
                                 factors));
  };
  EXPECT_EQ(ropes_of(read(with("[1, 2, 3, 4]"))), "11111111");
  EXPECT_NE(error_of(with("[1, 2, 3]")).message.find("short_factor has 3 entries"),
            std::string::npos);
}

}  // namespace config_json_test
}  // namespace headrace
