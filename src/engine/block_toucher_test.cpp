#include "engine/block_toucher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace headrace {
namespace {

using namespace std::chrono_literals;

// What was touched, in order.
class Touched {
 public:
  void add(int32_t block_id) {
    std::lock_guard lock(mutex_);
    ids_.push_back(block_id);
    changed_.notify_all();
  }
  // Once there are so many, or after a while.
  std::vector<int32_t> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 10s, [&] { return ids_.size() >= count; });
    return ids_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> ids_;
};

TEST(BlockToucher, TouchesEachBlockOnceAndAFewAhead) {
  Touched touched;
  {
    BlockToucher toucher(100, 4, [&](int32_t id) { touched.add(id); });
    EXPECT_TRUE(touched.wait_for(0).empty());  // nothing before something is used
    toucher.used(0);
    EXPECT_EQ(touched.wait_for(4), (std::vector<int32_t>{0, 1, 2, 3}));
    toucher.used(1);  // three of four are left
    toucher.used(2);
    EXPECT_EQ(touched.wait_for(6), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    toucher.used(2);
  }
  EXPECT_EQ(touched.wait_for(0).size(), 6u);
}

TEST(BlockToucher, EndsWithTheLastBlock) {
  Touched touched;
  {
    BlockToucher toucher(10, 64, [&](int32_t id) { touched.add(id); });
    toucher.used(3);
    EXPECT_EQ(touched.wait_for(10).size(), 10u);
    toucher.used(10);
  }
  EXPECT_EQ(touched.wait_for(0).size(), 10u);
}

TEST(BlockToucher, IsGoneBeforeAllIsTouched) {
  Touched touched;
  {
    BlockToucher toucher(1'000'000'000, 1'000'000'000, [&](int32_t id) { touched.add(id); });
    toucher.used(0);
    touched.wait_for(1);
  }
  EXPECT_LT(touched.wait_for(0).size(), 1'000'000'000u);
}

}  // namespace
}  // namespace headrace
