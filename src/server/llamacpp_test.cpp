// llama.cpp's routes over HTTP, against a scripted engine.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>

#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/test_support.h"

namespace headrace {
namespace llamacpp_test {

using test::Client;
using test::RunningServer;
using test::Script;

class LlamaRoutes : public ::testing::Test {
 protected:
  test::ClientResponse ask(const std::string& members, const std::string& path = "/completion") {
    return Client(server_.port()).post(path, "{" + members + "}");
  }
  boost::json::value answer(const std::string& members) {
    const auto response = ask(members);
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_body(response.body).value();
  }
  Request last_request() { return server_.engine().last_request(); }

  RunningServer server_{Script{.reply = "ab\nc"}};
};

TEST_F(LlamaRoutes, ACompletionIsWhole) {
  const auto body = answer(R"("prompt":"Hi","n_predict":3,"return_tokens":true)");
  EXPECT_EQ(body.at("content").as_string(), "ab\n");
  EXPECT_EQ(to_text(body.at("tokens")), "[97,98,10]");
  EXPECT_TRUE(body.at("stop").as_bool());
  EXPECT_EQ(body.at("stop_type").as_string(), "limit");
  EXPECT_TRUE(body.at("has_new_line").as_bool());
  EXPECT_EQ(body.at("tokens_predicted").as_int64(), 3);
  EXPECT_EQ(body.at("tokens_evaluated").as_int64(), 3);
  EXPECT_EQ(body.at("generation_settings").at("n_predict").as_int64(), 3);
  EXPECT_EQ(body.at("timings").at("predicted_n").as_int64(), 3);
  EXPECT_EQ(to_text(answer(R"("prompt":"Hi")").at("tokens")), "[]");
}

TEST_F(LlamaRoutes, EveryWayToEndHasItsType) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("prompt":"Hi")", "eos"},
      {R"("prompt":"Hi","n_predict":1)", "limit"},
      {R"("prompt":"Hi","stop":["b"])", "word"},
  };
  for (const auto& [members, type] : cases) {
    EXPECT_EQ(answer(members).at("stop_type").as_string(), type) << members;
  }
  EXPECT_EQ(answer(R"("prompt":"Hi","stop":["b"])").at("stopping_word").as_string(), "b");
}

TEST_F(LlamaRoutes, AStreamIsOfEventsAndEndsWithStop) {
  const auto response = ask(R"("prompt":"Hi","stream":true,"n_probs":1)");
  EXPECT_NE(response.head.find("Content-Type: text/event-stream"), std::string::npos);
  std::string text;
  const auto events = test::events_of(response.body);
  for (const std::string& event : events) {
    const auto json = parse_body(event).value();
    text += json.at("content").as_string().c_str();
    EXPECT_EQ(json.at("stop").as_bool(), &event == &events.back());
    if (json.at("stop").as_bool()) continue;
    const auto& scores = json.at("completion_probabilities").as_array();
    ASSERT_EQ(scores.size(), 1u);
    EXPECT_EQ(scores[0].at("top_logprobs").as_array().size(), 1u);
    EXPECT_TRUE(scores[0].as_object().contains("logprob"));
  }
  EXPECT_EQ(text, "ab\nc");
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
}

TEST_F(LlamaRoutes, PromptsAreTextIdsOrBoth) {
  const std::pair<const char*, std::vector<int32_t>> cases[] = {
      {R"("prompt":"Hi")", {test::kBos, 'H', 'i'}},
      {R"("prompt":[72,105])", {'H', 'i'}},
      {R"("prompt":["H",105,"!"])", {test::kBos, 'H', 'i', '!'}},
      {R"("prompt":[72,"i"])", {'H', 'i'}},
  };
  for (const auto& [members, ids] : cases) {
    answer(members);
    EXPECT_EQ(last_request().prompt_ids, ids) << members;
  }
}

TEST_F(LlamaRoutes, SamplingIsReadOrRefusedByName) {
  answer(R"("prompt":"Hi","temperature":0.25,"top_k":3,"repeat_penalty":1.5,"ignore_eos":true,
            "n_predict":7,"seed":-1,"cache_prompt":false,"logit_bias":[[65,-2.5],[66,false]],
            "dry_multiplier":0.0,"samplers":["temperature","penalties","top_k"])");
  const Request request = last_request();
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.logit_bias.size(), 2u);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.max_tokens, 7);
  const std::pair<const char*, const char*> cases[] = {
      {R"("n_predict":3)", "prompt is missing"},
      {R"("prompt":{})", "prompt is an object"},
      {R"("prompt":[])", "prompt is a list of 0"},
      {R"("prompt":[true])", "prompt is true"},
      {R"("prompt":[999])", "prompt holds 999"},
      {R"("prompt":"a","mirostat":1)", "mirostat is 1"},
      {R"("prompt":"a","samplers":["nucleus"])", "samplers is \\\"nucleus\\\""},
      {R"("prompt":"a","grammar":"root ::= x","json_schema":{})", "grammar is given"},
      {R"("prompt":"a","repeat_penalty":1.1,"repeat_last_n":9)", "repeat_last_n is 9"},
  };
  for (const auto& [members, message] : cases) {
    const auto response = ask(members);
    EXPECT_EQ(response.status, 400) << members;
    EXPECT_TRUE(
        response.body.starts_with(fmt::format(R"({{"error":{{"code":400,"message":"{})", message)))
        << response.body;
    EXPECT_NE(response.body.find(R"("type":"invalid_request_error"}})"), std::string::npos);
  }
}

TEST_F(LlamaRoutes, OfNoTokensThePromptAloneIsComputed) {
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto response = ask(fmt::format(R"("prompt":"Hi","n_predict":0{})", more));
    const auto body =
        parse_body(*more == 0 ? response.body : test::events_of(response.body).back());
    ASSERT_TRUE(body.ok()) << response.body;
    EXPECT_EQ(body->at("content").as_string(), "");
    EXPECT_EQ(body->at("stop_type").as_string(), "limit");
    EXPECT_EQ(body->at("tokens_predicted").as_int64(), 0);
    EXPECT_EQ(body->at("tokens_evaluated").as_int64(), 3);
    EXPECT_EQ(last_request().max_tokens, 1);
  }
  EXPECT_EQ(server_.engine().num_submitted(), 2u);
}

TEST_F(LlamaRoutes, ALineThatIsIndentedLessEndsTheAnswer) {
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto response = ask(fmt::format(R"("prompt":"Hi","n_indent":1{})", more));
    std::string text;
    const auto events = *more == 0 ? std::vector{response.body} : test::events_of(response.body);
    for (const std::string& event : events) {
      text += parse_body(event).value().at("content").as_string().c_str();
    }
    EXPECT_EQ(text, "ab\n");
    const auto last = parse_body(events.back()).value();
    EXPECT_EQ(last.at("stop_type").as_string(), "limit");
    EXPECT_EQ(last.at("tokens_predicted").as_int64(), 4);
  }
  EXPECT_EQ(answer(R"("prompt":"Hi","n_indent":0,"t_max_predict_ms":86400000)").at("content"),
            "ab\nc");
}

TEST_F(LlamaRoutes, SomeMembersOfTheAnswerAreToldByTheirPaths) {
  const std::string fields =
      R"("prompt":"Hi","response_fields":["content","timings/predicted_n","no/such","stop_type"])";
  constexpr std::string_view kEnd = R"("timings/predicted_n":4,"stop_type":"eos"})";
  EXPECT_EQ(ask(fields).body, R"({"content":"ab\nc",)" + std::string(kEnd));
  const auto streamed = ask(fields + R"(,"stream":true)");
  EXPECT_EQ(test::events_of(streamed.body).back(), R"({"content":"",)" + std::string(kEnd));
  EXPECT_EQ(ask(R"("prompt":"Hi","response_fields":[""])").body, "{}");
  EXPECT_EQ(ask(R"("prompt":"Hi","response_fields":[1])").status, 400);
}

TEST_F(LlamaRoutes, ATemplateIsApplied) {
  const auto made =
      ask(R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"Hi"}])",
          "/apply-template");
  EXPECT_EQ(made.body, R"({"prompt":"<s>[system]s\n[user]Hi\n[assistant]"})");
  EXPECT_EQ(ask(R"("messages":[])", "/apply-template").status, 400);
  EXPECT_EQ(server_.engine().num_submitted(), 0u);
}

// The scripted model has no marks for it: what a model that has them reads is tested below.
TEST_F(LlamaRoutes, FillingInNeedsAModelForIt) {
  const auto response = ask(R"("input_prefix":"a","input_suffix":"b")", "/infill");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("this model was not trained to fill in"), std::string::npos)
      << response.body;
}

TEST(LlamaInfill, FilesMarksAndTheBeginningOfTheAnswer) {
  TextBundle bundle = test::make_bundle();
  bundle.infill = InfillMarks{1, 2, 3, false, {4}};
  const ModelInfo info = test::make_model_info();
  const std::vector<std::string> names = {"scripted"};
  const ServingModel model{bundle, info, names, 1000};
  const auto body = parse_body(R"({"input_prefix":"P","input_suffix":"S","prompt":"Q",
                                   "input_extra":[{"filename":"f","text":"T"}]})")
                        .value();
  const auto parsed = parse_llama_infill(body.get_object(), model);
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const auto& ids = std::get<PromptIds>(parsed->prompts.items.front());
  EXPECT_EQ(ids, (PromptIds{test::kBos, 'f', '\n', 'T', '\n', '\n', 1, 'P', 2, 'S', 3, 'Q'}));
  EXPECT_EQ(parsed->request.prototype.stop_ids, std::vector<int32_t>{4});
  for (const char* bad : {R"({"input_extra":7})", R"({"input_extra":[7]})",
                          R"({"input_extra":[{"filename":"f"}]})", R"({"input_prefix":7})"}) {
    EXPECT_FALSE(parse_llama_infill(parse_body(bad).value().get_object(), model).ok()) << bad;
  }
}

TEST_F(LlamaRoutes, PropsAndSlotsSayWhatRuns) {
  Client client(server_.port());
  const auto props = parse_body(client.get("/props").body).value();
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 4096);
  EXPECT_EQ(props.at("bos_token").as_string(), "<s>");
  EXPECT_EQ(props.at("total_slots").as_int64(), 1);
  EXPECT_EQ(parse_body(client.get("/slots").body).value().as_array().size(), 1u);
  server_.engine().hold(true);
  Client running(server_.port());
  running.send(
      "POST /completions HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n"
      R"({"prompt":"a"})");
  ASSERT_TRUE(test::eventually([&] { return server_.engine().num_live() == 1; }));
  const auto slots = parse_body(client.get("/slots").body).value();
  ASSERT_EQ(slots.as_array().size(), 2u);
  EXPECT_TRUE(slots.as_array()[0].at("is_processing").as_bool());
  EXPECT_FALSE(slots.as_array()[1].at("is_processing").as_bool());
  server_.engine().hold(false);
  EXPECT_TRUE(running.receive().complete);
}

}  // namespace llamacpp_test
}  // namespace headrace
