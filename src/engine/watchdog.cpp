#include "engine/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kShortestTick{2}, kLongestTick{250};
constexpr int kTicksPerDeadline = 16;
constexpr size_t kMaxTold = 64;  // requests, in a report
constexpr std::chrono::milliseconds kSinkPatience{200};

double seconds(TimeUs time) { return static_cast<double>(time) * 1e-6; }

TimeUs processor_time(pthread_t thread) {
  clockid_t clock = 0;
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return TimeUs{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

// Holds nothing if others had the mutex all the time. Not a timed mutex: the thread sanitizer of
// g++ 12 does not see how that one is locked.
std::unique_lock<std::mutex> lock_within(std::mutex& mutex, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex, std::try_to_lock);
  for (; !lock && patience.count() > 0; --patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)lock.try_lock();
  }
  return lock;
}

}  // namespace

TimeUs StallClock::look(TimeUs now, const Mark& mark) {
  const TimeUs since = std::min(now - looked_us_, 2 * tick_us_);
  looked_us_ = now;
  stalled_us_ = mark == mark_ ? stalled_us_ + since : 0;
  mark_ = mark;
  return stalled_us_;
}

void StallClock::rest(TimeUs now) {
  looked_us_ = now;
  stalled_us_ = 0;
}

// A request and who listens to it: the engine, or, once it hangs, the watchdog speaks.
struct Watchdog::Watched {
  EventSink sink;
  std::string client_id;
  TimeUs since_us = 0;
  std::mutex mutex;    // one speaks at a time
  bool ended = false;  // guarded
  Usage usage;         // guarded
  std::atomic<uint64_t> num_events = 0;
  std::atomic<TimeUs> last_event_us = 0;
};

Watchdog::Watchdog(Options options)
    : options_(std::move(options)),
      tick_(std::clamp(options_.deadline / kTicksPerDeadline, kShortestTick, kLongestTick)) {
  if (enabled()) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wakes_.notify_all();
  thread_.join();
}

EventSink Watchdog::watch(RequestId id, std::string client_id, EventSink sink) {
  if (!enabled()) return sink;
  auto watched = std::make_shared<Watched>();
  watched->sink = std::move(sink);
  watched->client_id = std::move(client_id);
  watched->since_us = now_us();
  {
    std::lock_guard lock(mutex_);
    watched_.emplace(id, watched);
  }
  return [this, id, watched](Event&& event) {
    std::lock_guard speaks(watched->mutex);
    if (watched->ended) return true;  // it was told its end
    ++watched->num_events;
    watched->last_event_us = now_us();
    watched->usage = event.usage;
    if (event.kind == Event::Kind::kFinished) {
      watched->ended = true;
      std::lock_guard lock(mutex_);
      watched_.erase(id);
    }
    return watched->sink(std::move(event));
  };
}

void Watchdog::begin(TimeUs now) {
  if (!enabled()) return;
  engine_thread_.store(pthread_self(), std::memory_order_relaxed);
  begun_us_.store(now, std::memory_order_relaxed);
  in_step_.store(true, std::memory_order_relaxed);
  num_begun_.fetch_add(1, std::memory_order_release);
}

void Watchdog::end() { in_step_.store(false, std::memory_order_relaxed); }

void Watchdog::tell(const StepPlan& plan) {
  if (!enabled()) return;
  std::lock_guard lock(mutex_);
  step_.step_idx = plan.step_idx;
  step_.num_tokens = plan.num_tokens;
  step_.num_logit_rows = plan.num_logit_rows;
  step_.spans.clear();
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const Sequence& sequence = *plan.sequences[i];
    step_.spans.push_back({sequence.id, span.first_position, span.num_rows, span.num_sampled,
                           span.num_draft, sequence.num_prompt, sequence.num_output()});
  }
}

void Watchdog::run() {
  const TimeUs deadline_us = std::chrono::microseconds(options_.deadline).count();
  StallClock clock(std::chrono::microseconds(tick_).count());
  TimeUs processor_us = 0;  // of the engine's thread, when something moved last
  std::unique_lock lock(mutex_);
  while (!wakes_.wait_for(lock, tick_, [this] { return closing_; })) {
    if (watched_.empty()) {
      clock.rest(now_us());
      continue;
    }
    const TimeUs stalled_us =
        clock.look(now_us(), {num_begun_.load(std::memory_order_acquire), options_.progress()});
    const TimeUs used_us = num_begun_ == 0 ? 0 : processor_time(engine_thread_);
    if (stalled_us == 0) processor_us = used_us;
    if (stalled_us < deadline_us) continue;
    lock.unlock();
    return trip(stalled_us, fmt::format("its thread used {:.1f} s of processor time meanwhile",
                                        seconds(used_us - processor_us)));
  }
}

void Watchdog::trip(TimeUs stalled_us, const std::string& thread_state) {
  const std::vector<std::string> lines = report(stalled_us, thread_state);
  for (const std::string& line : lines) LOG(kError, "{}", line);
  end_requests();
  if (options_.on_hang != nullptr) options_.on_hang(lines);
}

std::vector<std::string> Watchdog::report(TimeUs stalled_us,
                                          const std::string& thread_state) const {
  std::lock_guard lock(mutex_);
  const TimeUs now = now_us();
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("the engine hangs {} step {}: nothing moved for {:.1f} s; {}; {} "
                  "requests are live",
                  in_step_ ? "in" : "after", step_.step_idx, seconds(stalled_us), thread_state,
                  watched_.size()));
  lines.push_back(fmt::format(
      "the step began {:.1f} s ago: {} tokens of {} requests, {} rows of logits",
      seconds(now - begun_us_), step_.num_tokens, step_.spans.size(), step_.num_logit_rows));
  for (const SpanNote& span : step_.spans) {
    if (lines.size() > kMaxTold) break;
    lines.push_back(fmt::format(
        "in the step: request {}, positions {} to {}, {} sampled, {} guessed, prompt of {}, {} "
        "tokens of output",
        span.id, span.first_position, span.first_position + span.num_rows - 1, span.num_sampled,
        span.num_draft, span.num_prompt, span.num_output));
  }
  for (const auto& [id, watched] : watched_) {
    if (lines.size() > 2 * kMaxTold) break;
    const TimeUs last = watched->last_event_us;
    lines.push_back(fmt::format(
        "live: request {} ({}), since {:.1f} s, {} events, {}", id, watched->client_id,
        seconds(now - watched->since_us), watched->num_events.load(),
        last == 0 ? "none yet" : fmt::format("the last {:.1f} s ago", seconds(now - last))));
  }
  return lines;
}

// Who is being spoken to right now, and hangs in it, is passed over.
void Watchdog::end_requests() {
  std::map<RequestId, std::shared_ptr<Watched>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(watched_);
  }
  for (const auto& [id, watched] : all) {
    const std::unique_lock<std::mutex> speaks = lock_within(watched->mutex, kSinkPatience);
    if (!speaks || std::exchange(watched->ended, true)) continue;
    Event event;
    event.kind = Event::Kind::kFinished;
    event.request_id = id;
    event.reason = FinishReason::kError;
    event.error = Error{ErrorCode::kUnavailable,
                        "the computation of this request hangs and was given up",
                        "the server ends now; try again when it is back",
                        {}};
    event.usage = watched->usage;
    event.times.submitted = watched->since_us;
    event.times.finished = now_us();
    watched->sink(std::move(event));
  }
}

}  // namespace headrace
