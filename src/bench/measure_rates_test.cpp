// What is measured of one layout and one type of keys is there, positive, and the median of rounds.
#include "bench/measure_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"

namespace headrace {
namespace measure_rates_test {

TEST(RoundTimes, TheMedianCounts) {
  RoundTimes times;
  EXPECT_EQ(times.add("a", 3), 3);
  EXPECT_EQ(times.add("a", 2), 2);
  EXPECT_EQ(times.add("a", 4), 3);
  EXPECT_EQ(times.add("b", 4), 4);
}

cpu::KernelSet kernels_of(const Backend& backend) {
  const uint32_t isa = cpu::detect_isa();
  return cpu::select_kernels(*cpu::select_unit(backend.isa(), isa).value(), isa);
}

TEST(MeasureRates, EveryOpThatAStepNeedsIsRated) {
  const auto backend = create_cpu_backend({.num_threads = 1}).value();
  const cpu::KernelSet kernels = kernels_of(*backend);
  constexpr cpu::Layout kLayouts[] = {cpu::Layout::kQ4K};
  constexpr KvType kTypes[] = {KvType::kF16};
  RoundTimes times;
  OpRates rates;
  ASSERT_TRUE(measure_rates(*backend, kernels, {kLayouts, kTypes}, &times, &rates).ok());
  for (const OpRate& rate : rates.all()) EXPECT_GT(rate.seconds, 0) << rate.of;
  for (const RatedOp op : {RatedOp::kNorm, RatedOp::kFinish, RatedOp::kGate, RatedOp::kRope,
                           RatedOp::kJoin, RatedOp::kStart}) {
    EXPECT_TRUE(rates.seconds(op)) << rated_op_name(op);
  }
  const cpu::ActivationType of_codes =
      kernels.matmul[static_cast<size_t>(cpu::Layout::kQ4K)].activation();
  const std::string product = product_variant(cpu::Layout::kQ4K, of_codes);
  EXPECT_TRUE(rates.seconds(RatedOp::kProduct, product, 16)) << product;
  EXPECT_TRUE(rates.seconds(RatedOp::kQuantise, activation_name(of_codes)));
  EXPECT_TRUE(rates.seconds(RatedOp::kAppend, "f16"));
  EXPECT_TRUE(rates.seconds(RatedOp::kAttentionRow, "f16 256 x8", 1024));
  EXPECT_TRUE(rates.seconds(RatedOp::kAttentionChunk, "f16 64 x1", 64));
  EXPECT_FALSE(rates.seconds(RatedOp::kProduct, product_variant(cpu::Layout::kQ8_0, of_codes)));
  EXPECT_FALSE(rates.seconds(RatedOp::kRead, kReadByOps)) << "no model's memory was named";
  const size_t count = rates.all().size();
  ASSERT_TRUE(measure_rates(*backend, kernels, {kLayouts, kTypes}, &times, &rates).ok());
  EXPECT_EQ(rates.all().size(), count) << "what is known is not measured again";
}

// Small memory is read as fast as caches give, and nothing of it is changed.
TEST(MeasureRates, ReadsOfAModelsMemoryAndOfTheOpsOwn) {
  const auto backend = create_cpu_backend({.num_threads = 1}).value();
  const cpu::KernelSet kernels = kernels_of(*backend);
  constexpr cpu::Layout kLayouts[] = {cpu::Layout::kQ4K};
  DeviceMemory weights = backend->allocate(100'000, MemoryUse::kWeights).value();
  for (std::byte& byte : backend->write_view(weights.data(), weights.size())) byte = std::byte{7};
  RoundTimes times;
  OpRates rates;
  ASSERT_TRUE(measure_rates(*backend, kernels, {kLayouts, {}, &weights}, &times, &rates).ok());
  const auto of_model = rates.seconds(RatedOp::kRead, kReadByModel);
  const auto log = [](double bytes) { return std::log(bytes); };
  const auto of_ops = rates.seconds(RatedOp::kRead, kReadByOps, 1, 1e9, log);
  ASSERT_TRUE(of_model && of_ops);
  EXPECT_GT(*of_model, 0);
  EXPECT_LT(*of_model, *of_ops) << "caches are faster than memory";
  for (const std::byte byte : backend->read_view(weights.data(), weights.size())) {
    ASSERT_EQ(byte, std::byte{7});
  }
}

}  // namespace measure_rates_test
}  // namespace headrace
