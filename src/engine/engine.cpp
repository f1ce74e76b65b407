#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
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
constexpr size_t kPlacesPerFree = 3;

struct Submission {
  RequestId id = 0;
  Request request;
  EventSink sink;
  TimeUs submitted_us = 0;
};

// Who listens: the engine thread's side of a live request.
struct Listener {
  EventSink sink;
  TimeUs arrived_us = 0;
  TimeUs last_token_us = 0;
  int32_t max_tokens = 0;
  bool refused = false;  // the sink took no more: only kFinished is still delivered
};

// A request that its caller ends.
struct Ending {
  RequestId id = 0;
  FinishReason reason = FinishReason::kCancelled;
};

struct Live {
  uint64_t client = 0;
  bool ended = false;  // by its caller
};

class EngineThread final : public Engine {
 public:
  EngineThread(const EngineOptions& options, SchedulerOptions scheduler_options, int64_t vocab_size,
               std::unique_ptr<StepRunner> runner);
  ~EngineThread() override;

  Result<RequestId> submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override { end(id, FinishReason::kCancelled); }
  void stop(RequestId id) override { end(id, FinishReason::kStop); }
  bool drain(std::chrono::milliseconds deadline) override;
  EngineSnapshot snapshot() const override;
  MetricsSnapshot metrics() const override;
  std::vector<StepRecord> recent_steps(size_t max_steps) const override;
  int64_t max_context() const override { return limits_.max_context; }

 private:
  void run();
  Status check_place(uint64_t client) const;
  bool receive();
  void admit(Submission submission);
  void end(RequestId id, FinishReason reason);
  void apply(const std::vector<Ending>& endings);
  std::vector<Ending> take_endings();
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
  const std::chrono::milliseconds cancel_patience_;

  // Engine thread only.
  Scheduler scheduler_;
  std::unique_ptr<StepRunner> runner_;
  std::unordered_map<RequestId, Listener> listeners_;
  std::vector<Event> events_;  // from the scheduler, not yet delivered
  std::vector<Event> delivering_;
  RateWindow decode_rate_, prefill_rate_;
  EngineSnapshot counters_;
  MetricsSnapshot counted_;

  // Thread-safe.
  BoundedQueue<Submission> inbox_;

  mutable std::mutex mutex_;
  std::condition_variable finished_;                     // live_ got smaller
  std::unordered_map<RequestId, Live> live_;             // guarded; accepted, not finished
  std::unordered_map<uint64_t, size_t> live_of_client_;  // guarded; how many of live_, none is 0
  std::vector<Ending> endings_;                          // guarded; of live requests, each once
  RequestId next_id_ = 1;                                // guarded
  bool draining_ = false;                                // guarded
  EngineSnapshot published_;                             // guarded
  MetricsSnapshot published_metrics_;                    // guarded
  StepLog log_{kLoggedSteps, /*keep_requests=*/false};   // guarded

  std::thread thread_;  // last: everything above is there when it starts
};

EngineThread::EngineThread(const EngineOptions& options, SchedulerOptions scheduler_options,
                           int64_t vocab_size, std::unique_ptr<StepRunner> runner)
    : limits_{vocab_size, scheduler_options.max_context},
      max_live_(static_cast<size_t>(options.max_waiting + scheduler_options.max_sequences)),
      cancel_patience_(options.cancel_patience),
      scheduler_(std::move(scheduler_options)),
      runner_(std::move(runner)),
      inbox_(max_live_) {
  counters_.kv_type = runner_->kv_type();
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
  const uint64_t client = request.client;
  TRY(check_place(client));
  const RequestId id = next_id_++;
  const bool pushed =
      inbox_.try_push(Submission{id, std::move(request), std::move(sink), now_us()});
  CHECK(pushed, "the inbox holds {} of at most {} live requests", inbox_.size(), max_live_);
  live_.emplace(id, Live{client});
  ++live_of_client_[client];
  return id;
}

// A client may hold kPlacesPerFree times as many places as are still free: one alone can fill most
// of them, and another still finds some. Called under the lock.
Status EngineThread::check_place(uint64_t client) const {
  const size_t num_free = max_live_ - std::min(max_live_, live_.size());
  const auto held = live_of_client_.find(client);
  const size_t num_held = held == live_of_client_.end() ? 0 : held->second;
  if (num_free > 0 && num_held < kPlacesPerFree * num_free) return {};
  Error error =
      num_free == 0
          ? make_error(ErrorCode::kExhausted, "{} requests are running or waiting, the limit",
                       live_.size())
          : make_error(ErrorCode::kExhausted,
                       "{} requests of this client are running or waiting; the {} places that are "
                       "free are kept for others",
                       num_held, num_free);
  error.hint = "try again later";
  return error;
}

void EngineThread::end(RequestId id, FinishReason reason) {
  std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end() || std::exchange(found->second.ended, true)) return;
  endings_.push_back({id, reason});
}

bool EngineThread::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto is_empty = [this] { return live_.empty(); };
  if (finished_.wait_for(lock, deadline, is_empty)) return true;
  for (auto& [id, live] : live_) {
    if (!std::exchange(live.ended, true)) endings_.push_back({id, FinishReason::kCancelled});
  }
  if (!finished_.wait_for(lock, cancel_patience_, is_empty)) {
    LOG(kError, "a step hangs: {} requests have not ended {} ms after they were cancelled",
        live_.size(), cancel_patience_.count());
  }
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
  // These first: a request ended by now is in the scheduler or still in the inbox.
  const std::vector<Ending> endings = take_endings();
  while (std::optional<Submission> next = inbox_.try_pop()) admit(*std::move(next));
  apply(endings);
  return !inbox_.closed();
}

void EngineThread::admit(Submission submission) {
  const RequestId id = submission.id;
  Listener listener;
  listener.sink = std::move(submission.sink);
  const TimeUs arrived = submission.request.arrived_us;
  listener.arrived_us = arrived > 0 ? arrived : submission.submitted_us;
  listener.max_tokens = submission.request.max_tokens;
  listeners_.emplace(id, std::move(listener));
  ++counters_.num_requests;
  {
    std::lock_guard lock(mutex_);
    log_.admitted(id, submission.request, submission.submitted_us);
  }
  scheduler_.admit(id, std::move(submission.request), submission.submitted_us);
}

std::vector<Ending> EngineThread::take_endings() {
  std::lock_guard lock(mutex_);
  return std::exchange(endings_, {});
}

void EngineThread::apply(const std::vector<Ending>& endings) {
  const TimeUs now = now_us();
  for (const Ending& ending : endings) {
    {
      std::lock_guard lock(mutex_);
      log_.ended(ending.id, ending.reason, now);
    }
    scheduler_.end(ending.id, ending.reason, now, &events_);
  }
}

void EngineThread::step() {
  const TimeUs planned = now_us();
  const StepPlan& plan = scheduler_.plan(planned);
  {
    std::lock_guard lock(mutex_);
    log_.planned(plan, scheduler_, planned);
  }
  runner_->scrub(scheduler_.take_tainted_blocks());
  runner_->copy(scheduler_.take_block_copies());
  const std::span<SpanResult> results = runner_->run(plan);
  const TimeUs committed = now_us();
  {
    std::lock_guard lock(mutex_);
    log_.committed(results, committed);
  }
  count_step(plan, planned, committed);
  scheduler_.commit(results, committed, &events_);
}

void EngineThread::count_step(const StepPlan& plan, TimeUs planned, TimeUs committed) {
  uint64_t num_prefill = 0;
  uint64_t num_sampled = 0;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    num_prefill += static_cast<uint64_t>(
        std::clamp<int64_t>(plan.sequences[i]->num_prompt - span.first_position, 0, span.num_rows));
    num_sampled += static_cast<uint64_t>(span.num_sampled);
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
  Listener& listener = listeners_.at(event.request_id);
  if (event.kind == Event::Kind::kToken) {
    const TimeUs now = counters_.last_step_us;
    const bool is_first = listener.last_token_us == 0;
    const TimeUs since = is_first ? listener.arrived_us : listener.last_token_us;
    Histogram& latency = is_first ? counted_.time_to_first_token : counted_.inter_token_latency;
    latency.observe(static_cast<double>(now - since) * 1e-6);
    listener.last_token_us = now;
  } else if (event.kind == Event::Kind::kFinished) {
    counted_.record_finished(event, listener.max_tokens, listener.arrived_us);
  }
}

void EngineThread::publish() {
  const SchedulerStats& stats = scheduler_.stats();
  const BlockPool& kv = scheduler_.kv_cache().pool();
  const auto finished = [this](FinishReason reason) {
    return counted_.finished[static_cast<size_t>(reason)];
  };
  counters_.num_running = scheduler_.num_running();
  counters_.num_waiting = scheduler_.num_waiting();
  counters_.kv_blocks_total = kv.num_total();
  counters_.kv_blocks_used = kv.num_used();
  counters_.kv_blocks_cached = kv.num_cached();
  const auto block_bytes = static_cast<uint64_t>(runner_->kv_block_bytes());
  counters_.kv_bytes_reserved = static_cast<uint64_t>(kv.num_total()) * block_bytes;
  counters_.kv_bytes_touched = static_cast<uint64_t>(kv.num_touched()) * block_bytes;
  counters_.prompt_tokens = counted_.prompt_tokens_total = stats.prompt_tokens;
  counters_.generation_tokens = counted_.generation_tokens_total = stats.generation_tokens;
  counters_.num_steps = counted_.steps_total = stats.num_steps;
  counters_.num_preemptions = counted_.preemptions_total = stats.num_preemptions;
  counted_.prompt_tokens_cached = counted_.prefix_cache_hits = stats.cached_tokens;
  counted_.prompt_tokens_computed = stats.prompt_tokens - stats.cached_tokens;
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
  const auto found = listeners_.find(id);
  CHECK(found != listeners_.end(), "event of request {} after its end", id);
  Listener& listener = found->second;
  if (event.kind != Event::Kind::kFinished) {
    if (listener.refused || listener.sink(std::move(event))) return;
    listener.refused = true;
    apply({{id, FinishReason::kCancelled}});
    return;
  }
  listener.sink(std::move(event));
  listeners_.erase(found);  // the sink is gone when drain() sees the request gone
  {
    std::lock_guard lock(mutex_);
    const auto live = live_.find(id);
    const auto held = live_of_client_.find(live->second.client);
    if (--held->second == 0) live_of_client_.erase(held);
    live_.erase(live);
  }
  finished_.notify_all();
}

void EngineThread::cancel_all() {
  while (std::optional<Submission> next = inbox_.try_pop()) admit(*std::move(next));
  std::vector<Ending> endings;
  for (const RequestId id : scheduler_.ids()) endings.push_back({id});
  apply(endings);
  flush_events();
}

// Of this process alone, so that nobody can choose prompts by their hashes.
HashKey secret_key() {
  std::random_device random;
  const auto word = [&] { return uint64_t{random()} << 32 | random(); };
  return {word(), word()};
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
  const CacheLayout layout = plan_cache(model.cache_groups(), backend);
  const KvSize size = TRY(size_kv(options, model.config().max_position_embeddings, layout,
                                  scheduler.max_batch_tokens, available_memory_bytes()));
  scheduler.cache_rules = layout.rules;
  scheduler.num_blocks = size.num_blocks;
  scheduler.max_context = size.max_context;
  scheduler.rope_epoch = [&model](int64_t num_tokens) { return model.rope_epoch(num_tokens); };
  const int64_t vocab_size = model.config().vocab_size;
  std::erase_if(end_ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  scheduler.end_ids = std::move(end_ids);
  scheduler.hash_key = secret_key();
  scheduler.numerics = backend.numerics();
  std::unique_ptr<StepRunner> runner = TRY(StepRunner::create(model, backend, scheduler));
  return std::unique_ptr<Engine>(
      std::make_unique<EngineThread>(options, std::move(scheduler), vocab_size, std::move(runner)));
}

}  // namespace headrace
