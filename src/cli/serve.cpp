// headrace serve MODEL: what a server is made of, in order: checkpoint, text, back end, model,
// engine, server.

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/memory_shortage.h"
#include "base/strings.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "engine/kv_sizing.h"
#include "engine/numerics.h"
#include "server/access.h"
#include "server/server.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kStopTime{5};  // after --drain-seconds
constexpr size_t kMinRequestMemory = size_t{64} << 20;
constexpr size_t kMaxRequestMemory = size_t{1} << 30;

// Blocked in every thread from the start of the command, so that only the waiter below takes them.
// A terminal that closes ends the server as SIGTERM does, but not one that was told to outlive it
// (nohup leaves SIGHUP ignored).
sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hang_up{};
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  return signals;
}

// The elements of an option that holds a list.
std::vector<std::string> list_of(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  const auto elements = split_list(text);
  return {elements.begin(), elements.end()};
}

// Ends the server on the first signal: running requests may finish within the limit. A second
// signal ends the process at once. Runs on a thread of its own, detached: it only sleeps in
// sigwait.
//
// The stop is bounded, whatever a thread is at: past the limit and kStopTime the process ends.
void watch_signals(Server& server, std::chrono::seconds limit) {
  const sigset_t signals = stop_signals();
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(kInfo, "stopping: running requests may finish within {} s; once more to stop now",
      limit.count());
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    std::_Exit(1);
  }).detach();
  std::thread([limit] {
    std::this_thread::sleep_for(limit + kStopTime);
    LOG(kError, "the server did not stop within {} s after the limit: ending it",
        kStopTime.count());
    std::_Exit(1);
  }).detach();
  server.drain(limit);
}

// Weights of the linear layers and the embeddings; norms and biases are not counted.
int64_t count_parameters(const ModelConfig& config) {
  int64_t count = config.vocab_size * config.hidden_size * (config.tie_word_embeddings ? 1 : 2);
  for (const LayerConfig& layer : config.layers) {
    const int64_t heads = 2 * (layer.num_attention_heads + layer.num_key_value_heads);
    count += config.hidden_size * (heads * layer.head_dim + 3 * layer.intermediate_size);
  }
  return count;
}

ModelInfo model_info(const Runtime& runtime, const std::string& name) {
  const ModelConfig& config = runtime.model->config();
  ModelInfo info;
  info.name = name;
  info.family = config.family;
  info.architecture = config.architecture;
  info.quantisation = config.source_dtype;
  info.formats = runtime.files.formats;
  info.file = std::filesystem::path(runtime.files.path).filename().string();
  info.num_parameters = count_parameters(config);
  info.weight_bytes = static_cast<int64_t>(runtime.files.num_bytes);
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.isa = runtime.backend->isa();
  info.num_threads = runtime.backend->num_threads();
  info.numerics_id = numerics_id(*runtime.backend, runtime.model->options().kv_type);
  info.system_fingerprint = system_fingerprint(info.numerics_id, runtime.files.fingerprint);
  return info;
}

// The name requests use: a pulled model's name as given, a path's file name without its ending.
std::string served_name(const std::string& spec) {
  if (spec.find('/') == std::string::npos && !spec.ends_with(".gguf")) return spec;
  const std::filesystem::path path(spec);
  return path.has_stem() ? path.stem().string() : path.parent_path().filename().string();
}

void warn_if_open(const ServerOptions& serve, int port) {
  if (!serve.api_keys.empty() || is_loopback_host(serve.host)) return;
  LOG(kWarning,
      "anyone who reaches {} port {} may use this server: there is no --api-key or --api-key-file",
      serve.host, port);
}

// 0: a quarter of what is left once the model is loaded, within limits.
size_t request_memory(const Options& options) {
  const size_t given = options.bytes("--request-memory");
  if (given > 0) return given;
  return std::clamp(available_memory_bytes() / 4, kMinRequestMemory, kMaxRequestMemory);
}

Result<std::vector<std::string>> api_keys(const Options& options) {
  std::vector<std::string> keys;
  if (!options.text("--api-key").empty()) {
    keys = TRY(parse_api_keys(options.text("--api-key"), "--api-key"));
  }
  const std::string& path = options.text("--api-key-file");
  if (path.empty()) return keys;
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return make_error(ErrorCode::kIo, "cannot read the API keys in '{}'", path);
  for (std::string& key : TRY(parse_api_keys(text, path))) keys.push_back(std::move(key));
  return keys;
}

Result<ServerOptions> server_options(const Options& options) {
  ServerOptions serve;
  serve.host = options.text("--host");
  serve.port = static_cast<int>(options.integer("--port"));
  serve.num_http_threads = static_cast<int>(options.integer("--http-threads"));
  serve.api_keys = TRY(api_keys(options));
  serve.allowed_hosts = list_of(options, "--allowed-hosts");
  serve.cors_origins = list_of(options, "--cors-origins");
  serve.max_connections = static_cast<int>(options.integer("--max-connections"));
  serve.max_connections_per_address =
      static_cast<int>(options.integer("--max-connections-per-address"));
  serve.max_body_bytes = options.bytes("--max-body");
  serve.response_store_bytes = options.bytes("--response-store");
  serve.response_lifetime = std::chrono::seconds(options.integer("--response-seconds"));
  return serve;
}

}  // namespace

Result<int> run_serve(const Options& options) {
  LogLevel level = LogLevel::kInfo;
  CHECK(parse_log_level(options.text("--log-level"), &level), "checked by the option table");
  set_log_level(level);
  set_log_format(options.text("--log-format") == "json" ? LogFormat::kJson : LogFormat::kText);
  ServerOptions serve = TRY(server_options(options));
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::string spec = TRY(take_model(options, 0)).model;
  Runtime runtime = TRY(open_engine(options, spec));

  serve.request_memory_bytes = request_memory(options);
  auto model = std::make_shared<ServedModel>(*runtime.engine, runtime.text,
                                             model_info(runtime, served_name(spec)),
                                             list_of(options, "--alias"));
  const auto server = TRY(Server::create({std::move(model)}, serve));
  warn_if_open(serve, server->port());
  const bool is_ipv6 = serve.host.find(':') != std::string::npos;
  const std::string shown_host = is_ipv6 ? "[" + serve.host + "]" : serve.host;
  end_of_start();
  std::printf("listening on http://%s:%d\n", shown_host.c_str(), server->port());
  std::fflush(stdout);

  std::thread watcher(watch_signals, std::ref(*server),
                      std::chrono::seconds(options.integer("--drain-seconds")));
  server->run();
  watcher.join();
  return 0;
}

}  // namespace headrace
