// serve_operation: what an operator of `headrace serve` decides: who may ask, and what signals do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/hang_up.h"
#include "cli/tenants_file.h"
#include "options.h"
#include "server/api_keys.h"
#include "server/server.h"
#include "server/telemetry/kv_publisher.h"
#include "server/telemetry/trace_exporter.h"

namespace headrace {

// The elements of an option that holds a list.
std::vector<std::string> list_of(const Options& options, std::string_view name);
// Of --log-level and --log-format, from now on.
void begin_log(const Options& options);
// How a server listens, who may ask and how much they may send: what servers with and without
// models have in common. Errors of all that is read for it, and of check_exposure.
Result<ServerOptions> network_options(const Options& options);
// Of --api-key and --api-key-file; none: no key is needed.
Result<std::vector<ApiKey>> read_api_keys(const Options& options);
// Of --tls-cert and --tls-key: both, or kInvalidArgument.
Result<TlsFiles> tls_files(const Options& options);
// Beyond this machine a server has keys, or is told twice that it needs none: kInvalidArgument.
Status check_exposure(const ServerOptions& serve, const Options& options);
void warn_if_open(const ServerOptions& serve, int port);
// As that, and prints where the server listens.
void tell_address(const ServerOptions& serve, int port);

// Who is told of what the server does, by --kv-events and --otlp-endpoint; null: nobody. Outlives
// engines and server.
struct Telemetry {
  std::unique_ptr<KvPublisher> kv_events;
  std::unique_ptr<TraceExporter> traces;
};
Result<Telemetry> open_telemetry(const Options& options);

// What a server does whose engine hangs (engine/watchdog.h): its requests have been told; once that
// is on its way the process ends, with a status of its own, for who is to start it again.
inline constexpr int kHungStatus = 70;
void end_hung_server();

// There are files that SIGHUP has read again.
bool can_reload(const Options& options);
// Reloads on SIGHUP, and ends the server on the first signal that means so: running requests may
// finish within the limit. A second signal ends the process at once. Runs on a thread of its own,
// detached: it only sleeps in sigwait.
//
// The stop is bounded, whatever a thread is at: past the limit and kStopTime the process ends.
// tenants: null where there are none to be read again.
void watch_signals(Server& server, const Options& options, ServedTenants* tenants,
                   const HangUp& hang_up);
// Serves, and watches signals meanwhile.
void run_until_stopped(Server& server, const Options& options, ServedTenants* tenants,
                       const HangUp& hang_up);

}  // namespace headrace
