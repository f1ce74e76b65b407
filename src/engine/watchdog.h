// Watchdog: notices an engine that hangs, says in what, and ends the requests in its place.
//
// It hangs when there are requests, and for the whole deadline neither did a step begin nor did the
// back end join its threads once. Time counts only while this process runs: what a suspended
// machine, a stopped process or a crowded one does not let run is not counted, so a slow machine is
// no reason to trip. On a hang a thread of the watchdog logs the state, gives each watched request
// its kFinished with kError, then calls on_hang. It happens once; what the engine does later
// reaches nobody.
// Source: docs/adr/0084-hung-engine.md
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/request.h"
#include "engine/scheduler.h"

namespace headrace {

// How long nothing has moved, looked at once a tick. A look that comes late counts as two ticks:
// then whoever looks was not let run either.
class StallClock {
 public:
  struct Mark {  // changes whenever something moves
    uint64_t num_begun = 0;
    int64_t progress = 0;
    bool operator==(const Mark&) const = default;
  };
  explicit StallClock(TimeUs tick_us) : tick_us_(tick_us) {}

  TimeUs look(TimeUs now, const Mark& mark);
  void rest(TimeUs now);  // there is nothing that could move

 private:
  const TimeUs tick_us_;
  TimeUs looked_us_ = 0, stalled_us_ = 0;
  Mark mark_;
};

class Watchdog {
 public:
  struct Options {
    std::chrono::milliseconds deadline{0};  // 0: watches nothing
    std::function<int64_t()> progress;      // of the back end; from any thread
    // After the requests were ended; the lines of the log. On the watchdog's thread.
    std::function<void(const std::vector<std::string>& report)> on_hang;
  };
  explicit Watchdog(Options options);
  ~Watchdog();  // no step is in flight
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The sink to hand to the engine in place of a request's own. From any thread.
  EventSink watch(RequestId id, std::string client_id, EventSink sink);

  // Engine thread, around the work on a step.
  void begin(TimeUs now);
  void end();
  // What a report tells of the step. Between the two, by one thread at a time.
  void tell(const StepPlan& plan);

 private:
  struct Watched;
  struct SpanNote {
    RequestId id = 0;
    int64_t first_position = 0;
    int32_t num_rows = 0, num_sampled = 0, num_draft = 0, num_prompt = 0, num_output = 0;
  };
  // Of the newest step.
  struct StepNote {
    uint64_t step_idx = 0;
    int32_t num_tokens = 0, num_logit_rows = 0;
    std::vector<SpanNote> spans;
  };

  bool enabled() const { return options_.deadline.count() > 0; }
  void run();
  void trip(TimeUs stalled_us, const std::string& thread_state);
  std::vector<std::string> report(TimeUs stalled_us, const std::string& thread_state) const;
  void end_requests();

  const Options options_;
  const std::chrono::milliseconds tick_;
  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  bool closing_ = false;  // guarded
  std::atomic<bool> in_step_ = false;
  std::atomic<uint64_t> num_begun_ = 0;
  std::atomic<TimeUs> begun_us_ = 0;
  std::atomic<pthread_t> engine_thread_{};                 // of the newest step
  StepNote step_;                                          // guarded
  std::map<RequestId, std::shared_ptr<Watched>> watched_;  // guarded; not ended yet
  std::thread thread_;                                     // last; none when nothing is watched
};

}  // namespace headrace
