// Weights of latent attention: rows of a tensor of all heads, or a tensor for each use.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/config/read_latent.h"
#include "model/testing/fake_checkpoint.h"
#include "model/weights.h"

namespace headrace {
namespace weights_latent_test {

using testing::FakeCheckpoint;

// Two heads: keys of 3 and 2 numbers, values of 5, a latent of 4.
ModelConfig network() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 10;
  config.hidden_size = 8;
  config.max_position_embeddings = 64;
  config.tie_word_embeddings = true;
  LayerConfig layer;
  layer.num_attention_heads = 2;
  layer.intermediate_size = 12;
  set_latent({.kv_lora_rank = 4, .qk_nope_head_dim = 3, .qk_rope_head_dim = 2, .v_head_dim = 5},
             &layer);
  config.layers = {layer};
  return config;
}

FakeCheckpoint safetensors() {
  FakeCheckpoint file("{}");
  const std::string layer = "model.layers.0.";
  std::vector<float> both(16 * 4);  // [2 heads, 3 key rows then 5 value rows, 4]
  for (size_t i = 0; i < both.size(); ++i) both[i] = static_cast<float>(i);
  file.tensor("model.embed_tokens.weight", {10, 8})
      .tensor("model.norm.weight", {8})
      .tensor(layer + "input_layernorm.weight", {8})
      .tensor(layer + "post_attention_layernorm.weight", {8})
      .tensor(layer + "mlp.gate_proj.weight", {12, 8})
      .tensor(layer + "mlp.up_proj.weight", {12, 8})
      .tensor(layer + "mlp.down_proj.weight", {8, 12})
      .tensor(layer + "self_attn.q_proj.weight", {10, 8})
      .tensor(layer + "self_attn.kv_a_proj_with_mqa.weight", {6, 8})
      .tensor(layer + "self_attn.kv_a_layernorm.weight", {4})
      .tensor_of(layer + "self_attn.kv_b_proj.weight", {16, 4}, both)
      .tensor(layer + "self_attn.o_proj.weight", {8, 10});
  return file;
}

FakeCheckpoint gguf() {
  FakeCheckpoint file(CheckpointKind::kGguf);
  file.tensor("token_embd.weight", {10, 8})
      .tensor("output_norm.weight", {8})
      .tensor("blk.0.attn_norm.weight", {8})
      .tensor("blk.0.ffn_norm.weight", {8})
      .tensor("blk.0.ffn_gate.weight", {12, 8})
      .tensor("blk.0.ffn_up.weight", {12, 8})
      .tensor("blk.0.ffn_down.weight", {8, 12})
      .tensor("blk.0.attn_q.weight", {10, 8})
      .tensor("blk.0.attn_kv_a_mqa.weight", {6, 8})
      .tensor("blk.0.attn_kv_a_norm.weight", {4})
      .tensor("blk.0.attn_k_b.weight", {2, 4, 3})
      .tensor("blk.0.attn_v_b.weight", {2, 5, 4})
      .tensor("blk.0.attn_output.weight", {8, 10});
  return file;
}

std::string error_of(const FakeCheckpoint& file) {
  const auto found = find_weights(file, network());
  EXPECT_FALSE(found.ok());
  return found.ok() ? "" : found.error().message;
}

TEST(LatentWeights, HeadsAreRowsOfOneTensor) {
  const FakeCheckpoint file = safetensors();
  const auto found = find_weights(file, network());
  ASSERT_TRUE(found.ok()) << found.error().message;
  const FoundRole& keys = *found->find(0, Role::kKeyUp);
  EXPECT_EQ(keys.pack.num_experts, 2);
  ASSERT_EQ(keys.parts.size(), 2u);
  ASSERT_EQ(keys.transposed_from.size(), 2u);
  EXPECT_EQ(keys.parts[1].num_outputs, 4);
  EXPECT_EQ(keys.parts[1].num_inputs, 3);
  const std::byte* whole = file.find("model.layers.0.self_attn.kv_b_proj.weight")->data;
  constexpr ptrdiff_t kRowBytes = 4 * sizeof(float);
  EXPECT_EQ(keys.transposed_from[1].values.data, whole + 8 * kRowBytes) << "the second head's rows";
  const FoundRole& values = *found->find(0, Role::kValueUp);
  ASSERT_EQ(values.parts.size(), 2u);
  EXPECT_TRUE(values.transposed_from.empty());
  EXPECT_EQ(values.parts[0].values.data, whole + 3 * kRowBytes);
  EXPECT_EQ(values.parts[1].values.data, whole + 11 * kRowBytes);
}

// The products of a head with what the packer made of its rows.
TEST(LatentWeights, PackedKeysRunFromTheirRowsToTheLatent) {
  const FakeCheckpoint file = safetensors();
  const auto found = find_weights(file, network());
  ASSERT_TRUE(found.ok());
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const Weights weights = load_weights(file, *found, *backend, {}, {}).value();
  const PackedWeight& keys = weights.layers[0].weight(Role::kKeyUp);
  EXPECT_EQ(keys.num_experts(), 2);
  DeviceMemory memory = backend->allocate(64 * sizeof(float), MemoryUse::kActivations).value();
  const DevicePtr<float> x = memory.as<float>(), out = x + 32;
  const float rows[] = {1, 10, 100, 2, 20, 200};  // of both heads
  backend->upload<float>(rows, x);
  backend->head_linear({&keys, x, 3, out, 4, 1, 2});
  std::vector<float> latent(8);
  backend->download<float>(out, std::span(latent));
  for (size_t h = 0; h < 2; ++h) {
    for (size_t d = 0; d < 4; ++d) {
      float expected = 0;
      for (size_t row = 0; row < 3; ++row) {
        expected += rows[h * 3 + row] * static_cast<float>((h * 8 + row) * 4 + d);
      }
      EXPECT_EQ(latent[h * 4 + d], expected) << "head " << h;
    }
  }
}

TEST(LatentWeights, GgufFilesHoldEachUse) {
  const FakeCheckpoint file = gguf();
  const auto found = find_weights(file, network());
  ASSERT_TRUE(found.ok()) << found.error().message;
  const FoundRole& keys = *found->find(0, Role::kKeyUp);
  EXPECT_TRUE(keys.transposed_from.empty());
  EXPECT_EQ(keys.parts[1].num_outputs, 4);
  EXPECT_EQ(found->find(0, Role::kValueUp)->parts[1].num_outputs, 5);
  FakeCheckpoint older = gguf();
  older.remove("blk.0.attn_k_b.weight").remove("blk.0.attn_v_b.weight");
  older.tensor("blk.0.attn_kv_b.weight", {16, 4});
  const auto found_older = find_weights(older, network());
  ASSERT_TRUE(found_older.ok()) << found_older.error().message;
  EXPECT_EQ(found_older->find(0, Role::kKeyUp)->transposed_from.size(), 2u);
}

TEST(LatentWeights, WhatIsMissingOrOfAnotherShapeIsNamed) {
  FakeCheckpoint file = safetensors();
  file.tensor("model.layers.0.self_attn.kv_b_proj.weight", {15, 4});
  EXPECT_NE(error_of(file).find("[15, 4], but [16, 4] is needed"), std::string::npos);
  file.remove("model.layers.0.self_attn.kv_b_proj.weight");
  EXPECT_NE(error_of(file).find("self_attn.kv_b_proj"), std::string::npos);
  FakeCheckpoint stacked = gguf();
  stacked.tensor("blk.0.attn_k_b.weight", {3, 4, 3});
  EXPECT_NE(error_of(stacked).find("attn_k_b"), std::string::npos);
}

}  // namespace weights_latent_test
}  // namespace headrace
