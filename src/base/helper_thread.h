// HelperThread: does a piece of work beside its owner, who never waits for it to begin.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace headrace {

// start() and finish() alternate and are called by one thread. The work sees all that was written
// before start(); once is_done(), and after finish(), its owner sees all that it wrote. Where the
// system has no core free, finish() does the work itself: it costs its own time, not that of a
// switch.
class HelperThread {
 public:
  // The work must not throw. Throws std::system_error when the system refuses a thread.
  explicit HelperThread(std::function<void()> work);
  ~HelperThread();  // not between start() and finish()
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void start();
  bool is_done() const { return state_.load(std::memory_order_acquire) == kDone; }
  void finish();

 private:
  enum State : uint32_t { kIdle, kPosted, kRunning, kDone, kEnding };
  bool claim();
  void run();

  const std::function<void()> work_;
  std::atomic<uint32_t> state_{kIdle};
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace headrace
