// Answers as messages: whole ones and events, from parts as parsers make them.

#include <gtest/gtest.h>

#include "server/api/anthropic/anthropic.h"
#include "server/api/json.h"

namespace headrace {
namespace anthropic_render_test {

using Kind = OutputPart::Kind;

OutputPart text(std::string text) { return {Kind::kText, std::move(text), 0, {}, {}}; }
OutputPart thought(std::string text) { return {Kind::kReasoning, std::move(text), 0, {}, {}}; }
OutputPart call(int idx, std::string arguments, std::string name = {}) {
  const std::string id = name.empty() ? "" : fmt::format("toolu_{}", idx);
  return {Kind::kToolCall, std::move(arguments), idx, id, std::move(name)};
}

ChoiceDelta delta(std::vector<OutputPart> parts, Finish finish = {}) {
  return {0, std::move(parts), {}, std::move(finish)};
}

AnswerEnd end_of(int32_t prompt, int32_t output, int32_t cached = 0) {
  AnswerEnd end;
  end.usage.prompt_tokens = prompt;
  end.usage.output_tokens = output;
  end.usage.cached_tokens = cached;
  return end;
}

std::string whole(AnthropicAnswer answer, std::vector<OutputPart> parts, Finish finish,
                  const AnswerEnd& end) {
  const auto renderer = make_message_renderer(std::move(answer));
  JsonWriter json;
  renderer->begin_whole(json);
  renderer->add_choice(delta(std::move(parts), std::move(finish)), json);
  renderer->end_whole(end, json);
  std::string body = json.take();
  const size_t id = body.find(renderer->id());
  EXPECT_NE(id, std::string::npos);
  return body.replace(id, renderer->id().size(), "ID");
}

TEST(AnthropicRender, AWholeMessageHasABlockForEachPart) {
  EXPECT_EQ(
      whole({"m", 100},
            {thought("hm"), text("Hello"), call(0, R"({"a": 1})", "f"), call(1, "cut {", "g")},
            {Finish::Kind::kToolCalls, {}}, end_of(10, 7, 4)),
      R"({"id":"ID","type":"message","role":"assistant","model":"m","content":[)"
      R"({"type":"thinking","thinking":"hm","signature":"08ba5b07b55ebd0e"},)"
      R"({"type":"text","text":"Hello"},)"
      R"({"type":"tool_use","id":"toolu_0","name":"f","input":{"a":1}},)"
      R"({"type":"tool_use","id":"toolu_1","name":"g","input":{}}],)"
      R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7,"output_tokens_details":{"thinking_tokens":0}}})");
}

TEST(AnthropicRender, EveryEndHasItsReason) {
  struct Case {
    Finish finish;
    int32_t num_tokens;
    std::string_view shown;
  };
  const Case cases[] = {
      {{Finish::Kind::kEnd, {}}, 3, R"("stop_reason":"end_turn","stop_sequence":null)"},
      {{Finish::Kind::kLength, {}}, 9, R"("stop_reason":"max_tokens")"},
      {{Finish::Kind::kLength, {}}, 8, R"("stop_reason":"model_context_window_exceeded")"},
      {{Finish::Kind::kStopString, "END"},
       3,
       R"("stop_reason":"stop_sequence","stop_sequence":"END")"},
  };
  for (const Case& each : cases) {
    const std::string body = whole({"m", 9}, {text("a")}, each.finish, end_of(1, each.num_tokens));
    EXPECT_NE(body.find(each.shown), std::string::npos) << body;
  }
  const std::string refused =
      whole({"m", 9}, {{Kind::kRefusal, "no", 0, {}, {}}}, {Finish::Kind::kEnd, {}}, end_of(1, 1));
  EXPECT_NE(refused.find(R"({"type":"text","text":"no"}],"stop_reason":"refusal")"),
            std::string::npos)
      << refused;
}

TEST(AnthropicRender, AStreamOpensGrowsAndClosesBlocks) {
  const auto renderer = make_message_renderer({"m", 100});
  Usage usage;
  usage.prompt_tokens = 5;
  std::string stream = renderer->begin_stream(usage);
  stream += renderer->chunk(delta({thought("h")}), {});
  stream += renderer->chunk(delta({thought("m"), text("Hel")}), {});
  stream += renderer->chunk(delta({text("lo"), call(0, "", "f")}), {});
  stream += renderer->chunk(delta({call(0, R"({"a")"), call(0, ":1}"), call(1, "{}", "g")}), {});
  stream += renderer->chunk(delta({}, {Finish::Kind::kToolCalls, {}}), {});
  stream += renderer->end_stream(end_of(5, 9, 2));
  const std::string start = fmt::format(
      "event: message_start\n"
      R"(data: {{"type":"message_start","message":{{"id":"{}","type":"message",)"
      R"("role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,)"
      R"("usage":{{"input_tokens":5,"cache_creation_input_tokens":0,)"
      R"("cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{{"thinking_tokens":0}}}}}}}})"
      "\n\n",
      renderer->id());
  ASSERT_TRUE(stream.starts_with(start)) << stream;
  std::string rest;
  const auto add = [&](std::string_view name, std::string_view members) {
    rest += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\"{1}}}\n\n", name, members);
  };
  const auto grows = [&](int index, std::string_view type, std::string_view member,
                         std::string_view value) {
    add("content_block_delta", fmt::format(R"(,"index":{},"delta":{{"type":"{}","{}":"{}"}})",
                                           index, type, member, value));
  };
  add("content_block_start",
      R"(,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""})");
  grows(0, "thinking_delta", "thinking", "h");
  grows(0, "thinking_delta", "thinking", "m");
  grows(0, "signature_delta", "signature", "08ba5b07b55ebd0e");
  add("content_block_stop", R"(,"index":0)");
  add("content_block_start", R"(,"index":1,"content_block":{"type":"text","text":""})");
  grows(1, "text_delta", "text", "Hel");
  grows(1, "text_delta", "text", "lo");
  add("content_block_stop", R"(,"index":1)");
  add("content_block_start",
      R"(,"index":2,"content_block":{"type":"tool_use","id":"toolu_0","name":"f","input":{}})");
  grows(2, "input_json_delta", "partial_json", R"({\"a\")");
  grows(2, "input_json_delta", "partial_json", ":1}");
  add("content_block_stop", R"(,"index":2)");
  add("content_block_start",
      R"(,"index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"g","input":{}})");
  grows(3, "input_json_delta", "partial_json", "{}");
  add("content_block_stop", R"(,"index":3)");
  add("message_delta",
      R"(,"delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":3,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":9,"output_tokens_details":{"thinking_tokens":0}})");
  add("message_stop", "");
  EXPECT_EQ(stream.substr(start.size()), rest);
}

TEST(AnthropicRender, ThinkingThatIsNotWantedIsNotShown) {
  const std::string body = whole({"m", 9, false}, {thought("secret"), text("a")},
                                 {Finish::Kind::kEnd, {}}, end_of(1, 2));
  EXPECT_EQ(body.find("secret"), std::string::npos);
  EXPECT_NE(body.find(R"({"type":"thinking","thinking":"","signature":")"), std::string::npos);
  const auto renderer = make_message_renderer({"m", 9, false});
  const std::string events = renderer->chunk(delta({thought("secret"), text("a")}), {});
  EXPECT_EQ(events.find("secret"), std::string::npos);
  EXPECT_NE(events.find("signature_delta"), std::string::npos);
}

TEST(AnthropicRender, AnErrorInTheStreamIsAnEvent) {
  const auto renderer = make_message_renderer({"m", 9});
  EXPECT_EQ(renderer->stream_error(Error{ErrorCode::kExhausted, "too slow", {}, {}}),
            "event: error\n"
            R"(data: {"type":"error","error":{"type":"rate_limit_error","message":"too slow"},)"
            R"("request_id":null})"
            "\n\n");
}

TEST(AnthropicRender, ErrorsAreNamedByTheirStatus) {
  const std::pair<int, std::string_view> cases[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {413, "request_too_large"},     {422, "invalid_request_error"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"},
  };
  for (const auto& [status, type] : cases) {
    Problem problem{status, "m"};
    problem.request_id = "req_1";
    EXPECT_EQ(kAnthropic.error_body(problem),
              fmt::format(R"({{"type":"error","error":{{"type":"{}","message":"m"}},)"
                          R"("request_id":"req_1"}})",
                          type));
  }
}

}  // namespace anthropic_render_test
}  // namespace headrace
