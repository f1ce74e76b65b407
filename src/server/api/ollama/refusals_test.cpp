// What Ollama's clients are refused, in words; and which call a tool's result answers.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <deque>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_support.h"

namespace headrace {
namespace refusals_test {

class OllamaRefusals : public testing::Test {
 protected:
  Result<ParsedRequest> parse(ParseFunction* function, std::string_view members) {
    bodies_.push_back(parse_body(fmt::format("{{{}}}", members)).value());
    return function(bodies_.back().get_object(), model_);
  }
  Result<ParsedRequest> chat(std::string_view members) {
    return parse(parse_ollama_chat,
                 fmt::format(R"("messages":[{{"role":"user","content":"Hi"}}]{})", members));
  }
  Result<ParsedRequest> generate(std::string_view members) {
    return parse(parse_ollama_generate, fmt::format(R"("prompt":"Hi"{})", members));
  }
  Result<ParsedRequest> with_option(std::string_view name, std::string_view value) {
    return chat(fmt::format(R"(,"options":{{"{}":{}}})", name, value));
  }
  static std::string error_of(const Result<ParsedRequest>& parsed) {
    return parsed.ok() ? "no error" : parsed.error().to_string();
  }
  // The messages after a user's, as the template is given them.
  std::string messages_of(std::string_view messages) {
    const auto parsed = parse(parse_ollama_chat, fmt::format(R"("messages":[{}])", messages));
    if (!parsed.ok()) return parsed.error().to_string();
    return to_text(std::get<ChatPrompt>(parsed->prompts.items.front()).variables.at("messages"));
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  std::deque<boost::json::value> bodies_;  // what is parsed of them views them
};

TEST_F(OllamaRefusals, OptionsAreBounded) {
  struct Case {
    const char* name;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {"temperature", {"0", "100", "null"}, {"-0.1", "100.5", "\"1\"", "[]"}},
      {"top_p", {"0.01", "1"}, {"0", "1.01", "-1"}},
      {"top_k", {"-1", "0", "40.0"}, {"-2", "1.5", "true"}},
      {"min_p", {"0", "1"}, {"-0.1", "1.1"}},
      {"repeat_penalty", {"0.01", "100"}, {"0", "101"}},
      {"presence_penalty", {"-2", "2"}, {"-2.1", "3"}},
      {"frequency_penalty", {"-2", "2"}, {"-2.1", "3"}},
      {"repeat_last_n", {"-1", "0", "64", "7"}, {"-2", "0.5"}},
      {"seed", {"-1", "0", "18446744073709551615"}, {"0.5", "\"7\""}},
      {"num_predict", {"-2", "-1", "1"}, {"0", "2.5", "\"9\""}},
      {"stop", {"[]", "\"x\"", "[\"x\",\"y\"]"}, {"\"\"", "[7]", "{}"}},
  };
  for (const Case& each : cases) {
    for (const char* value : each.good) {
      EXPECT_EQ(error_of(with_option(each.name, value)), "no error") << each.name << value;
    }
    for (const char* value : each.bad) {
      const auto parsed = with_option(each.name, value);
      ASSERT_FALSE(parsed.ok()) << each.name << " " << value;
      EXPECT_EQ(parsed.error().param, fmt::format("options.{}", each.name));
      EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

// What clients always send is taken as long as it asks for nothing.
TEST_F(OllamaRefusals, AnOptionThatIsNotServedMayAskForNothing) {
  int num_rows = 0;
  for (const FieldRow& row : dialect_field_rows()) {
    if (row.use != FieldUse::kRefused || (row.places & kInOllamaOptions) == 0) continue;
    ++num_rows;
    const auto neutral = parse_body(row.neutral).value();
    for (const boost::json::value& value : neutral.as_array()) {
      EXPECT_EQ(error_of(with_option(row.name, to_text(value))), "no error") << row.name;
    }
    const auto refused = with_option(row.name, R"({"a":1})");
    EXPECT_EQ(error_of(refused),
              fmt::format("options.{} is an object, which is not supported by this server ({})",
                          row.name, row.note));
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  }
  EXPECT_GT(num_rows, 3);
}

TEST_F(OllamaRefusals, AreInWords) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"format":"xml")", R"(format is "xml", but it must be "json" or a JSON schema)"},
      {R"(,"format":7)", R"(format is 7, but it must be "json" or a JSON schema)"},
      {R"(,"think":1)", R"(think is 1, but it must be true, false, "low", "medium" or "high")"},
      {R"(,"stream":"no")", R"(stream is "no", but it must be true or false)"},
      {R"(,"top_logprobs":2)", "logprobs is false, but it must be true when top_logprobs is given"},
      {R"(,"logprobs":true,"top_logprobs":21)",
       "top_logprobs is 21, but it must be a whole number from 0 to 20"},
      {R"(,"options":{"num_predict":0})",
       "options.num_predict is 0, but it must be at least 1, or -1"},
      {R"(,"shift":7)",
       "shift is 7, which is not supported by this server (a context is never shifted)"},
      {R"(,"model":7)", "model is 7, but it must be a string"},
  };
  for (const auto& [members, message] : cases) {
    EXPECT_EQ(error_of(chat(members)), message);
    EXPECT_EQ(error_of(generate(members)), message);
  }
}

TEST_F(OllamaRefusals, LogprobsAreAskedForByName) {
  EXPECT_EQ(chat("")->request.prototype.num_logprobs, std::nullopt);
  EXPECT_EQ(chat(R"(,"logprobs":true)")->request.prototype.num_logprobs, 0);
  EXPECT_EQ(chat(R"(,"logprobs":true,"top_logprobs":3)")->request.prototype.num_logprobs, 3);
  EXPECT_EQ(chat(R"(,"logprobs":false,"top_logprobs":0)")->request.prototype.num_logprobs,
            std::nullopt);
}

TEST_F(OllamaRefusals, MessagesAndToolsAreNamedByTheirPlace) {
  const std::pair<const char*, const char*> messages[] = {
      {R"({"content":"a"})",
       "messages[0].role is missing, but it must be system, user, assistant or tool"},
      {R"({"role":"user","content":"a"},{"role":"robot"})",
       R"(messages[1].role is "robot", but it must be system, user, assistant or tool)"},
      {R"({"role":"user","content":["a"]})",
       "messages[0].content is a list of 1, but it must be a string"},
      {R"({"role":"assistant","tool_calls":{}})",
       "messages[0].tool_calls is an object, but it must be a list"},
      {R"({"role":"assistant","tool_calls":[7]})",
       "messages[0].tool_calls[0] is 7, but it must be an object"},
      {R"({"role":"assistant","tool_calls":[{"function":{}}]})",
       "messages[0].tool_calls[0].function.name is missing, but it must be a string"},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]})",
       R"(messages[0].tool_calls[0].function.arguments is "{}", but it must be an object)"},
      {R"({"role":"user","content":"a","images":["AA=="]})",
       "messages[0].images is a list of 1, which is not supported by this server (this model reads "
       "text)"},
  };
  for (const auto& [list, message] : messages) EXPECT_EQ(messages_of(list), message);
  const std::pair<const char*, const char*> tools[] = {
      {R"(7)", "tools[0] is 7, but it must be an object"},
      {R"({"type":"function"})", "tools[0].function is missing, but it must be an object"},
      {R"({"function":{"name":"f"}},{"function":{"name":""}})",
       "tools[1].function.name is missing, but it must be a string"},
      {R"({"function":{"name":"f","parameters":[]}})",
       "tools[0].function.parameters is a list of 0, but it must be an object"},
  };
  for (const auto& [list, message] : tools) {
    EXPECT_EQ(error_of(chat(fmt::format(R"(,"tools":[{}])", list))), message);
  }
  std::string many = R"({"function":{"name":"f"}})";
  for (int i = 0; i < 128; ++i) many += R"(,{"function":{"name":"f"}})";
  EXPECT_EQ(error_of(chat(fmt::format(R"(,"tools":[{}])", many))),
            "tools is a list of 129, but it must be at most 128 tools");
}

// Ids that clients give are kept; results without an id answer the oldest call of their name.
TEST_F(OllamaRefusals, AResultAnswersTheOldestOpenCall) {
  const std::string calls =
      R"({"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f"}},)"
      R"({"function":{"name":"f"}},{"function":{"name":"g"}}]})";
  const auto results = [&](std::string_view given) {
    const std::string all = messages_of(calls + "," + std::string(given));
    const auto list = parse_body(all).value();
    std::string shown;
    for (const auto& message : list.as_array()) {
      if (message.at("role") != "tool") continue;
      const auto* id = message.as_object().if_contains("tool_call_id");
      shown += (id == nullptr ? std::string("-") : std::string(id->as_string().c_str())) + " ";
    }
    return shown;
  };
  EXPECT_NE(messages_of(calls).find(R"("id":"call_1")"), std::string::npos);
  EXPECT_NE(messages_of(calls).find(R"("id":"call_2")"), std::string::npos);
  const std::string f = R"({"role":"tool","tool_name":"f","content":"1"})";
  const std::string g = R"({"role":"tool","tool_name":"g","content":"2"})";
  const std::string any = R"({"role":"tool","content":"3"})";
  EXPECT_EQ(results(f + "," + f + "," + g), "x call_1 call_2 ");
  EXPECT_EQ(results(g + "," + any + "," + any), "call_2 x call_1 ");
  EXPECT_EQ(results(g + "," + g), "call_2 - ");  // more results than calls
  EXPECT_EQ(results(R"({"role":"tool","tool_name":"h","content":"4"})"), "- ");
  EXPECT_EQ(results(R"({"role":"tool","tool_call_id":"mine","content":"5"},)" + any), "mine x ");
}

TEST_F(OllamaRefusals, AContextIsOfIdsThatFit) {
  EXPECT_EQ(error_of(generate(R"(,"context":[258])")),
            "context holds 258, but token ids are whole numbers from 0 to 257");
  EXPECT_EQ(error_of(generate(R"(,"context":{})")), "context is an object, but it must be a list");
  EXPECT_EQ(error_of(generate(R"(,"system":7)")), "system is 7, but it must be a string");
  std::string ids = "1";
  for (int i = 0; i < 1000; ++i) ids += ",1";
  const auto parsed = generate(fmt::format(R"(,"context":[{}])", ids));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().param, "context");
  // None at all: as without one.
  EXPECT_TRUE(
      std::holds_alternative<ChatPrompt>(generate(R"(,"context":[])")->prompts.items.front()));
}

}  // namespace refusals_test
}  // namespace headrace
