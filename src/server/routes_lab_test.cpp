#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/testing/temp_folder.h"
#include "server/api/json.h"
#include "server/routes.h"
#include "server/test_support.h"

namespace headrace {
namespace routes_lab_test {

using headrace::testing::TempFolder;
using test::Client;
using test::ClientResponse;
using test::RunningServer;

constexpr const char* kQuestion =
    R"({"by":"ada","title":"one or two","metric":"speed","sides":[{"name":"one","command":["true"]},{"name":"two","command":["true"]}]})";

boost::json::value json_of(const ClientResponse& response) {
  auto value = parse_json(response.body, "body");
  CHECK(value.ok(), "{}", response.body);
  return std::move(value).value();
}

std::string message_of(const ClientResponse& response) {
  return json_of(response).at("error").at("message").as_string().c_str();
}

class LabRoutes : public ::testing::Test {
 protected:
  ServerOptions with_lab() const {
    ServerOptions options;
    options.lab_folder = folder_.file("lab");
    return options;
  }
  TempFolder folder_;
};

// Serves a laboratory without a model.
class LabAlone {
 public:
  explicit LabAlone(ServerOptions options) {
    options.port = 0;
    server_ = Server::create_lab(options).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~LabAlone() {
    server_->stop();
    thread_.join();
  }
  int port() const { return server_->port(); }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(LabRoutes, WithoutALaboratorySayHowToHaveOne) {
  RunningServer server;
  Client client(server.port());
  const auto refused = client.get("/api/lab/overview");
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(message_of(refused),
            "this server has no laboratory (start it with --lab DIR, or headrace lab serve)");
  EXPECT_EQ(client.post("/api/lab/actions/pin", R"({"by":"ada","id":1})").status, 404);
}

TEST_F(LabRoutes, WhatIsAddedIsShownAndSaysByWhom) {
  LabAlone server(with_lab());
  Client client(server.port());
  const auto added = client.post("/api/lab/actions/add_experiment", kQuestion);
  ASSERT_EQ(added.status, 200) << added.body;
  EXPECT_EQ(added.body, R"({"id":1})");
  const auto pinned = client.post("/api/lab/actions/pin", R"({"by":"bob","id":1})");
  EXPECT_TRUE(json_of(pinned).at("pinned").as_bool());
  const auto overview = json_of(client.get("/api/lab/overview"));
  EXPECT_EQ(overview.at("experiments").at(0).at("reason").as_string(), "pinned");
  EXPECT_EQ(overview.at("experiments").at(0).at("author").as_string(), "ada");
  const auto log = json_of(client.get("/api/lab/log?after=1"));
  ASSERT_EQ(log.at("log").as_array().size(), 1u);
  EXPECT_EQ(log.at("log").at(0).at("author").as_string(), "bob");
  EXPECT_EQ(json_of(client.get("/api/lab/log?last=1")), log);
  EXPECT_EQ(json_of(client.get("/api/lab/queue")).at("queue").as_array().size(), 1u);
  EXPECT_EQ(json_of(client.get("/api/lab/graph")).at("nodes").as_array().size(), 1u);
  EXPECT_EQ(json_of(client.get("/api/lab/experiments/1")).at("title").as_string(), "one or two");
  EXPECT_EQ(json_of(client.get("/api/lab/actions")).at("actions").as_array().size(), 11u);
}

TEST_F(LabRoutes, WhatIsWrongIsNamed) {
  LabAlone server(with_lab());
  struct Case {
    std::string method, path, body;
    int status;
    std::string problem;
  };
  for (const Case& each : {
           Case{"GET", "/api/lab/experiments/7", "", 404, "there is no experiment 7"},
           Case{"GET", "/api/lab/experiments/x", "", 400, "the experiment is 'x', and must be"},
           Case{"GET", "/api/lab/hypotheses/-1", "", 400, "the hypothesis is '-1'"},
           Case{"GET", "/api/lab/hypotheses/99999999999999999999", "", 400, "a whole number"},
           Case{"GET", "/api/lab/log?after=soon", "", 400, "after is 'soon'"},
           Case{"GET", "/api/lab/events?after=x", "", 400, "after is 'x'"},
           Case{"GET", "/api/lab/artifacts/1/../../lab.sqlite", "", 400, "must lie in the run's"},
           Case{"GET", "/api/lab/artifacts/1/%2e%2e/2/x", "", 400, "must lie in the run's"},
           Case{"GET", "/api/lab/artifacts/1/none.txt", "", 404,
                "run 1 has no artifact 'none.txt'"},
           Case{"GET", "/api/lab/artifacts/../lab.sqlite", "", 400, "the run is '..'"},
           Case{"POST", "/api/lab/actions/show", R"({"by":"ada","id":1})", 404,
                "there is no action 'show'; the actions are add_hypothesis, add_experiment"},
           Case{"POST", "/api/lab/actions/pin", R"({"id":1})", 400, "by is missing"},
           Case{"POST", "/api/lab/actions/pin", R"({"by":"","id":1})", 400, "by is missing"},
           Case{"POST", "/api/lab/actions/pin", R"({"by":"ada"})", 400, "id: is missing"},
           Case{"POST", "/api/lab/actions/pin", R"({"by":"ada","id":1.5})", 400, "id: is 1.5"},
           Case{"POST", "/api/lab/actions/pin", "[1]", 400, "must be a JSON object"},
           Case{"POST", "/api/lab/actions/pin", "{", 400, "JSON"},
           Case{"POST", "/api/lab/actions/add_hypothesis", R"({"by":"a","statement":"x"})", 400,
                "needs the field 'metric'"},
           Case{"DELETE", "/api/lab/experiments/1", "", 405, ""},
       }) {
    Client client(server.port());
    const auto answer = each.method == "POST" ? client.post(each.path, each.body)
                                              : client.get(each.path, each.method);
    EXPECT_EQ(answer.status, each.status) << each.path << answer.body;
    EXPECT_NE(answer.body.find(each.problem), std::string::npos) << each.path << answer.body;
  }
}

TEST_F(LabRoutes, AnArtifactIsSentSoThatNoBrowserRunsIt) {
  folder_.write("lab/artifacts/3/stderr.txt", "<script>");
  LabAlone server(with_lab());
  const auto answer = Client(server.port()).get("/api/lab/artifacts/3/stderr.txt");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "<script>");
  EXPECT_NE(answer.head.find("Content-Disposition: attachment"), std::string::npos);
  EXPECT_NE(answer.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
}

TEST_F(LabRoutes, EventsComeLiveAndAreResumed) {
  LabAlone server(with_lab());
  Client listener(server.port()), writer(server.port());
  listener.send("GET /api/lab/events HTTP/1.1\r\nHost: test\r\n\r\n");
  ASSERT_TRUE(listener.receive_until("event: queue"));
  ASSERT_EQ(writer.post("/api/lab/actions/add_experiment", kQuestion).status, 200);
  ASSERT_TRUE(listener.receive_until("id: 1\nevent: log\ndata: {\"id\":1,"));
  ASSERT_TRUE(listener.receive_until("\"queue\":[{\"experiment\":1,"));
  ASSERT_EQ(writer.post("/api/lab/actions/pause", R"({"by":"bob","id":1})").status, 200);
  ASSERT_TRUE(listener.receive_until("\"paused\":[1]"));
  Client again(server.port());
  again.send("GET /api/lab/events?after=0 HTTP/1.1\r\nHost: test\r\nLast-Event-ID: 1\r\n\r\n");
  ASSERT_TRUE(again.receive_until("id: 2\n"));
  EXPECT_EQ(again.buffered().find("id: 1\n"), std::string::npos);
  EXPECT_EQ(Client(server.port()).get("/api/lab/events", "HEAD").status, 200);
}

TEST_F(LabRoutes, AStopEndsTheStreams) {
  auto server = std::make_unique<LabAlone>(with_lab());
  Client listener(server->port());
  listener.send("GET /api/lab/events HTTP/1.1\r\nHost: test\r\n\r\n");
  ASSERT_TRUE(listener.receive_until("event: queue"));
  server = nullptr;
  while (listener.receive_more()) continue;
  EXPECT_TRUE(listener.buffered().ends_with("0\r\n\r\n")) << listener.buffered();
}

TEST_F(LabRoutes, TheMachineIsShownWithTheEngines) {
  ServerOptions options = with_lab();
  RunningServer engine;
  options.lab_engines = {fmt::format("http://127.0.0.1:{}", engine.port()), "http://127.0.0.1:1"};
  RunningServer server({}, options);
  Client client(server.port());
  const auto state_of = [](const boost::json::value& view, size_t i) {
    return std::string(view.at("engines").at(i).at("state").as_string());
  };
  boost::json::value view;
  ASSERT_TRUE(test::eventually([&] {
    view = json_of(client.get("/api/lab/machine"));
    return state_of(view, 1) == "ok" && state_of(view, 2) == "unreachable";
  }));
  EXPECT_FALSE(view.at("cores").as_array().empty());
  EXPECT_EQ(view.at("engines").at(0).at("url").as_string(), "");
  EXPECT_EQ(view.at("engines").at(0).at("status").at("model").at("id").as_string(), "scripted");
  EXPECT_EQ(view.at("engines").at(1).at("status").at("model").at("id").as_string(), "scripted");
  EXPECT_TRUE(view.at("engines").at(2).at("status").is_null());
  EXPECT_FALSE(view.at("engines").at(2).at("error").as_string().empty());
  EXPECT_TRUE(view.at("read_limit_byte_s").is_null());
  folder_.write("lab/machine.json", "{\"working_set_bytes\":1024,\"all_threads_byte_s\":5e9}\n");
  EXPECT_EQ(json_of(client.get("/api/lab/machine")).at("read_limit_byte_s").as_double(), 5e9);
}

TEST_F(LabRoutes, WritingNeedsAnAdminKeyAndIsLoggedWithItsName) {
  ServerOptions options = with_lab();
  options.api_keys = {{"ci", kAdminScope, digest_of_key("admin-secret")},
                      {"guest", kInferenceScope, digest_of_key("plain-secret")}};
  LabAlone server(options);
  Client client(server.port());
  const std::string plain = "Authorization: Bearer plain-secret\r\n";
  const std::string admin = "Authorization: Bearer admin-secret\r\n";
  EXPECT_EQ(client.get("/api/lab/overview").status, 401);
  EXPECT_EQ(client.get("/api/lab/overview", "GET", plain).status, 200);
  EXPECT_EQ(client.post("/api/lab/actions/add_experiment", kQuestion, plain).status, 403);
  EXPECT_EQ(client.post("/api/lab/actions/add_experiment", kQuestion, admin).status, 200);
  const auto log = json_of(client.get("/api/lab/log", "GET", admin));
  EXPECT_EQ(log.at("log").at(0).at("author").as_string(), "ada (key ci)");
}

TEST_F(LabRoutes, CommandsAreNotTakenFromTheWholeNetwork) {
  ServerOptions options = with_lab();
  options.host = "0.0.0.0";
  LabAlone server(options);
  Client client(server.port());
  const auto refused = client.post("/api/lab/actions/add_experiment", kQuestion);
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(message_of(refused).find("--api-key-file"), std::string::npos);
  EXPECT_EQ(client
                .post("/api/lab/actions/add_hypothesis",
                      R"({"by":"ada","statement":"x","metric":"speed"})")
                .status,
            200);
}

TEST_F(LabRoutes, AloneThereIsThePageAndNoModel) {
  LabAlone server(with_lab());
  Client client(server.port());
  EXPECT_NE(client.get("/").head.find("Location: /lab"), std::string::npos);
  EXPECT_EQ(client.get("/lab").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/v1/models").status, 404);
  EXPECT_TRUE(json_of(client.get("/api/lab/machine")).at("engines").as_array().empty());
}

TEST_F(LabRoutes, AFolderThatIsNoneAndAnAddressThatIsNoneAreRefused) {
  ServerOptions options = with_lab();
  options.lab_engines = {"localhost:8080"};
  EXPECT_EQ(Server::create_lab(options).error().message,
            "'localhost:8080' is no address of an engine: it must look like http://host:port");
  folder_.write("lab/lab.sqlite", "this is no database, but a text that is long enough");
  options.lab_engines = {};
  EXPECT_EQ(Server::create_lab(options).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(Server::create_lab({}).ok());
}

}  // namespace routes_lab_test
}  // namespace headrace
