#include "server/admin.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "server/adapter_handlers.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/routes.h"

namespace headrace {
namespace {

constexpr size_t kMaxSteps = 512;

HttpResponse count_response(std::string_view name, size_t count) {
  JsonWriter json;
  json.open_object().integer(name, static_cast<int64_t>(count)).close_object();
  return {200, json.take()};
}

Result<std::string> text_field(const HttpRequest& request, std::string_view name) {
  const boost::json::object body = TRY(body_object(request));
  auto text = TRY(Fields(body).text(name));
  if (!text) return bad_field(std::string(name), "missing", "a string");
  return std::string(*text);
}

void handle_requests(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().key("requests").open_array();
  for (const ModelPtr& model : state.models.all()) {
    for (const LiveSession& each : model->sessions.live.list()) {
      json.open_object().text("request_id", each.request_id).text("answer_id", each.answer_id);
      json.text("model", model->info.name);
      json.number("seconds", static_cast<double>(now_us() - each.since) * 1e-6).close_object();
    }
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

void handle_abort(ServerState& state, HttpRequest& request, Writer writer) {
  const auto id = text_field(request, "id");
  if (!id.ok()) return refuse(request, *writer, id.error());
  size_t num_aborted = 0;
  for (const ModelPtr& model : state.models.all()) num_aborted += model->sessions.live.abort(*id);
  if (num_aborted == 0) {
    return refuse(request, *writer,
                  make_error(ErrorCode::kNotFound, "no request in progress has the id '{}'", *id));
  }
  respond(state, *writer, count_response("aborted", num_aborted));
}

void handle_cache_reset(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  for (const ModelPtr& model : state.models.all()) model->engine.reset_cache();
  LOG(kInfo, "the prefix caches are emptied");
  respond(state, *writer, count_response("models", state.models.all().size()));
}

void handle_held_models(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  JsonWriter json;
  json.open_object().key("models").open_array();
  for (const ModelStatus& model : state.models.status()) {
    json.open_object().text("model", model.names.front()).text("state", name_of(model.state));
    json.boolean("stays", model.stays).boolean("failed", model.failed);
    json.number("progress", model.progress);
    json.integer("waiting", static_cast<int64_t>(model.num_waiting)).close_object();
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

void handle_sleep(ServerState& state, HttpRequest& request, Writer writer) {
  const auto name = text_field(request, "model");
  if (!name.ok()) return refuse(request, *writer, name.error());
  const Status status = state.models.sleep(*name);
  if (!status.ok()) return refuse(request, *writer, status.error());
  respond(state, *writer, HttpResponse{204, {}, {}});
}

// Answered when the model is there, or could not be loaded.
void handle_wake(ServerState& state, HttpRequest& request, Writer writer) {
  const auto name = text_field(request, "model");
  if (!name.ok()) return refuse(request, *writer, name.error());
  auto asked = std::make_shared<HttpRequest>(std::move(request));
  const auto answer = [&state, asked, writer](const Result<ModelPtr>& model) {
    if (!model.ok()) return refuse(*asked, *writer, model.error());
    respond(state, *writer, HttpResponse{204, {}, {}});
  };
  state.models.acquire(*name, answer, [writer] { return writer->disconnected(); });
}

void handle_log_level(ServerState& state, HttpRequest& request, Writer writer) {
  const auto text = text_field(request, "level");
  if (!text.ok()) return refuse(request, *writer, text.error());
  LogLevel level = LogLevel::kInfo;
  if (!parse_log_level(*text, &level)) {
    return refuse(
        request, *writer,
        bad_field("level", fmt::format("'{}'", *text), "debug, info, warning, error or off"));
  }
  set_log_level(level);
  respond(state, *writer, HttpResponse{204, {}, {}});
}

void write_spans(JsonWriter& json, const StepRecord& step) {
  json.key("spans").open_array();
  for (const SpanRecord& span : step.spans) {
    json.open_object().integer("request", static_cast<int64_t>(span.request_id));
    json.integer("first_position", span.first_position).integer("tokens", span.num_tokens);
    json.integer("sampled", span.num_sampled).boolean("failed", span.failed).close_object();
  }
  json.close_array();
}

void write_profile(JsonWriter& json, const ServedModel& model, size_t max_steps) {
  json.open_object().text("model", model.info.name).key("steps").open_array();
  for (const StepRecord& step : model.engine.recent_steps(max_steps)) {
    json.open_object().integer("index", static_cast<int64_t>(step.step_idx));
    json.integer("planned_us", step.planned_us).integer("committed_us", step.committed_us);
    json.integer("predicted_us", step.predicted_us);
    json.integer("tokens", step.num_tokens).integer("prompt_tokens", step.num_prompt_tokens);
    json.integer("running", step.num_running).integer("waiting", step.num_waiting);
    json.integer("kv_blocks_used", step.kv_blocks_used);
    write_spans(json, step);
    json.close_object();
  }
  json.close_array().close_object();
}

// ?steps=N: no more than these of each model.
size_t asked_steps(const HttpRequest& request) {
  const std::string_view query = request.query;
  size_t count = kMaxSteps;
  if (query.starts_with("steps=")) {
    std::from_chars(query.data() + 6, query.data() + query.size(), count);
  }
  return std::min(count, kMaxSteps);
}

void handle_profile(ServerState& state, HttpRequest& request, Writer writer) {
  JsonWriter json;
  json.open_object().key("models").open_array();
  for (const ModelPtr& model : state.models.all()) {
    write_profile(json, *model, asked_steps(request));
  }
  json.close_array().close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// clang-format off
const RouteRow kRows[] = {
    {"GET", "/requests", Scope::kAdmin, nullptr, handle_requests, "The answers that are being made."},
    {"POST", "/requests/abort", Scope::kAdmin, nullptr, handle_abort, "End those with this request or answer id: {\"id\": ...}."},
    {"POST", "/cache/reset", Scope::kAdmin, nullptr, handle_cache_reset, "Forget all cached prefixes."},
    {"GET", "/models", Scope::kAdmin, nullptr, handle_held_models, "The models, and which of them are loaded."},
    {"POST", "/sleep", Scope::kAdmin, nullptr, handle_sleep, "Free a model of --on-demand as soon as nobody uses it: {\"model\": ...}."},
    {"POST", "/wake", Scope::kAdmin, nullptr, handle_wake, "Load one, and answer when it is there: {\"model\": ...}."},
    {"POST", "/log_level", Scope::kAdmin, nullptr, handle_log_level, "Print log lines from this level on: {\"level\": ...}."},
    {"POST", "/adapters/load", Scope::kAdmin, nullptr, handle_load_any_adapter, "Load an adapter from any folder, or one that is sent: {\"lora_name\": ..., \"lora_path\": ..., \"load_inplace\": ...}."},
    {"POST", "/adapters/unload", Scope::kAdmin, nullptr, handle_unload_any_adapter, "Take an adapter out of service: {\"lora_name\": ...}."},
    {"GET", "/profile", Scope::kAdmin, nullptr, handle_profile, "The newest steps of each engine; ?steps=N of them."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> admin_rows() { return kRows; }

Admission admit_admin(HttpRequest& request) {
  const auto is_row = [&](const RouteRow& row) {
    return row.path == request.path && row.method == request.method;
  };
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), is_row);
  if (row == std::end(kRows)) {
    return {error_response(
                dialect_of(nullptr),
                Problem{404, fmt::format("there is no {} {} here", valid_utf8(request.method),
                                         valid_utf8(request.path))}),
            {},
            {},
            false};
  }
  request.route = row;
  request.client = 0;
  return {std::nullopt, {}, row->path, false};
}

}  // namespace headrace
