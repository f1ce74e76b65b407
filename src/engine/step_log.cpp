#include "engine/step_log.h"

#include <algorithm>

namespace headrace {
namespace {

void apply_inputs(const StepRecord& record, bool in_flight, Scheduler* scheduler,
                  std::vector<Event>* events) {
  for (const InputRecord& input : record.inputs) {
    if (input.in_flight != in_flight) continue;
    if (input.kind == InputRecord::Kind::kAdmit) {
      scheduler->admit(input.request_id, input.request, input.time_us);
    } else {
      scheduler->end(input.request_id, input.reason, input.time_us, events);
    }
  }
}

Status replay_step(const StepRecord& record, Scheduler* scheduler) {
  std::vector<Event> events;
  apply_inputs(record, /*in_flight=*/false, scheduler, &events);
  const StepPlan& plan = scheduler->plan(record.planned_us);
  if (plan.spans.size() != record.spans.size()) {
    return make_error(ErrorCode::kInternal, "step {} planned {} spans, {} when replayed",
                      record.step_idx, record.spans.size(), plan.spans.size());
  }
  std::vector<SpanResult> results(plan.spans.size());
  std::vector<float> states;
  auto token_id = record.token_ids.begin();
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const SpanRecord& logged = record.spans[i];
    const bool same = plan.sequences[i]->id == logged.request_id &&
                      span.first_position == logged.first_position &&
                      span.num_rows == logged.num_tokens && span.num_sampled == logged.num_sampled;
    if (!same) {
      return make_error(ErrorCode::kInternal, "step {} differs in span {} when replayed",
                        record.step_idx, i);
    }
    if (logged.failed) results[i].failure = "it failed";
    const bool is_beam = plan.sequences[i]->request.beams.width > 0;
    for (int32_t row = 0; row < logged.num_sampled && !logged.failed; ++row, ++token_id) {
      const bool fails = *token_id < 0 && !is_beam;
      results[i].sampled.push_back({*token_id, {}, fails ? "it failed" : ""});
      results[i].sampled.back().candidates = logged.candidates;
    }
    results[i].scored.resize(static_cast<size_t>(span.num_scored));
    states.resize(static_cast<size_t>(span.num_pooled));  // their values decide nothing
    results[i].pooled = states;
  }
  apply_inputs(record, /*in_flight=*/true, scheduler, &events);
  scheduler->commit(results, record.committed_us, &events);
  return {};
}

}  // namespace

StepLog::StepLog(size_t capacity, bool keep_requests)
    : records_(capacity), keep_requests_(keep_requests) {
  CHECK(capacity > 0);
}

void StepLog::admitted(RequestId id, const Request& request, TimeUs submitted_us) {
  InputRecord input;
  input.in_flight = in_flight_;
  input.request_id = id;
  input.time_us = submitted_us;
  if (keep_requests_) {
    input.request = request;
    input.request.constraint = nullptr;  // it tells what was sampled already
  }
  inputs().push_back(std::move(input));
}

void StepLog::ended(RequestId id, FinishReason reason, TimeUs now) {
  InputRecord input;
  input.in_flight = in_flight_;
  input.kind = InputRecord::Kind::kEnd;
  input.reason = reason;
  input.request_id = id;
  input.time_us = now;
  inputs().push_back(std::move(input));
}

void StepLog::planned(const StepPlan& plan, const Scheduler& scheduler, TimeUs now) {
  StepRecord& record = current();
  record.step_idx = plan.step_idx;
  record.planned_us = now;
  record.committed_us = 0;
  record.predicted_us = static_cast<TimeUs>(plan.predicted_us);
  record.num_tokens = plan.num_tokens;
  record.num_prompt_tokens = 0;
  record.num_running = scheduler.num_running();
  record.num_waiting = scheduler.num_waiting();
  record.kv_blocks_used = scheduler.kv_cache().pool().num_used();
  record.inputs.clear();
  std::swap(record.inputs, pending_);
  in_flight_ = true;
  record.spans.clear();
  record.token_ids.clear();
  record.token_ids.reserve(static_cast<size_t>(plan.num_logit_rows));
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const Sequence& sequence = *plan.sequences[i];
    record.spans.push_back(
        {sequence.id, span.first_position, span.num_rows, span.num_sampled, false, {}});
    record.num_prompt_tokens += static_cast<int32_t>(
        std::clamp<int64_t>(sequence.num_prompt - span.first_position, 0, span.num_rows));
  }
}

void StepLog::committed(std::span<const SpanResult> results, TimeUs now) {
  StepRecord& record = current();
  CHECK(results.size() == record.spans.size(), "{} results, {} spans", results.size(),
        record.spans.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].failed()) {
      record.spans[i].failed = true;
      continue;
    }
    for (const SampledToken& sampled : results[i].sampled) {
      record.token_ids.push_back(sampled.failure.empty() ? sampled.token_id : -1);
      if (keep_requests_) record.spans[i].candidates = sampled.candidates;
    }
  }
  record.committed_us = now;
  in_flight_ = false;
  ++num_steps_;
}

std::vector<StepRecord> StepLog::recent(size_t max_records) const {
  const uint64_t count = std::min<uint64_t>({num_steps_, records_.size(), max_records});
  std::vector<StepRecord> recent;
  recent.reserve(static_cast<size_t>(count));
  for (uint64_t i = num_steps_ - count; i < num_steps_; ++i) {
    recent.push_back(records_[static_cast<size_t>(i % records_.size())]);
    for (InputRecord& input : recent.back().inputs) input.request = {};
  }
  return recent;
}

Status StepLog::replay(const SchedulerOptions& options) const {
  if (!keep_requests_ || num_steps_ > records_.size()) {
    return make_error(ErrorCode::kUnavailable,
                      "{} steps were logged in a ring of {}{}: only a whole log can be replayed",
                      num_steps_, records_.size(), keep_requests_ ? "" : " without requests");
  }
  Scheduler scheduler(options);
  for (uint64_t step = 0; step < num_steps_; ++step) {
    TRY(replay_step(records_[static_cast<size_t>(step)], &scheduler));
  }
  return {};
}

}  // namespace headrace
