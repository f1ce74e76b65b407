#include "model/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/config/config_files.h"
#include "model/model.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace {

using testing::FakeCheckpoint;

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 10})";

// A complete Llama of one layer.
FakeCheckpoint llama(const std::string& config = kConfig, const std::string& prefix = "model.") {
  FakeCheckpoint checkpoint(config);
  const std::string layer = prefix + "layers.0.";
  checkpoint.tensor(prefix + "embed_tokens.weight", {10, 8})
      .tensor(prefix + "norm.weight", {8})
      .tensor("lm_head.weight", {10, 8})
      .tensor(layer + "input_layernorm.weight", {8})
      .tensor(layer + "post_attention_layernorm.weight", {8})
      .tensor(layer + "self_attn.q_proj.weight", {8, 8})
      .tensor(layer + "self_attn.k_proj.weight", {4, 8})
      .tensor(layer + "self_attn.v_proj.weight", {4, 8})
      .tensor(layer + "self_attn.o_proj.weight", {8, 8})
      .tensor(layer + "mlp.gate_proj.weight", {12, 8})
      .tensor(layer + "mlp.up_proj.weight", {12, 8})
      .tensor(layer + "mlp.down_proj.weight", {8, 12});
  return checkpoint;
}

FakeCheckpoint llama_gguf() {
  FakeCheckpoint checkpoint(CheckpointKind::kGguf);
  checkpoint.key("general.architecture", std::string_view("llama"))
      .key("llama.embedding_length", int64_t{8})
      .key("llama.block_count", int64_t{1})
      .key("llama.feed_forward_length", int64_t{12})
      .key("llama.attention.head_count", int64_t{2})
      .key("llama.attention.head_count_kv", int64_t{1})
      .key("llama.attention.layer_norm_rms_epsilon", 1e-5)
      .tensor("token_embd.weight", {10, 8})
      .tensor("output_norm.weight", {8})
      .tensor("blk.0.attn_norm.weight", {8})
      .tensor("blk.0.ffn_norm.weight", {8})
      .tensor("blk.0.attn_q.weight", {8, 8})
      .tensor("blk.0.attn_k.weight", {4, 8})
      .tensor("blk.0.attn_v.weight", {4, 8})
      .tensor("blk.0.attn_output.weight", {8, 8})
      .tensor("blk.0.ffn_gate.weight", {12, 8})
      .tensor("blk.0.ffn_up.weight", {12, 8})
      .tensor("blk.0.ffn_down.weight", {8, 12});
  return checkpoint;
}

Result<FoundWeights> find(const FakeCheckpoint& checkpoint) {
  const ModelConfig config = TRY(Model::read_config(checkpoint));
  return find_weights(checkpoint, config);
}

FoundWeights found_in(const FakeCheckpoint& checkpoint) {
  auto found = find(checkpoint);
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  return found.ok() ? std::move(found).value() : FoundWeights{};
}

const FoundRole& role_of(const FoundWeights& found, Role role, int layer = 0) {
  static const FoundRole kNone;
  const FoundRole* there = found.find(layer, role);
  EXPECT_NE(there, nullptr) << role_row(role).name;
  return there == nullptr ? kNone : *there;
}

std::string error_of(const FakeCheckpoint& checkpoint) {
  const auto found = find(checkpoint);
  EXPECT_FALSE(found.ok());
  return found.ok() ? "" : found.error().message;
}

TEST(Weights, FindsEveryRoleUnderEachPrefix) {
  for (const char* prefix : {"model.", "model.language_model.", ""}) {
    SCOPED_TRACE(prefix);
    const FoundWeights found = found_in(llama(kConfig, prefix));
    EXPECT_EQ(role_of(found, Role::kQkv).parts.size(), 3u);
    EXPECT_EQ(role_of(found, Role::kGateUp).parts.size(), 2u);
    EXPECT_EQ(role_of(found, Role::kGateUp).pack, WeightRole::kGateUp);
    EXPECT_EQ(role_of(found, Role::kHead, kNoLayer).parts.size(), 1u);
    EXPECT_EQ(role_of(found, Role::kEmbedding, kNoLayer).pack, WeightRole::kEmbedding);
    EXPECT_FALSE(role_of(found, Role::kAttentionNorm).vector.plus_one);
  }
}

TEST(Weights, AMissingTensorIsNamed) {
  FakeCheckpoint checkpoint = llama();
  checkpoint.remove("model.layers.0.mlp.down_proj.weight");
  EXPECT_NE(error_of(checkpoint).find("model.layers.0.mlp.down_proj"), std::string::npos);
  FakeCheckpoint no_norm = llama();
  no_norm.remove("model.norm.weight");
  EXPECT_NE(error_of(no_norm).find("no tensor model.norm.weight"), std::string::npos);
  FakeCheckpoint no_embedding = llama();
  no_embedding.remove("model.embed_tokens.weight");
  EXPECT_NE(error_of(no_embedding).find("embed_tokens"), std::string::npos);
}

TEST(Weights, AWrongShapeIsNamedWithBothShapes) {
  FakeCheckpoint checkpoint = llama();
  checkpoint.tensor("model.layers.0.self_attn.k_proj.weight", {8, 8});
  EXPECT_EQ(error_of(checkpoint),
            "weight model.layers.0.self_attn.k_proj is [8, 8], but [4, 8] is needed");
  FakeCheckpoint norm = llama();
  norm.tensor("model.layers.0.input_layernorm.weight", {7});
  EXPECT_EQ(error_of(norm),
            "tensor model.layers.0.input_layernorm.weight is F32 [7], but 8 floating-point numbers "
            "are needed");
  FakeCheckpoint integers = llama();
  integers.tensor("model.norm.weight", {8}, DType::kI64);
  EXPECT_NE(error_of(integers).find("I64"), std::string::npos);
}

TEST(Weights, FusedTensorsAreTakenApart) {
  FakeCheckpoint checkpoint = llama();
  const std::string layer = "model.layers.0.";
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "mlp.gate_proj", "mlp.up_proj"}) {
    checkpoint.remove(layer + name + ".weight");
  }
  checkpoint.tensor(layer + "self_attn.qkv_proj.weight", {16, 8});
  checkpoint.tensor(layer + "mlp.gate_up_proj.weight", {24, 8});
  const FoundWeights found = found_in(checkpoint);
  ASSERT_EQ(role_of(found, Role::kQkv).parts.size(), 1u);
  EXPECT_EQ(role_of(found, Role::kQkv).parts[0].num_outputs, 16);
  ASSERT_EQ(role_of(found, Role::kGateUp).parts.size(), 2u);
  EXPECT_EQ(role_of(found, Role::kGateUp).parts[0].num_outputs, 12);
  EXPECT_EQ(role_of(found, Role::kGateUp).parts[1].num_outputs, 12);
}

TEST(Weights, BiasesFollowTheConfiguration) {
  FakeCheckpoint checkpoint = llama();
  checkpoint.tensor("model.layers.0.self_attn.q_proj.bias", {8});
  EXPECT_TRUE(role_of(found_in(checkpoint), Role::kQkv).vector.pieces.empty());
  std::string config(kConfig);
  config.insert(config.rfind('}'), R"(, "attention_bias": true)");
  EXPECT_NE(error_of(llama(config)).find("q_proj.bias"), std::string::npos);
}

TEST(Weights, GgufRowsOfQAndKAreBroughtBackInOrder) {
  const FoundWeights found = found_in(llama_gguf());
  const std::vector<int32_t> q = {0, 2, 1, 3, 4, 6, 5, 7};
  const std::vector<int32_t> k = {0, 2, 1, 3};
  EXPECT_EQ(role_of(found, Role::kQkv).parts[0].row_order, q);
  EXPECT_EQ(role_of(found, Role::kQkv).parts[1].row_order, k);
  EXPECT_TRUE(role_of(found, Role::kQkv).parts[2].row_order.empty());
  EXPECT_EQ(found.find(kNoLayer, Role::kHead), nullptr);  // no output.weight: tied
}

TEST(Weights, GgufFusedProjectionsAndBiasesToo) {
  FakeCheckpoint checkpoint = llama_gguf();
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
    checkpoint.remove(fmt::format("blk.0.{}.weight", name));
  }
  checkpoint.tensor("blk.0.attn_qkv.weight", {16, 8}).tensor("blk.0.attn_qkv.bias", {16});
  const FoundWeights found = found_in(checkpoint);
  const std::vector<int32_t> order = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 13, 14, 15};
  EXPECT_EQ(role_of(found, Role::kQkv).parts[0].row_order, order);
  ASSERT_EQ(role_of(found, Role::kQkv).vector.pieces.size(), 1u);
  EXPECT_EQ(role_of(found, Role::kQkv).vector.pieces[0].order, order);
}

TEST(Weights, LoadingTakesWhatThePlanSays) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const FakeCheckpoint checkpoint = llama();
  const ModelOptions options = {.max_batch_tokens = 4, .max_logit_rows = 2};
  const auto plan = Model::memory_plan(checkpoint, *backend, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  size_t last_done = 0, last_total = 0;
  const auto model = Model::load(checkpoint, *backend, options, [&](size_t done, size_t total) {
    EXPECT_GT(done, last_done);
    last_done = done;
    last_total = total;
  });
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(last_done, plan->weights);
  EXPECT_EQ(last_total, plan->weights);
  EXPECT_EQ(plan->kv.block_bytes, plan_cache((*model)->cache_groups(), *backend).block_bytes);
  // At least the residual stream, q, k, v and the MLP of four tokens.
  EXPECT_GE(plan->workspace, 4 * (8 + 16 + 12) * sizeof(float));
}

TEST(Weights, ImpossibleBatchSizesAreRefused) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  for (const int size : {0, -1, 2'000'000}) {
    EXPECT_FALSE(Model::load(llama(), *backend, {.max_batch_tokens = size}).ok());
    EXPECT_FALSE(Model::load(llama(), *backend, {.max_logit_rows = size}).ok());
  }
}

TEST(Weights, SomeBiasesOfThreeAreRefused) {
  FakeCheckpoint checkpoint = llama_gguf();
  checkpoint.tensor("blk.0.attn_q.bias", {8});
  EXPECT_NE(error_of(checkpoint).find("all or none"), std::string::npos);
}

}  // namespace
}  // namespace headrace
