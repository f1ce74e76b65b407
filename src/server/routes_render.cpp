// /render: the prompt of a request as the model sees it, without an answer: what template, tools
// and tokenizer make of a body.

#include "server/api/fields.h"
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

// A token's own bytes; with those of its neighbours they are the prompt's text.
std::string bytes_of(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t token_idx) {
  return token_idx == 0 ? tokenizer.first_token_bytes(ids[0], false)
                        : tokenizer.token_bytes(ids[token_idx], false);
}

// Neighbours that are all special, or none of them: what was written by a template is told from
// text that spells the same.
void write_parts(JsonWriter& json, const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  json.key("parts").open_array();
  for (size_t i = 0; i < ids.size();) {
    const bool special = tokenizer.is_special(ids[i]);
    const size_t first = i;
    std::string text;
    do {
      text += bytes_of(tokenizer, ids, i++);
    } while (!special && i < ids.size() && !tokenizer.is_special(ids[i]));
    json.open_object().text("text", text).boolean("special", special);
    json.integer("count", static_cast<int64_t>(i - first)).close_object();
  }
  json.close_array();
}

Status write_prompt(JsonWriter& json, const Tokenizer& tokenizer, std::span<const int32_t> ids,
                    bool with_strings) {
  json.open_object().text("text", TRY(tokenizer.decode(ids, false)));
  json.integer("count", std::ssize(ids)).key("tokens").open_array();
  for (const int32_t id : ids) json.integer(id);
  json.close_array();
  if (with_strings) {
    json.key("token_strs").open_array();
    for (size_t i = 0; i < ids.size(); ++i) json.text(bytes_of(tokenizer, ids, i));
    json.close_array();
    write_parts(json, tokenizer, ids);
  }
  json.close_object();
  return {};
}

Result<HttpResponse> render(const ServingModel& model, GenerationRequest request,
                            bool with_strings) {
  size_t num_tokens = 0;
  for (const Prompt& prompt : request.prompts) num_tokens += prompt.ids.size();
  // An id and a token's text, as they are written; twice more the text.
  const size_t needed = num_tokens * (with_strings ? 160 : 48);
  if (!request.memory.grow(needed)) return no_memory_for("the answer", needed);
  JsonWriter json;
  json.open_object().text("object", "prompts").text("model", model.info.name);
  json.integer("max_model_len", model.max_context).key("prompts").open_array();
  for (const Prompt& prompt : request.prompts) {
    TRY(write_prompt(json, *model.text.tokenizer, prompt.ids, with_strings));
  }
  json.close_array().close_object();
  HttpResponse response{200, json.take()};
  response.headers = std::move(request.headers);
  response.memory = std::move(request.memory);
  return response;
}

// This route's own field leaves the body, which is read as that of another route.
Result<bool> take_with_strings(boost::json::object& body) {
  const bool wanted = TRY(Fields(body).boolean("return_token_strs")).value_or(false);
  body.erase("return_token_strs");
  return wanted;
}

void render_asked(ServerState& state, Asked& asked) {
  const auto with_strings = take_with_strings(asked.body);
  if (!with_strings.ok()) return refuse(asked.request, *asked.writer, with_strings.error());
  const ResponsesCaller caller = responses_caller(state, asked.request);
  auto parsed = read_request(state, asked,
                             [&caller](const boost::json::object& body, const ServingModel& model) {
                               return parse_any(body, model, caller);
                             });
  if (!parsed.ok()) return refuse(asked.request, *asked.writer, parsed.error());
  auto response = render(asked.model->serving, std::move(parsed->request), *with_strings);
  if (!response.ok()) return refuse(asked.request, *asked.writer, response.error());
  respond(state, *asked.writer, std::move(response).value());
}

void handle_render(ServerState& state, HttpRequest& request, Writer writer) {
  with_model(state, request, std::move(writer), render_asked);
}

// clang-format off
const RouteRow kRenderRows[] = {
    {"POST", "/render", Scope::kInference, &kOpenAi, handle_render, "The prompt of a request (messages, prompt or input) as text and token ids; with return_token_strs also each token's text and where special tokens stand."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> render_rows() { return kRenderRows; }

}  // namespace headrace
