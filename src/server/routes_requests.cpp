// /api/headrace/requests: what runs and what has ended, with timings and what the prefix cache
// found; for the page.

#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/request_log.h"
#include "server/routes.h"

namespace headrace {
namespace {

// Whose requests this one may see: where there are keys its own, and with the scope admin all.
std::optional<uint64_t> visible_client(const ServerState& state, HttpRequest& request) {
  if (!state.access.has_keys()) return std::nullopt;
  const uint64_t own = request.client;
  if (!state.access.check_key(request, kAdminScope)) return std::nullopt;
  return own;
}

void write_live(JsonWriter& json, const ServerState& state, std::optional<uint64_t> client) {
  json.key("running").open_array();
  for (const ModelPtr& model : state.models.all()) {
    for (const LiveSession& each : model->sessions.live.list()) {
      if (client && each.client != *client) continue;
      json.open_object().text("request_id", each.request_id).text("answer_id", each.answer_id);
      json.text("model", model->info.name);
      json.number("seconds", static_cast<double>(now_us() - each.since) * 1e-6).close_object();
    }
  }
  json.close_array();
}

void write_count(JsonWriter& json, std::string_view name, int64_t value) {
  if (value >= 0) json.integer(name, value);
}

void write_ms(JsonWriter& json, std::string_view name, int64_t us) {
  if (us >= 0) json.number(name, static_cast<double>(us) * 1e-3);
}

// From the first token to the last byte, as the connection saw it.
void write_speed(JsonWriter& json, const FinishedRequest& request) {
  const TimeUs decoding = request.total_us - request.note.first_token_us;
  if (request.note.first_token_us < 0 || request.note.output_tokens < 2 || decoding <= 0) return;
  const auto tokens = static_cast<double>(request.note.output_tokens - 1);
  json.number("tokens_per_s", tokens * 1e6 / static_cast<double>(decoding));
}

void write_finished(JsonWriter& json, const FinishedRequest& request) {
  const RequestNote& note = request.note;
  json.open_object().text("request_id", request.request_id).text("route", request.route);
  json.integer("ended_ms", request.ended_ms).integer("status", request.status);
  json.text("ending", name_of(request.ending));
  if (!note.model.empty()) json.text("model", note.model);
  if (!note.answer_id.empty()) json.text("answer_id", note.answer_id);
  if (!note.finish.empty()) json.text("finish", note.finish);
  write_ms(json, "total_ms", request.total_us);
  write_ms(json, "queue_ms", note.queue_us);
  write_ms(json, "first_token_ms", note.first_token_us);
  write_speed(json, request);
  write_count(json, "prompt_tokens", note.prompt_tokens);
  write_count(json, "cached_tokens", note.cached_tokens);
  write_count(json, "output_tokens", note.output_tokens);
  if (!note.cache_miss.empty()) json.text("cache_miss", note.cache_miss);
  json.close_object();
}

void handle_requests_of_page(ServerState& state, HttpRequest& request, Writer writer) {
  const std::optional<uint64_t> client = visible_client(state, request);
  JsonWriter json;
  json.open_object();
  write_live(json, state, client);
  json.key("finished").open_array();
  for (const FinishedRequest& each : state.finished.newest(client)) write_finished(json, each);
  json.close_array().close_object();
  HttpResponse response{200, json.take()};
  response.headers.emplace_back("Cache-Control", "no-store");
  respond(state, *writer, std::move(response));
}

// clang-format off
const RouteRow kRequestRows[] = {
    {"GET", "/api/headrace/requests", Scope::kReading, &kOpenAi, handle_requests_of_page, "The requests that run and the newest that ended, with their timings; with a key, its own."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> request_rows() { return kRequestRows; }

}  // namespace headrace
