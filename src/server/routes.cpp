#include "server/routes.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "server/adapter_handlers.h"
#include "server/api/api_fields.h"
#include "server/api/asked_model.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/session.h"
#include "server/api/structure.h"
#include "server/api/tool_use.h"
#include "server/assets.h"
#include "server/dashboard.h"
#include "server/dialect_routes.h"
#include "server/exposition.h"
#include "text/stream_decoder.h"

namespace headrace {

HttpResponse with_ignored(HttpResponse response, const IgnoredFields& ignored) {
  name_ignored(ignored, response.headers);
  return response;
}

Error no_memory_for(std::string_view what, size_t bytes) {
  return Error{ErrorCode::kExhausted,
               fmt::format("{} needs {} MiB, and other requests hold what this server lends", what,
                           (bytes >> 20) + 1),
               "send less at once, or try again later",
               {}};
}

Result<ParsedRequest> read_request(ServerState& state, Asked& asked, const ParseRequest& parse) {
  const ServingModel& model = asked.model->serving;
  ParsedRequest parsed = TRY(parse(asked.body, model));
  parsed.request.prototype.adapter = TRY(asked_adapter(asked.body, model));
  TRY(fit_answer_form(model, parsed.prompts, parsed.request));
  TRY(apply_structure(model, parsed.request));
  TRY(read_prompts(std::move(parsed.prompts), model, caller_of(state, asked.request, asked.writer),
                   parsed.request));
  gate_reasoning(model, parsed.request);
  return parsed;
}

void answer_count(ServerState& state, Asked& asked, const ParseRequest& parse,
                  std::string_view object) {
  const auto parsed = read_request(state, asked, parse);
  if (!parsed.ok()) return refuse(asked.request, *asked.writer, parsed.error());
  const GenerationRequest& counted = parsed->request;
  JsonWriter json;
  json.open_object();
  if (!object.empty()) json.text("object", object);
  json.integer("input_tokens", static_cast<int64_t>(counted.prompts.front().ids.size()));
  json.close_object();
  HttpResponse response{200, json.take()};
  response.headers = counted.headers;
  respond(state, *asked.writer, std::move(response));
}

namespace {

// name: one of the model's.
void write_model(JsonWriter& json, const ServerState& state, const ModelStatus& model,
                 const std::string& name) {
  json.open_object().text("id", name).text("object", "model").integer("created", state.created);
  json.text("owned_by", "headrace").text("root", model.names.front()).key("parent").null();
  json.key("max_model_len");
  model.model == nullptr ? json.null() : json.integer(model.model->serving.max_context);
  if (!model.stays) {
    json.key("status").open_object().text("value", name_of(model.state));
    if (model.state == ModelState::kLoading) json.number("progress", model.progress);
    json.close_object();
  }
  json.close_object();
}

void write_adapter(JsonWriter& json, const ServedModel& model,
                   const AdapterRegistry::Entry& adapter) {
  json.open_object().text("id", adapter.name).text("object", "model");
  json.integer("created", adapter.loaded_s).text("owned_by", "headrace");
  json.text("root", adapter.source).text("parent", model.info.name);
  json.integer("max_model_len", model.serving.max_context).close_object();
}

// One that comes back when its model wakes.
void write_sleeping_adapter(JsonWriter& json, const ServerState& state, const ModelStatus& model,
                            const std::string& name) {
  json.open_object().text("id", name).text("object", "model").integer("created", state.created);
  json.text("owned_by", "headrace").text("parent", model.names.front());
  json.key("status").open_object().text("value", name_of(model.state)).close_object();
  json.close_object();
}

// Sends what /v1/models says of the adapter of that name, if there is one.
bool answered_adapter(ServerState& state, const std::string& name, ResponseWriter& writer) {
  for (const ModelStatus& model : state.models.status()) {
    JsonWriter json;
    if (std::find(model.adapters.begin(), model.adapters.end(), name) != model.adapters.end()) {
      write_sleeping_adapter(json, state, model, name);
      respond(state, writer, HttpResponse{200, json.take()});
      return true;
    }
    if (model.model == nullptr) continue;
    for (const AdapterRegistry::Entry& adapter : model.model->adapters.all()) {
      if (adapter.name != name) continue;
      write_adapter(json, *model.model, adapter);
      respond(state, writer, HttpResponse{200, json.take()});
      return true;
    }
  }
  return false;
}

// Of a name that is no model's and no adapter's that is there.
Error why_not_there(ServerState& state, const std::string& name) {
  for (const ModelPtr& model : state.models.all()) {
    if (model->adapters.is_lost(name)) return lost_adapter(name, model->serving);
  }
  return state.models.not_found(name);
}

void handle_models(ServerState& state, HttpRequest& request, Writer writer) {
  if (is_anthropic(request)) return respond(state, *writer, anthropic_models(state));
  JsonWriter json;
  json.open_object().text("object", "list").key("data").open_array();
  for (const ModelStatus& model : state.models.status()) {
    for (const std::string& name : model.names) write_model(json, state, model, name);
    for (const std::string& name : model.adapters) write_sleeping_adapter(json, state, model, name);
    if (model.model == nullptr) continue;
    for (const auto& each : model.model->adapters.all()) write_adapter(json, *model.model, each);
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

void handle_model(ServerState& state, HttpRequest& request, Writer writer) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  const std::vector<ModelStatus> all = state.models.status();
  const auto find = [&all](std::string_view wanted) {
    return std::find_if(all.begin(), all.end(), [&](const ModelStatus& model) {
      return std::find(model.names.begin(), model.names.end(), wanted) != model.names.end();
    });
  };
  auto found = find(name);
  if (found == all.end()) found = find(without_latest(name));
  if (found == all.end() && answered_adapter(state, name, *writer)) return;
  if (found == all.end()) return refuse(request, *writer, why_not_there(state, name));
  if (is_anthropic(request) && found->model != nullptr) {
    return respond(state, *writer, anthropic_model(state, *found->model, name));
  }
  JsonWriter json;
  write_model(json, state, *found, name);
  respond(state, *writer, HttpResponse{200, json.take()});
}

// Not bounded by the context, but by the caller's memory and patience.
Result<std::vector<int32_t>> ids_to_tokenize(const boost::json::object& body,
                                             const ServingModel& model, Caller& caller,
                                             IgnoredFields& ignored) {
  TRY(asked_model(body, model));
  TRY(check_fields(body, kInTokenize, "", ignored));
  const Fields fields(body);
  const EncodeLimits limits{.stopped = caller.left};
  const auto add_special = TRY(fields.boolean("add_special_tokens"));
  const auto prompt = TRY(fields.text("prompt"));
  if (fields.find("messages") != nullptr) {
    if (add_special.value_or(false)) {
      return bad_field("add_special_tokens", "true",
                       "false for messages: the template places them");
    }
    AnswerForm form;
    ChatPrompt conversation = TRY(parse_conversation(body, model, form, ignored));
    add_template_variables(model, form, conversation);
    return encode_conversation(std::move(conversation), model, limits);
  }
  if (!prompt) return bad_field("prompt", "missing", "a string");
  TRY(check_conversation_fields(body));
  const size_t most_bytes = prompt->size() * sizeof(int32_t);
  if (!caller.memory.grow(most_bytes)) return no_memory_for("this text", most_bytes);
  auto ids = model.text.encode_prompt(*prompt, add_special.value_or(true), limits);
  if (ids.ok() || !ids.error().param.empty()) return ids;
  Error error = ids.error();
  error.param = "prompt";
  return error;
}

Result<HttpResponse> tokenize(const boost::json::object& body, const ModelPtr& model,
                              Caller& caller) {
  IgnoredFields ignored;
  const std::vector<int32_t> ids = TRY(ids_to_tokenize(body, model->serving, caller, ignored));
  const bool with_strings = TRY(Fields(body).boolean("return_token_strs")).value_or(false);
  // An id has up to 8 characters, a token on average no more than 24.
  const size_t needed = ids.size() * (sizeof(int32_t) + 8 + (with_strings ? 24 : 0));
  if (!caller.memory.resize(std::max(needed, caller.memory.bytes()))) {
    return no_memory_for("the answer", needed);
  }
  JsonWriter json;
  json.open_object().integer("count", static_cast<int64_t>(ids.size()));
  json.integer("max_model_len", model->serving.max_context).key("tokens").open_array();
  for (const int32_t id : ids) json.integer(id);
  json.close_array().key("token_strs");
  if (with_strings) {
    json.open_array();
    for (const int32_t id : ids) json.text(model->text.tokenizer->id_to_token(id).value_or(""));
    json.close_array();
  } else {
    json.null();
  }
  json.close_object();
  return with_ignored(HttpResponse{200, json.take()}, ignored);
}

// In slices: a few bytes of ids can mean much text.
Result<std::string> join_tokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                Caller& caller) {
  constexpr size_t kSlice = 4096;
  StreamDecoder decoder(tokenizer, {}, false);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    text += decoder.push(ids[i]).text;
    if (i % kSlice != kSlice - 1) continue;
    if (caller.left()) return make_error(ErrorCode::kUnavailable, "the client left");
    const size_t needed = 4 * text.size();  // the text as it grows, and as JSON
    if (needed > caller.memory.bytes() && !caller.memory.resize(needed)) {
      return no_memory_for("this text", needed);
    }
  }
  return text + decoder.finish().text;
}

Result<HttpResponse> detokenize(const boost::json::object& body, const ModelPtr& model,
                                Caller& caller) {
  IgnoredFields ignored;
  TRY(check_fields(body, kInDetokenize, "", ignored));
  const boost::json::array* tokens = TRY(Fields(body).array("tokens"));
  if (tokens == nullptr) return bad_field("tokens", "missing", "a list of token ids");
  const std::vector<int32_t> ids =
      TRY(parse_ids(*tokens, "tokens", model->info.vocab_size, INT64_MAX));
  const std::string text = TRY(join_tokens(*model->text.tokenizer, ids, caller));
  JsonWriter json;
  json.open_object().text("prompt", text).close_object();
  return with_ignored(HttpResponse{200, json.take()}, ignored);
}

using Convert = Result<HttpResponse> (*)(const boost::json::object&, const ModelPtr&, Caller&);

template <Convert convert>
void handle_conversion(ServerState& state, HttpRequest& request, Writer writer) {
  with_model(state, request, std::move(writer), [](ServerState& server, Asked& asked) {
    Caller caller = caller_of(server, asked.request, asked.writer);
    auto response = convert(asked.body, asked.model, caller);
    if (!response.ok()) return refuse(asked.request, *asked.writer, response.error());
    response->memory = std::move(caller.memory);
    respond(server, *asked.writer, std::move(response).value());
  });
}

void handle_tokenizer_info(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  const TextBundle& text = state.models.first()->text;
  JsonWriter json;
  const auto optional_text = [&](std::string_view name, const std::string& value) {
    json.key(name);
    value.empty() ? json.null() : json.text(value);
  };
  json.open_object();
  optional_text("bos_token", text.bos_token);
  optional_text("eos_token", text.eos_token);
  optional_text("pad_token", text.pad_token);
  optional_text("chat_template", text.chat_template == nullptr ? "" : text.chat_template->source());
  json.close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

bool is_stalled(const ServerState& state) {
  const auto& models = state.models.all();
  return std::any_of(models.begin(), models.end(), [&](const ModelPtr& model) {
    return model->is_stalled(state.options.stall_limit);
  });
}

void handle_health(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  const bool stalled = is_stalled(state);
  JsonWriter json;
  json.open_object().text("status", stalled ? "stalled" : "ok");
  json.text("numerics_id", state.models.first()->info.numerics_id).close_object();
  respond(state, *writer, HttpResponse{stalled ? 503 : 200, json.take()});
}

void handle_ready(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  const bool ready = !state.draining && !is_stalled(state);
  JsonWriter json;
  json.open_object().boolean("ready", ready).close_object();
  respond(state, *writer, HttpResponse{ready ? 200 : 503, json.take()});
}

void handle_version(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().text("version", server_version());
  json.text("numerics_id", state.models.first()->info.numerics_id).close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// With ?experts=each the tokens of every expert.
void handle_metrics(ServerState& state, HttpRequest& request, Writer writer) {
  std::vector<ModelMetrics> models;
  for (const ModelPtr& model : state.models.all()) models.push_back(metrics_of(*model));
  std::string text = metrics_text(models, state.counters);
  text += expert_metrics_text(models, request.query == "experts=each");
  text += telemetry_metrics_text(state.options.kv_events, state.options.traces);
  respond(state, *writer,
          HttpResponse{200, std::move(text), "text/plain; version=0.0.4; charset=utf-8"});
}

void handle_root(ServerState& state, HttpRequest& request, Writer writer) {
  if (is_ollama_probe(request)) return respond(state, *writer, ollama_greeting());
  handle_asset(state, request, std::move(writer));
}

// clang-format off
const RouteRow kRoutes[] = {
    {"POST", "/v1/chat/completions", Scope::kInference, &kOpenAi, generate_with<parse_chat>, "Answer a conversation."},
    {"POST", "/v1/completions", Scope::kInference, &kOpenAi, generate_with<parse_completion>, "Continue a text."},
    {"GET", "/v1/models", Scope::kReading, &kOpenAi, handle_models, "The models served here."},
    {"GET", "/v1/models/", Scope::kReading, &kOpenAi, handle_models, "The same."},
    {"GET", "/v1/models/*", Scope::kReading, &kOpenAi, handle_model, "One of them."},
    {"POST", "/v1/load_lora_adapter", Scope::kManaging, &kOpenAi, handle_load_adapter, "Load an adapter below --adapter-root, or one that is sent, or replace it."},
    {"POST", "/v1/unload_lora_adapter", Scope::kManaging, &kOpenAi, handle_unload_adapter, "Take an adapter out of service."},
    {"POST", "/tokenize", Scope::kInference, &kOpenAi, handle_conversion<tokenize>, "Text or messages to token ids."},
    {"POST", "/detokenize", Scope::kInference, &kOpenAi, handle_conversion<detokenize>, "Token ids to text."},
    {"GET", "/tokenizer_info", Scope::kReading, &kOpenAi, handle_tokenizer_info, "Special tokens and chat template."},
    {"GET", "/health", Scope::kPublic, &kOpenAi, handle_health, "200 while the engine makes progress, else 503."},
    {"GET", "/ready", Scope::kPublic, &kOpenAi, handle_ready, "200 while new requests are taken, else 503."},
    {"GET", "/version", Scope::kPublic, &kOpenAi, handle_version, "The server's version."},
    {"GET", "/metrics", Scope::kMetrics, &kOpenAi, handle_metrics, "Counters and histograms for Prometheus."},
    {"GET", "/api/headrace/status", Scope::kReading, &kOpenAi, handle_status, "What the page shows."},
    {"GET", "/", Scope::kPublic, &kOpenAi, handle_root, "The page."},
    {"GET", "/assets/*", Scope::kPublic, &kOpenAi, handle_asset, "The page's files."},
    {"GET", "/licenses.txt", Scope::kPublic, &kOpenAi, handle_asset, "Licences of the libraries in the page."},
};
// clang-format on

bool path_matches(const RouteRow& row, std::string_view path) {
  if (!row.path.ends_with('*')) return row.path == path;
  const std::string_view prefix = row.path.substr(0, row.path.size() - 1);
  return path.starts_with(prefix) && path.size() > prefix.size();
}

// The methods that a path does offer; empty: there is no such path.
std::string allowed_methods(const ServerState& state, std::string_view path) {
  std::string allowed;
  for (const RouteRow& row : state.rows) {
    if (!path_matches(row, path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += row.method;
    if (row.method == "GET") allowed += ", HEAD";
  }
  return allowed;
}

HttpResponse preflight(const ServerState& state, const HttpRequest& request,
                       const std::string& allowed) {
  HttpResponse response{204, {}, {}, state.access.preflight_headers(request, allowed)};
  response.headers.emplace_back("Allow", allowed);
  return response;
}

// Where a client meant to go whose base URL lacks "/v1", has it twice or ends with a slash; or
// empty.
std::string meant_path(const ServerState& state, const std::string& path) {
  for (const std::string& guess : {"/v1" + path, path.substr(std::min(path.size(), size_t{3})),
                                   path.substr(1), path.substr(0, path.size() - 1)}) {
    if (guess.size() > 1 && !allowed_methods(state, guess).empty()) return guess;
  }
  return {};
}

// The dialect whose paths are most like this one: its clients can read the error.
const Dialect& dialect_near(const ServerState& state, std::string_view path) {
  const RouteRow* nearest = nullptr;
  ptrdiff_t most = 0;
  for (const RouteRow& row : state.rows) {
    const auto common = std::mismatch(path.begin(), path.end(), row.path.begin(), row.path.end());
    const ptrdiff_t length = common.first - path.begin();
    if (length <= most) continue;
    most = length;
    nearest = &row;
  }
  return dialect_of(nearest);
}

Problem no_path(const ServerState& state, const std::string& path) {
  std::string message = fmt::format("there is no {} here", valid_utf8(path));
  const std::string meant = meant_path(state, path);
  if (!meant.empty()) {
    message += fmt::format(", but {}: look at the client's base URL", valid_utf8(meant));
  }
  return Problem{404, std::move(message)};
}

// No row for this method.
HttpResponse no_route(const ServerState& state, const HttpRequest& request) {
  const std::string allowed = allowed_methods(state, request.path);
  if (!allowed.empty() && request.method == "OPTIONS") return preflight(state, request, allowed);
  Problem problem{405,
                  fmt::format("{} does not take {}, only {}", valid_utf8(request.path),
                              request.method, allowed),
                  {},
                  {},
                  {{"Allow", allowed}}};
  if (allowed.empty()) problem = no_path(state, request.path);
  problem.request_id = request.request_id;
  return error_response(dialect_near(state, request.path), std::move(problem));
}

const RouteRow* find_row(const ServerState& state, const HttpRequest& request) {
  const bool is_head = request.method == "HEAD";
  const std::string_view method = is_head ? std::string_view("GET") : request.method;
  const auto row = std::find_if(state.rows.begin(), state.rows.end(), [&](const RouteRow& each) {
    return each.method == method && path_matches(each, request.path);
  });
  return row == state.rows.end() ? nullptr : &*row;
}

// The scopes of keys that let a request in; none for rows that anyone may ask.
KeyScopes key_scopes(Scope scope) {
  switch (scope) {
    case Scope::kPublic:
      return 0;
    case Scope::kReading:
      return kInferenceScope | kAdminScope;
    case Scope::kInference:
      return kInferenceScope;
    case Scope::kMetrics:
      return kMetricsScope | kAdminScope;
    case Scope::kManaging:
    case Scope::kAdmin:
      return kAdminScope;
  }
  return kAdminScope;
}

bool needs_key(const ServerState& state, Scope scope) {
  if (scope == Scope::kManaging) return state.access.has_keys();
  return scope != Scope::kPublic;
}

// Why a request that has a row may not go on.
std::optional<Problem> problem_with(const ServerState& state, HttpRequest& request) {
  if (needs_key(state, request.route->scope)) {
    if (auto problem = state.access.check_key(request, key_scopes(request.route->scope))) {
      return problem;
    }
  }
  if (request.method == "POST") {
    if (auto problem = state.access.check_content(request)) return problem;
  }
  if (request.route->scope == Scope::kInference && state.draining) {
    return problem_of(make_error(ErrorCode::kUnavailable,
                                 "the server is shutting down and takes no new requests"));
  }
  return std::nullopt;
}

std::optional<HttpResponse> refusal_of(ServerState& state, HttpRequest& request) {
  request.route = find_row(state, request);
  const Dialect& dialect = dialect_of(request.route);
  if (auto problem = state.access.check_source(request)) {
    problem->request_id = request.request_id;
    return error_response(dialect, std::move(*problem));
  }
  if (request.route == nullptr) {
    // Who has no key does not learn which paths there are; a preflight never carries one.
    const bool is_preflight = request.method == "OPTIONS";
    auto problem = is_preflight ? std::nullopt : state.access.check_key(request, kAnyScope);
    return problem ? error_response(dialect, std::move(*problem)) : no_route(state, request);
  }
  if (auto problem = problem_with(state, request)) {
    problem->request_id = request.request_id;
    return error_response(dialect, std::move(*problem));
  }
  return std::nullopt;
}

}  // namespace

std::span<const RouteRow> route_rows() { return kRoutes; }

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

Caller caller_of(const ServerState& state, HttpRequest& request, const Writer& writer) {
  return {request.request_id,       request.client,     state.access.has_keys(),
          request.cache_group,      request.arrived_us, [writer] { return writer->disconnected(); },
          std::move(request.memory)};
}

void refuse(const HttpRequest& request, ResponseWriter& writer, const Error& error) {
  writer.send(error_response(dialect_of(request.route), error, request.request_id));
}

std::vector<RouteRow> rows_with(std::span<const RouteRow> further) {
  std::vector<RouteRow> rows;
  for (const std::span<const RouteRow> each :
       {route_rows(), responses_rows(), render_rows(), request_rows(), profile_rows(),
        vector_rows(), lab_rows(), anthropic_rows(), ollama_rows(), llamacpp_rows(), further}) {
    rows.insert(rows.end(), each.begin(), each.end());
  }
  return rows;
}

const Dialect& dialect_of(const RouteRow* row) {
  return row == nullptr || row->dialect == nullptr ? kOpenAi : *row->dialect;
}

void with_model(ServerState& state, HttpRequest& request, Writer writer, UseAsked use) {
  auto body = body_object(request);
  if (!body.ok()) return refuse(request, *writer, body.error());
  const auto name = Fields(*body).text("model");
  if (!name.ok()) return refuse(request, *writer, name.error());
  const std::string asked_name(name->value_or(""));
  request.body = {};
  // A shared one: what is called may be copied.
  auto asked = std::make_shared<Asked>(
      Asked{std::move(request), std::move(*body), std::move(writer), nullptr});
  const auto has_left = [asked] { return asked->writer->disconnected(); };
  const auto answer = [&state, asked, has_left, use = std::move(use)](Result<ModelPtr> model) {
    if (has_left()) return;
    if (!model.ok()) return refuse(asked->request, *asked->writer, model.error());
    asked->model = std::move(*model);
    use(state, *asked);
  };
  state.models.acquire(asked_name, answer, has_left);
}

void generate(ServerState& state, HttpRequest& request, Writer writer, const ParseRequest& parse) {
  with_model(state, request, std::move(writer), [parse](ServerState& server, Asked& asked) {
    auto parsed = read_request(server, asked, parse);
    if (!parsed.ok()) return refuse(asked.request, *asked.writer, parsed.error());
    const ServedModel& model = *asked.model;
    SessionHost host{model.engine, model.serving, model.sessions, {}, now_us, asked.model};
    host.limits.max_queued_bytes = server.options.max_stream_queue_bytes;
    Session::start(host, std::move(parsed->request), std::move(parsed->renderer), asked.writer);
  });
}

Admission admit(ServerState& state, HttpRequest& request) {
  Admission admission{refusal_of(state, request), state.access.cors_headers(request), {}, {}};
  if (request.route != nullptr) {
    admission.route_path = request.route->path;
    admission.is_public = request.route->scope == Scope::kPublic;
    const std::string_view id_header = request.route->dialect->id_header;
    if (!id_header.empty()) admission.headers.emplace_back(id_header, request.request_id);
  }
  return admission;
}

void dispatch(ServerState& state, HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
  CHECK(request.route != nullptr, "{} {} was never admitted", request.method, request.path);
  request.route->handler(state, request, std::move(writer));
}

}  // namespace headrace
