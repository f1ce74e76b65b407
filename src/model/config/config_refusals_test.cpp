// Files whose numbers no network can have: each is refused when it is read, with a text that names
// the key, what was found and what is needed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace config_refusals_test {

using testing::FakeCheckpoint;

constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
constexpr ErrorCode kOther = ErrorCode::kUnsupported;
constexpr ErrorCode kMissing = ErrorCode::kNotFound;

struct Refusal {
  std::string_view model_type, keys;
  ErrorCode code;
  std::string_view message;
};

void expect_refused(const Result<ModelConfig>& config, ErrorCode code, std::string_view message,
                    std::string_view what) {
  ASSERT_FALSE(config.ok()) << what;
  EXPECT_EQ(config.error().code, code) << what;
  EXPECT_EQ(config.error().message, message) << what;
}

void expect_refused(std::span<const Refusal> cases) {
  for (const Refusal& c : cases) {
    const FakeCheckpoint file(fmt::format(
        R"({{"model_type": "{}", "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 256, "max_position_embeddings": 512, {}}})",
        c.model_type, c.keys));
    expect_refused(read_config_json(file), c.code, c.message, c.keys);
  }
}

TEST(ConfigRefusals, Sizes) {
  constexpr Refusal kCases[] = {
      {"llama", R"("num_hidden_layers": 10001)", kBad,
       "config.json: num_hidden_layers is 10001, but must be at most 10000"},
      {"llama", R"("num_hidden_layers": 0)", kBad,
       "config.json: num_hidden_layers is 0, but must be between 1 and 1000000"},
      {"llama", R"("hidden_size": 1e7)", kBad,
       "config.json: hidden_size is 10000000, but must be between 1 and 1000000"},
      {"llama", R"("num_attention_heads": -4)", kBad,
       "config.json: num_attention_heads is -4, but must be between 1 and 1000000"},
      {"llama", R"("num_attention_heads": 8192)", kBad,
       "the model's num_attention_heads is 8192, but must be between 1 and 4096"},
      {"llama", R"("intermediate_size": [96, 96, 96])", kBad,
       "config.json: intermediate_size has 3 entries, but must be a whole number up to 1000000, or "
       "one for each of 4 layers"},
      {"llama", R"("intermediate_size": [96, 96, 96, 0.5])", kBad,
       "config.json: intermediate_size has 4 entries, but must be a whole number up to 1000000, or "
       "one for each of 4 layers"},
      {"llama", R"("vocab_size": 0)", kBad,
       "the model's vocab_size is 0, but must be between 1 and 100000000"},
      {"llama", R"("vocab_size": -1)", kBad,
       "the model's vocab_size is -1, but must be between 1 and 100000000"},
      {"llama", R"("max_position_embeddings": 0)", kBad,
       "the model's max_position_embeddings is 0, but must be between 1 and 1000000000000"},
      {"llama", R"("rms_norm_eps": 1.5)", kBad,
       "the model's norm epsilon is 1.5, but must be between 0 and 1"},
      {"mistral", R"("sliding_window": -1)", kBad,
       "the model's sliding_window is -1, but must be between 0 and 1000000000000"},
  };
  expect_refused(kCases);
}

TEST(ConfigRefusals, ListsOfLayers) {
  constexpr Refusal kCases[] = {
      {"gemma2", R"("layer_types": ["full_attention"])", kBad,
       "config.json: layer_types has 1 entries, but num_hidden_layers is 4"},
      {"gemma2", R"("layer_types": "full_attention")", kBad,
       "config.json: layer_types is \"full_attention\", but must be a list of strings"},
      {"gemma2",
       R"("layer_types": ["full_attention", "sliding_attention", "chunked_attention", "local"])",
       kOther,
       "config.json: layer_types[2] is 'chunked_attention', but gemma2 layers are full_attention "
       "or "
       "sliding_attention"},
      {"gemma3_text", R"("sliding_window_pattern": 0)", kBad,
       "config.json: sliding_window_pattern is 0, but must be between 1 and 1000000"},
      {"smollm3", R"("no_rope_layers": [1, 0])", kBad,
       "config.json: no_rope_layers has 2 entries, but num_hidden_layers is 4"},
      {"smollm3", R"("no_rope_layer_interval": 0)", kBad,
       "config.json: no_rope_layer_interval is 0, but must be between 1 and 1000000"},
      {"qwen3_next", R"("layer_types": ["linear_attention"])", kBad,
       "config.json: layer_types has 1 entries, but num_hidden_layers is 4"},
      {"qwen3_next",
       R"("layer_types": ["attention", "full_attention", "linear_attention", "mamba"])", kOther,
       "config.json: layer_types[3] is 'mamba', but these layers are full_attention or "
       "linear_attention"},
      {"qwen3_next", R"("full_attention_interval": 0)", kBad,
       "full_attention_interval is 0, but must be at least 1"},
      {"lfm2", R"("layer_types": ["conv", "conv", "conv", "full"])", kOther,
       "config.json: layer_types has 'full', but these layers are full_attention or conv"},
      {"lfm2", R"("layer_types": ["conv", "conv", "full_attention"])", kBad,
       "config.json: layer_types has 3 entries, but num_hidden_layers is 4"},
  };
  expect_refused(kCases);
}

TEST(ConfigRefusals, Ropes) {
  constexpr Refusal kCases[] = {
      {"llama", R"("rope_scaling": {"rope_type": "linear", "factor": 0})", kBad,
       "the model's rope factor is 0, but must be between 1e-06 and 1000000"},
      {"llama", R"("rope_scaling": {"rope_type": "dynamic", "factor": 0.5})", kBad,
       "the model's rope factor is 0.5, but must be between 1 and 1000000"},
      {"llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8})", kMissing,
       "config.json has no low_freq_factor, which is needed"},
      {"llama", R"("rope_scaling": {"rope_type": 3})", kBad,
       "config.json: rope_type is 3, but must be a string"},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": -1})", kBad,
       "the model's beta_fast is -1, but must be between 1e-06 and 1000000"},
      {"llama",
       R"("rope_scaling": {"rope_type": "yarn", "factor": 4,
                           "original_max_position_embeddings": 1})",
       kBad,
       "the model's original_max_position_embeddings is 1, but must be between 2 and "
       "1000000000000"},
      {"llama", R"("rope_scaling": {"rope_type": "longrope", "long_factor": [1, 1]})", kBad,
       "rope short_factor has 0 entries, but half of the 16 rotated dimensions are needed"},
      {"glm4", R"("partial_rotary_factor": 0)", kBad,
       "config.json: partial_rotary_factor is 0, but must be above 0 and at most 1"},
      {"glm4", R"("partial_rotary_factor": 1.25)", kBad,
       "config.json: partial_rotary_factor is 1.25, but must be above 0 and at most 1"},
      {"glm4", R"("partial_rotary_factor": 0.2)", kBad,
       "the rotated width is 3, but must be an even number"},
      {"ministral3", R"("rope_theta": 1e6)", kMissing,
       "config.json has no rope_parameters, which ministral3 needs"},
  };
  expect_refused(kCases);
}

// A frequency band whose ends are the wrong way round divides by a negative width.
TEST(ConfigRefusals, TheBandOfLlama3HasAWidth) {
  for (const double high : {1.0, 0.5}) {
    const FakeCheckpoint file(fmt::format(
        R"({{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 256,
            "rope_scaling": {{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                              "high_freq_factor": {}}}}})",
        high));
    const auto config = read_config_json(file);
    ASSERT_FALSE(config.ok()) << high;
    EXPECT_EQ(config.error().code, kBad);
    EXPECT_TRUE(config.error().message.starts_with(
        fmt::format("the model's high_freq_factor is {}, but must be between 1", high)))
        << config.error().message;
  }
}

TEST(ConfigRefusals, ConfigurationsThatAreNotThere) {
  EXPECT_EQ(read_config_json(FakeCheckpoint(CheckpointKind::kSafetensors)).error().message,
            "no config.json beside the weights of fake");
  const auto error_of = [](std::string text) {
    const auto config = read_config_json(FakeCheckpoint(std::move(text)));
    return config.ok() ? "" : config.error().message;
  };
  EXPECT_EQ(error_of(R"({"model_type": 3})"), "config.json: model_type is 3, but must be a string");
  EXPECT_EQ(error_of(R"({"model_type": null})"), "config.json has no model_type, which is needed");
  EXPECT_EQ(error_of(R"({"model_type": "gemma3", "text_config": 3})"),
            "config.json: text_config is 3, but must be an object");
  EXPECT_EQ(error_of(R"({"model_type": "gemma3", "text_config": {"model_type": ""}})"),
            "config.json has no model_type, which is needed");
}

// ---- GGUF ---------------------------------------------------------------------------------------

// A file of two layers; one key has another value, or is left out.
FakeCheckpoint gguf_with(std::string_view changed, const MetadataValue* value) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  file.key("general.architecture", std::string_view("llama"))
      .tensor("token_embd.weight", {256, 64});
  struct Key {
    std::string_view name;
    int64_t value;
  };
  constexpr Key kKeys[] = {{"embedding_length", 64},
                           {"context_length", 512},
                           {"block_count", 2},
                           {"feed_forward_length", 96},
                           {"attention.head_count", 4},
                           {"attention.head_count_kv", 2},
                           {"attention.key_length", 16},
                           {"nextn_predict_layers", 0},
                           {"attention.value_length", 16},
                           {"rope.scaling.original_context_length", 512}};
  for (const Key& key : kKeys) {
    if (key.name != changed) file.key(fmt::format("llama.{}", key.name), key.value);
  }
  if (value != nullptr) {
    std::visit([&](const auto& v) { file.key(fmt::format("llama.{}", changed), v); }, value->value);
  }
  return file;
}

struct KeyRefusal {
  std::string_view key;
  MetadataValue value;
  ErrorCode code;
  std::string_view message;
};

void expect_refused(std::span<const KeyRefusal> cases) {
  for (const KeyRefusal& c : cases) {
    expect_refused(read_config_gguf(gguf_with(c.key, &c.value)), c.code, c.message, c.key);
  }
}

TEST(ConfigRefusals, SizesOfGgufFiles) {
  const KeyRefusal cases[] = {
      {"block_count",
       {int64_t{10'001}},
       kBad,
       "GGUF key llama.block_count is 10001 with 0 of them appended, but 1 to 10000 layers are "
       "needed"},
      {"block_count",
       {std::string_view("2")},
       kBad,
       "GGUF key llama.block_count must be a whole number"},
      {"nextn_predict_layers",
       {int64_t{2}},
       kBad,
       "GGUF key llama.block_count is 2 with 2 of them appended, but 1 to 10000 layers are needed"},
      {"nextn_predict_layers",
       {int64_t{-1}},
       kBad,
       "GGUF key llama.block_count is 2 with -1 of them appended, but 1 to 10000 layers are "
       "needed"},
      {"attention.head_count",
       {int64_t{0}},
       kBad,
       "GGUF key llama.attention.head_count is 0, but must be between 1 and 4096"},
      {"attention.head_count",
       {int64_t{4097}},
       kBad,
       "GGUF key llama.attention.head_count is 4097, but must be between 1 and 4096"},
  };
  expect_refused(cases);
}

TEST(ConfigRefusals, WidthsOfGgufFiles) {
  const KeyRefusal cases[] = {
      {"attention.head_count_kv",
       {int64_t{5}},
       kOther,
       "layer 0 of the GGUF file has 4 heads, 5 key-value heads and MLP width 96, but every layer "
       "needs attention and an MLP"},
      {"feed_forward_length",
       {MetadataValue::Array(std::vector<int64_t>{96, 0})},
       kOther,
       "layer 1 of the GGUF file has 4 heads, 2 key-value heads and MLP width 0, but every layer "
       "needs attention and an MLP"},
      {"attention.value_length",
       {int64_t{8}},
       kOther,
       "the GGUF file's keys have 16 and its values 8 dimensions per head, but both must be the "
       "same number up to 4096"},
  };
  expect_refused(cases);
}

TEST(ConfigRefusals, NumbersOfGgufFiles) {
  const KeyRefusal cases[] = {
      {"rope.scaling.type",
       {std::string_view("mrope")},
       kOther,
       "rope type 'mrope' is unknown; known are default, linear, dynamic, llama3, yarn, longrope "
       "and proportional"},
      {"rope.freq_base",
       {0.0},
       kBad,
       "the model's rope_theta is 0, but must be between 1.000000001 and 1e+30"},
      {"attention.layer_norm_rms_epsilon",
       {2.0},
       kBad,
       "the model's norm epsilon is 2, but must be between 0 and 1"},
      {"attention.layer_norm_rms_epsilon",
       {std::numeric_limits<double>::quiet_NaN()},
       kBad,
       "the model's norm epsilon is nan, but must be between 0 and 1"},
      {"attention.scale",
       {1e9},
       kBad,
       "the model's attention scale is 1000000000, but must be between -1000000 and 1000000"},
      {"context_length",
       {int64_t{0}},
       kBad,
       "the model's max_position_embeddings is 0, but must be between 1 and 1000000000000"},

  };
  expect_refused(cases);
}

TEST(ConfigRefusals, KeysThatGgufFilesNeed) {
  ASSERT_TRUE(read_config_gguf(gguf_with("", nullptr)).ok());
  for (const std::string_view key :
       {"embedding_length", "block_count", "feed_forward_length", "attention.head_count"}) {
    expect_refused(read_config_gguf(gguf_with(key, nullptr)), kMissing,
                   fmt::format("the GGUF file has no key llama.{}, which is needed", key), key);
  }
  for (const std::string_view key : {"context_length", "attention.head_count_kv",
                                     "attention.key_length", "nextn_predict_layers"}) {
    EXPECT_TRUE(read_config_gguf(gguf_with(key, nullptr)).ok()) << key;
  }
}

// Ids beyond the vocabulary are left out, not refused: many files have some.
TEST(ConfigRefusals, SpecialIdsOfGgufFilesAreInTheVocabulary) {
  FakeCheckpoint file = gguf_with("", nullptr);
  file.key("tokenizer.ggml.eos_token_id", int64_t{255})
      .key("tokenizer.ggml.eot_token_id", int64_t{256})
      .key("tokenizer.ggml.eom_token_id", int64_t{-1})
      .key("tokenizer.ggml.bos_token_id", int64_t{256});
  const ModelConfig config = read_config_gguf(file).value();
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{255}));
  EXPECT_EQ(config.bos_token_id, -1);
}

}  // namespace config_refusals_test
}  // namespace headrace
