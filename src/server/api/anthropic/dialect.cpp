// The error body of the Anthropic dialect, and its framing.

#include "server/api/anthropic/anthropic.h"

namespace headrace {
namespace {

struct StatusRow {
  int status;
  std::string_view type;  // as the clients know it
};

constexpr StatusRow kTypes[] = {
    {401, "authentication_error"},
    {403, "permission_error"},
    {404, "not_found_error"},
    {408, "timeout_error"},
    {413, "request_too_large"},
    {429, "rate_limit_error"},
    {500, "api_error"},
    {503, "overloaded_error"},
    {504, "timeout_error"},
};

std::string_view type_of(int status) {
  for (const StatusRow& row : kTypes) {
    if (row.status == status) return row.type;
  }
  return status >= 500 ? "api_error" : "invalid_request_error";
}

std::string error_body(const Problem& problem) {
  JsonWriter json;
  json.open_object().text("type", "error").key("error").open_object();
  json.text("type", type_of(problem.status)).text("message", named_message(problem)).close_object();
  json.key("request_id");
  problem.request_id.empty() ? json.null() : json.text(problem.request_id);
  json.close_object();
  return json.take();
}

// The renderer writes the event's name before each.
constexpr Framing kNamedEvents{"text/event-stream; charset=utf-8", "data: ", "\n\n",
                               "event: ping\ndata: {\"type\":\"ping\"}\n\n"};

}  // namespace

const Dialect kAnthropic{"anthropic", error_body, kNamedEvents, "request-id"};

}  // namespace headrace
