// run and chat against a server: what it is asked, and what is made of what it says.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "cli/answers.h"
#include "cli/testing/scripted_server.h"

namespace headrace {
namespace server_answers_test {

namespace json = boost::json;
using testing::http_answer;
using testing::http_stream;
using testing::ScriptedServer;
using testing::SeenRequest;
using Pieces = std::vector<std::string>;

constexpr const char* kTwoModels =
    R"({"data":[{"id":"first","max_model_len":100},{"id":"second","max_model_len":200}]})";

std::string sse(std::string_view event) { return fmt::format("data: {}\n\n", event); }
std::string sse_delta(std::string_view text) {
  return sse(fmt::format(R"({{"choices":[{{"delta":{{"content":"{}"}}}}]}})", text));
}
std::string sse_reason(std::string_view reason) {
  return sse(fmt::format(R"({{"choices":[{{"delta":{{}},"finish_reason":"{}"}}]}})", reason));
}

// A server with two models that gives every other request these pieces.
class ServerAnswersTest : public ::testing::Test {
 protected:
  void serve(Pieces pieces, std::string models = kTwoModels) {
    server_ = std::make_unique<ScriptedServer>(
        [pieces = std::move(pieces), models = std::move(models)](const SeenRequest& request) {
          return request.line.starts_with("GET /v1/models ") ? Pieces{http_answer(200, models)}
                                                             : pieces;
        });
  }
  void stream(Pieces events) {
    events.insert(events.begin(), http_stream());
    serve(std::move(events));
  }

  Result<std::unique_ptr<AnswerSource>> open(const std::string& model = "",
                                             OptionTexts given = {}) {
    given["--server"] = server_->url() + "/v1/";
    options_ = std::make_unique<Options>(Options::create("chat", given, {}).value());
    return open_answers(*options_, model, !model.empty());
  }

  // The answer to "Hi"; what was written is in written_.
  Result<Answer> ask(const OptionTexts& given = {}) {
    auto source = open("", given);
    if (!source.ok()) return std::move(source).error();
    Question question;
    question.messages = &messages_;
    question.settings = request_from_options(*options_, (*source)->sampling());
    question.stops = stop_strings_from_options(*options_);
    question.write = [this](std::string_view text) {
      written_ += text;
      return written_.size() < max_written_;
    };
    return (*source)->answer(std::move(question));
  }
  json::object last_body() const { return json::parse(server_->seen().back().body).as_object(); }

  const json::array messages_{{{"role", "user"}, {"content", "Hi"}}};
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<Options> options_;
  std::string written_;
  size_t max_written_ = 1000;
};

TEST_F(ServerAnswersTest, TheFirstModelAnswersWhereNoneIsNamed) {
  serve({});
  const auto first = open();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ((*first)->name(), "first at " + server_->url());
  EXPECT_EQ((*first)->context().num_tokens, 100);
  EXPECT_FALSE((*first)->is_base());
  EXPECT_EQ((*open("second"))->context().num_tokens, 200);
  // An alias or an adapter that the list does not show is asked for as it was typed.
  EXPECT_EQ((*open("other"))->name(), "other at " + server_->url());
}

TEST_F(ServerAnswersTest, AListThatTellsLessIsEnough) {
  for (const char* list :
       {R"({"data":[{"id":"m"}]})", R"({"data":[{"id":"m","max_model_len":null}]})",
        R"({"data":[{"id":"m","max_model_len":4096.5}]})",
        R"({"data":[{"id":"m","max_model_len":1e300}]})",
        R"({"data":[{"id":"m","max_model_len":99999999999999999999}]})",
        R"({"data":[{"id":"m","max_model_len":-1}]})", R"({"data":[{"id":"m"}, 7, null]})"}) {
    serve({}, list);
    const auto source = open();
    ASSERT_TRUE(source.ok()) << list << source.error().message;
    EXPECT_EQ((*source)->name(), "m at " + server_->url()) << list;
    EXPECT_GT((*source)->context().num_tokens, int64_t{1} << 32) << list;  // the server decides
  }
  serve({}, R"({"data":[{"id":"m","max_model_len":4096.0}]})");
  EXPECT_EQ((*open())->context().num_tokens, 4096);
}

TEST_F(ServerAnswersTest, AListWithoutAModelIsNoSource) {
  for (const char* list : {R"({"data":[]})", R"({"data":7})", "[]", "no JSON", ""}) {
    serve({}, list);
    const auto source = open();
    ASSERT_FALSE(source.ok()) << list;
    EXPECT_EQ(source.error().code, ErrorCode::kNotFound) << list;
    EXPECT_EQ(source.error().message, server_->url() + " serves no model");
    EXPECT_TRUE(open("named").ok()) << list;
  }
}

TEST_F(ServerAnswersTest, RefusalsSayWhatTheServerSays) {
  struct Case {
    int status;
    std::string_view body, message;
    ErrorCode code;
  };
  const Case cases[] = {
      {401, R"({"error":{"message":"no key"}})", "no key", ErrorCode::kInvalidArgument},
      {404, R"({"error":{"message":"no model"}})", "no model", ErrorCode::kNotFound},
      {400, R"({"error":"as Ollama says it"})", "as Ollama says it", ErrorCode::kInvalidArgument},
      {500, "<html>oops</html>", "status 500", ErrorCode::kInvalidArgument},
      {503, R"({"error":{"message":7}})", "status 503", ErrorCode::kInvalidArgument},
      {502, R"(["error"])", "status 502", ErrorCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    serve({http_answer(c.status, c.body)});
    const auto answer = ask();
    ASSERT_FALSE(answer.ok()) << c.body;
    EXPECT_EQ(answer.error().code, c.code) << c.body;
    EXPECT_EQ(answer.error().message, fmt::format("{}: {}", server_->url(), c.message));
    EXPECT_EQ(answer.error().hint.empty(), c.status != 401) << answer.error().hint;
  }
}

TEST_F(ServerAnswersTest, TextComesAsItIsSaid) {
  stream({": a comment\n", "event: message\n", sse_delta("Hel"), sse_delta("lo"), sse("no JSON"),
          sse("[1,2]"), sse_reason("stop"),
          sse(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}})"), sse("[DONE]"),
          sse_delta(" and nothing after the end")});
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "Hello");
  EXPECT_EQ(written_, "Hello");
  EXPECT_EQ(answer->reason, FinishReason::kStop);
  EXPECT_EQ(answer->usage.prompt_tokens, 7);
  EXPECT_EQ(answer->usage.output_tokens, 2);
  EXPECT_GE(answer->times.first_token, answer->times.submitted);
  EXPECT_GE(answer->times.finished, answer->times.first_token);
}

// Networks cut anywhere: in a line, in a character of several bytes, between CR and LF.
TEST_F(ServerAnswersTest, LinesMayBeCutAnywhere) {
  std::string whole = sse_delta("Grüße, 日本") + sse_reason("length") + sse("[DONE]");
  for (size_t at = 0; (at = whole.find('\n', at)) != std::string::npos; at += 2) {
    whole.insert(at, "\r");
  }
  for (const size_t size : {1u, 3u, 7u}) {
    Pieces pieces;
    for (size_t at = 0; at < whole.size(); at += size) pieces.push_back(whole.substr(at, size));
    stream(pieces);
    written_.clear();
    const auto answer = ask();
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->text, "Grüße, 日本") << size;
    EXPECT_EQ(answer->reason, FinishReason::kLength) << size;
  }
}

TEST_F(ServerAnswersTest, OddMembersAreNotText) {
  stream({sse(R"({"choices":[{"delta":{"content":null}}]})"),
          sse(R"({"choices":[{"delta":{"content":7}}]})"), sse(R"({"choices":[{"delta":null}]})"),
          sse(R"({"choices":[7],"error":null})"), sse(R"({"choices":{"delta":1}})"),
          sse(R"({"usage":{"prompt_tokens":1.5,"completion_tokens":-1e99}})"),
          "data:" + sse_delta("ok").substr(6), sse_reason("tool_calls")});
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "ok");
  EXPECT_EQ(answer->reason, FinishReason::kStop);
  EXPECT_EQ(answer->usage.prompt_tokens, 0);
  EXPECT_EQ(answer->usage.output_tokens, 0);
}

TEST_F(ServerAnswersTest, AnAnswerWithoutAnEndIsAnError) {
  struct Case {
    Pieces events;
    std::string_view message;
  };
  const std::string_view kNoReason = "the server ended its answer without a reason";
  const Case cases[] = {
      {{}, kNoReason},
      {{sse_delta("half")}, kNoReason},
      {{sse_delta("half"), sse("[DONE]")}, kNoReason},
      {{sse_delta("half"), R"(data: {"choices":[{"finish_reason":"stop"}]})"}, kNoReason},
      {{sse(R"({"error":{"message":"out of blocks"}})"), sse_reason("stop")}, "out of blocks"},
      {{sse(R"({"error":"short"})")}, "the server failed while it answered"},
  };
  for (const Case& c : cases) {
    stream(c.events);
    const auto answer = ask();
    ASSERT_FALSE(answer.ok()) << c.message;
    EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(answer.error().message, c.message);
  }
}

TEST_F(ServerAnswersTest, WhereNobodyReadsTheAnswerEnds) {
  max_written_ = 3;
  stream(
      {sse_delta("12"), sse_delta("34"), sse_delta("56"), std::string(ScriptedServer::kSilence)});
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "1234");
  EXPECT_EQ(answer->reason, FinishReason::kCancelled);
}

TEST_F(ServerAnswersTest, AnInterruptedAnswerIsWhatThereIs) {
  stream({sse_delta("so far"), std::string(ScriptedServer::kSilence)});
  const auto source = open();
  std::atomic<bool> interrupted = false;
  Question question;
  question.messages = &messages_;
  question.write = [&](std::string_view) { return interrupted = true; };
  question.interrupted = &interrupted;
  const auto answer = (*source)->answer(std::move(question));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->text, "so far");
  EXPECT_EQ(answer->reason, FinishReason::kCancelled);
}

TEST_F(ServerAnswersTest, OnlyWhatWasChosenIsSent) {
  stream({sse_reason("stop")});
  ASSERT_TRUE(ask({{"--api-key", "hr-key"}}).ok());
  json::object body = last_body();
  EXPECT_EQ(server_->seen().back().line, "POST /v1/chat/completions HTTP/1.1");
  EXPECT_NE(server_->seen().back().head.find("Bearer hr-key\r\n"), std::string::npos);
  EXPECT_EQ(body.at("model"), "first");
  EXPECT_EQ(body.at("messages"), messages_);
  EXPECT_TRUE(body.at("stream").as_bool());
  EXPECT_TRUE(body.at("stream_options").at("include_usage").as_bool());
  EXPECT_TRUE(body.contains("seed"));
  for (const char* field :
       {"prompt", "stop", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "ignore_eos"}) {
    EXPECT_FALSE(body.contains(field)) << field;
  }
  ASSERT_TRUE(ask({{"--temperature", "0"},
                   {"--top-p", "0.5"},
                   {"--top-k", "3"},
                   {"--min-p", "0.25"},
                   {"--seed", "11"}})
                  .ok());
  body = last_body();
  EXPECT_EQ(body.at("temperature").to_number<double>(), 0);
  EXPECT_EQ(body.at("top_p").to_number<double>(), 0.5);
  EXPECT_EQ(body.at("top_k").to_number<int>(), 3);
  EXPECT_EQ(body.at("min_p").to_number<double>(), 0.25);
  EXPECT_EQ(body.at("seed").to_number<int>(), 11);
}

TEST_F(ServerAnswersTest, TheFormOfTheAnswerIsTold) {
  stream({sse_delta("7"), sse_reason("stop")});
  const auto source = open();
  Question question;
  question.messages = &messages_;
  question.structure = {Structure::Kind::kRegex, "[0-9]", "--regex"};
  question.write = [](std::string_view) { return true; };
  ASSERT_TRUE((*source)->answer(std::move(question)).ok());
  EXPECT_EQ(last_body().at("structured_outputs"), (json::object{{"regex", "[0-9]"}}));
  ASSERT_TRUE(ask().ok());
  EXPECT_FALSE(last_body().contains("structured_outputs"));
}

TEST_F(ServerAnswersTest, ATextIsContinuedByItsOwnRoute) {
  stream({sse(R"({"choices":[{"text":" upon a time","finish_reason":"length"}]})")});
  const auto source = open("second");
  std::string written;
  Question question;
  question.text = "Once";
  question.stops = {"end", "\n\n"};
  question.settings.ignore_eos = true;
  question.settings.max_tokens = 4;
  question.write = [&](std::string_view text) { return !(written += text).empty(); };
  const auto answer = (*source)->answer(std::move(question));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(written, " upon a time");
  EXPECT_EQ(answer->reason, FinishReason::kLength);
  EXPECT_EQ(server_->seen().back().line, "POST /v1/completions HTTP/1.1");
  const json::object body = last_body();
  EXPECT_EQ(body.at("model"), "second");
  EXPECT_EQ(body.at("prompt"), "Once");
  EXPECT_EQ(body.at("stop"), (json::array{"end", "\n\n"}));
  EXPECT_EQ(body.at("max_tokens").as_int64(), 4);
  EXPECT_TRUE(body.at("ignore_eos").as_bool());
  EXPECT_FALSE(body.contains("messages"));
}

TEST_F(ServerAnswersTest, IdsAreShownWhereTheServerHasThem) {
  struct Case {
    int status;
    std::string_view body;
    std::vector<int32_t> ids;
  };
  const Case cases[] = {
      {200, R"({"tokens":[1,2,300]})", {1, 2, 300}},
      {200, R"({"tokens":[1,"x",2.5]})", {1, 0, 0}},
      {200, R"({"tokens":null})", {}},
      {200, "no JSON", {}},
      {404, "no such route", {}},
      {405, "", {}},
      {501, "{}", {}},
  };
  for (const Case& c : cases) {
    serve({http_answer(c.status, c.body)});
    const auto source = open();
    const auto ids = (*source)->encode_text("Hi");
    ASSERT_TRUE(ids.ok()) << c.body << ids.error().message;
    EXPECT_EQ(*ids, c.ids) << c.body;
    EXPECT_EQ(last_body(), (json::object{{"model", "first"}, {"prompt", "Hi"}}));
    EXPECT_EQ(*(*source)->encode_messages(messages_, false), c.ids) << c.body;
    EXPECT_EQ(last_body().at("messages"), messages_);
  }
  serve({http_answer(400, R"({"error":{"message":"too long"}})")});
  const auto refused = (*open())->encode_text("Hi");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, server_->url() + ": too long");
}

}  // namespace server_answers_test
}  // namespace headrace
