#include "server/server.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "server/http.h"
#include "server/routes.h"

namespace headrace {
namespace {

// After the engine is done: for what is still on its way to the clients.
constexpr std::chrono::milliseconds kFlushTime{2'000};

HttpOptions http_options(const ServerOptions& options) {
  HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.num_threads = options.num_http_threads;
  http.num_workers = options.num_workers;
  http.max_head_bytes = options.max_head_bytes;
  http.max_body_bytes = options.max_body_bytes;
  http.max_connections = options.max_connections;
  http.header_deadline = options.header_deadline;
  http.body_deadline = options.body_deadline;
  http.idle_timeout = options.idle_timeout;
  http.write_timeout = options.write_timeout;
  http.heartbeat = options.heartbeat;
  return http;
}

class ServerImpl : public Server {
 public:
  ServerImpl(Engine& engine, const TextBundle& text, ModelInfo model, const ServerOptions& options)
      : state_(engine, text, std::move(model), options) {}

  ~ServerImpl() override { stop(); }

  Status open() {
    http_ = TRY(
        HttpServer::listen(http_options(state_.options),
                           [this](HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
                             dispatch(state_, std::move(request), std::move(writer));
                           }));
    return {};
  }

  int port() const override { return http_->port(); }

  void run() override {
    std::unique_lock lock(mutex_);
    if (!stopped_) http_->start();
    changed_.wait(lock, [this] { return stopped_; });
  }

  void stop() override { drain(std::chrono::milliseconds(0)); }

  bool drain(std::chrono::milliseconds deadline) override {
    {
      std::lock_guard lock(mutex_);
      if (draining_) return true;
      draining_ = true;
    }
    state_.draining = true;
    const bool all_finished = state_.engine.drain(deadline);
    http_->stop(kFlushTime);
    wait_for_responses();
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    return all_finished;
  }

 private:
  // Each session ends with its last event, which the engine delivers without fail.
  void wait_for_responses() {
    const TimeUs begin = now_us();
    while (state_.counters.live_responses > 0) {
      if (now_us() - begin > 5'000'000) {
        LOG(kError, "{} responses are still held by the engine",
            state_.counters.live_responses.load());
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  ServerState state_;
  std::unique_ptr<HttpServer> http_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool draining_ = false;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::create(Engine& engine, const TextBundle& text,
                                               ModelInfo model, const ServerOptions& options) {
  CHECK(text.tokenizer != nullptr, "a server needs a tokenizer");
  auto server = std::make_unique<ServerImpl>(engine, text, std::move(model), options);
  TRY(server->open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace headrace
