#include "server/api/dialect.h"

namespace headrace {

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

Problem problem_of(const Error& error) {
  Problem problem{status_of(error.code), error.to_string(), error.param, {}, {}};
  const bool can_retry = problem.status == 429 || problem.status == 503;
  if (can_retry) problem.headers.emplace_back("Retry-After", "1");
  return problem;
}

std::string named_message(const Problem& problem) {
  if (problem.message.find(problem.param) != std::string::npos) return problem.message;
  return fmt::format("{}: {}", problem.param, problem.message);
}

std::string Framing::frame(std::string_view json) const {
  return fmt::format("{}{}{}", before, json, after);
}

HttpResponse error_response(const Dialect& dialect, Problem problem) {
  HttpResponse response{problem.status, dialect.error_body(problem)};
  response.headers = std::move(problem.headers);
  return response;
}

HttpResponse error_response(const Dialect& dialect, const Error& error,
                            std::string_view request_id) {
  Problem problem = problem_of(error);
  problem.request_id = request_id;
  return error_response(dialect, std::move(problem));
}

}  // namespace headrace
