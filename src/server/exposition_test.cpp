#include "server/exposition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace {

TEST(ExpertLoad, IsTheShareOfTheBusiestAndOfTheIdlest) {
  const ExpertLoad load = expert_load({3, {30, 10, 0, 60}});
  EXPECT_DOUBLE_EQ(load.largest, 0.6);
  EXPECT_DOUBLE_EQ(load.smallest, 0);
  EXPECT_EQ(load.num_unused, 1);
  EXPECT_DOUBLE_EQ(expert_load({0, {5, 5}}).smallest, 0.5);
}

TEST(ExpertLoad, BeforeAnyTokenNothingIsShared) {
  const ExpertLoad load = expert_load({0, {0, 0, 0}});
  EXPECT_EQ(load.largest, 0);
  EXPECT_EQ(load.smallest, 0);
  EXPECT_EQ(load.num_unused, 3);
}

TEST(ExpertMetrics, AreThreeSeriesForEachLayer) {
  const std::vector<ExpertRows> layers = {{1, {1, 3}}, {2, {4, 0}}};
  const std::string text = expert_metrics_text("a \"b\"", layers, false);
  const std::string labels = "{model_name=\"a \\\"b\\\"\",engine=\"0\",layer=";
  for (const std::string& line : {"headrace:expert_share_largest" + labels + "\"1\"} 0.75\n",
                                  "headrace:expert_share_largest" + labels + "\"2\"} 1\n",
                                  "headrace:expert_share_smallest" + labels + "\"1\"} 0.25\n",
                                  "headrace:experts_unused" + labels + "\"2\"} 1\n",
                                  std::string("# TYPE headrace:expert_share_smallest gauge\n")}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * (2 + 2));
  EXPECT_EQ(text.find("expert=\""), std::string::npos);
}

TEST(ExpertMetrics, EachExpertComesWhenAskedFor) {
  const std::vector<ExpertRows> layers = {{1, {7, 9}}, {4, {2, 5}}};
  const std::string text = expert_metrics_text("m", layers, true);
  EXPECT_NE(text.find("headrace:expert_tokens_total{model_name=\"m\",engine=\"0\",layer=\"4\","
                      "expert=\"1\"} 5\n"),
            std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * (2 + 2) + 2 + 4);
}

TEST(ExpertMetrics, ANetworkWithoutExpertsHasNone) {
  EXPECT_EQ(expert_metrics_text("m", {}, true), "");
}

}  // namespace
}  // namespace headrace
