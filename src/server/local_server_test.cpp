#include "server/local_server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "server/api/api_fields.h"
#include "server/api/json.h"
#include "server/test_support.h"

namespace headrace {
namespace local_server_test {

using test::Client;
using test::eventually;
using test::RunningServer;
using test::Script;
using namespace std::chrono_literals;

constexpr const char* kAsked =
    R"({"prompt":"abc","max_tokens":5,"temperature":0,"logprobs":2,"echo":true})";
constexpr const char* kEndless = R"({"prompt":"abc","max_tokens":4000,"ignore_eos":true})";
constexpr const char* kEndlessStream =
    R"({"prompt":"abc","max_tokens":4000,"ignore_eos":true,"stream":true})";

class LocalServing : public ::testing::Test {
 protected:
  LocalServing() { server_ = make(); }

  std::unique_ptr<LocalServer> make() {
    auto model = std::make_shared<ServedModel>(engine_, bundle_, test::make_model_info());
    return LocalServer::create(ServedModels{{std::move(model)}}, {});
  }

  // All of an answer.
  static LocalAnswer::Piece whole(LocalAnswer& answer) {
    LocalAnswer::Piece all;
    while (!all.ended) {
      if (!answer.wait(10s)) break;
      LocalAnswer::Piece piece = answer.take();
      piece.data.insert(0, all.data);
      all = std::move(piece);
    }
    return all;
  }
  LocalAnswer::Piece post(std::string_view path, std::string body) {
    return whole(*server_->ask("POST", path, std::move(body)));
  }

  TextBundle bundle_ = test::make_bundle();
  test::ScriptedEngine engine_;
  std::unique_ptr<LocalServer> server_;
};

boost::json::value parsed(const std::string& text) {
  auto value = parse_json(text, "answer");
  CHECK(value.ok(), "{}", text);
  return std::move(value).value();
}

TEST_F(LocalServing, AnswersAsTheServerDoes) {
  RunningServer server;
  for (const std::string_view path : {"/v1/completions", "/tokenize", "/render"}) {
    const std::string body = path == "/v1/completions" ? kAsked : R"({"prompt":"abc"})";
    const auto here = post(path, body);
    const auto there = Client(server.port()).post(std::string(path), body);
    ASSERT_EQ(here.status, 200) << here.data;
    auto a = parsed(here.data), b = parsed(there.body);
    for (auto* each : {&a, &b}) {
      each->as_object().erase("id");
      each->as_object().erase("created");
    }
    EXPECT_EQ(boost::json::serialize(a), boost::json::serialize(b)) << path;
  }
}

TEST_F(LocalServing, StreamsEventsAsTheyCome) {
  engine_.hold(true);
  const auto answer =
      server_->ask("POST", "/v1/completions", R"({"prompt":"abc","max_tokens":3,"stream":true})");
  ASSERT_TRUE(eventually([&] { return engine_.num_live() == 1; }));
  ASSERT_TRUE(answer->wait(10s));
  const auto head = answer->take();
  EXPECT_EQ(head.status, 200);
  ASSERT_FALSE(head.headers.empty());
  EXPECT_EQ(head.headers.back().first, "content-type");
  EXPECT_TRUE(head.headers.back().second.starts_with("text/event-stream"));
  EXPECT_TRUE(head.data.empty());
  EXPECT_FALSE(answer->wait(1ms));
  engine_.hold(false);
  const auto all = whole(*answer);
  EXPECT_FALSE(all.broken);
  EXPECT_NE(all.data.find("\"text\":\"H\""), std::string::npos) << all.data;
  EXPECT_TRUE(all.data.ends_with("data: [DONE]\n\n")) << all.data;
}

bool is_readable(int descriptor) {
  pollfd waited{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&waited, 1, 0) == 1;
}

TEST_F(LocalServing, DescriptorsAreReadableWhileThereIsSomethingToTake) {
  engine_.hold(true);
  const auto answer =
      server_->ask("POST", "/v1/completions", R"({"prompt":"abc","max_tokens":3,"stream":true})");
  const int descriptor = answer->descriptor();
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(answer->descriptor(), descriptor);
  ASSERT_TRUE(eventually([&] { return is_readable(descriptor); }));
  answer->take();
  EXPECT_FALSE(is_readable(descriptor));
  engine_.hold(false);
  ASSERT_TRUE(eventually([&] { return is_readable(descriptor); }));
  whole(*answer);
  EXPECT_TRUE(is_readable(descriptor)) << "at the end it stays so";
}

TEST_F(LocalServing, RefusesWhatTheServerRefuses) {
  EXPECT_EQ(post("/v1/nothing", "{}").status, 404);
  EXPECT_EQ(post("/v1/models", "{}").status, 405);
  const auto field = post("/v1/completions", R"({"prompt":"abc","temperature":-1})");
  EXPECT_EQ(field.status, 400);
  EXPECT_EQ(parsed(field.data).at("error").at("param").as_string(), "temperature");
  EXPECT_EQ(post("/v1/completions", "[]").status, 400);
  const auto ignored = post("/v1/completions", R"({"prompt":"a","max_tokens":1,"temprature":1})");
  ASSERT_EQ(ignored.status, 200);
  const auto& headers = ignored.headers;
  EXPECT_TRUE(std::any_of(headers.begin(), headers.end(), [](const auto& header) {
    return header.first == kIgnoredHeader && header.second.starts_with("temprature");
  }));
}

TEST_F(LocalServing, DroppedAnswersAreCancelled) {
  for (const char* body : {kEndless, kEndlessStream}) {
    engine_.hold(true);
    auto answer = server_->ask("POST", "/v1/completions", body);
    ASSERT_TRUE(eventually([&] { return engine_.num_live() == 1; }));
    const uint64_t before = engine_.num_cancelled();
    answer.reset();
    EXPECT_TRUE(eventually([&] { return engine_.num_cancelled() == before + 1; }));
    EXPECT_TRUE(eventually([&] { return engine_.num_live() == 0; }));
  }
}

TEST_F(LocalServing, CancelEndsAnAnswerForWhoWaits) {
  engine_.hold(true);
  const auto answer = server_->ask("POST", "/v1/completions", kEndless);
  std::thread canceller([&] {
    EXPECT_TRUE(eventually([&] { return engine_.num_live() == 1; }));
    answer->cancel();
  });
  const auto ended = whole(*answer);
  canceller.join();
  EXPECT_TRUE(ended.ended && ended.broken);
  EXPECT_TRUE(eventually([&] { return engine_.num_live() == 0; }));
}

TEST_F(LocalServing, StopEndsWhatRunsAndRefusesTheRest) {
  engine_.hold(true);
  const auto running = server_->ask("POST", "/v1/completions", kEndless);
  const auto streaming = server_->ask("POST", "/v1/completions", kEndlessStream);
  ASSERT_TRUE(eventually([&] { return engine_.num_live() == 2; }));
  server_->stop();
  EXPECT_EQ(whole(*running).status, 503);
  EXPECT_NE(whole(*streaming).data.find("\"error\""), std::string::npos);
  EXPECT_EQ(post("/v1/completions", kAsked).status, 503);
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a"})").status, 503);
  server_.reset();
  EXPECT_EQ(whole(*running).status, 503) << "answers outlive their server";
}

TEST_F(LocalServing, ManyAreAnsweredAtOnce) {
  std::vector<std::shared_ptr<LocalAnswer>> answers;
  for (int i = 0; i < 300; ++i) {
    answers.push_back(server_->ask("POST", "/v1/completions",
                                   fmt::format(R"({{"prompt":"{}","max_tokens":2}})", i)));
  }
  for (const auto& answer : answers) EXPECT_EQ(whole(*answer).status, 200);
  EXPECT_EQ(engine_.num_submitted(), 300u);
}

}  // namespace local_server_test
}  // namespace headrace
