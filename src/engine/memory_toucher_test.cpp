#include "engine/memory_toucher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <vector>

namespace headrace {
namespace {

using namespace std::chrono_literals;

// What was touched, in order.
class Touched {
 public:
  void add(int64_t piece) {
    std::lock_guard lock(mutex_);
    pieces_.push_back(piece);
    changed_.notify_all();
  }
  // Once there are so many, or after a while.
  std::vector<int64_t> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 10s, [&] { return pieces_.size() >= count; });
    return pieces_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> pieces_;
};

std::vector<int64_t> first_pieces(size_t count) {
  std::vector<int64_t> pieces(count);
  std::iota(pieces.begin(), pieces.end(), 0);
  return pieces;
}

class MemoryToucherTest : public ::testing::Test {
 protected:
  void begin(const MemoryTouching& options) {
    toucher_ =
        std::make_unique<MemoryToucher>(options, [this](int64_t piece) { touched_.add(piece); });
  }
  void touch_all(int64_t num_claimed) {
    for (int64_t i = 0; i < num_claimed; ++i) toucher_->touch_claimed(i);
  }

  Touched touched_;
  std::unique_ptr<MemoryToucher> toucher_;
};

TEST_F(MemoryToucherTest, WhoRestsHasAFewAhead) {
  begin({.num_pieces = 100, .num_ahead = 4, .pieces_at_once = 2});
  EXPECT_TRUE(touched_.wait_for(0).empty());  // nothing before something is asked for
  toucher_->rest(0);
  EXPECT_EQ(touched_.wait_for(4), first_pieces(4));
  toucher_->rest(3);
  EXPECT_EQ(touched_.wait_for(7), first_pieces(7));
  toucher_->rest(3);
  toucher_.reset();
  EXPECT_EQ(touched_.wait_for(0).size(), 7u);
}

TEST_F(MemoryToucherTest, AStepClaimsWhatItNeedsAndAFewMoreWhenFewAreLeft) {
  begin({.num_pieces = 100, .num_ahead = 4, .pieces_at_once = 2});
  toucher_->rest(0);
  touched_.wait_for(4);
  EXPECT_EQ(toucher_->claim(1), 0) << "three of four are left";
  EXPECT_EQ(toucher_->claim(2), 2) << "half is used up";
  touch_all(2);
  EXPECT_EQ(toucher_->claim(3), 0);
  EXPECT_EQ(toucher_->claim(11), 5) << "what it needs";
  touch_all(5);
  EXPECT_EQ(touched_.wait_for(0), first_pieces(11));
  toucher_->go_on();  // the thread has no core beside steps
  EXPECT_EQ(toucher_->claim(100), 89);
  touch_all(89);
  EXPECT_EQ(toucher_->claim(100), 0);
  EXPECT_EQ(touched_.wait_for(0), first_pieces(100));
}

TEST_F(MemoryToucherTest, AThreadWithACoreGoesOnBesideSteps) {
  begin({.num_pieces = 100, .num_ahead = 4, .pieces_at_once = 2, .has_core = true});
  toucher_->rest(0);
  touched_.wait_for(4);
  EXPECT_EQ(toucher_->claim(1), 0);
  toucher_->go_on();
  EXPECT_EQ(toucher_->claim(2), 0) << "it is the thread's to go ahead";
  toucher_->go_on();
  EXPECT_EQ(touched_.wait_for(6), first_pieces(6));
  EXPECT_EQ(toucher_->claim(8), 2) << "it was not fast enough";
  touch_all(2);
  toucher_.reset();
  EXPECT_EQ(touched_.wait_for(0), first_pieces(8));
}

TEST_F(MemoryToucherTest, EndsWithTheLastPiece) {
  begin({.num_pieces = 10, .num_ahead = 64, .pieces_at_once = 2});
  toucher_->rest(3);
  EXPECT_EQ(touched_.wait_for(10), first_pieces(10));
  EXPECT_EQ(toucher_->claim(10), 0);
}

TEST_F(MemoryToucherTest, EachPieceIsTouchedOnceWhoeverIsFirst) {
  begin({.num_pieces = 2000, .num_ahead = 500, .pieces_at_once = 3});
  for (int64_t used = 0; used < 2000; used += 7) {
    toucher_->rest(used);
    touch_all(toucher_->claim(used + 5));
  }
  toucher_->rest(2000);
  std::vector<int64_t> pieces = touched_.wait_for(2000);
  std::sort(pieces.begin(), pieces.end());
  EXPECT_EQ(pieces, first_pieces(2000));
}

TEST_F(MemoryToucherTest, IsGoneBeforeAllIsTouched) {
  begin({.num_pieces = 1'000'000'000, .num_ahead = 1'000'000'000});
  toucher_->rest(0);
  touched_.wait_for(1);
  toucher_.reset();
  EXPECT_LT(touched_.wait_for(0).size(), 1'000'000'000u);
}

}  // namespace
}  // namespace headrace
