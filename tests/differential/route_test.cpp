// The router of a mixture of experts: every form that a family has against float64, ties, groups,
// logits that are no numbers.
#include <gtest/gtest.h>

#include "routing_cases.h"

namespace headrace {
namespace {

using Floats = std::vector<float>;

TEST(Route, FollowsFloat64InEveryForm) {
  struct Case {
    int64_t rows, experts, chosen;
    int groups, kept;
  };
  constexpr Case kCases[] = {{1, 1, 1, 1, 1},    {1, 4, 2, 2, 1},     {5, 2, 2, 1, 1},
                             {33, 9, 3, 3, 2},   {9, 64, 8, 8, 4},    {7, 64, 6, 16, 3},
                             {40, 128, 8, 4, 1}, {3, 4096, 5, 64, 7}, {2, 6, 2, 6, 3}};
  Random random(21);
  int num_rows = 0;
  for (const Case& c : kCases) {
    const Floats logits = random_floats(static_cast<size_t>(c.rows * c.experts), random);
    const auto rules = rules_for(static_cast<size_t>(c.experts), c.groups, c.kept, random);
    for (size_t r = 0; r < rules.size(); ++r) {
      SCOPED_TRACE(fmt::format("{} of {} experts, rule {}", c.chosen, c.experts, r));
      Routed routed(c.rows, c.experts, c.chosen);
      route(logits, rules[r], &routed);
      for (int64_t row = 0; row < c.rows; ++row, ++num_rows) {
        const auto of_row = std::span(logits).subspan(static_cast<size_t>(row * c.experts),
                                                      static_cast<size_t>(c.experts));
        const auto expected = choices_of(of_row, c.chosen, rules[r]);
        for (size_t j = 0; j < expected.size(); ++j) {
          const size_t at = static_cast<size_t>(row * c.chosen) + j;
          EXPECT_EQ(routed.experts[at], expected[j].expert);
          EXPECT_NEAR(routed.weights[at], expected[j].weight, 2e-6 * std::abs(expected[j].weight));
        }
      }
    }
  }
  EXPECT_EQ(num_rows, 101 * 10);
}

TEST(Route, TiesGoToTheLowestExpert) {
  struct Case {
    Floats logits;
    std::vector<int32_t> experts;
  };
  const Case kCases[] = {
      {{1, 1, 1, 1}, {0, 1, 2}},
      {{0, 2, 1, 2}, {1, 3, 2}},
      {{3, -3, 3, 3}, {0, 2, 3}},
      {{-0.0f, 0.0f, -1, 0.0f}, {0, 1, 3}},
      {{-200, -200, 0, -200}, {2, 0, 1}},       // the rest underflow to equal scores
      {{INFINITY, 0, INFINITY, 1}, {0, 1, 2}},  // no numbers: still three of the four
      {{NAN, 0, 1, 2}, {0, 1, 2}},
      {{-INFINITY, -INFINITY, 5, -INFINITY}, {2, 0, 1}},
  };
  for (const Case& c : kCases) {
    Routed routed(1, 4, 3);
    route(c.logits, {}, &routed);
    EXPECT_EQ(routed.experts, c.experts) << fmt::format("{}", c.logits[0]);
  }
}

// The bias chooses, the weights are those of the scores alone.
TEST(Route, ABiasOnlySelects) {
  const Floats logits = {2, 1, 0, -1};
  const Rule rule{{.score = RouterScore::kSigmoid}, {0, 0, 5, 5}};
  Routed routed(1, 4, 2);
  route(logits, rule, &routed);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{2, 3}));
  EXPECT_FLOAT_EQ(routed.weights[0], 0.5f);
  EXPECT_FLOAT_EQ(routed.weights[1], 1 / (1 + std::exp(1.0f)));
}

// Of equal groups the first ones stay; a group that is left out can only be chosen where it scores.
TEST(Route, GroupsLimitTheChoice) {
  const Floats logits = {0, 3, 1, 1, 3, 0};  // groups of two: {0, 3}, {1, 1}, {3, 0}
  Rule rule{{.num_groups = 3, .num_groups_kept = 1, .group_score = GroupScore::kMaximum}};
  Routed two(1, 6, 3);
  route(logits, rule, &two);
  EXPECT_EQ(two.experts, (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(two.weights[2], 0.0f);  // out of the group, with nothing to say
  rule.router.group_score = GroupScore::kSumOfTwo;
  rule.router.score = RouterScore::kSigmoid;
  Routed three(1, 6, 3);
  route(logits, rule, &three);
  const std::vector<int32_t> first = {three.experts[0], three.experts[1]};
  EXPECT_EQ(first, (std::vector<int32_t>{2, 3}));  // 1 + 1 beats 0 + 3: as sigmoids 1.46 to 1.45
  rule.router.num_groups_kept = 2;
  Routed four(1, 6, 4);
  route(logits, rule, &four);
  EXPECT_EQ(four.experts, (std::vector<int32_t>{1, 2, 3, 0}));
}

// Each once and in range, whatever the logits and biases are.
TEST(Route, WhatIsNoNumberChoosesInRange) {
  const float values[] = {NAN, INFINITY, -INFINITY, 0.0f, 1e38f, -1e38f};
  Random random(77);
  for (int trial = 0; trial < 200; ++trial) {
    Floats logits(8), bias(8);
    for (float& value : logits) value = values[random() % 6];
    for (float& value : bias) value = values[random() % 6];
    auto rules = rules_for(8, 4, 2, random);
    for (Rule& rule : rules) {
      if (!rule.bias.empty()) rule.bias = bias;
      Routed routed(1, 8, 5);
      route(logits, rule, &routed);
      std::vector<int32_t> experts = routed.experts;
      std::sort(experts.begin(), experts.end());
      EXPECT_EQ(std::adjacent_find(experts.begin(), experts.end()), experts.end());
      EXPECT_GE(experts.front(), 0);
      EXPECT_LT(experts.back(), 8);
    }
  }
}

}  // namespace
}  // namespace headrace
