#include "base/turn_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace turn_lock_test {

TEST(TurnLock, OneAtATime) {
  TurnLock lock;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4 * 500);
}

// Who gives the lock back and asks again comes after those that wait: with two that always want it
// nobody has it twice running, once both have begun.
TEST(TurnLock, TheyTakeTurns) {
  TurnLock lock;
  std::string order;
  std::atomic<int> num_begun = 0;
  const auto work = [&](char name) {
    ++num_begun;
    while (num_begun < 2) std::this_thread::yield();
    for (int k = 0; k < 30; ++k) {
      std::lock_guard guard(lock);
      order += name;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the other asks meanwhile
    }
  };
  std::thread a(work, 'a'), b(work, 'b');
  a.join();
  b.join();
  const size_t middle = 10;
  size_t num_repeats = 0;
  for (size_t i = middle; i < 50; ++i) num_repeats += order[i] == order[i - 1] ? 1 : 0;
  EXPECT_LE(num_repeats, 4u) << order;
}

}  // namespace turn_lock_test
}  // namespace headrace
