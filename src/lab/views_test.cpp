#include "lab/views.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/testing/temp_folder.h"

namespace headrace::lab::views_test {

using headrace::testing::TempFolder;
using Words = std::vector<std::string>;

class LabViews : public ::testing::Test {
 protected:
  LabViews() : store_(Store::open(folder_.file("lab"), Store::Durability::kFast).value()) {
    Hypothesis hypothesis;
    hypothesis.statement = "two is faster";
    hypothesis.metric = "speed";
    hypothesis.predicted = 0.2;
    EXPECT_TRUE(store_->add(hypothesis, "ada").ok());
    for (const char* title : {"first", "second", "third"}) {
      Experiment experiment;
      experiment.hypothesis_id = 1;
      experiment.title = title;
      experiment.sides = {{"one", {"run", "--threads", "1"}}, {"two", {"run", "--threads", "2"}}};
      EXPECT_TRUE(store_->add(experiment, "ada").ok());
    }
  }

  void add_round(int64_t experiment, int64_t round, int first, int second) {
    for (const auto& [side, speed] : {std::pair(0, first), std::pair(1, second)}) {
      lab::Run run;
      run.experiment_id = experiment;
      run.side_idx = side;
      run.round = round;
      run.id = store_->begin_run(run, "runner").value();
      run.state = "done";
      run.metrics = fmt::format(R"({{"speed":{}}})", speed);
      ASSERT_TRUE(store_->end_run(run, "runner").ok());
    }
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
  KnownEffects effects_;
};

TEST_F(LabViews, OverviewCountsAndSaysWhatIsKnownOfEach) {
  for (int round = 0; round < 3; ++round) add_round(2, round, 10, 15 + round);
  ASSERT_TRUE(store_->set_state(2, "done", "enough", "runner").ok());
  ASSERT_TRUE(store_->set_pinned(3, true, "bob").ok());
  const auto view = overview_view(*store_, effects_).value();
  EXPECT_EQ(view.at("last_log").as_int64(), store_->last_log_id().value());
  EXPECT_EQ(view.at("counts").at("experiments").at("queued").as_int64(), 2);
  EXPECT_EQ(view.at("counts").at("experiments").at("done").as_int64(), 1);
  EXPECT_EQ(view.at("counts").at("hypotheses").at("open").as_int64(), 1);
  EXPECT_EQ(view.at("counts").at("runs_done").as_int64(), 6);
  const auto& hypothesis = view.at("hypotheses").at(0);
  EXPECT_GT(hypothesis.at("belief").as_double(), 0.5);
  EXPECT_EQ(boost::json::serialize(hypothesis.at("experiments")), "[1,2,3]");
  const auto& experiments = view.at("experiments");
  EXPECT_TRUE(experiments.at(0).at("effect").is_null());
  EXPECT_EQ(experiments.at(0).at("queue_place").as_int64(), 2);
  EXPECT_EQ(experiments.at(2).at("queue_place").as_int64(), 1);
  EXPECT_EQ(experiments.at(2).at("reason").as_string(), "pinned");
  EXPECT_NEAR(experiments.at(1).at("effect").at("improvement").as_double(), 0.6, 0.01);
  EXPECT_EQ(experiments.at(1).at("reason").as_string(), "enough");
  EXPECT_TRUE(experiments.at(1).at("queue_place").is_null());
}

TEST_F(LabViews, AnExperimentShowsItsDifferenceRoundsAndArtifacts) {
  add_round(1, 0, 10, 12);
  add_round(1, 1, 10, 11);
  folder_.write("lab/artifacts/1/plots/a.svg", "<svg/>");
  ASSERT_TRUE(store_->add(Learning{0, "it is", {"experiment:1"}, "", 0}, "ada").ok());
  const auto view = experiment_view(*store_, 1).value();
  EXPECT_EQ(boost::json::serialize(view.at("difference")),
            R"([{"side":"two","removed":["1"],"added":["2"]}])");
  const auto& rounds = view.at("effects").at(0).at("by_round");
  ASSERT_EQ(rounds.as_array().size(), 2u);
  EXPECT_NEAR(rounds.at(1).at("improvement").as_double(), 0.1, 1e-9);
  EXPECT_EQ(boost::json::serialize(view.at("runs").at(0).at("artifacts")),
            R"([{"name":"plots/a.svg","bytes":6}])");
  EXPECT_EQ(view.at("about").at("statement").as_string(), "two is faster");
  EXPECT_EQ(view.at("learnings").as_array().size(), 1u);
  EXPECT_EQ(view.at("log").at(0).at("text").as_string(), "new: first");
  EXPECT_EQ(experiment_view(*store_, 9).error().code, ErrorCode::kNotFound);
}

TEST_F(LabViews, AHypothesisHasItsExperiments) {
  const auto view = hypothesis_view(*store_, effects_, 1).value();
  EXPECT_EQ(view.at("experiments").as_array().size(), 3u);
  EXPECT_EQ(view.at("experiments").at(0).at("title").as_string(), "first");
  EXPECT_EQ(view.at("belief").as_double(), 0.5);
  EXPECT_EQ(hypothesis_view(*store_, effects_, 2).error().code, ErrorCode::kNotFound);
}

TEST_F(LabViews, TheGraphHasNoEdgeWithoutItsNodes) {
  ASSERT_TRUE(
      store_->add(Learning{0, "a", {"experiment:1", "file:x", "learning:2"}, "", 0}, "ada").ok());
  ASSERT_TRUE(store_->add(Learning{0, "b", {"experiment:77"}, "", 0}, "ada").ok());
  const auto graph = graph_view(*store_).value();
  std::map<std::string, std::string> kinds;
  for (const auto& node : graph.at("nodes").as_array()) {
    kinds[node.at("id").as_string().c_str()] = node.at("kind").as_string().c_str();
  }
  EXPECT_EQ(kinds.at("learning:2"), "learning");
  EXPECT_EQ(kinds.at("experiment:77"), "other");
  EXPECT_EQ(kinds.size(), 4u + 2u + 2u);
  ASSERT_EQ(graph.at("edges").as_array().size(), 3u + 4u);
  for (const auto& edge : graph.at("edges").as_array()) {
    EXPECT_TRUE(kinds.contains(edge.at("from").as_string().c_str()));
    EXPECT_TRUE(kinds.contains(edge.at("to").as_string().c_str()));
  }
}

TEST_F(LabViews, PausedOnesLeaveTheQueue) {
  ASSERT_TRUE(store_->set_paused(1, true, "bob").ok());
  ASSERT_TRUE(store_->set_state(2, "running", "its turn", "runner").ok());
  const auto view = queue_view(*store_, effects_).value();
  EXPECT_EQ(boost::json::serialize(view.at("running")), "[2]");
  EXPECT_EQ(boost::json::serialize(view.at("paused")), "[1]");
  ASSERT_EQ(view.at("queue").as_array().size(), 1u);
  EXPECT_EQ(view.at("queue").at(0).at("experiment").as_int64(), 3);
}

TEST_F(LabViews, TheNewestLogIsOfAllOrOfOne) {
  const auto all = store_->newest_log(2).value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].subject, "experiment:2");
  EXPECT_EQ(all[1].subject, "experiment:3");
  const auto one = store_->newest_log(10, "hypothesis:1").value();
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].text, "new: two is faster");
}

TEST(LabWordDifference, LeavesOutWhatBothHaveInOrder) {
  const auto difference = [](const Words& from, const Words& to) {
    const WordDifference found = word_difference(from, to);
    return std::pair(found.removed, found.added);
  };
  EXPECT_EQ(difference({"a", "b", "c"}, {"a", "b", "c"}), std::pair(Words{}, Words{}));
  EXPECT_EQ(difference({"a", "x", "c"}, {"a", "c", "y"}), std::pair(Words{"x"}, Words{"y"}));
  EXPECT_EQ(difference({}, {"a"}), std::pair(Words{}, Words{"a"}));
  EXPECT_EQ(difference({"a", "b"}, {"b", "a"}).first.size(), 1u);
  const Words many(3000, "same");
  EXPECT_EQ(difference(many, many).first.size(), 3000u);  // too long to be compared
}

}  // namespace headrace::lab::views_test
