// Rehearsal: takes the way of the engine between two forward passes, on a core of its own with
// little in it, shortly before the engine takes it.
//
// A pass pushes everything else out of a processor's core: the code of commits, guesses and plans,
// and what is remembered of its branches. Code that comes line by line as it runs costs half of
// the time between two passes, in which nothing is computed. A step of a rehearsal brings it while
// other threads still compute. Two streams that repeat themselves are guessed, refused, and begin
// again when they end; nothing of them is seen outside. Engine thread only.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine_core.h"

namespace headrace {

class Rehearsal {
 public:
  // like: the engine's; guesses where that does.
  explicit Rehearsal(const SchedulerOptions& like);

  // Commits a step and plans another.
  void step();
  const EngineCore& core() const { return core_; }

 private:
  void admit();
  void deliver();
  void make_results(const StepPlan& plan);

  const std::unique_ptr<Drafter> drafter_;  // the core's; null: nobody guesses
  EngineCore core_;
  TimeUs now_ = 1;
  RequestId next_id_ = 0;
  int num_running_ = 0;
  std::vector<SpanResult> results_;
};

}  // namespace headrace
