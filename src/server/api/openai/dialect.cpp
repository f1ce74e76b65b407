// The error body of the OpenAI dialect: {"error":{"message","type","param","code"}}.

#include "server/api/openai/openai.h"

namespace headrace {
namespace {

struct StatusRow {
  int status;
  std::string_view type;  // as the clients know it
};

constexpr StatusRow kTypes[] = {
    {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
    {429, "rate_limit_error"},     {500, "server_error"},     {503, "service_unavailable_error"},
};

std::string_view type_of(int status) {
  for (const StatusRow& row : kTypes) {
    if (row.status == status) return row.type;
  }
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::string openai_error_body(const Problem& problem) {
  JsonWriter json;
  json.open_object().key("error").open_object();
  json.text("message", problem.message).text("type", type_of(problem.status));
  json.key("param");
  problem.param.empty() ? json.null() : json.text(problem.param);
  json.key("code");
  problem.code.empty() ? json.integer(problem.status) : json.text(problem.code);
  json.close_object().close_object();
  return json.take();
}

const Dialect kOpenAi{"openai", openai_error_body, kServerSentEvents};

}  // namespace headrace
