// Runner: works the queue off, one run at a time.
//
// It has the machine for itself as far as that can be had: a lock keeps other runners away, a run
// waits until the machine is idle, and one beside which others worked is repeated. Sides of a round
// run in turn, every other round in the reverse order; a side whose hypothesis is decided runs no
// more. An experiment ends when its hypotheses are decided, when enough rounds ran or when a side
// fails twice in a row; then the queue is ordered anew, and what the decision made pointless is
// dropped. A run is on record before it starts, its result before the next one: a runner that was
// killed loses the run it was at, and the next one queues that experiment again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "lab/known_effects.h"
#include "lab/process.h"
#include "lab/queue.h"
#include "lab/store.h"

namespace headrace::lab {

struct RunnerOptions {
  std::string author = "runner";
  std::string machine_lock;     // a file that all runners of this machine share; empty: none
  std::string machine;          // JSON that is kept with each run: processor, commit
  double idle_share = 0.1;      // of the cores, that others may use
  double idle_patience_s = 60;  // then the run begins all the same
  std::function<bool()> stops;  // asked before and during each run; may be empty
  // Asked of what is known of an undecided side: true ends its runs and leaves its hypothesis open.
  std::function<bool(const Effect&)> gives_up;  // may be empty
  // Runs a side; empty: run_process.
  std::function<Result<ProcessResult>(const Experiment&, const Run&)> execute;
  std::function<void(const std::string&)> report;  // a line for whoever watches; may be empty
};

class Runner {
 public:
  // kExhausted when another runner is at work; the store outlives the runner.
  static Result<std::unique_ptr<Runner>> create(Store& store, RunnerOptions options);

  // Until the queue is empty or it is told to stop. Returns how many experiments ended.
  Result<int> run();

 private:
  Runner(Store& store, RunnerOptions options, std::vector<Descriptor> locks);
  Result<std::vector<Place>> order();
  Status tell_moves(const std::vector<Place>& order);
  Status run_experiment(int64_t id);
  Status run_rounds(Experiment experiment);
  Result<bool> run_round(const Experiment& experiment, int64_t round);
  Result<bool> run_side(const Experiment& experiment, int64_t side_idx, int64_t round);
  Result<Run> run_once(const Experiment& experiment, int64_t side_idx, int64_t round);
  Result<ProcessResult> execute(const Experiment& experiment, const Run& run) const;
  void wait_for_idle();
  std::string machine_json(double others) const;
  Result<std::set<int64_t>> finished_sides(const Experiment& experiment);
  Result<bool> is_finished(const Experiment& experiment, int64_t num_rounds);
  Status end_experiment(const Experiment& experiment);
  bool stops() const { return options_.stops && options_.stops(); }
  void say(const std::string& line) const {
    if (options_.report) options_.report(line);
  }

  Store& store_;
  KnownEffects effects_;
  const RunnerOptions options_;
  const std::vector<Descriptor> locks_;
  std::map<int64_t, size_t> places_;  // of experiments, when they were told last
  bool was_idle_ = false;             // the machine, up to the end of the last run
};

}  // namespace headrace::lab
