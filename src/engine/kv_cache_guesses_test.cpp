// Guesses where there is state: which block has it before, while and after they are verified.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace kv_cache_guesses_test {

using testing::CacheFixture;
using testing::iota_tokens;
using testing::kFull;
using testing::options_of;
using testing::state_every;

// A cache of positions and state, and a sequence of so many tokens, all but the last computed.
class KvCacheGuesses : public ::testing::Test {
 protected:
  void begin(int64_t num_known) {
    table_ = f_.begin({}, 20);
    f_.compute(iota_tokens(static_cast<int32_t>(num_known - 1)), &table_);
    num_known_ = num_known;
  }
  int32_t state_at(int64_t position) const {
    return table_.columns[1].blocks[static_cast<size_t>(position / kBlockTokens)];
  }
  // The tokens that are known and guesses; the first num_right of these are right.
  void step(int64_t num_guesses, int64_t num_right) {
    const int64_t end = num_known_ + num_guesses;
    ASSERT_TRUE(f_.cache.reserve(end, &table_, num_guesses));
    f_.cache.prepare(num_known_ - table_.num_computed, &table_, num_guesses);
    f_.expect_sound({&table_});
    before_ = state_at(num_known_ - 1);
    ahead_ = table_.ahead[1];
    EXPECT_NE(ahead_, before_);
    const int64_t computed = f_.cache.verify(end, num_guesses, num_right, &table_);
    f_.cache.commit(iota_tokens(static_cast<int32_t>(end)), computed, &table_);
    num_known_ += num_right + 1;
    f_.cache.rollback(num_known_, &table_);
    f_.expect_sound({&table_});
    EXPECT_EQ(table_.ahead[1], -1);
  }

  CacheFixture f_{options_of(32, {kFull, state_every(100)})};
  BlockTable table_;
  int64_t num_known_ = 0;
  int32_t before_ = -1, ahead_ = -1;  // blocks that the step wrote states to
};

TEST_F(KvCacheGuesses, RightOnesMoveTheState) {
  begin(36);
  step(3, 3);
  EXPECT_EQ(table_.num_computed, 39);
  EXPECT_EQ(table_.num_taken_back(), 0);
  EXPECT_EQ(state_at(38), ahead_);
  EXPECT_EQ(table_.columns[1].spare, before_);  // for the next step
}

TEST_F(KvCacheGuesses, AWrongOneLeavesTheStateBeforeAllOfThem) {
  begin(36);
  step(3, 2);
  EXPECT_EQ(table_.num_computed, 36);
  EXPECT_EQ(table_.num_taken_back(), 2);
  EXPECT_EQ(state_at(35), before_);
  EXPECT_EQ(table_.columns[1].spare, ahead_);
  step(2, 2);  // with the two once more
  EXPECT_EQ(table_.num_computed, 41);
  EXPECT_EQ(table_.num_taken_back(), 0);
  EXPECT_EQ(state_at(40), ahead_);
}

// The block after 47 begins with the last of the guesses, with the first, with the token before.
TEST_F(KvCacheGuesses, BlocksMayEndAnywhereAmongThem) {
  for (const int64_t num_known : {46, 47, 48, 49}) {
    for (int64_t num_right = 0; num_right <= 2; ++num_right) {
      begin(num_known);
      step(2, num_right);
      EXPECT_EQ(table_.num_computed, num_right == 2 ? num_known + 2 : num_known);
      EXPECT_EQ(state_at(table_.num_computed - 1), num_right == 2 ? ahead_ : before_);
      step(2, 1);
      f_.cache.release(&table_);
      EXPECT_EQ(f_.cache.pool().num_used(), 0);
    }
  }
}

TEST_F(KvCacheGuesses, OneMoreBlockOnlyWhereTheTokensBeforeThemTakeTheSpareOne) {
  begin(36);
  ASSERT_TRUE(f_.cache.reserve(36, &table_));
  EXPECT_EQ(f_.cache.missing(38, table_, 2), 0);
  f_.cache.release(&table_);
  begin(49);  // 48 are computed: the state after 49 has no block yet
  ASSERT_TRUE(f_.cache.reserve(49, &table_));
  EXPECT_EQ(f_.cache.missing(51, table_, 0), 0);
  EXPECT_EQ(f_.cache.missing(51, table_, 2), 1);
}

TEST_F(KvCacheGuesses, WhoFailsTaintsBothStates) {
  begin(36);
  ASSERT_TRUE(f_.cache.reserve(38, &table_, 2));
  f_.cache.prepare(1, &table_, 2);
  const std::vector<int32_t> wrote = {state_at(35), table_.ahead[1]};
  f_.cache.discard(&table_);
  const std::vector<int32_t> tainted = f_.cache.take_tainted();
  for (const int32_t block_id : wrote) {
    EXPECT_EQ(std::count(tainted.begin(), tainted.end(), block_id), 1) << block_id;
  }
  f_.expect_sound({});
}

}  // namespace kv_cache_guesses_test
}  // namespace headrace
