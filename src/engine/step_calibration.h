// What steps cost on this machine, before the first request comes.
#pragma once

#include <chrono>

#include "engine/scheduler.h"
#include "engine/step_cost.h"
#include "engine/step_runner.h"

namespace headrace {

// Runs a few steps, of 1 to 256 tokens and of several sequences, on blocks that nobody holds yet,
// for at most about `limit`: a step that would take longer is left out. options: of the scheduler
// that follows. Nothing is counted, nothing stays in the cache.
StepCost measure_steps(StepRunner& runner, const SchedulerOptions& options,
                       std::chrono::milliseconds limit);

}  // namespace headrace
