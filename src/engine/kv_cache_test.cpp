#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace headrace {
namespace {

using Policy = CachePolicy;

std::vector<int32_t> iota_tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

KvCacheOptions options_of(int64_t num_blocks, std::vector<CacheRule> rules = {CacheRule{}}) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.rules = std::move(rules);
  options.max_chunk = 64;
  return options;
}

constexpr CacheRule kFull = {};
constexpr CacheRule window_of(int64_t window, int columns = 1) {
  return {Policy::kWindow, window, 0, columns};
}
constexpr CacheRule state_every(int64_t blocks) { return {Policy::kState, 0, blocks, 1}; }

// A cache and what a sequence of an engine does with it.
class Fixture {
 public:
  explicit Fixture(const KvCacheOptions& options) : cache(options) {}

  BlockTable begin(const PrefixRoot& root = {}, int64_t num_prompt = 1) {
    BlockTable table;
    cache.begin(cache.root(root), num_prompt, &table);
    return table;
  }
  int64_t match(const std::vector<int32_t>& tokens, BlockTable* table,
                const PrefixRoot& root = {}) {
    *table = begin(root, std::ssize(tokens));
    return cache.match(tokens, table);
  }
  // Computes the tokens from where the table is, in chunks, each published.
  void compute(const std::vector<int32_t>& tokens, BlockTable* table, int64_t chunk = 64) {
    while (table->num_computed < std::ssize(tokens)) {
      ASSERT_TRUE(cache.reserve(std::ssize(tokens), table));
      const int64_t left = std::ssize(tokens) - table->num_computed;
      const int64_t count = cache.limit_chunk(std::min(chunk, left), *table);
      cache.prepare(count, table);
      cache.commit(tokens, table->num_computed + count, table);
    }
  }
  BlockTable run(const std::vector<int32_t>& tokens, const PrefixRoot& root = {},
                 int64_t chunk = 64) {
    BlockTable table;
    match(tokens, &table, root);
    compute(tokens, &table, chunk);
    return table;
  }
  // A sequence that came and went.
  void visit(const std::vector<int32_t>& tokens, const PrefixRoot& root = {}) {
    BlockTable table = run(tokens, root);
    cache.release(&table);
  }
  int64_t found(const std::vector<int32_t>& tokens, const PrefixRoot& root = {}) const {
    return cache.peek(tokens, cache.root(root)).num_blocks;
  }
  void expect_sound(std::vector<const BlockTable*> holders) const {
    const Status status = cache.check(holders);
    EXPECT_TRUE(status.ok()) << status.error().message;
    const BlockPool& pool = cache.pool();
    EXPECT_EQ(pool.num_free() + pool.num_used() + pool.num_cached(), pool.num_total());
  }

  KvCache cache;
};

int64_t num_held(const TableColumn& column) {
  return std::count_if(column.blocks.begin(), column.blocks.end(),
                       [](int32_t block_id) { return block_id >= 0; });
}

TEST(KvCache, ReserveIsAllOrNothing) {
  Fixture f(options_of(4));
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
  Fixture f(options_of(8));
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
  Fixture f(options_of(8));
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
  Fixture f(options_of(8));
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
    Fixture f(options);
    return f.run(tokens).names.at(0);
  };
  const Digest name = name_of({1, 2}, "exact");
  EXPECT_EQ(name, name_of({1, 2}, "exact"));  // no counter, no clock
  EXPECT_NE(name, name_of({1, 3}, "exact"));
  EXPECT_NE(name, name_of({2, 2}, "exact"));
  EXPECT_NE(name, name_of({1, 2}, "other"));
}

TEST(KvCache, ReleasedBlocksStayFindableUntilNeeded) {
  Fixture f(options_of(4));
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
    Fixture f(options_of(24, rules));
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
  Fixture f(options_of(8));
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
  Fixture f(options_of(8));
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
    Fixture f(options);
    for (const std::vector<int32_t>& tokens : chosen) f.visit(tokens);
    return f.cache.longest_chain();
  };
  EXPECT_EQ(longest_chain({}), 64);  // the attack works on a key that is known
  EXPECT_LE(longest_chain({0x0123456789abcdef, 42}), 6);
}

TEST(KvCache, RollbackDropsTheEnd) {
  Fixture f(options_of(20, {kFull, window_of(32)}));
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
  Fixture f(options_of(12, {kFull, window_of(32)}));
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
  Fixture f(options_of(64, {kFull, window_of(32)}));
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
  Fixture f(options);
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
    Fixture f(options);
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
  Fixture f(options_of(30, {kFull, window_of(32)}));
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
  Fixture f(options_of(24, {window_of(32)}));
  const std::vector<int32_t> tokens = iota_tokens(300);
  BlockTable a = f.run(tokens);
  EXPECT_LE(f.cache.pool().num_used(), 3);
  BlockTable b;
  EXPECT_EQ(f.match(tokens, &b), 288);  // not 18 blocks: those that the end sees
  EXPECT_EQ(num_held(b.columns[0]), 2);
  f.expect_sound({&a, &b});
}

// --- State

TEST(KvCacheState, StepsEndWhereStateIsKept) {
  Fixture f(options_of(64, {kFull, state_every(4)}));
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
  Fixture f(options_of(64, {kFull, state_every(4)}));
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
  Fixture f(options_of(16, {state_every(100)}));
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
  Fixture f(options_of(32, {kFull, window_of(32, 2)}));
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
  Fixture f(options_of(32));
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
  Fixture f(options_of(5));
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
  Fixture state(options_of(16, {kFull, state_every(2)}));
  BlockTable leader = state.run(tokens), follower;
  ASSERT_EQ(state.match(tokens, &follower), 32);
  EXPECT_EQ(state.cache.fork(leader, 39, &follower), 32);  // its state is that after 40
  state.expect_sound({&leader, &follower});
}

// --- Promises

TEST(KvCachePromise, WhatIsHeldAndWhatMayBeAskedForIsAlwaysTheBound) {
  Fixture f(options_of(200, {kFull, window_of(40, 3)}));
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

// --- Law: whatever is reserved, computed, forked, found and released, in any order, the books
// balance, each table holds what it sees, and a hit is what was written under the same tokens.

class RandomUse {
 public:
  RandomUse(uint64_t seed, std::vector<CacheRule> rules)
      : random_(seed), f_(options(std::move(rules))), content_(kBlocks, 0) {}

  void run(int num_steps) {
    for (step_ = 0; step_ < num_steps && !testing::Test::HasFatalFailure(); ++step_) {
      act();
      std::vector<const BlockTable*> tables;
      for (const Holder& holder : holders_) tables.push_back(&holder.table);
      const Status status = f_.cache.check(tables);
      ASSERT_TRUE(status.ok()) << "step " << step_ << ": " << status.error().message;
      for (const Holder& holder : holders_) check_content(holder);
    }
  }
  int64_t num_found() const { return num_found_; }
  int64_t num_forked() const { return num_forked_; }

 private:
  static constexpr int kBlocks = 60;
  struct Holder {
    std::vector<int32_t> tokens;
    BlockTable table;
  };

  static KvCacheOptions options(std::vector<CacheRule> rules) {
    KvCacheOptions options = options_of(kBlocks, std::move(rules));
    options.max_chunk = 40;
    return options;
  }
  // What a block of a column holds once the tokens up to `end` are computed.
  static uint64_t content_of(const Holder& holder, size_t column, int64_t end) {
    uint64_t hash = column + 1;
    for (int64_t i = 0; i < end; ++i) {
      hash = (hash ^ static_cast<uint64_t>(holder.tokens[static_cast<size_t>(i)])) *
             0x9E3779B97F4A7C15u;
    }
    return hash;
  }
  size_t pick() { return random_() % holders_.size(); }

  void act() {
    const auto choice = random_() % 8;
    if (holders_.empty() || (choice == 0 && holders_.size() < 6)) return arrive();
    if (choice == 1) return leave();
    if (choice == 2) return fork();
    compute(holders_[pick()]);
  }
  void arrive() {
    Holder holder;
    const auto count = static_cast<int32_t>(1 + random_() % 150);
    for (int32_t i = 0; i < count; ++i) {
      holder.tokens.push_back(i < 70 ? 0 : static_cast<int32_t>(random_() % 2));
    }
    num_found_ += f_.match(holder.tokens, &holder.table);
    holders_.push_back(std::move(holder));
  }
  void compute(Holder& holder) {
    const int64_t total = std::ssize(holder.tokens);
    if (holder.table.num_computed == total || !f_.cache.reserve(total, &holder.table)) return;
    const int64_t wish = std::min<int64_t>(total - holder.table.num_computed,
                                           1 + static_cast<int64_t>(random_() % 40));
    const int64_t count = f_.cache.limit_chunk(wish, holder.table);
    f_.cache.prepare(count, &holder.table);
    write(holder, holder.table.num_computed + count);
    f_.cache.commit(holder.tokens, holder.table.num_computed + count, &holder.table);
  }
  void write(const Holder& holder, int64_t end) {
    for (size_t c = 0; c < holder.table.columns.size(); ++c) {
      const bool is_state = is_state_column(c);
      const int64_t first =
          is_state ? (end - 1) / kBlockTokens : holder.table.num_computed / kBlockTokens;
      for (int64_t i = first; i * kBlockTokens < end; ++i) {
        const int64_t to = is_state ? end : std::min(end, (i + 1) * kBlockTokens);
        const int32_t block_id = holder.table.tables[c][i];
        ASSERT_GE(block_id, 0);
        content_[static_cast<size_t>(block_id)] = content_of(holder, c, to);
      }
    }
  }
  void fork() {
    Holder copy;
    const Holder& from = holders_[pick()];
    copy.tokens = from.tokens;
    if (holders_.size() >= 6) return;
    f_.match(copy.tokens, &copy.table);
    const int64_t before = copy.table.num_computed;
    const int64_t common = std::ssize(copy.tokens) - 1;
    const BlockTable source = from.table;
    const int64_t after = f_.cache.fork(source, common, &copy.table);
    for (const BlockCopy& block : f_.cache.take_copies()) {
      content_[static_cast<size_t>(block.to)] = content_[static_cast<size_t>(block.from)];
    }
    if (after > before) {
      ++num_forked_;
      // What the copy holds beyond its own tokens is the other's: as if it were not there.
      for (size_t c = 0; c < copy.table.columns.size(); ++c) {
        const int32_t block_id = copy.table.tables[c][before / kBlockTokens];
        EXPECT_EQ(content_[static_cast<size_t>(block_id)],
                  content_of(from, c,
                             std::min<int64_t>(source.num_computed,
                                               (before / kBlockTokens + 1) * kBlockTokens)));
        content_[static_cast<size_t>(block_id)] = content_of(copy, c, after);
      }
    }
    holders_.push_back(std::move(copy));
  }
  void leave() {
    const size_t i = pick();
    if (random_() % 4 == 0) {
      f_.cache.discard(&holders_[i].table);
      f_.cache.take_tainted();
    } else {
      f_.cache.release(&holders_[i].table);
    }
    holders_.erase(holders_.begin() + static_cast<int64_t>(i));
  }
  bool is_state_column(size_t column) const {
    for (const CacheRule& rule : f_.cache.options().rules) {
      if (column < static_cast<size_t>(rule.num_columns)) return rule.policy == Policy::kState;
      column -= static_cast<size_t>(rule.num_columns);
    }
    return false;
  }
  // Every block that the next token sees was written under this sequence's tokens.
  void check_content(const Holder& holder) const {
    const int64_t computed = holder.table.num_computed;
    for (size_t c = 0; c < holder.table.columns.size(); ++c) {
      const TableColumn& column = holder.table.columns[c];
      for (int64_t i = column.first; i * kBlockTokens < computed; ++i) {
        const int32_t block_id = column.blocks[static_cast<size_t>(i)];
        ASSERT_GE(block_id, 0);
        const int64_t end =
            is_state_column(c) ? computed : std::min(computed, (i + 1) * kBlockTokens);
        ASSERT_EQ(content_[static_cast<size_t>(block_id)], content_of(holder, c, end))
            << "step " << step_ << ", column " << c << ", block " << i;
      }
    }
  }

  std::mt19937_64 random_;
  Fixture f_;
  std::vector<uint64_t> content_;  // by block
  std::vector<Holder> holders_;
  int step_ = 0;
  int64_t num_found_ = 0;
  int64_t num_forked_ = 0;
};

TEST(KvCache, RandomUseKeepsTheBooksAndTheContents) {
  const std::vector<std::vector<CacheRule>> models = {
      {kFull},
      {kFull, window_of(20, 2)},
      {window_of(33)},
      {kFull, state_every(2)},
      {window_of(40, 2), kFull, state_every(3)},
      {state_every(1)},
  };
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(i);
    RandomUse use(11 + i, models[i]);
    use.run(4000);
    EXPECT_GT(use.num_found(), 1000);
    const bool has_state =
        std::any_of(models[i].begin(), models[i].end(),
                    [](const CacheRule& rule) { return rule.policy == Policy::kState; });
    EXPECT_EQ(use.num_forked() > 50, !has_state);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace
