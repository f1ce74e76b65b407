// headrace serve MODEL...: what a server is made of, in order: checkpoint, text, back end, model,
// engine, server.

#include <cstdio>
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
#include "cli/served_models.h"
#include "cli/terminal.h"
#include "server/server.h"

namespace headrace {
namespace {

// The elements of an option that holds a list.
std::vector<std::string> list_of(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  const auto elements = split_list(text);
  return {elements.begin(), elements.end()};
}

Result<ServerOptions> server_options(const Options& options) {
  ServerOptions serve;
  serve.host = options.text("--host");
  serve.port = static_cast<int>(options.integer("--port"));
  serve.num_http_threads = static_cast<int>(options.integer("--http-threads"));
  serve.tls = TRY(tls_files(options));
  serve.admin_socket = options.text("--admin-socket");
  serve.api_keys = TRY(read_api_keys(options));
  serve.adapter_root = options.text("--adapter-root");
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

// --adapter: those that are there from the start.
Status load_adapters(const Options& options, const ServedModel& model) {
  for (const std::string& text : list_of(options, "--adapter")) {
    const size_t equals = text.find('=');
    if (equals == text.npos) {
      return make_error(ErrorCode::kInvalidArgument, "--adapter is '{}', but must be NAME=FOLDER",
                        text);
    }
    const std::string name = text.substr(0, equals), folder = text.substr(equals + 1);
    TRY(model.adapters.load(name, folder, false, [&] { return read_adapter_folder(folder); }));
  }
  return {};
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

  const std::vector<std::string> specs = TRY(take_models(options));
  const Telemetry telemetry = TRY(open_telemetry(options));
  std::vector<std::unique_ptr<Runtime>> runtimes;  // outlive the server
  ServedModels models =
      TRY(open_served_models(options, specs, telemetry.kv_events.get(), runtimes));

  serve.kv_events = telemetry.kv_events.get();
  serve.traces = telemetry.traces.get();
  serve.request_memory_bytes = request_memory(options);
  TRY(load_adapters(options, *models.always.front()));
  const auto server = TRY(Server::create_with({}, std::move(models), serve));
  warn_if_open(serve, server->port());
  const bool is_ipv6 = serve.host.find(':') != std::string::npos;
  const std::string shown_host = is_ipv6 ? "[" + serve.host + "]" : serve.host;
  end_of_start();
  std::printf("listening on %s://%s:%d\n", serve.tls.given() ? "https" : "http", shown_host.c_str(),
              server->port());
  std::fflush(stdout);

  for (const auto& runtime : runtimes) runtime->text.grammars->prepare();
  std::thread watcher([&] { watch_signals(*server, options, hang_up); });
  server->run();
  watcher.join();
  return 0;
}

}  // namespace headrace
