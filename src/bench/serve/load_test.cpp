// A load against a server of known latencies, in made-up time.

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/json.h"
#include "bench/serve/campaign.h"
#include "bench/serve/report.h"
#include "bench/serve/testing/virtual_server.h"

namespace headrace::loads {
namespace load_test {

using testing::VirtualServer;

LoadShape shape_of(std::string_view text) { return parse_load(text, 64).value(); }

StageRule rule_of(std::string_view load, double seconds) {
  StageRule rule;
  rule.shape = shape_of(load);
  rule.seconds = seconds;
  rule.warmup = seconds / 10;
  rule.connections = 64;
  return rule;
}

Workload plain_work() { return Workload(WorkloadOptions{}); }

StageSummary measure(const StageRule& rule, VirtualServer& server, const Slo& slo = {}) {
  Workload work = plain_work();
  return summarize(run_stage(rule, {}, work, server), slo);
}

double quantile_of(const StageSummary& stage, Latency latency, size_t at) {
  return stage.latencies[latency].quantiles[at].value;
}

TEST(Load, OneClientSeesTheLatenciesAsTheyAre) {
  VirtualServer server;
  const StageSummary stage = measure(rule_of("sync", 60), server);
  for (const size_t at : {0, 1, 2, 3}) {
    EXPECT_NEAR(quantile_of(stage, kTtft, at), 100, 1);
    EXPECT_NEAR(quantile_of(stage, kItl, at), 20, 0.2);
    EXPECT_NEAR(quantile_of(stage, kTpot, at), 20, 0.2);
    EXPECT_NEAR(quantile_of(stage, kE2e, at), 300, 3);
  }
  EXPECT_NEAR(stage.output_tokens_per_s.value, 11 / 0.3, 0.4);
  EXPECT_NEAR(stage.requests_per_s, 1 / 0.3, 0.05);
  EXPECT_NEAR(stage.prompt_tokens_per_s, 7 / 0.3, 0.4);
  EXPECT_NEAR(stage.mean_running, 1, 0.01);
  EXPECT_EQ(stage.num_failed, 0u);
}

TEST(Load, ClientsOfAClosedLoadAreAsManyAsAskedFor) {
  VirtualServer server;
  const StageSummary stage = measure(rule_of("closed:8", 60), server);
  EXPECT_NEAR(stage.mean_running, 8, 0.1);
  EXPECT_NEAR(stage.output_tokens_per_s.value, 8 * 11 / 0.3, 3);
}

// Every tenth request stalls: 99th and 95th percentile see it, the median does not.
TEST(Load, PercentilesFindStalls) {
  VirtualServer server;
  server.prefill = [](size_t id) { return id % 10 == 0 ? 1.0 : 0.1; };
  const StageSummary stage = measure(rule_of("constant:10", 100), server);
  EXPECT_NEAR(quantile_of(stage, kTtft, 0), 100, 1);
  EXPECT_NEAR(quantile_of(stage, kTtft, 2), 1000, 10);
  EXPECT_NEAR(quantile_of(stage, kTtft, 3), 1000, 10);
  EXPECT_NEAR(stage.latencies[kTtft].mean.value, 190, 4);
  EXPECT_FALSE(stage.saturated);
}

TEST(Load, RandomArrivalsHaveTheirRateAndSpread) {
  Arrivals arrivals(shape_of("poisson:50"), 3);
  double last = 0, sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double time = arrivals.next();
    sum += time - last;
    squares += (time - last) * (time - last);
    last = time;
  }
  EXPECT_NEAR(kCount / last, 50, 1.5);
  const double mean = sum / kCount;
  EXPECT_NEAR((squares / kCount - mean * mean) / (mean * mean), 1, 0.06) << "as exponential gaps";
}

// What is found of random latencies are the quantiles of those that the server drew, under each
// kind of load.
TEST(Load, PercentilesOfRandomLatenciesAreTheirs) {
  for (const std::string_view load : {"sync", "closed:6", "constant:30", "poisson:30"}) {
    VirtualServer server;
    Draws draws(9, 1);
    std::vector<double> prefills, gaps;
    for (int i = 0; i < 8192; ++i) prefills.push_back(draws.log_normal(0.08, 0.5));
    for (int i = 0; i < 8192; ++i) gaps.push_back(draws.log_normal(0.01, 0.3));
    server.prefill = [&](size_t id) { return prefills[id]; };
    server.gap = [&](size_t id) { return gaps[id]; };
    StageRule rule = rule_of(load, 120);
    rule.warmup = 0;
    Workload work = plain_work();
    const StageRecord record = run_stage(rule, {}, work, server);
    const StageSummary stage = summarize(record, {});
    ASSERT_EQ(stage.num_answered, record.requests.size()) << load;
    prefills.resize(record.requests.size());
    gaps.resize(record.requests.size());
    std::ranges::sort(prefills);
    std::ranges::sort(gaps);
    for (size_t at = 0; at < kQuantiles.size(); ++at) {
      const double ttft = 1e3 * quantile(prefills, kQuantiles[at]);
      const double gap = 1e3 * quantile(gaps, kQuantiles[at]);
      EXPECT_NEAR(quantile_of(stage, kTtft, at), ttft, 0.01 * ttft) << load << " " << at;
      EXPECT_NEAR(quantile_of(stage, kItl, at), gap, 0.01 * gap) << load << " " << at;
      EXPECT_NEAR(quantile_of(stage, kTpot, at), gap, 0.01 * gap) << load << " " << at;
    }
  }
}

// A server of one worker, which a random load meets busy: what a queue of fixed service times and
// random arrivals makes of the wait is known (Pollaczek and Khinchine).
TEST(Load, TheWaitBehindOthersIsThatOfTheQueue) {
  VirtualServer server;
  server.workers = 1;
  server.tokens = 1;
  server.prefill = [](size_t) { return 0.02; };
  StageRule rule = rule_of("poisson:25", 600);
  rule.connections = 100000;
  const StageSummary stage = measure(rule, server);
  const double busy = 25 * 0.02, wait = busy * 0.02 / (2 * (1 - busy));
  EXPECT_NEAR(stage.latencies[kTtft].mean.value, 1e3 * (0.02 + wait), 0.6);
  EXPECT_NEAR(stage.latencies[kTtft].sorted.front(), 20, 0.2);
  EXPECT_FALSE(stage.saturated);
}

// One worker stops for two seconds. Whoever waits meanwhile is counted from when he was due:
// without that, one request alone would look slow.
TEST(Load, WaitingBehindAStallIsNotOmitted) {
  VirtualServer server;
  server.workers = 1;
  server.tokens = 1;
  server.prefill = [](size_t id) { return id == 300 ? 2.0 : 0.01; };
  const StageSummary stage = measure(rule_of("constant:20", 50), server);
  const auto& sorted = stage.latencies[kTtft].sorted;
  const auto slow = std::ranges::count_if(sorted, [](double ms) { return ms > 100; });
  EXPECT_GT(slow, 40) << "of those that were due in the two seconds and after";
  EXPECT_NEAR(sorted.back(), 2000, 20);
}

// With too few connections the load itself is late; that counts too, and is shown.
TEST(Load, WaitingForAConnectionCounts) {
  VirtualServer server;
  StageRule rule = rule_of("constant:10", 20);
  rule.connections = 2;  // 0.3 s each: 6.7 a second
  const StageSummary stage = measure(rule, server);
  EXPECT_GT(quantile_of(stage, kQueue, 0), 500);
  EXPECT_GT(quantile_of(stage, kTtft, 0), 500);
  EXPECT_TRUE(stage.saturated);
}

TEST(Load, AQueueThatGrowsIsSaturationAndTellsTheRateServed) {
  VirtualServer server;
  server.workers = 1;
  server.tokens = 1;
  server.prefill = [](size_t) { return 0.125; };  // eight a second
  const StageSummary below = measure(rule_of("constant:7", 60), server);
  EXPECT_FALSE(below.saturated) << below.growth;
  VirtualServer fresh;
  fresh.workers = 1;
  fresh.tokens = 1;
  fresh.prefill = server.prefill;
  StageRule rule = rule_of("constant:12", 60);
  rule.connections = 100000;
  const StageSummary above = measure(rule, fresh);
  EXPECT_TRUE(above.saturated);
  EXPECT_NEAR(above.growth, 12.0 / 8 - 1, 0.01);
  const Saturation found = find_saturation(std::vector{below, above});
  EXPECT_NEAR(*found.sustained, 7, 0.1);
  EXPECT_NEAR(*found.exceeded, 12, 0.1);
  EXPECT_NEAR(*found.estimate, 8, 0.1);
}

// A request from the warm-up that answers inside the window adds its tokens to the rate.
TEST(Load, RatesCountWhatRanInTheWindowWhoeverAskedForIt) {
  StageRecord record;
  record.rule = rule_of("sync", 10);
  record.rule.warmup = 5;
  RequestRecord request;
  request.pieces = {4, 5, 6, 12};
  request.output_tokens = 8;  // two in each piece
  request.ended = 12;
  record.requests = {request};
  const StageSummary stage = summarize(record, {});
  EXPECT_NEAR(stage.output_tokens_per_s.value, 4 / 5.0, 1e-9);
  EXPECT_EQ(stage.num_requests, 0u) << "it was due in the warm-up";
}

// A load that ends before its time has a warm-up that fits it.
TEST(Load, TheWarmUpIsATenthOfWhatTheLoadCameToBe) {
  const auto num_counted = [](size_t num_requests, std::optional<double> warmup) {
    StageRecord record;
    record.rule = rule_of("sync", 30);
    record.rule.warmup = warmup;
    record.rule.max_requests = static_cast<int64_t>(num_requests);
    for (size_t i = 0; i < num_requests; ++i) {
      RequestRecord& request = record.requests.emplace_back();
      request.due = 0.05 + 0.1 * static_cast<double>(i);
      request.ended = request.due + 0.1;
      request.pieces = {request.ended};
      request.output_tokens = 1;
    }
    return summarize(record, {}).num_requests;
  };
  EXPECT_EQ(num_counted(20, std::nullopt), 18u);
  EXPECT_EQ(num_counted(6, std::nullopt), 6u);
  EXPECT_EQ(num_counted(1, std::nullopt), 1u);
  EXPECT_EQ(num_counted(6, 3), 0u) << "as it was asked for";
}

TEST(Load, GoodputCountsRequestsWithinTheirLimits) {
  VirtualServer server;
  server.prefill = [](size_t id) { return id % 4 == 0 ? 0.5 : 0.1; };
  const Slo slo = parse_slo("ttft=300ms,itl=0.05s").value();
  const StageSummary stage = measure(rule_of("constant:20", 50), server, slo);
  EXPECT_NEAR(*stage.goodput_per_s, 15, 0.2);
  EXPECT_FALSE(measure(rule_of("sync", 5), server).goodput_per_s.has_value());
}

TEST(Load, AServerThatDiesEndsTheCampaignAndKeepsWhatWasMeasured) {
  VirtualServer server;
  server.dies_after = 150;
  Campaign campaign;
  campaign.rule = rule_of("sync", 20);
  campaign.rule.shape = shape_of("sweep");
  size_t num_written = 0;
  campaign.after = [&](std::vector<StageSummary>& stages) { num_written = stages.size(); };
  Workload work = plain_work();
  const auto stages = run_campaign(campaign, work, server);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(num_written, 2u);
  EXPECT_TRUE(stages[0].ended_by.empty());
  EXPECT_EQ(stages[1].ended_by, "the server is gone: Connection refused");
  EXPECT_NEAR(quantile_of(stages[0], kTtft, 0), 100, 1);
  EXPECT_NE(report_text(stages).find("ended early: the server is gone"), std::string::npos);
}

TEST(Load, ASweepOffersRatesBetweenOneClientAndMany) {
  VirtualServer server;
  server.workers = 4;
  server.tokens = 2;
  Campaign campaign;
  campaign.rule = rule_of("sync", 60);
  campaign.rule.connections = 16;
  campaign.rule.shape = shape_of("sweep");
  campaign.num_rates = 4;
  Workload work = plain_work();
  const auto stages = run_campaign(campaign, work, server);
  ASSERT_EQ(stages.size(), 6u);
  EXPECT_EQ(stages[0].load, "sync");
  EXPECT_EQ(stages[1].load, "closed:16");
  const double many = 4 / 0.12;
  EXPECT_NEAR(stages[1].requests_per_s, many, 1);
  EXPECT_NEAR(stages[5].shape.rate, 1.2 * many, 2);
  EXPECT_FALSE(stages[2].saturated);
  EXPECT_TRUE(stages[5].saturated);
  const Saturation found = find_saturation(stages);
  ASSERT_TRUE(found.exceeded && found.sustained);
  EXPECT_LT(*found.sustained, *found.exceeded);
  campaign.rule.shape = shape_of("sweep:constant");
  campaign.rule.seconds = 5;
  campaign.rule.warmup = 1;
  campaign.num_rates = 1;
  EXPECT_TRUE(run_campaign(campaign, work, server)[2].load.starts_with("constant:"));
}

TEST(Load, StopEndsItAndTellsOfWhatRan) {
  VirtualServer server;
  Workload work = plain_work();
  const std::atomic<bool> stop = true;
  const StageRecord record = run_stage(rule_of("closed:4", 60), {}, work, server, &stop);
  EXPECT_EQ(record.ended_by, "it was interrupted");
  ASSERT_EQ(record.requests.size(), 4u);
  EXPECT_EQ(record.requests[0].error, "not finished when the load ended");
}

TEST(Load, ARecordingIsPlayedAtItsTimes) {
  VirtualServer server;
  Workload work(parse_trace("{\"time\": 0.5, \"prompt\": \"one\", \"output_tokens\": 3}\n"
                            "{\"time\": 2, \"prompt_tokens\": 5, \"output_tokens\": 4}\n",
                            "t.jsonl", 0)
                    .value());
  StageRule rule = rule_of("trace", 1);
  rule.warmup = 0;
  const StageRecord record = run_stage(rule, {}, work, server);
  ASSERT_EQ(record.requests.size(), 2u);
  EXPECT_NEAR(record.requests[0].sent, 0.5, 0.01);
  EXPECT_NEAR(record.requests[1].sent, 2.0, 0.01);
  EXPECT_NE(server.bodies[0].find("\"max_tokens\":3"), std::string::npos) << server.bodies[0];
  EXPECT_EQ(summarize(record, {}).num_answered, 2u);
}

TEST(Load, ReportsHoldEveryStageAndNothingFromElsewhere) {
  VirtualServer server;
  server.cpu_share = 0.5;
  const std::vector<StageSummary> stages = {measure(rule_of("constant:5", 20), server),
                                            measure(rule_of("constant:9", 20), server)};
  const ReportHead head{"http://x", "a<b>", "128", "16", "plain", "ttft=1s"};
  const std::string page = report_html(head, stages);
  EXPECT_NE(page.find("a&lt;b&gt; under load"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("this program itself took 50 % of a core"), std::string::npos);
  const boost::json::object report = report_json(head, stages);
  const auto& rows = report.at("stages").as_array();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[1].at("ttft_ms").at("p99").at("value").as_double(), 100, 1);
  EXPECT_EQ(rows[0].at("load").as_string(), "constant:5");
}

TEST(Load, AForecastStandsBesideWhatWasMeasuredAndTheTermThatIsOffIsNamed) {
  VirtualServer server;
  std::vector<StageSummary> stages = {measure(rule_of("sync", 20), server)};
  EXPECT_NEAR(stages[0].mean_prompt_tokens, 7, 1e-9);
  EXPECT_NEAR(stages[0].mean_answer_tokens, 11, 1e-9);
  EXPECT_EQ(report_text(stages).find("at the best"), std::string::npos);
  stages[0].forecast = StageForecast{95, 10, "products", "reads"};
  EXPECT_NE(report_text(stages).find("sync: forecast TTFT 95 ms by products, measured 1.05 x; "
                                     "per token 10 ms by reads, measured 2.00 x (wrong: reads)"),
            std::string::npos)
      << report_text(stages);
  EXPECT_NE(report_html({}, stages).find("(wrong: reads)"), std::string::npos);
  const boost::json::object report = report_json({}, stages);
  const boost::json::value& row = report.at("stages").at(0).at("forecast");
  EXPECT_NEAR(row.at("tpot_ratio").as_double(), 2, 0.01);
  EXPECT_EQ(row.at("tpot_wrong_term").as_string(), "reads");
  EXPECT_FALSE(row.as_object().contains("ttft_wrong_term"));
  stages[0].forecast = StageForecast{200, 20, "products", "reads"};
  EXPECT_NE(report_text(stages).find("measured 0.50 x (wrong: products)"), std::string::npos)
      << "faster than what was thought to be the best";
  stages[0].forecast = StageForecast{50, 20, "products", "reads"};
  stages[0].server_queue_ms = 40;
  EXPECT_NE(report_text(stages).find("measured 2.00 x (wrong: waiting)"), std::string::npos)
      << report_text(stages);
}

TEST(Load, PercentilesLieBetweenNeighboursInProportion) {
  const std::vector<double> values = {10, 20, 30, 40, 50};
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 0.5), 30);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 46);
  EXPECT_EQ(quantile(values, 1), 50);
  EXPECT_EQ(quantile({}, 0.5), 0);
  const Distribution distribution = distribution_of({5, 1, 3, 2, 4}, 1);
  EXPECT_EQ(distribution.mean.value, 3);
  EXPECT_LT(distribution.mean.low, 3);
  EXPECT_GT(distribution.mean.high, 3);
  EXPECT_EQ(distribution_of({}, 1).count, 0u);
}

TEST(Load, ManyValuesHaveTheIntervalsThatResamplingWouldFind) {
  Draws draws(8, 0);
  std::vector<double> values(2001);
  for (double& value : values) value = 100 + 10 * draws.normal();
  const Distribution many = distribution_of(values, 1);
  values.pop_back();
  const Distribution few = distribution_of(values, 1);
  EXPECT_NEAR(many.mean.low, few.mean.low, 0.15);
  EXPECT_NEAR(many.mean.high, few.mean.high, 0.15);
  EXPECT_NEAR(many.quantiles[1].low, few.quantiles[1].low, 0.4);
  EXPECT_NEAR(many.quantiles[1].high, few.quantiles[1].high, 0.4);
}

// Of many samples of 100 from a known law, about 95 of 100 intervals must hold its mean.
TEST(Load, IntervalsHoldTheTruthAboutAsOftenAsTheySay) {
  Draws draws(7, 0);
  int held = 0;
  double width = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<double> values(100);
    for (double& value : values) value = 5 + draws.normal();
    const Estimate mean = distribution_of(values, static_cast<uint64_t>(i)).mean;
    held += mean.low <= 5 && 5 <= mean.high;
    width += (mean.high - mean.low) / 100;
  }
  EXPECT_GT(held, 85);
  EXPECT_NEAR(width, 2 * 1.96 * 0.1, 0.04);
}

}  // namespace load_test
}  // namespace headrace::loads
