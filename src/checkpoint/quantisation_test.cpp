#include "checkpoint/quantisation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/temp_folder.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace quantisation_test {

namespace fs = std::filesystem;

class QuantisationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_file((folder_ / "model.safetensors").string(),
                        testing::safetensors_file("{}", 0));
  }

  Result<Quantisation> read(const std::string& config, const std::string& file = "config.json") {
    testing::write_file((folder_ / file).string(), std::as_bytes(std::span(config)));
    return read_quantisation(**Checkpoint::open(folder_.string()));
  }
  Result<Quantisation> read_section(const std::string& section) {
    return read(R"({"quantization_config":)" + section + "}");
  }
  void expect_unsupported(const std::string& section, const std::string& message) {
    const auto quantisation = read_section(section);
    ASSERT_FALSE(quantisation.ok()) << section;
    EXPECT_EQ(quantisation.error().message, message);
    EXPECT_EQ(quantisation.error().code, ErrorCode::kUnsupported);
  }

  const testing::TempFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(QuantisationTest, ReadsEveryMethod) {
  EXPECT_EQ(read("{}")->method, QuantMethod::kNone);
  EXPECT_EQ(read(R"({"quantization_config":null})")->method, QuantMethod::kNone);
  EXPECT_EQ(read_section(R"({"quant_method":"awq","version":"gemm"})")->method, QuantMethod::kAwq);
  EXPECT_EQ(read_section(R"({"quant_method":"mxfp4"})")->method, QuantMethod::kMxfp4);
  const auto v1 = read_section(R"({"quant_method":"gptq","bits":4})");
  EXPECT_EQ(v1->method, QuantMethod::kGptq);
  EXPECT_TRUE(v1->zero_is_stored_minus_one);
  const auto v2 = read_section(R"({"quant_method":"gptq","checkpoint_format":"gptq_v2"})");
  EXPECT_FALSE(v2->zero_is_stored_minus_one);
  const auto fp8 = read_section(R"({"quant_method":"fp8","weight_block_size":[64,32]})");
  EXPECT_EQ(fp8->method, QuantMethod::kFp8);
  EXPECT_EQ(fp8->block_outputs, 64);
  EXPECT_EQ(fp8->block_inputs, 32);
  EXPECT_EQ(read_section(R"({"quant_method":"fp8","weight_block_size":null})")->block_outputs, 128);
  const auto ct = read_section(
      R"({"quant_method":"compressed-tensors","format":"mixed-precision","sparsity_config":
          {"format":"dense"},"transform_config":{},"config_groups":{"group_0":{"format":
          "float-quantized","targets":["re:.*"],"weights":{"block_structure":[16,8]}}}})");
  ASSERT_TRUE(ct.ok()) << ct.error().message;
  EXPECT_EQ(ct->method, QuantMethod::kCompressedTensors);
  EXPECT_EQ(ct->block_outputs, 16);
}

TEST_F(QuantisationTest, FindsTheSectionWhereverItIs) {
  EXPECT_EQ(read(R"({"text_config":{"quantization_config":{"quant_method":"awq"}}})")->method,
            QuantMethod::kAwq);
  EXPECT_EQ(read(R"({"compression_config":{"format":"pack-quantized"}})")->method,
            QuantMethod::kCompressedTensors);
  fs::remove(folder_ / "config.json");
  EXPECT_EQ(read(R"({"bits":4,"desc_act":false})", "quantize_config.json")->method,
            QuantMethod::kGptq);
}

TEST_F(QuantisationTest, NamesWhatIsUnsupported) {
  expect_unsupported(R"({"quant_method":"bitsandbytes"})",
                     "quantization method 'bitsandbytes' is not supported; supported: gptq, awq, "
                     "compressed-tensors, fp8, mxfp4");
  expect_unsupported(R"({"quant_method":"gptq","checkpoint_format":"marlin"})",
                     "GPTQ checkpoint_format 'marlin' is not supported; supported: gptq, gptq_v2");
  expect_unsupported(R"({"quant_method":"awq","version":"gemv"})",
                     "AWQ version 'gemv' is not supported; supported: gemm");
  const std::string formats =
      "is not supported; supported: pack-quantized, int-quantized, float-quantized, "
      "mxfp4-pack-quantized, nvfp4-pack-quantized";
  expect_unsupported(R"({"quant_method":"compressed-tensors","format":"marlin-24"})",
                     "compressed-tensors format 'marlin-24' " + formats);
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","config_groups":{"g":{"format":"x"}}})",
      "compressed-tensors format 'x' " + formats);
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})",
      "sparsity format 'sparse-24-bitmask' is not supported; supported: dense");
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{}}})",
      "compressed-tensors field 'transform_config' is not supported; supported: weights without "
      "transforms");
}

TEST_F(QuantisationTest, RefusesBadBlockSizes) {
  for (const std::string sizes : {"[128]", "[128,0]", "[128,-1]", "[1.5,2]", "\"128\"", "{}"}) {
    const auto quantisation =
        read_section(R"({"quant_method":"fp8","weight_block_size":)" + sizes + "}");
    ASSERT_FALSE(quantisation.ok()) << sizes;
    EXPECT_EQ(quantisation.error().message,
              "quantization_config: the weight block size is no pair of positive integers");
  }
  EXPECT_EQ(read("{").error().message, "config.json is not valid JSON: incomplete JSON at byte 1");
}

// ---- find_weight ----

std::string find_error(const std::vector<std::byte>& file, const std::string& base_name,
                       QuantMethod method = QuantMethod::kNone) {
  const auto checkpoint = parse_safetensors(file, "x");
  if (!checkpoint.ok()) return checkpoint.error().message;
  const auto weight = find_weight(**checkpoint, Quantisation{.method = method}, base_name);
  return weight.ok() ? std::string(weight_scheme_name(weight->scheme)) : weight.error().message;
}

using testing::safetensors_entry;

std::vector<std::byte> one_tensor(const std::string& name, const std::string& dtype,
                                  const std::string& shape, size_t num_bytes) {
  return testing::safetensors_file(
      fmt::format("{{{}}}", safetensors_entry(name, dtype, shape, 0, num_bytes)), num_bytes);
}

TEST(FindWeight, NamesWhatIsMissing) {
  const auto file = one_tensor("a.weight", "F32", "[2,2]", 16);
  EXPECT_EQ(find_error(file, "a"), "dense");
  EXPECT_EQ(find_error(file, "b"),
            "x: has no tensor 'b' followed by .weight, .qweight or .weight_packed");
  EXPECT_EQ(find_error(one_tensor("a.weight", "F32", "[4]", 16), "a"),
            "tensor 'a.weight' has shape [4], needed are 2 dimensions");
  EXPECT_EQ(find_error(one_tensor("a.weight", "F8_E4M3", "[4,4]", 16), "a"),
            "weight 'a' lacks its tensor 'a.weight_scale'");
  const auto words = one_tensor("a.qweight", "I32", "[2,2]", 16);
  EXPECT_EQ(
      find_error(words, "a"),
      "tensor 'a.qweight' is packed, but config.json has no quantization_config that says gptq "
      "or awq");
  EXPECT_EQ(find_error(words, "a", QuantMethod::kGptq), "weight 'a' lacks its tensor 'a.scales'");
  EXPECT_EQ(find_error(one_tensor("a.weight_packed", "U8", "[2,16]", 32), "a"),
            "weight 'a' lacks its tensor 'a.weight_scale'");
}

TEST(FindWeight, ChecksThePackedShape) {
  const std::string header =
      fmt::format("{{{},{},{}}}", safetensors_entry("a.weight_packed", "I32", "[2,1]", 0, 8),
                  safetensors_entry("a.weight_scale", "F16", "[2,1]", 8, 12),
                  safetensors_entry("a.weight_shape", "I64", "[2]", 12, 28));
  auto file = testing::safetensors_file(header, 28);
  const auto set_shape = [&file](int64_t num_outputs, int64_t num_inputs) {
    std::memcpy(file.data() + file.size() - 16, &num_outputs, 8);
    std::memcpy(file.data() + file.size() - 8, &num_inputs, 8);
  };
  set_shape(2, 8);
  EXPECT_EQ(find_error(file, "a"), "ct-pack-quantized");
  set_shape(2, INT64_MAX);
  EXPECT_EQ(find_error(file, "a"),
            "weight 'a' has weight_shape [2, 9223372036854775807], its packed values are [2, 1]");
  set_shape(3, 8);
  EXPECT_EQ(find_error(file, "a"),
            "weight 'a' has weight_shape [3, 8], its packed values are [2, 1]");
  set_shape(2, 40);
  EXPECT_EQ(find_error(file, "a"),
            "weight 'a' (ct-pack-quantized) has 0 bits, readable are 2, 4, 8");
}

TEST(FindWeight, ReadsGgufWeightsExpertsAndTheirScales) {
  testing::GgufBuilder builder;
  builder.tensor("a.weight", {32, 2}, DType::kQ8_0);
  builder.tensor("a.scale", {1}, DType::kF32);
  builder.tensor("e.weight", {4, 2, 3}, DType::kF32).tensor("e.scale", {3}, DType::kF32);
  const auto bytes = builder.build();
  const auto checkpoint = parse_gguf(bytes, "x.gguf");
  ASSERT_TRUE(checkpoint.ok());
  const Quantisation none;
  const auto weight = find_weight(**checkpoint, none, "a");
  ASSERT_TRUE(weight.ok()) << weight.error().message;
  EXPECT_EQ(weight->num_inputs, 32);
  EXPECT_EQ(weight->num_outputs, 2);
  EXPECT_EQ(weight->global_scale.data, (*checkpoint)->find("a.scale")->data);
  const auto expert = find_expert_weight(**checkpoint, none, "e", 2);
  ASSERT_TRUE(expert.ok()) << expert.error().message;
  EXPECT_EQ(expert->values.data, (*checkpoint)->find("e.weight")->data + 2 * 32);
  EXPECT_EQ(expert->global_scale.data, (*checkpoint)->find("e.scale")->data + 2 * 4);
  EXPECT_EQ(find_expert_weight(**checkpoint, none, "e", 3).error().message,
            "tensor 'e.weight' has shape [3, 2, 4], expert 3 is needed");
  EXPECT_EQ(find_expert_weight(**checkpoint, none, "a", 0).error().message,
            "tensor 'a.weight' has shape [2, 32], needed are 3 dimensions");
  EXPECT_EQ(find_expert_weight(**checkpoint, none, "z", 0).error().code, ErrorCode::kNotFound);
}

}  // namespace quantisation_test
}  // namespace headrace
