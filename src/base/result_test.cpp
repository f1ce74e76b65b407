// Result, TRY and CHECK: what carries errors, and what ends the process.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace headrace {
namespace result_test {

Result<int> half_of(int number) {
  if (number % 2 != 0) {
    return make_error(ErrorCode::kInvalidArgument, "{} is odd, but it must be even", number);
  }
  return number / 2;
}

Result<int> quarter_of(int number) { return TRY(half_of(TRY(half_of(number)))); }

Status check_quarter(int number, int* num_checked) {
  TRY(quarter_of(number));
  ++*num_checked;
  return {};
}

TEST(Result, HoldsAValueOrTheReasonThatThereIsNone) {
  const Result<int> good = half_of(8);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 4);
  EXPECT_EQ(good.value(), 4);
  const Result<int> bad = half_of(7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bad.error().message, "7 is odd, but it must be even");
  EXPECT_TRUE(bad.error().hint.empty());
  EXPECT_TRUE(bad.error().param.empty());
}

TEST(Result, TryGivesTheValueOrReturnsTheErrorUnchanged) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd, but it must be even");
  EXPECT_EQ(quarter_of(5).error().message, "5 is odd, but it must be even");
}

TEST(Result, TryWorksInFunctionsThatReturnNothing) {
  int num_checked = 0;
  EXPECT_TRUE(check_quarter(8, &num_checked).ok());
  const Status failed = check_quarter(2, &num_checked);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "1 is odd, but it must be even");
  EXPECT_EQ(num_checked, 1);
}

TEST(Result, MovesWhatCannotBeCopied) {
  const auto made = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  Result<std::unique_ptr<int>> result = made();
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
  const auto passed_on = [&]() -> Result<int> { return *TRY(made()); };
  EXPECT_EQ(*passed_on(), 5);
}

TEST(Result, GivesAccessToMembers) {
  Result<std::vector<int>> list = std::vector<int>{1, 2};
  list->push_back(3);
  EXPECT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[2], 3);
}

TEST(Result, AnErrorIsOneLineWithItsHint) {
  Error error = make_error(ErrorCode::kNotFound, "there is no model '{}'", "x");
  EXPECT_EQ(error.to_string(), "there is no model 'x'");
  error.hint = "pull it first";
  EXPECT_EQ(error.to_string(), "there is no model 'x' (pull it first)");
}

TEST(Result, BracesInValuesAreNotFormats) {
  EXPECT_EQ(make_error(ErrorCode::kCorrupt, "found '{}'", "{}{1}").message, "found '{}{1}'");
}

TEST(ResultDeathTest, TheValueOfAnErrorIsABug) {
  const Result<int> bad = half_of(7);
  EXPECT_DEATH((void)bad.value(), "7 is odd");
  const Status failed = make_error(ErrorCode::kIo, "no disk");
  EXPECT_DEATH(failed.value(), "no disk");
}

TEST(CheckDeathTest, PrintsPlaceConditionAndValues) {
  const int rows = -3;
  EXPECT_DEATH(CHECK(rows > 0, "rows = {}", rows), "result_test.cpp:[0-9]+.*rows > 0.*rows = -3");
  EXPECT_DEATH(CHECK(rows == 0), "rows == 0");
}

TEST(Check, EvaluatesItsConditionOnce) {
  int count = 0;
  CHECK(++count == 1, "count {}", count);
  EXPECT_EQ(count, 1);
}

}  // namespace result_test
}  // namespace headrace
