// Weights of layers whose tensors hold several parts between each other: the delta rule, and
// queries with gates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"
#include "model/weights.h"

namespace headrace {
namespace delta_weights_test {

using testing::FakeCheckpoint;

// Two key heads of 2, each serving two value heads of 1; one head of attention of 2, with a gate.
ModelConfig small_config() {
  ModelConfig config;
  config.family = "llama";  // whose norms have the same names
  config.vocab_size = 10;
  config.hidden_size = 4;
  LayerConfig delta;
  delta.mixer = MixerKind::kGatedDelta;
  delta.intermediate_size = 8;
  delta.delta = {.num_key_heads = 2,
                 .num_value_heads = 4,
                 .key_head_dim = 2,
                 .value_head_dim = 1,
                 .conv_kernel = 3};
  config.layers.push_back(delta);
  LayerConfig attention;
  attention.intermediate_size = 8;
  attention.num_attention_heads = 2;
  attention.num_key_value_heads = 1;
  attention.head_dim = 2;
  attention.qk_norm = QkNorm::kPerHead;
  attention.attention_gate = true;
  config.layers.push_back(attention);
  return config;
}

// All tensors but those that q, k, v, z, b and a come from.
FakeCheckpoint small_checkpoint(CheckpointKind kind) {
  FakeCheckpoint checkpoint(kind);
  checkpoint.file("config.json", "{}").tensor("model.embed_tokens.weight", {10, 4});
  checkpoint.tensor("model.norm.weight", {4}).tensor("lm_head.weight", {10, 4});
  for (int i = 0; i < 2; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    checkpoint.tensor(layer + "input_layernorm.weight", {4})
        .tensor(layer + "post_attention_layernorm.weight", {4})
        .tensor(layer + "mlp.gate_proj.weight", {8, 4})
        .tensor(layer + "mlp.up_proj.weight", {8, 4})
        .tensor(layer + "mlp.down_proj.weight", {4, 8});
  }
  const std::string delta = "model.layers.0.linear_attn.";
  checkpoint.tensor(delta + "conv1d.weight", {12, 1, 3})
      .tensor(delta + "A_log", {4})
      .tensor(delta + "dt_bias", {4})
      .tensor(delta + "norm.weight", {1})
      .tensor(delta + "out_proj.weight", {4, 4});
  const std::string attention = "model.layers.1.self_attn.";
  checkpoint.tensor(attention + "q_proj.weight", {8, 4})
      .tensor(attention + "k_proj.weight", {2, 4})
      .tensor(attention + "v_proj.weight", {2, 4})
      .tensor(attention + "o_proj.weight", {4, 4})
      .tensor(attention + "q_norm.weight", {2})
      .tensor(attention + "k_norm.weight", {2});
  return checkpoint;
}

// The stored rows of each part of a role.
std::vector<std::vector<int64_t>> rows_of(const FakeCheckpoint& checkpoint,
                                          const ModelConfig& config, int layer, Role role) {
  const auto found = find_weights(checkpoint, config);
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  std::vector<std::vector<int64_t>> rows;
  if (!found.ok()) return rows;
  for (const WeightView& part : found->find(layer, role)->parts) {
    auto& of_part = rows.emplace_back();
    for (int64_t i = 0; i < part.num_outputs; ++i) of_part.push_back(part.stored_row(i));
  }
  return rows;
}

using Rows = std::vector<std::vector<int64_t>>;

FakeCheckpoint packed_checkpoint() {
  FakeCheckpoint checkpoint = small_checkpoint(CheckpointKind::kSafetensors);
  const std::string delta = "model.layers.0.linear_attn.";
  checkpoint.tensor(delta + "in_proj_qkvz.weight", {16, 4})
      .tensor(delta + "in_proj_ba.weight", {8, 4});
  return checkpoint;
}

// By key head: q 0 1, k 2 3, v 4 5, z 6 7; then the same of the second. And b 0 1, a 2 3.
TEST(DeltaWeights, RowsAreTakenOutOfTensorsByKeyHead) {
  const Rows expected = {
      {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13}, {6, 7, 14, 15}, {0, 1, 4, 5}, {2, 3, 6, 7}};
  EXPECT_EQ(rows_of(packed_checkpoint(), small_config(), 0, Role::kDeltaInput), expected);
}

TEST(DeltaWeights, TensorsOfOnePartAreTakenAsTheyAre) {
  FakeCheckpoint checkpoint = small_checkpoint(CheckpointKind::kSafetensors);
  const std::string delta = "model.layers.0.linear_attn.";
  checkpoint.tensor(delta + "in_proj_qkv.weight", {12, 4})
      .tensor(delta + "in_proj_z.weight", {4, 4})
      .tensor(delta + "in_proj_b.weight", {4, 4})
      .tensor(delta + "in_proj_a.weight", {4, 4});
  const Rows rows = rows_of(checkpoint, small_config(), 0, Role::kDeltaInput);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].size(), 12u);
  EXPECT_EQ(rows[0][11], 11);
  EXPECT_EQ(rows[3], (std::vector<int64_t>{0, 1, 2, 3}));
}

// Of each head two rows of the query, then two of the gate.
TEST(DeltaWeights, GatesStandBehindKeysAndValues) {
  const Rows expected = {{0, 1, 4, 5}, {0, 1}, {0, 1}, {2, 3, 6, 7}};
  EXPECT_EQ(rows_of(packed_checkpoint(), small_config(), 1, Role::kQkv), expected);
  ModelConfig plain = small_config();
  plain.layers[1].attention_gate = false;
  FakeCheckpoint checkpoint = packed_checkpoint();
  checkpoint.tensor("model.layers.1.self_attn.q_proj.weight", {4, 4});
  EXPECT_EQ(rows_of(checkpoint, plain, 1, Role::kQkv), (Rows{{0, 1, 2, 3}, {0, 1}, {0, 1}}));
}

TEST(DeltaWeights, BiasesGoWithTheirRows) {
  ModelConfig config = small_config();
  config.qkv_bias = Presence::kRequired;
  FakeCheckpoint checkpoint = packed_checkpoint();
  const std::string attention = "model.layers.1.self_attn.";
  checkpoint.tensor(attention + "q_proj.bias", {8})
      .tensor(attention + "k_proj.bias", {2})
      .tensor(attention + "v_proj.bias", {2});
  const auto found = find_weights(checkpoint, config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const FoundVector& bias = found->find(1, Role::kQkv)->vector;
  ASSERT_EQ(bias.pieces.size(), 4u);
  EXPECT_EQ(bias.pieces[0].order, (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(bias.pieces[3].order, (std::vector<int32_t>{2, 3, 6, 7}));
}

TEST(DeltaWeights, AnotherNumberOfRowsIsRefused) {
  for (const int64_t rows : {11, 13, 15, 17}) {
    FakeCheckpoint checkpoint = packed_checkpoint();
    checkpoint.tensor("model.layers.0.linear_attn.in_proj_qkvz.weight", {rows, 4});
    const auto found = find_weights(checkpoint, small_config());
    ASSERT_FALSE(found.ok()) << rows;
    EXPECT_NE(found.error().message.find("in_proj_qkvz"), std::string::npos);
  }
}

}  // namespace delta_weights_test
}  // namespace headrace
