#include "server/finished_requests.h"

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/test_support.h"

namespace headrace {
namespace finished_requests_test {

using test::Client;
using test::eventually;
using test::RunningServer;

RequestRecord answered(uint64_t client, const std::string& id) {
  RequestRecord record;
  record.method = "POST";
  record.route = "/v1/completions";
  record.request_id = id;
  record.client = client;
  record.status = 200;
  record.note.answer_id = "cmpl-" + id;
  return record;
}

TEST(FinishedRequests, AreKeptNewestFirstUpToTheirNumber) {
  FinishedRequests finished;
  for (size_t i = 0; i < FinishedRequests::kMost + 5; ++i) {
    finished.add(answered(1, std::to_string(i)), static_cast<int64_t>(i));
  }
  const auto newest = finished.newest(std::nullopt);
  ASSERT_EQ(newest.size(), FinishedRequests::kMost);
  EXPECT_EQ(newest.front().request_id, "204");
  EXPECT_EQ(newest.back().request_id, "5");
  EXPECT_EQ(newest.front().ended_ms, 204);
}

TEST(FinishedRequests, AClientSeesItsOwn) {
  FinishedRequests finished;
  finished.add(answered(1, "a"), 0);
  finished.add(answered(2, "b"), 0);
  ASSERT_EQ(finished.newest(2).size(), 1u);
  EXPECT_EQ(finished.newest(2)[0].request_id, "b");
  EXPECT_TRUE(finished.newest(3).empty());
}

TEST(FinishedRequests, ProbesFilesAndFiguresAreNotAmongThem) {
  FinishedRequests finished;
  RequestRecord figures = answered(1, "x");
  figures.method = "GET";
  figures.note = {};
  RequestRecord nowhere = answered(1, "x");
  nowhere.route = {};
  RequestRecord page = answered(1, "x");
  page.is_public = true;
  for (const RequestRecord& record : {figures, nowhere, page}) finished.add(record, 0);
  EXPECT_TRUE(finished.newest(std::nullopt).empty());
  RequestRecord refused = answered(1, "x");
  refused.note = {};
  refused.status = 400;
  finished.add(refused, 0);
  EXPECT_EQ(finished.newest(std::nullopt).size(), 1u);
}

TEST(FinishedRequests, AnIdThatAClientChoseIsCut) {
  FinishedRequests finished;
  finished.add(answered(1, std::string(5000, 'x')), 0);
  EXPECT_EQ(finished.newest(1)[0].request_id.size(), FinishedRequests::kMostIdBytes);
}

boost::json::value requests_of(RunningServer& server, const std::string& key = "none") {
  const auto response =
      Client(server.port())
          .get("/api/headrace/requests", "GET", fmt::format("Authorization: Bearer {}\r\n", key));
  EXPECT_EQ(response.status, 200) << response.body;
  return parse_json(response.body, "body").value();
}

size_t num_finished(RunningServer& server, const std::string& key = "none") {
  return requests_of(server, key).at("finished").as_array().size();
}

TEST(RequestList, ShowsTimingsAndNoText) {
  RunningServer server;
  Client client(server.port());
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"secret words","max_tokens":3})").status,
            200);
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"x","temperature":-1})").status, 400);
  EXPECT_TRUE(eventually([&] { return num_finished(server) == 2; }));
  const auto list = requests_of(server);
  const boost::json::array& finished = list.at("finished").as_array();
  EXPECT_EQ(finished[0].at("status"), 400);
  EXPECT_FALSE(finished[0].as_object().contains("prompt_tokens"));
  const boost::json::object& answer = finished[1].as_object();
  EXPECT_EQ(answer.at("route"), "/v1/completions");
  EXPECT_EQ(answer.at("prompt_tokens"), 13);
  EXPECT_EQ(answer.at("cache_miss"), "short");
  for (const char* name : {"total_ms", "queue_ms", "first_token_ms", "output_tokens", "finish"}) {
    EXPECT_TRUE(answer.contains(name)) << name;
  }
  EXPECT_EQ(boost::json::serialize(list).find("secret"), std::string::npos);
}

TEST(RequestList, WithKeysItShowsOnesOwnAndToAdministratorsAll) {
  ServerOptions options;
  options.api_keys = {{"ann", kInferenceScope, digest_of_key("a")},
                      {"bob", kInferenceScope, digest_of_key("b")},
                      {"ops", kAdminScope, digest_of_key("o")}};
  RunningServer server({}, options);
  for (const char* key : {"a", "b", "b"}) {
    const auto response = Client(server.port())
                              .post("/v1/completions", R"({"prompt":"x","max_tokens":1})",
                                    fmt::format("Authorization: Bearer {}\r\n", key));
    EXPECT_EQ(response.status, 200) << response.body;
  }
  EXPECT_TRUE(eventually([&] { return num_finished(server, "o") == 3; }));
  EXPECT_EQ(num_finished(server, "a"), 1u);
  EXPECT_EQ(num_finished(server, "b"), 2u);
  EXPECT_EQ(Client(server.port()).get("/api/headrace/requests").status, 401);
}

TEST(RequestList, WhatRunsIsShownToWhoAskedForIt) {
  ServerOptions options;
  options.api_keys = {{"ann", kInferenceScope, digest_of_key("a")},
                      {"bob", kInferenceScope, digest_of_key("b")}};
  RunningServer server({}, options);
  server.engine().hold(true);
  std::thread client([&] {
    Client(server.port())
        .post("/v1/completions", R"({"prompt":"x","max_tokens":1})",
              "Authorization: Bearer a\r\nx-request-id: mine\r\n");
  });
  const auto running = [&](const std::string& key) {
    return requests_of(server, key).at("running").as_array();
  };
  EXPECT_TRUE(eventually([&] { return running("a").size() == 1; }));
  EXPECT_EQ(running("a")[0].at("request_id"), "mine");
  EXPECT_TRUE(running("b").empty());
  server.engine().hold(false);
  client.join();
}

}  // namespace finished_requests_test
}  // namespace headrace
