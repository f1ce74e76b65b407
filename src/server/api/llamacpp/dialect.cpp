// The error body of llama.cpp's dialect: {"error":{"code","message","type"}}.

#include "server/api/llamacpp/llamacpp.h"

namespace headrace {
namespace {

struct StatusRow {
  int status;
  std::string_view type;
};

constexpr StatusRow kTypes[] = {
    {401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"},
    {429, "rate_limit_error"},     {503, "unavailable_error"},
};

std::string_view type_of(int status) {
  for (const StatusRow& row : kTypes) {
    if (row.status == status) return row.type;
  }
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string error_body(const Problem& problem) {
  JsonWriter json;
  json.open_object().key("error").open_object().integer("code", problem.status);
  json.text("message", named_message(problem)).text("type", type_of(problem.status));
  json.close_object().close_object();
  return json.take();
}

}  // namespace

const Dialect kLlamaCpp{"llama.cpp", error_body, kServerSentEvents};

}  // namespace headrace
