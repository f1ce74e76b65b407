#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace headrace {
namespace {

std::vector<int32_t> iota_tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void expect_sound(const KvCache& cache, std::vector<const BlockTable*> holders) {
  const Status status = cache.check(holders);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(cache.num_free() + cache.num_used() + cache.num_cached(), cache.num_total());
}

TEST(KvCache, ReserveIsAllOrNothing) {
  KvCache cache(4);
  BlockTable a, b;
  EXPECT_TRUE(cache.reserve(33, &a));
  EXPECT_EQ(a.blocks.size(), 3u);
  EXPECT_FALSE(cache.reserve(17, &b));
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_TRUE(cache.reserve(48, &a));  // covered already
  EXPECT_EQ(a.blocks.size(), 3u);
  EXPECT_TRUE(cache.reserve(16, &b));
  expect_sound(cache, {&a, &b});
  cache.release(&a);
  expect_sound(cache, {&b});
  EXPECT_EQ(cache.num_free(), 3);
}

TEST(KvCache, MatchFindsFullBlocksAndLeavesOneTokenToCompute) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(50);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(50, &a));
  cache.commit(tokens, 50, 0, &a);
  EXPECT_EQ(a.num_published, 3);
  BlockTable b;
  EXPECT_EQ(cache.match(tokens, 0, &b), 48);
  EXPECT_EQ(b.blocks, std::vector<int32_t>(a.blocks.begin(), a.blocks.begin() + 3));
  BlockTable c;
  EXPECT_EQ(cache.match(std::span(tokens).first(48), 0, &c), 32);  // one must be left
  BlockTable d;
  EXPECT_EQ(cache.match(iota_tokens(50, 1), 0, &d), 0);
  expect_sound(cache, {&a, &b, &c, &d});
  EXPECT_EQ(cache.num_used(), 4);
}

TEST(KvCache, PrefixesOfAnotherEpochAreNotFound) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(40, &a));
  cache.commit(tokens, 40, 0, &a);
  BlockTable b;
  EXPECT_EQ(cache.match(tokens, 1, &b), 0);
}

TEST(KvCache, EqualBlockAfterAnotherPrefixIsNotFound) {
  KvCache cache(8);
  std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(40, &a));
  cache.commit(tokens, 40, 0, &a);
  tokens[3] = 999;  // the second block is unchanged
  BlockTable b;
  EXPECT_EQ(cache.match(tokens, 0, &b), 0);
}

TEST(KvCache, ReleasedBlocksStayFindableUntilNeeded) {
  KvCache cache(4);
  const std::vector<int32_t> tokens = iota_tokens(60);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(60, &a));
  cache.commit(tokens, 60, 0, &a);
  cache.release(&a);
  EXPECT_EQ(cache.num_cached(), 3);
  EXPECT_EQ(cache.num_available(), 4);
  BlockTable b;
  ASSERT_TRUE(cache.reserve(32, &b));  // takes the free block, then the end of the cached prefix
  EXPECT_EQ(cache.num_cached(), 2);
  BlockTable c;
  EXPECT_EQ(cache.match(tokens, 0, &c), 32);
  expect_sound(cache, {&b, &c});
  EXPECT_FALSE(cache.reserve(33, &c));  // all four are held now
}

TEST(KvCache, SameContentTwiceIsPublishedOnce) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a, b;
  ASSERT_TRUE(cache.reserve(40, &a));
  ASSERT_TRUE(cache.reserve(40, &b));
  cache.commit(tokens, 40, 0, &a);
  cache.commit(tokens, 40, 0, &b);
  cache.release(&a);
  cache.release(&b);
  EXPECT_EQ(cache.num_cached(), 2);
  EXPECT_EQ(cache.num_free(), 6);
  expect_sound(cache, {});
}

TEST(KvCache, DiscardedBlocksAreNeverFound) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a, b;
  ASSERT_TRUE(cache.reserve(40, &a));
  cache.commit(tokens, 40, 0, &a);
  ASSERT_EQ(cache.match(tokens, 0, &b), 32);
  const std::vector<int32_t> held = a.blocks;
  std::vector<int32_t> freed;
  cache.discard(&a, &freed);
  EXPECT_EQ(freed, std::vector<int32_t>{held[2]});  // the others are still held by b
  BlockTable c;
  EXPECT_EQ(cache.match(tokens, 0, &c), 0);
  expect_sound(cache, {&b});
}

TEST(KvCache, RollbackDropsTheEnd) {
  KvCache cache(8);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(100, &a));
  cache.rollback(17, &a);
  EXPECT_EQ(a.blocks.size(), 2u);
  expect_sound(cache, {&a});
}

TEST(KvCache, CheckSeesALostBlock) {
  KvCache cache(4);
  BlockTable a;
  ASSERT_TRUE(cache.reserve(20, &a));
  EXPECT_FALSE(cache.check({}).ok());
  const BlockTable* twice[] = {&a, &a};
  EXPECT_FALSE(cache.check(twice).ok());
}

// Law: whatever is reserved, computed, shared and released, in any order, the books balance.
TEST(KvCache, RandomUseKeepsTheBooks) {
  std::mt19937 random(5);
  KvCache cache(20);
  struct Holder {
    std::vector<int32_t> tokens;
    BlockTable table;
  };
  std::vector<Holder> holders;
  for (int step = 0; step < 20'000; ++step) {
    const auto choice = random() % 4;
    if (choice == 0 && holders.size() < 6) {
      Holder holder;
      const auto count = static_cast<int32_t>(1 + random() % 80);
      for (int32_t i = 0; i < count; ++i) {
        holder.tokens.push_back(i < 40 ? 0 : static_cast<int32_t>(random() % 2));
      }
      cache.match(holder.tokens, static_cast<int64_t>(random() % 2), &holder.table);
      holders.push_back(std::move(holder));
    } else if (choice == 1 && !holders.empty()) {
      Holder& holder = holders[random() % holders.size()];
      const auto total = static_cast<int64_t>(holder.tokens.size());
      if (cache.reserve(total, &holder.table)) cache.commit(holder.tokens, total, 0, &holder.table);
    } else if (choice == 2 && !holders.empty()) {
      const size_t i = random() % holders.size();
      std::vector<int32_t> freed;
      if (random() % 4 == 0) {
        cache.discard(&holders[i].table, &freed);
      } else {
        cache.release(&holders[i].table);
      }
      holders.erase(holders.begin() + static_cast<int64_t>(i));
    }
    std::vector<const BlockTable*> tables;
    for (const Holder& holder : holders) tables.push_back(&holder.table);
    const Status status = cache.check(tables);
    ASSERT_TRUE(status.ok()) << "step " << step << ": " << status.error().message;
  }
}

}  // namespace
}  // namespace headrace
