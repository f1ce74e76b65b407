// Layers of several shapes, as config.json and GGUF files say them.
#include "model/config/layer_shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace layer_shapes_test {

using testing::FakeCheckpoint;

constexpr std::string_view kLayerTypes =
    R"("layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                       "sliding_attention", "full_attention", "sliding_attention",
                       "sliding_attention", "full_attention"])";

std::string text_of(std::string_view more) {
  return fmt::format(
      R"({{"model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
           "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 16, "vocab_size": 256{}{}}})",
      more.empty() ? "" : ", ", more);
}

ModelConfig read(std::string_view more) {
  const auto config = read_config_json(FakeCheckpoint(text_of(more)));
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

std::string error_of(std::string_view more) {
  const auto config = read_config_json(FakeCheckpoint(text_of(more)));
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : config.error().message;
}

// Of each layer: one number, separated by spaces.
std::string listed(const ModelConfig& config, int64_t (*value)(const LayerConfig&)) {
  std::string text;
  for (const LayerConfig& layer : config.layers) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", value(layer));
  }
  return text;
}
std::string widths_of(const ModelConfig& config) {
  return listed(config, [](const LayerConfig& layer) -> int64_t { return layer.head_dim; });
}
std::string kv_heads_of(const ModelConfig& config) {
  return listed(config,
                [](const LayerConfig& layer) -> int64_t { return layer.num_key_value_heads; });
}
std::string sources_of(const ModelConfig& config) {
  return listed(config, [](const LayerConfig& layer) -> int64_t { return layer.kv_source_layer; });
}
std::string windows_of(const ModelConfig& config) {
  return listed(config, [](const LayerConfig& layer) { return layer.sliding_window; });
}

TEST(LayerShapes, WhatAFileLeavesOut) {
  const ModelConfig config = read("");
  EXPECT_EQ(windows_of(config), "512 512 512 512 512 0 512 0");  // the last one, too, is full
  EXPECT_EQ(widths_of(config), "16 16 16 16 16 512 16 512");
  EXPECT_EQ(kv_heads_of(config), "2 2 2 2 2 2 2 2");
  EXPECT_EQ(sources_of(config), "-1 -1 -1 -1 -1 -1 -1 -1");
  EXPECT_EQ(config.hidden_size_per_layer_input, 256);
  EXPECT_EQ(config.vocab_size_per_layer_input, 262144);
  EXPECT_EQ(config.logit_softcap, 0);
  EXPECT_EQ(config.embedding_scale, 8);
  EXPECT_TRUE(config.tie_word_embeddings && config.layer_scalar && !config.norm_weight_plus_one);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.attention_scale, 1);
    EXPECT_EQ(layer.qk_norm, QkNorm::kPerHead);
    EXPECT_TRUE(layer.value_norm && !layer.values_are_keys);
    EXPECT_EQ(layer.mlp, MlpKind::kDense);
    EXPECT_EQ(layer.intermediate_size, 96);
  }
}

TEST(LayerShapes, EachKindOfLayerHasARopeOfItsWidth) {
  const ModelConfig config = read("");
  ASSERT_EQ(config.ropes.size(), 2u);
  const RopeConfig &full = config.ropes[0], &sliding = config.ropes[1];
  EXPECT_EQ(full.type, RopeType::kProportional);
  EXPECT_EQ(full.rope_dims, 512);
  EXPECT_EQ(full.rotated_pairs, 64);
  EXPECT_EQ(full.rope_theta, 1e6);
  EXPECT_EQ(sliding.type, RopeType::kDefault);
  EXPECT_EQ(sliding.rope_dims, 16);
  EXPECT_EQ(sliding.rope_theta, 1e4);
  const ModelConfig half = read(R"("rope_parameters": {
      "full_attention": {"rope_type": "proportional", "rope_theta": 5e4, "factor": 2,
                         "partial_rotary_factor": 0.5},
      "sliding_attention": {"rope_type": "default", "rope_theta": 700}})");
  EXPECT_EQ(half.ropes[0].rotated_pairs, 128);
  EXPECT_EQ(half.ropes[0].factor, 2);
  EXPECT_EQ(half.ropes[1].rope_theta, 700);
}

TEST(LayerShapes, FullLayersHaveHeadsOfTheirOwn) {
  const ModelConfig own = read(fmt::format(
      R"({}, "global_head_dim": 48, "attention_k_eq_v": true, "num_global_key_value_heads": 1)",
      kLayerTypes));
  EXPECT_EQ(windows_of(own), "512 512 0 512 0 512 512 0");
  EXPECT_EQ(widths_of(own), "16 16 48 16 48 16 16 48");
  EXPECT_EQ(kv_heads_of(own), "2 2 1 2 1 2 2 1");
  for (const LayerConfig& layer : own.layers) {
    EXPECT_EQ(layer.values_are_keys, layer.sliding_window == 0);
  }
  // Their number is heeded only where values are keys.
  EXPECT_EQ(kv_heads_of(read(R"("num_global_key_value_heads": 1)")), "2 2 2 2 2 2 2 2");
  // The last layer is full whatever the list says.
  const ModelConfig last = read(
      R"("layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "sliding_attention", "sliding_attention"])");
  EXPECT_EQ(windows_of(last), "0 0 0 0 0 0 512 0");
}

TEST(LayerShapes, AListOfLayersWinsOverWhatFullLayersHaveInCommon) {
  const ModelConfig config = read(
      R"("global_head_dim": 48, "per_layer_config": {
         "05": {"head_dim": 32, "num_key_value_heads": 1}, "7": {"head_dim": 64}})");
  EXPECT_EQ(widths_of(config), "16 16 16 16 16 32 16 64");
  EXPECT_EQ(kv_heads_of(config), "2 2 2 2 2 1 2 2");
  EXPECT_EQ(widths_of(read(R"("per_layer_config": {})")), "16 16 16 16 16 16 16 16");
  EXPECT_EQ(widths_of(read(R"("per_layer_config": null)")), "16 16 16 16 16 16 16 16");
}

TEST(LayerShapes, AListThatIsWrongIsRefused) {
  for (const char* key : {"8", "-1", "x", "", "1x", "99999999999999999999999"}) {
    const std::string error =
        error_of(fmt::format(R"("per_layer_config": {{"{}": {{"head_dim": 32}}}})", key));
    EXPECT_NE(error.find(fmt::format("entry '{}', but there are layers 0 to 7", key)),
              std::string::npos)
        << error;
  }
  EXPECT_NE(error_of(R"("per_layer_config": {"3": {"intermediate_size": 8}})")
                .find("gives layer 3 its own intermediate_size"),
            std::string::npos);
  EXPECT_NE(error_of(R"("per_layer_config": {"3": {"head_dim": 4096}})").find("head_dim is 4096"),
            std::string::npos);
  EXPECT_NE(error_of(R"("per_layer_config": {"3": 5})").find("must be an object"),
            std::string::npos);
}

TEST(LayerShapes, LastLayersReadTheLastLayerOfTheirKind) {
  const ModelConfig config =
      read(fmt::format(R"({}, "num_kv_shared_layers": 3, "use_double_wide_mlp": true,
                          "attention_k_eq_v": true, "num_global_key_value_heads": 1)",
                       kLayerTypes));
  EXPECT_EQ(sources_of(config), "-1 -1 -1 -1 -1 3 3 4");
  EXPECT_EQ(kv_heads_of(config), "2 2 1 2 1 2 2 1");
  EXPECT_EQ(listed(config, [](const LayerConfig& layer) { return layer.intermediate_size; }),
            "96 96 96 96 96 192 192 192");
  EXPECT_FALSE(config.layers[7].values_are_keys);
}

TEST(LayerShapes, LayersWithoutASourceAreRefused) {
  // The first five of eight are sliding, as far as the rule goes.
  EXPECT_NE(error_of(R"("num_kv_shared_layers": 3)").find("layer 5 is to read"), std::string::npos);
  for (const int count : {-1, 8, 100}) {
    EXPECT_NE(error_of(fmt::format(R"("num_kv_shared_layers": {})", count))
                  .find("but the model has 8 layers"),
              std::string::npos);
  }
}

TEST(LayerShapes, ExpertsStandBesideEachMlp) {
  const ModelConfig config = read(
      R"("enable_moe_block": true, "num_experts": 6, "top_k_experts": 2,
         "moe_intermediate_size": 24, "hidden_size_per_layer_input": null)");
  EXPECT_EQ(config.hidden_size_per_layer_input, 0);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.mlp, MlpKind::kDenseAndExperts);
    EXPECT_EQ(layer.intermediate_size, 96);
    EXPECT_EQ(layer.experts.num_experts, 6);
    EXPECT_EQ(layer.experts.num_experts_per_token, 2);
    EXPECT_EQ(layer.experts.intermediate_size, 24);
    EXPECT_TRUE(layer.experts.normalise);
  }
  EXPECT_NE(error_of(R"("enable_moe_block": true)").find("num_experts"), std::string::npos);
}

// ---- GGUF ---------------------------------------------------------------------------------------

using Integers = std::vector<int64_t>;

FakeCheckpoint gguf_file() {
  FakeCheckpoint file(CheckpointKind::kGguf);
  file.key("general.architecture", std::string_view("gemma4"))
      .key("gemma4.embedding_length", int64_t{64})
      .key("gemma4.context_length", int64_t{4096})
      .key("gemma4.block_count", int64_t{8})
      .key("gemma4.feed_forward_length",
           MetadataValue::Array(Integers{96, 96, 96, 96, 96, 192, 192, 192}))
      .key("gemma4.attention.head_count", int64_t{4})
      .key("gemma4.attention.head_count_kv", MetadataValue::Array(Integers{2, 2, 1, 2, 1, 2, 2, 1}))
      .key("gemma4.attention.key_length", int64_t{48})
      .key("gemma4.attention.value_length", int64_t{48})
      .key("gemma4.attention.key_length_swa", int64_t{16})
      .key("gemma4.attention.sliding_window", int64_t{32})
      .key("gemma4.attention.sliding_window_pattern",
           MetadataValue::Array(Integers{1, 1, 0, 1, 0, 1, 1, 0}))
      .key("gemma4.attention.shared_kv_layers", int64_t{3})
      .key("gemma4.embedding_length_per_layer_input", int64_t{8})
      .key("gemma4.rope.dimension_count", int64_t{48})
      .key("gemma4.rope.dimension_count_swa", int64_t{16})
      .key("gemma4.rope.freq_base", 1e6)
      .tensor("token_embd.weight", {256, 64})
      .tensor("per_layer_token_embd.weight", {300, 64})
      .tensor("rope_freqs.weight", {24});
  for (const int layer : {0, 1, 3, 5, 6})
    file.tensor(fmt::format("blk.{}.attn_v.weight", layer), {32, 64});
  return file;
}

ModelConfig read(const FakeCheckpoint& file) {
  const auto config = read_config_gguf(file);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

TEST(LayerShapes, GgufKeysSayTheSame) {
  FakeCheckpoint file = gguf_file();
  file.tensor_of("rope_freqs.weight", {24}, std::vector<float>(24, 1.0f));
  const ModelConfig config = read(file);
  EXPECT_EQ(windows_of(config), "32 32 0 32 0 32 32 0");
  EXPECT_EQ(widths_of(config), "16 16 48 16 48 16 16 48");
  EXPECT_EQ(kv_heads_of(config), "2 2 1 2 1 2 2 1");
  EXPECT_EQ(sources_of(config), "-1 -1 -1 -1 -1 3 3 4");
  EXPECT_EQ(config.hidden_size_per_layer_input, 8);
  EXPECT_EQ(config.vocab_size_per_layer_input, 300);
  EXPECT_EQ(config.ropes[0].rope_dims, 48);
  EXPECT_EQ(config.ropes[0].frequency_divisor.size(), 24u);
  EXPECT_EQ(config.ropes[1].rope_dims, 16);
  EXPECT_TRUE(config.ropes[1].frequency_divisor.empty());
  EXPECT_EQ(config.layers[0].attention_scale, 1);
  // A missing projection of values: they are the keys. Not so in layers that read others'.
  EXPECT_EQ(
      listed(config, [](const LayerConfig& layer) -> int64_t { return layer.values_are_keys; }),
      "0 0 1 0 1 0 0 0");
  EXPECT_EQ(config.layers[7].intermediate_size, 192);
}

TEST(LayerShapes, GgufExperts) {
  FakeCheckpoint file = gguf_file();
  file.tensor_of("rope_freqs.weight", {24}, std::vector<float>(24, 1.0f));
  file.key("gemma4.expert_count", int64_t{6})
      .key("gemma4.expert_used_count", int64_t{2})
      .key("gemma4.expert_feed_forward_length", int64_t{24});
  const ModelConfig config = read(file);
  EXPECT_EQ(config.layers[3].mlp, MlpKind::kDenseAndExperts);
  EXPECT_EQ(config.layers[3].experts.intermediate_size, 24);
  EXPECT_EQ(config.layers[3].experts.num_experts_per_token, 2);
}

}  // namespace layer_shapes_test
}  // namespace headrace
