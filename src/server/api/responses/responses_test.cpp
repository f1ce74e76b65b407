#include "server/api/responses/responses.h"

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/api/prompt.h"
#include "server/api/test_support.h"

namespace headrace {
namespace responses_test {

using namespace std::chrono_literals;
using Kind = OutputPart::Kind;

// The names of a stream's events and their data, in order.
std::vector<std::pair<std::string, boost::json::value>> named_events(std::string_view body) {
  std::vector<std::pair<std::string, boost::json::value>> events;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    CHECK(body.starts_with("event: ") && end != std::string_view::npos, "{}", body);
    const std::string_view event = body.substr(7, end - 7);
    const size_t line = event.find("\ndata: ");
    events.emplace_back(std::string(event.substr(0, line)),
                        parse_body(event.substr(line + 7)).value());
    body.remove_prefix(end + 2);
  }
  return events;
}

class ResponsesTest : public testing::Test {
 protected:
  Result<ParsedRequest> parse(std::string_view body) {
    body_ = parse_body(body).value();
    return parse_response(body_.get_object(), model_, caller_);
  }
  // "" or the error with its field.
  std::string error_of(std::string_view body) {
    const auto parsed = parse(body);
    return parsed.ok() ? "" : parsed.error().param + ": " + parsed.error().to_string();
  }
  // The prompt's text.
  std::string prompt_of(std::string_view body) {
    auto parsed = parse(body);
    if (!parsed.ok()) return parsed.error().to_string();
    const Status status =
        read_prompts(std::move(parsed->prompts), model_, Caller{}, parsed->request);
    if (!status.ok()) return status.error().to_string();
    return bundle_.tokenizer->decode(parsed->request.prompts[0].ids, true).value();
  }
  static ChoiceDelta delta_of(std::vector<OutputPart> parts, Finish finish = {}) {
    ChoiceDelta delta;
    delta.parts = std::move(parts);
    delta.finish = std::move(finish);
    return delta;
  }
  // The whole answer to a body, of these parts.
  boost::json::value whole(std::string_view body, std::vector<OutputPart> parts,
                           Finish finish = {Finish::Kind::kEnd, {}}) {
    auto parsed = parse(body).value();
    JsonWriter json;
    parsed.renderer->begin_whole(json);
    parsed.renderer->add_choice(delta_of(std::move(parts), std::move(finish)), json);
    parsed.renderer->end_whole({{5, 3, 2}, {}}, json);
    return parse_body(json.str()).value();
  }
  // The stream of an answer, a chunk for each part.
  std::string stream(std::string_view body, const std::vector<OutputPart>& parts,
                     Finish finish = {Finish::Kind::kEnd, {}}) {
    auto parsed = parse(body).value();
    std::string bytes = parsed.renderer->begin_stream({});
    for (const OutputPart& part : parts) bytes += parsed.renderer->chunk(delta_of({part}), {});
    bytes += parsed.renderer->chunk(delta_of({}, std::move(finish)), {});
    return bytes + parsed.renderer->end_stream({{5, 3, 2}, {}});
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted", "alias"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  const ResponsesCaller caller_{std::make_shared<ResponseStore>(1'000'000, 60s), 3};
  boost::json::value body_;
};

TEST_F(ResponsesTest, ATextIsAMessageOfTheUser) {
  EXPECT_EQ(prompt_of(R"({"input":"Hi","store":false})"), "[user]Hi\n[assistant]");
  EXPECT_EQ(prompt_of(R"({"input":"Hi","instructions":"Be brief."})"),
            "[system]Be brief.\n[user]Hi\n[assistant]");
}

TEST_F(ResponsesTest, ItemsAreMessages) {
  EXPECT_EQ(prompt_of(R"({"instructions":"A","input":[
      {"role":"developer","content":"B"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"x"},
                                                 {"type":"input_text","text":"y"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"z"}]},
      {"role":"user","content":"w"}]})"),
            "[system]A\n\nB\n[user]x\ny\n[assistant]z\n[user]w\n[assistant]");
}

TEST_F(ResponsesTest, CallsAndTheirOutputsAreTurns) {
  IgnoredFields ignored;
  const auto items = parse_body(R"([
      {"role":"user","content":"q"},
      {"type":"reasoning","id":"rs_1","summary":[],
       "content":[{"type":"reasoning_text","text":"hm"}]},
      {"role":"assistant","content":"let me see"},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},
      {"type":"custom_tool_call","call_id":"c2","name":"patch","input":"*** \"x\""},
      {"type":"function_call_output","call_id":"c1","output":"one"},
      {"type":"custom_tool_call_output","call_id":"c2",
       "output":[{"type":"input_text","text":"two"}]},
      {"type":"reasoning","summary":[],"content":null,"encrypted_content":"plain:so"},
      {"type":"web_search_call","id":"ws_1","status":"completed"},
      {"role":"assistant","content":"done"}])")
                         .value();
  const auto messages = read_items(items.get_array(), "", ignored).value();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1].role, "assistant");
  EXPECT_EQ(messages[1].reasoning, "hm");
  EXPECT_EQ(messages[1].text, "let me see");
  ASSERT_EQ(messages[1].calls.size(), 2u);
  EXPECT_EQ(messages[1].calls[0].id, "c1");
  EXPECT_EQ(messages[1].calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(messages[1].calls[1].arguments, R"({"input":"*** \"x\""})");
  EXPECT_EQ(messages[2].role, "tool");
  EXPECT_EQ(messages[2].text, "one");
  EXPECT_EQ(messages[2].name, "f");
  EXPECT_EQ(messages[3].call_id, "c2");
  EXPECT_EQ(messages[3].text, "two");
  EXPECT_EQ(messages[4].reasoning, "so");
  EXPECT_EQ(messages[4].text, "done");
  EXPECT_EQ(ignored.text(), "input[].web_search_call");
}

TEST_F(ResponsesTest, TheFormOfTheAnswerIsNeutral) {
  const auto parsed = parse(R"({"input":"q","parallel_tool_calls":false,"max_output_tokens":9,
      "tools":[{"type":"function","name":"f","description":"d","strict":true,
                "parameters":{"type":"object"}},
               {"type":"custom","name":"patch","format":{"type":"grammar","syntax":"lark",
                "definition":"start: \"a\""}},
               {"type":"web_search"}],
      "tool_choice":{"type":"function","name":"f"},
      "reasoning":{"effort":"high","summary":"auto"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const AnswerForm& form = parsed->request.form;
  ASSERT_EQ(form.tools.functions.size(), 2u);
  EXPECT_EQ(form.tools.functions[0].name, "f");
  EXPECT_EQ(form.tools.functions[0].parameters, R"({"type":"object"})");
  EXPECT_TRUE(form.tools.functions[0].strict);
  EXPECT_NE(form.tools.functions[1].description.find("start: \"a\""), std::string::npos);
  EXPECT_EQ(form.tools.functions[1].input_grammar, "start: \"a\"");
  EXPECT_FALSE(form.tools.parallel);
  EXPECT_EQ(form.tools.choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(form.tools.choice.name, "f");
  EXPECT_EQ(form.reasoning.effort, "high");
  EXPECT_EQ(form.structure.kind, Structure::Kind::kJsonSchema);
  EXPECT_EQ(form.structure.text, R"({"type":"object"})");
  EXPECT_EQ(form.structure.param, "text.format.schema");
  EXPECT_EQ(parsed->request.prototype.max_tokens, 9);
  const HttpHeaders expected = {{std::string(kIgnoredHeader), "tools[].web_search"}};
  EXPECT_EQ(parsed->request.headers, expected);
}

TEST_F(ResponsesTest, TextsOfCustomToolsHaveAGrammarOrNone) {
  const auto tool = [&](std::string_view format) {
    return parse(fmt::format(
        R"({{"input":"q","tools":[{{"type":"custom","name":"f","format":{}}}]}})", format));
  };
  const auto regex = tool(R"({"type":"grammar","syntax":"regex","definition":"a|b"})");
  ASSERT_TRUE(regex.ok()) << regex.error().to_string();
  const ToolFunction& function = regex->request.form.tools.functions[0];
  EXPECT_NE(function.parameters.find(R"("pattern":"^(?:a|b)$")"), std::string::npos);
  EXPECT_TRUE(function.strict);
  const auto text = tool(R"({"type":"text"})");
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_FALSE(text->request.form.tools.functions[0].strict);
  const std::pair<std::string_view, std::string_view> kBad[] = {
      {R"({"type":"poem"})", "tools[0].format.type"},
      {R"({"type":"grammar","syntax":"abnf","definition":"a"})", "tools[0].format.syntax"},
      {R"({"type":"grammar","syntax":"lark"})", "tools[0].format.definition"},
      {R"({"type":"grammar","syntax":"regex","definition":7})", "tools[0].format.definition"},
      {R"("lark")", "tools[0].format"}};
  for (const auto& [format, param] : kBad) {
    const auto parsed = tool(format);
    ASSERT_FALSE(parsed.ok()) << format;
    EXPECT_EQ(parsed.error().param, param);
  }
}

TEST_F(ResponsesTest, AllowedToolsAreThoseThatAreLeft) {
  const auto parsed = parse(R"({"input":"q","tools":[{"type":"function","name":"f"},
      {"type":"function","name":"g"}],"tool_choice":{"type":"allowed_tools","mode":"required",
      "tools":[{"type":"function","name":"g"}]},"reasoning":{"effort":"none"}})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->request.form.tools.functions.size(), 1u);
  EXPECT_EQ(parsed->request.form.tools.functions[0].name, "g");
  EXPECT_EQ(parsed->request.form.tools.choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(parsed->request.form.reasoning.enabled, false);
}

constexpr std::string_view kPlaced =
    R"({"input":"q","tools":[{"type":"function","name":"f"},
        {"type":"namespace","name":"mcp__wall","description":"d","tools":[
         {"type":"function","name":"f","parameters":{"type":"object"}},
         {"type":"custom","name":"patch"}]}],
        "tool_choice":{"type":"function","name":"f","namespace":"mcp__wall"}})";

TEST_F(ResponsesTest, ToolsOfANamespaceHaveOneNameForTheModel) {
  const auto parsed = parse(kPlaced);
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  const ToolUse& tools = parsed->request.form.tools;
  ASSERT_EQ(tools.functions.size(), 3u);
  EXPECT_EQ(tools.functions[0].name, "f");
  EXPECT_EQ(tools.functions[1].name, "mcp__wall__f");
  EXPECT_EQ(tools.functions[1].parameters, R"({"type":"object"})");
  EXPECT_EQ(tools.functions[2].name, "mcp__wall__patch");
  EXPECT_EQ(tools.choice.name, "mcp__wall__f");
  EXPECT_TRUE(parsed->request.headers.empty());
  EXPECT_TRUE(error_of(R"({"input":"q","tools":[{"type":"namespace","name":"a","tools":[
      {"type":"namespace","name":"b","tools":[]}]}]})")
                  .starts_with("tools[0].tools[0].type: "));
  EXPECT_TRUE(error_of(R"({"input":"q","tools":[{"type":"namespace","tools":[]}]})")
                  .starts_with("tools[0].name: "));
}

TEST_F(ResponsesTest, AClientSeesANamespaceApartFromTheName) {
  const auto answer =
      whole(kPlaced, {{Kind::kToolCall, "{}", 0, "c1", "mcp__wall__f"},
                      {Kind::kToolCall, R"({"input":"x"})", 1, "c2", "mcp__wall__patch"},
                      {Kind::kToolCall, "{}", 2, "c3", "f"}});
  const auto& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 3u);
  for (const size_t i : {0, 1}) EXPECT_EQ(output[i].at("namespace"), "mcp__wall");
  EXPECT_EQ(output[0].at("name"), "f");
  EXPECT_EQ(output[1].at("name"), "patch");
  EXPECT_EQ(output[1].at("input"), "x");
  EXPECT_EQ(output[2].at("name"), "f");
  EXPECT_FALSE(output[2].as_object().contains("namespace"));
  IgnoredFields ignored;
  const auto messages = read_items(output, "", ignored).value();
  ASSERT_EQ(messages[0].calls.size(), 3u);
  EXPECT_EQ(messages[0].calls[0].name, "mcp__wall__f");
  EXPECT_EQ(messages[0].calls[2].name, "f");
}

TEST_F(ResponsesTest, FaultsNameTheirField) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "input: input is missing"},
      {R"({"input":[]})", "input: input is a list of 0"},
      {R"({"input":7})", "input: input is 7"},
      {R"({"input":["a"]})", "input[0]: input[0] is \"a\", but it must be an object"},
      {R"({"input":[{"role":"robot","content":"x"}]})",
       "input[0].role: input[0].role is \"robot\""},
      {R"({"input":[{"type":"zebra"}]})", "input[0].type: input[0].type is \"zebra\""},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"u"}]}]})",
       "input[0].content[0].type: input[0].content[0].type is \"input_image\""},
      {R"({"input":[{"type":"function_call","call_id":"c"}]})", "input[0].name: "},
      {R"({"input":[{"type":"function_call_output","call_id":"c"}]})", "input[0].output: "},
      {R"({"input":"q","previous_response_id":"resp_0"})", "previous_response_id: "},
      {R"({"input":[{"type":"item_reference","id":"msg_0_0"}]})", "input[0].id: "},
      {R"({"input":"q","tools":[{"type":"zebra"}]})", "tools[0].type: "},
      {R"({"input":"q","tools":[{"type":"function"}]})", "tools[0].name: "},
      {R"({"input":"q","tool_choice":"required"})", "tool_choice: "},
      {R"({"input":"q","tool_choice":{"type":"function","name":"f"}})", "tool_choice.name: "},
      {R"({"input":"q","max_output_tokens":0})", "max_output_tokens: "},
      {R"({"input":"q","temperature":-1})", "temperature: "},
      {R"({"input":"q","text":{"format":{"type":"xml"}}})", "text.format.type: "},
      {R"({"input":"q","text":{"format":{"type":"json_schema"}}})", "text.format.schema: "},
      {R"({"input":"q","reasoning":{"effort":"mad"}})", "reasoning.effort: "},
      {R"({"input":"q","background":true})", "background: "},
      {R"({"input":"q","truncation":"auto"})", "truncation: "},
      {R"({"input":"q","include":[1]})", "include: "},
      {R"({"input":"q","model":"gone"})", "model: "},
      {R"({"input":"q","response_format":{"type":"json_object"}})", "response_format: "},
  };
  for (const auto& [body, error] : kCases) {
    EXPECT_TRUE(error_of(body).starts_with(error)) << body << " -> " << error_of(body);
  }
  EXPECT_EQ(error_of(R"({"input":"q","truncation":"disabled","background":false,"n":1,
                         "service_tier":"auto","user":"u","metadata":{"a":"b"}})"),
            "");
}

TEST_F(ResponsesTest, AWholeAnswerHasAnItemForEachPart) {
  const auto answer = whole(
      R"({"input":"q","model":"alias","instructions":"I","metadata":{"k":"v"},"temperature":0,
          "tools":[{"type":"custom","name":"patch"}],"include":["reasoning.encrypted_content"]})",
      {{Kind::kReasoning, "hm", 0, {}, {}},
       {Kind::kText, "\n\n", 0, {}, {}},
       {Kind::kToolCall, R"({"a":1})", 0, "call_1", "f"},
       {Kind::kToolCall, R"({"input":"x\ny"})", 1, "call_2", "patch"},
       {Kind::kText, " done", 0, {}, {}}});
  EXPECT_EQ(answer.at("object"), "response");
  EXPECT_EQ(answer.at("status"), "completed");
  EXPECT_EQ(answer.at("model"), "alias");
  EXPECT_EQ(answer.at("instructions"), "I");
  EXPECT_EQ(to_text(answer.at("metadata")), R"({"k":"v"})");
  EXPECT_TRUE(answer.at("error").is_null() && answer.at("incomplete_details").is_null());
  EXPECT_EQ(to_text(answer.at("usage")),
            R"({"input_tokens":5,"input_tokens_details":{"cached_tokens":2},"output_tokens":3,)"
            R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":8})");
  const auto& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0].at("type"), "reasoning");
  EXPECT_EQ(output[0].at("content").at(0).at("text"), "hm");
  EXPECT_EQ(output[0].at("encrypted_content"), "plain:hm");
  EXPECT_EQ(output[1].at("type"), "function_call");
  EXPECT_EQ(output[1].at("call_id"), "call_1");
  EXPECT_EQ(output[1].at("arguments"), R"({"a":1})");
  EXPECT_EQ(output[2].at("type"), "custom_tool_call");
  EXPECT_EQ(output[2].at("input"), "x\ny");
  EXPECT_EQ(output[3].at("content").at(0).at("text"), " done");
  EXPECT_EQ(response_of_item(output[3].at("id").as_string().c_str()),
            answer.at("id").as_string().c_str());
}

TEST_F(ResponsesTest, AnEmptyAnswerIsAnEmptyMessage) {
  const auto answer = whole(R"({"input":"q"})", {});
  ASSERT_EQ(answer.at("output").as_array().size(), 1u);
  EXPECT_EQ(answer.at("output").at(0).at("content").at(0).at("text"), "");
}

TEST_F(ResponsesTest, AnAnswerThatIsCutIsIncomplete) {
  const auto answer =
      whole(R"({"input":"q"})", {{Kind::kText, "x", 0, {}, {}}}, {Finish::Kind::kLength, {}});
  EXPECT_EQ(answer.at("status"), "incomplete");
  EXPECT_EQ(answer.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(answer.at("output").at(0).at("status"), "incomplete");
}

TEST_F(ResponsesTest, AStreamTellsOfEachItemByNamedEventsInOrder) {
  const auto events =
      named_events(stream(R"({"input":"q","tools":[{"type":"custom","name":"patch"}]})",
                          {{Kind::kReasoning, "h", 0, {}, {}},
                           {Kind::kReasoning, "m", 0, {}, {}},
                           {Kind::kText, "a", 0, {}, {}},
                           {Kind::kText, "b", 0, {}, {}},
                           {Kind::kToolCall, "{", 0, "call_1", "f"},
                           {Kind::kToolCall, "}", 0, {}, {}},
                           {Kind::kToolCall, R"({"input":)", 1, "call_2", "patch"},
                           {Kind::kToolCall, R"("x"})", 1, {}, {}}}));
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].second.at("type").as_string().c_str(), events[i].first);
    EXPECT_EQ(events[i].second.at("sequence_number").as_int64(), static_cast<int64_t>(i));
    names.push_back(events[i].first.substr(9));  // after "response."
  }
  const std::vector<std::string> expected = {"created",
                                             "in_progress",
                                             "output_item.added",
                                             "content_part.added",
                                             "reasoning_text.delta",
                                             "reasoning_text.delta",
                                             "reasoning_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "content_part.added",
                                             "output_text.delta",
                                             "output_text.delta",
                                             "output_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "custom_tool_call_input.delta",
                                             "custom_tool_call_input.done",
                                             "output_item.done",
                                             "completed"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(events[6].second.at("text"), "hm");
  EXPECT_EQ(events[9].second.at("output_index"), 1);
  EXPECT_EQ(to_text(events[9].second.at("item").at("content")), "[]");
  EXPECT_EQ(events[13].second.at("text"), "ab");
  EXPECT_EQ(events[19].second.at("arguments"), "{}");
  EXPECT_EQ(events[22].second.at("delta"), "x");
  const auto& response = events.back().second.at("response");
  EXPECT_EQ(response.at("status"), "completed");
  ASSERT_EQ(response.at("output").as_array().size(), 4u);
  // Each item is at its end what the response holds of it.
  EXPECT_EQ(events[8].second.at("item"), response.at("output").at(0));
  EXPECT_EQ(events[24].second.at("item"), response.at("output").at(3));
}

TEST_F(ResponsesTest, AStreamOfAnyChunksIsTheWholeAnswer) {
  const std::string text = "So, {\"x\": 1}\n and more";
  const auto answer = whole(R"({"input":"q","store":false})", {{Kind::kText, text, 0, {}, {}}});
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<OutputPart> parts;
    for (size_t i = 0; i < text.size(); i += size) {
      parts.push_back({Kind::kText, text.substr(i, size), 0, {}, {}});
    }
    const auto events = named_events(stream(R"({"input":"q","store":false})", parts));
    const auto& output = events.back().second.at("response").at("output");
    EXPECT_EQ(output.at(0).at("content"), answer.at("output").at(0).at("content"));
    std::string joined;
    for (const auto& [name, data] : events) {
      if (name == "response.output_text.delta") joined += data.at("delta").as_string().c_str();
    }
    EXPECT_EQ(joined, text);
  }
}

TEST_F(ResponsesTest, ACustomToolIsGivenWhatThereIsOfACutText) {
  constexpr std::string_view kBody = R"({"input":"q","tools":[{"type":"custom","name":"patch"}]})";
  const auto input = [&](std::string_view arguments, Finish::Kind finish) {
    const auto answer =
        whole(kBody, {{Kind::kToolCall, std::string(arguments), 0, "c", "patch"}}, {finish, {}});
    return std::string(text_view(answer.at("output").at(0).at("input").as_string()));
  };
  const std::pair<std::string_view, std::string_view> kCut[] = {
      {R"({"input": "Hello, world)", "Hello, world"},
      {R"({"input": "a\n\"b)", "a\n\"b"},
      {R"({"input": "a\)", "a"},
      {R"({"input": "a\\)", "a\\"},
      {R"({"input": "a\u00)", "a"},
      {R"({"input": "a\ud83d)", "a"},
      {R"({"input": "a\ud83d\ude0)", "a"},
      {R"({"input": "a\ud83d\ude00)", "a\xF0\x9F\x98\x80"},
      {R"({"input": "done")", "done"},
      {R"({"input": ")", ""},
      {R"({"input": )", ""},
      {R"({"inp)", ""},
      {"{", ""},
      {"", ""}};
  for (const auto& [arguments, text] : kCut) {
    for (const Finish::Kind finish : {Finish::Kind::kLength, Finish::Kind::kStopString}) {
      EXPECT_EQ(input(arguments, finish), text) << arguments;
    }
  }
  const auto events = named_events(stream(
      kBody,
      {{Kind::kToolCall, R"({"input": "Hel)", 0, "c", "patch"}, {Kind::kToolCall, "lo", 0, {}, {}}},
      {Finish::Kind::kLength, {}}));
  EXPECT_EQ(events[3].first, "response.custom_tool_call_input.delta");
  EXPECT_EQ(events[3].second.at("delta"), "Hello");
  EXPECT_EQ(events[4].second.at("input"), "Hello");
  // What the model has ended, but not as it was told to, is shown as it is.
  EXPECT_EQ(input(R"({"text": "a"})", Finish::Kind::kToolCalls), R"({"text": "a"})");
  EXPECT_EQ(input("{'input': 'a'}", Finish::Kind::kToolCalls), "{'input': 'a'}");
}

// A piece of an answer, with its tokens: the bytes of a text.
struct Piece {
  std::vector<OutputPart> parts;
  std::string_view tokens;
};

OutputPart text_part(std::string text) { return {Kind::kText, std::move(text), 0, {}, {}}; }
OutputPart call_part(std::string name = {}) { return {Kind::kToolCall, "{}", 0, "c", name}; }

// The tokens that a list of log-probs is of.
std::string tokens_of(const boost::json::value& logprobs) {
  std::string tokens;
  for (const auto& each : logprobs.as_array()) tokens += text_view(each.at("token").as_string());
  return tokens;
}

// Of each message of a response, with bars behind them.
std::string tokens_of_messages(const boost::json::value& response) {
  std::string tokens;
  for (const auto& item : response.at("output").as_array()) {
    if (item.at("type") != "message") continue;
    tokens += tokens_of(item.at("content").at(0).at("logprobs")) + "|";
  }
  return tokens;
}

TEST_F(ResponsesTest, EachTokenOfTheTextHasItsLogProbsStreamedOrWhole) {
  constexpr std::string_view kBody = R"({"input":"q","include":["message.output_text.logprobs"]})";
  struct Row {
    std::vector<Piece> pieces;
    Finish::Kind finish;
    std::string_view tokens;
  };
  const Row kRows[] = {
      {{{{text_part("\n")}, "\n"}, {{text_part("a")}, "a"}}, Finish::Kind::kEnd, "\na|"},
      {{{{text_part("\n")}, "\n"}, {{text_part("\n")}, "\n"}}, Finish::Kind::kLength, "\n\n|"},
      {{{{text_part("a")}, "a"}, {{}, "xy"}}, Finish::Kind::kStopString, "axy|"},
      {{{{}, "<"}, {{text_part("<b")}, "b"}}, Finish::Kind::kEnd, "<b|"},
      {{{{text_part("a")}, "a"}, {{call_part("f")}, "<{"}, {{text_part("b")}, "b"}},
       Finish::Kind::kToolCalls,
       "a|b|"},
      {{{{text_part("\n")}, "\n"}, {{call_part("f")}, "{"}, {{call_part()}, "}"}},
       Finish::Kind::kToolCalls,
       ""},
  };
  for (const Row& row : kRows) {
    for (const bool streams : {false, true}) {
      auto parsed = parse(kBody).value();
      AnswerRenderer& renderer = *parsed.renderer;
      std::string bytes = streams ? renderer.begin_stream({}) : std::string();
      for (const Piece& piece : row.pieces) {
        ChoiceDelta delta = delta_of(piece.parts);
        for (const char c : piece.tokens) renderer.add_score({c, TokenLogprobs{}}, delta.scores);
        if (streams) bytes += renderer.chunk(delta, {});
        if (!streams) {
          EXPECT_TRUE(renderer.add_piece(delta));
        }
      }
      const ChoiceDelta last = delta_of({}, {row.finish, {}});
      if (!streams) {
        JsonWriter json;
        renderer.add_choice(last, json);
        renderer.end_whole({}, json);
        EXPECT_EQ(tokens_of_messages(parse_body(json.str()).value()), row.tokens);
        continue;
      }
      bytes += renderer.chunk(last, {}) + renderer.end_stream({});
      std::string of_deltas;
      const auto events = named_events(bytes);
      for (const auto& [name, data] : events) {
        if (name.ends_with("text.delta")) of_deltas += tokens_of(data.at("logprobs"));
        if (name.ends_with("text.done")) of_deltas += "|";
      }
      EXPECT_EQ(of_deltas, row.tokens);
      EXPECT_EQ(tokens_of_messages(events.back().second.at("response")), row.tokens);
    }
  }
}

TEST_F(ResponsesTest, AFaultInAStreamEndsItAsFailed) {
  auto parsed = parse(R"({"input":"q"})").value();
  std::string bytes = parsed.renderer->begin_stream({});
  bytes += parsed.renderer->chunk(delta_of({{Kind::kText, "x", 0, {}, {}}}), {});
  bytes += parsed.renderer->stream_error(make_error(ErrorCode::kInternal, "broken"));
  const auto events = named_events(bytes);
  EXPECT_EQ(events[events.size() - 2].first, "error");
  EXPECT_EQ(events[events.size() - 2].second.at("message"), "broken");
  EXPECT_EQ(events.back().first, "response.failed");
  EXPECT_EQ(events.back().second.at("response").at("error").at("code"), "server_error");
  EXPECT_EQ(caller_.store->bytes(), 0u);
}

TEST_F(ResponsesTest, AKeptResponseGoesOn) {
  const auto first =
      whole(R"({"input":"Hi","instructions":"I"})", {{Kind::kText, "Lo", 0, {}, {}}});
  const std::string id = first.at("id").as_string().c_str();
  ASSERT_NE(caller_.store->find(id, 3), nullptr);
  EXPECT_EQ(caller_.store->find(id, 4), nullptr);
  EXPECT_EQ(parse_body(caller_.store->find(id, 3)->body).value(), first);
  const std::string body = fmt::format(R"({{"input":"more","previous_response_id":"{}"}})", id);
  EXPECT_EQ(prompt_of(body), "[user]Hi\n[assistant]Lo\n[user]more\n[assistant]");
  // The whole history is kept with the second.
  const auto second = whole(body, {{Kind::kText, "!", 0, {}, {}}});
  EXPECT_EQ(prompt_of(fmt::format(R"({{"input":"x","previous_response_id":"{}"}})",
                                  second.at("id").as_string().c_str())),
            "[user]Hi\n[assistant]Lo\n[user]more\n[assistant]!\n[user]x\n[assistant]");
  // An item may stand for itself.
  EXPECT_EQ(
      prompt_of(fmt::format(
          R"({{"input":[{{"role":"user","content":"a"}},{{"type":"item_reference","id":"{}"}}]}})",
          first.at("output").at(0).at("id").as_string().c_str())),
      "[user]a\n[assistant]Lo\n[assistant]");
}

TEST_F(ResponsesTest, WhatIsNotToBeStoredIsNotKept) {
  whole(R"({"input":"Hi","store":false})", {{Kind::kText, "Lo", 0, {}, {}}});
  EXPECT_EQ(caller_.store->bytes(), 0u);
}

TEST(ResponseIds, ItemsKnowTheirResponse) {
  const std::string id = fresh_response_id();
  EXPECT_EQ(id.size(), 29u);
  EXPECT_NE(id, fresh_response_id());
  EXPECT_EQ(response_of_item(item_id("msg", id, 12)), id);
  EXPECT_EQ(response_of_item("msg_"), "");
  EXPECT_EQ(response_of_item(""), "");
}

}  // namespace responses_test
}  // namespace headrace
