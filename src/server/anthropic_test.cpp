// Anthropic's routes over HTTP: framing, errors, heartbeats, counting, and the list of models.

#include <gtest/gtest.h>

#include "server/test_support.h"

namespace headrace {
namespace anthropic_test {

using test::Client;
using test::RunningServer;
using test::Script;
using namespace std::chrono_literals;

constexpr const char* kHi = R"({"max_tokens":50,"messages":[{"role":"user","content":"Hi"}]})";

TEST(AnthropicRoutes, AnswerWholeAndStreamed) {
  RunningServer server(Script{.reply = "abc"});
  const auto whole = Client(server.port()).post("/v1/messages?beta=true", kHi);
  EXPECT_EQ(whole.status, 200) << whole.body;
  EXPECT_NE(whole.body.find(R"("content":[{"type":"text","text":"abc"}],"stop_reason":"end_turn")"),
            std::string::npos)
      << whole.body;
  EXPECT_NE(whole.head.find("request-id: "), std::string::npos);
  const auto stream = Client(server.port())
                          .post("/v1/messages",
                                R"({"max_tokens":2,"stream":true,"system":"s",
                                    "messages":[{"role":"user","content":"Hi"}]})",
                                "anthropic-beta: one-2025-01-01,another\r\n");
  EXPECT_NE(stream.head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_TRUE(stream.complete);
  EXPECT_TRUE(stream.body.starts_with("event: message_start\ndata: {"));
  EXPECT_TRUE(stream.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  EXPECT_NE(stream.body.find(R"("stop_reason":"max_tokens")"), std::string::npos) << stream.body;
  EXPECT_NE(stream.head.find(
                "x-headrace-ignored: anthropic-beta.one-2025-01-01, anthropic-beta.another\r\n"),
            std::string::npos)
      << stream.head;
}

TEST(AnthropicRoutes, WhatIsBetaElsewhereAndUsualHereIsNotNamed) {
  RunningServer server;
  const auto ignored = [&](const std::string& path, const std::string& headers) {
    const std::string head = Client(server.port()).post(path, kHi, headers).head;
    const size_t at = head.find("x-headrace-ignored: ");
    return at == std::string::npos ? "" : head.substr(at + 20, head.find("\r\n", at) - at - 20);
  };
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    EXPECT_EQ(ignored(path,
                      "anthropic-beta: interleaved-thinking-2025-05-14, "
                      "prompt-caching-2024-07-31,,claude-code-20250219\r\n")
                  .find("anthropic-beta"),
              std::string::npos);
    EXPECT_TRUE(ignored(path, "anthropic-beta: context-1m-2025-08-07,effort\r\n")
                    .ends_with("anthropic-beta.context-1m-2025-08-07, anthropic-beta.effort"))
        << path;
  }
}

TEST(AnthropicRoutes, CountTokens) {
  RunningServer server;
  const auto counted = Client(server.port())
                           .post("/v1/messages/count_tokens?beta=true",
                                 R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(counted.status, 200);
  // "<s>[user]Hi\n[assistant]"
  EXPECT_EQ(counted.body, R"({"input_tokens":21})");
  EXPECT_EQ(server.engine().num_submitted(), 0u);
}

TEST(AnthropicRoutes, ErrorsHaveItsForm) {
  ServerOptions options;
  options.api_keys = {plain_api_key("k")};
  RunningServer server({}, options);
  const auto locked = Client(server.port()).post("/v1/messages", kHi, "x-request-id: r1\r\n");
  EXPECT_EQ(locked.status, 401);
  EXPECT_EQ(locked.body, R"({"type":"error","error":{"type":"authentication_error",)"
                         R"("message":"a valid API key is needed"},"request_id":"r1"})");
  for (const char* key : {"x-api-key: k\r\n", "Authorization: Bearer k\r\n"}) {
    EXPECT_EQ(Client(server.port()).post("/v1/messages", kHi, key).status, 200) << key;
    const auto bad =
        Client(server.port())
            .post("/v1/messages", R"({"max_tokens":1})", std::string(key) + "x-request-id: r2\r\n");
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(bad.body, R"({"type":"error","error":{"type":"invalid_request_error","message":)"
                        R"("messages is missing, but it must be a list of at least one message"},)"
                        R"("request_id":"r2"})");
  }
}

TEST(AnthropicRoutes, AFailureInTheStreamIsItsEvent) {
  RunningServer server(Script{.reply = "abc", .fail = true});
  const auto stream =
      Client(server.port())
          .post("/v1/messages",
                R"({"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_TRUE(stream.body.ends_with("\"request_id\":null}\n\n")) << stream.body;
  EXPECT_NE(stream.body.find("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"),
            std::string::npos);
}

TEST(AnthropicRoutes, AHeartbeatIsAPing) {
  ServerOptions options;
  options.heartbeat = 20ms;
  RunningServer server(Script{.reply = "ab"}, options);
  server.engine().hold(true);
  const std::string body =
      R"({"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]})";
  Client client(server.port());
  client.send(fmt::format("POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                          body.size(), body));
  EXPECT_TRUE(client.receive_until("event: ping\ndata: {\"type\":\"ping\"}\n\n"));
  server.engine().hold(false);
  EXPECT_TRUE(client.receive().complete);
}

TEST(AnthropicRoutes, ModelsHaveItsFormWhereItAsks) {
  RunningServer server;
  const auto list = Client(server.port())
                        .get("/v1/models?limit=1000", "GET", "anthropic-version: 2023-06-01\r\n");
  EXPECT_NE(
      list.body.find(R"({"data":[{"type":"model","id":"scripted","display_name":"scripted",)"),
      std::string::npos)
      << list.body;
  EXPECT_NE(list.body.find(R"("has_more":false,"first_id":"scripted","last_id":"scripted")"),
            std::string::npos);
  EXPECT_NE(Client(server.port()).get("/v1/models").body.find(R"("object":"list")"),
            std::string::npos);
  const auto one =
      Client(server.port()).get("/v1/models/scripted", "GET", "anthropic-version: 2023-06-01\r\n");
  EXPECT_TRUE(one.body.starts_with(R"({"type":"model","id":"scripted")")) << one.body;
}

}  // namespace anthropic_test
}  // namespace headrace
