#include "server/local_server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/handover.h"
#include "server/drain.h"
#include "server/http/message.h"
#include "server/http/workers.h"
#include "server/routes.h"

namespace headrace {
namespace {

// Requests that wait for a worker. All are of one client, which may have a quarter of them waiting.
constexpr size_t kMaxQueuedWork = 65'536;
constexpr const char* kContentType = "content-type";
constexpr std::string_view kClosed = "the model was closed";

// The I/O thread of a server without sockets: tasks, one after another. What is posted once it has
// stopped is dropped.
class TaskLoop final : public HandoverPlace {
 public:
  TaskLoop() : thread_([this] { run(); }) {}
  ~TaskLoop() override { stop(); }

  void post(std::function<void()> task) {
    std::vector<std::function<void()>> one;
    one.push_back(std::move(task));
    take(std::move(one));
  }
  void take(std::vector<std::function<void()>> tasks) override {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      std::move(tasks.begin(), tasks.end(), std::back_inserter(tasks_));
    }
    ready_.notify_one();
  }

  void stop() {
    std::deque<std::function<void()>> dropped;  // ended outside the lock: tasks own sessions
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      dropped.swap(tasks_);
    }
    ready_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
      if (stopped_) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it owns ends outside the lock
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards all but the thread
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;
  std::thread thread_;  // last
};

// One answer between the threads that make it and the one that takes it.
class LocalExchange {
 public:
  explicit LocalExchange(std::shared_ptr<TaskLoop> loop) : loop_(std::move(loop)) {}
  ~LocalExchange() {
    if (event_ >= 0) close(event_);
  }
  LocalExchange(const LocalExchange&) = delete;
  LocalExchange& operator=(const LocalExchange&) = delete;

  // ---- the side that answers; what comes after the end is dropped ----

  void begin(int status, HttpHeaders headers) {
    std::lock_guard lock(mutex_);
    if (ended_ || status_ != 0) return;
    status_ = status;
    headers_ = std::move(headers);
    notify();
  }

  void add(std::string_view data) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    data_ += data;
    notify();
  }

  void end(bool broken = false) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    broken_ = broken;
    left_ = nullptr;
    notify();
  }

  bool answered() const {
    std::lock_guard lock(mutex_);
    return status_ != 0;
  }

  bool left() const {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

  size_t queued_bytes() const {
    std::lock_guard lock(mutex_);
    return data_.size();
  }

  void on_left(std::function<void()> callback) {
    {
      std::lock_guard lock(mutex_);
      if (!cancelled_) {
        left_ = std::move(callback);
        return;
      }
    }
    loop_->post(std::move(callback));
  }

  void post(std::function<void()> task) {
    if (Handover* handover = Handover::current()) return handover->add(loop_, std::move(task));
    loop_->post(std::move(task));
  }

  // ---- the side that takes ----

  bool wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return has_news(); });
  }

  LocalAnswer::Piece take() {
    std::lock_guard lock(mutex_);
    LocalAnswer::Piece piece{status_, headers_, std::exchange(data_, {}), ended_, broken_};
    seen_status_ = status_;
    if (event_ >= 0 && !has_news()) {
      uint64_t count = 0;
      if (read(event_, &count, sizeof(count)) < 0) return piece;  // it was not set
    }
    return piece;
  }

  int descriptor() {
    std::lock_guard lock(mutex_);
    if (event_ < 0) event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (has_news()) signal();
    return event_;
  }

  void cancel() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return;
      cancelled_ = true;
      callback = std::exchange(left_, nullptr);
      if (!ended_) {
        ended_ = true;
        broken_ = true;
        notify();
      }
    }
    if (callback) loop_->post(std::move(callback));
  }

 private:
  // With mutex_ held, as all below.
  bool has_news() const { return !data_.empty() || ended_ || status_ != seen_status_; }

  void notify() {
    changed_.notify_all();
    signal();
  }

  void signal() {
    const uint64_t one = 1;
    if (event_ >= 0 && write(event_, &one, sizeof(one)) < 0) return;  // it is set
  }

  const std::shared_ptr<TaskLoop> loop_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int status_ = 0;
  int seen_status_ = 0;  // by the last take()
  HttpHeaders headers_;
  std::string data_;
  bool ended_ = false, broken_ = false, cancelled_ = false;
  std::function<void()> left_;
  int event_ = -1;
};

// The handler's reference to an exchange.
class LocalWriter final : public ResponseWriter {
 public:
  explicit LocalWriter(std::shared_ptr<LocalExchange> exchange) : exchange_(std::move(exchange)) {}
  ~LocalWriter() override {
    if (!exchange_->answered()) {
      send(error_response(dialect_of(nullptr), Problem{503, std::string(kClosed)}));
    }
    exchange_->end(true);
  }

  // Its memory is the caller's from now on, no longer the server's.
  void send(HttpResponse response) override {
    response.headers.emplace_back(kContentType, std::move(response.content_type));
    exchange_->begin(response.status, std::move(response.headers));
    exchange_->add(response.body);
    exchange_->end();
  }
  void start_stream(StreamHead head) override {
    head.headers.emplace_back(kContentType, std::move(head.content_type));
    exchange_->begin(200, std::move(head.headers));
  }
  void write(std::string_view data) override { exchange_->add(data); }
  void end_stream() override { exchange_->end(); }
  size_t queued_bytes() const override { return exchange_->queued_bytes(); }
  bool disconnected() const override { return exchange_->left(); }
  void on_disconnect(std::function<void()> callback) override {
    exchange_->on_left(std::move(callback));
  }
  void on_written(std::function<void()> /*callback*/) override {}  // nothing ever waits for it
  void post(std::function<void()> task) override { exchange_->post(std::move(task)); }

 private:
  const std::shared_ptr<LocalExchange> exchange_;
};

// The caller's.
class LocalAnswerImpl final : public LocalAnswer {
 public:
  explicit LocalAnswerImpl(std::shared_ptr<LocalExchange> exchange)
      : exchange_(std::move(exchange)) {}
  ~LocalAnswerImpl() override { exchange_->cancel(); }

  bool wait(std::chrono::milliseconds limit) override { return exchange_->wait(limit); }
  Piece take() override { return exchange_->take(); }
  int descriptor() override { return exchange_->descriptor(); }
  void cancel() override { exchange_->cancel(); }

 private:
  const std::shared_ptr<LocalExchange> exchange_;
};

ServerOptions without_sockets(ServerOptions options) {
  options.host = "127.0.0.1";
  options.api_keys.clear();
  options.max_stream_queue_bytes = SIZE_MAX;  // what is queued is the caller's own
  return options;
}

HttpRequest local_request(std::string_view method, std::string_view path) {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.request_id = fresh_request_id();
  request.headers = {{"host", "localhost"}, {"content-type", "application/json"}};
  request.arrived_us = now_us();
  return request;
}

class LocalServerImpl final : public LocalServer {
 public:
  LocalServerImpl(ServedModels models, ServerOptions options)
      : state_(std::move(models), without_sockets(std::move(options)), rows_with({})),
        loop_(std::make_shared<TaskLoop>()),
        workers_(state_.options.num_workers, kMaxQueuedWork) {}

  ~LocalServerImpl() override { stop(); }

  std::shared_ptr<LocalAnswer> ask(std::string_view method, std::string_view path,
                                   std::string body) override {
    auto exchange = std::make_shared<LocalExchange>(loop_);
    auto answer = std::make_shared<LocalAnswerImpl>(exchange);
    auto writer = std::make_shared<LocalWriter>(std::move(exchange));
    // Shared: what is submitted is copied.
    auto request = std::make_shared<HttpRequest>(local_request(method, path));
    Admission admission = admit(state_, *request);
    if (admission.refusal) {
      writer->send(std::move(*admission.refusal));
      return answer;
    }
    request->memory = state_.memory.lease();
    if (!request->memory.resize(body.size())) {
      writer->send(error_response(dialect_of(request->route), no_memory(), request->request_id));
      return answer;
    }
    request->body = std::move(body);
    const auto taken = workers_.submit(0, [this, request, writer]() mutable {
      if (writer->disconnected()) return;
      dispatch(state_, std::move(*request), std::move(writer));
    });
    if (taken != WorkerPool::Answer::kTaken) {
      const Error error = state_.draining ? closed() : too_many();
      writer->send(error_response(dialect_of(request->route), error, request->request_id));
    }
    return answer;
  }

  void stop() override {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    state_.draining = true;
    workers_.close();
    drain_engines(state_, std::chrono::milliseconds(0));
    workers_.stop();
    state_.models.join();
    wait_for_responses(state_);
    loop_->stop();
  }

 private:
  static Error no_memory() {
    return {ErrorCode::kExhausted,
            "other requests hold all memory that is lent to requests",
            "try again later",
            {}};
  }
  static Error closed() { return {ErrorCode::kUnavailable, std::string(kClosed), {}, {}}; }
  static Error too_many() {
    return {ErrorCode::kExhausted, "too many requests wait", "wait for some of them first", {}};
  }

  ServerState state_;
  const std::shared_ptr<TaskLoop> loop_;  // answers may outlive the server
  WorkerPool workers_;
  std::mutex mutex_;
  bool stopped_ = false;  // guarded
};

}  // namespace

std::unique_ptr<LocalServer> LocalServer::create(ServedModels models,
                                                 const ServerOptions& options) {
  return std::make_unique<LocalServerImpl>(std::move(models), options);
}

}  // namespace headrace
