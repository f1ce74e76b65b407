// Sizes of random models that are refused, and the tensors that a shape has.
#include <gtest/gtest.h>

#include <map>

#include "bench/synth.h"

namespace headrace {
namespace synth_shape_test {

constexpr SynthShape kTiny = {"tiny", "llama", 256, 3, 8, 2, 32, 512, 320, true, 10000, 128};

TEST(SynthShape, EachSizeIsRefusedOutsideItsRange) {
  struct Case {
    int64_t SynthShape::* field;
    int64_t value;
    std::string start;
  };
  const Case cases[] = {
      {&SynthShape::hidden_size, 15, "--hidden is 15"},
      {&SynthShape::hidden_size, (1 << 17) + 1, "--hidden is 131073"},
      {&SynthShape::num_layers, 0, "--layers is 0"},
      {&SynthShape::num_layers, 1025, "--layers is 1025"},
      {&SynthShape::num_heads, 0, "--heads is 0"},
      {&SynthShape::num_kv_heads, 0, "--kv-heads is 0"},
      {&SynthShape::num_kv_heads, 9, "--kv-heads is 9"},
      {&SynthShape::head_dim, 8, "--head-dim is 8"},
      {&SynthShape::head_dim, 514, "--head-dim is 514"},
      {&SynthShape::intermediate_size, -1, "--intermediate is -1"},
      {&SynthShape::vocab_size, 299, "--vocab is 299"},
      {&SynthShape::num_kv_heads, 3, "--heads is 8, but it must be a multiple of the 3 KV heads"},
      {&SynthShape::head_dim, 33, "--head-dim is 33, but it must be even"},
  };
  EXPECT_TRUE(check_shape(kTiny).ok());
  for (const Case& c : cases) {
    SynthShape shape = kTiny;
    shape.*c.field = c.value;
    const Status status = check_shape(shape);
    ASSERT_FALSE(status.ok()) << c.start;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(status.error().message.starts_with(c.start)) << status.error().message;
  }
}

std::map<std::string, std::vector<int64_t>> tensors_of(const SynthShape& shape) {
  std::map<std::string, std::vector<int64_t>> found;
  for (const SynthTensor& tensor : synth_tensors(shape, synth_formats().front())) {
    EXPECT_TRUE(found.emplace(tensor.name, tensor.sizes).second) << tensor.name << " twice";
  }
  return found;
}

TEST(SynthShape, ItsTensorsHaveTheSizesOfTheShape) {
  const auto tied = tensors_of(kTiny);
  EXPECT_EQ(tied.at("token_embd.weight"), (std::vector<int64_t>{256, 320}));
  EXPECT_EQ(tied.at("output_norm.weight"), std::vector<int64_t>{256});
  EXPECT_FALSE(tied.contains("output.weight"));
  EXPECT_EQ(tied.at("blk.2.attn_q.weight"), (std::vector<int64_t>{256, 8 * 32}));
  EXPECT_EQ(tied.at("blk.0.attn_k.weight"), (std::vector<int64_t>{256, 2 * 32}));
  EXPECT_EQ(tied.at("blk.0.attn_v.weight"), (std::vector<int64_t>{256, 2 * 32}));
  EXPECT_EQ(tied.at("blk.1.attn_output.weight"), (std::vector<int64_t>{8 * 32, 256}));
  EXPECT_EQ(tied.at("blk.1.ffn_down.weight"), (std::vector<int64_t>{512, 256}));
  EXPECT_FALSE(tied.contains("blk.3.attn_q.weight"));
  SynthShape untied = kTiny;
  untied.tied = false;
  EXPECT_EQ(tensors_of(untied).at("output.weight"), (std::vector<int64_t>{256, 320}));
}

const SynthShape& shape_named(std::string_view name) {
  for (const SynthShape& shape : synth_shapes()) {
    if (shape.name == name) return shape;
  }
  ADD_FAILURE() << name;
  return synth_shapes().front();
}

// In units of a thousand million, over all tensors of the published shape.
double weights_of(std::string_view name) {
  double weights = 0;
  for (const auto& [tensor, sizes] : tensors_of(shape_named(name))) {
    double product = 1;
    for (const int64_t size : sizes) product *= static_cast<double>(size);
    weights += product;
  }
  return weights * 1e-9;
}

TEST(SynthShape, PublishedShapesHaveTheirNumberOfWeights) {
  EXPECT_NEAR(weights_of("olmoe-1b-7b"), 6.92, 0.01);
  EXPECT_NEAR(weights_of("qwen3-30b-a3b"), 30.53, 0.01);
  EXPECT_NEAR(weights_of("gpt-oss-20b"), 20.91, 0.01);
  EXPECT_NEAR(weights_of("deepseek-v2-lite"), 15.71, 0.01);
  EXPECT_NEAR(weights_of("lfm2-1.2b"), 1.17, 0.01);
  EXPECT_NEAR(weights_of("qwen3.5-0.8b"), 0.75, 0.01);
  EXPECT_NEAR(weights_of("gemma-4-e2b"), 4.65, 0.05);
}

TEST(SynthShape, LayersOfOneKindHaveNoTensorsOfAnother) {
  const auto lfm2 = tensors_of(shape_named("lfm2-1.2b"));
  EXPECT_TRUE(lfm2.contains("blk.0.shortconv.conv.weight"));
  EXPECT_FALSE(lfm2.contains("blk.0.attn_q.weight"));
  EXPECT_TRUE(lfm2.contains("blk.2.attn_q.weight"));
  EXPECT_TRUE(lfm2.contains("token_embd_norm.weight"));
  const auto latent = tensors_of(shape_named("deepseek-v2-lite"));
  EXPECT_TRUE(latent.contains("blk.0.ffn_gate.weight"));
  EXPECT_FALSE(latent.contains("blk.0.ffn_gate_exps.weight"));
  EXPECT_EQ(latent.at("blk.1.attn_k_b.weight"), (std::vector<int64_t>{128, 512, 16}));
  const auto delta = tensors_of(shape_named("qwen3.5-0.8b"));
  EXPECT_TRUE(delta.contains("blk.0.ssm_out.weight"));
  EXPECT_EQ(delta.at("blk.3.attn_q.weight"), (std::vector<int64_t>{1024, 2 * 8 * 256}));
  const auto gemma = tensors_of(shape_named("gemma-4-e2b"));
  EXPECT_TRUE(gemma.contains("blk.14.attn_k.weight"));
  EXPECT_FALSE(gemma.contains("blk.15.attn_k.weight"));
  EXPECT_EQ(gemma.at("blk.4.attn_q.weight"), (std::vector<int64_t>{1536, 8 * 512}));
  EXPECT_EQ(gemma.at("blk.15.ffn_up.weight"), (std::vector<int64_t>{1536, 12288}));
}

// What is read whole for every token keeps eight bits where experts have four.
TEST(SynthShape, FourBitsOfExpertsLeaveTheRestAtEight) {
  for (const SynthFormat& format : synth_formats()) {
    if (format.name != "mxfp4") continue;
    for (const SynthTensor& tensor : synth_tensors(shape_named("gpt-oss-20b"), format)) {
      if (tensor.fill != SynthFill::kRandom || tensor.dtype == DType::kF32) continue;
      const bool expert = tensor.name.find("_exps.") != std::string::npos;
      EXPECT_EQ(tensor.dtype, expert ? DType::kMXFP4 : DType::kQ8_0) << tensor.name;
    }
  }
}

TEST(SynthShape, UnknownArchitecturesAreRefused) {
  SynthShape shape = kTiny;
  shape.architecture = "perceptron";
  const Status status = check_shape(shape);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

TEST(SynthShape, TensorsOfAFileFollowEachOtherWithoutOverlap) {
  for (const SynthFormat& format : synth_formats()) {
    uint64_t end = 0;
    for (const SynthTensor& tensor : synth_tensors(kTiny, format)) {
      EXPECT_GE(tensor.offset, end) << format.name << " " << tensor.name;
      EXPECT_EQ(tensor.offset % 32, 0u) << format.name << " " << tensor.name;
      EXPECT_GT(tensor.num_bytes(), 0u) << format.name << " " << tensor.name;
      end = tensor.offset + tensor.num_bytes();
    }
  }
}

}  // namespace synth_shape_test
}  // namespace headrace
