#include "engine/session_memory.h"

#include <gtest/gtest.h>

namespace headrace {
namespace session_memory_test {

using Tokens = std::vector<int32_t>;

constexpr Digest kFirst{1, 1}, kSecond{2, 2}, kRoot{9, 9};

TEST(SessionMemory, TellsWhatASessionHadUnderItsOwnName) {
  SessionMemory memory(8, 1000);
  memory.keep({kFirst, kRoot, 0, {1, 2, 3}});
  ASSERT_NE(memory.find(kFirst, Tokens{1}), nullptr);
  EXPECT_EQ(memory.find(kFirst, Tokens{7})->tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(memory.find(kFirst, Tokens{7})->root, kRoot);
  EXPECT_EQ(memory.find(kSecond, Tokens{1, 2, 3}), nullptr);
  EXPECT_EQ(memory.newest(kSecond), nullptr);
}

TEST(SessionMemory, WhatGoesOnReplacesWhatItWentOnFrom) {
  SessionMemory memory(8, 1000);
  memory.keep({kFirst, kRoot, 0, {1, 2}});
  memory.keep({kFirst, kRoot, 0, {1, 2, 3}});
  EXPECT_EQ(memory.num_branches(), 1u);
  memory.keep({kFirst, kRoot, 0, {1, 5}});  // another branch
  EXPECT_EQ(memory.num_branches(), 2u);
  EXPECT_EQ(memory.find(kFirst, Tokens{1, 2, 9})->tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(memory.find(kFirst, Tokens{1, 5, 9})->tokens, (Tokens{1, 5}));
  EXPECT_EQ(memory.newest(kFirst)->tokens, (Tokens{1, 5}));
}

TEST(SessionMemory, ASessionHasAFewBranches) {
  SessionMemory memory(100, 1000);
  for (int32_t i = 0; i < 10; ++i) memory.keep({kFirst, kRoot, 0, {i, i}});
  EXPECT_EQ(memory.num_branches(), static_cast<size_t>(SessionMemory::kMaxBranches));
  EXPECT_EQ(memory.find(kFirst, Tokens{9})->tokens, (Tokens{9, 9}));
}

TEST(SessionMemory, IsBoundedInEntriesAndTokens) {
  SessionMemory memory(3, 100);
  for (uint64_t i = 0; i < 5; ++i) memory.keep({{i, 0}, kRoot, 0, Tokens(10, 1)});
  EXPECT_EQ(memory.num_branches(), 3u);
  EXPECT_EQ(memory.newest({1, 0}), nullptr);
  ASSERT_NE(memory.find({2, 0}, Tokens{1}), nullptr);  // used: now 3 is the oldest
  memory.keep({{7, 0}, kRoot, 0, Tokens(85, 1)});
  EXPECT_LE(memory.num_tokens(), 100u);
  EXPECT_EQ(memory.newest({3, 0}), nullptr);
  EXPECT_NE(memory.newest({2, 0}), nullptr);
  memory.keep({{8, 0}, kRoot, 0, Tokens(101, 1)});
  EXPECT_EQ(memory.newest({8, 0}), nullptr);
  memory.clear();
  EXPECT_EQ(memory.num_branches(), 0u);
  EXPECT_EQ(memory.num_tokens(), 0u);
}

}  // namespace session_memory_test
}  // namespace headrace
