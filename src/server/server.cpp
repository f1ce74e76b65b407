#include "server/server.h"

#include <malloc.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "server/admin.h"
#include "server/api/wall_clock.h"
#include "server/drain.h"
#include "server/http/http_server.h"
#include "server/lab/lab_service.h"
#include "server/request_log.h"
#include "server/routes.h"
#include "server/telemetry/trace_exporter.h"

namespace headrace {
namespace {

// After the engine is done: for what is still on its way to the clients.
constexpr std::chrono::milliseconds kFlushTime{2'000};
constexpr std::chrono::milliseconds kTrimInterval{1'000};

HttpOptions http_options(const ServerOptions& options) {
  HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.tls = options.tls;
  http.num_threads = options.num_http_threads;
  http.num_workers = options.num_workers;
  http.max_head_bytes = options.max_head_bytes;
  // A body that could never fit is refused as too long, not as one to try again.
  http.max_body_bytes = std::min(options.max_body_bytes, options.request_memory_bytes / 2);
  http.max_connections = options.max_connections;
  http.max_connections_per_address = options.max_connections_per_address;
  http.header_deadline = options.header_deadline;
  http.body_deadline = options.body_deadline;
  http.idle_timeout = options.idle_timeout;
  http.write_timeout = options.write_timeout;
  http.heartbeat = options.heartbeat;
  return http;
}

HttpService http_service(ServerState& state) {
  HttpService service;
  service.handle = [&state](HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
    dispatch(state, std::move(request), std::move(writer));
  };
  service.admit = [&state](HttpRequest& request) { return admit(state, request); };
  service.fail = [](const RouteRow* row, int status, std::string_view message) {
    return error_response(dialect_of(row), Problem{status, std::string(message)});
  };
  service.finished = [&state, traces = state.options.traces](const RequestRecord& record) {
    log_request(record);
    state.finished.add(record, wall_clock_us() / 1000);
    if (traces != nullptr) traces->add(record);
  };
  service.memory = &state.memory;
  service.counters = &state.counters;
  return service;
}

// Few and trusted: one thread and one worker.
HttpOptions admin_http_options(const ServerOptions& options) {
  HttpOptions http;
  http.unix_path = options.admin_socket;
  http.num_threads = 1;
  http.num_workers = 1;
  http.max_connections = 64;
  return http;
}

HttpService admin_http_service(ServerState& state) {
  HttpService service = http_service(state);
  service.admit = admit_admin;
  service.memory = nullptr;
  service.counters = nullptr;
  return service;
}

Result<std::unique_ptr<HttpServer>> listen_for_admin(ServerState& state) {
  if (state.options.admin_socket.empty()) return std::unique_ptr<HttpServer>();
  return HttpServer::listen(admin_http_options(state.options), admin_http_service(state));
}

// Exists only once it listens.
class ServerImpl : public Server {
 public:
  // admin: null where there is no socket for it.
  ServerImpl(std::unique_ptr<ServerState> state, std::unique_ptr<HttpServer> http,
             std::unique_ptr<HttpServer> admin)
      : state_(std::move(state)), http_(std::move(http)), admin_(std::move(admin)) {}

  ~ServerImpl() override { stop(); }

  int port() const override { return http_->port(); }

  void run() override {
    std::unique_lock lock(mutex_);
    if (!stopped_) http_->start();
    if (!stopped_ && admin_ != nullptr) admin_->start();
    size_t num_returns = 0;
    while (!changed_.wait_for(lock, kTrimInterval, [this] { return stopped_; })) {
      // The allocator keeps what large requests freed, many times their body's size in small
      // pieces, unless it is asked to give whole pages back.
      const size_t now = state_->memory.num_large_returns();
      if (std::exchange(num_returns, now) == now) continue;
      lock.unlock();
      malloc_trim(0);
      lock.lock();
    }
  }

  void set_api_keys(std::vector<ApiKey> keys) override {
    CHECK(keys.empty() == !state_->access.has_keys(), "{} keys replace others", keys.size());
    state_->access.set_keys(std::move(keys));
  }

  Status reload_tls() override { return http_->reload_tls(); }

  void stop() override { drain(std::chrono::milliseconds(0)); }

  bool drain(std::chrono::milliseconds deadline) override {
    {
      std::lock_guard lock(mutex_);
      if (draining_) return true;
      draining_ = true;
    }
    const bool all_finished = drain_engines(*state_, deadline);
    if (state_->lab != nullptr) state_->lab->stop();
    http_->stop(kFlushTime);
    if (admin_ != nullptr) admin_->stop(kFlushTime);
    state_->models.join();
    wait_for_responses(*state_);
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    return all_finished;
  }

 private:
  const std::unique_ptr<ServerState> state_;
  const std::unique_ptr<HttpServer> http_;
  const std::unique_ptr<HttpServer> admin_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool draining_ = false;
  bool stopped_ = false;
};

Result<std::unique_ptr<Server>> listen_with(std::unique_ptr<ServerState> state) {
  const ServerOptions& options = state->options;
  if (!options.lab_folder.empty()) {
    state->lab = TRY(lab::LabService::open(options.lab_folder, options.lab_engines));
  }
  auto http = TRY(HttpServer::listen(http_options(options), http_service(*state)));
  auto admin = TRY(listen_for_admin(*state));
  return std::unique_ptr<Server>(
      std::make_unique<ServerImpl>(std::move(state), std::move(http), std::move(admin)));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::create(std::vector<ModelPtr> models,
                                               const ServerOptions& options) {
  return create_with({}, ServedModels{std::move(models)}, options);
}

Result<std::unique_ptr<Server>> Server::create_with(std::span<const RouteRow> further_rows,
                                                    ServedModels models,
                                                    const ServerOptions& options) {
  CHECK(!models.always.empty(), "a server without a model");
  return listen_with(
      std::make_unique<ServerState>(std::move(models), options, rows_with(further_rows)));
}

Status Server::check_places(const ServerOptions& options) {
  TRY(HttpServer::listen(http_options(options), {}));
  if (!options.admin_socket.empty()) TRY(HttpServer::listen(admin_http_options(options), {}));
  return {};
}

Result<std::unique_ptr<Server>> Server::create_lab(const ServerOptions& options) {
  if (options.lab_folder.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "there is no folder of a laboratory to serve");
  }
  return listen_with(std::make_unique<ServerState>(ServedModels(), options, lab_rows_alone()));
}

}  // namespace headrace
