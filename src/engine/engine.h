// Engine: many requests, one step at a time, on a thread of its own. The only thread-safe class.
//
// The engine thread owns scheduler, KV cache, sequences and sampler: drain the inbox, plan a step,
// forward, sample, commit, emit events. Callers meet it at the bounded inbox and at event sinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/request_metrics.h"
#include "engine/request.h"
#include "engine/step_log.h"
#include "model/model.h"

namespace headrace {

// A consistent copy of the engine's counters, for /metrics, the page and tests.
struct EngineSnapshot {
  int num_running = 0;
  int num_waiting = 0;
  int64_t kv_blocks_total = 0, kv_blocks_used = 0, kv_blocks_cached = 0;
  int kv_block_tokens = kBlockTokens;
  std::string_view kv_type;  // how keys and values are stored: a name of kKvTypeNames
  // Address space of all blocks, and the part that was written at some time: the system gives
  // memory only for that.
  uint64_t kv_bytes_reserved = 0, kv_bytes_touched = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;  // since start
  uint64_t num_steps = 0, num_preemptions = 0, num_requests = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  double decode_tokens_per_s = 0;  // over the last second with work
  double prefill_tokens_per_s = 0;
  uint64_t last_step_tokens = 0;
  TimeUs last_step_us = 0;  // when it ended; progress for /health
};

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
  virtual EngineSnapshot snapshot() const = 0;
  virtual MetricsSnapshot metrics() const { return {}; }
  // The newest steps, oldest first, without the contents of requests.
  virtual std::vector<StepRecord> recent_steps(size_t max_steps) const {
    (void)max_steps;
    return {};
  }
  virtual int64_t max_context() const = 0;
};

}  // namespace headrace
