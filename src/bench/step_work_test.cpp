// Ceilings follow from counts that can be done by hand.

#include "bench/step_work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "base/testing/temp_folder.h"
#include "bench/synth.h"
#include "model/model.h"

namespace headrace {
namespace step_work_test {

// Two layers of 64, 4 heads and 2 KV heads of 16, MLP of 96, 320 tokens.
constexpr SynthShape kSmall = {"small", "llama", 64, 2, 4, 2, 16, 96, 320, true, 10000, 128};

class StepWorkTest : public ::testing::Test {
 protected:
  // The work of a random model in a format; the ISA is the plain one, whose kernels are fixed, but
  // for an attention of int16 by whole numbers where there is to be one.
  Result<StepWork> work_of(std::string_view format_name, cpu::ActivationType activations,
                           const SynthShape& shape = kSmall, KvType kv_type = KvType::kF32,
                           bool by_whole_numbers = false) {
    const testing::TempFolder folder;
    const std::string path = folder.file("step_work.gguf");
    for (const SynthFormat& format : synth_formats()) {
      if (format.name == format_name) TRY(write_synth(shape, format, 1, path));
    }
    const auto checkpoint = TRY(Checkpoint::open(path));
    const auto backend = TRY(create_cpu_backend({"reference", 1}));
    const uint32_t isa = cpu::detect_isa();
    const cpu::KernelUnit* unit = TRY(cpu::select_unit("reference", isa));
    cpu::KernelSet kernels = cpu::select_kernels(*unit, isa, activations);
    if (by_whole_numbers) kernels.attention_whole = kernels.attention;
    return step_work(*checkpoint, TRY(Model::read_config(*checkpoint)), *backend, kernels, kv_type);
  }
};

constexpr double kPerLayer = 64.0 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96;

TEST_F(StepWorkTest, CountsProductsOfLayersAndHead) {
  const auto work = work_of("f32", cpu::ActivationType::kInt16);
  ASSERT_TRUE(work.ok()) << work.error().message;
  ASSERT_EQ(work->linear.size(), 1u);
  EXPECT_EQ(work->linear[0].kind, cpu::PeakKind::kF32);
  EXPECT_EQ(work->linear[0].passes, 1);
  EXPECT_EQ(work->linear[0].per_token, 2 * 2 * kPerLayer);
  EXPECT_EQ(work->linear[0].per_logit_row, 2.0 * 320 * 64);
  EXPECT_EQ(work->weight_bytes, 4 * static_cast<size_t>(2 * kPerLayer + 320 * 64));
  EXPECT_EQ(work->mixers[1].position_bytes, 2u * 2 * 16 * 4);  // K and V, heads, dim, f32
  EXPECT_EQ(work->kv_bytes(9), 10.0 * 512);
  ASSERT_EQ(work->ops.size(), 2u * 4 + 1) << "q k v, output, gate and up, down; the head";
  EXPECT_EQ(work->ops.back().form, OpWork::Form::kHead);
  EXPECT_EQ(work->ops.back().num_outputs(), 320);
  EXPECT_EQ(work->num_rotated, 16 / 2);
  EXPECT_EQ(work->mixers[0].num_heads, 4);
  EXPECT_EQ(work->mixers[0].num_kv_heads, 2);
}

TEST_F(StepWorkTest, TwoTermsOfActivationsAreTwoPasses) {
  const auto exact = work_of("q8_0", cpu::ActivationType::kInt16);
  const auto fast = work_of("q8_0", cpu::ActivationType::kInt8);
  ASSERT_TRUE(exact.ok() && fast.ok());
  const std::vector<cpu::PeakRate> peaks = {{"int8", cpu::PeakKind::kInt8, 0, {1e12, 2e12}}};
  const double one_pass = 2 * 2 * kPerLayer * 3 / 2e12;
  EXPECT_DOUBLE_EQ(fast->linear_seconds(3, 0, peaks, 0), one_pass);
  EXPECT_DOUBLE_EQ(exact->linear_seconds(3, 0, peaks, 0), 2 * one_pass);
  EXPECT_EQ(exact->linear_seconds(3, 0, {}, 0), 0) << "no peak is known";
}

TEST_F(StepWorkTest, Bf16WeightsCountAtTheRateOfTheirActivations) {
  const auto exact = work_of("bf16", cpu::ActivationType::kInt16);
  const auto fast = work_of("bf16", cpu::ActivationType::kInt8);
  ASSERT_TRUE(exact.ok() && fast.ok());
  ASSERT_EQ(fast->linear.size(), 1u);
  EXPECT_EQ(exact->linear[0].kind, cpu::PeakKind::kF32);
  EXPECT_EQ(fast->linear[0].kind, cpu::PeakKind::kBF16);
  EXPECT_EQ(fast->linear[0].passes, 1);
  EXPECT_EQ(fast->linear[0].per_token, exact->linear[0].per_token);
}

TEST_F(StepWorkTest, AttentionIsTheTriangleCutByTheWindow) {
  StepWork work;
  constexpr double kOperations = 4.0 * 4 * 16;
  work.mixers.resize(2, {.operations_per_position = kOperations, .position_bytes = 100});
  EXPECT_EQ(work.mixer_operations(0, 10), 2 * kOperations * 55);
  EXPECT_EQ(work.mixer_operations(9, 1), 2 * kOperations * 10);
  work.mixers[1].window = 4;
  EXPECT_EQ(work.mixer_operations(0, 10), kOperations * (55 + 1 + 2 + 3 + 7 * 4));
  EXPECT_EQ(work.kv_bytes(9), 100.0 * 10 + 100.0 * 4);
}

// Seven byte products for two of keys and values.
TEST_F(StepWorkTest, AttentionByWholeNumbersCountsAtTheRateOfBytes) {
  const std::vector<cpu::PeakRate> peaks = {{"f32", cpu::PeakKind::kF32, 0, {1e9, 1e9}},
                                            {"int8", cpu::PeakKind::kInt8, 0, {7e9, 7e9}}};
  constexpr double kOperations = 2 * 4.0 * 4 * 16 * 55;
  const auto seconds = [&](KvType type, bool by_whole_numbers) {
    return work_of("f32", cpu::ActivationType::kInt16, kSmall, type, by_whole_numbers)
        .value()
        .mixer_seconds(0, 10, peaks, 0);
  };
  EXPECT_DOUBLE_EQ(seconds(KvType::kInt16, true), kOperations * 3.5 / 7e9);
  EXPECT_DOUBLE_EQ(seconds(KvType::kInt16, false), kOperations / 1e9);
  EXPECT_DOUBLE_EQ(seconds(KvType::kF16, true), kOperations / 1e9);
}

TEST(StepWork, AStateIsReadAndWrittenWhateverThePosition) {
  StepWork work;
  work.mixers = {{.operations_per_token = 800, .state_bytes = 400}};
  EXPECT_EQ(work.mixer_operations(0, 10), 8000);
  EXPECT_EQ(work.mixer_operations(5000, 10), 8000);
  EXPECT_EQ(work.kv_bytes(0), 800);
  EXPECT_EQ(work.kv_bytes(5000), 800);
}

TEST(StepWork, ExpertsAreReadAsOftenAsTokensMeetThem) {
  StepWork work;
  work.weight_bytes = 1000;
  work.experts = {{.num_bytes = 8000, .num_experts = 8, .num_used = 2}};
  EXPECT_EQ(work.weight_bytes_of(1), 1000 + 2000);
  EXPECT_DOUBLE_EQ(work.weight_bytes_of(2), 1000 + 2000 + 1500) << "a quarter is met twice";
  EXPECT_NEAR(work.weight_bytes_of(512), 9000, 1e-6);
}

// 4 of 8 experts of width 32 in two layers: half of their products, the router whole.
TEST_F(StepWorkTest, CountsTheExpertsThatATokenUses) {
  SynthShape shape = kSmall;
  shape.architecture = "qwen3moe";
  shape.num_experts = 8;
  shape.num_experts_used = 4;
  shape.expert_width = 32;
  const auto work = work_of("f32", cpu::ActivationType::kInt16, shape);
  ASSERT_TRUE(work.ok()) << work.error().message;
  constexpr double kAttention = 64.0 * 64 + 2 * 64 * 32 + 64 * 64;
  constexpr double kExpert = 3.0 * 32 * 64;
  EXPECT_EQ(work->linear[0].per_token, 2 * 2 * (kAttention + 8 * 64 + 4 * kExpert));
  EXPECT_EQ(work->experts.size(), 4u);
  const auto expert = std::ranges::find(work->ops, 8, &OpWork::num_experts);
  ASSERT_NE(expert, work->ops.end());
  EXPECT_EQ(expert->num_used, 4);
  EXPECT_LE(expert->num_outputs(), 64) << "of one expert";
  EXPECT_NEAR(work->weight_bytes_of(1) - static_cast<double>(work->weight_bytes),
              2 * 4 * kExpert * sizeof(float), 1);
}

// One latent of 24 and a rotated key of 8 are kept of a position; each of 4 heads asks with 16 + 8
// numbers and sums 16.
TEST_F(StepWorkTest, LatentAttentionKeepsOneKeyForAllHeads) {
  SynthShape shape = kSmall;
  shape.architecture = "deepseek2";
  shape.num_experts = 8;
  shape.num_experts_used = 2;
  shape.expert_width = 32;
  shape.num_shared_experts = 1;
  shape.num_dense_layers = 1;
  shape.kv_lora_rank = 24;
  shape.nope_dim = 16;
  shape.rope_dim = 8;
  shape.value_dim = 16;
  const auto work = work_of("f32", cpu::ActivationType::kInt16, shape);
  ASSERT_TRUE(work.ok()) << work.error().message;
  EXPECT_EQ(work->mixers[1].operations_per_position, 2.0 * 4 * (16 + 8 + 16));
  EXPECT_EQ(work->mixers[1].position_bytes, (24u + 8) * sizeof(float));
  EXPECT_EQ(work->mixers[1].state_bytes, 0u);
  const auto num_layers = static_cast<size_t>(shape.num_layers);
  EXPECT_EQ(work->experts.size(), 2 * (num_layers - 1)) << "the first layer has none";
}

}  // namespace step_work_test
}  // namespace headrace
