// headrace ps and headrace stop against servers of all kinds.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "cli/command.h"
#include "cli/testing/scripted_server.h"

namespace headrace {
namespace server_commands_test {

using testing::http_answer;
using testing::ScriptedServer;

struct Ran {
  Result<int> status;
  std::string out, err;
};

Ran run_against(const ScriptedServer& server, std::string_view command, OptionTexts given = {},
                std::vector<std::string> words = {}) {
  given["--server"] = server.url() + "/";
  const Options options = Options::create(command, given, std::move(words)).value();
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Result<int> status = command == "ps" ? run_ps(options) : run_stop(options);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {std::move(status), std::move(out), ::testing::internal::GetCapturedStderr()};
}

TEST(Ps, ShowsOneLineForEachModel) {
  const ScriptedServer server(http_answer(
      200, R"({"models":[{"name":"tiny","size":1048576,"expires_at":"2026-11-22T10:00:00Z"},)"
           R"({"name":"large\u001b[31m","size":-1},{"size":1.5,"name":7},"odd",null]})"));
  const Ran ran = run_against(server, "ps", {{"--api-key", "k"}});
  ASSERT_TRUE(ran.status.ok()) << ran.status.error().message;
  EXPECT_EQ(*ran.status, 0);
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = ran.out.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(ran.out.substr(at, end - at));
  }
  ASSERT_EQ(lines.size(), 4u) << ran.out;  // what is no object is left out
  EXPECT_TRUE(lines[0].starts_with("name ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("tiny ")) << lines[1];
  EXPECT_TRUE(lines[1].ends_with("  2026-11-22T10:00:00Z")) << lines[1];
  EXPECT_NE(lines[1].find("1 MiB"), std::string::npos) << lines[1];
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos);  // a server does not paint the screen
  EXPECT_EQ(lines[3].find_first_not_of(' '), std::string::npos) << lines[3];
  ASSERT_EQ(server.seen().size(), 1u);
  EXPECT_EQ(server.seen()[0].line, "GET /api/ps HTTP/1.1");
  EXPECT_NE(server.seen()[0].head.find("Authorization: Bearer k\r\n"), std::string::npos);
}

TEST(Ps, SaysOfWhatStaysThatItDoes) {
  const ScriptedServer server(http_answer(
      200, R"({"models":[{"name":"stays","size":1,"expires_at":"2318-01-01T00:00:00Z"},)"
           R"({"name":"goes","size":1,"expires_at":"2026-11-22T10:00:00+01:00"},)"
           R"({"name":"odd","size":1,"expires_at":"never"}]})"));
  const std::string out = run_against(server, "ps", {}).out;
  EXPECT_NE(out.find("  for ever\n"), std::string::npos) << out;
  EXPECT_NE(out.find("  2026-11-22T10:00:00+01:00\n"), std::string::npos) << out;
  EXPECT_NE(out.find("  never\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("2318"), std::string::npos) << out;
}

TEST(Ps, AsJsonIsTheServersOwnAnswer) {
  const std::string body = R"({"models":[{"name":"a","more":[1]}]})";
  const ScriptedServer server(http_answer(200, body));
  EXPECT_EQ(run_against(server, "ps", {{"--json", "true"}}).out, body + "\n");
}

TEST(Ps, WhatIsNoListIsAnError) {
  for (const char* body : {"{}", R"({"models":{}})", "[]", "7"}) {
    const ScriptedServer server(http_answer(200, body));
    const Ran ran = run_against(server, "ps");
    ASSERT_FALSE(ran.status.ok()) << body;
    EXPECT_EQ(ran.status.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(ran.status.error().message, "the server's answer holds no list of models");
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Ps, AFailureNamesTheAddressTheStatusAndTheReason) {
  struct Case {
    int status;
    std::string_view body, told;
    ErrorCode code;
  };
  const Case cases[] = {
      {404, R"({"error":"no such route"})", "404: no such route", ErrorCode::kNotFound},
      {401, R"({"error":{"message":"a form of its own"}})", "401", ErrorCode::kUnavailable},
      {500, "not JSON", "500", ErrorCode::kUnavailable},
      {200, "not JSON", "200", ErrorCode::kUnavailable},
      {503, R"(["error"])", "503", ErrorCode::kUnavailable},
  };
  for (const Case& c : cases) {
    const ScriptedServer server(http_answer(c.status, c.body));
    const Ran ran = run_against(server, "ps");
    ASSERT_FALSE(ran.status.ok()) << c.told;
    EXPECT_EQ(ran.status.error().code, c.code) << c.told;
    EXPECT_EQ(ran.status.error().message,
              fmt::format("{}/api/ps answers with status {}", server.url(), c.told));
  }
}

TEST(Stop, AsksForAModelToBeLetGo) {
  const ScriptedServer server(http_answer(200, R"({"done":true})"));
  const Ran ran = run_against(server, "stop", {}, {"my \"model\""});
  ASSERT_TRUE(ran.status.ok()) << ran.status.error().message;
  EXPECT_EQ(*ran.status, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "my \"model\" is let go\n");
  ASSERT_EQ(server.seen().size(), 1u);
  EXPECT_EQ(server.seen()[0].line, "POST /api/generate HTTP/1.1");
  EXPECT_EQ(boost::json::parse(server.seen()[0].body),
            (boost::json::object{{"model", "my \"model\""}, {"keep_alive", 0}, {"stream", false}}));
  EXPECT_EQ(run_against(server, "stop", {{"--quiet", "true"}}, {"m"}).err, "");
}

TEST(Stop, AModelThatStaysIsNotLetGo) {
  const ScriptedServer stays(http_answer(200, R"({"done_reason":"load","done":true})"));
  const Ran ran = run_against(stays, "stop", {}, {"m"});
  ASSERT_FALSE(ran.status.ok());
  EXPECT_TRUE(ran.status.error().message.starts_with("m stays: ")) << ran.status.error().message;
  EXPECT_EQ(ran.err, "");
  const ScriptedServer goes(http_answer(200, R"({"done_reason":"unload","done":true})"));
  EXPECT_TRUE(run_against(goes, "stop", {}, {"m"}).status.ok());
}

TEST(Stop, AModelThatIsNotThereIsNotLetGo) {
  const ScriptedServer server(http_answer(404, R"({"error":"model 'm' not found"})"));
  const Ran ran = run_against(server, "stop", {}, {"m"});
  ASSERT_FALSE(ran.status.ok());
  EXPECT_EQ(ran.status.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(ran.status.error().message.ends_with("status 404: model 'm' not found"))
      << ran.status.error().message;
  EXPECT_EQ(ran.err, "");
}

}  // namespace server_commands_test
}  // namespace headrace
