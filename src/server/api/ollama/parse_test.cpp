// Bodies of Ollama's clients to requests.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <deque>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_support.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace ollama_parse_test {

class OllamaParse : public testing::Test {
 protected:
  Result<ParsedRequest> chat(std::string_view members) {
    return parse(parse_ollama_chat, R"("messages":[{"role":"user","content":"Hi"}])", members);
  }
  Result<ParsedRequest> generate(std::string_view members) {
    return parse(parse_ollama_generate, R"("prompt":"Hi")", members);
  }
  Result<ParsedRequest> parse(ParseFunction* function, std::string_view first,
                              std::string_view members) {
    bodies_.push_back(parse_body(fmt::format("{{{}{}}}", first, members)).value());
    return function(bodies_.back().get_object(), model_);
  }
  static std::string messages_of(const Result<ParsedRequest>& parsed) {
    if (!parsed.ok()) return parsed.error().to_string();
    const auto& chat = std::get<ChatPrompt>(parsed->prompts.items.front());
    return to_text(chat.variables.at("messages"));
  }
  static std::string param_of(const Result<ParsedRequest>& parsed) {
    return parsed.ok() ? "no error" : parsed.error().param;
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  std::deque<boost::json::value> bodies_;
};

TEST_F(OllamaParse, OptionsAreSampling) {
  const auto parsed = chat(
      R"(,"options":{"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"repeat_penalty":1.1,
          "presence_penalty":0.2,"frequency_penalty":0.3,"seed":5,"num_predict":12,"stop":["x"],
          "num_ctx":4096,"num_gpu":1,"typical_p":1.0,"mirostat":0})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Request& request = parsed->request.prototype;
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_EQ(request.max_tokens, 12);
  EXPECT_EQ(parsed->request.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(parsed->request.stream);  // unless told otherwise
  EXPECT_TRUE(parsed->request.headers.empty());
}

TEST_F(OllamaParse, WhatTheContextLeavesIsTheUsualLength) {
  for (const char* options :
       {"", R"(,"options":{"num_predict":-1})", R"(,"options":{"num_predict":-2})"}) {
    const auto parsed = chat(options);
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_EQ(parsed->request.prototype.max_tokens, 1000);
  }
}

TEST_F(OllamaParse, WhatIsWrongOrNotServedIsNamed) {
  const std::pair<const char*, const char*> of_chat[] = {
      {R"(,"options":{"temperature":-1})", "options.temperature"},
      {R"(,"options":{"num_predict":0})", "options.num_predict"},
      {R"(,"options":{"mirostat":1})", "options.mirostat"},
      {R"(,"options":{"typical_p":1.5})", "options.typical_p"},
      {R"(,"options":{"bad_words":[""]})", "options.bad_words"},
      {R"(,"options":{"repeat_penalty":1.2,"repeat_last_n":33})", "options.repeat_last_n"},
      {R"(,"options":[])", "options"},
      {R"(,"format":"xml")", "format"},
      {R"(,"think":"much")", "think"},
      {R"(,"top_logprobs":3)", "logprobs"},
      {R"(,"tools":[{"type":"function"}])", "tools[0].function"},
      {R"(,"tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"(,"model":"absent")", "model"},
  };
  for (const auto& [members, param] : of_chat) EXPECT_EQ(param_of(chat(members)), param) << members;
  const std::pair<const char*, const char*> messages[] = {
      {R"("messages":[])", "messages"},
      {R"("messages":[4])", "messages[0]"},
      {R"("messages":[{"role":"robot","content":""}])", "messages[0].role"},
      {R"("messages":[{"role":"user","content":"","images":["AA=="]}])", "messages[0].images"},
      {R"("messages":[{"role":"assistant","tool_calls":[{}]}])",
       "messages[0].tool_calls[0].function"},
  };
  for (const auto& [body, param] : messages) {
    EXPECT_EQ(param_of(parse(parse_ollama_chat, body, "")), param) << body;
  }
  const std::pair<const char*, const char*> of_generate[] = {
      {R"(,"images":["AA=="])", "images"},  {R"(,"template":"{{ .Prompt }}")", "template"},
      {R"(,"context":[1,999])", "context"}, {R"(,"context":"abc")", "context"},
      {R"(,"tools":[{}])", "tools"},
  };
  for (const auto& [members, param] : of_generate) {
    EXPECT_EQ(param_of(generate(members)), param) << members;
  }
}

TEST_F(OllamaParse, APenaltyHasTheWholeTextAsItsWindow) {
  struct Case {
    const char* options;
    float penalty;
  };
  const Case cases[] = {
      {R"("repeat_penalty":1.2,"repeat_last_n":-1)", 1.2f},
      {R"("repeat_penalty":1.2,"repeat_last_n":64)", 1.2f},
      {R"("repeat_penalty":1.2,"repeat_last_n":0)", 1.0f},
      {R"("repeat_last_n":33)", 1.0f},
  };
  for (const Case& each : cases) {
    const auto parsed = chat(fmt::format(R"(,"options":{{{}}})", each.options));
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    EXPECT_FLOAT_EQ(parsed->request.prototype.sampling.repetition_penalty, each.penalty);
  }
}

TEST_F(OllamaParse, FormatsAndThinkingAreTheForm) {
  EXPECT_EQ(chat(R"(,"format":"json")")->request.form.structure.kind, Structure::Kind::kJsonObject);
  EXPECT_EQ(chat(R"(,"format":"")")->request.form.structure.kind, Structure::Kind::kNone);
  const auto schema = chat(R"(,"format":{"type":"object"})");
  EXPECT_EQ(schema->request.form.structure.kind, Structure::Kind::kJsonSchema);
  EXPECT_EQ(schema->request.form.structure.text, R"({"type":"object"})");
  EXPECT_EQ(chat("")->request.form.reasoning.enabled, std::nullopt);
  EXPECT_EQ(chat(R"(,"think":false)")->request.form.reasoning.enabled, false);
  const auto high = chat(R"(,"think":"high")");
  EXPECT_EQ(high->request.form.reasoning.enabled, true);
  EXPECT_EQ(high->request.form.reasoning.effort, "high");
}

TEST_F(OllamaParse, CallsGetIdsAndResultsFindThem) {
  const auto parsed = parse(
      parse_ollama_chat,
      R"("messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"","thinking":"hm","tool_calls":[
            {"function":{"name":"f","arguments":{"x":1}}},
            {"function":{"name":"g","arguments":{}}}]},
          {"role":"tool","tool_name":"g","content":"2"},{"role":"tool","content":"1"}])",
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(messages_of(parsed),
            R"([{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"call_0","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},)"
            R"({"id":"call_1","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","content":"2","tool_call_id":"call_1","name":"g"},)"
            R"({"role":"tool","content":"1","tool_call_id":"call_0","name":"f"}])");
  ASSERT_EQ(parsed->request.form.tools.functions.size(), 1u);
  EXPECT_EQ(parsed->request.form.tools.functions[0].parameters, R"({"type":"object"})");
}

TEST_F(OllamaParse, APromptGoesThroughTheTemplateUnlessItIsRaw) {
  EXPECT_EQ(messages_of(generate(R"(,"system":"s")")),
            R"([{"role":"system","content":"s"},{"role":"user","content":"Hi"}])");
  const auto raw = generate(R"(,"raw":true)");
  EXPECT_EQ(std::get<PromptText>(raw->prompts.items.front()), "Hi");
  // A model without a template continues the text.
  bundle_.chat_template.reset();
  EXPECT_EQ(std::get<PromptText>(generate("")->prompts.items.front()), "Hi");
}

TEST_F(OllamaParse, AContextStandsBeforeThePrompt) {
  const auto parsed = generate(R"(,"context":[256,65,66])");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const auto& chat = std::get<ChatPrompt>(parsed->prompts.items.front());
  const auto ids = encode_conversation(chat, model_, {}).value();
  std::string text;
  for (const int32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : "^";
  EXPECT_EQ(text, "^AB[user]Hi\n[assistant]");  // begins once
}

// As without a context: the template is told, and the answer is taken apart.
TEST_F(OllamaParse, AContextLeavesReasoningItsOwnPart) {
  ASSERT_TRUE(bundle_.use_formats("none", "think").ok());
  for (const char* context : {"", R"(,"context":[256,65])"}) {
    auto parsed = generate(fmt::format(R"(,"think":"low"{})", context));
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    ASSERT_TRUE(fit_answer_form(model_, parsed->prompts, parsed->request).ok());
    EXPECT_TRUE(parsed->request.make_parser) << context;
    const auto& chat = std::get<ChatPrompt>(parsed->prompts.items.front());
    EXPECT_EQ(chat.variables.at("reasoning_effort").as_string(), "low") << context;
  }
}

TEST_F(OllamaParse, ASuffixIsFilledInBefore) {
  EXPECT_EQ(param_of(generate(R"(,"suffix":"end")")), "suffix");
  bundle_.infill = InfillMarks{1, 2, 3, false, {}};
  const auto parsed = generate(R"(,"suffix":"S")");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  EXPECT_EQ(std::get<PromptIds>(parsed->prompts.items.front()),
            (PromptIds{test::kBos, 1, 'H', 'i', 2, 'S', 3}));
}

TEST_F(OllamaParse, AnEmptyRequestAsksForTheModel) {
  for (const char* body : {"{}", R"({"model":"m","messages":[]})",
                           R"({"prompt":"","keep_alive":0})", R"({"prompt":null})"}) {
    EXPECT_TRUE(is_load_request(parse_body(body).value().get_object())) << body;
  }
  for (const char* body :
       {R"({"messages":[{}]})", R"({"prompt":"a"})", R"({"suffix":"a"})", R"({"prompt":7})"}) {
    EXPECT_FALSE(is_load_request(parse_body(body).value().get_object())) << body;
  }
}

TEST_F(OllamaParse, UnknownFieldsAreNamedInTheHeader) {
  const auto parsed = chat(R"(,"options":{"temprature":1},"keep_alive":"5m")");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->request.headers.size(), 1u);
  EXPECT_EQ(parsed->request.headers[0].second, "options.temprature (temperature?)");
}

}  // namespace ollama_parse_test
}  // namespace headrace
