#include "model/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "model/config/config_files.h"
#include "model/model.h"
#include "model/testing/complete_checkpoint.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace weights_test {

using testing::CompleteCheckpoint;
using testing::FakeCheckpoint;
using testing::full_config;
using testing::has_bias;
using testing::kKinds;

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
    EXPECT_EQ(role_of(found, Role::kGateUp).pack.role, WeightRole::kGateUp);
    EXPECT_EQ(role_of(found, Role::kHead, kNoLayer).parts.size(), 1u);
    EXPECT_EQ(role_of(found, Role::kEmbedding, kNoLayer).pack.role, WeightRole::kEmbedding);
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

// ---- Every role ---------------------------------------------------------------------------------

Error find_error(const FakeCheckpoint& checkpoint, const ModelConfig& config) {
  const auto found = find_weights(checkpoint, config);
  return found.ok() ? Error{ErrorCode::kInternal, "all was found", {}, {}} : found.error();
}

TEST(WeightRoles, ACompleteCheckpointHasThemAll) {
  const ModelConfig config = full_config();
  for (const CheckpointKind kind : kKinds) {
    CompleteCheckpoint checkpoint(kind, config);
    const auto found = find_weights(checkpoint.get(), config);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto slots = role_slots(config);
    ASSERT_EQ(found->roles.size(), slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      const FoundRole& role = found->roles[i];
      EXPECT_EQ(role.layer, slots[i].layer);
      EXPECT_EQ(role.role, slots[i].row->role);
      EXPECT_EQ(found->find(role.layer, role.role), &role);
      const bool is_weight = slots[i].row->form == RoleForm::kWeight;
      EXPECT_EQ(!role.parts.empty(), is_weight) << slots[i].row->name;
      EXPECT_EQ(!role.vector.pieces.empty(), !is_weight || has_bias(config, *slots[i].row))
          << slots[i].row->name;
    }
    EXPECT_EQ(found->find(0, Role::kRouter), nullptr);
    EXPECT_EQ(found->find(2, Role::kQkv), nullptr);
  }
}

// Whatever tensor is missing: the message has its name.
TEST(WeightRoles, AMissingTensorOfAnyRoleIsNamed) {
  const ModelConfig config = full_config();
  int num_cases = 0;
  for (const CheckpointKind kind : kKinds) {
    CompleteCheckpoint complete(kind, config);
    const std::vector<std::string> names(complete.get().names().begin(),
                                         complete.get().names().end());
    for (const std::string& name : names) {
      CompleteCheckpoint checkpoint(kind, config);
      checkpoint.get().remove(name);
      const Error error = find_error(checkpoint.get(), config);
      std::string base = name.substr(0, name.rfind('.'));
      // It is looked for under every known prefix.
      if (base == "model.embed_tokens") base = "embed_tokens";
      EXPECT_NE(error.message.find(base), std::string::npos) << name << ": " << error.message;
      EXPECT_NE(error.code, ErrorCode::kInternal);
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 60);
}

// Whatever tensor has another shape: the message has its name and both shapes.
TEST(WeightRoles, AWrongShapeOfAnyRoleIsNamedWithBothShapes) {
  const ModelConfig config = full_config();
  int num_cases = 0;
  for (const CheckpointKind kind : kKinds) {
    CompleteCheckpoint complete(kind, config);
    for (const std::string& name : complete.get().names()) {
      const TensorView tensor = *complete.get().find(name);
      std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
      ++shape.back();
      CompleteCheckpoint checkpoint(kind, config);
      checkpoint.get().tensor(name, shape);
      const Error error = find_error(checkpoint.get(), config);
      EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << name << ": " << error.message;
      const bool is_vector = shape.size() == 1;
      const std::string base = is_vector ? name : name.substr(0, name.rfind('.'));
      const size_t rank = std::min<size_t>(shape.size(), 2);
      const auto text = [&](int64_t last) {
        return is_vector ? fmt::format("{}", last)
                         : fmt::format("[{}, {}]", shape[shape.size() - rank], last);
      };
      for (const std::string& part : {base, text(shape.back()), text(shape.back() - 1)}) {
        EXPECT_NE(error.message.find(part), std::string::npos)
            << name << " without '" << part << "': " << error.message;
      }
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 60);
}

TEST(WeightRoles, BiasesOfSomePartsOnlyAreRefusedByName) {
  struct Case {
    const char* removed;
    const char* message;
  };
  constexpr Case kCases[] = {
      {"blk.0.attn_k.bias",
       "2 of blk.0.attn_q, blk.0.attn_k, blk.0.attn_v have a bias, but all or none must"},
      {"blk.0.ffn_up.bias", "1 of blk.0.ffn_gate, blk.0.ffn_up have a bias, but all or none must"},
  };
  for (const Case& c : kCases) {
    ModelConfig config = full_config();
    CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
    checkpoint.get().remove(c.removed);
    config.qkv_bias = config.mlp_bias = Presence::kIfPresent;
    EXPECT_EQ(find_error(checkpoint.get(), config).message, c.message);
  }
}

TEST(WeightRoles, ABiasBelongsToItsWeight) {
  ModelConfig config = full_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
  for (const char* bias : {"blk.0.ffn_down.bias", "blk.0.attn_output.bias"}) {
    checkpoint.get().remove(bias);
  }
  config.o_bias = config.mlp_bias = Presence::kIfPresent;
  const auto found = find_weights(checkpoint.get(), config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(role_of(*found, Role::kQkv).vector.pieces.size(), 3u);
  EXPECT_EQ(role_of(*found, Role::kGateUp).vector.pieces.size(), 2u);
  EXPECT_TRUE(role_of(*found, Role::kDown).vector.pieces.empty());
  EXPECT_TRUE(role_of(*found, Role::kAttentionOut).vector.pieces.empty());
  EXPECT_EQ(role_of(*found, Role::kAttentionOut, 1).vector.pieces.size(), 1u);
  config.o_bias = Presence::kAbsent;
  const auto without = find_weights(checkpoint.get(), config);
  EXPECT_TRUE(role_of(*without, Role::kAttentionOut, 1).vector.pieces.empty());
}

TEST(WeightRoles, OnlyNormsAreStoredAsTheRestToOne) {
  ModelConfig config = full_config();
  config.norm_weight_plus_one = true;
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  const auto found = find_weights(checkpoint.get(), config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (const FoundRole& role : found->roles) {
    EXPECT_EQ(role.vector.plus_one, role_row(role.role).form == RoleForm::kNorm)
        << role_row(role.role).name;
  }
}

// Sinks have no ".weight" in published files.
TEST(WeightRoles, AVectorMayDoWithoutASuffix) {
  const ModelConfig config = full_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  checkpoint.get().remove("model.layers.0.self_attn.sinks.weight");
  checkpoint.get().tensor("model.layers.0.self_attn.sinks", {4});
  const auto found = find_weights(checkpoint.get(), config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(role_of(*found, Role::kSinks).vector.pieces.size(), 1u);
}

// ---- Experts ------------------------------------------------------------------------------------

constexpr const char* kExpertLayer = "model.layers.1.";

// The complete checkpoint without the tensors of its experts.
void remove_experts(FakeCheckpoint* checkpoint) {
  const std::vector<std::string> names(checkpoint->names().begin(), checkpoint->names().end());
  for (const std::string& name : names) {
    if (name.find("experts") != name.npos || name.find("_exps") != name.npos) {
      checkpoint->remove(name);
    }
  }
}

void expect_experts(const FakeCheckpoint& checkpoint, const ModelConfig& config) {
  const auto found = find_weights(checkpoint, config);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const FoundRole& gate_up = role_of(*found, Role::kExpertGateUp, 1);
  const FoundRole& down = role_of(*found, Role::kExpertDown, 1);
  EXPECT_EQ(gate_up.pack.role, WeightRole::kGateUp);
  EXPECT_EQ(gate_up.pack.num_experts, 3);
  EXPECT_EQ(down.pack.num_experts, 3);
  ASSERT_EQ(gate_up.parts.size(), 6u);
  ASSERT_EQ(down.parts.size(), 3u);
  for (const WeightView& part : gate_up.parts) {
    EXPECT_EQ(part.num_outputs, 24) << part.name;
    EXPECT_EQ(part.num_inputs, 32) << part.name;
  }
  for (const WeightView& part : down.parts) {
    EXPECT_EQ(part.num_outputs, 32) << part.name;
    EXPECT_EQ(part.num_inputs, 24) << part.name;
  }
}

TEST(ExpertWeights, AreFoundInEachFormThatFilesHave) {
  const ModelConfig config = full_config();
  CompleteCheckpoint gguf(CheckpointKind::kGguf, config);
  expect_experts(gguf.get(), config);
  CompleteCheckpoint separate(CheckpointKind::kSafetensors, config);
  expect_experts(separate.get(), config);
  EXPECT_EQ(find_weights(separate.get(), config)->find(1, Role::kExpertGateUp)->parts[3].name,
            "model.layers.1.mlp.experts.1.up_proj");

  CompleteCheckpoint mixtral(CheckpointKind::kSafetensors, config);
  remove_experts(&mixtral.get());
  const std::string sparse = std::string(kExpertLayer) + "block_sparse_moe.";
  mixtral.get().remove("model.layers.1.mlp.gate.weight").tensor(sparse + "gate.weight", {3, 32});
  mixtral.get().remove("model.layers.1.mlp.gate.bias").tensor(sparse + "gate.bias", {3});
  for (int e = 0; e < 3; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", sparse, e);
    mixtral.get().tensor(expert + "w1.weight", {24, 32}).tensor(expert + "w3.weight", {24, 32});
    mixtral.get().tensor(expert + "w2.weight", {32, 24});
  }
  expect_experts(mixtral.get(), config);

  CompleteCheckpoint stacked(CheckpointKind::kSafetensors, config);
  remove_experts(&stacked.get());
  stacked.get().tensor("model.layers.1.mlp.experts.gate_up_proj", {3, 48, 32});
  stacked.get().tensor("model.layers.1.mlp.experts.down_proj", {3, 32, 24});
  expect_experts(stacked.get(), config);
  const auto found = find_weights(stacked.get(), config);
  const auto& parts = found->find(1, Role::kExpertGateUp)->parts;
  constexpr ptrdiff_t kHalf = 24 * 32 * sizeof(float);
  EXPECT_EQ(parts[5].values.data - parts[4].values.data, kHalf);      // up after gate
  EXPECT_EQ(parts[4].values.data - parts[2].values.data, 2 * kHalf);  // expert 2 after expert 1
}

// Stacks [experts, inputs, outputs] whose columns are gate, up, gate, up, with biases alike.
ModelConfig interleaved_config() {
  ModelConfig config = full_config();
  config.transposed = Transposed::kExperts;
  config.interleaved_experts = true;
  config.expert_bias = Presence::kRequired;
  return config;
}

void add_interleaved(FakeCheckpoint* checkpoint) {
  remove_experts(checkpoint);
  const std::string experts = std::string(kExpertLayer) + "mlp.experts.";
  checkpoint->tensor(experts + "gate_up_proj", {3, 32, 48});
  checkpoint->tensor(experts + "down_proj", {3, 24, 32});
  std::vector<float> bias(3 * 48);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  checkpoint->tensor_of(experts + "gate_up_proj_bias", {3, 48}, bias);
  checkpoint->tensor(experts + "down_proj_bias", {3, 32});
}

TEST(ExpertWeights, TransposedAndInterleavedStacksAreTakenApart) {
  const ModelConfig config = interleaved_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, full_config());
  add_interleaved(&checkpoint.get());
  expect_experts(checkpoint.get(), config);
  const auto found = find_weights(checkpoint.get(), config);
  const FoundRole& gate_up = role_of(*found, Role::kExpertGateUp, 1);
  EXPECT_EQ(gate_up.parts[2].scheme, WeightScheme::kDenseTransposed);
  EXPECT_EQ(gate_up.parts[2].stored_row(1), 2);  // gates are even
  EXPECT_EQ(gate_up.parts[3].stored_row(1), 3);  // and ups odd
  // The router is as in every other file.
  EXPECT_EQ(role_of(*found, Role::kRouter, 1).parts[0].scheme, WeightScheme::kDense);
  ASSERT_EQ(gate_up.vector.pieces.size(), 3u);
  const FoundVector::Piece& second = gate_up.vector.pieces[1];
  EXPECT_EQ(second.order[1], 2);
  EXPECT_EQ(second.order[24], 1);
  float first = 0;
  std::memcpy(&first, second.tensor.data, sizeof(first));
  EXPECT_EQ(first, 48);  // of expert 1
  EXPECT_EQ(role_of(*found, Role::kExpertDown, 1).vector.pieces.size(), 3u);
}

// Blocks have outputs first; their rows alternate all the same.
TEST(ExpertWeights, BlocksAreInterleavedButNotTransposed) {
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, full_config());
  add_interleaved(&checkpoint.get());
  const std::string experts = std::string(kExpertLayer) + "mlp.experts.";
  checkpoint.get().remove(experts + "gate_up_proj");
  checkpoint.get().tensor(experts + "gate_up_proj_blocks", {3, 48, 1, 16}, DType::kU8);
  checkpoint.get().tensor(experts + "gate_up_proj_scales", {3, 48, 1}, DType::kU8);
  const auto found = find_weights(checkpoint.get(), interleaved_config());
  ASSERT_TRUE(found.ok()) << found.error().message;
  const WeightView& up = role_of(*found, Role::kExpertGateUp, 1).parts[5];
  EXPECT_EQ(up.scheme, WeightScheme::kMxfp4);
  EXPECT_EQ(up.num_outputs, 24);
  EXPECT_EQ(up.stored_row(0), 1);
}

TEST(ExpertWeights, BiasesOfAStackAreChecked) {
  const std::string name = std::string(kExpertLayer) + "mlp.experts.gate_up_proj_bias";
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, full_config());
  add_interleaved(&checkpoint.get());
  checkpoint.get().tensor(name, {48, 3});
  EXPECT_EQ(
      find_error(checkpoint.get(), interleaved_config()).message,
      "tensor model.layers.1.mlp.experts.gate_up_proj_bias is [48, 3], but [3, 48] is needed");
  checkpoint.get().remove(name);
  EXPECT_NE(find_error(checkpoint.get(), interleaved_config()).message.find("gate_up_proj.bias"),
            std::string::npos);
  // A GGUF file has them or not, of gate and up apart.
  ModelConfig optional = full_config();
  optional.expert_bias = Presence::kIfPresent;
  CompleteCheckpoint gguf(CheckpointKind::kGguf, full_config());
  gguf.get().tensor("blk.1.ffn_gate_exps.bias", {3, 24});
  EXPECT_NE(find_error(gguf.get(), optional).message.find("have a bias, but all or none must"),
            std::string::npos);
  gguf.get().tensor("blk.1.ffn_up_exps.bias", {3, 24});
  const auto found = find_weights(gguf.get(), optional);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(role_of(*found, Role::kExpertGateUp, 1).vector.pieces.size(), 6u);
  EXPECT_TRUE(role_of(*found, Role::kExpertDown, 1).vector.pieces.empty());
}

// Weights of layers stored [inputs, outputs]; the embedding and the head are not among them.
TEST(WeightRoles, LayersMayBeTransposed) {
  ModelConfig config = full_config();
  config.transposed = Transposed::kLayers;
  CompleteCheckpoint stored(CheckpointKind::kSafetensors, config);
  EXPECT_EQ(find_error(stored.get(), config).message,
            "weight model.layers.0.self_attn.k_proj is [32, 16], but [16, 32] is needed");
}

TEST(ExpertWeights, AStackOfOtherExpertsIsRefused) {
  const ModelConfig config = full_config();
  for (const int64_t count : {2, 4}) {
    CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
    checkpoint.get().tensor("blk.1.ffn_up_exps.weight", {count, 24, 32});
    EXPECT_EQ(find_error(checkpoint.get(), config).message,
              fmt::format("weight blk.1.ffn_up_exps is [{}, 24, 32], but the configuration has 3 "
                          "experts",
                          count));
  }
}

TEST(ExpertWeights, TheExpertIsNamed) {
  const ModelConfig config = full_config();
  CompleteCheckpoint missing(CheckpointKind::kSafetensors, config);
  missing.get().remove("model.layers.1.mlp.experts.2.up_proj.weight");
  EXPECT_NE(find_error(missing.get(), config).message.find("model.layers.1.mlp.experts.2.up_proj"),
            std::string::npos);
  CompleteCheckpoint stack(CheckpointKind::kGguf, config);
  stack.get().tensor("blk.1.ffn_down_exps.weight", {3, 24, 32});
  EXPECT_EQ(find_error(stack.get(), config).message,
            "weight blk.1.ffn_down_exps of expert 0 is [24, 32], but [32, 24] is needed");
}

// ---- Tensors that nobody reads ------------------------------------------------------------------

std::string warning_of(const FakeCheckpoint& checkpoint, const ModelConfig& config) {
  ::testing::internal::CaptureStderr();
  const auto found = find_weights(checkpoint, config);
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  return ::testing::internal::GetCapturedStderr();
}

TEST(UnusedTensors, AreCountedWithAnExample) {
  const ModelConfig config = full_config();
  for (const CheckpointKind kind : kKinds) {
    CompleteCheckpoint checkpoint(kind, config);
    EXPECT_EQ(warning_of(checkpoint.get(), config), "");
    checkpoint.get().tensor("blk.0.other.weight", {4}).tensor("blk.1.another.weight", {4});
    const std::string warning = warning_of(checkpoint.get(), config);
    EXPECT_NE(warning.find("2 tensors of fake are not part of a gemma2 network and are not used, "
                           "for instance blk.0.other"),
              std::string::npos)
        << warning;
  }
}

TEST(UnusedTensors, ExpertsBeyondTheConfigurationAreAmongThem) {
  const ModelConfig config = full_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  checkpoint.get().tensor("model.layers.1.mlp.experts.3.up_proj.weight", {24, 32});
  EXPECT_NE(warning_of(checkpoint.get(), config).find("model.layers.1.mlp.experts.3.up_proj"),
            std::string::npos);
}

TEST(UnusedTensors, StacksWithoutASuffixAreUsed) {
  const ModelConfig config = full_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  remove_experts(&checkpoint.get());
  checkpoint.get().tensor("model.layers.1.mlp.experts.gate_up_proj", {3, 48, 32});
  checkpoint.get().tensor("model.layers.1.mlp.experts.down_proj", {3, 32, 24});
  EXPECT_EQ(warning_of(checkpoint.get(), config), "");
  for (const char* expected :
       {"rotary_emb.inv_freq", "mtp.layers.0.weight", "visual.a.weight",
        "model.layers.2.eh_proj.weight", "model.layers.2.mlp.up_proj.weight"}) {
    checkpoint.get().tensor(expected, {4});
  }
  EXPECT_EQ(warning_of(checkpoint.get(), config), "");
}

// ---- Bytes --------------------------------------------------------------------------------------

TEST(WeightRoles, ThePlanIsTheSumOfPagesOfAllRoles) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const ModelConfig config = full_config();
  CompleteCheckpoint checkpoint(CheckpointKind::kGguf, config);
  const auto found = find_weights(checkpoint.get(), config).value();
  size_t expected = 0;
  for (const FoundRole& role : found.roles) {
    if (role.parts.empty()) continue;
    expected += (backend->packed_bytes(role.parts, role.pack) + 4095) / 4096 * 4096;
  }
  EXPECT_EQ(packed_bytes(found, *backend), expected);
  const Weights weights = load_weights(checkpoint.get(), found, *backend, {}, {}).value();
  ASSERT_EQ(weights.layers.size(), 2u);
  for (const FoundRole& role : found.roles) {
    const RoleWeights& owner =
        role.layer == kNoLayer ? weights.network : weights.layers[static_cast<size_t>(role.layer)];
    EXPECT_EQ(owner[role.role].weight != nullptr, !role.parts.empty());
    EXPECT_EQ(static_cast<bool>(owner.vector(role.role)), !role.vector.pieces.empty());
    if (role.parts.empty()) continue;
    EXPECT_EQ(owner.weight(role.role).num_experts(), role.pack.num_experts);
    EXPECT_EQ(owner.weight(role.role).num_bytes(), backend->packed_bytes(role.parts, role.pack));
  }
  EXPECT_EQ(&weights.head_weight(), &weights.network.weight(Role::kHead));
  EXPECT_DEATH((void)weights.layers[0].weight(Role::kRouter), "no weight for router");
}

}  // namespace weights_test
}  // namespace headrace
