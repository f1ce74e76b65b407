#include "model/config/read_prediction.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/config/config_files.h"
#include "model/config/roles.h"
#include "model/model.h"
#include "model/testing/fake_checkpoint.h"
#include "model/weights.h"

namespace headrace {
namespace read_prediction_test {

using testing::FakeCheckpoint;

// A GLM of two layers, the second with experts, whose head is complete.
FakeCheckpoint glm(std::string_view more = "") {
  FakeCheckpoint file(fmt::format(
      R"({{"model_type": "glm4_moe", "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 16, "vocab_size": 40, "max_position_embeddings": 64, "n_routed_experts": 2,
          "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_intermediate_size": 16,
          "first_k_dense_replace": 1{}{}}})",
      more.empty() ? "" : ", ", more));
  file.tensor("model.embed_tokens.weight", {40, 32})
      .tensor("model.norm.weight", {32})
      .tensor("lm_head.weight", {40, 32});
  for (int i = 0; i < 3; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    file.tensor(layer + "input_layernorm.weight", {32})
        .tensor(layer + "post_attention_layernorm.weight", {32})
        .tensor(layer + "self_attn.q_proj.weight", {32, 32})
        .tensor(layer + "self_attn.k_proj.weight", {16, 32})
        .tensor(layer + "self_attn.v_proj.weight", {16, 32})
        .tensor(layer + "self_attn.o_proj.weight", {32, 32});
    const auto mlp = [&](const std::string& name, int64_t width) {
      file.tensor(layer + name + "gate_proj.weight", {width, 32})
          .tensor(layer + name + "up_proj.weight", {width, 32})
          .tensor(layer + name + "down_proj.weight", {32, width});
    };
    if (i == 0) {
      mlp("mlp.", 48);
      continue;
    }
    for (const char* name : {"mlp.experts.0.", "mlp.experts.1.", "mlp.shared_experts."}) {
      mlp(name, 16);
    }
    file.tensor(layer + "mlp.gate.weight", {2, 32})
        .tensor(layer + "mlp.gate.e_score_correction_bias", {2});
  }
  file.tensor("model.layers.2.eh_proj.weight", {32, 64})
      .tensor("model.layers.2.enorm.weight", {32})
      .tensor("model.layers.2.hnorm.weight", {32})
      .tensor("model.layers.2.shared_head.norm.weight", {32});
  return file;
}

ModelConfig config_of(const FakeCheckpoint& file) {
  const auto config = read_config_json(file);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

TEST(ReadPrediction, TensorsTellThatThereIsAHead) {
  const ModelConfig config = config_of(glm(R"("num_nextn_predict_layers": 1)"));
  EXPECT_EQ(config.num_layers(), 2);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
  ASSERT_EQ(config.prediction.size(), 1u);
  EXPECT_EQ(config.prediction[0].mlp, MlpKind::kExperts);
  EXPECT_EQ(config_of(glm()).prediction.size(), 1u);  // whatever the configuration says
  FakeCheckpoint without = glm(R"("num_nextn_predict_layers": 1)");
  without.remove("model.layers.2.eh_proj.weight");
  EXPECT_TRUE(config_of(without).prediction.empty());
  EXPECT_EQ(config_of(without).num_nextn_predict_layers, 1);
}

TEST(ReadPrediction, NamesAreThoseOfTheFamilyAndTheFormat) {
  const ModelConfig config = config_of(glm());
  const auto prefix = [&](CheckpointKind kind, const ModelConfig& of, bool of_layer) {
    return prediction_prefix(kind, of, kind == CheckpointKind::kGguf ? "" : "model.", of_layer);
  };
  EXPECT_EQ(prefix(CheckpointKind::kSafetensors, config, false), "model.layers.2.");
  EXPECT_EQ(prefix(CheckpointKind::kSafetensors, config, true), "model.layers.2.");
  EXPECT_EQ(prefix(CheckpointKind::kGguf, config, true), "blk.2.");
  ModelConfig apart = config;
  apart.family = "qwen3_next";
  EXPECT_EQ(prefix(CheckpointKind::kSafetensors, apart, false), "mtp.");
  EXPECT_EQ(prefix(CheckpointKind::kSafetensors, apart, true), "mtp.layers.0.");
  EXPECT_EQ(prefix(CheckpointKind::kGguf, apart, false), "blk.2.");
  const RoleRow& join = role_row(Role::kPredictionJoin);
  EXPECT_EQ(role_names(config, join, join.parts[0]).gguf[0], "nextn.eh_proj");
}

TEST(ReadPrediction, TheHeadIsALayerBehindTheLast) {
  const FakeCheckpoint file = glm();
  const ModelConfig config = config_of(file);
  const auto found = find_weights(file, config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->lacks_prediction, "");
  for (const Role role :
       {Role::kPredictionTokenNorm, Role::kPredictionStateNorm, Role::kPredictionJoin,
        Role::kPredictionNorm, Role::kQkv, Role::kExpertDown, Role::kMlpNorm}) {
    EXPECT_NE(found->find(2, role), nullptr) << role_row(role).name;
  }
  const auto plain = find_weights(file, without_prediction(config));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->find(2, Role::kQkv), nullptr);
  const ModelConfig head = prediction_network(config);
  EXPECT_EQ(head.num_layers(), 1);
  EXPECT_TRUE(head.joins_states && head.prediction.empty());
}

// The model runs without it; who asks for it is told by the command line.
TEST(ReadPrediction, AHeadOfWhichAPartIsMissingIsLeftOut) {
  FakeCheckpoint file = glm();
  file.remove("model.layers.2.hnorm.weight");
  const auto found = find_weights(file, config_of(file));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->lacks_prediction,
            "fake has no tensor model.layers.2.hnorm.weight, which is needed");
  EXPECT_EQ(found->find(2, Role::kPredictionJoin), nullptr);
  FakeCheckpoint bent = glm();
  bent.tensor("model.layers.2.eh_proj.weight", {32, 32});
  EXPECT_EQ(find_weights(bent, config_of(bent))->lacks_prediction,
            "weight model.layers.2.eh_proj is [32, 32], but [32, 64] is needed");
}

// The same network as a converter writes it.
FakeCheckpoint converted() {
  FakeCheckpoint file(CheckpointKind::kGguf);
  file.key("general.architecture", std::string_view("glm4moe"));
  const std::pair<const char*, int64_t> keys[] = {{"embedding_length", 32},
                                                  {"context_length", 64},
                                                  {"block_count", 3},
                                                  {"nextn_predict_layers", 1},
                                                  {"feed_forward_length", 48},
                                                  {"attention.head_count", 2},
                                                  {"attention.head_count_kv", 1},
                                                  {"attention.key_length", 16},
                                                  {"attention.value_length", 16},
                                                  {"expert_count", 2},
                                                  {"expert_used_count", 1},
                                                  {"expert_feed_forward_length", 16},
                                                  {"expert_shared_count", 1},
                                                  {"leading_dense_block_count", 1}};
  for (const auto& [name, value] : keys) file.key(fmt::format("glm4moe.{}", name), value);
  file.key("glm4moe.attention.layer_norm_rms_epsilon", 1e-5)
      .tensor("token_embd.weight", {40, 32})
      .tensor("output_norm.weight", {32})
      .tensor("output.weight", {40, 32});
  for (int i = 0; i < 3; ++i) {
    const auto add = [&](const char* name, const std::vector<int64_t>& shape) {
      file.tensor(fmt::format("blk.{}.{}", i, name), shape);
    };
    add("attn_norm.weight", {32});
    add("post_attention_norm.weight", {32});
    add("attn_q.weight", {32, 32});
    add("attn_k.weight", {16, 32});
    add("attn_v.weight", {16, 32});
    add("attn_output.weight", {32, 32});
    if (i == 0) {
      for (const char* name : {"ffn_gate.weight", "ffn_up.weight"}) add(name, {48, 32});
      add("ffn_down.weight", {32, 48});
      continue;
    }
    for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"}) add(name, {2, 16, 32});
    add("ffn_down_exps.weight", {2, 32, 16});
    for (const char* name : {"ffn_gate_shexp.weight", "ffn_up_shexp.weight"}) add(name, {16, 32});
    add("ffn_down_shexp.weight", {32, 16});
    add("ffn_gate_inp.weight", {2, 32});
    add("exp_probs_b.bias", {2});
  }
  file.tensor("blk.2.nextn.eh_proj.weight", {32, 64});
  for (const char* name : {"enorm", "hnorm", "shared_head_norm"}) {
    file.tensor(fmt::format("blk.2.nextn.{}.weight", name), {32});
  }
  return file;
}

TEST(ReadPrediction, GgufFilesAppendIt) {
  const FakeCheckpoint file = converted();
  const auto config = read_config_gguf(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers(), 2);
  ASSERT_EQ(config->prediction.size(), 1u);
  EXPECT_EQ(config->prediction[0].experts.shared_intermediate_size, 16);
  const auto found = find_weights(file, *config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->lacks_prediction, "");
  EXPECT_NE(found->find(2, Role::kPredictionJoin), nullptr);
}

TEST(ReadPrediction, TheMemoryPlanCountsIt) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const FakeCheckpoint file = glm();
  const MemoryPlan with = Model::memory_plan(file, *backend, {.prediction = true}).value();
  const MemoryPlan without = Model::memory_plan(file, *backend, {}).value();
  EXPECT_GT(with.weights, without.weights);
  EXPECT_GT(with.workspace, without.workspace);
  EXPECT_EQ(with.kv.block_bytes, without.kv.block_bytes / 2 * 3);  // three layers instead of two
  const auto model = Model::load(file, *backend, {.prediction = true}).value();
  ASSERT_NE(model->prediction(), nullptr);
  EXPECT_EQ(model->prediction()->config().num_layers(), 1);
  EXPECT_EQ(model->config().num_layers(), 2);
  EXPECT_EQ(Model::load(file, *backend, {}).value()->prediction(), nullptr);
}

}  // namespace read_prediction_test
}  // namespace headrace
