// BoundedQueue: where threads meet. Many producers, one consumer, a fixed capacity.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace headrace {

// A full queue refuses (try_push returns false): the producer decides what shedding means. After
// close(), pushes fail and pops drain what is left, then return nothing. All calls are thread-safe.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  bool try_push(T value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  // Waits until an item is there, the queue is closed or somebody calls wake(): then maybe nothing.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !items_.empty() || woken_; });
    woken_ = false;
    return take();
  }

  std::optional<T> pop_for(std::chrono::microseconds limit) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, limit, [this] { return closed_ || !items_.empty(); });
    return take();
  }

  // Ends a pop() that waits, or else the next that would.
  void wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ready_.notify_all();
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::optional<T> take() {  // mutex_ is held
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
  bool woken_ = false;   // guarded by mutex_
};

}  // namespace headrace
