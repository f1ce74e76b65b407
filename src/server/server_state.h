// ServerState: what all handlers share; and RouteRow, what a handler is to the server. Routes use
// them, and everything that answers one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_budget.h"
#include "base/clock.h"
#include "server/access.h"
#include "server/api/dialect.h"
#include "server/api/responses/store.h"
#include "server/finished_requests.h"
#include "server/http/http.h"
#include "server/model_pulls.h"
#include "server/model_registry.h"
#include "server/profiles.h"
#include "server/server_options.h"

namespace headrace {

struct ServerState;
namespace lab {
class LabService;
}

using Writer = std::shared_ptr<ResponseWriter>;

// Where there are keys, all but kPublic needs one, of a scope that the row asks for.
enum class Scope : uint8_t {
  kPublic,     // no key needed: the page's files and what load balancers ask
  kReading,    // of the scope inference or admin
  kInference,  // of the scope inference; refused while draining
  kMetrics,    // of the scope metrics or admin
  kManaging,   // of the scope admin
  kAdmin,      // as kManaging; refused to all where there are no keys
};

// May take the request's body and memory; what it leaves ends with the call.
using Handler = void (*)(ServerState&, HttpRequest&, std::shared_ptr<ResponseWriter>);

struct RouteRow {
  std::string_view method;
  std::string_view path;  // exact, or ending in '*': the rest is the handler's
  Scope scope;
  const Dialect* dialect;  // of its errors, those before the handler too; null: no client's
  Handler handler;
  std::string_view help;
};

// Shared by all handlers; outlives every request. Constant, but for the counters and draining.
struct ServerState {
  ServerState(ServedModels served, ServerOptions given, std::vector<RouteRow> routes);
  ~ServerState();

  ModelRegistry models;
  const ServerOptions options;
  const std::vector<RouteRow> rows;
  Access access;
  const int64_t created;  // wall clock, seconds: of /v1/models
  const TimeUs started = now_us();
  ByteBudget memory;  // of bodies, answers and scores together; HttpRequest::memory leases of it
  const std::shared_ptr<ResponseStore> responses;  // of the Responses API
  HttpCounters counters;
  FinishedRequests finished;
  std::atomic<bool> draining = false;
  std::mutex adapter_names;  // held while one is loaded: no two models give the same name
  ModelPulls pulls;
  std::unique_ptr<lab::LabService> lab;  // null: none. Set before the server runs
  Profiles profiles;
};

std::string_view server_version();
// Sends; the connection counts.
void respond(ServerState& state, ResponseWriter& writer, HttpResponse response);

}  // namespace headrace
