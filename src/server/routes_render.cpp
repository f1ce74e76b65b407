// /render: the prompt of a request as the model sees it, without an answer: what template, tools
// and tokenizer make of a body.

#include "server/api/openai/openai.h"
#include "server/api/responses/responses.h"
#include "server/routes.h"

namespace headrace {
namespace {

using Writer = std::shared_ptr<ResponseWriter>;

// A body says by its fields whose it is.
Result<ParsedRequest> parse_any(const boost::json::object& body, const ServingModel& model,
                                const ResponsesCaller& caller) {
  if (body.contains("messages")) return parse_chat(body, model);
  if (body.contains("input")) return parse_response(body, model, caller);
  return parse_completion(body, model);
}

Error no_memory_for(size_t bytes) {
  return Error{
      ErrorCode::kExhausted,
      fmt::format("the answer needs {} MiB, and other requests hold what this server lends",
                  (bytes >> 20) + 1),
      "send less at once, or try again later",
      {}};
}

Result<HttpResponse> render(const ServingModel& model, GenerationRequest request) {
  size_t num_tokens = 0;
  for (const Prompt& prompt : request.prompts) num_tokens += prompt.ids.size();
  const size_t needed = num_tokens * 48;  // an id and a token's text, as they are written
  if (!request.memory.grow(needed)) return no_memory_for(needed);
  JsonWriter json;
  json.open_object().text("object", "prompts").text("model", model.info.name);
  json.integer("max_model_len", model.max_context).key("prompts").open_array();
  for (const Prompt& prompt : request.prompts) {
    const std::string text = TRY(model.text.tokenizer->decode(prompt.ids, false));
    json.open_object().text("text", text);
    json.integer("count", static_cast<int64_t>(prompt.ids.size())).key("tokens").open_array();
    for (const int32_t id : prompt.ids) json.integer(id);
    json.close_array().close_object();
  }
  json.close_array().close_object();
  HttpResponse response{200, json.take()};
  response.headers = std::move(request.headers);
  response.memory = std::move(request.memory);
  return response;
}

void render_asked(ServerState& state, Asked& asked) {
  const ResponsesCaller caller = responses_caller(state, asked.request);
  auto parsed = read_request(state, asked,
                             [&caller](const boost::json::object& body, const ServingModel& model) {
                               return parse_any(body, model, caller);
                             });
  if (!parsed.ok()) return refuse(asked.request, *asked.writer, parsed.error());
  auto response = render(asked.model->serving, std::move(parsed->request));
  if (!response.ok()) return refuse(asked.request, *asked.writer, response.error());
  respond(state, *asked.writer, std::move(response).value());
}

void handle_render(ServerState& state, HttpRequest& request, Writer writer) {
  with_model(state, request, std::move(writer), render_asked);
}

// clang-format off
const RouteRow kRows[] = {
    {"POST", "/render", Scope::kInference, &kOpenAi, handle_render, "The prompt of a request (messages, prompt or input) as text and token ids."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> render_rows() { return kRows; }

}  // namespace headrace
