#include "server/lab/lab_service.h"

#include <chrono>

namespace headrace::lab {
namespace {

constexpr size_t kMaxWaitingTasks = 256;
// Between two looks at what others wrote, while somebody listens.
constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::milliseconds kCatchUpInterval{20};  // for who has not been told all

}  // namespace

Result<std::unique_ptr<LabService>> LabService::open(const std::string& folder,
                                                     const std::vector<std::string>& engine_urls) {
  auto engines = TRY(EngineWatch::create(engine_urls));
  auto store = TRY(Store::open(folder));
  return std::unique_ptr<LabService>(new LabService(std::move(store), std::move(engines)));
}

LabService::LabService(std::unique_ptr<Store> store, std::unique_ptr<EngineWatch> engines)
    : store_(std::move(store)), engines_(std::move(engines)), thread_([this] { run(); }) {}

Status LabService::submit(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return make_error(ErrorCode::kUnavailable, "the server is stopping");
    if (tasks_.size() >= kMaxWaitingTasks) {
      Error error = make_error(ErrorCode::kExhausted, "{} requests wait for the laboratory already",
                               tasks_.size());
      error.hint = "try again later";
      return error;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return {};
}

void LabService::stop() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LabService::run() {
  using Clock = std::chrono::steady_clock;
  Bench bench{.store = *store_, .feed = EventFeed(*store_)};
  Clock::time_point next_look = Clock::now();
  std::unique_lock lock(mutex_);
  const auto is_needed = [this] { return closed_ || !tasks_.empty(); };
  while (true) {
    if (bench.feed.is_empty()) {
      changed_.wait(lock, is_needed);
    } else {
      changed_.wait_until(lock, next_look, is_needed);
    }
    if (closed_) break;
    Task task;
    if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    lock.unlock();
    if (task) task(bench);
    task = nullptr;  // what it holds goes before the next wait
    if (!bench.feed.is_empty() && Clock::now() >= next_look) {
      next_look = Clock::now() + (bench.feed.advance() ? kCatchUpInterval : kLookInterval);
    }
    lock.lock();
  }
  const std::deque<Task> dropped = std::exchange(tasks_, {});
  lock.unlock();
  bench.feed.close();
}

}  // namespace headrace::lab
