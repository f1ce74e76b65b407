// routes: the table of endpoints, and the state that their handlers share.
//
// A row says who may call it, which dialect it speaks and what answers. What is not in the table is
// a 404, and a path with another method a 405: nothing is reachable by accident.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_budget.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "server/access.h"
#include "server/api/bundle.h"
#include "server/api/dialect.h"
#include "server/http/http.h"
#include "server/exposition.h"
#include "server/server.h"

namespace headrace {

struct ServerState;

enum class Scope : uint8_t {
  kPublic,     // no key needed: the page's files and what load balancers ask
  kReading,    // key needed if there is one
  kInference,  // as kReading; refused while draining
};

// May take the request's body and memory; what it leaves ends with the call.
using Handler = void (*)(ServerState&, HttpRequest&, std::shared_ptr<ResponseWriter>);

struct RouteRow {
  std::string_view method;
  std::string_view path;  // exact, or ending in '*': the rest is the handler's
  Scope scope;
  const Dialect* dialect;  // of its errors, those before the handler too
  Handler handler;
  std::string_view help;
};

// Shared by all handlers; outlives every request. Constant, but for the counters and draining.
struct ServerState {
  // further: rows beside those of route_rows().
  ServerState(Engine& serving, const TextBundle& bundle, ModelInfo info, ServerOptions given,
              std::span<const RouteRow> further = {});

  Engine& engine;
  const TextBundle& text;
  const ModelInfo model;
  const ServerOptions options;
  const std::vector<RouteRow> rows;
  const std::vector<std::string> names;  // the model's name, then its aliases
  const ServingModel serving;
  const Access access;
  const int64_t created;  // wall clock, seconds: of /v1/models
  const TimeUs started = now_us();
  ByteBudget memory;  // of bodies, answers and scores together; HttpRequest::memory leases of it
  ServerCounters counters;
  std::atomic<bool> draining = false;
};

std::span<const RouteRow> route_rows();
// The dialect of a row; without one, that of paths that lead nowhere.
const Dialect& dialect_of(const RouteRow* row);
std::string_view server_version();

// As Server::create, with rows beside those of route_rows().
Result<std::unique_ptr<Server>> create_server(Engine& engine, const TextBundle& text,
                                              ModelInfo model, const ServerOptions& options,
                                              std::span<const RouteRow> further);

// Finds the row and decides whether this client may ask it (access.h), before the body is read.
// What is refused here (401, 403, 404, 405, 415, 503) reaches no handler; OPTIONS is answered here
// too.
Admission admit(ServerState& state, HttpRequest& request);
// Sends; the connection counts.
void respond(ServerState& state, ResponseWriter& writer, HttpResponse response);
// The handler of every route that generates: parse reads its body.
void generate(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer,
              ParseRequest parse);
template <ParseRequest parse>
void generate_with(ServerState& state, HttpRequest& request,
                   std::shared_ptr<ResponseWriter> writer) {
  generate(state, request, std::move(writer), parse);
}

// Runs the handler of a request that was admitted.
void dispatch(ServerState& state, HttpRequest&& request, std::shared_ptr<ResponseWriter> writer);

}  // namespace headrace
