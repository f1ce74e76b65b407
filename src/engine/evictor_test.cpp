#include "engine/evictor.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/evicted_names.h"

namespace headrace {
namespace evictor_test {

constexpr TimeUs kSecond = 1'000'000;

// Who goes, in this order, until nobody is left.
std::vector<int32_t> drain(Evictor* evictor) {
  std::vector<int32_t> order;
  for (int32_t next = evictor->next(); next >= 0; next = evictor->next()) {
    order.push_back(next);
    evictor->remove(next);
    evictor->clear(next);
  }
  return order;
}

void leave(Evictor* evictor, int32_t block_id, BlockWorth worth) {
  evictor->raise(block_id, worth);
  evictor->push(block_id);
}

TEST(Evictor, WhatWasLeftOncePushesOutItsLikeOnly) {
  Evictor evictor(100, {});
  for (int32_t i = 0; i < 10; ++i) leave(&evictor, i, BlockWorth::kReused);
  for (int32_t i = 10; i < 30; ++i) {  // long after, and each gives way to the next
    leave(&evictor, i, BlockWorth::kNew);
    EXPECT_EQ(evictor.next(), i == 10 ? 0 : i - 1);
    if (i < 11) continue;
    const int32_t next = evictor.next();
    evictor.remove(next);
    evictor.clear(next);
  }
  EXPECT_EQ(evictor.size(), 11);
}

TEST(Evictor, AShareOfNewBlocksIsLeftToProveItself) {
  Evictor evictor(100, {});
  for (int32_t i = 0; i < 19; ++i) leave(&evictor, i, BlockWorth::kReused);
  leave(&evictor, 19, BlockWorth::kNew);  // 1 of 20
  EXPECT_EQ(evictor.next(), 0);
  leave(&evictor, 20, BlockWorth::kNew);
  EXPECT_EQ(evictor.next(), 0);
  leave(&evictor, 21, BlockWorth::kNew);  // 3 of 22 are more than a tenth
  EXPECT_EQ(evictor.next(), 19);
}

TEST(Evictor, WithOneHundredPercentWhatWasLeftFirstGoesFirst) {
  Evictor evictor(100, {.new_percent = 100});
  for (int32_t i = 0; i < 6; ++i) {
    leave(&evictor, i, i % 2 == 0 ? BlockWorth::kReused : BlockWorth::kNew);
  }
  EXPECT_EQ(drain(&evictor), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Evictor, SpareBlocksGoBeforeAllOthers) {
  Evictor evictor(10, {});
  leave(&evictor, 0, BlockWorth::kReused);
  leave(&evictor, 1, BlockWorth::kNew);
  leave(&evictor, 2, BlockWorth::kSpare);
  leave(&evictor, 3, BlockWorth::kSpare);
  EXPECT_EQ(drain(&evictor), (std::vector<int32_t>{2, 3, 1, 0}));
}

TEST(Evictor, WorthNeverFallsUntilTheContentIsGone) {
  Evictor evictor(10, {});
  evictor.raise(3, BlockWorth::kReused);
  evictor.raise(3, BlockWorth::kSpare);
  EXPECT_EQ(evictor.worth(3), BlockWorth::kReused);
  evictor.clear(3);
  EXPECT_EQ(evictor.worth(3), BlockWorth::kSpare);
}

TEST(Evictor, KeptBlocksStayForTheirTime) {
  Evictor evictor(10, {.kept_percent = 100, .owner_kept_percent = 100});
  EXPECT_TRUE(evictor.keep(0, 5 * kSecond, 7));
  EXPECT_TRUE(evictor.keep(0, 2 * kSecond, 7));  // no earlier than was said before
  evictor.push(0);
  leave(&evictor, 1, BlockWorth::kReused);
  EXPECT_EQ(evictor.next(), 1);
  evictor.set_time(4 * kSecond);
  EXPECT_EQ(evictor.next(), 1);
  evictor.set_time(5 * kSecond);
  EXPECT_EQ(evictor.next(), 0);
}

TEST(Evictor, KeptBlocksGoWhenThereIsNothingElse) {
  Evictor evictor(10, {});
  EXPECT_TRUE(evictor.keep(4, kSecond, 0));
  evictor.push(4);
  EXPECT_EQ(evictor.next(), 4);
}

TEST(Evictor, AnOwnerKeepsNoMoreThanItsShare) {
  Evictor evictor(8, {});
  EXPECT_TRUE(evictor.keep(0, kSecond, 7));
  EXPECT_TRUE(evictor.keep(1, kSecond, 7));
  EXPECT_FALSE(evictor.keep(2, kSecond, 7));
  EXPECT_EQ(evictor.worth(2), BlockWorth::kSpare);
  EXPECT_TRUE(evictor.keep(2, kSecond, 8));  // somebody else's
  evictor.clear(0);
  EXPECT_TRUE(evictor.keep(3, kSecond, 7));
}

TEST(Evictor, KeptBlocksBeyondTheirShareOfTheCacheAreAsOthers) {
  Evictor evictor(8, {});
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(evictor.keep(i, kSecond, static_cast<uint64_t>(i)));
    evictor.push(i);
  }
  leave(&evictor, 5, BlockWorth::kReused);
  EXPECT_EQ(evictor.next(), 0);  // five of eight
  evictor.remove(0);
  evictor.clear(0);
  EXPECT_EQ(evictor.next(), 5);
}

// One whose time is over behind one whose time is not: the queue is in the order of leaving.
TEST(Evictor, WhatIsBehindAKeptOneStaysAsLong) {
  Evictor evictor(8, {.kept_percent = 100, .owner_kept_percent = 100});
  EXPECT_TRUE(evictor.keep(0, 9 * kSecond, 0));
  EXPECT_TRUE(evictor.keep(1, kSecond, 0));
  evictor.push(0);
  evictor.push(1);
  leave(&evictor, 2, BlockWorth::kReused);
  evictor.set_time(2 * kSecond);
  EXPECT_EQ(evictor.next(), 2);
  evictor.set_time(9 * kSecond);
  EXPECT_EQ(drain(&evictor), (std::vector<int32_t>{0, 1, 2}));
}

TEST(EvictedNames, RemembersAboutTwiceAsManyAsThereAreBlocks) {
  EvictedNames names(1000);
  const auto name = [](uint64_t i) {
    KeyedDigest digest({1, 2});
    digest.add(i);
    return digest.finish();
  };
  for (uint64_t i = 0; i < 10'000; ++i) names.add(name(i));
  int64_t num_kept = 0;
  for (uint64_t i = 0; i < 10'000; ++i) num_kept += names.contains(name(i)) ? 1 : 0;
  EXPECT_GE(num_kept, 2000);
  EXPECT_LE(num_kept, 4096);
  for (uint64_t i = 9'500; i < 10'000; ++i) EXPECT_TRUE(names.contains(name(i)));
  EXPECT_FALSE(names.contains(name(0)));
}

}  // namespace evictor_test
}  // namespace headrace
