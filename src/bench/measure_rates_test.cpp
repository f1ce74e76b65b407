// What is measured of one layout and one type of keys is there, positive, and the median of rounds.
#include "bench/measure_rates.h"

#include <gtest/gtest.h>

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

TEST(MeasureRates, EveryOpThatAStepNeedsIsRated) {
  const auto backend = create_cpu_backend({.num_threads = 1}).value();
  const uint32_t isa = cpu::detect_isa();
  const cpu::KernelSet kernels =
      cpu::select_kernels(*cpu::select_unit(backend->isa(), isa).value(), isa);
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
  EXPECT_TRUE(rates.seconds(RatedOp::kProduct, "q4_kx16 int16", 16));
  EXPECT_TRUE(rates.seconds(RatedOp::kQuantise, "int16"));
  EXPECT_TRUE(rates.seconds(RatedOp::kAppend, "f16"));
  EXPECT_TRUE(rates.seconds(RatedOp::kAttentionRow, "f16 256 x8", 1024));
  EXPECT_TRUE(rates.seconds(RatedOp::kAttentionChunk, "f16 64 x1", 64));
  EXPECT_FALSE(rates.seconds(RatedOp::kProduct, "q8_0x16 int16"));
  const size_t count = rates.all().size();
  ASSERT_TRUE(measure_rates(*backend, kernels, {kLayouts, kTypes}, &times, &rates).ok());
  EXPECT_EQ(rates.all().size(), count) << "what is known is not measured again";
}

}  // namespace measure_rates_test
}  // namespace headrace
