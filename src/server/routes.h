// routes: the table of endpoints.
//
// A row says who may call it, which dialect it speaks and what answers. What is not in the table is
// a 404, and a path with another method a 405: nothing is reachable by accident.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <span>
#include <vector>

#include "server/api/api_fields.h"
#include "server/api/dialect.h"
#include "server/api/pooled.h"
#include "server/api/prompt.h"
#include "server/http/http.h"
#include "server/server_state.h"

namespace headrace {

std::span<const RouteRow> route_rows();      // of routes.cpp
std::span<const RouteRow> responses_rows();  // of routes_responses.cpp
std::span<const RouteRow> render_rows();     // of routes_render.cpp
std::span<const RouteRow> request_rows();    // of routes_requests.cpp
std::span<const RouteRow> profile_rows();    // of routes_profile.cpp
std::span<const RouteRow> lab_rows();        // of routes_lab.cpp
// All that a server without a model has: these, the page and its files.
std::vector<RouteRow> lab_rows_alone();
// All of them, and further ones.
std::vector<RouteRow> rows_with(std::span<const RouteRow> further);
// The dialect of a row; of a row without one, that of paths that lead nowhere.
const Dialect& dialect_of(const RouteRow* row);

// Finds the row and decides whether this client may ask it (access.h), before the body is read.
// What is refused here (401, 403, 404, 405, 415, 503) reaches no handler; OPTIONS is answered here
// too.
Admission admit(ServerState& state, HttpRequest& request);
// A request that was read as far as all are read, and the model that it asks for.
struct Asked {
  HttpRequest request;  // without its body
  boost::json::object body;
  std::shared_ptr<ResponseWriter> writer;
  ModelPtr model;
};
using UseAsked = std::function<void(ServerState&, Asked&)>;
// Calls `use` when the model that the body names is there: at once, or, where it must be loaded,
// later on a thread of the registry. Answers with the error where there is none. Takes the request.
void with_model(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer,
                UseAsked use);

// The handler of every route that generates: parse reads its body.
void generate(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer,
              const ParseRequest& parse);
template <ParseFunction* parse>
void generate_with(ServerState& state, HttpRequest& request,
                   std::shared_ptr<ResponseWriter> writer) {
  generate(state, request, std::move(writer), parse);
}

// The handler of every route that answers with vectors or scores: parse reads its body.
void pool(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer,
          const ParsePooled& parse);
template <Result<ParsedPooled> (*parse)(const boost::json::object&, const ServingModel&)>
void pool_with(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer) {
  pool(state, request, std::move(writer), parse);
}
std::span<const RouteRow> vector_rows();

// What handlers share: the body as an object; who asks (takes the request's memory); an error in
// the dialect of the request's route.
Result<boost::json::object> body_object(const HttpRequest& request);
Caller caller_of(const ServerState& state, HttpRequest& request,
                 const std::shared_ptr<ResponseWriter>& writer);
void refuse(const HttpRequest& request, ResponseWriter& writer, const Error& error);
// "WHAT needs N MiB": the server lends no more at the moment.
Error no_memory_for(std::string_view what, size_t bytes);
HttpResponse with_ignored(HttpResponse response, const IgnoredFields& ignored);

// Parses the body and reads its prompts.
Result<ParsedRequest> read_request(ServerState& state, Asked& asked, const ParseRequest& parse);
// Answers with how many tokens the first prompt has, as an object of that kind ("": of none).
void answer_count(ServerState& state, Asked& asked, const ParseRequest& parse,
                  std::string_view object);

// Whose kept responses this client sees.
struct ResponsesCaller;
ResponsesCaller responses_caller(const ServerState& state, const HttpRequest& request);

// Runs the handler of a request that was admitted.
void dispatch(ServerState& state, HttpRequest&& request, std::shared_ptr<ResponseWriter> writer);

}  // namespace headrace
