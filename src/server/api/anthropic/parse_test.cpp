// Bodies of Anthropic's clients to requests.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <deque>

#include "server/api/anthropic/anthropic.h"
#include "server/api/json.h"
#include "server/api/test_support.h"

namespace headrace {
namespace anthropic_parse_test {

class AnthropicParse : public testing::Test {
 protected:
  Result<ParsedRequest> parse(std::string_view members) {
    bodies_.push_back(
        parse_body(fmt::format(R"({{"model":"scripted","max_tokens":9,"messages":[{}]{}}})",
                               R"({"role":"user","content":"Hi"})", members))
            .value());
    return parse_message(bodies_.back().get_object(), model_);
  }
  Result<ParsedRequest> parse_messages(std::string_view messages, std::string_view members = "") {
    bodies_.push_back(
        parse_body(fmt::format(R"({{"max_tokens":9,"messages":{}{}}})", messages, members))
            .value());
    return parse_message(bodies_.back().get_object(), model_);
  }
  // The template's variables, as text.
  static std::string variables_of(const Result<ParsedRequest>& parsed, const char* name) {
    if (!parsed.ok()) return parsed.error().to_string();
    const auto& chat = std::get<ChatPrompt>(parsed->prompts.items.front());
    return to_text(chat.variables.at(name));
  }
  std::string messages_of(std::string_view messages, std::string_view members = "") {
    return variables_of(parse_messages(messages, members), "messages");
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted", "claude-sonnet"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  std::deque<boost::json::value> bodies_;
};

TEST_F(AnthropicParse, ReadsSampling) {
  const auto parsed = parse(
      R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"stop_sequences":["\n\nHuman:"],"stream":true)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Request& request = parsed->request.prototype;
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(parsed->request.stop, std::vector<std::string>{"\n\nHuman:"});
  EXPECT_TRUE(parsed->request.stream);
  EXPECT_EQ(&parsed->renderer->dialect(), &kAnthropic);
}

TEST_F(AnthropicParse, WhatIsWrongIsNamed) {
  struct Case {
    std::string_view body, param;
  };
  const Case cases[] = {
      {R"({"messages":[{"role":"user","content":"a"}]})", "max_tokens"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"a"}]})", "max_tokens"},
      {R"({"max_tokens":9})", "messages"},
      {R"({"max_tokens":9,"messages":[]})", "messages"},
      {R"({"max_tokens":9,"messages":[3]})", "messages[0]"},
      {R"({"max_tokens":9,"messages":[{"content":"a"}]})", "messages[0].role"},
      {R"({"max_tokens":9,"messages":[{"role":"tool","content":"a"}]})", "messages[0].role"},
      {R"({"max_tokens":9,"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":7}]})", "messages[0].content"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[]}]})", "messages[0].content"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[{"text":"a"}]}]})",
       "messages[0].content[0].type"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
       "messages[0].content[0].type"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":)"
       R"({"type":"base64","data":"AA=="}}]}]})",
       "messages[0].content[0].source.type"},
      {R"({"max_tokens":9,"system":4,"messages":[{"role":"user","content":"a"}]})", "system"},
      {R"({"max_tokens":9,"model":"gpt-9","messages":[{"role":"user","content":"a"}]})", "model"},
  };
  for (const Case& each : cases) {
    const auto body = parse_body(each.body).value();
    const auto parsed = parse_message(body.get_object(), model_);
    ASSERT_FALSE(parsed.ok()) << each.body;
    EXPECT_EQ(parsed.error().param, each.param) << parsed.error().to_string();
  }
  for (const auto& [members, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"(,"temperature":-1)", "temperature"},
           {R"(,"tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools[0].type"},
           {R"(,"tools":[{"description":"d"}])", "tools[0].name"},
           {R"(,"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})",
            "tool_choice.name"},
           {R"(,"tool_choice":{"type":"any"})", "tools"},
           {R"(,"tool_choice":{"type":"some"})", "tool_choice.type"},
           {R"(,"thinking":{"type":"much"})", "thinking.type"},
           {R"(,"thinking":{"type":"enabled","budget_tokens":0})", "thinking.budget_tokens"},
           {R"(,"output_config":{"effort":"huge"})", "output_config.effort"},
           {R"(,"output_config":{"format":{"type":"json_schema"}})", "output_config.format.schema"},
           {R"(,"mcp_servers":[{}])", "mcp_servers"},
       }) {
    const auto parsed = parse(members);
    ASSERT_FALSE(parsed.ok()) << members;
    EXPECT_EQ(parsed.error().param, param) << parsed.error().to_string();
  }
}

TEST_F(AnthropicParse, SystemIsTheFirstMessage) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"}])", R"(,"system":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"}])",
                        R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: id=7;"},)"
                        R"({"type":"text","text":"One.","cache_control":{"type":"ephemeral"}},)"
                        R"({"type":"text","text":"Two."}])"),
            R"([{"role":"system","content":"One.\nTwo."},{"role":"user","content":"a"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"}])",
                        R"(,"system":"x-anthropic-billing-header: id=8;")"),
            R"([{"role":"user","content":"a"}])");
}

// The prompt is the same with and without cache_control: so is what is found in the cache.
TEST_F(AnthropicParse, CacheControlIsNoPartOfThePrompt) {
  const char* marked =
      R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}])";
  const auto parsed = parse_messages(marked, R"(,"cache_control":{"type":"ephemeral"})");
  EXPECT_EQ(variables_of(parsed, "messages"), R"([{"role":"user","content":"a"}])");
  EXPECT_TRUE(parsed->request.headers.empty());
}

TEST_F(AnthropicParse, CallsAndResultsAreInTheWordsOfTemplates) {
  EXPECT_EQ(messages_of(
                R"([{"role":"user","content":"Weather?"},
              {"role":"assistant","content":[
                {"type":"thinking","thinking":"Ask.","signature":"s"},
                {"type":"redacted_thinking","data":"zzz"},
                {"type":"text","text":"I look."},
                {"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Bern"}}]},
              {"role":"user","content":[
                {"type":"tool_result","tool_use_id":"toolu_1",
                 "content":[{"type":"text","text":"rain"}]},
                {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":"none"},
                {"type":"text","text":"So?"}]}])"),
            R"([{"role":"user","content":"Weather?"},)"
            R"({"role":"assistant","content":"I look.","reasoning_content":"Ask.",)"
            R"("tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"weather",)"
            R"("arguments":"{\"city\":\"Bern\"}"}}]},)"
            R"({"role":"tool","content":"rain","tool_call_id":"toolu_1","name":"weather"},)"
            R"({"role":"tool","content":"Error:\nnone","tool_call_id":"toolu_2"},)"
            R"({"role":"user","content":"So?"}])");
}

TEST_F(AnthropicParse, DocumentsAreText) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[
              {"type":"document","title":"T","context":"C",
               "source":{"type":"text","media_type":"text/plain","data":"D"}},
              {"type":"document","source":{"type":"content",
               "content":[{"type":"text","text":"E"}]}},
              {"type":"search_result","title":"R","source":"S","content":[{"type":"text","text":"F"}]},
              {"type":"text","text":"?"}]}])"),
            R"([{"role":"user","content":"T\nC\nD\nE\nR\nS\nF\n?"}])");
}

TEST_F(AnthropicParse, NeighboursOfOneRoleAreOneTurn) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"user","content":"b"},
                            {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
                            {"role":"user","content":"e"}])"),
            R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"c\nd"},)"
            R"({"role":"user","content":"e"}])");
}

TEST_F(AnthropicParse, ALastMessageOfTheAssistantIsContinued) {
  const auto parsed = parse_messages(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"The answer is"}])");
  EXPECT_EQ(variables_of(parsed, "add_generation_prompt"), "false");
  EXPECT_EQ(variables_of(parsed, "continue_final_message"), "true");
}

TEST_F(AnthropicParse, ToolsAndTheirChoice) {
  const auto parsed = parse(
      R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},
                    "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g"}],
          "tool_choice":{"type":"any","disable_parallel_tool_use":true})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const ToolUse& use = parsed->request.form.tools;
  ASSERT_EQ(use.functions.size(), 2u);
  EXPECT_EQ(use.functions[0].name, "f");
  EXPECT_EQ(use.functions[0].description, "d");
  EXPECT_EQ(use.functions[0].parameters, R"({"type":"object"})");
  EXPECT_EQ(use.choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_FALSE(use.parallel);
  const std::pair<const char*, ToolChoice::Kind> choices[] = {
      {R"({"type":"auto"})", ToolChoice::Kind::kAuto},
      {R"({"type":"none"})", ToolChoice::Kind::kNone},
      {R"({"type":"tool","name":"f"})", ToolChoice::Kind::kNamed},
  };
  for (const auto& [choice, kind] : choices) {
    const auto each = parse(fmt::format(R"(,"tools":[{{"name":"f"}}],"tool_choice":{})", choice));
    ASSERT_TRUE(each.ok()) << each.error().to_string();
    EXPECT_EQ(each->request.form.tools.choice.kind, kind);
    EXPECT_TRUE(each->request.form.tools.parallel);
  }
}

TEST_F(AnthropicParse, ThinkingAndEffort) {
  struct Case {
    const char* members;
    std::optional<bool> enabled;
    std::optional<int32_t> budget;
    const char* effort;
  };
  const Case cases[] = {
      {"", std::nullopt, std::nullopt, ""},
      {R"(,"thinking":{"type":"enabled","budget_tokens":2048})", true, 2048, ""},
      {R"(,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"})", true, std::nullopt,
       "high"},
      {R"(,"thinking":{"type":"disabled"},"output_config":{"effort":"low"})", false, std::nullopt,
       "low"},
  };
  for (const Case& each : cases) {
    const auto parsed = parse(each.members);
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const ReasoningUse& reasoning = parsed->request.form.reasoning;
    EXPECT_EQ(reasoning.enabled, each.enabled) << each.members;
    EXPECT_EQ(reasoning.max_tokens, each.budget) << each.members;
    EXPECT_EQ(reasoning.effort, each.effort);
  }
}

TEST_F(AnthropicParse, AFormatIsAStructure) {
  const auto parsed =
      parse(R"(,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const Structure& structure = parsed->request.form.structure;
  EXPECT_EQ(structure.kind, Structure::Kind::kJsonSchema);
  EXPECT_EQ(structure.text, R"({"type":"object"})");
  EXPECT_EQ(structure.param, "output_config.format.schema");
}

TEST_F(AnthropicParse, UnknownFieldsAreNamedInTheHeader) {
  const auto parsed = parse(R"(,"context_management":{"edits":[]},"metadata":{"user_id":"u"})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->request.headers.size(), 1u);
  EXPECT_EQ(parsed->request.headers[0].first, kIgnoredHeader);
  EXPECT_EQ(parsed->request.headers[0].second, "context_management");
}

TEST_F(AnthropicParse, CountingNeedsNoLength) {
  const auto body =
      parse_body(R"({"model":"claude-sonnet","system":"s","thinking":{"type":"adaptive"},
                                   "messages":[{"role":"user","content":"a"}]})")
          .value();
  const auto parsed = parse_message_count(body.get_object(), model_);
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  EXPECT_EQ(parsed->request.prototype.max_tokens, 0);
}

}  // namespace anthropic_parse_test
}  // namespace headrace
