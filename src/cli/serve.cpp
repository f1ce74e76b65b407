// headrace serve MODEL: what a server is made of, in order: checkpoint, text, back end, model,
// engine, server.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/memory_shortage.h"
#include "base/strings.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/serve_operation.h"
#include "cli/terminal.h"
#include "engine/kv_sizing.h"
#include "engine/numerics.h"
#include "server/server.h"

namespace headrace {
namespace {

constexpr size_t kMinRequestMemory = size_t{64} << 20;
constexpr size_t kMaxRequestMemory = size_t{1} << 30;

// The elements of an option that holds a list.
std::vector<std::string> list_of(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  const auto elements = split_list(text);
  return {elements.begin(), elements.end()};
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

// 0: a quarter of what is left once the model is loaded, within limits.
size_t request_memory(const Options& options) {
  const size_t given = options.bytes("--request-memory");
  if (given > 0) return given;
  return std::clamp(available_memory_bytes() / 4, kMinRequestMemory, kMaxRequestMemory);
}

Result<ServerOptions> server_options(const Options& options) {
  ServerOptions serve;
  serve.host = options.text("--host");
  serve.port = static_cast<int>(options.integer("--port"));
  serve.num_http_threads = static_cast<int>(options.integer("--http-threads"));
  serve.tls = TRY(tls_files(options));
  serve.admin_socket = options.text("--admin-socket");
  serve.api_keys = TRY(read_api_keys(options));
  serve.allowed_hosts = list_of(options, "--allowed-hosts");
  serve.cors_origins = list_of(options, "--cors-origins");
  serve.max_connections = static_cast<int>(options.integer("--max-connections"));
  serve.max_connections_per_address =
      static_cast<int>(options.integer("--max-connections-per-address"));
  serve.max_body_bytes = options.bytes("--max-body");
  serve.response_store_bytes = options.bytes("--response-store");
  serve.response_lifetime = std::chrono::seconds(options.integer("--response-seconds"));
  TRY(check_exposure(serve, options));
  return serve;
}

}  // namespace

Result<int> run_serve(const Options& options) {
  LogLevel level = LogLevel::kInfo;
  CHECK(parse_log_level(options.text("--log-level"), &level), "checked by the option table");
  set_log_level(level);
  set_log_format(options.text("--log-format") == "json" ? LogFormat::kJson : LogFormat::kText);
  ServerOptions serve = TRY(server_options(options));
  const HangUp hang_up;
  block_stop_signals();

  const std::string spec = TRY(take_model(options, 0)).model;
  const Telemetry telemetry = TRY(open_telemetry(options));
  Runtime runtime = TRY(open_engine(options, spec, telemetry.kv_events.get()));

  serve.kv_events = telemetry.kv_events.get();
  serve.traces = telemetry.traces.get();
  serve.request_memory_bytes = request_memory(options);
  auto model = std::make_shared<ServedModel>(*runtime.engine, runtime.text,
                                             model_info(runtime, served_name(spec)),
                                             list_of(options, "--alias"));
  const auto server = TRY(Server::create({std::move(model)}, serve));
  warn_if_open(serve, server->port());
  const bool is_ipv6 = serve.host.find(':') != std::string::npos;
  const std::string shown_host = is_ipv6 ? "[" + serve.host + "]" : serve.host;
  end_of_start();
  std::printf("listening on %s://%s:%d\n", serve.tls.given() ? "https" : "http", shown_host.c_str(),
              server->port());
  std::fflush(stdout);

  std::thread watcher([&] { watch_signals(*server, options, hang_up); });
  server->run();
  watcher.join();
  return 0;
}

}  // namespace headrace
