#include "server/routes.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <chrono>

#include "server/assets.h"
#include "server/dashboard.h"
#include "server/fields.h"
#include "server/json.h"
#include "server/session.h"

namespace headrace {
namespace {

using Writer = std::shared_ptr<ResponseWriter>;

int64_t wall_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> all_names(const ModelInfo& model, const ServerOptions& options) {
  std::vector<std::string> names{model.name};
  names.insert(names.end(), options.aliases.begin(), options.aliases.end());
  return names;
}

Result<boost::json::object> body_object(const HttpRequest& request) {
  if (request.body.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the body is empty, but it must be a JSON object");
  }
  boost::json::value value = TRY(parse_body(request.body));
  if (!value.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "the body is {}, but it must be a JSON object",
                      type_name(value));
  }
  return std::move(value.get_object());
}

// Parses with `parse`, renders with `render`: the shape of every endpoint that generates.
template <typename Parse, typename Render>
void generate(ServerState& state, const HttpRequest& request, const Writer& writer, Parse parse,
              Render render) {
  auto body = body_object(request);
  if (!body.ok()) return respond(state, *writer, error_response(body.error()));
  auto parsed = parse(*body, state.serving);
  if (!parsed.ok()) return respond(state, *writer, error_response(parsed.error()));
  parsed->request_id = request.request_id;
  auto renderer = render(state.serving, *parsed);
  const SessionLimits limits{.max_queued_bytes = state.options.max_stream_queue_bytes};
  Session::start({state.engine, state.serving, state.counters, limits}, std::move(parsed).value(),
                 std::move(renderer), writer);
}

void handle_chat(ServerState& state, const HttpRequest& request, Writer writer) {
  generate(state, request, writer, parse_chat, make_chat_renderer);
}

void handle_completion(ServerState& state, const HttpRequest& request, Writer writer) {
  generate(state, request, writer, parse_completion, make_completion_renderer);
}

void write_model(JsonWriter& json, const ServerState& state, const std::string& name) {
  json.open_object().text("id", name).text("object", "model").integer("created", state.created);
  json.text("owned_by", "headrace").text("root", state.model.name).key("parent").null();
  json.integer("max_model_len", state.serving.max_context).close_object();
}

void handle_models(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().text("object", "list").key("data").open_array();
  for (const std::string& name : state.names) write_model(json, state, name);
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

void handle_model(ServerState& state, const HttpRequest& request, Writer writer) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  const auto found = std::find(state.names.begin(), state.names.end(), name);
  if (found == state.names.end()) {
    boost::json::object asked{{"model", name}};
    const Status status = check_model_name(asked, state.serving);
    return respond(state, *writer,
                   status.ok()
                       ? error_response(404, "a model's name is needed in the path", "model")
                       : error_response(status.error()));
  }
  JsonWriter json;
  write_model(json, state, name);
  respond(state, *writer, HttpResponse{200, json.take()});
}

Result<std::vector<int32_t>> ids_to_tokenize(const boost::json::object& body,
                                             const ServingModel& model) {
  TRY(check_model_name(body, model));
  const Fields fields(body);
  if (fields.find("messages") != nullptr) return chat_prompt_ids(body, model);
  const auto prompt = TRY(fields.text("prompt"));
  if (!prompt) return bad_field("prompt", "missing", "a string");
  const bool add_special = TRY(fields.boolean("add_special_tokens")).value_or(true);
  return model.text.encode_prompt(*prompt, add_special);
}

Result<HttpResponse> tokenize(const ServerState& state, const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  const std::vector<int32_t> ids = TRY(ids_to_tokenize(body, state.serving));
  const bool with_strings = TRY(Fields(body).boolean("return_token_strs")).value_or(false);
  JsonWriter json;
  json.open_object().integer("count", static_cast<int64_t>(ids.size()));
  json.integer("max_model_len", state.serving.max_context).key("tokens").open_array();
  for (const int32_t id : ids) json.integer(id);
  json.close_array().key("token_strs");
  if (with_strings) {
    json.open_array();
    for (const int32_t id : ids) json.text(state.text.tokenizer->id_to_token(id).value_or(""));
    json.close_array();
  } else {
    json.null();
  }
  json.close_object();
  return HttpResponse{200, json.take()};
}

Result<HttpResponse> detokenize(const ServerState& state, const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  TRY(check_model_name(body, state.serving));
  const boost::json::array* tokens = TRY(Fields(body).array("tokens"));
  if (tokens == nullptr) return bad_field("tokens", "missing", "a list of token ids");
  std::vector<int32_t> ids;
  for (const boost::json::value& value : *tokens) {
    const auto id = whole_number(value);
    if (!id || *id < 0 || *id >= state.model.vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("tokens holds {}, but token ids are whole numbers from 0 to {}",
                               show_value(value), state.model.vocab_size - 1),
                   {},
                   "tokens"};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  const std::string text = TRY(state.text.tokenizer->decode(ids, false));
  JsonWriter json;
  json.open_object().text("prompt", text).close_object();
  return HttpResponse{200, json.take()};
}

void handle_tokenize(ServerState& state, const HttpRequest& request, Writer writer) {
  auto response = tokenize(state, request);
  respond(state, *writer,
          response.ok() ? std::move(response).value() : error_response(response.error()));
}

void handle_detokenize(ServerState& state, const HttpRequest& request, Writer writer) {
  auto response = detokenize(state, request);
  respond(state, *writer,
          response.ok() ? std::move(response).value() : error_response(response.error()));
}

void handle_tokenizer_info(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  const auto optional_text = [&](std::string_view name, const std::string& value) {
    json.key(name);
    value.empty() ? json.null() : json.text(value);
  };
  json.open_object();
  optional_text("bos_token", state.text.bos_token);
  optional_text("eos_token", state.text.eos_token);
  optional_text("pad_token", state.text.pad_token);
  optional_text("chat_template",
                state.text.chat_template == nullptr ? "" : state.text.chat_template->source());
  json.close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// Work, but no step since it began or for a long time: the engine hangs.
bool is_stalled(const ServerState& state) {
  if (state.counters.live_responses == 0) return false;
  const EngineSnapshot engine = state.engine.snapshot();
  if (engine.num_running + engine.num_waiting == 0) return false;
  const TimeUs progress = std::max(engine.last_step_us, state.counters.busy_since.load());
  return now_us() - progress > state.options.stall_limit.count() * 1000;
}

void handle_health(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  const bool stalled = is_stalled(state);
  JsonWriter json;
  json.open_object().text("status", stalled ? "stalled" : "ok");
  json.text("numerics_id", state.model.numerics_id).close_object();
  respond(state, *writer, HttpResponse{stalled ? 503 : 200, json.take()});
}

void handle_ready(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  const bool ready = !state.draining && !is_stalled(state);
  JsonWriter json;
  json.open_object().boolean("ready", ready).close_object();
  respond(state, *writer, HttpResponse{ready ? 200 : 503, json.take()});
}

void handle_version(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().text("version", server_version()).close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

void handle_metrics(ServerState& state, const HttpRequest& /*request*/, Writer writer) {
  respond(state, *writer,
          HttpResponse{200,
                       metrics_text(state.model.name, state.engine.snapshot(),
                                    state.engine.metrics(), state.counters),
                       "text/plain; version=0.0.4; charset=utf-8"});
}

// clang-format off
constexpr RouteRow kRoutes[] = {
    {"POST", "/v1/chat/completions", Scope::kInference, handle_chat, "Answer a conversation."},
    {"POST", "/v1/completions", Scope::kInference, handle_completion, "Continue a text."},
    {"GET", "/v1/models", Scope::kReading, handle_models, "The models served here."},
    {"GET", "/v1/models/*", Scope::kReading, handle_model, "One of them."},
    {"POST", "/tokenize", Scope::kInference, handle_tokenize, "Text or messages to token ids."},
    {"POST", "/detokenize", Scope::kInference, handle_detokenize, "Token ids to text."},
    {"GET", "/tokenizer_info", Scope::kReading, handle_tokenizer_info, "Special tokens and chat template."},
    {"GET", "/health", Scope::kPublic, handle_health, "200 while the engine makes progress, else 503."},
    {"GET", "/ready", Scope::kPublic, handle_ready, "200 while new requests are taken, else 503."},
    {"GET", "/version", Scope::kPublic, handle_version, "The server's version."},
    {"GET", "/metrics", Scope::kReading, handle_metrics, "Counters and histograms for Prometheus."},
    {"GET", "/api/headrace/status", Scope::kReading, handle_status, "What the page shows."},
    {"GET", "/", Scope::kPublic, handle_asset, "The page."},
    {"GET", "/assets/*", Scope::kPublic, handle_asset, "The page's files."},
    {"GET", "/licenses.txt", Scope::kPublic, handle_asset, "Licences of the libraries in the page."},
};
// clang-format on

bool path_matches(const RouteRow& row, std::string_view path) {
  if (!row.path.ends_with('*')) return row.path == path;
  const std::string_view prefix = row.path.substr(0, row.path.size() - 1);
  return path.starts_with(prefix) && path.size() > prefix.size();
}

// The same time whatever the difference is.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const unsigned char other = b.empty() ? 0 : static_cast<unsigned char>(b[i % b.size()]);
    difference |= static_cast<unsigned char>(a[i]) ^ other;
  }
  return difference == 0;
}

bool is_allowed(const ServerState& state, const HttpRequest& request, Scope scope) {
  if (scope == Scope::kPublic || state.options.api_key.empty()) return true;
  std::string_view key = request.header("authorization");
  if (key.starts_with("Bearer ")) {
    key.remove_prefix(7);
  } else {
    key = request.header("x-api-key");
  }
  return equal_secrets(state.options.api_key, key);
}

// No row for this method: what the path does offer, if anything.
HttpResponse no_route(const HttpRequest& request) {
  std::string allowed;
  for (const RouteRow& row : kRoutes) {
    if (!path_matches(row, request.path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += row.method;
    if (row.method == "GET") allowed += ", HEAD";
  }
  if (allowed.empty()) {
    return error_response(404, fmt::format("there is no {} here", valid_utf8(request.path)));
  }
  if (request.method == "OPTIONS") return HttpResponse{204, {}, {}, {{"Allow", allowed}}};
  HttpResponse response = error_response(
      405, fmt::format("{} does not take {}, only {}", request.path, request.method, allowed));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace

ServerState::ServerState(Engine& serving_engine, const TextBundle& bundle, ModelInfo info,
                         ServerOptions given)
    : engine(serving_engine),
      text(bundle),
      model(std::move(info)),
      options(std::move(given)),
      names(all_names(model, options)),
      serving{text, model, names, engine.max_context()},
      created(wall_clock_seconds()) {}

std::span<const RouteRow> route_rows() { return kRoutes; }

std::string_view server_version() { return HEADRACE_VERSION; }

void respond(ServerState& state, ResponseWriter& writer, HttpResponse response) {
  if (response.status >= 400) state.counters.http_errors.add();
  writer.send(std::move(response));
}

void dispatch(ServerState& state, HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
  state.counters.http_requests.add();
  const bool is_head = request.method == "HEAD";
  const std::string_view method = is_head ? std::string_view("GET") : request.method;
  const auto row = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const RouteRow& each) {
    return each.method == method && path_matches(each, request.path);
  });
  if (row == std::end(kRoutes)) return respond(state, *writer, no_route(request));
  if (!is_allowed(state, request, row->scope)) {
    HttpResponse response = error_response(401, "a valid API key is needed", {}, "invalid_api_key");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return respond(state, *writer, std::move(response));
  }
  if (row->scope == Scope::kInference && state.draining) {
    return respond(
        state, *writer,
        error_response(make_error(ErrorCode::kUnavailable,
                                  "the server is shutting down and takes no new requests")));
  }
  row->handler(state, request, std::move(writer));
}

}  // namespace headrace
