// Weights of layers that differ in shape: what each has, and what files hold beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/testing/complete_checkpoint.h"
#include "model/weights.h"

namespace headrace {
namespace weight_shapes_test {

using testing::CompleteCheckpoint;
using testing::FakeCheckpoint;
using testing::full_config;
using testing::kKinds;

// Four layers: keys and values, values that are keys, another layer's keys, experts beside an MLP.
ModelConfig shapes_config() {
  ModelConfig config = full_config();
  config.qkv_bias = config.o_bias = config.mlp_bias = Presence::kAbsent;
  config.layer_scalar = true;
  config.hidden_size_per_layer_input = 16;
  config.vocab_size_per_layer_input = 24;
  LayerConfig layer = config.layers[0];
  config.layers.assign(4, layer);
  config.layers[1].values_are_keys = true;
  config.layers[2].kv_source_layer = 0;
  config.layers[3].mlp = MlpKind::kDenseAndExperts;
  config.layers[3].experts = {
      .num_experts = 3, .num_experts_per_token = 2, .intermediate_size = 24};
  return config;
}

TEST(WeightShapes, EachLayerHasThePartsOfItsShape) {
  const ModelConfig config = shapes_config();
  for (const CheckpointKind kind : kKinds) {
    CompleteCheckpoint checkpoint(kind, config);
    const auto found = find_weights(checkpoint.get(), config);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->find(0, Role::kQkv)->parts.size(), 3u);
    EXPECT_EQ(found->find(1, Role::kQkv)->parts.size(), 2u);
    EXPECT_EQ(found->find(2, Role::kQkv)->parts.size(), 1u);
    EXPECT_NE(found->find(1, Role::kKNorm), nullptr);
    EXPECT_EQ(found->find(2, Role::kKNorm), nullptr);
    EXPECT_EQ(found->find(kNoLayer, Role::kPerLayerEmbedding)->parts[0].num_inputs, 64);
    EXPECT_EQ(found->find(kNoLayer, Role::kPerLayerEmbedding)->pack.role, WeightRole::kEmbedding);
    EXPECT_EQ(found->find(3, Role::kExpertDown)->pack.num_experts, 3);
    EXPECT_NE(found->find(3, Role::kGateUp), nullptr);
  }
}

// Published files hold keys and values of layers that do not read them, whatever their shape.
TEST(WeightShapes, KeysOfALayerThatReadsOthersArePassedOver) {
  const ModelConfig config = shapes_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  for (const char* name : {"k_proj", "v_proj", "k_norm"}) {
    checkpoint.get().tensor(fmt::format("model.layers.2.self_attn.{}.weight", name), {3, 5});
  }
  const auto found = find_weights(checkpoint.get(), config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->find(2, Role::kQkv)->parts.size(), 1u);
}

TEST(WeightShapes, AFactorMayBeMissing) {
  const ModelConfig config = shapes_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
  checkpoint.get().remove("blk.1.layer_output_scale.weight");
  const auto found = find_weights(checkpoint.get(), config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->find(0, Role::kLayerScalar)->vector.pieces.size(), 1u);
  EXPECT_TRUE(found->find(1, Role::kLayerScalar)->vector.pieces.empty());
}

// GGUF's NAME.scale is the network's where it has a role: not a scale that the weight is unpacked
// by.
TEST(WeightShapes, FactorsOfExpertsAreNoScalesOfTheirWeights) {
  const ModelConfig config = shapes_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
  FakeCheckpoint& file = checkpoint.get();
  file.remove("blk.3.ffn_down_exps.scale.weight").remove("blk.3.ffn_gate_inp.scale.weight");
  file.tensor("blk.3.ffn_down_exps.scale", {3}).tensor("blk.3.ffn_gate_inp.scale", {32});
  const auto found = find_weights(file, config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found->find(3, Role::kExpertDown)->parts[0].global_scale.empty());
  EXPECT_TRUE(found->find(3, Role::kRouter)->parts[0].global_scale.empty());
  EXPECT_EQ(found->find(3, Role::kExpertScale)->vector.pieces[0].tensor.num_elements(), 3);
  EXPECT_EQ(found->find(3, Role::kRouterScale)->vector.pieces[0].tensor.num_elements(), 32);
}

}  // namespace weight_shapes_test
}  // namespace headrace
