// Which term of a forecast is wrong, from the records of a run.
#include "bench/step_terms.h"

#include <gtest/gtest.h>

namespace headrace {
namespace step_terms_test {

OpRecord record_of(OpKind kind, int64_t start_ns, int64_t end_ns, double bytes = 0) {
  OpRecord record;
  record.kind = kind;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  record.bytes = bytes;
  return record;
}

double at_1_gb(const OpRecord& record, double) { return record.bytes / 1e9; }

TEST(StepTerms, TimesAddUpToTheRun) {
  const OpRecord records[] = {
      record_of(OpKind::kEmbed, 0, 100, 50), record_of(OpKind::kQkvLinear, 200, 1200, 800),
      record_of(OpKind::kAttention, 1300, 1800, 100), record_of(OpKind::kHead, 1800, 2800, 900)};
  const TermTimes times = term_times(records, 3e-6, at_1_gb, 1);
  double sum = 0;
  for (const TermTime& time : times) sum += time.seconds;
  EXPECT_NEAR(sum, 3e-6, 1e-12);
  EXPECT_NEAR(times[0].seconds, 2e-6, 1e-12);
  EXPECT_NEAR(times[0].limit_s, 1.7e-6, 1e-12);
  EXPECT_NEAR(times[1].limit_s, 0.1e-6, 1e-12);
  EXPECT_EQ(times[2].limit_s, 0) << "a forecast has no term for other ops";
  EXPECT_NEAR(times[3].seconds, 0.4e-6, 1e-12);
  EXPECT_EQ(wrong_term(times), StepTerm::kAttention) << "0.4 beside 0.3 and 0.1 us";
}

TEST(StepTerms, WhatIsExpectedTakesThePlaceOfTheLimit) {
  const OpRecord records[] = {record_of(OpKind::kLinear, 0, 1000, 400),
                              record_of(OpKind::kAttention, 1000, 1500, 300)};
  TermTimes times = term_times(records, 1.5e-6, at_1_gb, 1);
  EXPECT_EQ(wrong_term(times), StepTerm::kProducts) << "0.6 us from its limit";
  expect_terms({.products_s = 0.9e-6, .attention_s = 0.2e-6, .other_s = 0.1e-6}, &times);
  EXPECT_NEAR(times[0].expected_s, 0.9e-6, 1e-12);
  EXPECT_NEAR(times[0].limit_s, 0.4e-6, 1e-12) << "which stays";
  EXPECT_NEAR(times[2].expected_s, 0.1e-6, 1e-12);
  EXPECT_EQ(wrong_term(times), StepTerm::kAttention) << "0.3 us, products 0.1";
}

TEST(StepTerms, WhatIsFasterThanExpectedIsWrongToo) {
  TermTimes times;
  times[0] = {.seconds = 1, .limit_s = 0.5, .expected_s = 3};
  times[1] = {.seconds = 2, .limit_s = 0.5, .expected_s = 1};
  EXPECT_EQ(step_term_name(wrong_term(times)), "products");
  times[3] = {.seconds = 5, .limit_s = 0, .expected_s = 0};
  EXPECT_EQ(step_term_name(wrong_term(times)), "between ops");
}

TEST(StepTerms, FifteenPercentEitherWayIsNear) {
  EXPECT_TRUE(near_forecast(1));
  EXPECT_TRUE(near_forecast(1.149));
  EXPECT_TRUE(near_forecast(0.871));
  EXPECT_FALSE(near_forecast(1.16));
  EXPECT_FALSE(near_forecast(0.86));
}

}  // namespace step_terms_test
}  // namespace headrace
