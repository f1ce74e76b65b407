#include "engine/tier_cost.h"

#include <gtest/gtest.h>

namespace headrace {
namespace tier_cost_test {

TEST(TierCostTest, TriesWhatIsNotMeasured) {
  TierCost cost;
  EXPECT_TRUE(cost.pays(100, 1'000'000));
  EXPECT_EQ(cost.patience(1000), 1'000'000);
  cost.computed(4, 1);  // few tokens say nothing
  EXPECT_EQ(cost.patience(1000), 1'000'000);
  cost.computed(100, 100'000);
  EXPECT_TRUE(cost.pays(100, 0));
  EXPECT_EQ(cost.patience(1000), 1'250'000);
  EXPECT_EQ(cost.patience(1), 20'000);
}

TEST(TierCostTest, TheFasterWayIsTakenAndTheOtherTriedAgain) {
  TierCost cost;
  cost.computed(100, 100'000);
  EXPECT_TRUE(cost.pays(1000, 20'000));
  for (int round = 0; round < 2; ++round) {
    int num_refusals = 0;
    while (!cost.pays(100, 300'000)) ++num_refusals;
    EXPECT_GT(num_refusals, 10);
    EXPECT_LT(num_refusals, 200);
  }
}

TEST(TierCostTest, FollowsWhatChanges) {
  TierCost cost;
  cost.computed(100, 100'000);
  EXPECT_TRUE(cost.pays(100, 1'000));
  for (int i = 0; i < 20; ++i) cost.computed(100, 500);
  EXPECT_FALSE(cost.pays(100, 1'000));
}

}  // namespace tier_cost_test
}  // namespace headrace
