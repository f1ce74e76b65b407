#include "base/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace {
namespace byte_budget_test {

TEST(ByteBudget, RefusesWhatDoesNotFitAndKeepsWhatIsHeld) {
  ByteBudget budget(100);
  ByteBudget::Lease first = budget.lease();
  EXPECT_TRUE(first.resize(60));
  ByteBudget::Lease second = budget.lease();
  EXPECT_FALSE(second.resize(41));
  EXPECT_EQ(budget.used(), 60u);
  EXPECT_TRUE(second.resize(40));
  EXPECT_FALSE(first.grow(1));
  EXPECT_EQ(first.bytes(), 60u);
  EXPECT_TRUE(first.resize(10));
  EXPECT_EQ(budget.used(), 50u);
}

TEST(ByteBudget, ALeaseThatGoesOrIsReplacedGivesItsBytesBack) {
  ByteBudget budget(100);
  {
    ByteBudget::Lease lease = budget.lease();
    ASSERT_TRUE(lease.resize(70));
    ByteBudget::Lease moved = std::move(lease);
    EXPECT_EQ(budget.used(), 70u);
    moved = budget.lease();
    EXPECT_EQ(budget.used(), 0u);
    ASSERT_TRUE(moved.resize(100));
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ByteBudget, CountsLargeOwnersThatHaveGone) {
  ByteBudget budget(4 * ByteBudget::kLargeBytes);
  for (const size_t bytes : {ByteBudget::kLargeBytes - 1, ByteBudget::kLargeBytes}) {
    ByteBudget::Lease lease = budget.lease();
    ASSERT_TRUE(lease.resize(bytes));
    EXPECT_EQ(budget.num_large_returns(), 0u);
  }
  EXPECT_EQ(budget.num_large_returns(), 1u);
}

TEST(ByteBudget, AHugeRequestDoesNotWrap) {
  ByteBudget budget(100);
  ByteBudget::Lease lease = budget.lease();
  ASSERT_TRUE(lease.resize(1));
  EXPECT_FALSE(lease.resize(SIZE_MAX));
}

TEST(ByteBudget, ThreadsTogetherNeverHoldMoreThanTheLimit) {
  ByteBudget budget(1000);
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        ByteBudget::Lease lease = budget.lease();
        if (lease.resize(400)) ++taken;
        ASSERT_LE(budget.used(), 1000u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 0);
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace byte_budget_test
}  // namespace headrace
