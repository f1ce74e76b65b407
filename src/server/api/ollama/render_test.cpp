// Answers as Ollama's clients read them: whole ones and lines, from parts as parsers make them.

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_support.h"

namespace headrace {
namespace ollama_render_test {

using PartKind = OutputPart::Kind;

OutputPart said(std::string text) { return {PartKind::kText, std::move(text), 0, {}, {}}; }
OutputPart thought(std::string text) { return {PartKind::kReasoning, std::move(text), 0, {}, {}}; }
OutputPart call(int idx, std::string arguments, std::string name) {
  return {PartKind::kToolCall, std::move(arguments), idx, fmt::format("id{}", idx),
          std::move(name)};
}

class OllamaAnswers : public testing::Test {
 protected:
  std::unique_ptr<AnswerRenderer> make(OllamaAnswer answer) const {
    return make_ollama_renderer(model_, std::move(answer));
  }
  static ChoiceDelta delta(std::vector<OutputPart> parts, Finish::Kind finish = {}) {
    return {0, std::move(parts), {}, {finish, {}}};
  }
  static AnswerEnd used(int32_t prompt, int32_t output, RequestTimes times = {}) {
    AnswerEnd end;
    end.usage.prompt_tokens = prompt;
    end.usage.output_tokens = output;
    end.times = times;
    return end;
  }
  // Without the time of day.
  static std::string timeless(const std::string& text) {
    static const std::regex kTime("\"created_at\":\"[0-9T:.-]+Z\",");
    return std::regex_replace(text, kTime, "");
  }
  static std::string whole(AnswerRenderer& renderer, const ChoiceDelta& choice,
                           const AnswerEnd& end) {
    JsonWriter json;
    renderer.begin_whole(json);
    renderer.add_choice(choice, json);
    renderer.end_whole(end, json);
    return timeless(json.take());
  }

  const TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  // All that comes after the reason of a request without times.
  const std::string no_times_ =
      R"("total_duration":0,"load_duration":0,"prompt_eval_count":5,"prompt_eval_duration":0,)"
      R"("eval_count":3,"eval_duration":0})";
};

TEST_F(OllamaAnswers, AChatIsAMessageOfAllParts) {
  const auto renderer = make({"m:latest"});
  EXPECT_EQ(whole(*renderer,
                  delta({thought("hm"), said("I look."), call(0, R"({"a": [1, 2]})", "f"),
                         call(1, R"({"cut": )", "g")},
                        Finish::Kind::kToolCalls),
                  used(5, 3)),
            R"({"model":"m:latest","message":{"role":"assistant","content":"I look.",)"
            R"("thinking":"hm","tool_calls":[)"
            R"({"id":"id0","function":{"index":0,"name":"f","arguments":{"a":[1,2]}}},)"
            R"({"id":"id1","function":{"index":1,"name":"g","arguments":{}}}]},)"
            R"("done_reason":"stop","done":true,)" +
                no_times_);
}

TEST_F(OllamaAnswers, AContinuationIsAResponseWithItsContext) {
  const auto renderer = make({"m", false, 0, true});
  const std::vector<int32_t> prompt = {test::kBos, 'H'};
  renderer->see_prompt(prompt);
  renderer->see_token('o');
  EXPECT_EQ(whole(*renderer, delta({thought("hm"), said("o")}, Finish::Kind::kLength), used(5, 3)),
            R"({"model":"m","response":"o","thinking":"hm","done_reason":"length","done":true,)"
            R"("context":[256,72,111],)" +
                no_times_);
  const auto raw = make({"m", false, 0, false});
  raw->see_prompt(prompt);
  raw->see_token('o');
  EXPECT_EQ(raw->end_stream({}).find("context"), std::string::npos);
}

TEST_F(OllamaAnswers, OnlyTheLengthIsNoStop) {
  const std::pair<Finish::Kind, const char*> cases[] = {
      {Finish::Kind::kEnd, "stop"},
      {Finish::Kind::kStopString, "stop"},
      {Finish::Kind::kToolCalls, "stop"},
      {Finish::Kind::kLength, "length"},
  };
  for (const auto& [kind, reason] : cases) {
    const auto renderer = make({"m"});
    EXPECT_EQ(renderer->chunk(delta({}, kind), {}), "");  // it is said by the last line
    const auto last = parse_body(renderer->end_stream({})).value();
    EXPECT_EQ(last.at("done_reason").as_string(), reason);
    EXPECT_EQ(last.at("message").at("content").as_string(), "");
    EXPECT_TRUE(last.at("done").as_bool());
  }
}

TEST_F(OllamaAnswers, AStreamIsLines) {
  const auto renderer = make({"m", false, 0, true});
  EXPECT_EQ(renderer->begin_stream({}), "");
  EXPECT_EQ(timeless(renderer->chunk(delta({said("a\nb")}), {})),
            R"({"model":"m","response":"a\nb","done":false})"
            "\n");
  EXPECT_EQ(renderer->chunk(delta({said("")}), {}), "");
  renderer->see_token('a');
  EXPECT_EQ(timeless(renderer->end_stream(used(5, 3))),
            R"({"model":"m","response":"","done_reason":"stop","done":true,"context":[97],)" +
                no_times_ + "\n");
  EXPECT_EQ(renderer->stream_error(Error{ErrorCode::kInternal, "broken", "ask again", {}}),
            "{\"error\":\"broken (ask again)\"}\n");
}

TEST_F(OllamaAnswers, ACallIsWholeWhenSomethingElseComes) {
  const auto renderer = make({"m"});
  EXPECT_EQ(renderer->chunk(delta({call(0, "{\"a\"", "f")}), {}), "");
  EXPECT_EQ(timeless(renderer->chunk(delta({call(0, ":1}", {}), said("then")}), {})),
            R"({"model":"m","message":{"role":"assistant","content":"then","tool_calls":[)"
            R"({"id":"id0","function":{"index":0,"name":"f","arguments":{"a":1}}}]},"done":false})"
            "\n");
  // Shown once.
  EXPECT_EQ(renderer->chunk(delta({}, Finish::Kind::kEnd), {}), "");
}

TEST_F(OllamaAnswers, DurationsAreNanoseconds) {
  const auto line = [&](RequestTimes times) {
    return parse_body(make({"m"})->end_stream(used(1, 1, times))).value();
  };
  const auto full = line({1'000, 2'000, 5'000, 9'000});
  EXPECT_EQ(full.at("total_duration").as_int64(), 8'000'000);
  EXPECT_EQ(full.at("prompt_eval_duration").as_int64(), 3'000'000);
  EXPECT_EQ(full.at("eval_duration").as_int64(), 4'000'000);
  const auto without_token = line({1'000, 2'000, 0, 9'000});
  EXPECT_EQ(without_token.at("total_duration").as_int64(), 8'000'000);
  EXPECT_EQ(without_token.at("prompt_eval_duration").as_int64(), 0);
  EXPECT_EQ(without_token.at("eval_duration").as_int64(), 0);
}

TEST_F(OllamaAnswers, ScoresAreOfEachToken) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const TokenLogprobs scores{-0.5f, 1, {{'A', -0.5f}, {0xC3, kNone}, {'z', -9}}};
  const auto shown = [&](int num_top) {
    const auto renderer = make({"m", false, num_top, false});
    ChoiceDelta choice = delta({said("A")});
    renderer->add_score({'A', scores, 0}, choice.scores);
    const std::string line = renderer->chunk(choice, {});
    return line.substr(std::min(line.find("\"logprobs\""), line.size()));
  };
  EXPECT_EQ(shown(0), R"("logprobs":[{"token":"A","logprob":-0.5,"bytes":[65]}],"done":false})"
                      "\n");
  EXPECT_EQ(shown(2),
            R"("logprobs":[{"token":"A","logprob":-0.5,"bytes":[65],"top_logprobs":[)"
            R"({"token":"A","logprob":-0.5,"bytes":[65]},)"
            "{\"token\":\"\uFFFD\",\"logprob\":-9999,\"bytes\":[195]}]}],\"done\":false}\n");
  EXPECT_NE(shown(9).find(R"("token":"z")"), std::string::npos);  // as many as there are
}

TEST_F(OllamaAnswers, TokensWithoutTextAreALineIfTheyHaveScores) {
  const auto renderer = make({"m", true, 1, false});
  ChoiceDelta choice;
  renderer->add_score({'A', TokenLogprobs{-1, 1, {}}, 0}, choice.scores);
  EXPECT_EQ(timeless(renderer->chunk(choice, {})),
            R"({"model":"m","message":{"role":"assistant","content":""},"logprobs":[)"
            R"({"token":"A","logprob":-1,"bytes":[65]}],"done":false})"
            "\n");
}

TEST_F(OllamaAnswers, ALoadedModelSaysSo) {
  EXPECT_EQ(timeless(ollama_loaded("m", true, false)),
            R"({"model":"m","message":{"role":"assistant","content":""},)"
            R"("done_reason":"load","done":true})");
  EXPECT_EQ(timeless(ollama_loaded("m", false, true)),
            R"({"model":"m","response":"","done_reason":"unload","done":true})");
}

TEST(OllamaErrors, AreOneText) {
  EXPECT_EQ(kOllama.error_body(Problem{400, "too long", "prompt"}),
            R"({"error":"prompt: too long"})");
  EXPECT_EQ(kOllama.error_body(Problem{400, "options.top_k is 1.5", "options.top_k"}),
            R"({"error":"options.top_k is 1.5"})");
  EXPECT_EQ(kOllama.error_body(Problem{500, "a \"b\"\n"}), R"({"error":"a \"b\"\n"})");
}

}  // namespace ollama_render_test
}  // namespace headrace
