// EngineCore: all of the engine that is neither a thread nor a clock.
//
// Requests and ends go in, steps are planned and committed, events come out at each request's sink,
// counters tell of it. The same calls with the same arguments give the same plans, events and
// counts, always: the simulation drives it together with the server's sessions. Who computes the
// step and when is the caller's business; between plan() and commit() requests may be admitted and
// ended and events delivered, so that this work overlaps the forward pass.
// Every request gets exactly one kFinished event, its last. One thread at a time.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/engine_snapshot.h"
#include "engine/live_requests.h"
#include "engine/rate_window.h"
#include "engine/request_metrics.h"
#include "engine/scheduler.h"
#include "engine/step_recorder.h"

namespace headrace {

struct Submission {
  RequestId id = 0;  // of LiveRequests
  Request request;   // checked
  EventSink sink;
  TimeUs submitted_us = 0;
};

// What the counters say of the KV store.
struct KvFacts {
  std::string_view type;     // a name of kKvTypeNames
  uint64_t block_bytes = 0;  // over all layers
};

class EngineCore {
 public:
  // recorder: null, or outlives the core.
  EngineCore(SchedulerOptions options, const KvFacts& kv, StepRecorder* recorder);

  void admit(Submission submission);
  // At once, or with the step in flight. Unknown requests are ignored.
  void end(const Ending& ending, TimeUs now);
  void end_all(FinishReason reason, TimeUs now);
  // Ends those whose queue time or deadline has passed. Before each plan; may leave the core idle.
  void expire(TimeUs now);
  bool idle() const { return scheduler_.idle(); }
  // As Scheduler::set_tenants.
  void set_tenants(const std::vector<TenantSpec>& specs) { scheduler_.set_tenants(specs); }
  // Not while a step is in flight.
  void reset_cache() { scheduler_.reset_cache(); }

  // As Scheduler::plan: not when idle, and committed before the next, unless its spans are empty.
  // What follows from a step but decides nothing of the next is done by settle().
  const StepPlan& plan(TimeUs now);
  // As Scheduler::draft: before plan().
  void draft(TimeUs now) { scheduler_.draft(now); }
  // What the step before has left: as Scheduler::settle; and the step in flight is told to the
  // recorder. Whoever admits, ends or counts does it first; so does the commit.
  void settle();
  const StepPlan* in_flight() const { return in_flight_; }  // null: none
  // Of the step in flight: any time before it samples.
  void fill_masks() { scheduler_.fill_masks(); }
  std::vector<int32_t> take_tainted_blocks() { return scheduler_.take_tainted_blocks(); }
  std::vector<BlockCopy> take_block_copies() { return scheduler_.take_block_copies(); }
  void touch() const;  // as Scheduler::touch
  // results[i] belongs to the plan's spans[i].
  void commit(std::span<SpanResult> results, TimeUs now);

  // Events wait until they are delivered. Each delivery: first count_events(), and whoever shows
  // counters copies them, then deliver_events(): counts are visible before what they count.
  bool has_events() const { return !events_.empty(); }
  void count_events();
  // What a step cost beside computing: for the counters alone.
  void count_gap(TimeUs gap_us) { counted_.step_gap.observe(static_cast<double>(gap_us) * 1e-6); }
  void count_wakes(int count) { counted_.wakes_total += static_cast<uint64_t>(count); }
  // What count_events() counted goes to the sinks; finished(id) follows a request's last event,
  // when its sink is gone. A sink that takes no more ends its request, which makes more events.
  void deliver_events(TimeUs now, const std::function<void(RequestId)>& finished);

  EngineSnapshot snapshot() const;
  const MetricsSnapshot& metrics() const { return counted_; }  // as of count_events()
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // Who listens to a request.
  struct Listener {
    EventSink sink;
    TimeUs arrived_us = 0;
    TimeUs last_token_us = 0;
    int32_t max_tokens = 0;
    bool refused = false;  // the sink took no more: only kFinished is still delivered
  };

  void count_step(const StepPlan& plan, TimeUs committed);
  void count_totals();
  void count_token(Listener* listener);
  void deliver(Event event, TimeUs now, const std::function<void(RequestId)>& finished);

  Scheduler scheduler_;
  const KvFacts kv_;
  StepRecorder* const recorder_;
  std::unordered_map<RequestId, Listener> listeners_;  // never iterated
  std::vector<Event> events_;                          // from the scheduler, not yet counted
  std::vector<Event> delivering_;                      // counted
  const StepPlan* in_flight_ = nullptr;
  bool is_told_ = true;  // the step in flight, to the recorder
  TimeUs planned_us_ = 0;
  RateWindow decode_rate_, prefill_rate_;
  uint64_t num_requests_ = 0, last_step_tokens_ = 0;
  TimeUs last_step_us_ = 0;
  MetricsSnapshot counted_;
};

}  // namespace headrace
