#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace block_pool_test {

void expect_sound(const BlockPool& pool, const std::vector<int32_t>& holders) {
  const Status status = pool.check(holders);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(BlockPool, LowIdsAreTakenFirstAndBackedFirst) {
  BlockPool pool(4);
  EXPECT_EQ(pool.take_free(), 0);
  EXPECT_EQ(pool.take_free(), 1);
  EXPECT_EQ(pool.num_touched(), 2);
  pool.drop(0, false);
  EXPECT_EQ(pool.take_free(), 0);  // the one left last, its memory is there
  EXPECT_EQ(pool.num_touched(), 2);
  expect_sound(pool, {1, 1, 0, 0});
}

TEST(BlockPool, WhatIsFindableIsCachedInTheOrderItWasLeft) {
  BlockPool pool(3);
  for (int i = 0; i < 3; ++i) pool.take_free();
  EXPECT_EQ(pool.take_free(), -1);
  EXPECT_EQ(pool.next_evicted(), -1);
  for (const int32_t block_id : {1, 2, 0}) pool.drop(block_id, true);
  EXPECT_EQ(pool.num_cached(), 3);
  EXPECT_EQ(pool.num_available(), 3);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.next_evicted(), 1);
  pool.hold(1);  // found again: now the youngest when it is left
  pool.drop(1, true);
  EXPECT_EQ(pool.next_evicted(), 2);
  pool.forget(2);
  EXPECT_EQ(pool.take_free(), 2);
  EXPECT_EQ(pool.next_evicted(), 0);
  EXPECT_FALSE(pool.is_cached(2));
  expect_sound(pool, {0, 0, 1});
}

TEST(BlockPool, ABlockIsUsedUntilItsLastHolderLeaves) {
  BlockPool pool(2);
  const int32_t block_id = pool.take_free();
  pool.hold(block_id);
  EXPECT_EQ(pool.num_holders(block_id), 2);
  pool.drop(block_id, true);
  EXPECT_EQ(pool.num_used(), 1);
  pool.drop(block_id, true);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_DEATH(pool.drop(block_id, true), "block 0 is released twice");
}

TEST(BlockPool, TaintedBlocksAreListedOnceWhenTheyAreLeft) {
  BlockPool pool(3);
  const int32_t shared = pool.take_free(), own = pool.take_free();
  pool.hold(shared);
  pool.taint(shared);
  pool.taint(own);
  pool.drop(own, false);
  pool.drop(shared, false);
  EXPECT_EQ(pool.take_tainted(), std::vector<int32_t>{own});
  pool.drop(shared, false);
  EXPECT_EQ(pool.take_tainted(), std::vector<int32_t>{shared});
  EXPECT_TRUE(pool.take_tainted().empty());
  EXPECT_EQ(pool.take_free(), shared);  // clean again
  pool.drop(shared, false);
  EXPECT_TRUE(pool.take_tainted().empty());
}

TEST(BlockPool, CheckNamesTheContradiction) {
  BlockPool pool(2);
  pool.take_free();
  expect_sound(pool, {1, 0});
  EXPECT_EQ(pool.check(std::vector<int32_t>{0, 0}).error().message,
            "block 0 counts 1 holders, 0 tables hold it");
  EXPECT_EQ(pool.check(std::vector<int32_t>{1, 1}).error().message,
            "block 1 counts 0 holders, 1 tables hold it");
}

TEST(BlockPool, SizesThatAreNoneDie) {
  EXPECT_DEATH(BlockPool(0), "num_blocks = 0");
  EXPECT_DEATH(BlockPool(int64_t{1} << 31), "num_blocks = 2147483648");
}

}  // namespace block_pool_test
}  // namespace headrace
