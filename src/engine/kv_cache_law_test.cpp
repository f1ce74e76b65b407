#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/kv_cache.h"
#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace {

using testing::CacheFixture;
using testing::kFull;
using testing::options_of;
using testing::state_every;
using testing::window_of;

// --- Law: whatever is reserved, computed, forked, found and released, in any order, the books
// balance, each table holds what it sees, and a hit is what was written under the same tokens.

class RandomUse {
 public:
  RandomUse(uint64_t seed, std::vector<CacheRule> rules)
      : random_(seed), f_(options(std::move(rules))), content_(kBlocks, 0) {}

  void run(int num_steps) {
    for (step_ = 0; step_ < num_steps && !::testing::Test::HasFatalFailure(); ++step_) {
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
      if (column < static_cast<size_t>(rule.num_columns)) return rule.policy == CachePolicy::kState;
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
  CacheFixture f_;
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
                    [](const CacheRule& rule) { return rule.policy == CachePolicy::kState; });
    EXPECT_EQ(use.num_forked() > 50, !has_state);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace
