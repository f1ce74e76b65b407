// Expected times: done by hand of one op and one mixer, and of every recorded network.
#include "bench/expected.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "model/config/read_prediction.h"
#include "model/model.h"
#include "model/testing/recorded_networks.h"

namespace headrace {
namespace expected_test {

constexpr auto kInt16 = cpu::ActivationType::kInt16;

// Two threads; a unit of each op takes a time of its own, so that sums tell what is in them.
MachineFile machine_of_units() {
  MachineFile machine;
  machine.limits.num_threads = 2;
  machine.limits.peaks = {{"p", cpu::PeakKind::kF32, 0, {1e9, 1e9}}};
  machine.limits.reads = {{1024, {1e30, 1e30}}};  // nothing of it is seen in a sum
  OpRates& rates = machine.rates;
  for (const cpu::LayoutInfo& info : cpu::kLayouts) {
    for (const auto type : {cpu::ActivationType::kF32, cpu::ActivationType::kInt8, kInt16,
                            cpu::ActivationType::kFixed, cpu::ActivationType::kBF16,
                            cpu::ActivationType::kBF16x2, cpu::ActivationType::kBF16Codes}) {
      rates.add({RatedOp::kProduct, product_variant(info.layout, type), 1, 0, 1e-9});
    }
  }
  for (const auto type :
       {cpu::ActivationType::kInt8, kInt16, cpu::ActivationType::kFixed, cpu::ActivationType::kBF16,
        cpu::ActivationType::kBF16x2, cpu::ActivationType::kBF16Codes}) {
    rates.add({RatedOp::kQuantise, std::string(activation_name(type)), 1, 0, 1e-6});
  }
  rates.add({RatedOp::kNorm, "", 1, 0, 1e-5});
  rates.add({RatedOp::kFinish, "", 1, 0, 1e-4});
  rates.add({RatedOp::kGate, "", 1, 0, 2e-4});
  rates.add({RatedOp::kRope, "", 1, 0, 1e-7});
  rates.add({RatedOp::kJoin, "", 1, 0, 1e-2});
  rates.add({RatedOp::kStart, "", 1, 0, 1});
  for (int type = 0; type < kNumKvTypes; ++type) {
    const auto kv_type = static_cast<KvType>(type);
    rates.add({RatedOp::kAppend, std::string(kv_type_name(kv_type)), 1, 0, 1e-3});
    for (const int head_dim : kRatedHeadDims) {
      for (const int group : kRatedGroups) {
        const std::string of = attention_variant(kv_type, head_dim, group);
        rates.add({RatedOp::kAttentionRow, of, 1, 0, 1e-8});
        rates.add({RatedOp::kAttentionChunk, of, 1, 0, 1e-9});
      }
    }
  }
  return machine;
}

OpWork op_of(OpWork::Form form, int64_t outputs, int64_t inputs) {
  OpWork op;
  op.form = form;
  op.num_inputs = inputs;
  op.parts = {{cpu::Layout::kQ4_0, kInt16, outputs}};
  return op;
}

TEST(ExpectedTimes, AnOpIsItsPartsOneAfterTheOther) {
  const MachineFile machine = machine_of_units();
  StepWork work;
  work.ops = {op_of(OpWork::Form::kLinear, 1024, 256)};
  // 64 panels, a row: each thread quantises it, products and outputs are shared.
  EXPECT_NEAR(ExpectedTimes(work, machine).decode(1, 0)->products_s,
              1 + 256 * 1e-6 + 2 * 1024 * 256 * 1e-9 + 1024 * 1e-4 / 2, 1e-9);
  // Of two rows also the form is.
  EXPECT_NEAR(ExpectedTimes(work, machine).decode(2, 0)->products_s,
              1 + 256 * 1e-6 + 2 * 2 * 1024 * 256 * 1e-9 + 2 * 1024 * 1e-4 / 2, 1e-9);
  work.ops = {op_of(OpWork::Form::kGated, 1024, 256)};
  EXPECT_NEAR(ExpectedTimes(work, machine).decode(1, 0)->products_s,
              1 + 256 * (1e-6 + 1e-5) + 2 * 1024 * 256 * 1e-9 + 512 * 2e-4 / 2, 1e-9);
}

TEST(ExpectedTimes, PanelsThatCannotBeSharedEvenlyTakeLonger) {
  const MachineFile machine = machine_of_units();
  StepWork work;
  work.ops = {op_of(OpWork::Form::kLinear, 48, 256)};  // three panels for two threads
  EXPECT_NEAR(ExpectedTimes(work, machine).decode(1, 0)->products_s,
              1 + 256 * 1e-6 + (2 * 48 * 256 * 1e-9 + 48 * 1e-4 / 2) * 4 / 3, 1e-9);
}

TEST(ExpectedTimes, OnlyThePromptsLastStepHasAHead) {
  const MachineFile machine = machine_of_units();
  StepWork work;
  work.ops = {op_of(OpWork::Form::kHead, 1024, 256)};
  const ExpectedTimes times(work, machine);
  EXPECT_NEAR(times.prefill(48, 16)->products_s, times.decode(1, 0)->products_s, 1e-9);
  work.ops[0].form = OpWork::Form::kLinear;
  EXPECT_GT(times.prefill(48, 16)->products_s, 3) << "one start a step";
}

TEST(ExpectedTimes, AttentionCountsThePositionsThatAreSeen) {
  const MachineFile machine = machine_of_units();
  StepWork work;
  work.num_rotated = 8;
  work.mixers = {{.operations_per_position = 100,
                  .position_bytes = 1,
                  .window = 0,
                  .num_heads = 4,
                  .num_kv_heads = 1,
                  .head_dim = 64}};
  const ExpectedTimes times(work, machine);
  EXPECT_NEAR(times.decode(3, 9)->attention_s, 1e-2 + 3 * 10 * 100 * 1e-8, 1e-12);
  EXPECT_NEAR(times.prefill(4, 4)->attention_s, 1e-2 + 10 * 100 * 1e-9, 1e-12);
  EXPECT_NEAR(times.prefill(4, 4)->other_s, 4 * 8 * 1e-7, 1e-15);
  work.mixers[0].window = 5;
  EXPECT_NEAR(times.decode(3, 9)->attention_s, 1e-2 + 3 * 5 * 100 * 1e-8, 1e-12);
}

TEST(ExpectedTimes, AStateIsExpectedAtItsLimit) {
  const MachineFile machine = machine_of_units();
  StepWork work;
  work.mixers = {{.operations_per_token = 5e8, .state_bytes = 4}};
  EXPECT_NEAR(ExpectedTimes(work, machine).decode(2, 9)->attention_s, 1e-2 + 1, 1e-9);
}

// Products were measured near, at 1e-9 s, and far, at 3e-9, where a byte took 1e-10 and 3e-10.
TEST(ExpectedTimes, ProductsFollowTheModelsMemory) {
  const std::string of = product_variant(cpu::Layout::kQ4_0, kInt16);
  constexpr double kProducts = 2.0 * 1024 * 256;
  StepWork work;
  work.ops = {op_of(OpWork::Form::kLinear, 1024, 256)};
  const double near = ExpectedTimes(work, machine_of_units()).decode(1, 0)->products_s;
  for (const double read_s : {1e-10, 2e-10, 3e-10, 5e-10}) {
    for (const size_t weight_bytes : {size_t{50'000'000}, size_t{200'000'000}}) {
      MachineFile machine = machine_of_units();
      machine.rates.add({RatedOp::kProduct, of, 1, 1e8, 3e-9});
      machine.rates.add({RatedOp::kRead, std::string(kReadByOps), 1, 1, 1e-10});
      machine.rates.add({RatedOp::kRead, std::string(kReadByOps), 1, 1e8, 3e-10});
      machine.rates.add({RatedOp::kRead, std::string(kReadByModel), 1, 1, read_s});
      work.weight_bytes = weight_bytes;
      EXPECT_NEAR(ExpectedTimes(work, machine).decode(1, 0)->products_s,
                  near + kProducts * (10 * read_s - 1e-9), 1e-9)
          << weight_bytes << " bytes, one in " << read_s;
    }
  }
}

TEST(ExpectedTimes, WithoutARateNothingIsExpected) {
  MachineFile machine = machine_of_units();
  StepWork work;
  work.ops = {op_of(OpWork::Form::kLinear, 64, 256)};
  EXPECT_TRUE(ExpectedTimes(work, machine).decode(1, 0));
  machine.rates = OpRates();
  EXPECT_FALSE(ExpectedTimes(work, machine).decode(1, 0));
  EXPECT_FALSE(ExpectedTimes(work, machine).prefill(16, 16));
}

void expect_grows(const ExpectedTimes& times, const std::string& name) {
  double last = 0;
  for (const int64_t batch : {1, 4, 16}) {
    const auto step = times.decode(batch, 20);
    ASSERT_TRUE(step) << name;
    EXPECT_TRUE(std::isfinite(step->seconds())) << name;
    EXPECT_GT(step->products_s, last) << name << ": more rows take longer";
    last = step->products_s;
  }
  EXPECT_GE(times.decode(1, 100)->attention_s, times.decode(1, 1)->attention_s) << name;
  EXPECT_GT(times.prefill(100, 64)->seconds(), times.prefill(50, 64)->seconds()) << name;
}

// Experts, latents, states, windows, fused and plain weights of all formats.
TEST(ExpectedTimes, AreThereForEveryRecordedNetwork) {
  const MachineFile machine = machine_of_units();
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const uint32_t isa = cpu::detect_isa();
  const cpu::KernelSet kernels = cpu::select_kernels(*cpu::select_unit("auto", isa).value(), isa);
  const int num_read = testing::each_recorded_network(
      [&](const std::string& name, const Checkpoint& checkpoint, const ModelConfig& config) {
        const auto work = step_work(checkpoint, config, *backend, kernels, KvType::kF16);
        ASSERT_TRUE(work.ok()) << work.error().message;
        expect_grows(ExpectedTimes(*work, machine), name);
      });
  EXPECT_GT(num_read, 60);
}

}  // namespace expected_test
}  // namespace headrace
