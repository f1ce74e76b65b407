#include "engine/step_profiler.h"

#include <algorithm>
#include <utility>

namespace headrace {

StepProfiler::StepProfiler(std::function<void(std::vector<OpRecord>*)> watch, int64_t (*clock)())
    : watch_(std::move(watch)), clock_(clock) {}

int64_t StepProfiler::steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status StepProfiler::start(int num_steps) {
  if (num_steps < 1 || num_steps > kMaxSteps) {
    return make_error(ErrorCode::kInvalidArgument, "a profile has 1 to {} steps, not {}", kMaxSteps,
                      num_steps);
  }
  std::lock_guard lock(mutex_);
  if (session_ % 2 == 1) {
    return make_error(ErrorCode::kExhausted, "another profile of this model is being made");
  }
  ++session_;
  num_wanted_ = static_cast<size_t>(num_steps);
  num_ops_ = 0;
  profile_ = {};
  wanted_ = true;
  return {};
}

bool StepProfiler::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, patience, [this] { return !wanted_; });
}

Profile StepProfiler::take() {
  std::lock_guard lock(mutex_);
  CHECK(session_ % 2 == 1, "no profile was begun");
  ++session_;
  wanted_ = false;
  return std::exchange(profile_, {});
}

void StepProfiler::begin_step() {
  if (!wanted_.load(std::memory_order_relaxed)) return;
  {
    std::lock_guard lock(mutex_);
    if (!wanted_) return;
    recorded_session_ = session_;
  }
  recording_ = true;
  current_ = {};
  current_.start_ns = clock_();
  watch_(&current_.ops);
}

void StepProfiler::drop_step() {
  if (!std::exchange(recording_, false)) return;
  watch_(nullptr);
}

void StepProfiler::planned(const StepPlan& plan) {
  if (!recording_) return;
  current_.step_idx = plan.step_idx;
  current_.num_tokens = plan.num_tokens;
  current_.num_sequences = static_cast<int32_t>(plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const int64_t left = plan.sequences[i]->num_prompt - span.first_position;
    current_.num_prompt_tokens += static_cast<int32_t>(std::clamp<int64_t>(left, 0, span.num_rows));
  }
  mark(StepPart::kPlan);
}

// A step that was begun for a profile which has been taken meanwhile belongs to none.
void StepProfiler::end_step() {
  if (!recording_) return;
  mark(StepPart::kCommit);
  drop_step();
  std::lock_guard lock(mutex_);
  if (recorded_session_ != session_ || !wanted_) return;
  num_ops_ += current_.ops.size();
  profile_.steps.push_back(std::move(current_));
  profile_.complete = profile_.steps.size() == num_wanted_;
  if (!profile_.complete && num_ops_ < kMaxOps) return;
  wanted_ = false;
  done_.notify_all();
}

}  // namespace headrace
