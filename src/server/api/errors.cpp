#include "server/api/errors.h"

#include "server/api/json.h"

namespace headrace {
namespace {

struct StatusRow {
  int status;
  std::string_view type;  // as the OpenAI clients know it
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

std::string error_body(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  JsonWriter json;
  json.open_object().key("error").open_object();
  json.text("message", message).text("type", type_of(status));
  json.key("param");
  param.empty() ? json.null() : json.text(param);
  json.key("code");
  code.empty() ? json.integer(status) : json.text(code);
  json.close_object().close_object();
  return json.take();
}

HttpResponse error_response(int status, std::string_view message, std::string_view param,
                            std::string_view code) {
  return HttpResponse{status, error_body(status, message, param, code)};
}

int status_of(ErrorCode code) {
  constexpr std::pair<ErrorCode, int> kStatus[] = {
      {ErrorCode::kInvalidArgument, 400}, {ErrorCode::kUnprocessable, 422},
      {ErrorCode::kNotFound, 404},        {ErrorCode::kUnsupported, 400},
      {ErrorCode::kCorrupt, 400},         {ErrorCode::kExhausted, 429},
      {ErrorCode::kUnavailable, 503},     {ErrorCode::kPermission, 403},
  };
  for (const auto& [row, status] : kStatus) {
    if (row == code) return status;
  }
  return 500;
}

HttpResponse error_response(const Error& error) {
  const int status = status_of(error.code);
  HttpResponse response = error_response(status, error.to_string(), error.param);
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace headrace
