// Ceilings follow from counts that can be done by hand.

#include "bench/step_work.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "bench/synth.h"
#include "model/model.h"

namespace headrace {
namespace {

// Two layers of 64, 4 heads and 2 KV heads of 16, MLP of 96, 320 tokens.
constexpr SynthShape kSmall = {"small", "llama", 64, 2, 4, 2, 16, 96, 320, true, 10000, 128};

class StepWorkTest : public ::testing::Test {
 protected:
  // The work of a random model in a format; the ISA is the plain one, whose kernels are fixed.
  Result<StepWork> work_of(std::string_view format_name, cpu::ActivationType activations) {
    const std::string path = ::testing::TempDir() + "step_work.gguf";
    for (const SynthFormat& format : synth_formats()) {
      if (format.name == format_name) TRY(write_synth(kSmall, format, 1, path));
    }
    const auto checkpoint = TRY(Checkpoint::open(path));
    const auto backend = TRY(create_cpu_backend({"reference", 1}));
    const uint32_t isa = cpu::detect_isa();
    const cpu::KernelUnit* unit = TRY(cpu::select_unit("reference", isa));
    return step_work(*checkpoint, TRY(Model::read_config(*checkpoint)), *backend,
                     cpu::select_kernels(*unit, isa, activations), KvType::kF32);
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
  EXPECT_EQ(work->kv_position_bytes, 2u * 2 * 2 * 16 * 4);  // layers, K and V, heads, dim, f32
  EXPECT_EQ(work->kv_bytes(9), 10.0 * 512);
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
  work.layers.resize(2);
  work.kv_position_bytes = 200;
  for (LayerConfig& layer : work.layers) {
    layer.num_attention_heads = 4;
    layer.head_dim = 16;
  }
  constexpr double kOperations = 4.0 * 4 * 16;
  EXPECT_EQ(work.attention_operations(0, 10), 2 * kOperations * 55);
  EXPECT_EQ(work.attention_operations(9, 1), 2 * kOperations * 10);
  work.layers[1].sliding_window = 4;
  EXPECT_EQ(work.attention_operations(0, 10), kOperations * (55 + 1 + 2 + 3 + 7 * 4));
  EXPECT_EQ(work.kv_bytes(9), 100.0 * 10 + 100.0 * 4);
}

}  // namespace
}  // namespace headrace
