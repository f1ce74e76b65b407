#include "base/helper_thread.h"

#include <utility>

#include "base/check.h"

namespace headrace {

HelperThread::HelperThread(std::function<void()> work)
    : work_(std::move(work)), thread_([this] { run(); }) {}

HelperThread::~HelperThread() {
  CHECK(state_.exchange(kEnding) == kIdle, "work is not finished");
  state_.notify_all();
  thread_.join();
}

void HelperThread::start() {
  CHECK(state_.load(std::memory_order_relaxed) == kIdle, "the work before is not finished");
  state_.store(kPosted, std::memory_order_release);
  state_.notify_all();
}

bool HelperThread::claim() {
  uint32_t posted = kPosted;
  return state_.compare_exchange_strong(posted, kRunning, std::memory_order_acq_rel);
}

void HelperThread::finish() {
  if (claim()) {
    work_();
  } else {
    while (state_.load(std::memory_order_acquire) == kRunning) state_.wait(kRunning);
    CHECK(state_.load(std::memory_order_relaxed) == kDone, "no work was started");
  }
  state_.store(kIdle, std::memory_order_relaxed);
}

void HelperThread::run() {
  while (true) {
    const uint32_t seen = state_.load(std::memory_order_acquire);
    if (seen == kEnding) return;
    if (seen != kPosted || !claim()) {
      state_.wait(seen);
      continue;
    }
    work_();
    state_.store(kDone, std::memory_order_release);
    state_.notify_all();
  }
}

}  // namespace headrace
