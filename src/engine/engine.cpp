#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/handover.h"
#include "base/helper_thread.h"
#include "base/log.h"
#include "base/queue.h"
#include "engine/engine_core.h"
#include "engine/head_drafter.h"
#include "engine/kv_sizing.h"
#include "engine/live_requests.h"
#include "engine/memory_toucher.h"
#include "engine/model_drafter.h"
#include "engine/numerics.h"
#include "engine/open_tiers.h"
#include "engine/rehearsal.h"
#include "engine/request_check.h"
#include "engine/step_calibration.h"
#include "engine/step_log.h"
#include "engine/step_profiler.h"
#include "engine/step_runner.h"
#include "engine/tenant_book.h"
#include "engine/text_drafter.h"
#include "engine/watchdog.h"

namespace headrace {
namespace {

constexpr size_t kLoggedSteps = 512;
constexpr std::chrono::milliseconds kMeasuringLimit{250};  // of a start
constexpr int64_t kPiecesAhead = 32;                       // of memory, touched before use
constexpr std::chrono::milliseconds kTierPatience{2};      // until what comes in is looked at again

// The newest steps, for readers on any thread.
class GuardedLog final : public StepRecorder {
 public:
  void admitted(RequestId id, const Request& request, TimeUs submitted_us) override {
    std::lock_guard lock(mutex_);
    log_.admitted(id, request, submitted_us);
  }
  void ended(RequestId id, FinishReason reason, TimeUs now) override {
    std::lock_guard lock(mutex_);
    log_.ended(id, reason, now);
  }
  void planned(const StepPlan& plan, const Scheduler& scheduler, TimeUs now) override {
    std::lock_guard lock(mutex_);
    log_.planned(plan, scheduler, now);
  }
  void committed(std::span<const SpanResult> results, TimeUs now) override {
    std::lock_guard lock(mutex_);
    log_.committed(results, now);
  }
  std::vector<StepRecord> recent(size_t max_steps) const {
    std::lock_guard lock(mutex_);
    return log_.recent(max_steps);
  }

 private:
  mutable std::mutex mutex_;
  StepLog log_{kLoggedSteps, /*keep_requests=*/false};  // guarded
};

// Who guesses; null: nobody.
struct Drafters {
  std::unique_ptr<Drafter> text, model;
};

class EngineThread final : public Engine {
 public:
  EngineThread(const EngineOptions& options, SchedulerOptions scheduler_options, int64_t vocab_size,
               std::unique_ptr<KvTiers> tiers, std::unique_ptr<StepRunner> runner,
               Drafters drafters);
  ~EngineThread() override;

  Result<RequestId> submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override { end(id, FinishReason::kCancelled); }
  void stop(RequestId id) override { end(id, FinishReason::kStop); }
  bool drain(std::chrono::milliseconds deadline) override;
  void reset_cache() override {
    wants_reset_ = true;
    inbox_.wake();
  }
  EngineSnapshot snapshot() const override;
  MetricsSnapshot metrics() const override;
  std::vector<ExpertRows> expert_rows() const override;
  std::vector<StepRecord> recent_steps(size_t max_steps) const override {
    return log_.recent(max_steps);
  }
  StepProfiler* profiler() override { return &profiler_; }
  int64_t max_context() const override { return limits_.max_context; }

 private:
  void run();
  bool receive();
  void take_inputs();
  void take_tenants();
  void end(RequestId id, FinishReason reason);
  void reset_now();
  void step(TimeUs now);
  bool make_ready();
  SchedulerOptions claiming(SchedulerOptions options);
  void touch_claimed();
  void await_tiers();
  void work_in_flight();
  void flush_events();
  void publish();
  void publish_experts();
  void forget_ended();
  void cancel_all();
  void hangs(const std::function<void()>& told);

  // Constant after construction.
  const RequestLimits limits_;
  const size_t max_live_;
  const std::chrono::milliseconds cancel_patience_;

  GuardedLog log_;  // thread-safe

  // Engine thread; the core is the helper's while a step is computed.
  std::unique_ptr<KvTiers> tiers_;  // null: none
  std::unique_ptr<StepRunner> runner_;
  StepProfiler profiler_{[this](auto* records) { runner_->watch_ops(records); }};  // thread-safe
  Watchdog watchdog_;  // thread-safe; outlives the core's sinks
  Drafters drafters_;  // the core's
  EngineCore core_;
  Rehearsal rehearsal_{core_.scheduler().options()};
  const TenantBook* const tenants_;  // thread-safe; null: none
  uint64_t seen_tenants_ = 0;        // version of the book
  int64_t num_claimed_ = 0;          // pieces of memory that the step has to touch first
  std::vector<RequestId> ended_;     // told their end, and still in live_
  bool rested_ = true;               // since the last step, for want of work

  BoundedQueue<Submission> inbox_;  // thread-safe
  std::atomic<bool> wants_reset_ = false;

  mutable std::mutex mutex_;
  std::condition_variable finished_;  // live_ got smaller
  LiveRequests live_;                 // guarded

  // Who looks at counters holds up nobody who submits.
  mutable std::mutex counters_mutex_;
  EngineSnapshot published_;  // guarded by it, as all below
  MetricsSnapshot published_metrics_;
  std::vector<ExpertRows> expert_rows_;  // their number is constant

  MemoryToucher toucher_;
  HelperThread host_work_{[this] { work_in_flight(); }};
  std::thread thread_;  // last: everything above is there when it starts
};

MemoryTouching touching_of(const StepRunner& runner, const SchedulerOptions& options) {
  MemoryTouching touching;
  touching.num_pieces = runner.num_pieces(options.num_blocks);
  touching.num_ahead = kPiecesAhead;
  touching.pieces_at_once = runner.num_threads();
  touching.has_core = runner.has_spare_core();
  return touching;
}

size_t max_prompt_tokens(const EngineOptions& options, const SchedulerOptions& scheduler) {
  constexpr int64_t kStores = 32, kContexts = 64, kLeast = 1 << 20;
  if (options.max_prompt_tokens > 0) return static_cast<size_t>(options.max_prompt_tokens);
  return static_cast<size_t>(std::max(
      {kLeast, kStores * scheduler.num_blocks * kBlockTokens, kContexts * scheduler.max_context}));
}

EngineThread::EngineThread(const EngineOptions& options, SchedulerOptions scheduler_options,
                           int64_t vocab_size, std::unique_ptr<KvTiers> tiers,
                           std::unique_ptr<StepRunner> runner, Drafters drafters)
    : limits_{vocab_size, scheduler_options.max_context, beam_limits_of(scheduler_options)},
      max_live_(static_cast<size_t>(options.max_waiting + scheduler_options.max_sequences)),
      cancel_patience_(options.cancel_patience),
      tiers_(std::move(tiers)),
      runner_(std::move(runner)),
      watchdog_({options.step_deadline, [this] { return runner_->progress(); },
                 [this, told = options.on_hang](const auto&) { hangs(told); }}),
      drafters_(std::move(drafters)),
      core_(claiming(std::move(scheduler_options)), {runner_->kv_type(), runner_->kv_block_bytes()},
            &log_),
      tenants_(options.tenants),
      inbox_(max_live_),
      live_({max_live_, max_prompt_tokens(options, core_.scheduler().options()),
             options.max_request_bytes}),
      expert_rows_(runner_->expert_layers()),
      toucher_(touching_of(*runner_, core_.scheduler().options()),
               [this](int64_t piece) { runner_->touch_piece(piece); }) {
  take_tenants();
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    live_.close();
  }
  inbox_.close();
  thread_.join();
}

Result<RequestId> EngineThread::submit(Request request, EventSink sink) {
  CHECK(sink != nullptr);
  TRY(check_request(request, limits_));
  // The push happens under the lock: whoever sees the id in live_ knows that it is in the inbox.
  std::lock_guard lock(mutex_);
  const RequestId id = TRY(live_.accept(request.client, size_of(request)));
  sink = watchdog_.watch(id, request.client_id, std::move(sink));
  const bool pushed =
      inbox_.try_push(Submission{id, std::move(request), std::move(sink), now_us()});
  CHECK(pushed, "the inbox holds {} of at most {} live requests", inbox_.size(), max_live_);
  return id;
}

void EngineThread::end(RequestId id, FinishReason reason) {
  std::lock_guard lock(mutex_);
  live_.end(id, reason);
}

bool EngineThread::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  live_.close();
  const auto is_empty = [this] { return live_.empty(); };
  if (finished_.wait_for(lock, deadline, is_empty)) return true;
  live_.end_all(FinishReason::kCancelled);
  if (!finished_.wait_for(lock, cancel_patience_, is_empty)) {
    LOG(kError, "a step hangs: {} requests have not ended {} ms after they were cancelled",
        live_.size(), cancel_patience_.count());
  }
  return false;
}

EngineSnapshot EngineThread::snapshot() const {
  std::lock_guard lock(counters_mutex_);
  EngineSnapshot copy = published_;
  copy.num_waiting += static_cast<int>(inbox_.size());
  return copy;
}

MetricsSnapshot EngineThread::metrics() const {
  std::lock_guard lock(counters_mutex_);
  return published_metrics_;
}

std::vector<ExpertRows> EngineThread::expert_rows() const {
  std::lock_guard lock(counters_mutex_);
  return expert_rows_;
}

void EngineThread::run() {
  pthread_setname_np(pthread_self(), "hr-engine");  // for whoever lists threads
  runner_->keep_apart();
  while (receive()) {
    if (wants_reset_.exchange(false)) reset_now();
    take_tenants();
    const TimeUs now = now_us();
    core_.expire(now);
    if (!core_.idle()) step(now);
    if (core_.idle()) flush_events();  // no forward pass that this could overlap
  }
  cancel_all();
}

// Takes what came in; sleeps when there is nothing to do. False: the engine ends.
bool EngineThread::receive() {
  if (core_.idle()) {
    rested_ = true;
    toucher_.rest(runner_->num_pieces(core_.scheduler().kv_cache().pool().num_touched()));
    std::optional<Submission> first = inbox_.pop();
    if (first) core_.admit(*std::move(first));
  }
  take_inputs();
  return !inbox_.closed();
}

void EngineThread::take_inputs() {
  // Ends first: a request ended by now is in the core or still in the inbox.
  std::vector<Ending> endings;
  {
    std::lock_guard lock(mutex_);
    endings = live_.take_endings();
  }
  while (std::optional<Submission> next = inbox_.try_pop()) core_.admit(*std::move(next));
  for (const Ending& ending : endings) core_.end(ending, now_us());
}

// Between steps. What was given and who runs stays; requests go on.
void EngineThread::take_tenants() {
  if (tenants_ == nullptr) return;
  if (const auto newer = tenants_->newer_than(&seen_tenants_)) core_.set_tenants(*newer);
}

// No step is in flight.
void EngineThread::reset_now() {
  core_.reset_cache();
  runner_->copy(core_.take_block_copies());  // what lies in tiers goes now
  publish();
}

void EngineThread::step(TimeUs now) {
  if (tiers_ != nullptr) tiers_->poll(now);
  profiler_.begin_step();
  core_.draft(now);
  const TimeUs planned_us = now_us();
  const StepPlan& plan = core_.plan(planned_us);
  if (plan.spans.empty()) return await_tiers();
  watchdog_.begin(planned_us);
  profiler_.planned(plan);
  runner_->scrub(core_.take_tainted_blocks());
  runner_->copy(core_.take_block_copies());
  touch_claimed();
  profiler_.mark(StepPart::kBlocks);
  bool is_touched = false;
  runner_->launch(plan, {.at_begin = [this] { host_work_.start(); },
                         .near_end = [this, &is_touched] { is_touched = make_ready(); }});
  profiler_.mark(StepPart::kForward);
  if (!is_touched) runner_->touch();
  host_work_.finish();
  if (!is_touched) core_.touch();
  profiler_.mark(StepPart::kDeliver);
  core_.count_wakes(1);
  if (!std::exchange(rested_, false)) core_.count_gap(runner_->gap_us());
  const std::span<SpanResult> results = runner_->finish();
  profiler_.mark(StepPart::kSample);
  publish_experts();
  core_.commit(results, now_us());
  runner_->copy(core_.take_block_copies());  // of what is published, for the tiers
  profiler_.end_step();
  watchdog_.end();
}

// Brings near what the step will need when it is computed. False: not all of it.
bool EngineThread::make_ready() {
  rehearsal_.step();
  if (!host_work_.is_done()) return false;  // till then the core is the helper's
  core_.touch();
  return true;
}

// Every plan claims the memory that its step touches first.
SchedulerOptions EngineThread::claiming(SchedulerOptions options) {
  options.claim_memory = [this](int64_t num_blocks) {
    return num_claimed_ = toucher_.claim(runner_->num_pieces(num_blocks));
  };
  return options;
}

void EngineThread::touch_claimed() {
  const int64_t num_claimed = std::exchange(num_claimed_, 0);
  if (num_claimed == 0) return;
  runner_->work_before(num_claimed, [this](int64_t i, int) { toucher_.touch_claimed(i); });
}

// All requests wait for what the tiers bring.
void EngineThread::await_tiers() {
  profiler_.drop_step();
  rested_ = true;
  runner_->scrub(core_.take_tainted_blocks());
  runner_->copy(core_.take_block_copies());
  flush_events();
  tiers_->wait(kTierPatience);
}

// After a step, when nothing counts.
void EngineThread::publish_experts() {
  if (expert_rows_.empty()) return;
  std::lock_guard lock(counters_mutex_);
  runner_->read_expert_rows(expert_rows_);
}

// What the step in flight does not wait for, or not yet.
void EngineThread::work_in_flight() {
  watchdog_.tell(*core_.in_flight());
  core_.settle();
  core_.fill_masks();
  toucher_.go_on();
  flush_events();
  take_inputs();
}

void EngineThread::flush_events() {
  while (core_.has_events()) {
    core_.count_events();
    publish();
    Handover handover;
    core_.deliver_events(now_us(), [this](RequestId id) { ended_.push_back(id); });
    core_.count_wakes(handover.finish());
    forget_ended();
  }
}

void EngineThread::publish() {
  const EngineSnapshot snapshot = core_.snapshot();
  std::lock_guard lock(counters_mutex_);
  published_ = snapshot;
  published_metrics_ = core_.metrics();
}

// Only when all that their sinks posted is handed over: whoever waits for the last request's end
// may then take down what it is handed to.
void EngineThread::forget_ended() {
  if (ended_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (const RequestId id : ended_) live_.remove(id);
  }
  ended_.clear();
  finished_.notify_all();
}

void EngineThread::cancel_all() {
  take_inputs();
  core_.end_all(FinishReason::kCancelled, now_us());
  flush_events();
}

// On the watchdog's thread, when the requests were told. Who holds the lock may be what hangs.
void EngineThread::hangs(const std::function<void()>& told) {
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) live_.close();
  if (told != nullptr) told();
}

// Of this process alone, so that nobody can choose prompts by their hashes.
HashKey secret_key() {
  std::random_device random;
  const auto word = [&] { return uint64_t{random()} << 32 | random(); };
  return {word(), word()};
}

// The layout as it counts for memory: a head for further tokens has as many blocks.
CacheLayout with_head(CacheLayout layout, const EngineOptions& options, Model& model,
                      const Backend& backend) {
  Model* head = options.speculation.head ? model.prediction() : nullptr;
  if (head != nullptr) {
    layout.block_bytes += plan_cache(head->cache_groups(), backend).block_bytes;
  }
  return layout;
}

Result<Drafters> create_drafters(const SpeculationOptions& options, Model& model, Backend& backend,
                                 const SchedulerOptions& scheduler) {
  Drafters drafters;
  if (options.text) drafters.text = std::make_unique<TextDrafter>();
  if (options.head && model.prediction() != nullptr) {
    drafters.model = TRY(HeadDrafter::create(*model.prediction(), backend, scheduler));
    return drafters;
  }
  if (options.draft_model == nullptr) return drafters;
  drafters.model =
      TRY(ModelDrafter::create(*options.draft_model, *options.draft_backend, scheduler));
  return drafters;
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
  const std::string numerics = numerics_id(backend, model_options.kv_type);
  std::unique_ptr<KvTiers> tiers =
      TRY(open_tiers(options, layout, numerics, model_options.kv_type));
  const size_t available = available_memory_bytes();
  const size_t of_tiers = tiers == nullptr ? 0 : tiers->most_bytes();
  const KvSize size = TRY(size_kv(
      options, model.config().max_position_embeddings, with_head(layout, options, model, backend),
      scheduler.max_batch_tokens, available - std::min(available, of_tiers)));
  scheduler.cache_rules = layout.rules;
  scheduler.num_blocks = size.num_blocks;
  scheduler.max_context = size.max_context;
  scheduler.rope_epoch = [&model](int64_t num_tokens) { return model.rope_epoch(num_tokens); };
  const int64_t vocab_size = model.config().vocab_size;
  std::erase_if(end_ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  scheduler.end_ids = std::move(end_ids);
  scheduler.vocab_size = vocab_size;
  scheduler.hash_key = secret_key();
  scheduler.tier = tiers.get();
  if (tiers != nullptr && tiers->key()) scheduler.hash_key = *tiers->key();
  scheduler.kv_events = options.kv_events;
  scheduler.numerics = numerics;
  std::unique_ptr<StepRunner> runner = TRY(StepRunner::create(model, backend, scheduler));
  if (options.inter_token_target.count() > 0) {
    scheduler.inter_token_target_us = TimeUs{options.inter_token_target.count()} * 1000;
    scheduler.step_cost = measure_steps(*runner, scheduler, kMeasuringLimit);
  }
  Drafters drafters = TRY(create_drafters(options.speculation, model, backend, scheduler));
  scheduler.drafter = drafters.text.get();
  scheduler.model_drafter = drafters.model.get();
  scheduler.max_draft_tokens = options.speculation.max_guesses;
  return std::unique_ptr<Engine>(
      std::make_unique<EngineThread>(options, std::move(scheduler), vocab_size, std::move(tiers),
                                     std::move(runner), std::move(drafters)));
}

}  // namespace headrace
