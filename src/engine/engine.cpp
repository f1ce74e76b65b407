#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/queue.h"
#include "engine/kv_sizing.h"
#include "engine/rate_window.h"
#include "engine/request_check.h"
#include "engine/step_runner.h"

namespace headrace {
namespace {

constexpr size_t kLoggedSteps = 512;

struct Submission {
  RequestId id = 0;
  Request request;
  EventSink sink;
  TimeUs submitted_us = 0;
};

// Who asked: the engine thread's side of a live request.
struct Client {
  EventSink sink;
  TimeUs submitted_us = 0;
  TimeUs last_token_us = 0;
  int32_t max_tokens = 0;
  bool refused = false;  // the sink took no more: only kFinished is still delivered
};

class EngineThread final : public Engine {
 public:
  EngineThread(SchedulerOptions scheduler_options, int max_live, int64_t vocab_size,
               std::unique_ptr<StepRunner> runner);
  ~EngineThread() override;

  Result<RequestId> submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override;
  bool drain(std::chrono::milliseconds deadline) override;
  EngineSnapshot snapshot() const override;
  MetricsSnapshot metrics() const override;
  std::vector<StepRecord> recent_steps(size_t max_steps) const override;
  int64_t max_context() const override { return limits_.max_context; }

 private:
  void run();
  bool receive();
  void admit(Submission submission);
  void apply_cancels(const std::vector<RequestId>& ids);
  std::vector<RequestId> take_cancels();
  void step();
  void count_step(const StepPlan& plan, TimeUs planned, TimeUs committed);
  void flush_events();
  void account(const Event& event);
  void publish();
  void deliver(Event event);
  void cancel_all();

  // Constant after construction.
  const RequestLimits limits_;
  const size_t max_live_;

  // Engine thread only.
  Scheduler scheduler_;
  std::unique_ptr<StepRunner> runner_;
  std::unordered_map<RequestId, Client> clients_;
  std::vector<Event> events_;  // from the scheduler, not yet delivered
  std::vector<Event> delivering_;
  RateWindow decode_rate_, prefill_rate_;
  EngineSnapshot counters_;
  MetricsSnapshot counted_;

  // Thread-safe.
  BoundedQueue<Submission> inbox_;

  mutable std::mutex mutex_;
  std::condition_variable finished_;          // live_ got smaller
  std::unordered_map<RequestId, bool> live_;  // guarded; accepted, not finished -> cancelled?
  std::vector<RequestId> cancels_;            // guarded; of live requests, each once
  RequestId next_id_ = 1;                     // guarded
  bool draining_ = false;                     // guarded
  EngineSnapshot published_;                  // guarded
  MetricsSnapshot published_metrics_;         // guarded
  StepLog log_{kLoggedSteps, /*keep_requests=*/false};  // guarded

  std::thread thread_;  // last: everything above is there when it starts
};

EngineThread::EngineThread(SchedulerOptions scheduler_options, int max_live, int64_t vocab_size,
                           std::unique_ptr<StepRunner> runner)
    : limits_{vocab_size, scheduler_options.max_context},
      max_live_(static_cast<size_t>(max_live)),
      scheduler_(std::move(scheduler_options)),
      runner_(std::move(runner)),
      inbox_(max_live_) {
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  inbox_.close();
  thread_.join();
}

Result<RequestId> EngineThread::submit(Request request, EventSink sink) {
  CHECK(sink != nullptr);
  TRY(check_request(request, limits_));
  // The push happens under the lock: whoever sees the id in live_ knows that it is in the inbox.
  std::lock_guard lock(mutex_);
  if (draining_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
  if (live_.size() >= max_live_) {
    Error error = make_error(ErrorCode::kExhausted, "{} requests are running or waiting, the limit",
                             live_.size());
    error.hint = "try again later";
    return error;
  }
  const RequestId id = next_id_++;
  const bool pushed =
      inbox_.try_push(Submission{id, std::move(request), std::move(sink), now_us()});
  CHECK(pushed, "the inbox holds {} of at most {} live requests", inbox_.size(), max_live_);
  live_.emplace(id, false);
  return id;
}

void EngineThread::cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end() || std::exchange(found->second, true)) return;
  cancels_.push_back(id);
}

bool EngineThread::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto is_empty = [this] { return live_.empty(); };
  if (finished_.wait_for(lock, deadline, is_empty)) return true;
  for (auto& [id, cancelled] : live_) {
    if (!std::exchange(cancelled, true)) cancels_.push_back(id);
  }
  finished_.wait(lock, is_empty);
  return false;
}

EngineSnapshot EngineThread::snapshot() const {
  std::lock_guard lock(mutex_);
  EngineSnapshot copy = published_;
  copy.num_waiting += static_cast<int>(inbox_.size());
  return copy;
}

MetricsSnapshot EngineThread::metrics() const {
  std::lock_guard lock(mutex_);
  return published_metrics_;
}

std::vector<StepRecord> EngineThread::recent_steps(size_t max_steps) const {
  std::lock_guard lock(mutex_);
  return log_.recent(max_steps);
}

void EngineThread::run() {
  while (receive()) {
    if (!scheduler_.idle()) step();
    flush_events();
  }
  cancel_all();
}

// Takes what came in; sleeps when there is nothing to do. False: the engine ends.
bool EngineThread::receive() {
  if (scheduler_.idle()) {
    std::optional<Submission> first = inbox_.pop();
    if (!first) return false;
    admit(*std::move(first));
  }
  // Cancels first: a request cancelled by now is in the scheduler or still in the inbox.
  const std::vector<RequestId> cancels = take_cancels();
  while (std::optional<Submission> next = inbox_.try_pop()) admit(*std::move(next));
  apply_cancels(cancels);
  return !inbox_.closed();
}

void EngineThread::admit(Submission submission) {
  const RequestId id = submission.id;
  Client client;
  client.sink = std::move(submission.sink);
  client.submitted_us = submission.submitted_us;
  client.max_tokens = submission.request.max_tokens;
  clients_.emplace(id, std::move(client));
  ++counters_.num_requests;
  {
    std::lock_guard lock(mutex_);
    log_.admitted(id, submission.request, submission.submitted_us);
  }
  scheduler_.admit(id, std::move(submission.request), submission.submitted_us);
}

std::vector<RequestId> EngineThread::take_cancels() {
  std::lock_guard lock(mutex_);
  return std::exchange(cancels_, {});
}

void EngineThread::apply_cancels(const std::vector<RequestId>& ids) {
  const TimeUs now = now_us();
  for (const RequestId id : ids) {
    {
      std::lock_guard lock(mutex_);
      log_.cancelled(id, now);
    }
    scheduler_.cancel(id, now, &events_);
  }
}

void EngineThread::step() {
  const TimeUs planned = now_us();
  const StepPlan& plan = scheduler_.plan(planned);
  {
    std::lock_guard lock(mutex_);
    log_.planned(plan, scheduler_, planned);
  }
  const std::span<SpanResult> results = runner_->run(plan);
  const TimeUs committed = now_us();
  {
    std::lock_guard lock(mutex_);
    log_.committed(results, committed);
  }
  count_step(plan, planned, committed);
  scheduler_.commit(results, committed, &events_);
  runner_->scrub(scheduler_.take_poisoned_blocks());
}

void EngineThread::count_step(const StepPlan& plan, TimeUs planned, TimeUs committed) {
  uint64_t num_prefill = 0;
  uint64_t num_sampled = 0;
  for (const PlannedSpan& span : plan.spans) {
    num_prefill += static_cast<uint64_t>(
        std::clamp<int64_t>(span.sequence->num_prompt - span.first_position, 0, span.num_tokens));
    num_sampled += span.samples ? 1 : 0;
  }
  decode_rate_.add(num_sampled, committed - planned);
  prefill_rate_.add(num_prefill, committed - planned);
  counters_.last_step_tokens = static_cast<uint64_t>(plan.num_tokens);
  counters_.last_step_us = committed;
  counted_.iteration_tokens.observe(plan.num_tokens);
}

// Counts are visible before the events that they count; a sink that refuses makes more events.
void EngineThread::flush_events() {
  do {
    std::swap(events_, delivering_);
    for (const Event& event : delivering_) account(event);
    publish();
    for (Event& event : delivering_) deliver(std::move(event));
    delivering_.clear();
  } while (!events_.empty());
}

void EngineThread::account(const Event& event) {
  Client& client = clients_.at(event.request_id);
  if (event.kind == Event::Kind::kToken) {
    const TimeUs now = counters_.last_step_us;
    const bool is_first = client.last_token_us == 0;
    const TimeUs since = is_first ? client.submitted_us : client.last_token_us;
    Histogram& latency = is_first ? counted_.time_to_first_token : counted_.inter_token_latency;
    latency.observe(static_cast<double>(now - since) * 1e-6);
    client.last_token_us = now;
  } else if (event.kind == Event::Kind::kFinished) {
    counted_.record_finished(event, client.max_tokens);
  }
}

void EngineThread::publish() {
  const SchedulerStats& stats = scheduler_.stats();
  const KvCache& kv = scheduler_.kv_cache();
  const auto finished = [this](FinishReason reason) {
    return counted_.finished[static_cast<size_t>(reason)];
  };
  counters_.num_running = scheduler_.num_running();
  counters_.num_waiting = scheduler_.num_waiting();
  counters_.kv_blocks_total = kv.num_total();
  counters_.kv_blocks_used = kv.num_used();
  counters_.kv_blocks_cached = kv.num_cached();
  counters_.prompt_tokens = counted_.prompt_tokens_total = stats.prompt_tokens;
  counters_.generation_tokens = counted_.generation_tokens_total = stats.generation_tokens;
  counters_.num_steps = counted_.steps_total = stats.num_steps;
  counters_.num_preemptions = counted_.preemptions_total = stats.num_preemptions;
  counted_.prompt_tokens_cached = counted_.prefix_cache_hits = stats.cached_tokens;
  counted_.prefix_cache_queries = stats.prompt_tokens;
  counters_.finished_stop = finished(FinishReason::kStop);
  counters_.finished_length = finished(FinishReason::kLength);
  counters_.finished_cancelled = finished(FinishReason::kCancelled);
  counters_.finished_error = finished(FinishReason::kError);
  counters_.decode_tokens_per_s = decode_rate_.per_second();
  counters_.prefill_tokens_per_s = prefill_rate_.per_second();
  std::lock_guard lock(mutex_);
  published_ = counters_;
  published_metrics_ = counted_;
}

void EngineThread::deliver(Event event) {
  const RequestId id = event.request_id;
  const auto found = clients_.find(id);
  CHECK(found != clients_.end(), "event of request {} after its end", id);
  Client& client = found->second;
  if (event.kind != Event::Kind::kFinished) {
    if (client.refused || client.sink(std::move(event))) return;
    client.refused = true;
    apply_cancels({id});
    return;
  }
  client.sink(std::move(event));
  clients_.erase(found);  // the sink is gone when drain() sees the request gone
  {
    std::lock_guard lock(mutex_);
    live_.erase(id);
  }
  finished_.notify_all();
}

void EngineThread::cancel_all() {
  while (std::optional<Submission> next = inbox_.try_pop()) admit(*std::move(next));
  apply_cancels(scheduler_.ids());
  flush_events();
}

Status check_options(const EngineOptions& options) {
  if (options.max_batch_tokens < 1 || options.max_sequences < 1 || options.max_waiting < 0) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "the engine needs at least 1 token per step, 1 sequence and 0 waiting, got {}, "
        "{} and {}",
        options.max_batch_tokens, options.max_sequences, options.max_waiting);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Model& model, Backend& backend,
                                               const EngineOptions& options,
                                               std::vector<int32_t> end_ids) {
  TRY(check_options(options));
  const ModelOptions& model_options = model.options();
  SchedulerOptions scheduler;
  scheduler.max_batch_tokens = std::min(options.max_batch_tokens, model_options.max_batch_tokens);
  scheduler.max_logit_rows = model_options.max_logit_rows;
  scheduler.max_sequences =
      std::min({options.max_sequences, scheduler.max_batch_tokens, scheduler.max_logit_rows});
  if (scheduler.max_sequences < options.max_sequences) {
    LOG(kWarning,
        "{} sequences were asked for, a step has {} tokens and {} rows of logits: using {}",
        options.max_sequences, scheduler.max_batch_tokens, scheduler.max_logit_rows,
        scheduler.max_sequences);
  }
  const KvSize size =
      TRY(size_kv(options, model.config().max_position_embeddings,
                  KvStore::block_bytes(backend, model.kv_shapes()), available_memory_bytes()));
  scheduler.num_blocks = size.num_blocks;
  scheduler.max_context = size.max_context;
  scheduler.rope_epoch = [&model](int64_t num_tokens) { return model.rope_epoch(num_tokens); };
  const int64_t vocab_size = model.config().vocab_size;
  std::erase_if(end_ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  scheduler.end_ids = std::move(end_ids);
  std::unique_ptr<StepRunner> runner = TRY(StepRunner::create(model, backend, scheduler));
  const int max_live = options.max_waiting + scheduler.max_sequences;
  return std::unique_ptr<Engine>(std::make_unique<EngineThread>(std::move(scheduler), max_live,
                                                                vocab_size, std::move(runner)));
}

}  // namespace headrace
