// Rates of ops: between sizes and working sets, and of shapes that were not measured.
#include "bench/op_rates.h"

#include <gtest/gtest.h>

namespace headrace {
namespace op_rates_test {

// A byte takes a nanosecond near, and three far away.
double read_s(double working_set) { return working_set < 5e6 ? 1e-9 : 3e-9; }

OpRates two_sets() {
  OpRates rates;
  rates.add({RatedOp::kProduct, "a", 16, 1e6, 2});
  rates.add({RatedOp::kProduct, "a", 1, 1e7, 8});
  rates.add({RatedOp::kProduct, "a", 1, 1e6, 4});
  rates.add({RatedOp::kProduct, "a", 16, 1e7, 4});
  rates.add({RatedOp::kProduct, "b", 1, 1e6, 100});
  return rates;
}

double product(const OpRates& rates, double size, double working_set) {
  return rates.seconds(RatedOp::kProduct, "a", size, working_set, read_s).value_or(-1);
}

TEST(OpRates, BetweenSizesByTheirLogarithm) {
  const OpRates rates = two_sets();
  EXPECT_DOUBLE_EQ(product(rates, 1, 1e6), 4);
  EXPECT_DOUBLE_EQ(product(rates, 4, 1e6), 3);
  EXPECT_DOUBLE_EQ(product(rates, 1000, 1e6), 2) << "as at the end";
  EXPECT_DOUBLE_EQ(product(rates, 0.5, 1e6), 4);
}

TEST(OpRates, BetweenWorkingSetsByTheTimeOfTheirReads) {
  const OpRates rates = two_sets();
  EXPECT_DOUBLE_EQ(product(rates, 1, 1e5), 4) << "smaller than any";
  EXPECT_DOUBLE_EQ(product(rates, 1, 2e6), 4) << "read as fast as the smaller";
  EXPECT_DOUBLE_EQ(product(rates, 1, 6e6), 8) << "read as slowly as the larger";
  EXPECT_DOUBLE_EQ(product(rates, 1, 1e9), 8);
  const auto slower = [](double working_set) {
    return working_set > 1e8 ? 5e-9 : read_s(working_set);
  };
  EXPECT_DOUBLE_EQ(*rates.seconds(RatedOp::kProduct, "a", 1, 1e9, slower), 12);
}

TEST(OpRates, ASizeOfOneWorkingSetStandsForAny) {
  OpRates rates = two_sets();
  rates.add({RatedOp::kProduct, "a", 256, 1e7, 1});
  EXPECT_DOUBLE_EQ(product(rates, 256, 1e5), 1);
  EXPECT_DOUBLE_EQ(product(rates, 64, 1e9), 2.5) << "half way between 16 and 256";
  EXPECT_DOUBLE_EQ(product(rates, 16, 1e5), 2);
}

TEST(OpRates, WhatWasNotMeasuredIsNotKnown) {
  const OpRates rates = two_sets();
  EXPECT_FALSE(rates.seconds(RatedOp::kProduct, "c"));
  EXPECT_FALSE(rates.seconds(RatedOp::kNorm));
  EXPECT_TRUE(OpRates().empty());
}

TEST(OpRates, NamesAreReadAsTheyAreWritten) {
  for (int i = 0; i <= static_cast<int>(RatedOp::kStart); ++i) {
    const auto op = static_cast<RatedOp>(i);
    EXPECT_EQ(parse_rated_op(rated_op_name(op)), op);
  }
  EXPECT_FALSE(parse_rated_op("wheel"));
  EXPECT_EQ(product_variant(cpu::Layout::kQ4_0, cpu::ActivationType::kInt16), "q4_0x16 int16");
}

TEST(OpRates, OtherShapesOfAttentionTakeTheNearest) {
  EXPECT_EQ(attention_variant(KvType::kF16, 64, 1), "f16 64 x1");
  EXPECT_EQ(attention_variant(KvType::kF16, 80, 3), "f16 64 x4");
  EXPECT_EQ(attention_variant(KvType::kInt8, 96, 7), "int8 128 x8");
  EXPECT_EQ(attention_variant(KvType::kBF16, 512, 40), "bf16 256 x8");
}

}  // namespace op_rates_test
}  // namespace headrace
