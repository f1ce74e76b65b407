// Engine: many requests, one step at a time, on a thread of its own. The only thread-safe class.
//
// The engine thread owns the core (engine_core.h) and the step runner: plan a step, compute it,
// commit. While a step is computed a helper delivers the events of the step before, takes what came
// in and makes masks. Callers meet the two at the bounded inbox and at event sinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/engine_snapshot.h"
#include "engine/request.h"
#include "engine/request_metrics.h"
#include "engine/step_log.h"
#include "model/model.h"

namespace headrace {

class StepProfiler;  // step_profiler.h

class Engine {
 public:
  // The model and its backend outlive the engine. end_ids: the model's end-of-generation tokens.
  static Result<std::unique_ptr<Engine>> create(Model& model, Backend& backend,
                                                const EngineOptions& options,
                                                std::vector<int32_t> end_ids);
  virtual ~Engine() = default;  // cancels what is left (each gets its kFinished), joins the thread

  // Checks the request (kInvalidArgument with `param`), queues it (kExhausted when full,
  // kUnavailable when draining). On success exactly one kFinished event follows, maybe before
  // submit returns.
  virtual Result<RequestId> submit(Request request, EventSink sink) = 0;
  // Takes effect within one step, in any state; unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // As cancel, of a request whose answer is complete for its caller (a stop string came): it ends,
  // and counts, as stopped. An engine that does not count may take it for a cancel.
  virtual void stop(RequestId id) { cancel(id); }
  // Refuses new work, waits for the running until the deadline, cancels the rest. True if none was.
  // False also when a step hangs: then requests are left without their end. Not to be called from a
  // sink.
  virtual bool drain(std::chrono::milliseconds deadline) = 0;
  // At once, or after the step in flight: no prefix that was cached by now is found again.
  virtual void reset_cache() {}
  virtual EngineSnapshot snapshot() const = 0;
  virtual MetricsSnapshot metrics() const { return {}; }
  // Of the layers that have experts, in order; as of the last step.
  virtual std::vector<ExpertRows> expert_rows() const { return {}; }
  // The newest steps, oldest first, without the contents of requests.
  virtual std::vector<StepRecord> recent_steps(size_t max_steps) const {
    (void)max_steps;
    return {};
  }
  // Records where the time of steps goes; null: this engine does not tell. Outlived by the engine.
  virtual StepProfiler* profiler() { return nullptr; }
  virtual int64_t max_context() const = 0;
};

}  // namespace headrace
