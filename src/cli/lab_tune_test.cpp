// Which options a tuning recommends.
#include "cli/lab_tune.h"

#include <gtest/gtest.h>

namespace headrace::lab_tune_test {

TuneResult result_of(const char* option, const char* value, double improvement,
                     lab::Verdict verdict, bool changes = false) {
  return {{option, value, "because", changes},
          {5, improvement, improvement, improvement, 4, verdict}};
}

using enum lab::Verdict;

TEST(LabTune, GoalsAreNamed) {
  EXPECT_EQ(find_goal("ttft").value().metric, "tok_s");
  EXPECT_FALSE(find_goal("memory").value().more_is_better);
  EXPECT_EQ(find_goal("speed").error().message,
            "there is no goal 'speed'; the goals are ttft, throughput, memory, start");
}

TEST(LabTune, CandidatesDependOnGoalAndMachine) {
  const auto count = [](std::string_view goal, int threads, std::string_view option) {
    const auto all = tune_candidates(goal, threads, "/kept");
    return std::count_if(all.begin(), all.end(),
                         [&](const TuneCandidate& each) { return each.option == option; });
  };
  EXPECT_EQ(count("ttft", 1, "--threads"), 0);
  EXPECT_EQ(count("ttft", 8, "--threads"), 3);
  EXPECT_EQ(count("memory", 8, "--threads"), 0);
  EXPECT_EQ(count("throughput", 2, "--activations"), 1);
  EXPECT_EQ(tune_candidates("start", 8, "/kept").front().value, "/kept");
  EXPECT_LE(tune_candidates("ttft", 1024, "/kept").size(), 15u) << "sides beside the defaults";
}

TEST(LabTune, TheBestValidatedValueOfEachOptionWins) {
  const std::vector<TuneResult> results = {
      result_of("--a", "1", 0.05, kValidated), result_of("--a", "2", 0.1, kValidated),
      result_of("--a", "3", 0.5, kUndecided), result_of("--b", "1", -0.1, kRuledOut)};
  const auto won = winners(results);
  ASSERT_EQ(won.size(), 1u);
  EXPECT_EQ(won[0].candidate.value, "2");
}

TEST(LabTune, TheFileHasTheChoiceAndTheEvidence) {
  const std::vector<TuneResult> results = {
      result_of("--activations", "int8", 0.2, kValidated, true),
      result_of("--threads", "4", 0.1, kValidated),
      result_of("--kv-type", "fp8", 0.0, kRuledOut, true)};
  const TuneGoal goal = find_goal("throughput").value();
  const lab::Effect together{6, 0.3, 0.28, 0.32, 5, kValidated};
  const std::string text = tuned_settings(goal, "m", results, &together);
  EXPECT_EQ(
      text,
      "# Recommended for throughput of m by headrace lab tune.\n"
      "# Together: 30.0 % better (28.0 to 32.0 %) in 6 rounds; predicted 3.0 %\n"
      "activations = \"int8\"\n"
      "threads = 4\n"
      "\n"
      "# What was tried, beside the defaults:\n"
      "# activations = int8: validated, 20.0 % better (20.0 to 20.0 %) in 5 rounds; predicted "
      "3.0 %; changes the bits of answers\n"
      "# threads = 4: validated, 10.0 % better (10.0 to 10.0 %) in 5 rounds; predicted 3.0 %\n"
      "# kv-type = fp8: ruled out, 0.0 % better (0.0 to 0.0 %) in 5 rounds; predicted 3.0 %; "
      "changes the bits of answers\n");
  // Together worse than the best alone: that one.
  const lab::Effect worse{6, 0.15, 0.1, 0.2, 5, kValidated};
  const std::string alone = tuned_settings(goal, "m", results, &worse);
  EXPECT_NE(alone.find("activations = \"int8\"\n\n"), std::string::npos) << alone;
}

TEST(LabTune, DefaultsWhereNothingWins) {
  const std::vector<TuneResult> results = {result_of("--threads", "1", -0.4, kRuledOut)};
  const std::string text = tuned_settings(find_goal("ttft").value(), "m", results, nullptr);
  EXPECT_NE(text.find("# The defaults: nothing that was tried is better.\n"), std::string::npos);
}

}  // namespace headrace::lab_tune_test
