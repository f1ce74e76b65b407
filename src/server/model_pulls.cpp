#include "server/model_pulls.h"

#include <atomic>

#include "base/clock.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/store.h"

namespace headrace {
namespace {

constexpr size_t kMaxPulls = 4;
constexpr TimeUs kTellEvery = 200'000;

}  // namespace

struct ModelPulls::Pull {
  std::string spec;
  std::thread thread;
  std::atomic<bool> is_over = false;  // the thread has nothing more to do
  std::mutex mutex;                   // guards all below
  std::vector<Watcher> watchers;
  bool stopped = false;
  bool ended = false;  // its watchers know
};

// To all who watch; those who have left are forgotten. False: there is nobody.
bool ModelPulls::tell(Pull& pull, const PullState& state) {
  std::lock_guard lock(pull.mutex);
  pull.ended = state.kind != PullState::Kind::kRunning;
  std::erase_if(pull.watchers, [&](const Watcher& watcher) { return !watcher(state); });
  if (pull.ended) pull.watchers.clear();
  return !pull.watchers.empty() && !pull.stopped;
}

void ModelPulls::run(const std::shared_ptr<Pull>& pull) {
  PullOptions options = pull_options_from_environment(pull->spec);
  options.store_dir = store_dir_;
  PullState state;
  TimeUs told_us = 0;
  bool is_stopped = false;
  options.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
    state.done_bytes = done_bytes;
    state.total_bytes = total_bytes;
  };
  options.stopped = [&] {
    const TimeUs now = now_us();
    if (is_stopped || now - told_us < kTellEvery) return is_stopped;
    told_us = now;
    is_stopped = !tell(*pull, state);
    return is_stopped;
  };
  const auto pulled = headrace::pull(options);
  state.kind = pulled.ok() ? PullState::Kind::kDone : PullState::Kind::kFailed;
  if (!pulled.ok()) state.error = pulled.error();
  tell(*pull, state);
  pull->is_over = true;
}

Status ModelPulls::start(const std::string& spec, Watcher watcher) {
  const hub::Spec parsed = TRY(hub::parse_spec(spec));
  if (parsed.kind == hub::SpecKind::kUrl) {
    Error error = make_error(ErrorCode::kInvalidArgument, "a server does not pull from URLs");
    error.hint = "name a model, or a repository as hf:ORG/REPO; or run headrace pull";
    return error;
  }
  std::lock_guard lock(mutex_);
  if (stopping_) return make_error(ErrorCode::kUnavailable, "the server is shutting down");
  std::erase_if(pulls_, [](const auto& entry) {
    if (!entry.second->is_over) return false;
    entry.second->thread.join();
    return true;
  });
  if (const auto found = pulls_.find(spec); found != pulls_.end()) {
    std::lock_guard pull_lock(found->second->mutex);
    if (!found->second->ended) {
      found->second->watchers.push_back(std::move(watcher));
      return {};
    }
    return make_error(ErrorCode::kExhausted, "the pull of '{}' is just ending", spec);
  }
  if (pulls_.size() == kMaxPulls) {
    return make_error(ErrorCode::kExhausted, "{} models are being pulled, no more at once",
                      kMaxPulls);
  }
  const auto pull = std::make_shared<Pull>();
  pull->spec = spec;
  pull->watchers.push_back(std::move(watcher));
  pulls_.emplace(spec, pull);
  pull->thread = std::thread([this, pull] { run(pull); });
  return {};
}

void ModelPulls::stop() {
  std::map<std::string, std::shared_ptr<Pull>> pulls;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    pulls.swap(pulls_);
  }
  for (const auto& [spec, pull] : pulls) {
    std::lock_guard lock(pull->mutex);
    pull->stopped = true;
  }
  for (const auto& [spec, pull] : pulls) pull->thread.join();
}

}  // namespace headrace
