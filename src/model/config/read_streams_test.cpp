// Streams beside the residual one and sparse MLPs, as config.json and GGUF files say them.
#include "model/config/read_streams.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/config/roles.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_streams_test {

using testing::FakeCheckpoint;

constexpr std::string_view kTypes =
    R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                       "full_attention"], "num_kv_shared_layers": 2)";

Result<ModelConfig> read(std::string_view more) {
  return read_config_json(FakeCheckpoint(fmt::format(
      R"({{"model_type": "gemma3n_text", "hidden_size": 64, "num_hidden_layers": 4,
           "num_attention_heads": 4, "head_dim": 16, "vocab_size": 256, {}{}{}}})",
      kTypes, more.empty() ? "" : ", ", more)));
}
ModelConfig config_of(std::string_view more) {
  const auto config = read(more);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}
std::string error_of(std::string_view more) {
  const auto config = read(more);
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : config.error().message;
}

TEST(ReadStreams, WhatAFileLeavesOut) {
  const ModelConfig config = config_of("");
  EXPECT_EQ(config.num_streams, 4);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_TRUE(config.stream_scale);
  EXPECT_EQ(config.logit_softcap, 30);
  EXPECT_EQ(config.embedding_scale, 8);
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_EQ(config.ropes[0].rope_theta, 1e6);
  EXPECT_EQ(config.ropes[1].rope_theta, 1e4);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.mlp, MlpKind::kSparse);  // the first ten are
    EXPECT_NEAR(layer.gate_deviations, 1.6448536, 1e-6);
    EXPECT_EQ(layer.intermediate_size, 16384);
    EXPECT_EQ(layer.head_dim, 16);
    EXPECT_EQ(layer.attention_scale, 1);
    EXPECT_TRUE(layer.value_norm);
  }
  EXPECT_EQ(config.layers[2].kv_source_layer, 0);
  EXPECT_EQ(config.layers[3].kv_source_layer, 1);
}

TEST(ReadStreams, ListsOfLayers) {
  const ModelConfig config =
      config_of(R"("intermediate_size": [32, 48, 64, 80], "altup_num_inputs": 3,
                   "activation_sparsity_pattern": [0.5, 0.0, 0.25, 0.0], "laurel_rank": 7)");
  EXPECT_EQ(config.num_streams, 3);
  EXPECT_EQ(config.laurel_rank, 7);
  EXPECT_EQ(config.layers[0].mlp, MlpKind::kSparse);
  EXPECT_NEAR(config.layers[0].gate_deviations, 0, 1e-9);
  EXPECT_EQ(config.layers[1].mlp, MlpKind::kDense);
  EXPECT_EQ(config.layers[1].gate_deviations, 0);
  EXPECT_NEAR(config.layers[2].gate_deviations, -0.6744898, 1e-6);
  EXPECT_EQ(config.layers[3].intermediate_size, 80);
  EXPECT_NEAR(config_of(R"("activation_sparsity_pattern": 0.75)").layers[3].gate_deviations,
              0.6744898, 1e-6);
}

TEST(ReadStreams, WhatIsOutOfBoundsIsNamed) {
  EXPECT_NE(error_of(R"("activation_sparsity_pattern": [0.5])").find("4 shares"),
            std::string::npos);
  EXPECT_NE(error_of(R"("activation_sparsity_pattern": 1.0)").find("below 1"), std::string::npos);
  EXPECT_NE(error_of(R"("altup_active_idx": 1)").find("active stream is 1"), std::string::npos);
  EXPECT_NE(error_of(R"("altup_num_inputs": 9)").find("altup_num_inputs is 9"), std::string::npos);
  EXPECT_NE(error_of(R"("laurel_rank": 900000)").find("laurel_rank"), std::string::npos);
  EXPECT_NE(error_of(R"("intermediate_size": [32, 48])").find("one for each of 4 layers"),
            std::string::npos);
  EXPECT_NE(error_of(R"("intermediate_size": [32, 48, 1.5, 8])").find("whole number"),
            std::string::npos);
}

// Tokens beyond the table of the layers' inputs have its first row.
TEST(ReadStreams, TheTableOfInputsMayBeShorterThanTheVocabulary) {
  EXPECT_EQ(config_of(R"("vocab_size_per_layer_input": 200)").vocab_size_per_layer_input, 200);
  EXPECT_NE(error_of(R"("vocab_size_per_layer_input": 0)").find("vocab_size_per_layer_input"),
            std::string::npos);
}

TEST(ReadStreams, EachStreamButTheResidualOneIsAnExpertOfItsProjections) {
  const ModelConfig config = config_of(R"("altup_num_inputs": 3)");
  int num_found = 0;
  for (const RoleSlot& slot : role_slots(config)) {
    if (slot.row->role != Role::kStreamIn && slot.row->role != Role::kStreamOut) continue;
    EXPECT_EQ(slot.layer, kNoLayer);
    EXPECT_EQ(slot.row->experts(config, {}), 2);
    ++num_found;
  }
  EXPECT_EQ(num_found, 2);
}

TEST(ReadStreams, GgufFilesSayDeviations) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  const std::string prefix = "gemma3n.";
  file.key("general.architecture", std::string_view("gemma3n"))
      .key(prefix + "embedding_length", int64_t{64})
      .key(prefix + "block_count", int64_t{2})
      .key(prefix + "feed_forward_length", int64_t{96})
      .key(prefix + "attention.head_count", int64_t{4})
      .key(prefix + "attention.head_count_kv", int64_t{2})
      .key(prefix + "altup.num_inputs", int64_t{3})
      .key(prefix + "activation_sparsity_scale", 1.5)
      .tensor("token_embd.weight", {256, 64})
      .tensor("blk.0.attn_v.weight", {32, 64})
      .tensor("blk.1.attn_v.weight", {32, 64});
  EXPECT_NE(read_config_gguf(file).error().message.find("laurel_l"), std::string::npos);
  file.tensor("blk.0.laurel_l.weight", {5, 64});
  const auto config = read_config_gguf(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_streams, 3);
  EXPECT_EQ(config->laurel_rank, 5);
  EXPECT_FALSE(config->stream_scale);
  EXPECT_EQ(config->layers[0].mlp, MlpKind::kSparse);
  EXPECT_EQ(config->layers[0].gate_deviations, 1.5f);
  EXPECT_EQ(config->layers[1].mlp, MlpKind::kDense);  // not listed
}

TEST(ReadStreams, DeviationsOfShares) {
  EXPECT_NEAR(deviations_above(0.5), 0, 1e-12);
  EXPECT_NEAR(deviations_above(0.95), 1.6448536269514722, 1e-9);
  EXPECT_NEAR(deviations_above(0.05), -1.6448536269514722, 1e-9);
  EXPECT_NEAR(deviations_above(0.9999), 3.719016485455709, 1e-8);
}

}  // namespace read_streams_test
}  // namespace headrace
