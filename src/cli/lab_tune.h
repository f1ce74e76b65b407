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

// A goal: what is measured, by which benchmark and what of it.
struct TuneGoal {
  std::string_view name;  // "ttft"
  std::string_view metric;
  bool more_is_better;
  double predicted;                 // improvement worth an option
  std::string_view bench;           // "step", "serve"
  std::vector<std::string> points;  // further arguments
};
// kInvalidArgument lists the goals.
Result<TuneGoal> find_goal(std::string_view name);

// A value of an option that may serve a goal.
struct TuneCandidate {
  std::string option, value;
  std::string reason;    // why it may help
  bool changes_answers;  // other arithmetic, so other bits
  int turn = 0;          // large effects go first: what comes later is tried on top of them
};
// What candidates depend on.
struct TuneMeans {
  int num_threads = 1;       // that the machine has
  std::string cache_folder;  // for packed weights
  std::string draft_model;   // empty: none
};
std::vector<TuneCandidate> tune_candidates(std::string_view goal, const TuneMeans& means);

// A candidate, the settings that it was tried on top of, and what was found of it.
struct TuneResult {
  TuneCandidate candidate;
  std::vector<TuneCandidate> beside;
  lab::Effect effect;
};
struct Tuned {
  std::vector<TuneResult> chosen;  // one after the other, each on top of those before it
  std::vector<TuneResult> tried;   // all of them
};
// That were validated in one race, best first; of each option only the best value.
std::vector<TuneResult> winners(std::span<const TuneResult> race);
// Of a side that is undecided: that no more runs are worth it, since it would be a small gain if it
// were one at all. Evidence of two to one against it is enough after the least number of rounds;
// with each further one it must be better. For lab::RunnerOptions.
bool leans_against(const lab::Effect& effect);

struct TuneRequest {
  TuneGoal goal;
  std::string model;
  std::vector<TuneCandidate> candidates;
  int max_rounds = 12;  // of a race
  std::string author;
};
// Races, each an experiment of the laboratory: the candidates of a turn, and what won beside the
// last one that was chosen, on top of all that was chosen so far; the best that is validated is
// chosen. kUnprocessable when nothing could be run; ends early when the runner is told to stop.
Result<Tuned> search_options(lab::Store& store, lab::Runner& runner, const TuneRequest& request);

// The file of settings: what is recommended and, as comments, the evidence of everything tried.
std::string tuned_settings(const TuneGoal& goal, const std::string& model, const Tuned& tuned);

// The command: writes tuned-GOAL.toml in the laboratory and prints it. Returns the exit status.
Result<int> tune(const Options& options, lab::Store& store, const std::string& model,
                 const std::string& author);

}  // namespace headrace
