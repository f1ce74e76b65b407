#include "cli/serve_operation.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "base/strings.h"
#include "cli/start_signals.h"
#include "server/access.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kStopTime{5};  // after --drain-seconds
constexpr std::chrono::seconds kTellTime{1};  // for the last answers of a server that hangs

// For these keys. Tenants that cannot be read leave a key that is to go no time.
void reload_tenants(const Options& options, const std::vector<ApiKey>& keys,
                    ServedTenants* tenants) {
  const std::string& path = options.text("--tenants");
  if (path.empty()) return;
  const Status status = tenants->read(path, keys);
  if (!status.ok()) {
    LOG(kError, "the tenants stay as they were: {}", status.error().to_string());
    return;
  }
  LOG(kInfo, "read {} tenants again", tenants->size());
}

void reload_keys(Server& server, const Options& options, ServedTenants* tenants) {
  auto keys = read_api_keys(options);
  if (!keys.ok()) {
    LOG(kError, "the API keys stay as they were: {}", keys.error().to_string());
    return;
  }
  if (tenants != nullptr) {
    reload_tenants(options, *keys, tenants);
    tenants->mark(&*keys);
  }
  LOG(kInfo, "read {} API keys again", keys->size());
  server.set_api_keys(std::move(keys).value());
}

void reload_tls(Server& server) {
  const Status status = server.reload_tls();
  if (!status.ok()) {
    LOG(kError, "the TLS certificate stays as it was: {}", status.error().to_string());
    return;
  }
  LOG(kInfo, "read the TLS certificate again");
}

// Reads again what may change while a server runs. What cannot be read leaves all as it was.
void reload(Server& server, const Options& options, ServedTenants* tenants) {
  if (!options.text("--api-key-file").empty()) reload_keys(server, options, tenants);
  if (!options.text("--tls-cert").empty()) reload_tls(server);
}

// Until a signal that is to end the server.
void wait_for_stop(Server& server, const Options& options, ServedTenants* tenants,
                   const HangUp& hang_up) {
  const sigset_t signals = stop_signals();
  while (true) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return;
    const HangUp::Meaning meaning = hang_up.meaning(can_reload(options));
    if (meaning == HangUp::Meaning::kStop) return;
    if (meaning == HangUp::Meaning::kReload) reload(server, options, tenants);
  }
}

// Once the server is to end, a further signal ends the process at once; one that says to read files
// again, or that was to be ignored, does not.
void exit_on_next_signal(const HangUp& hang_up) {
  sigset_t signals = stop_signals();
  if (hang_up.is_ignored()) sigdelset(&signals, SIGHUP);
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    std::_Exit(1);
  }).detach();
}

}  // namespace

std::vector<std::string> list_of(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  const auto elements = split_list(text);
  return {elements.begin(), elements.end()};
}

void begin_log(const Options& options) {
  LogLevel level = LogLevel::kInfo;
  CHECK(parse_log_level(options.text("--log-level"), &level), "checked by the option table");
  set_log_level(level);
  set_log_format(options.text("--log-format") == "json" ? LogFormat::kJson : LogFormat::kText);
}

Result<ServerOptions> network_options(const Options& options) {
  ServerOptions serve;
  serve.host = options.text("--host");
  serve.port = static_cast<int>(options.integer("--port"));
  serve.num_http_threads = static_cast<int>(options.integer("--http-threads"));
  serve.tls = TRY(tls_files(options));
  serve.api_keys = TRY(read_api_keys(options));
  serve.allowed_hosts = list_of(options, "--allowed-hosts");
  serve.cors_origins = list_of(options, "--cors-origins");
  TRY(check_origins(serve.cors_origins));
  serve.max_connections = static_cast<int>(options.integer("--max-connections"));
  serve.max_connections_per_address =
      static_cast<int>(options.integer("--max-connections-per-address"));
  serve.max_body_bytes = options.bytes("--max-body");
  serve.lab_engines = list_of(options, "--engine");
  TRY(check_exposure(serve, options));
  return serve;
}

void end_hung_server() {
  LOG(kError, "ending with status {}: a step hangs", kHungStatus);
  std::this_thread::sleep_for(kTellTime);
  std::_Exit(kHungStatus);
}

bool can_reload(const Options& options) {
  return !options.text("--api-key-file").empty() || !options.text("--tls-cert").empty();
}

Result<std::vector<ApiKey>> read_api_keys(const Options& options) {
  std::vector<ApiKey> keys;
  if (!options.text("--api-key").empty()) {
    keys = TRY(parse_api_keys(options.text("--api-key"), "--api-key"));
  }
  const std::string& path = options.text("--api-key-file");
  if (path.empty()) return keys;
  std::ifstream file(path);
  std::string text;
  char chunk[4096];
  while (file) {  // read() throws nothing, also where the path is a folder's
    file.read(chunk, sizeof(chunk));
    text.append(chunk, static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return make_error(ErrorCode::kIo, "cannot read the API keys in '{}'", path);
  }
  for (ApiKey& key : TRY(parse_api_keys(text, path))) keys.push_back(std::move(key));
  return keys;
}

Result<TlsFiles> tls_files(const Options& options) {
  TlsFiles files{options.text("--tls-cert"), options.text("--tls-key")};
  if (files.certificate.empty() == files.key.empty()) return files;
  return make_error(ErrorCode::kInvalidArgument, "{} is given, but it needs {} beside it",
                    files.key.empty() ? "--tls-cert" : "--tls-key",
                    files.key.empty() ? "--tls-key" : "--tls-cert");
}

Status check_exposure(const ServerOptions& serve, const Options& options) {
  if (is_loopback_host(serve.host) || !serve.api_keys.empty()) return {};
  if (options.flag("--insecure-no-keys")) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("--host is {}, which others reach, and there are no API keys", serve.host),
      "give --api-key-file (headrace key makes its lines), or --insecure-no-keys if "
      "anyone who reaches the address may use the server",
      {}};
}

void warn_if_open(const ServerOptions& serve, int port) {
  if (is_loopback_host(serve.host)) return;
  if (!serve.api_keys.empty()) {
    if (serve.tls.given()) return;
    LOG(kWarning,
        "keys, prompts and answers cross the network in the clear: there is no --tls-cert, so let "
        "a proxy with TLS stand before {} port {}",
        serve.host, port);
    return;
  }
  LOG(kWarning,
      "anyone who reaches {} port {} may use this server: there is no --api-key or --api-key-file",
      serve.host, port);
}

void tell_address(const ServerOptions& serve, int port) {
  warn_if_open(serve, port);
  const bool is_ipv6 = serve.host.find(':') != std::string::npos;
  const std::string shown_host = is_ipv6 ? "[" + serve.host + "]" : serve.host;
  std::printf("listening on %s://%s:%d\n", serve.tls.given() ? "https" : "http", shown_host.c_str(),
              port);
  std::fflush(stdout);
}

Result<Telemetry> open_telemetry(const Options& options) {
  Telemetry telemetry;
  if (!options.text("--kv-events").empty()) {
    KvPublisherOptions publisher;
    publisher.endpoint = options.text("--kv-events");
    publisher.replay_endpoint = options.text("--kv-events-replay");
    publisher.topic = options.text("--kv-events-topic");
    const bool as_arrays = options.text("--kv-events-form") == "arrays";
    publisher.form = as_arrays ? KvBatchForm::kArrays : KvBatchForm::kMaps;
    telemetry.kv_events = TRY(KvPublisher::create(publisher));
  }
  if (!options.text("--otlp-endpoint").empty()) {
    telemetry.traces = TRY(
        TraceExporter::create({options.text("--otlp-endpoint"), std::string(server_version())}));
  }
  return telemetry;
}

void watch_signals(Server& server, const Options& options, ServedTenants* tenants,
                   const HangUp& hang_up) {
  wait_for_stop(server, options, tenants, hang_up);
  const std::chrono::seconds limit(options.integer("--drain-seconds"));
  LOG(kInfo, "stopping: running requests may finish within {} s; once more to stop now",
      limit.count());
  exit_on_next_signal(hang_up);
  std::thread([limit] {
    std::this_thread::sleep_for(limit + kStopTime);
    LOG(kError, "the server did not stop within {} s after the limit: ending it",
        kStopTime.count());
    std::_Exit(1);
  }).detach();
  server.drain(limit);
}

void run_until_stopped(Server& server, const Options& options, ServedTenants* tenants,
                       const HangUp& hang_up) {
  std::thread watcher([&] { watch_signals(server, options, tenants, hang_up); });
  server.run();
  watcher.join();
}

}  // namespace headrace
