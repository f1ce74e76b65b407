#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/prefetch.h"

namespace headrace {

EngineCore::EngineCore(SchedulerOptions options, const KvFacts& kv, StepRecorder* recorder)
    : scheduler_(std::move(options)), kv_(kv), recorder_(recorder) {}

void EngineCore::admit(Submission submission) {
  settle();
  const RequestId id = submission.id;
  Listener listener;
  listener.sink = std::move(submission.sink);
  const TimeUs arrived = submission.request.arrived_us;
  listener.arrived_us = arrived > 0 ? arrived : submission.submitted_us;
  listener.max_tokens = submission.request.max_tokens;
  listeners_.emplace(id, std::move(listener));
  ++num_requests_;
  if (recorder_ != nullptr) recorder_->admitted(id, submission.request, submission.submitted_us);
  scheduler_.admit(id, std::move(submission.request), submission.submitted_us);
}

void EngineCore::end(const Ending& ending, TimeUs now) {
  settle();
  if (recorder_ != nullptr) recorder_->ended(ending.id, ending.reason, now);
  scheduler_.end(ending.id, ending.reason, now, &events_);
}

void EngineCore::end_all(FinishReason reason, TimeUs now) {
  for (const RequestId id : scheduler_.ids()) end({id, reason}, now);
}

void EngineCore::expire(TimeUs now) {
  for (const RequestId id : scheduler_.take_expired(now)) end({id, FinishReason::kExpired}, now);
}

const StepPlan& EngineCore::plan(TimeUs now) {
  planned_us_ = now;
  const StepPlan& plan = scheduler_.plan(now);
  if (plan.spans.empty()) return plan;
  in_flight_ = &plan;
  is_told_ = recorder_ == nullptr;
  return plan;
}

void EngineCore::settle() {
  if (in_flight_ == nullptr) return;  // between steps it may decide something
  scheduler_.settle();
  if (!std::exchange(is_told_, true)) recorder_->planned(*in_flight_, scheduler_, planned_us_);
}

// Room for the events of two tokens each, where there is memory for them.
void EngineCore::touch() const {
  scheduler_.touch();
  const size_t num_events =
      std::min(2 * in_flight_->spans.size(), events_.capacity() - events_.size());
  prefetch<PrefetchFor::kWrite>(events_.data() + events_.size(), num_events * sizeof(Event));
}

void EngineCore::commit(std::span<SpanResult> results, TimeUs now) {
  CHECK(in_flight_ != nullptr, "{} results, but no step is planned", results.size());
  settle();
  if (recorder_ != nullptr) recorder_->committed(results, now);
  count_step(*std::exchange(in_flight_, nullptr), now);
  const uint64_t before = scheduler_.stats().generation_tokens;
  scheduler_.commit(results, now, &events_);
  decode_rate_.add(scheduler_.stats().generation_tokens - before, now - planned_us_);
}

void EngineCore::count_step(const StepPlan& plan, TimeUs committed) {
  uint64_t num_prefill = 0;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    num_prefill += static_cast<uint64_t>(
        std::clamp<int64_t>(plan.sequences[i]->num_prompt - span.first_position, 0, span.num_rows));
  }
  prefill_rate_.add(num_prefill, committed - planned_us_);
  last_step_tokens_ = static_cast<uint64_t>(plan.num_tokens);
  last_step_us_ = committed;
  counted_.iteration_tokens.observe(plan.num_tokens);
}

void EngineCore::count_events() {
  CHECK(delivering_.empty(), "{} events are counted and not delivered", delivering_.size());
  settle();
  std::swap(events_, delivering_);
  for (const Event& event : delivering_) {
    Listener& listener = listeners_.at(event.request_id);
    if (event.kind == Event::Kind::kToken) count_token(&listener);
    if (event.kind == Event::Kind::kFinished) {
      counted_.record_finished(event, listener.max_tokens, listener.arrived_us);
    }
  }
  count_totals();
}

void EngineCore::count_token(Listener* listener) {
  const TimeUs now = last_step_us_;
  const bool is_first = listener->last_token_us == 0;
  const TimeUs since = is_first ? listener->arrived_us : listener->last_token_us;
  Histogram& latency = is_first ? counted_.time_to_first_token : counted_.inter_token_latency;
  latency.observe(static_cast<double>(now - since) * 1e-6);
  listener->last_token_us = now;
}

void EngineCore::deliver_events(TimeUs now, const std::function<void(RequestId)>& finished) {
  for (Event& event : delivering_) deliver(std::move(event), now, finished);
  delivering_.clear();
}

void EngineCore::deliver(Event event, TimeUs now, const std::function<void(RequestId)>& finished) {
  const RequestId id = event.request_id;
  const auto found = listeners_.find(id);
  CHECK(found != listeners_.end(), "event of request {} after its end", id);
  Listener& listener = found->second;
  if (event.kind == Event::Kind::kFinished) {
    listener.sink(std::move(event));
    listeners_.erase(found);
    return finished(id);
  }
  if (listener.refused || listener.sink(std::move(event))) return;
  listener.refused = true;
  end({id, FinishReason::kCancelled}, now);
}

EngineSnapshot EngineCore::snapshot() const {
  const SchedulerStats& stats = scheduler_.stats();
  const BlockPool& cache = scheduler_.kv_cache().pool();
  const auto finished = [this](FinishReason reason) {
    return counted_.finished[static_cast<size_t>(reason)];
  };
  EngineSnapshot snapshot;
  snapshot.num_running = scheduler_.num_running();
  snapshot.num_waiting = scheduler_.num_waiting();
  snapshot.kv_blocks_total = cache.num_total();
  snapshot.kv_blocks_used = cache.num_used();
  snapshot.kv_blocks_cached = cache.num_cached();
  snapshot.kv_type = kv_.type;
  snapshot.kv_bytes_reserved = static_cast<uint64_t>(cache.num_total()) * kv_.block_bytes;
  snapshot.kv_bytes_touched = static_cast<uint64_t>(cache.num_touched()) * kv_.block_bytes;
  snapshot.prompt_tokens = stats.prompt_tokens;
  snapshot.generation_tokens = stats.generation_tokens;
  snapshot.num_steps = stats.num_steps;
  snapshot.num_preemptions = stats.num_preemptions;
  snapshot.restored_tokens = stats.restored_tokens;
  snapshot.tier_waits = stats.num_fetches;
  snapshot.tier_refusals = stats.num_refusals;
  snapshot.tier_late = stats.num_late_fetches;
  if (const KvTier* tier = scheduler_.options().tier) snapshot.tier = tier->stats();
  snapshot.num_requests = num_requests_;
  snapshot.finished_stop = finished(FinishReason::kStop);
  snapshot.finished_length = finished(FinishReason::kLength);
  snapshot.finished_cancelled = finished(FinishReason::kCancelled);
  snapshot.finished_error = finished(FinishReason::kError) + finished(FinishReason::kExpired);
  snapshot.decode_tokens_per_s = decode_rate_.per_second();
  snapshot.prefill_tokens_per_s = prefill_rate_.per_second();
  snapshot.last_step_tokens = last_step_tokens_;
  snapshot.last_step_us = last_step_us_;
  snapshot.tenants = scheduler_.tenants().uses();
  return snapshot;
}

void EngineCore::count_totals() {
  const SchedulerStats& stats = scheduler_.stats();
  counted_.prompt_tokens_total = stats.prompt_tokens;
  counted_.generation_tokens_total = stats.generation_tokens;
  counted_.steps_total = stats.num_steps;
  counted_.steps_predicted = stats.predicted_steps;
  counted_.steps_close = stats.close_predictions;
  counted_.steps_shortened = stats.shortened_steps;
  counted_.preemptions_total = stats.num_preemptions;
  counted_.prompt_tokens_cached = counted_.prefix_cache_hits = stats.cached_tokens;
  counted_.prompt_tokens_computed = stats.prompt_tokens - stats.cached_tokens;
  counted_.prefix_cache_queries = stats.prompt_tokens;
  counted_.drafts = stats.drafts;
  counted_.draft_pauses = scheduler_.draft_policy().num_pauses();
  counted_.drafts_paused = scheduler_.draft_policy().is_paused();
}

}  // namespace headrace
