#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/testing/cache_fixture.h"
#include "model/testing/cache_models.h"

namespace headrace {
namespace kv_cache_test {

using testing::CacheFixture;
using testing::iota_tokens;
using testing::kFull;
using testing::options_of;
using testing::state_every;
using testing::window_of;

int64_t num_held(const TableColumn& column) {
  return std::count_if(column.blocks.begin(), column.blocks.end(),
                       [](int32_t block_id) { return block_id >= 0; });
}

TEST(KvCache, ReserveIsAllOrNothing) {
  CacheFixture f(options_of(4));
  BlockTable a = f.begin(), b = f.begin();
  EXPECT_EQ(f.cache.missing(33, a), 3);
  EXPECT_TRUE(f.cache.reserve(33, &a));
  EXPECT_EQ(a.columns[0].blocks.size(), 3u);
  EXPECT_EQ(a.tables[0], a.columns[0].blocks.data());
  EXPECT_FALSE(f.cache.reserve(17, &b));
  EXPECT_TRUE(b.columns[0].blocks.empty());
  EXPECT_TRUE(f.cache.covers(48, a));
  EXPECT_FALSE(f.cache.covers(49, a));
  EXPECT_TRUE(f.cache.reserve(48, &a));
  EXPECT_EQ(a.columns[0].blocks.size(), 3u);
  EXPECT_TRUE(f.cache.reserve(16, &b));
  f.expect_sound({&a, &b});
  f.cache.release(&a);
  f.expect_sound({&b});
  EXPECT_EQ(f.cache.pool().num_free(), 3);
}

TEST(KvCache, MatchFindsFullBlocksAndLeavesOneTokenToCompute) {
  CacheFixture f(options_of(8));
  const std::vector<int32_t> tokens = iota_tokens(50);
  const BlockTable a = f.run(tokens);
  EXPECT_EQ(a.num_published, 3);
  BlockTable b, c, d;
  EXPECT_EQ(f.match(tokens, &b), 48);
  EXPECT_EQ(b.columns[0].blocks,
            std::vector<int32_t>(a.columns[0].blocks.begin(), a.columns[0].blocks.begin() + 3));
  EXPECT_EQ(b.num_computed, 48);
  EXPECT_EQ(b.names, a.names);
  EXPECT_EQ(f.match(iota_tokens(48), &c), 32);  // one must be left
  EXPECT_EQ(f.match(iota_tokens(50, 1), &d), 0);
  f.expect_sound({&a, &b, &c, &d});
  EXPECT_EQ(f.cache.pool().num_used(), 4);
}

TEST(KvCache, EqualBlockAfterAnotherPrefixIsNotFound) {
  CacheFixture f(options_of(8));
  std::vector<int32_t> tokens = iota_tokens(40);
  f.visit(tokens);
  ASSERT_EQ(f.found(tokens), 2);
  tokens[3] = 999;  // the second block is unchanged
  EXPECT_EQ(f.found(tokens), 0);
}

// Everything that the bytes depend on beside the tokens is part of a prefix's name.
TEST(KvCache, PrefixesOfAnotherRootAreNotFound) {
  const std::vector<int32_t> tokens = iota_tokens(40);
  const PrefixRoot mine = {"domain", 3, "adapter", "media"};
  const PrefixRoot others[] = {
      {"", 3, "adapter", "media"},       {"domains", 3, "adapter", "media"},
      {"domain", 4, "adapter", "media"}, {"domain", 3, "", "media"},
      {"domain", 3, "adapter", ""},      {"domain", 3, "adaptermedia", ""},
      {"domainadapter", 3, "", "media"}, {}};
  CacheFixture f(options_of(8));
  f.visit(tokens, mine);
  EXPECT_EQ(f.found(tokens, mine), 2);
  for (const PrefixRoot& root : others) {
    EXPECT_EQ(f.found(tokens, root), 0) << root.domain << root.adapter << root.media;
  }
}

TEST(KvCache, NamesDependOnKeyAndNumerics) {
  const std::vector<int32_t> tokens = iota_tokens(17);
  const auto name_of = [&](const HashKey& key, const std::string& numerics) {
    KvCacheOptions options = options_of(4);
    options.key = key;
    options.numerics = numerics;
    CacheFixture f(options);
    return f.run(tokens).names.at(0);
  };
  const Digest name = name_of({1, 2}, "exact");
  EXPECT_EQ(name, name_of({1, 2}, "exact"));  // no counter, no clock
  EXPECT_NE(name, name_of({1, 3}, "exact"));
  EXPECT_NE(name, name_of({2, 2}, "exact"));
  EXPECT_NE(name, name_of({1, 2}, "other"));
}

TEST(KvCache, ReleasedBlocksStayFindableUntilNeeded) {
  CacheFixture f(options_of(4));
  const std::vector<int32_t> tokens = iota_tokens(60);
  f.visit(tokens);
  EXPECT_EQ(f.cache.pool().num_cached(), 3);
  EXPECT_EQ(f.cache.pool().num_available(), 4);
  BlockTable b = f.begin();
  ASSERT_TRUE(f.cache.reserve(32, &b));  // the free block, then the end of the cached prefix
  EXPECT_EQ(f.cache.pool().num_cached(), 2);
  BlockTable c;
  EXPECT_EQ(f.match(tokens, &c), 32);
  f.expect_sound({&b, &c});
  EXPECT_FALSE(f.cache.reserve(33, &c));  // all four are held now
}

TEST(KvCache, SameContentComputedTwiceEndsAsOneCopy) {
  for (const int columns : {0, 2}) {
    std::vector<CacheRule> rules = {kFull};
    if (columns > 0) rules.push_back(window_of(48, columns));
    CacheFixture f(options_of(24, rules));
    const std::vector<int32_t> tokens = iota_tokens(40);
    BlockTable a = f.begin(), b = f.begin();
    ASSERT_TRUE(f.cache.reserve(40, &a));
    ASSERT_TRUE(f.cache.reserve(40, &b));
    f.cache.commit(tokens, 40, &a);
    f.cache.commit(tokens, 40, &b);
    for (size_t c = 0; c < a.columns.size(); ++c) {
      for (const size_t i : {0u, 1u}) {
        EXPECT_EQ(a.columns[c].blocks[i], b.columns[c].blocks[i]);
      }
    }
    // Two shared, and the last of each; in each column.
    EXPECT_EQ(f.cache.pool().num_used(), 4 * (1 + columns));
    f.expect_sound({&a, &b});
    f.cache.release(&a);
    f.cache.release(&b);
    EXPECT_EQ(f.cache.pool().num_cached(), 2 * (1 + columns));
    EXPECT_EQ(f.cache.pool().num_free(), 24 - 2 * (1 + columns));
    f.expect_sound({});
  }
}

TEST(KvCache, DiscardTakesAwayOnlyWhatTheTableWroteItself) {
  CacheFixture f(options_of(8));
  const std::vector<int32_t> tokens = iota_tokens(70);
  const BlockTable first = f.run(iota_tokens(35));
  BlockTable second, third, fourth;
  ASSERT_EQ(f.match(tokens, &second), 32);
  ASSERT_TRUE(f.cache.reserve(70, &second));
  f.cache.commit(tokens, 50, &second);  // publishes its third block; two more are not full
  ASSERT_EQ(f.match(tokens, &third), 48);
  const std::vector<int32_t> held = second.columns[0].blocks;
  f.cache.discard(&second);
  EXPECT_EQ(f.cache.take_tainted(), (std::vector<int32_t>{held[4], held[3]}));
  EXPECT_EQ(f.match(tokens, &fourth), 32);  // the healthy beginning stays
  f.expect_sound({&first, &third, &fourth});
  f.cache.release(&third);  // the last holder of what the second wrote
  EXPECT_EQ(f.cache.take_tainted(), std::vector<int32_t>{held[2]});
  EXPECT_TRUE(f.cache.take_tainted().empty());
  f.expect_sound({&first, &fourth});
}

TEST(KvCache, AdvanceKeepsBlocksToOneself) {
  CacheFixture f(options_of(8));
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a = f.begin();
  ASSERT_TRUE(f.cache.reserve(40, &a));
  f.cache.advance(40, &a);
  EXPECT_EQ(f.found(tokens), 0);
  f.cache.release(&a);
  EXPECT_EQ(f.cache.pool().num_free(), 8);
}

// Without the key nobody can choose which blocks meet in a bucket.
TEST(KvCache, ChosenPromptsMakeNoLongChains) {
  constexpr int kBlocks = 256;
  const auto chosen_for = [](const HashKey& key) {
    const PrefixIndex index(kBlocks, 1, key, "");
    std::vector<std::vector<int32_t>> chosen;
    for (int32_t first = 0; chosen.size() < 64; ++first) {
      std::vector<int32_t> tokens = iota_tokens(17, first);
      const Digest name = index.extend(index.root({}), tokens.data());
      if (name.first % kBlocks == 7) chosen.push_back(std::move(tokens));
    }
    return chosen;
  };
  const std::vector<std::vector<int32_t>> chosen = chosen_for({});
  const auto longest_chain = [&](const HashKey& key) {
    KvCacheOptions options = options_of(kBlocks);
    options.key = key;
    CacheFixture f(options);
    for (const std::vector<int32_t>& tokens : chosen) f.visit(tokens);
    return f.cache.longest_chain();
  };
  EXPECT_EQ(longest_chain({}), 64);  // the attack works on a key that is known
  EXPECT_LE(longest_chain({0x0123456789abcdef, 42}), 6);
}

TEST(KvCache, RollbackDropsTheEnd) {
  CacheFixture f(options_of(20, {kFull, window_of(32)}));
  BlockTable a = f.begin();
  ASSERT_TRUE(f.cache.reserve(64, &a));
  f.cache.advance(20, &a);
  f.cache.rollback(17, &a);
  EXPECT_EQ(a.columns[0].blocks.size(), 2u);
  EXPECT_EQ(a.columns[1].blocks.size(), 2u);
  EXPECT_EQ(a.num_computed, 17);
  f.expect_sound({&a});
}

TEST(KvCache, CheckSeesWhatIsWrong) {
  CacheFixture f(options_of(12, {kFull, window_of(32)}));
  BlockTable a = f.begin();
  ASSERT_TRUE(f.cache.reserve(64, &a));
  f.cache.advance(64, &a);
  f.expect_sound({&a});
  EXPECT_NE(f.cache.check({}).error().message.find("counts 1 holders, 0 tables"),
            std::string::npos);
  const BlockTable* twice[] = {&a, &a};
  EXPECT_NE(f.cache.check(twice).error().message.find("2 tables hold it"), std::string::npos);
  BlockTable early = a;
  early.num_computed = 80;  // it would see a block that was never reserved
  const BlockTable* lacking[] = {&early};
  EXPECT_NE(f.cache.check(lacking).error().message.find("lacks block 4"), std::string::npos);
  early = a;
  early.columns[1].blocks[0] = a.columns[0].blocks[0];
  EXPECT_NE(f.cache.check(lacking).error().message.find("still has block"), std::string::npos);
}

// --- Windows

TEST(KvCacheWindow, BlocksOutOfSightAreGivenBackAndStayFindable) {
  CacheFixture f(options_of(64, {kFull, window_of(32)}));
  const std::vector<int32_t> tokens = iota_tokens(200);
  BlockTable a = f.run(tokens);
  EXPECT_EQ(num_held(a.columns[0]), 13);
  // Position 200 sees those from 169 on: blocks 10 to 12.
  EXPECT_EQ(a.columns[1].first, 10);
  EXPECT_EQ(num_held(a.columns[1]), 3);
  EXPECT_EQ(a.columns[1].blocks[9], -1);
  EXPECT_EQ(f.cache.pool().num_used(), 13 + 3);
  EXPECT_EQ(f.cache.pool().num_cached(), 10);
  f.expect_sound({&a});
  // Shorter prefixes are found as long as the window before their end is there.
  for (const int32_t count : {33, 65, 100, 177}) {
    BlockTable b;
    EXPECT_EQ(f.match(iota_tokens(count), &b), (count - 1) / 16 * 16) << count;
    f.expect_sound({&a, &b});
    f.cache.release(&b);
  }
}

TEST(KvCacheWindow, AChunkNeedsWindowAndChunkAndNoMore) {
  KvCacheOptions options = options_of(64, {kFull, window_of(32, 3)});
  options.max_chunk = 48;
  CacheFixture f(options);
  const std::vector<int32_t> tokens = iota_tokens(400);
  BlockTable a = f.begin();
  int64_t most = 0;
  while (a.num_computed < 400) {
    ASSERT_TRUE(f.cache.reserve(400, &a));
    ASSERT_TRUE(f.cache.covers(400, a));
    most = std::max(most, num_held(a.columns[1]));
    const int64_t count = std::min<int64_t>(400 - a.num_computed, 1 + a.num_computed % 48);
    for (int64_t p = std::max<int64_t>(0, a.num_computed - 31); p < a.num_computed + count; ++p) {
      for (const TableColumn& column : a.columns) {
        ASSERT_GE(column.blocks[static_cast<size_t>(p / kBlockTokens)], 0) << p;
      }
    }
    f.cache.commit(tokens, a.num_computed + count, &a);
    f.expect_sound({&a});
  }
  EXPECT_EQ(num_held(a.columns[0]), 25);
  EXPECT_LE(most, (31 + 48 + 14) / 16 + 1);
  EXPECT_LE(25 + 3 * most, most_blocks(options.rules, 400, 48));
}

// The bound by which contexts are admitted holds for every sequence and every cut into chunks.
TEST(KvCacheWindow, NoSequenceHoldsMoreThanTheBound) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    KvCacheOptions options = options_of(
        400, {kFull, window_of(1 + static_cast<int64_t>(random() % 90), 2), state_every(2)});
    options.max_chunk = 1 + static_cast<int64_t>(random() % 70);
    CacheFixture f(options);
    const std::vector<int32_t> tokens = iota_tokens(1 + static_cast<int32_t>(random() % 500));
    BlockTable table = f.begin();
    while (table.num_computed < std::ssize(tokens)) {
      ASSERT_TRUE(f.cache.reserve(std::ssize(tokens), &table));
      ASSERT_LE(f.cache.pool().num_used(),
                most_blocks(options.rules, std::ssize(tokens), options.max_chunk));
      const int64_t left = std::ssize(tokens) - table.num_computed;
      const auto wish =
          static_cast<int64_t>(1 + random() % static_cast<uint64_t>(options.max_chunk));
      const int64_t count = f.cache.limit_chunk(std::min(left, wish), table);
      f.cache.prepare(count, &table);
      f.cache.commit(tokens, table.num_computed + count, &table);
      f.expect_sound({&table});
    }
  }
}

TEST(KvCacheWindow, AHitNeedsTheWholeWindowBeforeItsEnd) {
  // 30 blocks: a sequence of 13 full blocks and its windows, then pressure takes the oldest.
  CacheFixture f(options_of(30, {kFull, window_of(32)}));
  const std::vector<int32_t> tokens = iota_tokens(201);
  BlockTable a = f.run(tokens);
  f.cache.release(&a);
  ASSERT_EQ(f.found(tokens), 12);
  ASSERT_EQ(f.found(iota_tokens(40)), 2);
  // Six free blocks, then the window blocks that were given back first: of positions 0 to 31.
  BlockTable taker = f.begin();
  ASSERT_TRUE(f.cache.reserve(48, &taker));
  BlockTable another = f.begin();
  ASSERT_TRUE(f.cache.reserve(16, &another));
  EXPECT_EQ(f.found(iota_tokens(40)), 0);
  EXPECT_EQ(f.found(iota_tokens(60)), 0);  // would see positions from 17 on
  EXPECT_EQ(f.found(iota_tokens(70)), 4);
  EXPECT_EQ(f.found(iota_tokens(100)), 6);
  EXPECT_EQ(f.found(tokens), 12);
  f.expect_sound({&taker, &another});
}

TEST(KvCacheWindow, AModelOfWindowsAloneHasHitsToo) {
  CacheFixture f(options_of(24, {window_of(32)}));
  const std::vector<int32_t> tokens = iota_tokens(300);
  BlockTable a = f.run(tokens);
  EXPECT_LE(f.cache.pool().num_used(), 3);
  BlockTable b;
  EXPECT_EQ(f.match(tokens, &b), 288);  // not 18 blocks: those that the end sees
  EXPECT_EQ(num_held(b.columns[0]), 2);
  f.expect_sound({&a, &b});
}

// Gemma 3 270M at 8,192 tokens, by the numbers of its configuration: 15 of 18 layers see 512
// tokens.
TEST(KvCacheWindow, Gemma3At8kNeedsAThirdOfWhatAllLayersWould) {
  const auto backend = testing::reference_backend();
  const CacheLayout layout = plan_cache(testing::gemma3_270m(KvType::kBF16), *backend);
  KvCacheOptions options = options_of(4000, layout.rules);
  options.max_chunk = 512;
  CacheFixture f(options);
  const std::vector<int32_t> tokens = iota_tokens(8192);
  BlockTable table = f.begin();
  int64_t most_used = 0;
  while (table.num_computed < 8192) {
    ASSERT_TRUE(f.cache.reserve(8192, &table));
    most_used = std::max(most_used, f.cache.pool().num_used());
    f.cache.commit(tokens, table.num_computed + 512, &table);
  }
  const auto bytes = [&](int64_t num_blocks) {
    return static_cast<double>(num_blocks) * static_cast<double>(layout.block_bytes);
  };
  const size_t layer_bytes = backend->kv_layer_bytes({KvType::kBF16, 1, 256});
  const double before = 18.0 * static_cast<double>(layer_bytes) * (8192 / kBlockTokens);
  EXPECT_LT(bytes(most_used) / before, 0.28);
  EXPECT_LT(bytes(f.cache.pool().num_used()) / before, 0.23);
  EXPECT_GT(bytes(f.cache.pool().num_used()) / before, 0.20);  // and not by holding too little
  f.expect_sound({&table});
}

// --- State

TEST(KvCacheState, StepsEndWhereStateIsKept) {
  CacheFixture f(options_of(64, {kFull, state_every(4)}));
  BlockTable a = f.begin({}, 150);  // the last whole block of the prompt ends at 144
  std::vector<int64_t> ends;
  const std::vector<int32_t> tokens = iota_tokens(300);
  while (a.num_computed < 300) {
    ASSERT_TRUE(f.cache.reserve(300, &a));
    const int64_t count = f.cache.limit_chunk(std::min<int64_t>(50, 300 - a.num_computed), a);
    f.cache.prepare(count, &a);
    f.cache.commit(tokens, a.num_computed + count, &a);
    ends.push_back(a.num_computed);
    f.expect_sound({&a});
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{50, 64, 114, 128, 144, 192, 242, 256, 300}));
}

TEST(KvCacheState, AHitIsWhereASnapshotIs) {
  CacheFixture f(options_of(64, {kFull, state_every(4)}));
  const std::vector<int32_t> tokens = iota_tokens(150);
  BlockTable a = f.run(tokens);
  const std::vector<int32_t> state_of_a = a.columns[1].blocks;
  f.cache.release(&a);
  EXPECT_EQ(f.found(tokens), 9);            // the prompt's end
  EXPECT_EQ(f.found(iota_tokens(144)), 8);  // 128 = 2 * 4 blocks
  EXPECT_EQ(f.found(iota_tokens(128)), 4);  // one token is left
  EXPECT_EQ(f.found(iota_tokens(64)), 0);
  BlockTable b;
  ASSERT_EQ(f.match(tokens, &b), 144);
  EXPECT_EQ(num_held(b.columns[1]), 1);
  EXPECT_EQ(num_held(b.columns[0]), 9);
  // The next step reads that block and writes another: a snapshot is never written again.
  const int32_t snapshot = b.columns[1].blocks[8];
  ASSERT_TRUE(f.cache.reserve(150, &b));
  f.cache.prepare(6, &b);
  EXPECT_EQ(b.columns[1].blocks[8], snapshot);
  EXPECT_GE(b.columns[1].blocks[9], 0);
  EXPECT_NE(b.columns[1].blocks[9], snapshot);
  f.cache.commit(tokens, 150, &b);
  EXPECT_EQ(b.columns[1].blocks[8], -1);
  f.expect_sound({&b});
  EXPECT_EQ(f.found(tokens), 9);  // the snapshot is still there for others
}

TEST(KvCacheState, WithinABlockStateStaysWhereItIs) {
  CacheFixture f(options_of(16, {state_every(100)}));
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a = f.begin();
  int32_t place = -1;
  for (int64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(f.cache.reserve(40, &a));
    f.cache.prepare(1, &a);
    const int32_t now = a.columns[0].blocks[static_cast<size_t>(i / 16)];
    if (i % 16 != 0) {
      EXPECT_EQ(now, place);
    } else {
      EXPECT_NE(now, place);
    }
    place = now;
    f.cache.commit(tokens, i + 1, &a);
    EXPECT_LE(f.cache.pool().num_used(), 2);
    f.expect_sound({&a});
  }
}

// --- Fork

TEST(KvCacheFork, TheLastBlockIsCopied) {
  CacheFixture f(options_of(32, {kFull, window_of(32, 2)}));
  const std::vector<int32_t> tokens = iota_tokens(200);
  BlockTable a = f.run(tokens);
  BlockTable b;
  ASSERT_EQ(f.match(tokens, &b), 192);
  EXPECT_EQ(f.cache.fork(a, 199, &b), 199);
  const std::vector<BlockCopy> copies = f.cache.take_copies();
  ASSERT_EQ(copies.size(), 3u);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(copies[c].from, a.columns[c].blocks[12]);
    EXPECT_EQ(copies[c].to, b.columns[c].blocks[12]);
    EXPECT_NE(copies[c].from, copies[c].to);
    EXPECT_EQ(b.tables[c][12], copies[c].to);
  }
  EXPECT_TRUE(f.cache.take_copies().empty());
  EXPECT_EQ(f.cache.pool().num_used(), 13 + 3 + 3 + 3);  // all shared but the last of each column
  f.expect_sound({&a, &b});
  // Both go on, each its way.
  std::vector<int32_t> other = tokens;
  for (int32_t i = 0; i < 30; ++i) other.push_back(1000 + i);
  f.compute(other, &b);
  f.expect_sound({&a, &b});
  EXPECT_EQ(f.found(other), 14);
}

TEST(KvCacheFork, AWholeBlockThatIsPublishedIsOneCopyAgain) {
  CacheFixture f(options_of(32));
  const std::vector<int32_t> tokens = iota_tokens(192);
  BlockTable a = f.run(tokens);
  BlockTable b;
  ASSERT_EQ(f.match(tokens, &b), 176);  // its last token has to be computed
  ASSERT_EQ(f.cache.fork(a, 191, &b), 191);
  f.compute(tokens, &b);
  EXPECT_EQ(a.columns[0].blocks, b.columns[0].blocks);
  f.expect_sound({&a, &b});
}

TEST(KvCacheFork, NothingIsTakenWhereNothingIs) {
  const std::vector<int32_t> tokens = iota_tokens(40);
  CacheFixture f(options_of(5));
  BlockTable a = f.begin(), b = f.begin();
  ASSERT_TRUE(f.cache.reserve(40, &a));
  EXPECT_EQ(f.cache.fork(a, 39, &b), 0);  // not computed yet
  f.cache.advance(10, &a);
  EXPECT_EQ(f.cache.fork(a, 39, &b), 10);
  f.expect_sound({&a, &b});
  f.cache.release(&b);
  b = f.begin();
  BlockTable c = f.begin();
  ASSERT_TRUE(f.cache.reserve(32, &c));
  EXPECT_EQ(f.cache.fork(a, 39, &b), 0);  // no block is left
  f.expect_sound({&a, &b, &c});
  CacheFixture state(options_of(16, {kFull, state_every(2)}));
  BlockTable leader = state.run(tokens), follower;
  ASSERT_EQ(state.match(tokens, &follower), 32);
  EXPECT_EQ(state.cache.fork(leader, 39, &follower), 32);  // its state is that after 40
  state.expect_sound({&leader, &follower});
}

// --- Ends that are kept

TEST(KvCacheEnd, WhoGoesOnFromThereTakesACopy) {
  CacheFixture f(options_of(32, {kFull, window_of(32)}));
  std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a = f.run(tokens);
  const int32_t kept[] = {a.columns[0].blocks[2], a.columns[1].blocks[2]};
  f.cache.keep_end(tokens, &a);
  f.cache.release(&a);
  f.expect_sound({});
  EXPECT_EQ(f.cache.pool().num_cached(), 6);
  tokens.push_back(1000);
  tokens.push_back(1001);
  BlockTable b;
  ASSERT_EQ(f.match(tokens, &b), 32);
  EXPECT_EQ(f.cache.fork_cached(tokens, &b), 40);
  const std::vector<BlockCopy> copies = f.cache.take_copies();
  ASSERT_EQ(copies.size(), 2u);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(copies[c].from, kept[c]);
    EXPECT_EQ(copies[c].to, b.columns[c].blocks[2]);
  }
  f.expect_sound({&b});
  // Who has the same tokens for a while only takes as many; one token is always left.
  BlockTable c, d;
  std::vector<int32_t> other = iota_tokens(40);
  other[35] = 999;
  ASSERT_EQ(f.match(other, &c), 32);
  EXPECT_EQ(f.cache.fork_cached(other, &c), 35);
  const std::vector<int32_t> same = iota_tokens(40);
  ASSERT_EQ(f.match(same, &d), 32);
  EXPECT_EQ(f.cache.fork_cached(same, &d), 39);
  f.expect_sound({&b, &c, &d});
}

TEST(KvCacheEnd, TheLastOneWinsAndTheOldBlockIsFree) {
  CacheFixture f(options_of(8));
  for (const int32_t token : {100, 200}) {
    std::vector<int32_t> tokens = iota_tokens(16);
    for (int32_t i = 0; i < 4; ++i) tokens.push_back(token + i);
    BlockTable table = f.run(tokens);
    f.cache.keep_end(tokens, &table);
    f.cache.release(&table);
    f.expect_sound({});
    EXPECT_EQ(f.cache.pool().num_cached(), 2);
    BlockTable next;
    ASSERT_EQ(f.match(tokens, &next), 16);
    EXPECT_EQ(f.cache.fork_cached(tokens, &next), 19);
    f.cache.take_copies();
    f.cache.release(&next);
  }
}

TEST(KvCacheEnd, AWholeBlockServesThePromptThatEndsWithIt) {
  CacheFixture f(options_of(8));
  const std::vector<int32_t> tokens = iota_tokens(48);
  f.visit(tokens);
  BlockTable table;
  ASSERT_EQ(f.match(tokens, &table), 32);
  EXPECT_EQ(f.cache.fork_cached(tokens, &table), 47);
  f.expect_sound({&table});
  f.compute(tokens, &table);
  f.cache.release(&table);
  f.expect_sound({});
  EXPECT_EQ(f.cache.pool().num_cached(), 3);  // one copy of each again
}

TEST(KvCacheEnd, NothingIsKeptWhereNothingIsNew) {
  CacheFixture f(options_of(3));
  std::vector<int32_t> tokens = iota_tokens(32);
  BlockTable whole = f.run(tokens);
  f.cache.keep_end(tokens, &whole);  // no end
  f.cache.release(&whole);
  EXPECT_EQ(f.cache.pool().num_cached(), 2);
  tokens.push_back(77);
  BlockTable table = f.run(tokens);
  f.cache.keep_end(tokens, &table);
  f.cache.release(&table);
  EXPECT_EQ(f.cache.pool().num_cached(), 3);
  // No room for a copy: the three blocks are those it would need and the one to be copied.
  tokens.push_back(78);
  ASSERT_EQ(f.match(tokens, &table), 32);
  EXPECT_EQ(f.cache.fork_cached(tokens, &table), 32);
  f.expect_sound({&table});
  EXPECT_TRUE(f.cache.take_copies().empty());
  CacheFixture state(options_of(16, {kFull, state_every(2)}));
  BlockTable with_state = state.run(iota_tokens(40));
  state.cache.keep_end(iota_tokens(40), &with_state);
  state.cache.release(&with_state);
  ASSERT_EQ(state.match(iota_tokens(40), &with_state), 32);
  EXPECT_EQ(state.cache.fork_cached(iota_tokens(40), &with_state), 32);
  state.expect_sound({&with_state});
}

// --- Promises

TEST(KvCachePromise, WhatIsHeldAndWhatMayBeAskedForIsAlwaysTheBound) {
  CacheFixture f(options_of(200, {kFull, window_of(40, 3)}));
  const std::vector<int32_t> tokens = iota_tokens(400);
  BlockTable a = f.begin();
  const int64_t bound = most_blocks(f.cache.options().rules, 400, 64);
  EXPECT_EQ(f.cache.promised(400, a), bound);
  while (a.num_computed < 400) {
    ASSERT_TRUE(f.cache.reserve(400, &a));
    EXPECT_EQ(f.cache.pool().num_used() + f.cache.promised(400, a), bound);
    f.cache.commit(tokens, std::min<int64_t>(400, a.num_computed + 37), &a);
  }
  BlockTable b;  // blocks of a window that both hold are not enough for two
  ASSERT_EQ(f.match(tokens, &b), 384);
  EXPECT_GE(f.cache.pool().num_used() + f.cache.promised(400, a) + f.cache.promised(400, b),
            bound + 3 * num_held(b.columns[1]));
}

}  // namespace kv_cache_test
}  // namespace headrace
