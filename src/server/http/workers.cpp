#include "server/http/workers.h"

#include <algorithm>

namespace headrace {

WorkerPool::WorkerPool(int num_threads, size_t max_waiting)
    : max_waiting_(max_waiting), max_per_client_(std::max<size_t>(1, max_waiting / 4)) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkerPool::Answer WorkerPool::submit(uint64_t client, Task task) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || num_waiting_ >= max_waiting_) return Answer::kFull;
    const auto found = waiting_.find(client);
    if (found != waiting_.end() && found->second.size() >= max_per_client_) {
      return Answer::kClientFull;
    }
    if (found == waiting_.end()) turns_.push_back(client);
    waiting_[client].push_back(std::move(task));
    ++num_waiting_;
  }
  ready_.notify_one();
  return Answer::kTaken;
}

void WorkerPool::close() {
  std::map<uint64_t, std::deque<Task>> dropped;  // ended outside the lock: tasks own writers
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(waiting_);
    turns_.clear();
    num_waiting_ = 0;
  }
  ready_.notify_all();
}

void WorkerPool::stop() {
  close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::run() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return closed_ || num_waiting_ > 0; });
      if (closed_) return;
      const uint64_t client = turns_.front();
      turns_.pop_front();
      const auto found = waiting_.find(client);
      task = std::move(found->second.front());
      found->second.pop_front();
      --num_waiting_;
      if (found->second.empty()) {
        waiting_.erase(found);
      } else {
        turns_.push_back(client);
      }
    }
    task();
  }
}

}  // namespace headrace
