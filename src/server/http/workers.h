// WorkerPool: threads for work that takes milliseconds or more, which takes turns between clients.
//
// What waits is bounded, for all clients and for each. A client with much work waiting delays only
// itself: the next task is always of the client that was served longest ago. All calls are
// thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace headrace {

class WorkerPool {
 public:
  using Task = std::function<void()>;
  enum class Answer : uint8_t { kTaken, kFull, kClientFull };

  // max_waiting: tasks, of all clients; one client may have a quarter of them waiting.
  WorkerPool(int num_threads, size_t max_waiting);
  ~WorkerPool() { stop(); }

  Answer submit(uint64_t client, Task task);
  // Nothing more is taken or begun; what waits is dropped.
  void close();
  // As close; then waits for the tasks that have begun.
  void stop();

 private:
  void run();

  const size_t max_waiting_, max_per_client_;
  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable ready_;
  std::map<uint64_t, std::deque<Task>> waiting_;  // no client without a task
  std::deque<uint64_t> turns_;                    // the clients of waiting_, next first
  size_t num_waiting_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
