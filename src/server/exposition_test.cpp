#include "server/exposition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace exposition_test {

std::vector<ModelMetrics> of_experts(std::string name, std::vector<ExpertRows> layers) {
  ModelMetrics model;
  model.name = std::move(name);
  model.experts = std::move(layers);
  return {std::move(model)};
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Metrics, OfSeveralModelsAreOneFamilyWithALineEach) {
  std::vector<ModelMetrics> models(2);
  models[0].name = "a";
  models[0].engine.num_running = 3;
  models[1].name = "b";
  models[1].slow_clients = 5;
  const HttpCounters server;
  const std::string text = metrics_text(models, server);
  for (const char* line : {"vllm:num_requests_running{model_name=\"a\",engine=\"0\"} 3\n",
                           "vllm:num_requests_running{model_name=\"b\",engine=\"0\"} 0\n",
                           "headrace:slow_clients_total{model_name=\"b\",engine=\"0\"} 5\n",
                           "headrace:http_requests_total 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(count_of(text, "# TYPE vllm:num_requests_running gauge\n"), 1u);
  EXPECT_EQ(count_of(text, "# TYPE vllm:time_to_first_token_seconds histogram\n"), 1u);
  EXPECT_EQ(count_of(text, "vllm:time_to_first_token_seconds_count{"), 2u);
  EXPECT_EQ(count_of(text, "finished_reason=\"abort\""), 2u);
}

TEST(Metrics, TellOfTenantsWhereThereAreSome) {
  std::vector<ModelMetrics> models(1);
  models[0].name = "m";
  const HttpCounters server;
  EXPECT_EQ(metrics_text(models, server).find("tenant"), std::string::npos);
  models[0].engine.tenants = {{"a", 1, 2, 30, 0.5}, {"other", 0, 0, 4, 0.25}};
  const std::string text = metrics_text(models, server);
  const std::string labels = "{model_name=\"m\",engine=\"0\",tenant=";
  for (const std::string& line : {"headrace:tenant_requests_running" + labels + "\"a\"} 1\n",
                                  "headrace:tenant_requests_waiting" + labels + "\"a\"} 2\n",
                                  "headrace:tenant_tokens_total" + labels + "\"other\"} 4\n",
                                  "headrace:tenant_step_seconds_total" + labels + "\"a\"} 0.5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  }
  EXPECT_EQ(count_of(text, "# TYPE headrace:tenant_"), 4u);
}

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
  const std::string text = expert_metrics_text(of_experts("a \"b\"", layers), false);
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
  const std::string text = expert_metrics_text(of_experts("m", layers), true);
  EXPECT_NE(text.find("headrace:expert_tokens_total{model_name=\"m\",engine=\"0\",layer=\"4\","
                      "expert=\"1\"} 5\n"),
            std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * (2 + 2) + 2 + 4);
}

TEST(ExpertMetrics, ANetworkWithoutExpertsHasNone) {
  EXPECT_EQ(expert_metrics_text(of_experts("m", {}), true), "");
}

}  // namespace exposition_test
}  // namespace headrace
