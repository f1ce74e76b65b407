#include "lab/store.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace::lab::store_test {

using headrace::testing::TempFolder;

Hypothesis some_hypothesis() {
  Hypothesis made;
  made.statement = "more threads are faster";
  made.metric = "speed";
  return made;
}

Experiment some_experiment() {
  Experiment made;
  made.title = "one thread or two";
  made.metric = "speed";
  made.sides = {{"one", {"true"}}, {"two", {"true"}}};
  return made;
}

class LabStore : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() { return Store::open(folder_.file("lab")).value(); }
  TempFolder folder_;
};

TEST_F(LabStore, KeepsEverythingOverAReopening) {
  {
    const auto store = open();
    EXPECT_EQ(store->add(some_hypothesis(), "ada").value(), 1);
    Experiment experiment = some_experiment();
    experiment.hypothesis_id = 1;
    experiment.metric.clear();
    experiment.limits.memory_bytes = 12345;
    EXPECT_EQ(store->add(experiment, "ada").value(), 1);
    EXPECT_EQ(
        store->add(Learning{0, "it depends", {"experiment:1", "option:--threads"}, "", 0}, "bob")
            .value(),
        1);
    ASSERT_TRUE(store->set_place(1, 3, "bob").ok());
  }
  const auto store = open();
  const Experiment found = store->experiment(1).value();
  EXPECT_EQ(found.metric, "speed");
  EXPECT_EQ(found.sides[1].command, (std::vector<std::string>{"true"}));
  EXPECT_EQ(found.sides[1].hypothesis_id, 0);
  EXPECT_EQ(found.limits.memory_bytes, 12345);
  EXPECT_EQ(found.place, 3);
  EXPECT_EQ(found.author, "ada");
  EXPECT_EQ(store->learnings().value()[0].links.size(), 2u);
  const auto log = store->log(0, 100).value();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[3].author, "bob");
  EXPECT_EQ(log[3].text, "moved to place 3");
  EXPECT_EQ(store->log(3, 100).value().size(), 1u);
}

TEST_F(LabStore, RefusesWhatIsWrongAndNamesTheField) {
  const auto store = open();
  const auto problem_of = [&](auto change) {
    Experiment made = some_experiment();
    change(&made);
    const auto added = store->add(made, "ada");
    return added.ok() ? std::string() : added.error().message;
  };
  EXPECT_EQ(problem_of([](Experiment*) {}), "");
  EXPECT_EQ(problem_of([](Experiment* e) { e->title = ""; }), "title: is empty, and needs a text");
  EXPECT_EQ(problem_of([](Experiment* e) { e->sides.pop_back(); }),
            "sides: are 1, and must be 2 to 16");
  EXPECT_EQ(problem_of([](Experiment* e) { e->sides[1].name = "one"; }),
            "sides[1].name: 'one' is used twice");
  EXPECT_EQ(problem_of([](Experiment* e) { e->sides[0].command.clear(); }),
            "sides[0].command: is empty, and needs a program");
  EXPECT_EQ(problem_of([](Experiment* e) { e->folder = "a/../../b"; }),
            "folder: is 'a/../../b', and must lie inside the laboratory");
  EXPECT_EQ(problem_of([](Experiment* e) { e->folder = "/etc"; }),
            "folder: is '/etc', and must lie inside the laboratory");
  EXPECT_EQ(problem_of([](Experiment* e) { e->max_rounds = 1; }),
            "max_rounds: is 1, and needs 2 to 10000");
  EXPECT_EQ(problem_of([](Experiment* e) { e->hypothesis_id = 9; }), "there is no hypothesis 9");
  ASSERT_TRUE(store->add(some_hypothesis(), "ada").ok());
  EXPECT_EQ(problem_of([](Experiment* e) { e->sides[0].hypothesis_id = 1; }),
            "sides[0].hypothesis: is there, but the first side is what others are beside");
  EXPECT_EQ(problem_of([](Experiment* e) { e->hypothesis_id = e->sides[1].hypothesis_id = 1; }),
            "sides[1].hypothesis: is there, but so is the experiment's, 1: leave out one");
  EXPECT_EQ(problem_of([](Experiment* e) { e->sides[1].hypothesis_id = 7; }),
            "there is no hypothesis 7");
  EXPECT_EQ(store->add(some_experiment(), "").error().message,
            "author: is empty, and needs a text");
  EXPECT_EQ(store->experiments().value().size(), 1u);  // what was refused left nothing
}

TEST_F(LabStore, OnlyKnownStatesConclude) {
  const auto store = open();
  ASSERT_TRUE(store->add(some_hypothesis(), "ada").ok());
  EXPECT_EQ(store->conclude(1, "true", "so it is", "ada").error().message,
            "state: is 'true', and must be open, validated or ruled out");
  EXPECT_FALSE(store->conclude(2, "validated", "so it is", "ada").ok());
  ASSERT_TRUE(store->conclude(1, "ruled out", "so it is", "ada").ok());
  EXPECT_EQ(store->hypothesis(1).value().state, "ruled out");
}

TEST_F(LabStore, AFindingDecidesAllOrNothing) {
  const auto store = open();
  ASSERT_TRUE(store->add(some_hypothesis(), "ada").ok());
  lab::Experiment experiment = some_experiment();
  experiment.hypothesis_id = 1;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->add(experiment, "ada").ok());
  ASSERT_TRUE(store->set_pinned(3, true, "ada").ok());
  ASSERT_TRUE(store->set_state(1, "running", "its turn", "runner").ok());
  const std::vector<lab::Finding> so = {{"it is so", 1, "validated"}};
  const std::vector<lab::Finding> not_so = {{"it is not", 1, "ruled out"}};
  const auto database = Database::open(folder_.file("lab/lab.sqlite")).value();
  ASSERT_TRUE(database
                  ->run("CREATE TRIGGER no BEFORE UPDATE ON hypotheses "
                        "BEGIN SELECT RAISE(ABORT, 'not now'); END")
                  .ok());
  EXPECT_FALSE(store->finish(1, "it is so", so, "runner").ok());
  EXPECT_EQ(store->experiment(1).value().state, "running");
  ASSERT_TRUE(database->run("DROP TRIGGER no").ok());

  ASSERT_TRUE(store->finish(1, "it is so", so, "runner").ok());
  EXPECT_EQ(store->experiment(1).value().state, "done");
  EXPECT_EQ(store->hypothesis(1).value().state, "validated");
  EXPECT_EQ(store->hypothesis(1).value().verdict, "experiment 1: it is so");
  EXPECT_EQ(store->experiment(2).value().state, "cancelled");
  EXPECT_EQ(store->experiment(3).value().state, "queued");  // a person wants it

  ASSERT_TRUE(store->finish(3, "it is not", not_so, "runner").ok());
  EXPECT_EQ(store->hypothesis(1).value().state, "validated");  // decided before
}

TEST_F(LabStore, TheLogIsOnlyAppendedTo) {
  const auto store = open();
  ASSERT_TRUE(store->add(some_hypothesis(), "ada").ok());
  const auto database = Database::open(folder_.file("lab/lab.sqlite")).value();
  EXPECT_FALSE(database->run("DELETE FROM log").ok());
  EXPECT_FALSE(database->run("UPDATE log SET text = 'x'").ok());
  EXPECT_EQ(store->log(0, 10).value().size(), 1u);
}

TEST_F(LabStore, WhatRanWhenTheRunnerDiedIsInterrupted) {
  const auto store = open();
  ASSERT_TRUE(store->add(some_experiment(), "ada").ok());
  ASSERT_TRUE(store->set_state(1, "running", "its turn", "runner").ok());
  lab::Run run;
  run.experiment_id = 1;
  run.id = store->begin_run(run, "runner").value();
  EXPECT_EQ(store->recover("runner").value(), 1);
  EXPECT_EQ(store->runs(1).value()[0].state, "interrupted");
  EXPECT_EQ(store->experiment(1).value().state, "queued");
  EXPECT_EQ(store->recover("runner").value(), 0);
}

TEST_F(LabStore, WhatIsNoLaboratoryIsSaidToBeNone) {
  folder_.write("lab/lab.sqlite", std::string(4096, 'x'));
  const auto opened = Store::open(folder_.file("lab"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
}

TEST_F(LabStore, ALaterVersionIsRefused) {
  {
    open();
    const auto database = Database::open(folder_.file("lab/lab.sqlite")).value();
    ASSERT_TRUE(database->run("PRAGMA user_version=9").ok());
  }
  const auto opened = Store::open(folder_.file("lab"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
}

// A page limit stands for a full disk: SQLite says the same.
TEST_F(LabStore, AFullDiskIsAnErrorAndLosesNothing) {
  const auto database = Database::open(folder_.file("small.sqlite")).value();
  ASSERT_TRUE(database->script("CREATE TABLE t(x TEXT)").ok());
  ASSERT_TRUE(database->run("INSERT INTO t VALUES('kept')").ok());
  ASSERT_TRUE(database->query("PRAGMA max_page_count=4").ok());
  Status failed;
  for (int i = 0; i < 100 && failed.ok(); ++i) {
    failed = database->run("INSERT INTO t VALUES(?)", {std::string(4000, 'x')});
  }
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(failed.error().hint, "free some space; what was done is kept");
  EXPECT_EQ(database->query("PRAGMA integrity_check").value()[0].text(0), "ok");
  EXPECT_EQ(database->query("SELECT x FROM t ORDER BY rowid").value()[0].text(0), "kept");
}

}  // namespace headrace::lab::store_test
