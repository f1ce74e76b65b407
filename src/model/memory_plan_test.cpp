#include "model/memory_plan.h"

#include <gtest/gtest.h>

namespace headrace {
namespace memory_plan_test {

constexpr size_t kMebibyte = size_t{1} << 20;

MemoryPlan plan_of(size_t weights, size_t workspace, size_t other) {
  MemoryPlan plan;
  plan.weights = weights * kMebibyte;
  plan.workspace = workspace * kMebibyte;
  plan.other = other * kMebibyte;
  return plan;
}

TEST(MemoryPlan, WhatFitsToTheLastByteFits) {
  const MemoryPlan plan = plan_of(100, 20, 3);
  const size_t needed = plan.total(40 * kMebibyte);
  EXPECT_EQ(needed, 163 * kMebibyte);
  EXPECT_TRUE(check_memory(plan, 40 * kMebibyte, {needed, "free memory", ""}).ok());
  EXPECT_FALSE(check_memory(plan, 40 * kMebibyte, {needed - 1, "free memory", ""}).ok());
  EXPECT_TRUE(check_memory(plan, 40 * kMebibyte, {}).ok()) << "nothing tells a limit";
}

TEST(MemoryPlan, AShortageSaysWhereMemoryGoesAndWhatToDo) {
  const MemoryPlan plan = plan_of(2048, 256, 64);
  const MemorySupply supply{1024 * kMebibyte, "the control group '/x'", "raise its memory.max"};
  const Status given = check_memory(plan, 512 * kMebibyte, supply);
  ASSERT_FALSE(given.ok());
  const Error& error = given.error();
  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_EQ(error.message,
            "not enough memory: this model needs 2.8 GiB (weights 2 GiB, keys and values 512 MiB, "
            "activations 256 MiB, the rest 64 MiB), but the control group '/x' leaves 1 GiB");
  EXPECT_EQ(error.hint,
            "raise its memory.max, take a smaller model or quantisation, or lower --kv-memory");
}

// Who left the cache's size to the program cannot lower it.
TEST(MemoryPlan, TheRemedyIsAnOptionThatCounts) {
  const MemorySupply supply{kMebibyte, "free memory", "end other programs"};
  const Status left = check_memory(plan_of(10, 1, 1), 0, supply);
  ASSERT_FALSE(left.ok());
  EXPECT_TRUE(left.error().hint.ends_with("or lower --batch-tokens")) << left.error().hint;
}

}  // namespace memory_plan_test
}  // namespace headrace
