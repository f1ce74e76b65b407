// Tools and reasoning from a request to what the engine and the parser are given.

#include "server/api/tool_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <random>
#include <regex>

#include "engine/constraint.h"
#include "server/api/call_structure.h"
#include "server/api/structure.h"
#include "server/api/test_support.h"

namespace headrace {
namespace tool_use_test {

namespace json = boost::json;

constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
    R"("unit":{"type":"string","enum":["C","F"]},"deep":{"type":"boolean"}},)"
    R"("required":["city","unit"],"additionalProperties":false})";

class ToolUseTest : public testing::Test {
 protected:
  void use_format(std::string_view tools, std::string_view reasoning = "none") {
    ASSERT_TRUE(bundle_.use_formats(tools, reasoning).ok());
  }

  static AnswerForm form_of(ToolChoice choice = {}) {
    AnswerForm form;
    form.tools.functions = {{"find", "Finds.", std::string(kSchema), false},
                            {"stop", "", "", false}};
    form.tools.choice = std::move(choice);
    return form;
  }

  static PromptSource conversation() {
    PromptSource source{"messages", {}, true};
    source.items.emplace_back(make_chat_prompt({{"user", "Hi"}}));
    return source;
  }

  Result<GenerationRequest> fit(AnswerForm form) {
    GenerationRequest request;
    request.form = std::move(form);
    source_ = conversation();
    TRY(fit_answer_form(model_, source_, request));
    TRY(apply_structure(model_, request));
    gate_reasoning(model_, request);
    request.prompts = {Prompt{{1}, {}, false}};
    return request;
  }
  const json::object& variables() { return std::get<ChatPrompt>(source_.items[0]).variables; }

  static std::vector<int32_t> allowed(Constraint& constraint) {
    std::vector<uint64_t> mask(mask_words(test::kVocabSize), 0);
    constraint.fill_mask(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < test::kVocabSize; ++id) {
      if (mask_allows(mask.data(), id)) ids.push_back(id);
    }
    return ids;
  }

  // As much of a text as may come.
  static std::string taken(Constraint& constraint, std::string_view text) {
    std::string came;
    for (const char c : text) {
      const auto ids = allowed(constraint);
      if (std::find(ids.begin(), ids.end(), static_cast<unsigned char>(c)) == ids.end()) break;
      constraint.accept(static_cast<unsigned char>(c));
      came += c;
    }
    return came;
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 4096};
  PromptSource source_;
};

TEST_F(ToolUseTest, TheTemplateIsToldOfToolsAndReasoning) {
  AnswerForm form = form_of();
  form.reasoning.effort = "low";
  ASSERT_TRUE(fit(form).ok());
  EXPECT_EQ(variables().at("tools").as_array().size(), 2u);
  EXPECT_EQ(variables().at("tools").at(0).at("function").at("name"), "find");
  EXPECT_EQ(variables().at("reasoning_effort"), "low");
  EXPECT_EQ(std::get<ChatPrompt>(source_.items[0]).required, std::vector<std::string>{"tools"});
  ASSERT_TRUE(fit(form_of({ToolChoice::Kind::kNone, {}})).ok());
  EXPECT_FALSE(variables().contains("tools"));
}

TEST(ToolCount, HasABound) {
  EXPECT_TRUE(check_tool_count(0, kUsualMaxTools).ok());
  EXPECT_TRUE(check_tool_count(128, kUsualMaxTools).ok());
  const Status status = check_tool_count(129, kUsualMaxTools);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().param, "tools");
  EXPECT_EQ(status.error().message, "tools is a list of 129, but it must be at most 128 tools");
  EXPECT_FALSE(check_tool_count(1025, kMaxTools).ok());
}

TEST_F(ToolUseTest, WhatCannotBeCalledIsNamed) {
  const auto error = [&](AnswerForm form) {
    const auto request = fit(std::move(form));
    return request.ok() ? std::string() : request.error().param + ": " + request.error().message;
  };
  EXPECT_EQ(error(form_of({ToolChoice::Kind::kNamed, "other"})),
            "tool_choice: tool_choice is \"other\", but it must be the name of one of the tools");
  AnswerForm none;
  none.tools.choice.kind = ToolChoice::Kind::kRequired;
  EXPECT_NE(error(none), "");
  AnswerForm spaced = form_of();
  spaced.tools.functions[1].name = "a b";
  EXPECT_TRUE(error(spaced).starts_with("tools[1].function.name: ")) << error(spaced);
  spaced.tools.functions[1].name = std::string(128, 'a');
  EXPECT_EQ(error(spaced), "");
  spaced.tools.functions[1].name += 'a';
  EXPECT_TRUE(error(spaced).starts_with("tools[1].function.name: ")) << error(spaced);
  AnswerForm strict = form_of();
  strict.tools.functions[0].parameters =
      R"({"type":"object","uniqueItemz":3,"not":{"type":"null"}})";
  EXPECT_EQ(error(strict), "");
  strict.tools.functions[0].strict = true;
  EXPECT_TRUE(error(strict).starts_with("tools[0].function.parameters: ")) << error(strict);
  AnswerForm custom = form_of();
  custom.tools.functions[1].input_grammar = "start: nowhere";
  EXPECT_TRUE(error(custom).starts_with("tools[1].format.definition: ")) << error(custom);
}

TEST_F(ToolUseTest, WithAutoACallThatBeginsGoesOnAsOne) {
  use_format("hermes");
  const GenerationRequest request = fit(form_of()).value();
  const auto held = [&](std::string_view text) {
    const Request made = request.engine_request(0, 4096);
    return taken(*made.constraint, text);
  };
  for (const std::string_view good : {"Hello <b>, {\"name\": 1}", "<tool_cal",
                                      "a <tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n",
                                      "<tool_call>\n{\"name\": \"find\", \"arguments\": "
                                      "{\"city\":\"P\",\"unit\":\"C\"}}\n</tool_call>\nok"}) {
    EXPECT_EQ(held(good), good);
  }
  EXPECT_EQ(held("<tool_call>\n{\"name\": \"other"), "<tool_call>\n{\"name\": \"");
  EXPECT_EQ(held("<tool_call>\n{\"name\": \"find\", \"arguments\": {\"city\":3"),
            "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"city\":");
  for (const std::string bare : {"{\"name\": \"find\", \"arguments\": {",
                                 "```json\n{\n  \"name\": \"find\",\n  \"arguments\": {\n    "}) {
    EXPECT_EQ(held(bare + "\"city\":3"), bare + "\"city\":") << "a call without its mark";
    EXPECT_EQ(held(bare + "\"town\""), bare + "\"") << "a call without its mark";
  }
  const std::string_view other = "{\"name\": \"Fido\", \"arguments\": 3}";
  EXPECT_EQ(held(other), other);
}

TEST_F(ToolUseTest, TheClientsStructureHoldsForAnswersWithoutACall) {
  use_format("hermes");
  AnswerForm form = form_of();
  form.structure = {Structure::Kind::kChoice, R"(["yes","no"])", "guided_choice"};
  const GenerationRequest request = fit(form).value();
  EXPECT_EQ(taken(*request.engine_request(0, 4096).constraint, "yes!"), "yes");
  const std::string_view call =
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(taken(*request.engine_request(0, 4096).constraint, call), call);
}

TEST_F(ToolUseTest, TheClientsTagsHoldBesideCalls) {
  use_format("hermes");
  AnswerForm form = form_of();
  const auto held = [&](std::string_view tags, std::string_view text) {
    form.structure = {Structure::Kind::kTags, std::string(tags), "response_format"};
    const GenerationRequest request = fit(form).value();
    return taken(*request.engine_request(0, 4096).constraint, text);
  };
  const std::string_view call =
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const std::string_view in_text =
      R"({"structures":[{"begin":"<a>","schema":{"type":"integer"},"end":"</a>"}],)"
      R"("triggers":["<a>"]})";
  const std::string_view alone = R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>",)"
                                 R"("content":{"type":"regex","pattern":"[0-9]"},"end":"</a>"}})";
  for (const std::string_view tags : {in_text, alone}) {
    EXPECT_EQ(held(tags, "<a>7</a>"), "<a>7</a>");
    EXPECT_EQ(held(tags, "<a>x"), "<a>");
    EXPECT_EQ(held(tags, call), call);
    EXPECT_EQ(held(tags, "<tool_call>\n{\"name\": \"other"), "<tool_call>\n{\"name\": \"");
  }
  EXPECT_EQ(held(in_text, fmt::format("so <a>1</a> {}", call)),
            fmt::format("so <a>1</a> {}", call));
  form.structure = {Structure::Kind::kTags, R"({"format":{"type":"magic"}})", "response_format"};
  const auto wrong = fit(form);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().param, "response_format");
  EXPECT_NE(wrong.error().message.find("the structural tag cannot be enforced"), std::string::npos);
}

// Writes what may come at random, with a liking for the ends of values.
std::string random_answer(Constraint& constraint, const ToolFormat& format, std::mt19937& random,
                          size_t max_bytes) {
  const std::string close = (format.pads_values ? "\n" : "") + std::string(format.value_close);
  const std::vector<std::string> goals = {close, std::string(format.quote), "\"", "}"};
  std::string text;
  while (text.size() < max_bytes && !constraint.is_finished()) {
    std::vector<uint64_t> mask(mask_words(test::kVocabSize), 0);
    constraint.fill_mask(mask);
    std::vector<char> printable;
    for (char c = 9; c < 127; ++c) {
      if (mask_allows(mask.data(), c) && (c >= 32 || c == '\n')) printable.push_back(c);
    }
    if (printable.empty()) break;
    char next = printable[random() % printable.size()];
    const std::string& goal = goals[random() % goals.size()];
    for (size_t size = goal.size(); size-- > 0;) {
      if (!text.ends_with(goal.substr(0, size)) || random() % 8 == 0) continue;
      if (std::find(printable.begin(), printable.end(), goal[size]) != printable.end()) {
        next = goal[size];
      }
      break;
    }
    constraint.accept(next);
    text += next;
  }
  return text;
}

bool fits_schema(const json::value& arguments) {
  const json::object* object = arguments.if_object();
  if (object == nullptr || !object->contains("city") || !object->contains("unit")) return false;
  for (const auto& [key, value] : *object) {
    const bool fits = key == "city"   ? value.is_string()
                      : key == "days" ? value.is_int64() || value.is_uint64() || value.is_double()
                      : key == "unit" ? value == "C" || value == "F"
                      : key == "deep" ? value.is_bool()
                                      : false;
    if (!fits) return false;
  }
  return true;
}

bool is_ascii(const ToolFormat& format) {
  const std::string marks = mark_texts({nullptr, &format});
  return std::all_of(marks.begin(), marks.end(), [](char c) { return c > 0; });
}

class ForcedCalls : public ToolUseTest, public testing::WithParamInterface<size_t> {
 protected:
  // One call of some answer; nothing if the answer was not over in time.
  std::optional<OutputPart> random_call(AnswerForm form, std::mt19937& random);
};

std::optional<OutputPart> ForcedCalls::random_call(AnswerForm form, std::mt19937& random) {
  const ToolFormat& format = tool_formats()[GetParam()];
  // What stands before calls of these is a matter of their channels.
  const bool channels = format.name == "harmony" || format.name == "solar";
  use_format(format.name, channels ? format.name : "none");
  form.tools.parallel = false;
  if (channels) form.reasoning.max_tokens = 3;
  auto request = fit(std::move(form));
  EXPECT_TRUE(request.ok()) << request.error().message;
  if (!request.ok()) return std::nullopt;
  const Request made = request->engine_request(0, 4096);
  const std::string text = random_answer(*made.constraint, format, random, 4000);
  if (!made.constraint->is_finished()) return std::nullopt;
  const auto parser = request->make_parser(request->prompts[0]);
  ChoiceDelta whole;
  for (OutputPart& part : parser->push(text)) whole.add(std::move(part));
  for (OutputPart& part : parser->finish(false)) whole.add(std::move(part));
  std::erase_if(whole.parts,
                [](const OutputPart& part) { return part.kind == OutputPart::Kind::kReasoning; });
  EXPECT_EQ(whole.parts.size(), 1u) << text;
  if (whole.parts.size() != 1) return std::nullopt;
  EXPECT_EQ(whole.parts[0].kind, OutputPart::Kind::kToolCall) << text;
  return whole.parts[0];
}

// Whatever the model likes: the answer is calls of declared tools with arguments that hold.
TEST_P(ForcedCalls, AlwaysParseAndHoldToTheSchema) {
  if (!is_ascii(tool_formats()[GetParam()])) GTEST_SKIP() << "the marks are no ASCII";
  std::mt19937 random(11);
  int num_complete = 0;
  for (int round = 0; round < 12; ++round) {
    const auto call =
        random_call(form_of(round % 2 == 0 ? ToolChoice{ToolChoice::Kind::kNamed, "find"}
                                           : ToolChoice{ToolChoice::Kind::kRequired, {}}),
                    random);
    if (!call) continue;
    ++num_complete;
    json::error_code failed;
    const json::value arguments = json::parse(call->text, failed);
    ASSERT_FALSE(failed) << call->text;
    if (call->call_name == "find") {
      EXPECT_TRUE(fits_schema(arguments)) << call->text;
    } else {
      EXPECT_EQ(call->call_name, "stop");
      EXPECT_TRUE(arguments.is_object());
    }
  }
  EXPECT_GT(num_complete, 0);
}

// A tool that takes a text gets one of its grammar, with quotes and line ends as JSON writes them.
TEST_P(ForcedCalls, TextsHoldToTheirGrammar) {
  if (!is_ascii(tool_formats()[GetParam()])) GTEST_SKIP() << "the marks are no ASCII";
  constexpr const char* kLark =
      "start: \"say \\\"\" word \"\\\"\" (\"\\n\" word)*\nword: /[a-z]+/\n";
  const std::regex said("say \"[a-z]+\"(\n[a-z]+)*"), digits("[0-9]{2,4}");
  std::mt19937 random(12);
  int num_complete = 0;
  for (int round = 0; round < 12; ++round) {
    const bool is_lark = round % 2 == 0;
    AnswerForm form = form_of({ToolChoice::Kind::kNamed, "write"});
    const std::string pattern = is_lark ? "" : R"(,"pattern":"^(?:[0-9]{2,4})$")";
    form.tools.functions = {
        {"write", "",
         fmt::format(R"({{"type":"object","properties":{{"input":{{"type":"string"{}}}}},)"
                     R"("required":["input"],"additionalProperties":false}})",
                     pattern),
         true, is_lark ? kLark : ""}};
    const auto call = random_call(std::move(form), random);
    if (!call) continue;
    ++num_complete;
    json::error_code failed;
    const json::value arguments = json::parse(call->text, failed);
    ASSERT_FALSE(failed) << call->text;
    const std::string input(arguments.at("input").as_string());
    EXPECT_TRUE(std::regex_match(input, is_lark ? said : digits)) << call->text;
  }
  EXPECT_GT(num_complete, 0);
}

std::string format_name(const testing::TestParamInfo<size_t>& info) {
  return std::string(tool_formats()[info.param].name);
}

INSTANTIATE_TEST_SUITE_P(EachFormat, ForcedCalls, testing::Range(size_t{0}, tool_formats().size()),
                         format_name);

TEST_F(ToolUseTest, ReasoningComesFirstAndHasABudget) {
  use_format("hermes", "think");
  AnswerForm form = form_of({ToolChoice::Kind::kNamed, "stop"});
  form.reasoning.max_tokens = 4;
  const GenerationRequest request = fit(form).value();
  const Request made = request.engine_request(0, 4096);
  const std::string_view answer =
      "<think>abcd</think>\n\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(taken(*made.constraint, answer), answer);
  const Request other = request.engine_request(0, 4096);
  EXPECT_EQ(taken(*other.constraint, "<think>abcde"), "<think>abcd");
}

TEST_F(ToolUseTest, WithoutMarksAllIsText) {
  use_format("none", "none");
  const GenerationRequest request = fit(form_of()).value();
  EXPECT_FALSE(request.make_parser);
  EXPECT_EQ(request.engine_request(0, 4096).constraint, nullptr);
}

}  // namespace tool_use_test
}  // namespace headrace
