#include "server/profiles.h"

#include <utility>

#include "base/clock.h"
#include "engine/step_profiler.h"
#include "server/profile_json.h"

namespace headrace {
namespace {

Error shutting_down() { return make_error(ErrorCode::kUnavailable, "the server is shutting down"); }

}  // namespace

Status Profiles::start(std::shared_ptr<const ServedModel> model, int num_steps,
                       std::chrono::milliseconds patience, Done done) {
  std::lock_guard lock(mutex_);
  if (stopping_) return shutting_down();
  if (is_busy_) {
    return make_error(ErrorCode::kExhausted, "another profile is being made; ask when it is done");
  }
  StepProfiler* const profiler = model->engine.profiler();
  if (profiler == nullptr) {
    return make_error(ErrorCode::kUnsupported, "the engine of '{}' has no profile",
                      model->info.name);
  }
  TRY(profiler->start(num_steps));
  if (thread_.joinable()) thread_.join();  // of the one before, which is over
  is_busy_ = true;
  thread_ = std::thread([this, model = std::move(model), patience, done = std::move(done)] {
    Result<std::string> profile = record(*model, patience);
    is_busy_ = false;  // who has the answer may ask for the next
    done(std::move(profile));
  });
  return {};
}

Result<std::string> Profiles::record(const ServedModel& model, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLook{50};  // until the server's end is seen
  StepProfiler& profiler = *model.engine.profiler();
  const TimeUs deadline = now_us() + TimeUs{patience.count()} * 1000;
  while (!profiler.wait(kLook) && !stopping_ && now_us() < deadline) {
  }
  const Profile profile = profiler.take();
  if (profile.steps.empty() && stopping_) return shutting_down();
  if (profile.steps.empty()) {
    Error error = make_error(ErrorCode::kUnavailable, "no step of '{}' ran within {} s",
                             model.info.name, static_cast<double>(patience.count()) * 1e-3);
    error.hint = "ask while it answers requests";
    return error;
  }
  return profile_json(profile, model.info);
}

void Profiles::stop() {
  stopping_ = true;
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace headrace
