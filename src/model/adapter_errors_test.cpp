// What is said of adapter files that do not fit the model: the tensor by its full name, what it is
// and what is needed.
#include <gtest/gtest.h>

#include <functional>

#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "model/testing/adapter_builder.h"
#include "model/testing/complete_checkpoint.h"

namespace headrace {
namespace adapter_errors_test {

using testing::AdapterBuilder;

const std::string kQueries = "model.layers.0.self_attn.q_proj";
const std::string kPrefix = "base_model.model.";
constexpr const char* kDora = R"({"r": 2, "use_dora": true})";

class AdapterErrorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const ModelConfig config = testing::full_config();
    checkpoint_ =
        std::make_unique<testing::CompleteCheckpoint>(CheckpointKind::kSafetensors, config);
    backend_ = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
    model_ = Model::load(checkpoint_->get(), config, *backend_,
                         {.max_batch_tokens = 8, .max_logit_rows = 8})
                 .value();
  }
  static void TearDownTestSuite() {
    model_.reset();
    backend_.reset();
    checkpoint_.reset();
  }

  static Result<std::unique_ptr<const Adapter>> load(
      const std::function<void(AdapterBuilder&)>& make) {
    AdapterBuilder builder;
    make(builder);
    return model_->load_adapter(builder.files());
  }
  static void expect_error(ErrorCode code, std::string_view message,
                           const std::function<void(AdapterBuilder&)>& make) {
    const auto adapter = load(make);
    ASSERT_FALSE(adapter.ok()) << message;
    EXPECT_EQ(adapter.error().code, code) << message;
    EXPECT_EQ(adapter.error().message, message);
  }

  static inline std::unique_ptr<testing::CompleteCheckpoint> checkpoint_;
  static inline std::unique_ptr<Backend> backend_;
  static inline std::unique_ptr<Model> model_;
};

TEST_F(AdapterErrorsTest, ShapesAreShownAndSoIsWhatIsNeeded) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  expect_error(code,
               "tensor " + kPrefix + kQueries +
                   ".lora_A.weight is F32 [2, 31], but [2, 32] of F32, F16 or BF16 is needed",
               [](AdapterBuilder& file) { file.linear(kQueries, 32, 31, 2); });
  expect_error(code,
               "tensor " + kPrefix + kQueries +
                   ".lora_B.weight is F32 [2, 32], but [32, 2] of F32, F16 or BF16 is needed",
               [](AdapterBuilder& file) {
                 file.tensor(kQueries + ".lora_A.weight", {2, 32})
                     .tensor(kQueries + ".lora_B.weight", {2, 32});
               });
  expect_error(code,
               "tensor " + kPrefix + kQueries +
                   ".lora_magnitude_vector is F32 [32, 1], but [32] of F32, F16 or BF16 is needed",
               [](AdapterBuilder& file) {
                 file.config(kDora).linear(kQueries, 32, 32, 2);
                 file.tensor(kQueries + ".lora_magnitude_vector", {32, 1});
               });
  expect_error(code,
               "tensor " + kPrefix +
                   "model.embed_tokens.lora_embedding_B is F32 [20, 2], but [32, 2] of F32, F16 or "
                   "BF16 is needed",
               [](AdapterBuilder& file) {
                 file.tensor("model.embed_tokens.lora_embedding_A", {2, 20})
                     .tensor("model.embed_tokens.lora_embedding_B", {20, 2});
               });
}

TEST_F(AdapterErrorsTest, RanksAreThoseOfTheConfiguration) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  const std::string a = "tensor " + kPrefix + kQueries + ".lora_A.weight is ";
  expect_error(code, a + "[3, 32]: of rank 3, but the configuration says 2",
               [](AdapterBuilder& file) { file.linear(kQueries, 32, 32, 3); });
  expect_error(code, a + "[2, 32]: of rank 2, but the configuration says 5",
               [](AdapterBuilder& file) {
                 file.config(R"({"r": 2, "rank_pattern": {"q_proj": 5}})");
                 file.linear(kQueries, 32, 32, 2);
               });
  expect_error(code, a + "[2, 32, 1]: of rank 0, but the configuration says 2",
               [](AdapterBuilder& file) {
                 file.tensor(kQueries + ".lora_A.weight", {2, 32, 1})
                     .tensor(kQueries + ".lora_B.weight", {32, 2});
               });
  for (const std::string key : {"rank_pattern", "alpha_pattern"}) {
    const auto adapter = load([&](AdapterBuilder& file) {
      file.config("{\"r\": 2, \"" + key + "\": {\"(\": 2}}").linear(kQueries, 32, 32, 2);
    });
    ASSERT_FALSE(adapter.ok()) << key;
    EXPECT_EQ(adapter.error().code, code) << key;
    EXPECT_TRUE(adapter.error().message.starts_with(
        "adapter_config.json: the pattern '(' cannot be matched: "))
        << adapter.error().message;
  }
}

TEST_F(AdapterErrorsTest, RanksOfModulesMayDiffer) {
  const auto adapter = load([](AdapterBuilder& file) {
    file.config(R"({"r": 2, "rank_pattern": {"k_proj": 5, "layers.1.mlp.experts": 3},
                    "base_model_name_or_path": "org/base"})");
    file.linear(kQueries, 32, 32, 2).linear("model.layers.0.self_attn.k_proj", 16, 32, 5);
    file.linear("model.layers.1.mlp.experts", 32, 24, 9);  // three experts
  });
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ((*adapter)->rank, 5) << "the largest";
  EXPECT_EQ((*adapter)->base_model, "org/base");
}

TEST_F(AdapterErrorsTest, HalvesBelongTogether) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  for (const std::string half : {".lora_A.weight", ".lora_B.weight"}) {
    expect_error(code, "tensor " + kPrefix + kQueries + half + " comes without its other half",
                 [&](AdapterBuilder& file) {
                   file.tensor(kQueries + half, half[6] == 'A' ? std::vector<int64_t>{2, 32}
                                                               : std::vector<int64_t>{32, 2});
                 });
  }
  expect_error(
      code,
      "tensor " + kPrefix + "model.embed_tokens.lora_embedding_B comes without its other half",
      [](AdapterBuilder& file) { file.tensor("model.embed_tokens.lora_embedding_B", {32, 2}); });
}

// Files of several tools and ages write the same tensor under several names.
TEST_F(AdapterErrorsTest, NamesComeWithAndWithoutTheirPrefixButOnce) {
  for (const std::string prefix : {"base_model.model.", "base_model.", ""}) {
    const auto adapter = load([&](AdapterBuilder& file) {
      file.raw_tensor(prefix + kQueries + ".lora_A.weight", {2, 32}, "F32");
      file.raw_tensor(prefix + kQueries + ".lora_B.weight", {32, 2}, "F32");
    });
    EXPECT_TRUE(adapter.ok()) << prefix << ": " << adapter.error().message;
  }
  const auto twice = load([](AdapterBuilder& file) {
    file.linear(kQueries, 32, 32, 2);
    file.raw_tensor(kQueries + ".lora_A.weight", {2, 32}, "F32");
  });
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(twice.error().message.find(" are the same thing"), std::string::npos);
  EXPECT_NE(twice.error().message.find(kPrefix + kQueries), std::string::npos);
}

TEST_F(AdapterErrorsTest, MagnitudesComeWithTheirFlag) {
  const ErrorCode code = ErrorCode::kInvalidArgument;
  expect_error(code, "module " + kQueries + " lacks a magnitude, but use_dora is true",
               [](AdapterBuilder& file) { file.config(kDora).linear(kQueries, 32, 32, 2); });
  expect_error(code, "module " + kQueries + " has a magnitude, but use_dora is false",
               [](AdapterBuilder& file) {
                 file.linear(kQueries, 32, 32, 2);
                 file.tensor(kQueries + ".lora_magnitude_vector", {32});
               });
  // A magnitude without a product, and one beside a bias of the product.
  EXPECT_FALSE(load([](AdapterBuilder& file) {
                 file.config(kDora).tensor(kQueries + ".lora_magnitude_vector", {32});
               }).ok());
  EXPECT_FALSE(load([](AdapterBuilder& file) {
                 file.config(kDora).linear(kQueries, 32, 32, 2);
                 file.tensor(kQueries + ".lora_magnitude_vector", {32});
                 file.tensor(kQueries + ".lora_B.bias", {32});
               }).ok());
  for (const std::string ending : {".lora_magnitude_vector", ".lora_magnitude_vector.weight"}) {
    EXPECT_TRUE(load([&](AdapterBuilder& file) {
                  file.config(kDora).linear(kQueries, 32, 32, 2).tensor(kQueries + ending, {32});
                }).ok())
        << ending;
  }
}

TEST_F(AdapterErrorsTest, ModulesThatCannotBeAdaptedAreNamedWithTheirTensor) {
  struct Case {
    std::string module, ending;
    std::vector<int64_t> shape;
  };
  const Case cases[] = {
      {"model.layers.7.self_attn.q_proj", ".lora_A.weight", {2, 32}},
      {"model.layers.0.input_layernorm", ".weight", {32}},
      {"model.layers.0.self_attn.q_proj", ".weight", {32, 32}},
      {"model.layers.0.self_attn.q_proj", ".lora_embedding_A", {2, 32}},
      {"model.layers.0.self_attn.q_proj", ".lora_B.bias", {32}},
      {"model.embed_tokens", ".lora_A.weight", {2, 20}},
      {"model.embed_tokens", ".bias", {20}},
  };
  for (const Case& c : cases) {
    expect_error(ErrorCode::kUnsupported,
                 "tensor " + kPrefix + c.module + c.ending + " changes " + c.module +
                     ", which is no linear layer or embedding of this gemma2 network that can be "
                     "adapted",
                 [&](AdapterBuilder& file) { file.tensor(c.module + c.ending, c.shape); });
  }
  for (const std::string name : {"q_proj.lora_C", "q_proj.lora_A", ".weight", "lora_A"}) {
    expect_error(ErrorCode::kUnsupported,
                 "tensor " + name +
                     " is none that adapters have (lora_A, lora_B, lora_embedding_A, "
                     "lora_embedding_B, lora_magnitude_vector, weight, bias)",
                 [&](AdapterBuilder& file) { file.raw_tensor(name, {2, 2}, "F32"); });
  }
}

TEST_F(AdapterErrorsTest, StacksOfExpertsHoldAllOfThem) {
  const std::string experts = "model.layers.1.mlp.experts";
  const auto stack = [&](int64_t rows, int64_t inputs, int64_t outputs) {
    return load([&](AdapterBuilder& file) { file.linear(experts, outputs, inputs, rows); });
  };
  EXPECT_TRUE(stack(6, 24, 32).ok());
  EXPECT_TRUE(stack(6, 32, 48).ok());
  EXPECT_EQ(stack(7, 24, 32).error().code, ErrorCode::kUnsupported) << "of three experts";
  EXPECT_EQ(stack(6, 24, 33).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(stack(9, 24, 32).error().code, ErrorCode::kInvalidArgument) << "of rank 3";
  const auto with = [&](const std::string& ending) {
    return load([&](AdapterBuilder& file) {
      file.linear(experts, 32, 24, 6).tensor(experts + ending, {32});
    });
  };
  EXPECT_FALSE(with(".lora_B.bias").ok());
  EXPECT_FALSE(with(".bias").ok());
  EXPECT_FALSE(with(".lora_magnitude_vector").ok());
}

TEST_F(AdapterErrorsTest, OutputsAreChangedByOneModule) {
  const auto both = [&](const std::string& one, int64_t rows, const std::string& other,
                        int64_t other_rows) {
    return load([&](AdapterBuilder& file) {
      file.linear("model.layers.0." + one, rows, 32, 2);
      file.linear("model.layers.0." + other, other_rows, 32, 2);
    });
  };
  const auto twice = both("mlp.gate_up_proj", 96, "mlp.up_proj", 48);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message,
            "two modules of the adapter change the same outputs of one weight");
  EXPECT_FALSE(both("mlp.gate_up_proj", 96, "mlp.gate_proj", 48).ok());
  EXPECT_FALSE(both("self_attn.qkv_proj", 64, "self_attn.v_proj", 16).ok());
  EXPECT_TRUE(both("mlp.gate_proj", 48, "mlp.up_proj", 48).ok());
  EXPECT_TRUE(both("self_attn.q_proj", 32, "self_attn.k_proj", 16).ok());
}

}  // namespace adapter_errors_test
}  // namespace headrace
