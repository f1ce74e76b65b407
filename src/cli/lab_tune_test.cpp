// Which options a tuning recommends.
#include "cli/lab_tune.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "base/testing/temp_folder.h"

namespace headrace::lab_tune_test {

TuneResult result_of(const char* option, const char* value, double improvement,
                     lab::Verdict verdict, bool changes = false) {
  return {{option, value, "because", changes},
          {},
          {5, improvement, improvement, improvement, 4, verdict}};
}

using enum lab::Verdict;

TEST(LabTune, GoalsAreNamed) {
  EXPECT_EQ(find_goal("ttft").value().metric, "tok_s");
  EXPECT_FALSE(find_goal("memory").value().more_is_better);
  EXPECT_EQ(find_goal("speed").error().message,
            "there is no goal 'speed'; the goals are ttft, throughput, answers, memory, start");
}

TEST(LabTune, CandidatesDependOnGoalAndMachine) {
  const auto count = [](std::string_view goal, int threads, std::string_view option) {
    const auto all = tune_candidates(goal, {threads, "/kept", ""});
    return std::count_if(all.begin(), all.end(),
                         [&](const TuneCandidate& each) { return each.option == option; });
  };
  EXPECT_EQ(count("ttft", 1, "--threads"), 0);
  EXPECT_EQ(count("ttft", 8, "--threads"), 3);
  EXPECT_EQ(count("memory", 8, "--threads"), 0);
  EXPECT_EQ(count("throughput", 2, "--activations"), 1);
  EXPECT_EQ(tune_candidates("start", {8, "/kept", ""}).front().value, "/kept");
  EXPECT_EQ(count("throughput", 2, "--speculation"), 0) << "its tokens are random";
  EXPECT_EQ(count("answers", 2, "--speculation"), 1);
  EXPECT_EQ(count("answers", 2, "--draft-model"), 0);
  EXPECT_EQ(tune_candidates("answers", {2, "", "small.gguf"}).back().value, "small.gguf");
  // A prompt of one step gets no other work from longer steps.
  EXPECT_EQ(count("ttft", 2, "--batch-tokens"), 1);
  EXPECT_LE(tune_candidates("ttft", {1024, "/kept", ""}).size(), 15u)
      << "sides beside the defaults";
}

TEST(LabTune, TheBestValidatedValueOfEachOptionWins) {
  const std::vector<TuneResult> results = {
      result_of("--a", "1", 0.05, kValidated), result_of("--a", "2", 0.1, kValidated),
      result_of("--a", "3", 0.5, kUndecided), result_of("--b", "1", -0.1, kRuledOut)};
  const auto won = winners(results);
  ASSERT_EQ(won.size(), 1u);
  EXPECT_EQ(won[0].candidate.value, "2");
}

TEST(LabTune, OfSeveralOptionsTheGreatestEffectIsFirst) {
  const std::vector<TuneResult> results = {result_of("--a", "1", 0.05, kValidated),
                                           result_of("--b", "1", 0.1, kValidated)};
  const auto won = winners(results);
  ASSERT_EQ(won.size(), 2u);
  EXPECT_EQ(won[0].candidate.option, "--b");
}

TEST(LabTune, WhatLeansAgainstItsPredictionIsGivenUpTheEarlierTheMoreItDoes) {
  const auto gives_up = [](int num_rounds, double log_ratio) {
    return leans_against({num_rounds, 0, 0, 0, log_ratio, kUndecided});
  };
  EXPECT_FALSE(gives_up(2, -3)) << "too few rounds to say";
  EXPECT_TRUE(gives_up(3, -0.7));
  EXPECT_FALSE(gives_up(3, -0.6));
  EXPECT_TRUE(gives_up(8, 0.7));
  EXPECT_FALSE(gives_up(8, 1));
}

TEST(LabTune, TheFileHasTheChoiceAndTheEvidence) {
  Tuned tuned;
  tuned.tried = {result_of("--activations", "fast", 0.2, kValidated, true),
                 result_of("--threads", "4", 0.1, kValidated),
                 result_of("--threads", "4", 0.1, kValidated)};
  tuned.tried[2].beside = {tuned.tried[0].candidate};
  tuned.chosen = {tuned.tried[0], tuned.tried[2]};
  const TuneGoal goal = find_goal("throughput").value();
  EXPECT_EQ(tuned_settings(goal, "m", tuned),
            "# Recommended for throughput of m by headrace lab tune.\n"
            "# Together 32.0 % better, each on top of those before it.\n"
            "activations = \"fast\"\n"
            "threads = 4\n"
            "\n"
            "# What was tried beside defaults:\n"
            "# activations = fast: validated, 20.0 % better (20.0 to 20.0 %) in 5 rounds; "
            "predicted 3.0 %; changes the bits of answers\n"
            "# threads = 4: validated, 10.0 % better (10.0 to 10.0 %) in 5 rounds; predicted "
            "3.0 %\n"
            "\n"
            "# What was tried beside --activations fast:\n"
            "# threads = 4: validated, 10.0 % better (10.0 to 10.0 %) in 5 rounds; predicted "
            "3.0 %\n");
}

TEST(LabTune, DefaultsWhereNothingWins) {
  TuneResult given_up = result_of("--kv-type", "fp8", -0.01, kUndecided);
  given_up.effect.log_ratio = -1;
  const Tuned tuned{{}, {result_of("--threads", "1", -0.4, kRuledOut), given_up}};
  const std::string text = tuned_settings(find_goal("ttft").value(), "m", tuned);
  EXPECT_NE(text.find("# The defaults: nothing that was tried is better.\n"), std::string::npos);
  EXPECT_NE(text.find("# kv-type = fp8: given up, 1.0 % worse"), std::string::npos) << text;
}

// A machine whose truth is known: speed and seconds of a configuration.
struct Machine {
  std::map<std::string, double> effects;  // "--kv-type fp8": 0.02 is 2 % faster, by itself
  // Of two together, beyond the product: {{"--threads 1", "--activations fast"}, 0.3}.
  std::map<std::pair<std::string, std::string>, double> together;
  double spread = 0.025;  // of the logarithm of one run
  double slow_share = 0;  // of the time the machine is in its slow state
  double slow_speed = 1.0 / 1.4;

  double speed(const std::vector<std::string>& command) const {
    std::set<std::string> has;
    double log_speed = std::log(1500.0);
    for (size_t i = 0; i + 1 < command.size(); ++i) has.insert(command[i] + " " + command[i + 1]);
    for (const auto& [setting, effect] : effects) {
      if (has.contains(setting)) log_speed += std::log1p(effect);
    }
    for (const auto& [both, effect] : together) {
      if (has.contains(both.first) && has.contains(both.second)) log_speed += std::log1p(effect);
    }
    return std::exp(log_speed);
  }
};

// The process starts and warms up, then works once.
double seconds_at(double speed) { return 0.15 + 2 * 512 / speed; }

std::vector<std::string> words_of(const std::vector<TuneCandidate>& settings) {
  std::vector<std::string> words;
  for (const TuneCandidate& each : settings) {
    words.push_back(each.option);
    words.push_back(each.value);
  }
  return words;
}

// Every combination of the candidates' values and the defaults.
std::vector<std::vector<TuneCandidate>> combinations(const std::vector<TuneCandidate>& all) {
  std::map<std::string, std::vector<TuneCandidate>> by_option;
  for (const TuneCandidate& each : all) by_option[each.option].push_back(each);
  std::vector<std::vector<TuneCandidate>> made(1);
  for (const auto& [option, values] : by_option) {
    const size_t num_without = made.size();
    for (const TuneCandidate& value : values) {
      for (size_t i = 0; i < num_without; ++i) {
        made.push_back(made[i]);
        made.back().push_back(value);
      }
    }
  }
  return made;
}

// What a tuning of such a machine came to.
struct Study {
  double of_best = 0;  // speed of what was recommended beside the best of all combinations
  double of_time = 0;  // its seconds beside three rounds of all combinations
  int num_wrong = 0;   // chosen, and no better in truth than what they were put on top of
  std::vector<lab::Hypothesis> hypotheses;
};

Study study(const Machine& machine, uint64_t seed) {
  const testing::TempFolder folder;
  const auto store = lab::Store::open(folder.file("lab"), lab::Store::Durability::kFast).value();
  std::mt19937_64 random(seed);
  double seconds = 0;
  bool slow = false;
  lab::RunnerOptions options;
  options.idle_patience_s = 0;
  options.idle_share = 1;
  options.gives_up = leans_against;
  options.execute = [&](const lab::Experiment& experiment,
                        const lab::Run& run) -> Result<lab::ProcessResult> {
    // It stays in a state for ten runs on average.
    if (std::bernoulli_distribution(0.1)(random)) {
      slow = std::bernoulli_distribution(machine.slow_share)(random);
    }
    const auto& side = experiment.sides[static_cast<size_t>(run.side_idx)];
    const double noise = std::normal_distribution<double>(0, machine.spread)(random);
    const double speed =
        machine.speed(side.command) * std::exp(noise) * (slow ? machine.slow_speed : 1);
    seconds += seconds_at(speed);
    return lab::ProcessResult{fmt::format("{{\"tok_s\":{}}}", speed), "", 0.5};
  };
  const auto runner = lab::Runner::create(*store, std::move(options)).value();
  TuneRequest request{find_goal("ttft").value(), "m", tune_candidates("ttft", {2, "", ""}), 12,
                      "test"};
  const Tuned tuned = search_options(*store, *runner, request).value();

  Study found;
  found.hypotheses = store->hypotheses().value();
  double best = 0, sweep_seconds = 0;
  std::vector<TuneCandidate> swept = request.candidates;
  swept.push_back({"--batch-tokens", "1024", "", false});  // as bench/tune_sweep.py does
  for (const auto& each : combinations(swept)) {
    const double speed = machine.speed(words_of(each));
    best = std::max(best, speed);
    sweep_seconds += 3 * seconds_at(speed);
  }
  std::vector<TuneCandidate> settings;
  for (const TuneResult& each : tuned.chosen) {
    const double before = machine.speed(words_of(settings));
    settings.push_back(each.candidate);
    found.num_wrong += machine.speed(words_of(settings)) <= before;
  }
  found.of_best = machine.speed(words_of(settings)) / best;
  found.of_time = seconds / sweep_seconds;
  return found;
}

struct Summary {
  int num_near = 0;   // within 3 % of the best
  int num_wrong = 0;  // with a setting that does not help
  double of_time = 0;
  double worst = 1;
};

Summary summary_of(const Machine& machine, int num_studies) {
  Summary all;
  for (int i = 0; i < num_studies; ++i) {
    const Study each = study(machine, static_cast<uint64_t>(i));
    all.num_near += each.of_best >= 0.97;
    all.num_wrong += each.num_wrong > 0;
    all.of_time += each.of_time / num_studies;
    all.worst = std::min(all.worst, each.of_best);
  }
  ::testing::Test::RecordProperty("near", all.num_near);
  ::testing::Test::RecordProperty("wrong", all.num_wrong);
  ::testing::Test::RecordProperty("of_time", fmt::format("{:.3f}", all.of_time));
  ::testing::Test::RecordProperty("worst", fmt::format("{:.3f}", all.worst));
  return all;
}

int num_studies() { return std::getenv("HEADRACE_FULL") != nullptr ? 400 : 40; }

const std::map<std::string, double> kUsual = {{"--activations fast", 0.45},
                                              {"--threads 1", -0.45},
                                              {"--kv-type fp8", -0.02},
                                              {"--kv-type int8", -0.03},
                                              {"--batch-tokens 256", -0.02}};

TEST(LabTuneStudy, NearTheBestInAQuarterOfTheTime) {
  const Summary all = summary_of({kUsual, {}}, num_studies());
  EXPECT_GE(all.num_near, 0.95 * num_studies());
  EXPECT_LE(all.of_time, 0.2);
}

TEST(LabTuneStudy, NothingIsChosenWhereNothingHelps) {
  const Summary all = summary_of({{{"--threads 1", -0.3}}, {}}, num_studies());
  EXPECT_LE(all.num_wrong, 0.1 * num_studies());
}

TEST(LabTuneStudy, SmallGainsAreFoundOnTopOfLargeOnes) {
  Machine machine{kUsual, {}};
  machine.effects["--kv-type fp8"] = 0.06;
  machine.effects["--batch-tokens 256"] = 0.05;
  const Summary all = summary_of(machine, num_studies());
  EXPECT_GE(all.num_near, 0.85 * num_studies());
}

// The machine's two speeds differ by more than any of the small effects.
TEST(LabTuneStudy, DriftBetweenTwoSpeedsIsNoEffect) {
  Machine machine{kUsual, {}};
  machine.slow_share = 0.3;
  const Summary all = summary_of(machine, num_studies());
  EXPECT_GE(all.num_near, 0.9 * num_studies());
  EXPECT_LE(all.num_wrong, 0.1 * num_studies());
}

// Alone both help; one on top of the other does harm.
TEST(LabTuneStudy, OptionsThatInteractAreTriedTogether) {
  Machine machine{kUsual, {{{"--activations fast", "--threads 1"}, -0.4}}};
  machine.effects["--threads 1"] = 0.2;
  const Summary all = summary_of(machine, num_studies());
  EXPECT_GE(all.num_near, 0.95 * num_studies());
}

TEST(LabTuneStudy, EveryVerdictIsOnRecord) {
  const Study found = study({kUsual, {}}, 1);
  ASSERT_EQ(found.hypotheses.size(), 5u);
  EXPECT_EQ(found.hypotheses[0].statement, "--activations fast improves ttft of m beside defaults");
  EXPECT_EQ(found.hypotheses[0].state, "validated");
  EXPECT_EQ(found.hypotheses[1].state, "ruled out");
  EXPECT_EQ(found.hypotheses[2].statement,
            "--kv-type fp8 improves ttft of m beside --activations fast");
  for (const lab::Hypothesis& each : found.hypotheses) EXPECT_NE(each.state, "") << each.statement;
}

}  // namespace headrace::lab_tune_test
