// Weights of networks that are not shaped like Llama: rows of fused tensors in other orders, norms
// with a bias or without a weight.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "model/testing/fake_checkpoint.h"
#include "model/weights.h"

namespace headrace {
namespace weight_form_test {

using testing::FakeCheckpoint;

constexpr int64_t kHidden = 8;

ModelConfig config_of(std::string family, int heads, int kv_heads, int head_dim) {
  ModelConfig config;
  config.family = std::move(family);
  config.vocab_size = 4;
  config.hidden_size = kHidden;
  config.max_position_embeddings = 6;
  config.tie_word_embeddings = true;
  LayerConfig layer;
  layer.num_attention_heads = heads;
  layer.num_key_value_heads = kv_heads;
  layer.head_dim = head_dim;
  layer.intermediate_size = 12;
  layer.mlp = MlpKind::kPlain;
  config.layers.push_back(layer);
  return config;
}

// Falcon's tensors; the biases of q, k and v count their rows.
FakeCheckpoint falcon_of(int64_t num_rows, int64_t q_rows) {
  FakeCheckpoint checkpoint("{}");
  std::vector<float> rows(static_cast<size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0.0f);
  const std::string layer = "transformer.h.0.";
  checkpoint.tensor("transformer.word_embeddings.weight", {4, kHidden})
      .tensor_of("transformer.ln_f.weight", {kHidden}, std::vector<float>(kHidden, 2.0f))
      .tensor_of("transformer.ln_f.bias", {kHidden}, std::vector<float>(kHidden, 3.0f))
      .tensor(layer + "input_layernorm.weight", {kHidden})
      .tensor(layer + "input_layernorm.bias", {kHidden})
      .tensor(layer + "self_attention.query_key_value.weight", {num_rows, kHidden})
      .tensor_of(layer + "self_attention.query_key_value.bias", {num_rows}, rows)
      .tensor(layer + "self_attention.dense.weight", {kHidden, q_rows})
      .tensor(layer + "mlp.dense_h_to_4h.weight", {12, kHidden})
      .tensor(layer + "mlp.dense_4h_to_h.weight", {kHidden, 12});
  return checkpoint;
}

ModelConfig falcon_config(int heads, int kv_heads, int head_dim) {
  ModelConfig config = config_of("falcon", heads, kv_heads, head_dim);
  config.qkv_bias = Presence::kRequired;
  config.norm_bias = true;
  return config;
}

// Which stored row is at each of the projection's.
std::vector<int32_t> order_of(const FakeCheckpoint& checkpoint, const ModelConfig& config) {
  const auto found = find_weights(checkpoint, config);
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  if (!found.ok()) return {};
  const FoundRole& qkv = *found->find(0, Role::kQkv);
  EXPECT_EQ(qkv.vector.pieces[0].order, qkv.parts[0].row_order);  // the bias follows its weight
  return qkv.parts[0].row_order;
}

TEST(QkvOrder, AGroupHasItsQueriesItsKeyItsValue) {
  ModelConfig config = falcon_config(4, 2, 2);
  config.qkv_order = QkvOrder::kGroups;
  // Group 0: queries 0 to 3, key 4 and 5, value 6 and 7; group 1 from row 8 on.
  EXPECT_EQ(order_of(falcon_of(16, 8), config),
            (std::vector<int32_t>{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}));
}

TEST(QkvOrder, AGroupOfEachHead) {
  ModelConfig config = falcon_config(2, 2, 2);
  config.qkv_order = QkvOrder::kGroups;
  EXPECT_EQ(order_of(falcon_of(12, 4), config),
            (std::vector<int32_t>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

TEST(QkvOrder, FourBlocksOfQueriesValuesKeys) {
  ModelConfig config = falcon_config(4, 4, 1);
  config.qkv_order = QkvOrder::kFourBlocks;
  EXPECT_EQ(order_of(falcon_of(12, 4), config),
            (std::vector<int32_t>{0, 3, 6, 9, 2, 5, 8, 11, 1, 4, 7, 10}));
}

TEST(QkvOrder, PartsAreAsStored) {
  EXPECT_TRUE(order_of(falcon_of(12, 4), falcon_config(4, 4, 1)).empty());
}

TEST(QkvOrder, HeadsThatDoNotMakeFourBlocksAreRefused) {
  ModelConfig config = falcon_config(2, 2, 2);
  config.qkv_order = QkvOrder::kFourBlocks;
  const auto found = find_weights(falcon_of(12, 4), config);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
}

std::vector<float> loaded(const FakeCheckpoint& checkpoint, const ModelConfig& config, Role role,
                          size_t count) {
  auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1});
  const auto found = find_weights(checkpoint, config);
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  const auto weights = load_weights(checkpoint, *found, **backend, {}, {});
  EXPECT_TRUE(weights.ok());
  std::vector<float> values(count);
  (*backend)->download(weights->network.vector(role), std::span(values));
  return values;
}

TEST(NormForm, ABiasFollowsTheWeight) {
  const std::vector<float> values =
      loaded(falcon_of(16, 8), falcon_config(4, 2, 2), Role::kFinalNorm, 2 * kHidden);
  for (size_t i = 0; i < kHidden; ++i) EXPECT_EQ(values[i], 2);
  for (size_t i = kHidden; i < 2 * kHidden; ++i) EXPECT_EQ(values[i], 3);
}

TEST(NormForm, OnlyTheWeightIsStoredLessOne) {
  ModelConfig config = falcon_config(4, 2, 2);
  config.norm_weight_plus_one = true;
  const std::vector<float> values = loaded(falcon_of(16, 8), config, Role::kFinalNorm, 2 * kHidden);
  EXPECT_EQ(values.front(), 3);
  EXPECT_EQ(values.back(), 3);
}

TEST(NormForm, WithoutAWeightItIsOnes) {
  ModelConfig config = falcon_config(4, 2, 2);
  config.norm_weight = config.norm_bias = false;
  FakeCheckpoint checkpoint = falcon_of(16, 8);
  checkpoint.remove("transformer.ln_f.weight").remove("transformer.h.0.input_layernorm.weight");
  for (const float value : loaded(checkpoint, config, Role::kFinalNorm, kHidden)) {
    EXPECT_EQ(value, 1);
  }
}

TEST(NormForm, AMissingBiasIsNamed) {
  FakeCheckpoint checkpoint = falcon_of(16, 8);
  checkpoint.remove("transformer.h.0.input_layernorm.bias");
  const auto found = find_weights(checkpoint, falcon_config(4, 2, 2));
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("transformer.h.0.input_layernorm.bias"), std::string::npos);
}

}  // namespace weight_form_test
}  // namespace headrace
