#include "engine/tiers/ram_tier.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/tiers/tier_fixture.h"

namespace headrace {
namespace ram_tier_test {

using testing::TestBlock;

TEST(RamTierTest, GivesAwayWhatWasUsedLeastRecently) {
  RamTier ram(2, 64);
  const TestBlock a(1), b(2), c(3);
  EXPECT_EQ(ram.num_bytes(), 0u);
  const int32_t slot_a = ram.take(a.block);
  const int32_t slot_b = ram.take(b.block);
  ram.warm(slot_a);
  EXPECT_EQ(ram.take(c.block), slot_b);
  EXPECT_EQ(ram.find(a.tier()), slot_a);
  EXPECT_EQ(ram.find(b.tier()), -1);
  EXPECT_EQ(ram.find(c.tier()), slot_b);
  ram.cool(slot_b);
  EXPECT_EQ(ram.take(b.block), slot_b);
  EXPECT_EQ(ram.num_held(), 2);
  EXPECT_EQ(ram.num_bytes(), 128u);
}

TEST(RamTierTest, ANameWithOtherTokensIsNotFound) {
  RamTier ram(1, 64);
  const TestBlock a(1);
  TestBlock other = a;
  other.block.tokens[15] = -1;
  ram.take(a.block);
  EXPECT_EQ(ram.find(other.tier()), -1);
}

TEST(RamTierTest, WhatIsLentIsNowhereUntilItIsGivenBack) {
  RamTier ram(2, 64);
  const TestBlock a(1), b(2);
  ram.take(a.block);
  const int32_t lent = ram.lend();
  const int32_t other = ram.lend();
  EXPECT_NE(lent, other);
  EXPECT_EQ(ram.find(a.tier()), -1);
  EXPECT_EQ(ram.lend(), -1);
  EXPECT_EQ(ram.take(b.block), -1);
  ram.give_back(lent, b.block);
  ram.give_back(other);
  EXPECT_EQ(ram.find(b.tier()), lent);
  EXPECT_EQ(ram.take(a.block), other);
}

// Against a plain list of what must be there.
TEST(RamTierTest, HoldsTheNewestOfManyCalls) {
  std::mt19937_64 random(5);
  RamTier ram(5, 8);
  std::vector<uint64_t> newest;  // hottest last
  for (int i = 0; i < 20'000; ++i) {
    const TestBlock block(random() % 12);
    const uint64_t id = block.block.key.name.second;
    const auto known = std::find(newest.begin(), newest.end(), id);
    ASSERT_EQ(ram.find(block.tier()) >= 0, known != newest.end());
    if (known != newest.end()) newest.erase(known);
    if (random() % 8 == 0) {
      ram.forget(block.block.key);
      continue;
    }
    const int32_t slot = ram.find(block.tier());
    if (slot >= 0) {
      ram.warm(slot);
    } else {
      ram.take(block.block);
    }
    newest.push_back(id);
    if (newest.size() > 5) newest.erase(newest.begin());
    ASSERT_EQ(ram.num_held(), std::ssize(newest));
  }
  ram.clear();
  EXPECT_EQ(ram.num_held(), 0);
}

}  // namespace ram_tier_test
}  // namespace headrace
