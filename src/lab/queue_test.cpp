#include "lab/queue.h"

#include <gtest/gtest.h>

namespace headrace::lab::queue_test {

Hypothesis hypothesis_of(int64_t id, double worth = 1) {
  Hypothesis made;
  made.id = id;
  made.state = "open";
  made.worth = worth;
  return made;
}

Experiment experiment_of(int64_t id, int64_t hypothesis, double cost_s = 10) {
  Experiment made;
  made.id = id;
  made.hypothesis_id = hypothesis;
  made.cost_s = cost_s;
  made.sides.resize(2);
  made.state = "queued";
  return made;
}

std::vector<int64_t> ids(const std::vector<Place>& order) {
  std::vector<int64_t> found;
  for (const Place& place : order) found.push_back(place.experiment_id);
  return found;
}

TEST(Belief, FollowsTheEvidence) {
  EXPECT_DOUBLE_EQ(belief({}), 0.5);
  const std::vector<Effect> for_it = {{5, 0, 0, 0, 1.5, {}}, {5, 0, 0, 0, 1.5, {}}};
  EXPECT_NEAR(belief(for_it), 0.952574, 1e-6);
  const std::vector<Effect> against = {{5, 0, 0, 0, -3, {}}};
  EXPECT_NEAR(belief(against), 0.047426, 1e-6);
}

TEST(ExpectedBits, AreMostWhereNothingIsKnown) {
  EXPECT_NEAR(expected_bits(0.5), 0.7136, 1e-4);
  EXPECT_LT(expected_bits(0.9), expected_bits(0.5));
  EXPECT_NEAR(expected_bits(0), 0, 1e-12);
  EXPECT_NEAR(expected_bits(1), 0, 1e-12);
}

TEST(OrderQueue, CheapAndWorthwhileComeFirst) {
  const std::vector<Hypothesis> hypotheses = {hypothesis_of(1), hypothesis_of(2, 10)};
  const std::vector<Experiment> experiments = {experiment_of(1, 1, 100), experiment_of(2, 1, 10),
                                               experiment_of(3, 2, 50), experiment_of(4, 0, 10)};
  EXPECT_EQ(ids(order_queue(experiments, hypotheses, {})), (std::vector<int64_t>{3, 2, 1, 4}));
}

TEST(OrderQueue, WhatIsAlmostKnownWaits) {
  const std::vector<Hypothesis> hypotheses = {hypothesis_of(1), hypothesis_of(2)};
  const std::vector<Experiment> experiments = {experiment_of(1, 1), experiment_of(2, 2)};
  const std::map<int64_t, std::vector<Effect>> effects = {{1, {{5, 0, 0, 0, 2.5, {}}}}};
  const auto order = order_queue(experiments, hypotheses, effects);
  EXPECT_EQ(ids(order), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(order[0].reason, "0.71 bits about hypothesis 2 (believed 50 %) in about 160 s");
}

TEST(OrderQueue, QuestionsOfSeveralSidesCountTogether) {
  const std::vector<Hypothesis> hypotheses = {hypothesis_of(1), hypothesis_of(2), hypothesis_of(3)};
  std::vector<Experiment> experiments = {experiment_of(1, 1), experiment_of(2, 0)};
  experiments[1].sides.resize(3);
  experiments[1].sides[1].hypothesis_id = 2;
  experiments[1].sides[2].hypothesis_id = 3;
  const auto order = order_queue(experiments, hypotheses, {});
  EXPECT_EQ(ids(order), (std::vector<int64_t>{2, 1})) << "twice the bits of one half as dear again";
  EXPECT_EQ(order[0].reason, "1.43 bits about 2 hypotheses in about 240 s");
}

TEST(OrderQueue, APersonsWordGoesFirst) {
  const std::vector<Hypothesis> hypotheses = {hypothesis_of(1)};
  std::vector<Experiment> experiments;
  for (int64_t id = 1; id <= 5; ++id) experiments.push_back(experiment_of(id, 1));
  experiments[4].pinned = true;
  experiments[3].place = 1;
  experiments[2].place = 2;
  experiments[0].paused = true;
  EXPECT_EQ(ids(order_queue(experiments, hypotheses, {})), (std::vector<int64_t>{5, 4, 3, 2}));
}

TEST(OrderQueue, OnlyWhatWaits) {
  std::vector<Experiment> experiments = {experiment_of(1, 0), experiment_of(2, 0)};
  experiments[0].state = "done";
  EXPECT_EQ(ids(order_queue(experiments, {}, {})), (std::vector<int64_t>{2}));
}

}  // namespace headrace::lab::queue_test
