// Points of a plan: what bounds them, and what is told of their runs.
#include "bench/step_points.h"

#include <gtest/gtest.h>

namespace headrace {
namespace step_points_test {

constexpr double kPeak = 1e9;       // operations per second
constexpr double kBandwidth = 1e8;  // bytes per second

Ceilings ceilings() {
  return Ceilings({{"one", cpu::PeakKind::kF32, 0, {kPeak, kPeak}}}, 0, kBandwidth);
}

// One layer, 1000 bytes of weights, 10 bytes of keys and values a position.
StepWork small_work() {
  StepWork work;
  work.linear = {{cpu::PeakKind::kF32, 1, 2000, 500}};
  work.weight_bytes = 1000;
  work.mixers = {{.operations_per_position = 32, .position_bytes = 10}};
  return work;
}

TEST(StepPoints, AreMadeInTheOrderOfThePlan) {
  const PointPlan plan{{16, 64}, {0, 8}, {3}, 4, 32, 1};
  const auto points = make_points(small_work(), plan, ceilings(), 16);
  ASSERT_EQ(points.size(), 5u);
  constexpr PointKind kKinds[] = {PointKind::kPrefill, PointKind::kPrefill, PointKind::kDecode,
                                  PointKind::kDecode, PointKind::kBatch};
  constexpr int64_t kSizes[] = {16, 64, 0, 8, 3};
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].kind, kKinds[i]) << i;
    EXPECT_EQ(points[i].size, kSizes[i]) << i;
  }
  EXPECT_TRUE(make_points(small_work(), {}, ceilings(), 16).empty());
}

TEST(StepPoints, APromptReadsTheWeightsOncePerChunkAndWhatWasBefore) {
  const StepWork work = small_work();
  const PointPlan plan{{16, 17, 48}, {}, {}, 4, 32, 1};
  const auto points = make_points(work, plan, ceilings(), 16);
  EXPECT_EQ(points[0].bytes, 1000);
  EXPECT_EQ(points[1].bytes, 2000 + work.kv_bytes(16));
  EXPECT_EQ(points[2].bytes, 3000 + work.kv_bytes(16) + work.kv_bytes(32));
  EXPECT_EQ(points[2].num_tokens, 48);
  EXPECT_EQ(points[2].working_set, 1000u);
  EXPECT_GT(points[2].arithmetic_s, (48 * 2000.0 + 500) / kPeak) << "attention counts too";
}

TEST(StepPoints, ABatchReadsTheWeightsOnceForAll) {
  const StepWork work = small_work();
  const PointPlan plan{{}, {100}, {1, 8}, 10, 100, 1};
  const auto points = make_points(work, plan, ceilings(), 16);
  EXPECT_EQ(points[0].bytes, 10 * (1000 + work.kv_bytes(105)));
  EXPECT_EQ(points[1].bytes, points[0].bytes) << "one sequence is one sequence";
  EXPECT_EQ(points[2].bytes, 10 * (1000 + 8 * work.kv_bytes(105)));
  EXPECT_EQ(points[0].num_tokens, 10);
  EXPECT_EQ(points[2].num_tokens, 80);
  EXPECT_NEAR(points[2].arithmetic_s, 8 * points[1].arithmetic_s, 1e-12);
}

class SizedAdapter final : public PackedAdapter {
 public:
  size_t num_bytes() const override { return 300; }
};

TEST(StepPoints, WithAdaptersEveryPointComesTwice) {
  const SizedAdapter adapter;
  PointPlan plan{{16}, {}, {1, 8}, 10, 100, 1};
  plan.adapters.assign(2, &adapter);
  const auto points = make_points(small_work(), plan, ceilings(), 16);
  ASSERT_EQ(points.size(), 6u);
  for (size_t i = 0; i < points.size(); i += 2) {
    const Point &plain = points[i], &with = points[i + 1];
    EXPECT_FALSE(plain.adapted);
    EXPECT_TRUE(with.adapted);
    EXPECT_EQ(plain.size, with.size);
    EXPECT_EQ(plain.kind, with.kind);
  }
  EXPECT_EQ(points[1].bytes, points[0].bytes + 300) << "one step, one sequence";
  EXPECT_EQ(points[3].working_set, points[2].working_set + 300);
  EXPECT_EQ(points[5].working_set, points[4].working_set + 600) << "two for eight sequences";
}

TEST(StepPoints, RoomIsThatOfTheLargestPoint) {
  const auto room = room_for({{16, 64}, {0, 100}, {1, 8}, 10, 50, 1});
  EXPECT_EQ(room.single_tokens, 110);
  EXPECT_EQ(room.max_sequences, 8);
  EXPECT_EQ(room.batch_tokens, 60);
  const auto prompts = room_for({{16, 640}, {100}, {}, 10, 50, 1});
  EXPECT_EQ(prompts.single_tokens, 640);
  EXPECT_EQ(prompts.max_sequences, 1);
  EXPECT_EQ(prompts.batch_tokens, 0);
  EXPECT_GT(room_for({}).single_tokens, 0) << "contexts are filled from something";
}

Point timed(std::vector<double> seconds, double arithmetic_s, double bytes) {
  Point point{PointKind::kDecode, 5, 100, arithmetic_s, bytes, 1000, {}};
  point.seconds = std::move(seconds);
  point.joins_per_step = 22;
  return point;
}

TEST(StepPoints, TheMedianCountsBesideTheLimit) {
  auto limits = ceilings();
  const auto figures = figures_of(timed({0.5, 0.1, 0.2}, 0.01, 5e6), 4, limits);
  ASSERT_TRUE(figures.ok());
  EXPECT_DOUBLE_EQ(figures->tokens_per_s, 500);
  EXPECT_DOUBLE_EQ(figures->lowest, 200);
  EXPECT_DOUBLE_EQ(figures->highest, 1000);
  EXPECT_TRUE(figures->bound_by_memory);
  EXPECT_DOUBLE_EQ(figures->limit, 100 / (5e6 / kBandwidth));
  EXPECT_DOUBLE_EQ(figures->joins_per_layer, 5.5);
}

TEST(StepPoints, TheSlowerOfMemoryAndArithmeticIsTheLimit) {
  auto limits = ceilings();
  const auto figures = figures_of(timed({1}, 0.2, 5e6), 0, limits);
  EXPECT_FALSE(figures->bound_by_memory);
  EXPECT_DOUBLE_EQ(figures->limit, 500);
  EXPECT_DOUBLE_EQ(figures->joins_per_layer, 22) << "without layers";
}

TEST(StepPoints, WhatIsExpectedStandsBesideTheLimit) {
  auto limits = ceilings();
  Point point = timed({0.5, 0.1, 0.2}, 0.01, 5e6);
  EXPECT_EQ(figures_of(point, 4, limits)->expected, 0) << "nothing is";
  point.expected = ExpectedStep{.products_s = 0.15, .attention_s = 0.05, .other_s = 0.05};
  EXPECT_DOUBLE_EQ(figures_of(point, 4, limits)->expected, 400);
  EXPECT_DOUBLE_EQ(figures_of(point, 4, limits)->limit, 100 / (5e6 / kBandwidth));
}

TEST(StepPoints, ARunOfManyStepsIsExpectedOfAllOfThem) {
  MachineFile machine;
  machine.limits.num_threads = 1;
  machine.limits.reads = {{1024, {kBandwidth, kBandwidth}}};
  machine.rates.add({RatedOp::kJoin, "", 1, 0, 1e-3});
  machine.rates.add({RatedOp::kRope, "", 1, 0, 1e-9});
  StepWork work;
  work.mixers.resize(2);
  PointPlan plan{{16, 64}, {8}, {3}, 10, 32, 1};
  std::vector<Point> points = make_points(work, plan, ceilings(), 16);
  expect_points(ExpectedTimes(work, machine), plan, 16, &points);
  constexpr double kSteps[] = {1, 4, 10, 10};
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_TRUE(points[i].expected) << i;
    EXPECT_NEAR(points[i].expected->seconds(), kSteps[i] * 2e-3, 1e-9) << i;
  }
  points[0].adapted = true;
  points[0].expected.reset();
  expect_points(ExpectedTimes(work, machine), plan, 16, &points);
  EXPECT_FALSE(points[0].expected) << "adapters have no rates";
}

TEST(StepPoints, PeaksThatTheKernelsDoNotUseAreNoLimit) {
  const std::vector<cpu::PeakRate> peaks = {{"base", cpu::PeakKind::kF32, 0, {1e9, 1e9}},
                                            {"wide", cpu::PeakKind::kF32, 2, {8e9, 8e9}}};
  StepWork work;
  work.mixers = {{.operations_per_token = 4e9}};
  EXPECT_DOUBLE_EQ(work.mixer_seconds(0, 1, peaks, 0), 4);
  EXPECT_DOUBLE_EQ(work.mixer_seconds(0, 1, peaks, 2), 0.5);
  EXPECT_DOUBLE_EQ(work.mixer_seconds(0, 1, {}, 2), 0) << "no peak is known";
}

TEST(StepPointsDeathTest, APointThatWasNotTimedHasNoFigures) {
  auto limits = ceilings();
  EXPECT_DEATH((void)figures_of(timed({}, 1, 1), 1, limits), "decode 5 was not timed");
}

}  // namespace step_points_test
}  // namespace headrace
