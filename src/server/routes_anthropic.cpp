// The routes of Anthropic's dialect, and the list of models in its form.

#include "server/api/anthropic/anthropic.h"
#include "server/api/wall_clock.h"
#include "server/dialect_routes.h"
#include "server/routes.h"

namespace headrace {
namespace {

void write_model(JsonWriter& json, const ServerState& state, const ServedModel& model,
                 const std::string& name) {
  json.open_object().text("type", "model").text("id", name).text("display_name", name);
  json.text("created_at", rfc3339(state.created * 1'000'000)).text("lifecycle", "active");
  json.integer("max_input_tokens", model.serving.max_context);
  json.integer("max_tokens", model.serving.max_context).close_object();
}

using Parse = Result<ParsedRequest> (*)(const boost::json::object&, const ServingModel&,
                                        std::string_view);

// The body's, told what the headers ask for beyond it.
ParseRequest with_betas(Parse parse, const HttpRequest& request) {
  return [parse, betas = std::string(request.header("anthropic-beta"))](
             const boost::json::object& body, const ServingModel& model) {
    return parse(body, model, betas);
  };
}

void handle_message(ServerState& state, HttpRequest& request, Writer writer) {
  const ParseRequest parse = with_betas(parse_message, request);
  generate(state, request, std::move(writer), parse);
}

void handle_count(ServerState& state, HttpRequest& request, Writer writer) {
  with_model(state, request, std::move(writer), [](ServerState& server, Asked& asked) {
    answer_count(server, asked, with_betas(parse_message_count, asked.request), {});
  });
}

// clang-format off
const RouteRow kAnthropicRoutes[] = {
    {"POST", "/v1/messages", Scope::kInference, &kAnthropic, handle_message, "Answer a conversation, as Anthropic's clients ask."},
    {"POST", "/v1/messages/count_tokens", Scope::kInference, &kAnthropic, handle_count, "How many tokens such a conversation has."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> anthropic_rows() { return kAnthropicRoutes; }

bool is_anthropic(const HttpRequest& request) {
  return !request.header("anthropic-version").empty();
}

HttpResponse anthropic_models(const ServerState& state) {
  std::string first, last;
  JsonWriter json;
  json.open_object().key("data").open_array();
  for (const ModelPtr& model : state.models.all()) {
    for (const std::string& name : model->names) {
      if (first.empty()) first = name;
      last = name;
      write_model(json, state, *model, name);
    }
  }
  json.close_array().boolean("has_more", false);
  json.text("first_id", first).text("last_id", last).close_object();
  return HttpResponse{200, json.take()};
}

HttpResponse anthropic_model(const ServerState& state, const ServedModel& model,
                             const std::string& name) {
  JsonWriter json;
  write_model(json, state, model, name);
  return HttpResponse{200, json.take()};
}

}  // namespace headrace
