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

TEST(KvCache, SameContentComputedTwiceEndsAsOneCopy) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a, b;
  ASSERT_TRUE(cache.reserve(40, &a));
  ASSERT_TRUE(cache.reserve(40, &b));
  cache.commit(tokens, 40, 0, &a);
  cache.commit(tokens, 40, 0, &b);
  EXPECT_EQ(std::vector<int32_t>(a.blocks.begin(), a.blocks.begin() + 2),
            std::vector<int32_t>(b.blocks.begin(), b.blocks.begin() + 2));
  EXPECT_EQ(cache.num_used(), 4);  // two shared, and the last of each
  expect_sound(cache, {&a, &b});
  cache.release(&a);
  cache.release(&b);
  EXPECT_EQ(cache.num_cached(), 2);
  EXPECT_EQ(cache.num_free(), 6);
  expect_sound(cache, {});
}

TEST(KvCache, DiscardTakesAwayOnlyWhatTheTableWroteItself) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(70);
  BlockTable first, second;
  first.writer_id = 1;
  second.writer_id = 2;
  ASSERT_TRUE(cache.reserve(35, &first));
  cache.commit(tokens, 35, 0, &first);
  ASSERT_EQ(cache.match(tokens, 0, &second), 32);
  ASSERT_TRUE(cache.reserve(70, &second));
  cache.commit(tokens, 50, 0, &second);  // publishes its third block; two more are not full
  BlockTable third;
  third.writer_id = 3;
  ASSERT_EQ(cache.match(tokens, 0, &third), 48);
  const std::vector<int32_t> held = second.blocks;
  cache.discard(&second);
  EXPECT_EQ(cache.take_tainted(), (std::vector<int32_t>{held[4], held[3]}));
  BlockTable fourth;
  EXPECT_EQ(cache.match(tokens, 0, &fourth), 32);  // the healthy beginning stays
  expect_sound(cache, {&first, &third, &fourth});
  cache.release(&third);  // the last holder of what the second wrote
  EXPECT_EQ(cache.take_tainted(), std::vector<int32_t>{held[2]});
  EXPECT_TRUE(cache.take_tainted().empty());
  expect_sound(cache, {&first, &fourth});
}

TEST(KvCache, PrefixesOfAnotherDomainAreNotFound) {
  KvCache cache(8);
  const std::vector<int32_t> tokens = iota_tokens(40);
  const uint64_t mine = cache.open_domain("mine");
  const uint64_t yours = cache.open_domain("yours");
  EXPECT_EQ(cache.open_domain("mine"), mine);
  EXPECT_EQ(cache.open_domain(""), 0u);
  BlockTable a, b, c, d;
  ASSERT_TRUE(cache.reserve(40, &a));
  cache.commit(tokens, 40, KvCache::root_of(mine, 0), &a);
  EXPECT_EQ(cache.match(tokens, KvCache::root_of(yours, 0), &b), 0);
  EXPECT_EQ(cache.match(tokens, KvCache::root_of(0, 0), &c), 0);
  EXPECT_EQ(cache.match(tokens, KvCache::root_of(mine, 0), &d), 32);
  expect_sound(cache, {&a, &b, &c, &d});
}

// A domain lasts as long as a sequence or a cached block of it; a later one of the same name finds
// what is left.
TEST(KvCache, DomainsComeAndGoWithoutALeak) {
  KvCache cache(4);
  const std::vector<int32_t> tokens = iota_tokens(40);
  for (int i = 0; i < 100; ++i) {
    const std::string name = "client " + std::to_string(i / 2);
    const uint64_t domain = cache.open_domain(name);
    BlockTable table;
    const int64_t found = cache.match(tokens, KvCache::root_of(domain, 0), &table);
    EXPECT_EQ(found, i % 2 == 0 ? 0 : 32) << i;
    ASSERT_TRUE(cache.reserve(40, &table));
    cache.commit(tokens, 40, KvCache::root_of(domain, 0), &table);
    cache.release(&table);
    cache.close_domain(domain);
    EXPECT_LE(cache.num_domains(), 2u);
    expect_sound(cache, {});
  }
}

// Blocks that an attacker chose by a known hash meet in one bucket only where the key is known.
TEST(KvCache, PromptsChosenToCollideSpreadUnderAnotherKey) {
  constexpr int kBuckets = 256;
  const auto bucket_without_secret = [](const std::vector<int32_t>& tokens) {
    KeyedHash hash(HashKey{});
    hash.add(0);
    for (size_t i = 0; i < kBlockTokens; i += 2) {
      hash.add(uint64_t{static_cast<uint32_t>(tokens[i])} << 32 |
               static_cast<uint32_t>(tokens[i + 1]));
    }
    return hash.finish() % kBuckets;
  };
  std::vector<std::vector<int32_t>> chosen;
  for (int32_t first = 0; chosen.size() < 64; ++first) {
    std::vector<int32_t> tokens = iota_tokens(17, first);
    if (bucket_without_secret(tokens) == 7) chosen.push_back(std::move(tokens));
  }
  const auto longest_chain = [&](const HashKey& key) {
    KvCache cache(kBuckets, key);
    for (const std::vector<int32_t>& tokens : chosen) {
      BlockTable table;
      EXPECT_TRUE(cache.reserve(17, &table));
      cache.commit(tokens, 17, 0, &table);
      cache.release(&table);
    }
    return cache.longest_chain();
  };
  EXPECT_EQ(longest_chain({}), 64);  // the attack works on a key that is known
  EXPECT_LE(longest_chain({0x0123456789abcdef, 42}), 6);
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
      holder.table.writer_id = static_cast<uint64_t>(step);
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
      if (random() % 4 == 0) {
        cache.discard(&holders[i].table);
        cache.take_tainted();
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
