// What adapter files may hold and what is refused. What adapters compute is tested against recorded
// results in tests/golden.
#include "model/read_adapter.h"

#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "model/testing/adapter_builder.h"
#include "model/testing/complete_checkpoint.h"

namespace headrace {
namespace read_adapter_test {

using testing::AdapterBuilder;

const std::string kAttention = "model.layers.0.self_attn.";

class ReadAdapterTest : public ::testing::Test {
 protected:
  ReadAdapterTest()
      : checkpoint_(CheckpointKind::kSafetensors, testing::full_config()),
        backend_(create_cpu_backend({.isa = "reference", .num_threads = 1}).value()),
        model_(Model::load(checkpoint_.get(), testing::full_config(), *backend_,
                           {.max_batch_tokens = 8, .max_logit_rows = 8})
                   .value()) {}

  Result<std::unique_ptr<const Adapter>> load(AdapterBuilder& builder) const {
    return model_->load_adapter(builder.files());
  }
  Error error_of(AdapterBuilder& builder) const {
    const auto adapter = load(builder);
    EXPECT_FALSE(adapter.ok());
    return adapter.ok() ? Error{} : adapter.error();
  }
  void expect_error(AdapterBuilder& builder, ErrorCode code, std::string_view text) const {
    const Error error = error_of(builder);
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(error.message.find(text), std::string::npos) << error.message;
  }
  void expect_loads(AdapterBuilder& builder) const {
    const auto adapter = load(builder);
    ASSERT_TRUE(adapter.ok()) << adapter.error().message;
    EXPECT_EQ((*adapter)->digest.size(), 128u);
    EXPECT_GT((*adapter)->packed->num_bytes(), 0u);
  }

  testing::CompleteCheckpoint checkpoint_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

TEST_F(ReadAdapterTest, ModulesOfEveryKindAreFound) {
  AdapterBuilder parts;
  parts.linear(kAttention + "q_proj", 32, 32, 2).linear(kAttention + "v_proj", 16, 32, 2);
  parts.linear("model.layers.0.mlp.up_proj", 48, 32, 2);
  parts.linear("model.layers.1.mlp.experts.2.down_proj", 32, 24, 2);
  parts.linear("model.layers.1.mlp.shared_expert.gate_proj", 40, 32, 2);
  parts.linear("lm_head", 20, 32, 2);
  expect_loads(parts);
  AdapterBuilder fused;
  fused.linear(kAttention + "qkv_proj", 64, 32, 2);
  fused.linear("model.layers.0.mlp.gate_up_proj", 96, 32, 2);
  expect_loads(fused);
  AdapterBuilder table;
  table.tensor("model.embed_tokens.lora_embedding_A", {2, 20});
  table.tensor("model.embed_tokens.lora_embedding_B", {32, 2});
  expect_loads(table);
  AdapterBuilder stacks;
  stacks.tensor("model.layers.1.mlp.experts.lora_A.weight", {6, 24});
  stacks.tensor("model.layers.1.mlp.experts.lora_B.weight", {32, 6});
  stacks.tensor("model.layers.1.mlp.experts.base_layer.lora_A.weight", {6, 32});
  stacks.tensor("model.layers.1.mlp.experts.base_layer.lora_B.weight", {48, 6});
  expect_loads(stacks);
}

TEST_F(ReadAdapterTest, BiasesMagnitudesAndWholeModulesAreTaken) {
  AdapterBuilder biases;
  biases.linear(kAttention + "q_proj", 32, 32, 2).tensor(kAttention + "q_proj.lora_B.bias", {32});
  biases.tensor(kAttention + "k_proj.bias", {16})
      .tensor(kAttention + "o_proj.base_layer.bias", {32});
  expect_loads(biases);
  AdapterBuilder magnitudes;
  magnitudes.config(R"({"r": 2, "use_dora": true})").linear(kAttention + "q_proj", 32, 32, 2);
  magnitudes.tensor(kAttention + "q_proj.lora_magnitude_vector", {32});
  expect_loads(magnitudes);
  AdapterBuilder whole;
  whole.tensor("lm_head.weight", {20, 32}).tensor("model.embed_tokens.weight", {20, 32});
  expect_loads(whole);
}

TEST_F(ReadAdapterTest, EqualFilesHaveEqualDigests) {
  AdapterBuilder one, other;
  one.linear(kAttention + "q_proj", 32, 32, 2);
  other.linear(kAttention + "q_proj", 32, 32, 2);
  const std::string digest = load(one).value()->digest;
  EXPECT_EQ(load(other).value()->digest, digest);
  other.config(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 5})");
  EXPECT_NE(load(other).value()->digest, digest);
}

TEST_F(ReadAdapterTest, ShapesMustBeThoseOfTheModel) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  AdapterBuilder narrow, tall, flat, high, other_rank, half;
  expect_error(narrow.linear(kAttention + "q_proj", 32, 31, 2), code, "[2, 32]");
  expect_error(tall.linear(kAttention + "q_proj", 33, 32, 2), code, "[32, 2]");
  expect_error(flat.tensor(kAttention + "q_proj.lora_A.weight", {64})
                   .tensor(kAttention + "q_proj.lora_B.weight", {32, 2}),
               code, "rank");
  expect_error(high.linear(kAttention + "q_proj", 32, 32, 300), code, "of rank 300");
  expect_error(other_rank.linear(kAttention + "q_proj", 32, 32, 3), code, "says 2");
  expect_error(half.tensor(kAttention + "q_proj.lora_A.weight", {2, 32}), code, "other half");
  AdapterBuilder magnitude, bias, whole, experts;
  expect_error(magnitude.config(R"({"r": 2, "use_dora": true})")
                   .linear(kAttention + "q_proj", 32, 32, 2)
                   .tensor(kAttention + "q_proj.lora_magnitude_vector", {31}),
               code, "[32]");
  expect_error(bias.tensor(kAttention + "q_proj.bias", {16}), code, "[32]");
  expect_error(whole.tensor("lm_head.weight", {21, 32}), code, "[20, 32]");
  expect_error(experts.linear("model.layers.1.mlp.experts", 32, 24, 9), code, "of rank 3");
}

TEST_F(ReadAdapterTest, ModulesThatAreNotThereAreNamed) {
  const ErrorCode code = ErrorCode::kUnsupported;
  for (const std::string module :
       {"model.layers.2.self_attn.q_proj", "model.layers.0.mlp.experts.0.up_proj",
        "model.layers.1.mlp.experts.3.up_proj", "model.layers.1.mlp.shared_expert_gate", "score",
        "model.layers.-1.self_attn.q_proj"}) {
    AdapterBuilder builder;
    expect_error(builder.linear(module, 32, 32, 2), code, module);
  }
  AdapterBuilder norm, unknown, saved, none, table;
  expect_error(norm.tensor("model.norm.weight", {32}), code, "model.norm");
  expect_error(unknown.tensor(kAttention + "q_proj.token_adapter", {2}), code, "token_adapter");
  expect_error(saved.tensor(kAttention + "q_proj.weight", {32, 32}), code, "q_proj");
  expect_error(none, ErrorCode::kInvalidArgument, "no tensors");
  expect_error(table.linear("model.embed_tokens", 20, 32, 2), code, "embed_tokens");
}

TEST_F(ReadAdapterTest, ContradictionsAreErrors) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  AdapterBuilder twice, without, surprise;
  expect_error(
      twice.linear(kAttention + "qkv_proj", 64, 32, 2).linear(kAttention + "k_proj", 16, 32, 2),
      code, "same outputs");
  expect_error(
      without.config(R"({"r": 2, "use_dora": true})").linear(kAttention + "q_proj", 32, 32, 2),
      code, "lacks a magnitude");
  expect_error(surprise.linear(kAttention + "q_proj", 32, 32, 2)
                   .tensor(kAttention + "q_proj.lora_magnitude_vector", {32}),
               code, "has a magnitude");
}

TEST_F(ReadAdapterTest, NumbersMustBeFiniteAndOfAFloatingPointType) {
  AdapterBuilder infinite, whole;
  infinite.tensor(kAttention + "q_proj.lora_A.weight", {2, 32},
                  {1.0f, std::numeric_limits<float>::infinity()});
  infinite.tensor(kAttention + "q_proj.lora_B.weight", {32, 2});
  expect_error(infinite, ErrorCode::kCorrupt, "not a finite number");
  whole.raw_tensor("base_model.model." + kAttention + "q_proj.lora_A.weight", {2, 32}, "I32");
  whole.tensor(kAttention + "q_proj.lora_B.weight", {32, 2});
  expect_error(whole, ErrorCode::kInvalidArgument, "F32, F16 or BF16");
}

// Every beginning of a good file, and the file with each byte of its header changed, ends in an
// adapter or an error.
TEST_F(ReadAdapterTest, BrokenFilesAreErrors) {
  AdapterBuilder builder;
  builder.linear(kAttention + "q_proj", 32, 32, 2);
  const AdapterFiles good = builder.files();
  ASSERT_TRUE(model_->load_adapter(good).ok());
  for (size_t size = 0; size < good.weights.size(); size += size < 300 ? 1 : 101) {
    EXPECT_FALSE(model_->load_adapter({"cut", good.config, good.weights.first(size)}).ok()) << size;
  }
  for (size_t at = 0; at < 330; ++at) {
    std::vector<std::byte> changed(good.weights.begin(), good.weights.end());
    changed[at] ^= std::byte{0x11};
    (void)model_->load_adapter({"changed", good.config, changed});
  }
}

}  // namespace read_adapter_test
}  // namespace headrace
