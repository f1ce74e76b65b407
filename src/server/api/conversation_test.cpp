#include "server/api/conversation.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>

#include "server/api/json.h"
#include "server/api/test_support.h"

namespace headrace {
namespace api_conversation_test {

// Renders by a function that the test gives, and counts.
class CountingTemplate : public ChatTemplate {
 public:
  using Render = std::function<std::string(const boost::json::object&)>;
  CountingTemplate(std::string source, Render render)
      : source_(std::move(source)), render_(std::move(render)) {}

  Result<std::string> render(std::string_view options_json,
                             std::optional<std::string_view> /*now*/) const override {
    ++num_renders;
    last = std::string(options_json);
    return render_(parse_body(options_json)->get_object());
  }
  const std::string& source() const override { return source_; }

  mutable int num_renders = 0;
  mutable std::string last;

 private:
  const std::string source_;
  const Render render_;
};

class ConversationTest : public testing::Test {
 protected:
  CountingTemplate& use(std::string source, CountingTemplate::Render render) {
    auto made = std::make_unique<CountingTemplate>(std::move(source), std::move(render));
    CountingTemplate& kept = *made;
    bundle_.chat_template = std::move(made);
    return kept;
  }
  // The prompt, or the error.
  std::string encode(std::string_view variables, std::vector<std::string> required = {}) {
    ChatPrompt conversation{parse_body(variables)->get_object(), std::move(required)};
    const auto ids = encode_conversation(std::move(conversation), model_, {});
    if (!ids.ok()) return ids.error().param + ": " + ids.error().to_string();
    return bundle_.tokenizer->decode(*ids, true).value();
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
};

constexpr std::string_view kTool =
    R"({"messages":[{"role":"user","content":"weather?"}],)"
    R"("tools":[{"type":"function","function":{"name":"get_weather"}}]})";
constexpr std::string_view kNoPlace =
    "tools: this model's chat template has no place for tools (leave it out, or use a model that "
    "was made for it)";

std::string with_tools(const boost::json::object& variables) {
  const auto* tools = variables.if_contains("tools");
  return "prompt " + (tools == nullptr ? std::string() : to_text(*tools));
}

TEST_F(ConversationTest, ToolsGoByTheTemplateForTools) {
  CountingTemplate& usual = use("usual", [](const boost::json::object&) { return "usual"; });
  bundle_.tool_template = std::make_unique<CountingTemplate>("has tool_calls", with_tools);
  EXPECT_EQ(encode(kTool, {"tools"}),
            R"(prompt [{"type":"function","function":{"name":"get_weather"}}])");
  EXPECT_EQ(usual.num_renders, 0);
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"hi"}],"tools":[]})"), "usual");
  EXPECT_EQ(encode(R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})"),
            "messages[0].tool_calls: this model's chat template has no place for "
            "messages[0].tool_calls (leave it out, or use a model that was made for it)");
}

TEST_F(ConversationTest, ToolsThatShowInThePromptAreRenderedOnce) {
  const auto& counting = use("{{ tools }}", with_tools);
  EXPECT_NE(encode(kTool, {"tools"}).find("get_weather"), std::string::npos);
  EXPECT_EQ(counting.num_renders, 1);
}

TEST_F(ConversationTest, ToolsThatAreCountedOnlyAreRenderedTwice) {
  const auto& counting = use("{{ tools | length }}", [](const boost::json::object& variables) {
    const auto* tools = variables.if_contains("tools");
    return fmt::format("{} tools", tools == nullptr ? 0 : tools->get_array().size());
  });
  EXPECT_EQ(encode(kTool, {"tools"}), "1 tools");
  EXPECT_EQ(counting.num_renders, 2);
}

TEST_F(ConversationTest, ToolsThatDoNotReachThePromptAreRefused) {
  use("{{ tools }}", [](const boost::json::object&) { return std::string("prompt"); });
  EXPECT_EQ(encode(kTool, {"tools"}), kNoPlace);
  EXPECT_EQ(encode(kTool), "prompt");  // nothing was asked for
}

// A text of the tools that the prompt owes to a message, or to the template, proves nothing.
TEST_F(ConversationTest, TextsThatStandElsewhereProveNothing) {
  use("function get_weather", [](const boost::json::object&) { return "get_weather function"; });
  EXPECT_EQ(encode(kTool, {"tools"}).substr(0, 6), "tools:");
  use("tools", [](const boost::json::object& variables) {
    const auto& message = variables.at("messages").at(0).at("content").as_string();
    return std::string(message.data(), message.size());
  });
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"call \"f\" or get_weather"}],)"
                   R"("tools":[{"function":{"name":"get_weather","title":"\"f\" or"}}]})",
                   {"tools"}),
            kNoPlace);
}

TEST_F(ConversationTest, DocumentsToo) {
  use("documents", [](const boost::json::object&) { return std::string("prompt"); });
  EXPECT_EQ(encode(R"({"messages":[],"documents":[{"text":"facts"}]})", {"documents"}),
            "documents: this model's chat template has no place for documents (leave it out, or "
            "use a model that was made for it)");
}

TEST_F(ConversationTest, DeveloperIsSystemWhereTheTemplateKnowsNone) {
  const auto role = [](const boost::json::object& variables) {
    return std::string(variables.at("messages").at(0).at("role").as_string().c_str());
  };
  const std::string_view asked = R"({"messages":[{"role":"developer","content":"a"}]})";
  use("system", role);
  EXPECT_EQ(encode(asked), "system");
  use("system developer", role);
  EXPECT_EQ(encode(asked), "developer");
}

TEST_F(ConversationTest, ArgumentsOfCallsAreObjects) {
  const auto& counting =
      use("tool_calls", [](const boost::json::object&) { return std::string("prompt"); });
  const auto arguments = [&](const std::string& given) {
    encode(R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"function":)"
           R"({"name":"f","arguments":)" +
           given + "}}]}]}");
    const auto calls = parse_body(counting.last)->at("messages").at(0).at("tool_calls");
    return to_text(calls.at(0).at("function").at("arguments"));
  };
  EXPECT_EQ(arguments(R"("{\"a\":1}")"), R"({"a":1})");
  EXPECT_EQ(arguments(R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments(R"("[1]")"), R"("[1]")");  // no object: as it was sent
  EXPECT_EQ(arguments(R"("{broken")"), R"("{broken")");
}

TEST_F(ConversationTest, ALaterSystemMessageReachesEveryTemplate) {
  const std::string asked =
      R"({"messages":[{"role":"system","content":"first"},{"role":"user","content":"a"},)"
      R"({"role":"system","content":"new rule"},{"role":"developer","content":"newer"}]})";
  const auto of_role = [](const boost::json::object& message) {
    return message.at("role") == "system" || message.at("role") == "developer";
  };
  // With `loses`, what the system says is written in the first place alone.
  const auto written = [&](bool loses) {
    return [=](const boost::json::object& variables) {
      std::string prompt;
      const auto& messages = variables.at("messages").as_array();
      for (size_t i = 0; i < messages.size(); ++i) {
        const auto& message = messages[i].as_object();
        if (loses && i > 0 && of_role(message)) continue;
        prompt += std::string_view(message.at("role").as_string());
        prompt += ':';
        prompt += std::string_view(message.at("content").as_string());
        prompt += ' ';
      }
      return prompt;
    };
  };
  const auto& taken = use("developer", written(false));
  EXPECT_EQ(encode(asked), "system:first user:a system:new rule developer:newer ");
  EXPECT_EQ(taken.num_renders, 3);
  use("developer", written(true));
  EXPECT_EQ(encode(asked), "system:first user:a user:new rule user:newer ");
  const auto& usual = use("developer", written(true));
  EXPECT_EQ(encode(R"({"messages":[{"role":"system","content":"first"}]})"), "system:first ");
  EXPECT_EQ(usual.num_renders, 1);
}

// gpt-oss answers so, and its template refuses what clients then send back.
TEST_F(ConversationTest, OneTextStandsBeforeACallWhereTheTemplateTakesNoTwo) {
  const CountingTemplate& counting =
      use("tool_calls", [](const boost::json::object&) { return std::string("prompt"); });
  const auto turn = [&](const std::string& members) {
    encode(R"({"messages":[{"role":"assistant",)" + members + "}]}");
    return to_text(parse_body(counting.last)->at("messages").at(0));
  };
  const std::string calls = R"("tool_calls":[{"function":{"name":"f","arguments":{}}}])";
  const std::string both = R"("content":"Let me see.","reasoning":"hm","thinking":null,)" + calls;
  EXPECT_EQ(turn(both), R"({"role":"assistant",)" + both + "}");
  bundle_.formats.tools = tool_format_named("harmony").value();
  EXPECT_EQ(turn(both), R"({"role":"assistant","content":"",)" + calls +
                            R"(,"reasoning_content":"hm\nLet me see."})");
  for (const std::string& members :
       {R"("content":"Let me see.",)" + calls, R"("content":"","reasoning_content":"hm",)" + calls,
        std::string(R"("content":"a","reasoning_content":"hm","tool_calls":[])")}) {
    EXPECT_EQ(turn(members), R"({"role":"assistant",)" + members + "}");
  }
}

TEST_F(ConversationTest, CallsNeedAPlace) {
  use("no such word", [](const boost::json::object&) { return std::string("prompt"); });
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"a"},)"
                   R"({"role":"assistant","content":"","tool_calls":[{"function":{}}]}]})"),
            "messages[1].tool_calls: this model's chat template has no place for "
            "messages[1].tool_calls (leave it out, or use a model that was made for it)");
  EXPECT_EQ(encode(R"({"messages":[{"role":"assistant","content":"","tool_calls":[]}]})"),
            "prompt");
}

TEST_F(ConversationTest, ATemplateThatRaisesIsTheClientsFault) {
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"RAISE"}],)"
                   R"("add_generation_prompt":true})"),
            "messages: roles must alternate");
}

// A client may send back an answer that its length has cut.
TEST_F(ConversationTest, ABrokenCallIsNamedWhereATemplateFails) {
  class Failing : public test::PlainTemplate {
   public:
    Result<std::string> render(std::string_view, std::optional<std::string_view>) const override {
      return make_error(ErrorCode::kInvalidArgument, "the chat template fails, line 7: no items");
    }
  };
  bundle_.chat_template = std::make_unique<Failing>();
  const auto failure = [&](const std::string& arguments) {
    return encode(R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"function":)"
                  R"({"name":"f","arguments":)" +
                  arguments + "}}]}]}");
  };
  EXPECT_EQ(
      failure(R"("{\"a\":")"),
      "messages: the chat template fails, line 7: no items (the arguments of a call of \"f\" "
      "are no JSON object, and few templates take others: leave the call and its result out)");
  EXPECT_EQ(failure(R"("{\"a\":1}")"), "messages: the chat template fails, line 7: no items");
  bundle_ = test::make_bundle();
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"RAISE","tool_calls":[{"function":)"
                   R"({"arguments":"x"}}]}]})"),
            "messages: roles must alternate");
}

TEST_F(ConversationTest, WithoutATemplateThereIsNone) {
  bundle_.chat_template.reset();
  EXPECT_EQ(encode(R"({"messages":[]})"),
            "messages: this model has no chat template (use /v1/completions, or a chat-tuned "
            "model)");
}

TEST_F(ConversationTest, MessagesOfAnyDialectAreVariablesOfTheTemplate) {
  const ChatPrompt made = make_chat_prompt({
      {"user", "weather?"},
      {"assistant", "", "hm", {{"c1", "get_weather", R"({"in":"Oslo"})"}}},
      {"tool", "rain", {}, {}, "c1", "get_weather"},
  });
  EXPECT_EQ(to_text(made.variables),
            R"({"messages":[{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":)"
            R"([{"id":"c1","type":"function","function":{"name":"get_weather",)"
            R"("arguments":"{\"in\":\"Oslo\"}"}}]},)"
            R"({"role":"tool","content":"rain","tool_call_id":"c1","name":"get_weather"}],)"
            R"("add_generation_prompt":true})");
  EXPECT_TRUE(made.required.empty());
}

}  // namespace api_conversation_test
}  // namespace headrace
