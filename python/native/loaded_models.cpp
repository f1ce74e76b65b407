#include "native/loaded_models.h"

#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "checkpoint/adapter_files.h"

namespace headrace::python {
namespace {

// One load at a time: kernels are verified under a process-wide handler of signals.
std::mutex& loading() {
  static std::mutex mutex;
  return mutex;
}

// The team that models of this process share, by the number of threads asked for. Called while
// loading.
Result<std::shared_ptr<CpuTeam>> shared_team(const Options& options) {
  static std::map<int64_t, std::weak_ptr<CpuTeam>> teams;
  std::weak_ptr<CpuTeam>& known = teams[options.integer("--threads")];
  if (auto team = known.lock()) return team;
  auto team = TRY(create_team(options));
  known = team;
  return team;
}

void use_log_level(const Options& options) {
  LogLevel level = LogLevel::kWarning;
  CHECK(parse_log_level(options.text("--log-level"), &level), "checked by the option table");
  set_log_level(level);
}

}  // namespace

Result<std::unique_ptr<LoadedModels>> LoadedModels::load(const LoadRequest& request) {
  const std::lock_guard lock(loading());
  try {
    Options options = TRY(Options::create("serve", request.options, {}));
    std::unique_ptr<LoadedModels> models(new LoadedModels(std::move(options)));
    TRY(models->open(request));
    return models;
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kExhausted, "there is not enough memory to load {}",
                      request.model);
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::kExhausted, "the system refused a thread: {}", error.what());
  }
}

Status LoadedModels::open(const LoadRequest& request) {
  use_log_level(options_);
  ServedModels served = TRY(open_served_models(options_, {request.model}, nullptr, runtimes_,
                                               TRY(shared_team(options_))));
  for (const auto& [name, folder] : request.adapters) {
    TRY(served.always.front()->adapters.load(name, folder, false,
                                             [&] { return read_adapter_folder(folder); }));
  }
  ServerOptions serve;
  serve.request_memory_bytes = request_memory(options_);
  server_ = LocalServer::create(std::move(served), serve);
  return {};
}

LoadedModels::~LoadedModels() {
  if (is_own_process()) {
    close();
    return;
  }
  // The threads of this are another process's. Nothing of it can be ended here.
  for (auto& runtime : runtimes_) (void)runtime.release();
  new std::shared_ptr<LocalServer>(std::move(server_));  // kept for ever
}

bool LoadedModels::is_own_process() const { return getpid() == process_; }

Result<std::shared_ptr<LocalAnswer>> LoadedModels::ask(std::string_view method,
                                                       std::string_view path, std::string body) {
  if (!is_own_process()) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the model was loaded in process {}, of which this is a fork: its "
                             "threads are not here",
                             process_),
                 "load it after the fork, or start processes with multiprocessing's method 'spawn'",
                 {}};
  }
  std::shared_ptr<LocalServer> server;
  {
    const std::lock_guard lock(mutex_);
    server = server_;
  }
  if (server == nullptr) return make_error(ErrorCode::kUnavailable, "the model was closed");
  return server->ask(method, path, std::move(body));
}

void LoadedModels::close() {
  if (!is_own_process()) return;
  std::shared_ptr<LocalServer> server;
  {
    const std::lock_guard lock(mutex_);
    server = std::exchange(server_, nullptr);
  }
  if (server == nullptr) return;
  server->stop();
  while (server.use_count() > 1) std::this_thread::yield();  // an ask() that is on its way
  server.reset();
  runtimes_.clear();
}

}  // namespace headrace::python
