// Items of the Responses API: every form that comes in, and the order in which items go out.

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/api/responses/responses.h"
#include "server/api/test_support.h"

namespace headrace {
namespace items_test {

using namespace std::chrono_literals;
using PartKind = OutputPart::Kind;

// A conversation on one line: "role[reasoning]{call(arguments)#id}<name#call_id>text|...".
std::string shown(const std::vector<ChatMessage>& messages) {
  std::string line;
  for (const ChatMessage& message : messages) {
    if (!line.empty()) line += '|';
    line += message.role;
    if (!message.reasoning.empty()) line += fmt::format("[{}]", message.reasoning);
    for (const ChatCall& call : message.calls) {
      line += fmt::format("{{{}({})#{}}}", call.name, call.arguments, call.id);
    }
    if (message.role == "tool") line += fmt::format("<{}#{}>", message.name, message.call_id);
    line += ":" + message.text;
  }
  return line;
}

std::string read_line(std::string_view items, std::string_view instructions = "",
                      std::string* ignored_text = nullptr) {
  IgnoredFields ignored;
  const auto list = parse_body(items).value();
  const auto messages = read_items(list.get_array(), instructions, ignored);
  if (ignored_text != nullptr) *ignored_text = ignored.text();
  if (!messages.ok()) return messages.error().param + ": " + messages.error().message;
  return shown(*messages);
}

TEST(ResponseItems, PartsOfEveryKindOfTextAreJoined) {
  for (const std::string_view type :
       {"input_text", "output_text", "text", "summary_text", "reasoning_text"}) {
    EXPECT_EQ(read_line(fmt::format(R"([{{"role":"user","content":[{{"type":"{}","text":"a"}},
                                        {{"type":"input_text","text":""}},
                                        {{"type":"input_text","text":"b"}}]}}])",
                                    type)),
              "user:a\n\nb");
  }
  EXPECT_EQ(read_line(R"([{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}])"),
            "assistant:No.");
  EXPECT_EQ(read_line(R"([{"role":"user","content":[]},{"role":"user"},
                          {"role":"user","content":null}])"),
            "user:|user:|user:");
}

TEST(ResponseItems, TurnsOfTheAssistantAreTakenTogether) {
  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::string text = R"({"role":"assistant","content":"t"})";
  const std::string thought =
      R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}]})";
  const std::pair<std::string, std::string_view> kCases[] = {
      {thought + "," + text + "," + call, "assistant[r]{f({})#c}:t"},
      {thought + "," + call + "," + call, "assistant[r]{f({})#c}{f({})#c}:"},
      {thought + "," + thought + "," + text, "assistant[r\nr]:t"},
      {text + "," + call, "assistant{f({})#c}:t"},
      {call + "," + text, "assistant{f({})#c}:|assistant:t"},
      {text + "," + text, "assistant:t|assistant:t"},
      {call + "," + thought, "assistant{f({})#c}:|assistant[r]:"},
      {text + "," + thought + "," + call, "assistant:t|assistant[r]{f({})#c}:"},
  };
  for (const auto& [items, line] : kCases) EXPECT_EQ(read_line("[" + items + "]"), line) << items;
}

TEST(ResponseItems, ReasoningIsReadWhereItStands) {
  const auto thought = [](std::string_view members) {
    return read_line(
        fmt::format(R"([{{"type":"reasoning",{}}},{{"role":"user","content":"q"}}])", members));
  };
  EXPECT_EQ(thought(R"("content":[{"type":"reasoning_text","text":"whole"}],
                       "summary":[{"type":"summary_text","text":"short"}],
                       "encrypted_content":"plain:copy")"),
            "assistant[whole]:|user:q");
  EXPECT_EQ(thought(R"("summary":[{"type":"summary_text","text":"short"}],
                       "encrypted_content":"plain:copy")"),
            "assistant[copy]:|user:q");
  EXPECT_EQ(thought(R"("summary":[{"type":"summary_text","text":"short"}],
                       "encrypted_content":"gAAAA")"),
            "assistant[short]:|user:q");
  EXPECT_EQ(thought(R"("summary":[],"encrypted_content":"gAAAA")"), "user:q");
}

TEST(ResponseItems, OutputsKnowTheFunctionThatWasCalled) {
  EXPECT_EQ(read_line(R"([{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},
                          {"type":"custom_tool_call","call_id":"b","name":"g","input":"x\ny"},
                          {"type":"custom_tool_call_output","call_id":"b","output":"2"},
                          {"type":"function_call_output","call_id":"a","output":""},
                          {"type":"function_call_output","call_id":"zz","output":[]}])"),
            "assistant{f({})#a}{g({\"input\":\"x\\ny\"})#b}:|tool<g#b>:2|tool<f#a>:|tool<#zz>:");
}

TEST(ResponseItems, SystemMessagesAtTheBeginningAreOne) {
  const std::string_view items = R"([{"role":"system","content":"A"},
      {"role":"developer","content":"B"},{"role":"user","content":"q"},
      {"role":"system","content":"C"}])";
  EXPECT_EQ(read_line(items), "system:A\n\nB|user:q|system:C");
  EXPECT_EQ(read_line(items, "I"), "system:I\n\nA\n\nB|user:q|system:C");
  EXPECT_EQ(read_line(R"([{"role":"developer","content":"B"},{"role":"user","content":"q"}])"),
            "developer:B|user:q")
      << "one alone stays what it is";
  EXPECT_EQ(read_line("[]", "I"), "system:I");
  EXPECT_EQ(read_line("[]"),
            "input: input is without a message, but it must be at least one "
            "message");
}

TEST(ResponseItems, ItemsOfOtherServersToolsAreLeftOut) {
  for (const std::string_view type :
       {"web_search_call", "file_search_call", "code_interpreter_call", "computer_call",
        "image_generation_call", "mcp_list_tools", "mcp_call", "mcp_approval_request",
        "mcp_approval_response", "local_shell_call", "local_shell_call_output", "tool_search_call",
        "tool_search_output", "compaction", "additional_tools"}) {
    std::string ignored;
    EXPECT_EQ(read_line(fmt::format(
                            R"([{{"type":"{0}","any":{{"x":1}}}},{{"role":"user","content":"q"}},
                                {{"type":"{0}"}}])",
                            type),
                        "", &ignored),
              "user:q");
    EXPECT_EQ(ignored, fmt::format("input[].{}", type));
  }
}

TEST(ResponseItems, FaultsNameTheItemAndThePart) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {R"([{"role":"user","content":"q"},7])", "input[1]: input[1] is 7, but it must be an object"},
      {R"([{"type":7}])", "input[0].type: input[0].type is 7, but it must be a string"},
      {R"([{"content":"q"}])",
       "input[0].role: input[0].role is missing, but it must be system, developer, user or "
       "assistant"},
      {R"([{"role":"tool","content":"q"}])",
       "input[0].role: input[0].role is \"tool\", but it must be system, developer, user or "
       "assistant"},
      {R"([{"role":"user","content":7}])",
       "input[0].content: input[0].content is 7, but it must be a string or a list of text parts"},
      {R"([{"role":"user","content":["q"]}])",
       "input[0].content[0]: input[0].content[0] is \"q\", but it must be an object"},
      {R"([{"role":"user","content":[{"type":"input_text","text":"a"},{"text":"b"}]}])",
       "input[0].content[1].type: input[0].content[1].type is missing, but it must be "
       "\"input_text\" or \"output_text\": this model reads text only"},
      {R"([{"role":"user","content":[{"type":"input_text"}]}])",
       "input[0].content[0].text: input[0].content[0].text is missing, but it must be a string"},
      {R"([{"role":"assistant","content":[{"type":"refusal","text":"x"}]}])",
       "input[0].content[0].refusal: input[0].content[0].refusal is missing, but it must be a "
       "string"},
      {R"([{"type":"function_call","call_id":"c","name":"","arguments":"{}"}])",
       "input[0].name: input[0].name is missing, but it must be a string"},
      {R"([{"type":"function_call","call_id":"c","name":"f","arguments":{}}])",
       "input[0].arguments: input[0].arguments is an object, but it must be a string"},
      {R"([{"type":"custom_tool_call","call_id":"c","name":"f","input":{}}])",
       "input[0].input: input[0].input is an object, but it must be a string"},
      {R"([{"type":"function_call_output","call_id":7,"output":""}])",
       "input[0].call_id: input[0].call_id is 7, but it must be a string"},
      {R"([{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}])",
       "input[0].output[0].type: input[0].output[0].type is \"input_image\", but it must be "
       "\"input_text\" or \"output_text\": this model reads text only"},
      {R"([{"type":"reasoning","content":7}])",
       "input[0].content: input[0].content is 7, but it must be a string or a list of text parts"},
  };
  for (const auto& [items, error] : kCases) EXPECT_EQ(read_line(items), error) << items;
}

class ResponseOrder : public testing::Test {
 protected:
  ParsedRequest parsed(std::string_view body) {
    body_ = parse_body(body).value();
    return parse_response(body_.get_object(), model_, caller_).value();
  }
  static ChoiceDelta of_parts(std::vector<OutputPart> parts, Finish::Kind finish) {
    ChoiceDelta delta;
    delta.parts = std::move(parts);
    delta.finish.kind = finish;
    return delta;
  }
  // "type:text" of each item of the whole answer.
  std::vector<std::string> items_of(const std::vector<OutputPart>& parts,
                                    Finish::Kind finish = Finish::Kind::kEnd) {
    ParsedRequest request =
        parsed(R"({"input":"q","tools":[{"type":"custom","name":"note"}],"store":false})");
    JsonWriter json;
    request.renderer->begin_whole(json);
    request.renderer->add_choice(of_parts(parts, finish), json);
    request.renderer->end_whole({{5, 3, 2}, {}}, json);
    answer_ = parse_body(json.str()).value();
    std::vector<std::string> items;
    for (const auto& item : answer_.at("output").as_array()) {
      const boost::json::object& members = item.as_object();
      const auto text_of_member = [](const boost::json::value& text) {
        return std::string(text.as_string().c_str());
      };
      std::string text;
      if (members.contains("arguments")) text = text_of_member(members.at("arguments"));
      if (members.contains("input")) text = text_of_member(members.at("input"));
      if (members.contains("content")) {
        const boost::json::object& part = members.at("content").at(0).as_object();
        text = text_of_member(part.contains("refusal") ? part.at("refusal") : part.at("text"));
      }
      items.push_back(text_of_member(members.at("type")) + ":" + text);
    }
    return items;
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  const ResponsesCaller caller_{std::make_shared<ResponseStore>(1'000'000, 60s), 3};
  boost::json::value body_, answer_;
};

using Lines = std::vector<std::string>;

TEST_F(ResponseOrder, ItemsComeInTheOrderOfTheParts) {
  EXPECT_EQ(items_of({{PartKind::kText, "a", 0, {}, {}},
                      {PartKind::kReasoning, "b", 0, {}, {}},
                      {PartKind::kText, "c", 0, {}, {}},
                      {PartKind::kToolCall, "{}", 0, "i0", "f"},
                      {PartKind::kReasoning, "d", 0, {}, {}},
                      {PartKind::kToolCall, "{}", 1, "i1", "f"},
                      {PartKind::kRefusal, "e", 0, {}, {}}}),
            (Lines{"message:a", "reasoning:b", "message:c", "function_call:{}", "reasoning:d",
                   "function_call:{}", "message:e"}));
}

TEST_F(ResponseOrder, EachItemHasAnIdOfItsKindAndItsPlace) {
  items_of({{PartKind::kReasoning, "a", 0, {}, {}},
            {PartKind::kText, "b", 0, {}, {}},
            {PartKind::kToolCall, "{}", 0, "i0", "f"},
            {PartKind::kToolCall, R"({"input":"x"})", 1, "i1", "note"}});
  const std::string tail(answer_.at("id").as_string().c_str() + std::string_view("resp").size());
  const std::string_view prefixes[] = {"rs", "msg", "fc", "ctc"};
  for (size_t i = 0; i < std::size(prefixes); ++i) {
    EXPECT_EQ(answer_.at("output").at(i).at("id").as_string().c_str(),
              fmt::format("{}{}_{}", prefixes[i], tail, i));
    EXPECT_EQ(answer_.at("output").at(i).at("status"), "completed");
  }
}

TEST_F(ResponseOrder, PiecesOfOneItemAreJoinedAndBlanksAloneAreNoItem) {
  EXPECT_EQ(items_of({{PartKind::kText, "\n", 0, {}, {}},
                      {PartKind::kText, " a", 0, {}, {}},
                      {PartKind::kText, " \n", 0, {}, {}},
                      {PartKind::kText, "b", 0, {}, {}}}),
            Lines{"message:\n a \nb"});
  EXPECT_EQ(items_of({{PartKind::kReasoning, "r", 0, {}, {}},
                      {PartKind::kText, "\n", 0, {}, {}},
                      {PartKind::kReasoning, "s", 0, {}, {}},
                      {PartKind::kText, " ", 0, {}, {}}}),
            (Lines{"reasoning:rs"}));
  EXPECT_EQ(items_of({{PartKind::kText, " \n", 0, {}, {}}}), Lines{"message: \n"})
      << "every answer has an item";
}

TEST_F(ResponseOrder, CallsOfOneFunctionAreTwoItems) {
  EXPECT_EQ(items_of({{PartKind::kToolCall, "{\"a\"", 0, "i0", "f"},
                      {PartKind::kToolCall, ":1}", 0, {}, {}},
                      {PartKind::kToolCall, "", 1, "i1", "f"},
                      {PartKind::kToolCall, "{}", 1, {}, {}}}),
            (Lines{"function_call:{\"a\":1}", "function_call:{}"}));
  EXPECT_EQ(answer_.at("output").at(0).at("call_id"), "i0");
  EXPECT_EQ(answer_.at("output").at(1).at("call_id"), "i1");
  EXPECT_EQ(answer_.at("output").at(1).at("name"), "f");
}

TEST_F(ResponseOrder, TheTextOfACustomToolIsTakenOutOfItsArguments) {
  const auto input_of = [this](std::string_view arguments) {
    return items_of({{PartKind::kToolCall, std::string(arguments), 0, "i", "note"}})[0];
  };
  EXPECT_EQ(input_of(R"({"input":"a \"b\"\n"})"), "custom_tool_call:a \"b\"\n");
  EXPECT_EQ(input_of(R"({"input":""})"), "custom_tool_call:");
  EXPECT_EQ(input_of(R"({"input":"not closed)"), "custom_tool_call:not closed");
  // What holds no such text is passed on as it is.
  for (const std::string_view other : {R"({"input":7})", R"({"other":"x"})", R"({"inp)"}) {
    EXPECT_EQ(input_of(other), fmt::format("custom_tool_call:{}", other));
  }
}

TEST_F(ResponseOrder, OnlyTheLastItemOfACutAnswerIsIncomplete) {
  items_of({{PartKind::kReasoning, "a", 0, {}, {}}, {PartKind::kToolCall, "{\"q", 0, "i0", "f"}},
           Finish::Kind::kLength);
  EXPECT_EQ(answer_.at("status"), "incomplete");
  EXPECT_EQ(answer_.at("output").at(0).at("status"), "completed");
  EXPECT_EQ(answer_.at("output").at(1).at("status"), "incomplete");
  EXPECT_EQ(answer_.at("output").at(1).at("arguments"), "{\"q");
}

TEST_F(ResponseOrder, TheAnswerRepeatsWhatItWasAskedWith) {
  items_of({});
  const std::pair<std::string_view, std::string_view> kMembers[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"previous_response_id", "null"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"store", "false"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", "\"auto\""},
      {"tools", R"([{"type":"custom","name":"note"}])"},
      {"top_logprobs", "0"},
      {"truncation", "\"disabled\""},
      {"background", "false"},
      {"service_tier", "\"default\""},
  };
  for (const auto& [name, json] : kMembers) EXPECT_EQ(to_text(answer_.at(name)), json) << name;
}

TEST_F(ResponseOrder, ItemsOfABodyHaveATypeAndAnId) {
  const auto body = parse_body(R"({"input":[{"role":"user","content":"a"},
      {"type":"reasoning","id":"rs_x_1","summary":[]},
      {"type":"function_call","id":null,"call_id":"c","name":"f"}]})")
                        .value();
  const auto items = collect_items(body.get_object(), caller_).value();
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].at("type"), "message");
  EXPECT_TRUE(std::string(items[0].at("id").as_string().c_str()).starts_with("item_"));
  EXPECT_EQ(items[1].at("id"), "rs_x_1") << "what has an id keeps it";
  EXPECT_TRUE(std::string(items[2].at("id").as_string().c_str()).ends_with("_2"));
  const auto text = parse_body(R"({"input":""})").value();
  const auto message = collect_items(text.get_object(), caller_).value();
  EXPECT_EQ(to_text(message[0].at("content")), R"([{"type":"input_text","text":""}])");
}

TEST_F(ResponseOrder, ItemsAreAtMostTenThousand) {
  boost::json::array items(10'000, {{"role", "user"}, {"content", "a"}});
  boost::json::object body{{"input", items}};
  EXPECT_TRUE(collect_items(body, caller_).ok());
  body["input"].as_array().push_back(boost::json::object{{"role", "user"}});
  const auto refused = collect_items(body, caller_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "input is a list of 10001, but it must be at most 10000 items");
}

// A reference of a few bytes means as much as was kept.
TEST_F(ResponseOrder, WhatReferencesCallUpHasABound) {
  const auto store = std::make_shared<ResponseStore>(size_t{64} << 20, std::chrono::seconds(60));
  const ResponsesCaller caller{store, 3};
  store->put({"resp_1", 3, "{}", "[]",
              fmt::format(R"([{{"id":"msg_1_0","type":"message","text":"{}"}}])",
                          std::string(size_t{1} << 20, 'a'))});
  const auto with = [&](int count) {
    const boost::json::object reference{{"type", "item_reference"}, {"id", "msg_1_0"}};
    const boost::json::array input(static_cast<size_t>(count), reference);
    return collect_items({{"input", input}}, caller);
  };
  EXPECT_EQ(with(31).value().size(), 31u);
  const auto refused = with(40);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "input[31].id");
  EXPECT_TRUE(refused.error().message.ends_with("it must be among items of at most 32 MiB"))
      << refused.error().message;
}

TEST_F(ResponseOrder, WhatIsKeptForAnotherIsNotFound) {
  caller_.store->put({"resp_1", 4, "{}", "[]", R"([{"id":"msg_1_0","type":"message"}])"});
  const auto error_of_body = [this](std::string_view body) {
    const auto value = parse_body(body).value();
    const auto items = collect_items(value.get_object(), caller_);
    return items.ok() ? std::string("taken") : items.error().message + "; " + items.error().hint;
  };
  EXPECT_EQ(error_of_body(R"({"input":"q","previous_response_id":"resp_1"})"),
            "previous_response_id is \"resp_1\", but it must be the id of a response that is kept; "
            "responses are kept for a while if store is not false; send the whole conversation");
  EXPECT_EQ(error_of_body(R"({"input":[{"type":"item_reference","id":"msg_1_0"}]})"),
            "input[0].id is \"msg_1_0\", but it must be the id of an item that is kept; send the "
            "item itself");
  caller_.store->put({"resp_2", 3, "{}", "[]", R"([{"id":"msg_2_0","type":"message"}])"});
  EXPECT_EQ(error_of_body(R"({"input":[{"type":"item_reference","id":"msg_2_0"}]})"), "taken");
  EXPECT_NE(error_of_body(R"({"input":[{"type":"item_reference","id":"msg_2_1"}]})"), "taken");
  EXPECT_NE(error_of_body(R"({"input":[{"type":"item_reference"}]})"), "taken");
}

}  // namespace items_test
}  // namespace headrace
