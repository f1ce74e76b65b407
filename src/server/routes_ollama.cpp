// The routes of Ollama's dialect.

#include <algorithm>
#include <mutex>

#include "checkpoint/hub/installed.h"
#include "server/api/asked_model.h"
#include "server/api/json.h"
#include "server/api/ollama/keep_alive.h"
#include "server/api/ollama/ollama.h"
#include "server/api/wall_clock.h"
#include "server/dialect_routes.h"
#include "server/routes.h"

namespace headrace {
namespace {

// Clients ask what they may use; this is the version of Ollama whose API these routes follow.
constexpr std::string_view kApiVersion = "0.12.6";
constexpr size_t kMaxQueuedLines = 64 * 1024;  // bytes: above it a pull's progress is left out
constexpr size_t kMaxLoadBytes = 4096;         // of a body that asks for nothing but the model
// Of models that stay loaded clients are told a time far off.
constexpr int64_t kForeverS = int64_t{100} * 365 * 24 * 3600;

void handle_ollama_version(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().text("version", kApiVersion).close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// Clients of this dialect know no name without a tag.
void open_named(JsonWriter& json, const std::string& name) {
  const std::string tagged = name.find(':') == std::string::npos ? name + ":latest" : name;
  json.open_object().text("name", tagged).text("model", tagged);
}

void open_model(JsonWriter& json, const ServedModel& model, const std::string& name) {
  open_named(json, name);
  json.integer("size", model.info.weight_bytes).text("digest", ollama_digest(model.info));
  write_ollama_details(json, model.info);
}

// Of one that is not loaded its name and size are known.
void write_asleep(JsonWriter& json, const ModelStatus& model, const std::string& name) {
  open_named(json, name);
  json.integer("size", static_cast<int64_t>(model.num_bytes)).text("digest", "");
  json.key("details").open_object().text("format", "").text("family", "");
  json.key("families").open_array().close_array();
  json.text("parameter_size", "").text("quantization_level", "").close_object();
}

void handle_tags(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  const std::string created = rfc3339(state.created * 1'000'000);
  JsonWriter json;
  json.open_object().key("models").open_array();
  for (const ModelStatus& model : state.models.status()) {
    for (const std::string& name : model.names) {
      model.model == nullptr ? write_asleep(json, model, name)
                             : open_model(json, *model.model, name);
      json.text("modified_at", created).close_object();
    }
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// When a model sleeps.
std::string expiry(const ServerState& state, std::optional<std::chrono::milliseconds> sleeps_in) {
  if (!sleeps_in) return rfc3339((state.created + kForeverS) * 1'000'000);
  return rfc3339(wall_clock_us() + std::chrono::microseconds(*sleeps_in).count());
}

void handle_ps(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().key("models").open_array();
  for (const ModelStatus& status : state.models.status()) {
    if (status.model == nullptr) continue;
    const std::string expires = expiry(state, status.sleeps_in);
    for (const std::string& name : status.names) {
      open_model(json, *status.model, name);
      json.text("expires_at", expires).integer("size_vram", 0);
      json.integer("context_length", status.model->serving.max_context).close_object();
    }
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// "model", or "name" as older clients say it.
Result<std::string> needed_name(const boost::json::object& body) {
  const Fields fields(body);
  auto name = TRY(fields.text("model"));
  if (!name || name->empty()) name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field("model", "missing", "the name of a model");
  return std::string(*name);
}

Result<HttpResponse> show(ServerState& state, const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  IgnoredFields ignored;
  TRY(check_fields(body, kInOllamaModel, "", ignored));
  const ModelPtr model = TRY(state.models.find(TRY(needed_name(body))));
  return with_ignored(HttpResponse{200, ollama_show(model->serving, state.created)}, ignored);
}

void handle_show(ServerState& state, HttpRequest& request, Writer writer) {
  auto response = show(state, request);
  if (!response.ok()) return refuse(request, *writer, response.error());
  respond(state, *writer, std::move(response).value());
}

// How long the model stays when nobody uses it; those that were there at the start always stay.
// True: it goes as soon as nobody uses it.
bool keep_alive(ServerState& state, std::optional<std::chrono::milliseconds> time,
                const ServingModel& model) {
  if (!time) return false;
  const Status status = state.models.keep_alive(model.info.name, *time);
  return status.ok() && time->count() == 0;
}

// Parses, and keeps the model as long as the body says if it is one to be answered.
template <auto parse>
auto kept(ServerState& state) {
  return [&state](const boost::json::object& body, const ServingModel& model) {
    using Parsed = decltype(parse(body, model));
    const auto time = asked_keep_alive(body);
    if (!time.ok()) return Parsed(time.error());
    Parsed parsed = parse(body, model);
    if (parsed.ok()) keep_alive(state, *time, model);
    return parsed;
  };
}

// That the model is there, or goes.
void respond_held(ServerState& state, ResponseWriter& writer, const std::string& name, bool is_chat,
                  bool unloads) {
  HttpResponse response{200, ollama_loaded(name, is_chat, unloads)};
  response.content_type = kOllama.framing.content_type;
  response.body += '\n';
  respond(state, writer, std::move(response));
}

void answer_load(ServerState& state, Asked& asked, bool is_chat) {
  const auto name = asked_model(asked.body, asked.model->serving);
  if (!name.ok()) return refuse(asked.request, *asked.writer, name.error());
  const auto time = asked_keep_alive(asked.body);
  if (!time.ok()) return refuse(asked.request, *asked.writer, time.error());
  const bool unloads = keep_alive(state, *time, asked.model->serving);
  respond_held(state, *asked.writer, *name, is_chat, unloads);
}

// The name of the model that a body asks to let go of; nothing where it asks for something else.
std::optional<std::string> model_to_let_go(const boost::json::object& body) {
  const auto name = Fields(body).text("model");
  const auto time = asked_keep_alive(body);
  if (!name.ok() || name->value_or("").empty()) return std::nullopt;
  if (!time.ok() || !*time || (*time)->count() != 0) return std::nullopt;
  return std::string(**name);
}

// At once, whether it sleeps or not: what is asked to go is not loaded for that.
void answer_unload(ServerState& state, const HttpRequest& request, ResponseWriter& writer,
                   const std::string& name, bool is_chat) {
  const Status status = state.models.sleep(name);
  const bool stays = !status.ok() && status.error().code == ErrorCode::kInvalidArgument;
  if (!status.ok() && !stays) return refuse(request, writer, status.error());
  respond_held(state, writer, name, is_chat, !stays);
}

// An empty request asks whether the model is there; all others are answered by it.
template <ParseFunction* parse>
void answer_or_load(ServerState& state, HttpRequest& request, Writer writer) {
  const bool is_short = request.body.size() <= kMaxLoadBytes;
  const auto body = is_short ? body_object(request) : boost::json::object();
  if (!body.ok() || !is_short || !is_load_request(*body)) {
    return generate(state, request, std::move(writer), kept<parse>(state));
  }
  constexpr bool kIsChat = parse == parse_ollama_chat;
  if (const auto name = model_to_let_go(*body)) {
    return answer_unload(state, request, *writer, *name, kIsChat);
  }
  with_model(state, request, std::move(writer),
             [](ServerState& server, Asked& asked) { answer_load(server, asked, kIsChat); });
}

template <auto parse>
void handle_vectors(ServerState& state, HttpRequest& request, Writer writer) {
  pool(state, request, std::move(writer), kept<parse>(state));
}

// Lines of a pull, as its clients read them.
std::string pull_line(const PullState& state, const std::string& spec) {
  JsonWriter json;
  json.open_object();
  if (state.kind == PullState::Kind::kFailed) {
    json.text("error", state.error.to_string());
  } else if (state.kind == PullState::Kind::kDone) {
    json.text("status", "success");
  } else if (state.total_bytes == 0) {
    json.text("status", "pulling manifest");
  } else {
    json.text("status", "pulling " + spec).text("digest", spec);
    json.integer("total", static_cast<int64_t>(state.total_bytes));
    json.integer("completed", static_cast<int64_t>(state.done_bytes));
  }
  json.close_object();
  return kOllama.framing.frame(json.str());
}

// A slow reader misses lines, not the end.
ModelPulls::Watcher streaming_watcher(const Writer& writer, const std::string& spec) {
  return [writer, spec](const PullState& state) {
    const bool ends = state.kind != PullState::Kind::kRunning;
    if (writer->disconnected()) return false;
    if (ends || writer->queued_bytes() < kMaxQueuedLines) writer->write(pull_line(state, spec));
    if (ends) writer->end_stream();
    return !ends;
  };
}

ModelPulls::Watcher whole_watcher(const Writer& writer, const std::string& request_id) {
  return [writer, request_id](const PullState& state) {
    if (state.kind == PullState::Kind::kRunning) return !writer->disconnected();
    writer->send(state.kind == PullState::Kind::kDone
                     ? HttpResponse{200, R"({"status":"success"})"}
                     : error_response(kOllama, state.error, request_id));
    return false;
  };
}

struct PullRequest {
  std::string spec;
  bool stream = true;
  IgnoredFields ignored;
};

Result<PullRequest> parse_pull(const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  PullRequest pull;
  TRY(check_fields(body, kInOllamaModel, "", pull.ignored));
  pull.spec = TRY(needed_name(body));
  pull.stream = TRY(Fields(body).boolean("stream")).value_or(true);
  return pull;
}

// The head of a stream goes out once the pull has begun: what is refused has its status.
void handle_pull(ServerState& state, HttpRequest& request, Writer writer) {
  const auto asked = parse_pull(request);
  if (!asked.ok()) return refuse(request, *writer, asked.error());
  const auto begun = std::make_shared<std::once_flag>();
  ModelPulls::Watcher watcher = whole_watcher(writer, request.request_id);
  if (asked->stream) {
    watcher = [writer, begun,
               inner = streaming_watcher(writer, asked->spec)](const PullState& now) {
      std::call_once(*begun, [&] {
        writer->start_stream({std::string(kOllama.framing.content_type)});
        writer->write(pull_line({}, {}));
      });
      return inner(now);
    };
  }
  const Status status = state.pulls.start(asked->spec, std::move(watcher));
  if (!status.ok()) refuse(request, *writer, status.error());
}

Status remove_named(const ServerState& state, std::string_view name) {
  for (const ModelPtr& model : state.models.all()) {
    const auto& names = model->names;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return bad_field("model", show_value(boost::json::string(name)),
                       "one that this server does not serve at the moment");
    }
  }
  TRY(remove_installed(std::string(name), state.options.store_dir));
  return {};
}

Status remove_asked(ServerState& state, const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  const std::string spec = TRY(needed_name(body));
  const std::string_view untagged = without_latest(spec);
  return remove_named(state, untagged.empty() ? spec : untagged);
}

void handle_delete(ServerState& state, HttpRequest& request, Writer writer) {
  const Status removed = remove_asked(state, request);
  if (!removed.ok()) return refuse(request, *writer, removed.error());
  respond(state, *writer, HttpResponse{200, "{}"});
}

// clang-format off
const RouteRow kOllamaRoutes[] = {
    {"GET", "/api/version", Scope::kPublic, &kOllama, handle_ollama_version, "The version of Ollama's API that is spoken here."},
    {"GET", "/api/tags", Scope::kReading, &kOllama, handle_tags, "The models, as Ollama's clients list them."},
    {"GET", "/api/ps", Scope::kReading, &kOllama, handle_ps, "The models that are loaded."},
    {"POST", "/api/show", Scope::kReading, &kOllama, handle_show, "What is known of a model."},
    {"POST", "/api/chat", Scope::kInference, &kOllama, answer_or_load<parse_ollama_chat>, "Answer a conversation, as Ollama's clients ask."},
    {"POST", "/api/embed", Scope::kInference, &kOllama, handle_vectors<parse_ollama_embed>, "Vectors of texts, as Ollama's clients ask."},
    {"POST", "/api/embeddings", Scope::kInference, &kOllama, handle_vectors<parse_ollama_embeddings>, "The vector of a text, in the older form."},
    {"POST", "/api/pull", Scope::kManaging, &kOllama, handle_pull, "Fetch a model into the store."},
    {"DELETE", "/api/delete", Scope::kManaging, &kOllama, handle_delete, "Take a model out of the store."},
    {"POST", "/api/generate", Scope::kInference, &kOllama, answer_or_load<parse_ollama_generate>, "Answer a prompt, as Ollama's clients ask."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> ollama_rows() { return kOllamaRoutes; }

bool is_ollama_probe(const HttpRequest& request) {
  const std::string_view accepted = request.header("accept");
  return !accepted.empty() && accepted.find("text/html") == std::string_view::npos &&
         accepted.find("*/*") == std::string_view::npos;
}

HttpResponse ollama_greeting() {
  return HttpResponse{200, "Ollama is running", "text/plain; charset=utf-8"};
}

}  // namespace headrace
