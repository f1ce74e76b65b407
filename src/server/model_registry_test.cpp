#include "server/model_registry.h"

#include <gtest/gtest.h>

#include "server/test_support.h"

namespace headrace {
namespace {

using test::Client;
using test::events_of;

// Two models over scripted engines, which answer differently.
class ModelRegistryTest : public testing::Test {
 protected:
  static ModelInfo info(std::string name) {
    ModelInfo made = test::make_model_info();
    made.name = std::move(name);
    return made;
  }
  static test::Script script(std::string reply, int context) {
    test::Script made;
    made.reply = std::move(reply);
    made.max_context = context;
    return made;
  }
  std::vector<ModelPtr> models() {
    return {std::make_shared<ServedModel>(one_, bundle_, info("one"),
                                          std::vector<std::string>{"gpt-x", "shared"}),
            std::make_shared<ServedModel>(two_, bundle_, info("two"),
                                          std::vector<std::string>{"shared"})};
  }

  const TextBundle bundle_ = test::make_bundle();
  test::ScriptedEngine one_{script("I am one.", 100)};
  test::ScriptedEngine two_{script("I am two.", 200)};
};

TEST_F(ModelRegistryTest, FindsByNameAndByAlias) {
  const ModelRegistry registry(models());
  EXPECT_EQ(registry.find("")->get()->info.name, "one");
  EXPECT_EQ(registry.find("one")->get()->info.name, "one");
  EXPECT_EQ(registry.find("gpt-x")->get()->info.name, "one");
  EXPECT_EQ(registry.find("two")->get()->serving.max_context, 200);
  EXPECT_EQ(registry.find("shared")->get()->info.name, "one");  // the first that has it
}

TEST_F(ModelRegistryTest, WhatItDoesNotHaveIsNamedWithWhatItHas) {
  const ModelRegistry registry(models());
  const auto found = registry.find("three");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().param, "model");
  EXPECT_EQ(found.error().message,
            "the model \"three\" does not exist here, this server has 'one', 'two'");
  EXPECT_FALSE(registry.find_for({{"model", 7}}).ok());
  EXPECT_EQ(registry.find_for({{"model", nullptr}})->get()->info.name, "one");
}

class TwoModels : public ModelRegistryTest {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.port = 0;
    auto created = Server::create(models(), options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    server_ = std::move(created).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
  }
  boost::json::value json_of(const std::string& body) { return parse_json(body, "body").value(); }

  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(TwoModels, EachRequestReachesTheModelItNames) {
  Client client(server_->port());
  for (const auto& [name, reply, served] :
       {std::tuple{"one", "I am one.", "one"}, std::tuple{"two", "I am two.", "two"},
        std::tuple{"gpt-x", "I am one.", "gpt-x"}}) {
    const auto response = client.post(
        "/v1/chat/completions",
        fmt::format(R"({{"model":"{}","messages":[{{"role":"user","content":"Hi"}}]}})", name));
    ASSERT_EQ(response.status, 200) << response.body;
    const auto json = json_of(response.body);
    EXPECT_EQ(json.at("choices").at(0).at("message").at("content").as_string(), reply);
    EXPECT_EQ(json.at("model").as_string(), served);
  }
  EXPECT_EQ(client.post("/v1/completions", R"({"model":"three","prompt":"a"})").status, 404);
}

TEST_F(TwoModels, EachHasItsOwnContext) {
  Client client(server_->port());
  const std::string prompt(150, 'x');
  const auto ask = [&](std::string_view model) {
    return client.post(
        "/v1/completions",
        fmt::format(R"({{"model":"{}","prompt":"{}","max_tokens":1}})", model, prompt));
  };
  EXPECT_EQ(ask("one").status, 400);
  EXPECT_EQ(ask("two").status, 200);
  const auto counted = client.post("/tokenize", R"({"model":"two","prompt":"abc"})");
  EXPECT_EQ(json_of(counted.body).at("max_model_len").as_int64(), 200);
}

TEST_F(TwoModels, AllAreListedAndMeasured) {
  Client client(server_->port());
  const auto list = json_of(client.get("/v1/models").body).at("data").as_array();
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[3].at("id").as_string(), "two");
  EXPECT_EQ(list[4].at("root").as_string(), "two");
  EXPECT_EQ(json_of(client.get("/v1/models/two").body).at("max_model_len").as_int64(), 200);
  const auto status = json_of(client.get("/api/headrace/status").body);
  EXPECT_EQ(status.at("model").at("id").as_string(), "one");
  ASSERT_EQ(status.at("models").as_array().size(), 2u);
  EXPECT_EQ(status.at("models").at(1).at("id").as_string(), "two");
  const std::string metrics = client.get("/metrics").body;
  EXPECT_NE(metrics.find("vllm:num_requests_running{model_name=\"two\""), std::string::npos);
  EXPECT_EQ(client.get("/ready").status, 200);
}

}  // namespace
}  // namespace headrace
