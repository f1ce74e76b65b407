// StepLog: the last steps as values, for the dashboard and for replaying a schedule.
//
// A record holds what went into the scheduler (requests, cancels, the time, results) and the plan
// that came out. While nothing was dropped from the ring, replay() runs a fresh scheduler on the
// same inputs and says where the first plan differs. One writer; the owner guards it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_recorder.h"

namespace headrace {

struct SpanRecord {
  RequestId request_id = 0;
  int64_t first_position = 0;
  int32_t num_tokens = 0;
  int32_t num_sampled = 0;
  bool failed = false;
  std::vector<BeamCandidate> candidates = {};  // of a beam; where requests are kept
};

// An input to the scheduler, in order: before the step was planned, or while it was in flight.
struct InputRecord {
  enum class Kind : uint8_t { kAdmit, kEnd };
  Kind kind = Kind::kAdmit;
  bool in_flight = false;
  RequestId request_id = 0;
  TimeUs time_us = 0;
  FinishReason reason = FinishReason::kNone;  // kEnd: cancelled or stopped by the caller
  Request request;                            // kAdmit; empty in copies made for display
};

struct StepRecord {
  uint64_t step_idx = 0;
  TimeUs planned_us = 0;
  TimeUs committed_us = 0;
  TimeUs predicted_us = 0;  // that it would take; 0: nothing was known
  int32_t num_tokens = 0;
  int32_t num_prompt_tokens = 0;  // of them, positions inside prompts
  int32_t num_running = 0;        // when planned
  int32_t num_waiting = 0;
  int64_t kv_blocks_used = 0;
  std::vector<SpanRecord> spans;
  // Of the sampled rows of the spans that did not fail, in order; -1: that row failed.
  std::vector<int32_t> token_ids;
  std::vector<InputRecord> inputs;
};

class StepLog final : public StepRecorder {
 public:
  // keep_requests: keep whole requests in the inputs, so that the log can be replayed.
  StepLog(size_t capacity, bool keep_requests);

  void admitted(RequestId id, const Request& request, TimeUs submitted_us) override;
  void ended(RequestId id, FinishReason reason, TimeUs now) override;
  void planned(const StepPlan& plan, const Scheduler& scheduler, TimeUs now) override;
  void committed(std::span<const SpanResult> results, TimeUs now) override;

  // The newest max_records, oldest first, without requests.
  std::vector<StepRecord> recent(size_t max_records) const;
  // kInternal at the first step whose plan differs; kUnavailable if the ring has dropped steps or
  // requests were not kept.
  Status replay(const SchedulerOptions& options) const;

 private:
  std::vector<InputRecord>& inputs() { return in_flight_ ? current().inputs : pending_; }
  StepRecord& current() { return records_[static_cast<size_t>(num_steps_ % records_.size())]; }

  std::vector<StepRecord> records_;  // ring
  uint64_t num_steps_ = 0;           // complete records ever written
  const bool keep_requests_;
  bool in_flight_ = false;
  std::vector<InputRecord> pending_;  // inputs since the last step
};

}  // namespace headrace
