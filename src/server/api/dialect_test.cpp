#include "server/api/dialect.h"

#include <gtest/gtest.h>

#include "server/api/openai/openai.h"

namespace headrace {
namespace dialect_test {

TEST(Problem, EveryCodeOfAnErrorHasAStatus) {
  const std::pair<ErrorCode, int> kStatus[] = {
      {ErrorCode::kInvalidArgument, 400}, {ErrorCode::kUnprocessable, 422},
      {ErrorCode::kNotFound, 404},        {ErrorCode::kUnsupported, 400},
      {ErrorCode::kCorrupt, 400},         {ErrorCode::kIo, 500},
      {ErrorCode::kExhausted, 429},       {ErrorCode::kUnavailable, 503},
      {ErrorCode::kPermission, 403},      {ErrorCode::kInternal, 500},
  };
  for (const auto& [code, status] : kStatus) {
    const Problem problem = problem_of(Error{code, "what", "hint", "field"});
    EXPECT_EQ(problem.status, status);
    EXPECT_EQ(problem.message, "what (hint)");
    EXPECT_EQ(problem.param, "field");
    const bool can_retry = status == 429 || status == 503;
    EXPECT_EQ(problem.headers, can_retry ? HttpHeaders({{"Retry-After", "1"}}) : HttpHeaders());
  }
}

TEST(Framing, EventsAndLines) {
  EXPECT_EQ(kServerSentEvents.frame("{}"), "data: {}\n\n");
  EXPECT_EQ(kJsonLines.frame("{}"), "{}\n");
  // A heartbeat is nothing that a client takes for an event.
  EXPECT_TRUE(kServerSentEvents.heartbeat.starts_with(": "));
  EXPECT_TRUE(kServerSentEvents.heartbeat.ends_with("\n\n"));
  EXPECT_TRUE(kJsonLines.heartbeat.empty());
}

// Another dialect's error is its own in everything but status and headers.
TEST(Dialect, AnErrorHasItsForm) {
  const Dialect plain{"plain", [](const Problem& problem) { return "[" + problem.message + "]"; },
                      kJsonLines};
  const HttpResponse response =
      error_response(plain, make_error(ErrorCode::kExhausted, "the queue is full"));
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.body, "[the queue is full]");
  EXPECT_EQ(response.headers, HttpHeaders({{"Retry-After", "1"}}));
}

TEST(OpenAi, ErrorsHaveTypesByStatus) {
  const std::pair<int, const char*> kTypes[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {405, "invalid_request_error"}, {422, "invalid_request_error"},
      {429, "rate_limit_error"},      {500, "server_error"},
      {501, "server_error"},          {503, "service_unavailable_error"},
  };
  for (const auto& [status, type] : kTypes) {
    EXPECT_EQ(kOpenAi.error_body(Problem{status, "m"}),
              fmt::format(R"({{"error":{{"message":"m","type":"{}","param":null,"code":{}}}}})",
                          type, status));
  }
  EXPECT_EQ(kOpenAi.error_body(Problem{401, "m\"\xFF", "field", "name", {}}),
            "{\"error\":{\"message\":\"m\\\"\xEF\xBF\xBD\",\"type\":\"authentication_error\","
            "\"param\":\"field\",\"code\":\"name\"}}");
}

TEST(Dialect, AMessageNamesItsFieldOnce) {
  EXPECT_EQ(named_message({400, "top_k is 1.5", "top_k"}), "top_k is 1.5");
  EXPECT_EQ(named_message({400, "no such schema", "format"}), "format: no such schema");
  EXPECT_EQ(named_message({500, "no field"}), "no field");
}

TEST(Dialect, ErrorsCarryTheRequestsIdWhereTheFormHasAPlace) {
  static constexpr auto kBody = [](const Problem& problem) { return "id=" + problem.request_id; };
  const Dialect dialect{"test", kBody, kJsonLines};
  const Error error = make_error(ErrorCode::kNotFound, "none");
  EXPECT_EQ(error_response(dialect, error, "r1").body, "id=r1");
  EXPECT_EQ(error_response(dialect, error).body, "id=");
  EXPECT_EQ(error_response(dialect, error, "r1").status, 404);
}

}  // namespace dialect_test
}  // namespace headrace
