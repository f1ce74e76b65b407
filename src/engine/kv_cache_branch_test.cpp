#include <gtest/gtest.h>

#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace kv_cache_branch_test {

using testing::CacheFixture;
using testing::iota_tokens;
using testing::kFull;
using testing::options_of;
using testing::state_every;
using testing::window_of;

struct Model {
  const char* name;
  std::vector<CacheRule> rules;
};
std::vector<Model> models() {
  return {{"full", {kFull}},
          {"window", {window_of(20)}},
          {"full and window", {kFull, window_of(20, 2)}},
          {"full and state", {kFull, state_every(2)}}};
}

// What missing_of_branch() says is taken, whatever the position in a block.
TEST(KvCacheBranch, TakesWhatItSays) {
  for (const Model& model : models()) {
    for (const int32_t count : {15, 16, 17, 40, 47, 48, 49}) {
      SCOPED_TRACE(::testing::Message() << model.name << ", " << count << " tokens");
      CacheFixture f(options_of(64, model.rules));
      std::vector<int32_t> tokens = iota_tokens(count);
      BlockTable from = f.run(tokens);
      ASSERT_TRUE(f.cache.can_branch(from, count));
      const int64_t before = f.cache.pool().num_used();
      BlockTable table = f.begin();
      const int64_t missing = f.cache.missing_of_branch(count, count + 1);
      f.cache.branch(from, count, &table);
      EXPECT_EQ(table.num_computed, count);
      EXPECT_EQ(table.names, from.names);
      ASSERT_TRUE(f.cache.reserve(count + 1, &table));
      EXPECT_EQ(f.cache.pool().num_used() - before, missing);
      const auto num_copies = count % 16 == 0 ? 0 : f.cache.num_columns();
      EXPECT_EQ(std::ssize(f.cache.take_copies()), num_copies);
      f.expect_sound({&from, &table});
      // Both go on, with different tokens.
      std::vector<int32_t> other = tokens;
      for (int32_t i = 0; i < 40; ++i) {
        tokens.push_back(1000 + i);
        other.push_back(2000 + i);
        f.compute(tokens, &from, 1);
        f.compute(other, &table, 1);
        f.expect_sound({&from, &table});
      }
      f.cache.release(&from);
      f.expect_sound({&table});
      f.cache.release(&table);
      EXPECT_EQ(f.cache.pool().num_used(), 0);
    }
  }
}

// Behind the last position only where all positions are kept.
TEST(KvCacheBranch, GoesBackOnlyWhereAllPositionsAreKept) {
  for (const Model& model : models()) {
    CacheFixture f(options_of(64, model.rules));
    const BlockTable from = f.run(iota_tokens(40));
    EXPECT_EQ(f.cache.can_branch(from, 37), model.rules.size() == 1 && model.name[0] == 'f')
        << model.name;
    EXPECT_FALSE(f.cache.can_branch(from, 41)) << model.name;
  }
}

TEST(KvCacheBranch, NeedsPublishedBlocks) {
  CacheFixture f(options_of(8));
  BlockTable from = f.begin();
  ASSERT_TRUE(f.cache.reserve(20, &from));
  f.cache.advance(20, &from);
  EXPECT_FALSE(f.cache.can_branch(from, 20));
  EXPECT_TRUE(f.cache.can_branch(from, 15));
}

// All that the two share is wiped when one of them fails: it may have written it.
TEST(KvCacheBranch, WhatFailsTakesWhatItWroteBefore) {
  CacheFixture f(options_of(8));
  BlockTable from = f.run(iota_tokens(40));
  BlockTable table = f.begin();
  f.cache.branch(from, 40, &table);
  f.cache.discard(&table);
  f.cache.release(&from);
  EXPECT_EQ(f.cache.take_tainted().size(), 3u);
  EXPECT_EQ(f.cache.pool().num_cached(), 0);
}

}  // namespace kv_cache_branch_test
}  // namespace headrace
