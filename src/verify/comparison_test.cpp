#include "verify/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace comparison_test {

TEST(CompareRows, EqualRowsDoNotDiffer) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 0.0f};
  const WindowComparison row = compare_rows(logits, logits, 3);
  EXPECT_EQ(row.difference, 0);
  EXPECT_NEAR(row.divergence, 0, 1e-15);
  EXPECT_EQ(row.same_best, 1);
  EXPECT_EQ(row.nll, row.reference_nll);
  EXPECT_NEAR(row.nll, -log_probability(logits, 3), 1e-12);
}

TEST(CompareRows, AShiftOfAllLogitsIsNoDifference) {
  const std::vector<float> logits = {1, 2, 3}, shifted = {101, 102, 103};
  const WindowComparison row = compare_rows(shifted, logits, 0);
  EXPECT_NEAR(row.difference, 0, 1e-12);
  EXPECT_NEAR(row.divergence, 0, 1e-12);
}

TEST(CompareRows, DivergenceIsOfTheRunFromTheReference) {
  const std::vector<float> run = {0, 0}, reference = {std::log(3.0f), 0};
  const WindowComparison row = compare_rows(run, reference, 1);
  EXPECT_NEAR(row.divergence, 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5), 1e-7);
  EXPECT_NEAR(row.difference, std::log(2.0), 1e-7) << "a half and a quarter";
  EXPECT_NEAR(row.nll, std::log(2.0), 1e-7);
  EXPECT_NEAR(row.reference_nll, std::log(4.0), 1e-7);
  EXPECT_EQ(row.same_best, 1) << "ties go to the lowest token";
  EXPECT_EQ(compare_rows(std::vector<float>{0, 1}, reference, 1).same_best, 0);
}

TEST(CompareRows, HugeLogitsStayFinite) {
  const std::vector<float> run = {3e30f, -3e30f}, reference = {-3e30f, 3e30f};
  const WindowComparison row = compare_rows(run, run, 0);
  EXPECT_EQ(row.divergence, 0);
  EXPECT_GT(compare_rows(run, reference, 0).divergence, 1e30);
}

TEST(CountWindows, AreWholeAndAtMostThoseAskedFor) {
  const std::vector<int32_t> ids(100);
  EXPECT_EQ(count_windows(ids, PerplexityOptions{30, 0, {}}).value(), 3);
  EXPECT_EQ(count_windows(ids, PerplexityOptions{30, 2, {}}).value(), 2);
  const auto none = count_windows(ids, PerplexityOptions{101, 0, {}});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "the text has 100 tokens, but one window needs 101; give a longer text or a smaller "
            "--window");
}

TEST(WindowIds, BeginWithTheTokenThatStandsFirst) {
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(window_ids(ids, 1, PerplexityOptions{3, 0, {}}), (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(window_ids(ids, 1, PerplexityOptions{3, 0, 9}), (std::vector<int32_t>{9, 4, 5}));
}

}  // namespace comparison_test
}  // namespace headrace
