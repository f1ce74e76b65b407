// lab tune: which options suit this machine and model, found by experiments of the laboratory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/runner.h"
#include "options.h"

namespace headrace {

// What `lab run` and `lab tune` give the runner.
lab::RunnerOptions runner_options(const Options& options, const std::string& author,
                                  std::function<bool()> stops);

// A goal: what is measured, by which points of `bench step`.
struct TuneGoal {
  std::string_view name;  // "ttft"
  std::string_view metric;
  bool more_is_better;
  double predicted;  // improvement worth an option
  std::vector<std::string> points;
};
// kInvalidArgument lists the goals.
Result<TuneGoal> find_goal(std::string_view name);

// A value of an option that may serve a goal.
struct TuneCandidate {
  std::string option, value;
  std::string reason;    // why it may help
  bool changes_answers;  // other arithmetic, so other bits
};
// num_threads: that the machine has. cache_folder: for packed weights.
std::vector<TuneCandidate> tune_candidates(std::string_view goal, int num_threads,
                                           const std::string& cache_folder);

// A candidate and what was found of it.
struct TuneResult {
  TuneCandidate candidate;
  lab::Effect effect;
};
// Of each option the value with the greatest effect of those that were validated.
std::vector<TuneResult> winners(std::span<const TuneResult> results);
// The file of settings: what is recommended and, as comments, the evidence of everything tried.
// whole: of the winners together beside the defaults; null: fewer than two won.
std::string tuned_settings(const TuneGoal& goal, const std::string& model,
                           std::span<const TuneResult> results, const lab::Effect* whole);

// The command: writes tuned-GOAL.toml in the laboratory and prints it. Returns the exit status.
Result<int> tune(const Options& options, lab::Store& store, const std::string& model,
                 const std::string& author);

}  // namespace headrace
