// The routes of llama.cpp's dialect.

#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/api/openai/openai.h"
#include "server/dialect_routes.h"
#include "server/routes.h"

namespace headrace {
namespace {

// A slot is a request that runs, and one more that is free: there is no fixed number of them here.
int num_slots(const ServerState& state) {
  return state.models.first()->engine.snapshot().num_running + 1;
}

void handle_props(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  respond(state, *writer,
          HttpResponse{200, llama_props(state.models.first()->serving, num_slots(state), false)});
}

void handle_slots(ServerState& state, HttpRequest& /*request*/, Writer writer) {
  const int count = num_slots(state);
  JsonWriter json;
  json.open_array();
  for (int i = 0; i < count; ++i) {
    json.open_object().integer("id", i);
    json.integer("n_ctx", state.models.first()->serving.max_context);
    json.boolean("speculative", false).boolean("is_processing", i + 1 < count).close_object();
  }
  json.close_array();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// The prompt as the model reads it: of its ids, which are made as those of a chat.
Result<HttpResponse> apply_template(ServerState& state, Asked& asked) {
  const ParsedRequest parsed = TRY(read_request(state, asked, parse_chat));
  const std::vector<int32_t>& ids = parsed.request.prompts.front().ids;
  JsonWriter json;
  json.open_object();
  json.text("prompt", TRY(asked.model->text.tokenizer->decode(ids, false)));
  json.close_object();
  HttpResponse response{200, json.take()};
  response.headers = parsed.request.headers;
  return response;
}

void handle_template(ServerState& state, HttpRequest& request, Writer writer) {
  with_model(state, request, std::move(writer), [](ServerState& server, Asked& asked) {
    auto response = apply_template(server, asked);
    if (!response.ok()) return refuse(asked.request, *asked.writer, response.error());
    respond(server, *asked.writer, std::move(response).value());
  });
}

// clang-format off
const RouteRow kLlamaCppRoutes[] = {
    {"POST", "/completion", Scope::kInference, &kLlamaCpp, generate_with<parse_llama_completion>, "Continue a text, as llama.cpp's clients ask."},
    {"POST", "/completions", Scope::kInference, &kLlamaCpp, generate_with<parse_llama_completion>, "The same."},
    {"POST", "/infill", Scope::kInference, &kLlamaCpp, generate_with<parse_llama_infill>, "Fill in text between two others."},
    {"POST", "/apply-template", Scope::kInference, &kLlamaCpp, handle_template, "The prompt of a conversation, as text."},
    {"GET", "/props", Scope::kReading, &kLlamaCpp, handle_props, "The model's settings, as llama.cpp's clients ask."},
    {"GET", "/slots", Scope::kReading, &kLlamaCpp, handle_slots, "The requests that run, as llama.cpp's clients ask."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> llamacpp_rows() { return kLlamaCppRoutes; }

}  // namespace headrace
