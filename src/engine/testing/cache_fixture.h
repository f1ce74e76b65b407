// A KvCache and what the sequences of an engine do with it, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "engine/kv_cache.h"

namespace headrace::testing {

inline std::vector<int32_t> iota_tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline KvCacheOptions options_of(int64_t num_blocks, std::vector<CacheRule> rules = {CacheRule{}}) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.rules = std::move(rules);
  options.max_chunk = 64;
  return options;
}

inline constexpr CacheRule kFull = {};
inline constexpr CacheRule window_of(int64_t window, int columns = 1) {
  return {CachePolicy::kWindow, window, 0, columns};
}
inline constexpr CacheRule state_every(int64_t blocks) {
  return {CachePolicy::kState, 0, blocks, 1};
}

// A cache and what a sequence of an engine does with it.
class CacheFixture {
 public:
  explicit CacheFixture(const KvCacheOptions& options) : cache(options) {}

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

}  // namespace headrace::testing
