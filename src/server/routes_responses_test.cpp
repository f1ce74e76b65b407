// The Responses API through a real server: who may read what is kept, pages of items, errors.
#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/test_support.h"

namespace headrace {
namespace routes_responses_test {

using test::Client;
using test::RunningServer;
using test::Script;

boost::json::value ask(RunningServer& server, const std::string& body,
                       const std::string& headers = "") {
  const auto response = Client(server.port()).post("/v1/responses", body, headers);
  EXPECT_EQ(response.status, 200) << response.body;
  return parse_body(response.body).value();
}

test::ClientResponse request(RunningServer& server, const std::string& method,
                             const std::string& path, const std::string& headers = "") {
  Client client(server.port());
  client.send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{}\r\n",
                          method, path, headers));
  return client.receive();
}

TEST(ResponsesRoutes, AnswersAndKeepsTheAnswer) {
  RunningServer server(Script{.reply = "abc"});
  const auto answer = ask(server, R"({"input":"Hi"})");
  EXPECT_EQ(answer.at("output").at(0).at("content").at(0).at("text"), "abc");
  EXPECT_EQ(answer.at("usage").at("output_tokens"), 3);
  const std::string path = fmt::format("/v1/responses/{}", answer.at("id").as_string().c_str());
  EXPECT_EQ(parse_body(request(server, "GET", path).body).value(), answer);
  const auto items = parse_body(request(server, "GET", path + "/input_items").body).value();
  EXPECT_EQ(items.at("data").at(0).at("content").at(0).at("text"), "Hi");
  EXPECT_EQ(items.at("has_more"), false);
  const auto cancelled = request(server, "POST", path + "/cancel");
  EXPECT_EQ(cancelled.status, 400);
  EXPECT_NE(cancelled.body.find("\"param\":\"response_id\""), std::string::npos);
  EXPECT_EQ(request(server, "DELETE", path).body,
            fmt::format(R"({{"id":"{}","object":"response","deleted":true}})",
                        answer.at("id").as_string().c_str()));
  for (const char* method : {"GET", "DELETE", "POST"}) {
    EXPECT_EQ(request(server, method, path).status, 404) << method;
  }
}

TEST(ResponsesRoutes, CountsThePromptOfABody) {
  RunningServer server(Script{.reply = "abc"});
  const std::string body = R"({"input":"Hi","instructions":"Be brief."})";
  const auto answer = ask(server, body);
  const auto counted = Client(server.port()).post("/v1/responses/input_tokens", body);
  EXPECT_EQ(counted.status, 200);
  EXPECT_EQ(counted.body, fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})",
                                      answer.at("usage").at("input_tokens").as_int64()));
  EXPECT_EQ(Client(server.port()).post("/v1/responses/input_tokens", "{}").status, 400);
}

TEST(ResponsesRoutes, StreamsEventsWithNames) {
  RunningServer server(Script{.reply = "ab"});
  const auto response =
      Client(server.port()).post("/v1/responses", R"({"input":"Hi","stream":true})");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("text/event-stream"), std::string::npos);
  EXPECT_TRUE(
      response.body.starts_with("event: response.created\ndata: {\"type\":"
                                "\"response.created\",\"sequence_number\":0,"));
  EXPECT_NE(response.body.find("event: response.completed\n"), std::string::npos);
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(response.complete);
}

TEST(ResponsesRoutes, AnEngineThatFailsFailsTheResponse) {
  RunningServer server(Script{.reply = "abcdef", .fail = true});
  const auto response =
      Client(server.port()).post("/v1/responses", R"({"input":"Hi","stream":true})");
  EXPECT_NE(response.body.find("event: error\n"), std::string::npos);
  EXPECT_NE(response.body.find("event: response.failed\n"), std::string::npos);
  EXPECT_EQ(response.body.find("response.completed"), std::string::npos);
}

TEST(ResponsesRoutes, ItemsComeInPages) {
  RunningServer server(Script{.reply = "a"});
  const auto answer = ask(server, R"({"input":[{"role":"user","content":"1","id":"i1"},
      {"role":"assistant","content":"2","id":"i2"},{"role":"user","content":"3","id":"i3"}]})");
  const std::string path =
      fmt::format("/v1/responses/{}/input_items", answer.at("id").as_string().c_str());
  const auto ids = [&](const std::string& query) {
    const auto page = parse_body(request(server, "GET", path + query).body).value();
    std::string text;
    for (const auto& item : page.at("data").as_array()) text += item.at("id").as_string().c_str();
    return text + (page.at("has_more").as_bool() ? "+" : "");
  };
  EXPECT_EQ(ids(""), "i3i2i1");
  EXPECT_EQ(ids("?order=asc"), "i1i2i3");
  EXPECT_EQ(ids("?order=asc&limit=2"), "i1i2+");
  EXPECT_EQ(ids("?limit=2&order=asc&after=i2"), "i3");
  for (const char* bad : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=i9"}) {
    EXPECT_EQ(request(server, "GET", path + bad).status, 400) << bad;
  }
}

TEST(ResponsesRoutes, AKeyReadsItsOwnResponsesOnly) {
  ServerOptions options;
  options.api_keys = {plain_api_key("first-key-1234567"), plain_api_key("second-key-123456")};
  RunningServer server(Script{.reply = "a"}, options);
  const std::string first = "Authorization: Bearer first-key-1234567\r\n";
  const std::string second = "Authorization: Bearer second-key-123456\r\n";
  const auto answer = ask(server, R"({"input":"Hi"})", first);
  const std::string id = answer.at("id").as_string().c_str();
  EXPECT_EQ(request(server, "GET", "/v1/responses/" + id, first).status, 200);
  EXPECT_EQ(request(server, "GET", "/v1/responses/" + id, second).status, 404);
  EXPECT_EQ(request(server, "DELETE", "/v1/responses/" + id, second).status, 404);
  EXPECT_EQ(request(server, "GET", "/v1/responses/" + id).status, 401);
  const auto stolen =
      Client(server.port())
          .post("/v1/responses", fmt::format(R"({{"input":"x","previous_response_id":"{}"}})", id),
                second);
  EXPECT_EQ(stolen.status, 400);
}

TEST(ResponsesRoutes, WithoutAStoreNothingIsKept) {
  ServerOptions options;
  options.response_store_bytes = 0;
  RunningServer server(Script{.reply = "a"}, options);
  const auto answer = ask(server, R"({"input":"Hi"})");
  const std::string path = fmt::format("/v1/responses/{}", answer.at("id").as_string().c_str());
  EXPECT_EQ(request(server, "GET", path).status, 404);
}

}  // namespace routes_responses_test
}  // namespace headrace
