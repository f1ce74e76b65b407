// TurnLock: a lock that is given in the order in which it was asked for, so that threads that take
// it again and again have it in turns. For work of milliseconds. Use with std::lock_guard.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace headrace {

class TurnLock {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const uint64_t ticket = next_ticket_++;
    changed_.wait(guard, [&] { return ticket == serving_; });
  }
  void unlock() {
    bool is_wanted = false;
    {
      std::lock_guard guard(mutex_);
      is_wanted = ++serving_ != next_ticket_;
    }
    if (is_wanted) changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ticket_ = 0, serving_ = 0;
};

}  // namespace headrace
