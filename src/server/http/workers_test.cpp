#include "server/http/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

namespace headrace {
namespace workers_test {

using Answer = WorkerPool::Answer;

// A pool whose one thread is kept busy until the test lets it go.
struct HeldPool {
  explicit HeldPool(size_t max_waiting) : pool(1, max_waiting) {
    std::promise<void> begun;
    pool.submit(0, [this, &begun] {
      begun.set_value();
      gate.get_future().wait();
    });
    begun.get_future().wait();
  }
  std::promise<void> gate;
  WorkerPool pool;
};

TEST(WorkerPool, ClientsTakeTurns) {
  HeldPool held(100);
  std::string order;
  std::promise<void> done;
  for (int i = 0; i < 4; ++i) held.pool.submit(1, [&] { order += 'a'; });
  for (int i = 0; i < 2; ++i) held.pool.submit(2, [&] { order += 'b'; });
  held.pool.submit(3, [&] { order += 'c'; });
  held.pool.submit(1, [&] { done.set_value(); });
  held.gate.set_value();
  done.get_future().wait();
  EXPECT_EQ(order, "abcabaa");
}

TEST(WorkerPool, WhatWaitsIsBoundedForAllAndForEach) {
  HeldPool held(8);
  EXPECT_EQ(held.pool.submit(1, [] {}), Answer::kTaken);
  EXPECT_EQ(held.pool.submit(1, [] {}), Answer::kTaken);
  EXPECT_EQ(held.pool.submit(1, [] {}), Answer::kClientFull);
  for (uint64_t client = 2; client < 8; ++client) {
    EXPECT_EQ(held.pool.submit(client, [] {}), Answer::kTaken);
  }
  EXPECT_EQ(held.pool.submit(9, [] {}), Answer::kFull);
  held.gate.set_value();
}

TEST(WorkerPool, CloseDropsWhatWaits) {
  HeldPool held(8);
  auto owned = std::make_shared<int>(1);
  std::atomic<bool> ran = false;
  held.pool.submit(1, [owned, &ran] { ran = true; });
  EXPECT_EQ(owned.use_count(), 2);
  held.pool.close();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(held.pool.submit(1, [] {}), Answer::kFull);
  held.gate.set_value();
  held.pool.stop();
  EXPECT_FALSE(ran);
}

}  // namespace workers_test
}  // namespace headrace
