#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "engine/kv_cache.h"
#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace kv_cache_law_test {

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
      : random_(seed), f_(options(std::move(rules))), content_(kBlocks) {}

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
  int64_t num_ends() const { return num_ends_; }
  int64_t num_taken_back() const { return num_taken_back_; }

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
  // [i]: the hash after i tokens: what the position before holds, and the state there.
  static std::vector<uint64_t> hashes_of(const Holder& holder) {
    std::vector<uint64_t> hashes = {1};
    for (const int32_t token : holder.tokens) {
      hashes.push_back((hashes.back() ^ static_cast<uint64_t>(token + 2)) * 0x9E3779B97F4A7C15u);
    }
    return hashes;
  }
  uint64_t& at(const Holder& holder, size_t column, int64_t position) {
    const int32_t block_id = holder.table.tables[column][position / kBlockTokens];
    return content_.at(static_cast<size_t>(block_id))[static_cast<size_t>(position % kBlockTokens)];
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
    const int64_t end = holder.table.num_computed + count;
    // The last of them may be guesses, right or not from some place on.
    int64_t num_guesses = std::min<int64_t>(count - 1, static_cast<int64_t>(random_() % 4));
    if (!f_.cache.reserve(end, &holder.table, num_guesses)) num_guesses = 0;
    const bool all_right = random_() % 2 == 0;
    const int64_t num_right =
        all_right ? num_guesses
                  : static_cast<int64_t>(random_() % static_cast<uint64_t>(num_guesses + 1));
    f_.cache.prepare(count - num_guesses, &holder.table, num_guesses);
    write(holder, end, num_guesses, num_right);
    const int64_t computed = f_.cache.verify(end, num_guesses, num_right, &holder.table);
    if (computed < end) ++num_taken_back_;
    f_.cache.commit(holder.tokens, computed, &holder.table);
  }
  void write(const Holder& holder, int64_t end, int64_t num_guesses, int64_t num_right) {
    std::vector<uint64_t> hashes = hashes_of(holder);
    for (int64_t p = end - num_guesses + num_right; p < end; ++p) {
      ++hashes[static_cast<size_t>(p) + 1];  // of another token
    }
    for (size_t c = 0; c < holder.table.columns.size(); ++c) {
      if (is_state_column(c)) {
        const int64_t num_known = end - num_guesses;
        at(holder, c, (num_known - 1) / kBlockTokens * kBlockTokens) =
            hashes[static_cast<size_t>(num_known)];
        const int32_t ahead = holder.table.ahead[c];
        if (num_guesses > 0)
          content_.at(static_cast<size_t>(ahead))[0] = hashes.at(static_cast<size_t>(end));
        continue;
      }
      for (int64_t p = holder.table.num_computed; p < end; ++p) {
        at(holder, c, p) = hashes[static_cast<size_t>(p) + 1];
      }
    }
  }
  void fork() {
    if (holders_.size() >= 6) return;
    Holder copy;
    const BlockTable source = holders_[pick()].table;
    for (const Holder& holder : holders_) {
      if (holder.table.names == source.names) copy.tokens = holder.tokens;
    }
    const bool from_cache = random_() % 2 == 0;
    if (from_cache && !gone_.empty()) copy.tokens = gone_[random_() % gone_.size()];
    f_.match(copy.tokens, &copy.table);
    const int64_t before = copy.table.num_computed;
    if (from_cache) {
      f_.cache.fork_cached(copy.tokens, &copy.table);
    } else {
      fork_from_holder(&copy);
    }
    for (const BlockCopy& block : f_.cache.take_copies()) {
      content_[static_cast<size_t>(block.to)] = content_[static_cast<size_t>(block.from)];
    }
    if (copy.table.num_computed > before) ++(from_cache ? num_ends_ : num_forked_);
    holders_.push_back(std::move(copy));
  }
  void fork_from_holder(Holder* copy) {
    for (const Holder& holder : holders_) {
      const auto limit = std::min(holder.tokens.size(), copy->tokens.size() - 1);
      const auto differ =
          std::mismatch(copy->tokens.begin(), copy->tokens.begin() + static_cast<ptrdiff_t>(limit),
                        holder.tokens.begin());
      const auto common = differ.first - copy->tokens.begin();
      if (holder.table.num_published < copy->table.num_published) continue;
      if (f_.cache.fork(holder.table, common, &copy->table) % kBlockTokens != 0) return;
      if (copy->table.num_computed > copy->table.num_published * kBlockTokens) return;
    }
  }
  void leave() {
    const size_t i = pick();
    if (random_() % 4 == 0) {
      f_.cache.discard(&holders_[i].table);
      f_.cache.take_tainted();
    } else {
      gone_.push_back(holders_[i].tokens);
      if (gone_.size() > 8) gone_.erase(gone_.begin());
      if (random_() % 2 == 0) f_.cache.keep_end(holders_[i].tokens, &holders_[i].table);
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
  // Every position that the next token sees was written under this sequence's tokens.
  void check_content(const Holder& holder) {
    const int64_t computed = holder.table.num_computed;
    if (computed == 0) return;
    const std::vector<uint64_t> hashes = hashes_of(holder);
    for (size_t c = 0; c < holder.table.columns.size(); ++c) {
      if (is_state_column(c)) {
        ASSERT_EQ(at(holder, c, (computed - 1) / kBlockTokens * kBlockTokens),
                  hashes[static_cast<size_t>(computed)]);
        continue;
      }
      for (int64_t p = holder.table.columns[c].first * kBlockTokens; p < computed; ++p) {
        ASSERT_EQ(at(holder, c, p), hashes[static_cast<size_t>(p) + 1])
            << "step " << step_ << ", column " << c << ", position " << p;
      }
    }
  }

  std::mt19937_64 random_;
  CacheFixture f_;
  std::vector<std::array<uint64_t, kBlockTokens>> content_;  // by block
  std::vector<std::vector<int32_t>> gone_;                   // tokens of who left
  std::vector<Holder> holders_;
  int step_ = 0;
  int64_t num_found_ = 0;
  int64_t num_forked_ = 0;      // copies of a holder's block
  int64_t num_ends_ = 0;        // of a block from the cache
  int64_t num_taken_back_ = 0;  // steps with wrong guesses
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
    EXPECT_GT(use.num_taken_back(), 100);
    const bool has_state =
        std::any_of(models[i].begin(), models[i].end(),
                    [](const CacheRule& rule) { return rule.policy == CachePolicy::kState; });
    EXPECT_EQ(use.num_forked() > 20, !has_state);
    EXPECT_EQ(use.num_ends() > 20, !has_state);
    if (HasFailure()) return;
  }
}

}  // namespace kv_cache_law_test
}  // namespace headrace
