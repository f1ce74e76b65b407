// Answers as llama.cpp's clients read them: whole ones and events, from parts as parsers make them.

#include <gtest/gtest.h>

#include <limits>

#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/api/test_support.h"

namespace headrace {
namespace llamacpp_render_test {

using PartKind = OutputPart::Kind;

class LlamaAnswers : public testing::Test {
 protected:
  std::unique_ptr<AnswerRenderer> make(LlamaAnswer answer = {"m", 0, false, "{}"}) const {
    return make_llama_renderer(model_, std::move(answer));
  }
  static ChoiceDelta text(std::string text, Finish finish = {}) {
    return {0, {{PartKind::kText, std::move(text), 0, {}, {}}}, {}, std::move(finish)};
  }
  static ChoiceDelta end(Finish::Kind kind, std::string stop = {}) {
    return {0, {}, {}, {kind, std::move(stop)}};
  }
  static AnswerEnd used(int32_t prompt, int32_t output, int32_t cached = 0,
                        RequestTimes times = {}) {
    AnswerEnd end;
    end.usage.prompt_tokens = prompt;
    end.usage.output_tokens = output;
    end.usage.cached_tokens = cached;
    end.times = times;
    return end;
  }
  static std::string whole(AnswerRenderer& renderer, const ChoiceDelta& choice,
                           const AnswerEnd& end) {
    JsonWriter json;
    renderer.begin_whole(json);
    renderer.add_choice(choice, json);
    renderer.end_whole(end, json);
    return json.take();
  }
  // The event that ends a stream.
  static boost::json::value last_of(AnswerRenderer& renderer, const AnswerEnd& end = {}) {
    return parse_body(test::events_of(renderer.end_stream(end)).at(0)).value();
  }

  TextBundle bundle_ = test::make_bundle();
  ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
};

TEST_F(LlamaAnswers, AWholeAnswerIsOneObject) {
  const auto renderer = make({"m", 0, true, R"({"top_k":7})"});
  renderer->see_token('a');
  renderer->see_token('\n');
  EXPECT_EQ(whole(*renderer, text("a\n", {Finish::Kind::kStopString, "END"}),
                  used(10, 4, 2, {1'000, 2'000, 6'000, 14'000})),
            R"({"index":0,"content":"a\n","tokens":[97,10],"id_slot":0,"stop":true,"model":"m",)"
            R"("tokens_predicted":4,"tokens_evaluated":10,"generation_settings":{"top_k":7},)"
            R"("has_new_line":true,"truncated":false,"stop_type":"word","stopping_word":"END",)"
            R"("tokens_cached":14,"timings":{"cache_n":2,"prompt_n":8,"prompt_ms":4,)"
            R"("prompt_per_token_ms":0.5,"prompt_per_second":2000,"predicted_n":4,)"
            R"("predicted_ms":8,"predicted_per_token_ms":2,"predicted_per_second":500}})");
}

TEST_F(LlamaAnswers, EveryEndHasItsType) {
  const std::pair<Finish::Kind, const char*> cases[] = {
      {Finish::Kind::kNone, "none"},     {Finish::Kind::kEnd, "eos"},
      {Finish::Kind::kLength, "limit"},  {Finish::Kind::kStopString, "word"},
      {Finish::Kind::kToolCalls, "eos"},
  };
  for (const auto& [kind, type] : cases) {
    const auto renderer = make();
    const auto body = parse_body(whole(*renderer, text("a", {kind, {}}), used(1, 1))).value();
    EXPECT_EQ(body.at("stop_type").as_string(), type);
    EXPECT_EQ(body.at("stopping_word").as_string(), "");
  }
}

TEST_F(LlamaAnswers, APieceSaysWhatCameSinceTheLast) {
  const auto renderer = make({"m", 0, true, "{}"});
  Usage so_far;
  so_far.prompt_tokens = 3;
  so_far.output_tokens = 2;
  renderer->see_token('H');
  renderer->see_token('i');
  EXPECT_EQ(renderer->chunk(text("Hi"), so_far),
            R"(data: {"index":0,"content":"Hi","tokens":[72,105],"stop":false,"id_slot":0,)"
            R"("tokens_predicted":2,"tokens_evaluated":3})"
            "\n\n");
  // Half a character shows nothing yet; its id comes with the rest.
  renderer->see_token(0xC3);
  EXPECT_EQ(renderer->chunk(text(""), so_far), "");
  renderer->see_token(0xBC);
  const auto events = test::events_of(renderer->chunk(text("\u00FC"), so_far));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].starts_with("{\"index\":0,\"content\":\"\u00FC\",\"tokens\":[195,188],"))
      << events[0];
  renderer->see_token('!');
  EXPECT_EQ(to_text(last_of(*renderer).at("tokens")), "[33]");
}

TEST_F(LlamaAnswers, IdsAreShownToThoseWhoAsk) {
  const auto renderer = make();
  renderer->see_token('H');
  EXPECT_NE(renderer->chunk(text("H"), {}).find(R"("tokens":[])"), std::string::npos);
}

TEST_F(LlamaAnswers, TheEndRemembersTheStream) {
  const auto renderer = make();
  EXPECT_NE(renderer->chunk(text("a\nb"), {}), "");
  EXPECT_NE(renderer->chunk(text("c"), {}), "");
  EXPECT_EQ(renderer->chunk(end(Finish::Kind::kStopString, "##"), {}), "");
  const auto last = last_of(*renderer, used(2, 3));
  EXPECT_EQ(last.at("content").as_string(), "");
  EXPECT_TRUE(last.at("stop").as_bool());
  EXPECT_TRUE(last.at("has_new_line").as_bool());
  EXPECT_EQ(last.at("stop_type").as_string(), "word");
  EXPECT_EQ(last.at("stopping_word").as_string(), "##");
  EXPECT_EQ(last.at("tokens_cached").as_int64(), 5);
  EXPECT_FALSE(last_of(*make()).at("has_new_line").as_bool());
}

TEST_F(LlamaAnswers, AllPartsAreOneText) {
  const auto renderer = make();
  const ChoiceDelta choice{0,
                           {{PartKind::kReasoning, "hm ", 0, {}, {}},
                            {PartKind::kText, "so ", 0, {}, {}},
                            {PartKind::kToolCall, "{}", 0, "id", "f"},
                            {PartKind::kRefusal, " \xFF", 0, {}, {}}},
                           {},
                           {Finish::Kind::kEnd, {}}};
  const std::string body = whole(*renderer, choice, used(1, 1));
  EXPECT_TRUE(body.starts_with("{\"index\":0,\"content\":\"hm so {} \uFFFD\",")) << body;
}

// A rate of nothing, or over no time, is 0 and never a division.
TEST_F(LlamaAnswers, TimesThatAreNotKnownAreZero) {
  struct Case {
    AnswerEnd end;
    const char* prompt;
    const char* predicted;
  };
  const char* const kNoPrompt = R"("prompt_ms":0,"prompt_per_token_ms":0,"prompt_per_second":0,)";
  const char* const kNoAnswer =
      R"("predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0})";
  const Case cases[] = {
      {used(5, 3), kNoPrompt, kNoAnswer},
      {used(5, 0, 0, {1, 1, 0, 9}), kNoPrompt, kNoAnswer},  // no token came
      {used(5, 3, 0, {9'000, 9'000, 9'000, 9'000}), kNoPrompt, kNoAnswer},
      {used(5, 3, 5, {1'000, 1'000, 3'000, 2'000}),  // all of it was cached
       R"("prompt_n":0,"prompt_ms":2,"prompt_per_token_ms":0,"prompt_per_second":0,)", kNoAnswer},
  };
  for (const Case& each : cases) {
    const std::string event = make()->end_stream(each.end);
    EXPECT_NE(event.find(each.prompt), std::string::npos) << event;
    EXPECT_NE(event.find(each.predicted), std::string::npos) << event;
  }
}

TEST_F(LlamaAnswers, ScoresAreOfEachToken) {
  const auto renderer = make({"m", 2, false, "{}"});
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  ChoiceDelta delta = text("A\xC3");
  renderer->add_score(
      {'A', TokenLogprobs{-0.5f, 1, {{'A', -0.5f}, {test::kBos, kNone}, {7, -9}}}, 0},
      delta.scores);
  renderer->add_score({0xC3, TokenLogprobs{kNone, 9, {}}, 1}, delta.scores);
  const std::string event = renderer->chunk(delta, {});
  const std::string shown =
      R"("completion_probabilities":[{"id":65,"token":"A","bytes":[65],"logprob":-0.5,)"
      R"("top_logprobs":[{"id":65,"token":"A","bytes":[65],"logprob":-0.5},)"
      R"({"id":256,"token":"<s>","bytes":[60,115,62],"logprob":-9999}]},)"
      "{\"id\":195,\"token\":\"\uFFFD\",\"bytes\":[195],\"logprob\":-9999,\"top_logprobs\":[]}]";
  EXPECT_NE(event.find(shown), std::string::npos) << event;
  const std::string body = whole(*renderer, delta, used(1, 2));
  EXPECT_NE(body.find(shown), std::string::npos) << body;
  EXPECT_EQ(body.find("completion_probabilities", body.find("completion_probabilities") + 1),
            std::string::npos);
}

TEST_F(LlamaAnswers, TokensWithoutTextAreAnEventIfTheyHaveScores) {
  const auto renderer = make({"m", 0, false, "{}"});
  ChoiceDelta delta;
  renderer->add_score({'A', std::nullopt, 0}, delta.scores);  // none is known of it
  EXPECT_NE(renderer->chunk(delta, {}).find(R"("content":"")"), std::string::npos);
  EXPECT_NE(renderer->chunk(delta, {}).find(R"("completion_probabilities":[])"), std::string::npos);
  EXPECT_EQ(renderer->chunk(ChoiceDelta(), {}), "");
}

TEST_F(LlamaAnswers, AnErrorInTheStreamIsAnEvent) {
  EXPECT_EQ(make()->stream_error(Error{ErrorCode::kExhausted, "too slow", "read faster", {}}),
            R"-(data: {"error":{"code":429,"message":"too slow (read faster)",)-"
            R"("type":"rate_limit_error"}})"
            "\n\n");
}

TEST(LlamaErrors, AreNamedByTheirStatus) {
  const std::pair<int, const char*> cases[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {413, "invalid_request_error"}, {422, "invalid_request_error"},
      {429, "rate_limit_error"},      {500, "server_error"},
      {501, "server_error"},          {503, "unavailable_error"},
  };
  for (const auto& [status, type] : cases) {
    EXPECT_EQ(kLlamaCpp.error_body(Problem{status, "m"}),
              fmt::format(R"({{"error":{{"code":{},"message":"m","type":"{}"}}}})", status, type));
  }
}

// This form has no place of its own for the field.
TEST(LlamaErrors, TheMessageNamesTheField) {
  const auto message = [](std::string text, std::string param) {
    const auto body =
        parse_body(kLlamaCpp.error_body(Problem{400, std::move(text), std::move(param)})).value();
    return std::string(body.at("error").at("message").as_string().c_str());
  };
  EXPECT_EQ(message("too long", "prompt"), "prompt: too long");
  EXPECT_EQ(message("the prompt is too long", "prompt"), "the prompt is too long");
  EXPECT_EQ(message("\"quoted\"", ""), "\"quoted\"");
}

TEST(LlamaSettings, AreThoseOfTheRequest) {
  GenerationRequest request;
  request.stop = {"x", "\"y\""};
  request.stream = true;
  Request& asked = request.prototype;
  asked.max_tokens = 12;
  asked.num_logprobs = 3;
  asked.ignore_eos = true;
  asked.sampling.temperature = 0.1f;  // as it was sent, not as a double sees it
  asked.sampling.top_k = 7;
  asked.sampling.top_p = 0.25f;
  asked.sampling.min_p = 0.125f;
  asked.sampling.typical_p = 0.9f;
  asked.sampling.mirostat = true;
  asked.sampling.dry.multiplier = 0.8f;
  asked.sampling.repetition_penalty = 1.5f;
  asked.sampling.presence_penalty = 0.75f;
  asked.sampling.frequency_penalty = -0.5f;
  EXPECT_EQ(llama_settings(request),
            R"({"temperature":0.1,"top_k":7,"top_p":0.25,"min_p":0.125,"typical_p":0.9,)"
            R"("top_n_sigma":0,"xtc_probability":0,"xtc_threshold":0.1,"mirostat":2,)"
            R"("mirostat_tau":5,"mirostat_eta":0.1,"dry_multiplier":0.8,"dry_base":1.75,)"
            R"("dry_allowed_length":2,"dry_penalty_last_n":-1,"repeat_penalty":1.5,)"
            R"("repeat_last_n":-1,"presence_penalty":0.75,"frequency_penalty":-0.5,)"
            R"("n_predict":12,"max_tokens":12,"n_probs":3,"ignore_eos":true,"stream":true,)"
            R"("stop":["x","\"y\""]})");
}

TEST_F(LlamaAnswers, PropsAreOfTheModel) {
  bundle_.sampling.temperature = 0.25f;
  info_.file = "a \"b\".gguf";
  const auto props = parse_body(llama_props(model_, 3, true)).value();
  const auto& usual = props.at("default_generation_settings").as_object();
  EXPECT_EQ(usual.at("n_ctx").as_int64(), 1000);
  EXPECT_FLOAT_EQ(usual.at("params").at("temperature").to_number<float>(), 0.25f);
  EXPECT_EQ(usual.at("params").at("n_predict").as_int64(), -1);
  EXPECT_EQ(props.at("total_slots").as_int64(), 3);
  EXPECT_EQ(props.at("model_alias").as_string(), "scripted");
  EXPECT_EQ(props.at("model_path").as_string(), "a \"b\".gguf");
  EXPECT_EQ(props.at("chat_template").as_string(), bundle_.chat_template->source());
  EXPECT_EQ(props.at("eos_token").as_string(), "</s>");
  EXPECT_EQ(to_text(props.at("modalities")), R"({"vision":false,"audio":false})");
  EXPECT_EQ(props.at("build_info").as_string(), "fp-scripted");
  EXPECT_TRUE(props.at("is_sleeping").as_bool());
  bundle_.chat_template.reset();  // a base model
  const auto base = parse_body(llama_props(model_, 1, false)).value();
  EXPECT_EQ(base.at("chat_template").as_string(), "");
  EXPECT_FALSE(base.at("is_sleeping").as_bool());
}

}  // namespace llamacpp_render_test
}  // namespace headrace
