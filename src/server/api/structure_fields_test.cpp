// What bodies say of an answer's form: types that are wrong, forms that are missing, and paths.

#include "server/api/structure_fields.h"

#include <gtest/gtest.h>

#include "server/api/call_structure.h"
#include "server/api/json.h"

namespace headrace {
namespace structure_fields_test {

using StructureKindOf = Structure::Kind;

struct FormCase {
  std::string_view body, param, message;
};

std::string error_of_form(std::string_view body, ErrorCode code = ErrorCode::kInvalidArgument) {
  IgnoredFields ignored;
  const auto value = parse_body(body).value();
  const auto structure = parse_structure(value.get_object(), ignored);
  if (structure.ok()) return "taken";
  EXPECT_EQ(structure.error().code, code) << body;
  return structure.error().param + ": " + structure.error().message;
}

TEST(StructureFields, EachFormHasItsType) {
  const std::pair<std::string_view, std::string_view> kNeeded[] = {
      {"guided_regex", "a string"},
      {"guided_choice", "a list"},
      {"guided_grammar", "a string"},
      {"guided_json_object", "true or false"},
      {"json_object", "true or false"},
      {"regex", "a string"},
      {"choice", "a list"},
      {"grammar", "a string"},
      {"grammar_string", "a string"},
      {"ebnf", "a string"},
      {"response_format", "an object"},
      {"structured_outputs", "an object"},
  };
  for (const auto& [name, needed] : kNeeded) {
    EXPECT_EQ(error_of_form(fmt::format(R"({{"{}":7}})", name)),
              fmt::format("{0}: {0} is 7, but it must be {1}", name, needed));
  }
  for (const std::string_view name : {"regex", "choice", "grammar", "json_object"}) {
    EXPECT_TRUE(error_of_form(fmt::format(R"({{"structured_outputs":{{"{}":7}}}})", name))
                    .starts_with(fmt::format("structured_outputs.{}: ", name)));
  }
}

TEST(StructureFields, FormatsSayWhatTheyMiss) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {R"({"response_format":{}})",
       "response_format.type: response_format.type is missing, but it must be 'text', "
       "'json_object', 'json_schema', 'regex', 'grammar' or 'structural_tag'"},
      {R"({"response_format":{"type":"JSON"}})",
       "response_format.type: response_format.type is \"JSON\", but it must be 'text', "
       "'json_object', 'json_schema', 'regex', 'grammar' or 'structural_tag'"},
      {R"({"response_format":{"type":1}})",
       "response_format.type: response_format.type is 1, but it must be a string"},
      {R"({"response_format":{"type":"json_schema"}})",
       "response_format.schema: response_format.schema is missing, but it must be what the answer "
       "holds to"},
      {R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})",
       "response_format.json_schema.schema: response_format.json_schema.schema is missing, but it "
       "must be what the answer holds to"},
      {R"({"response_format":{"type":"json_schema","json_schema":"{}"}})",
       "response_format.json_schema: response_format.json_schema is \"{}\", but it must be an "
       "object"},
      {R"({"response_format":{"type":"regex"}})",
       "response_format.pattern: response_format.pattern is missing, but it must be what the "
       "answer holds to"},
      {R"({"response_format":{"type":"regex","pattern":""}})",
       "response_format.pattern: response_format.pattern is missing, but it must be what the "
       "answer holds to"},
      {R"({"response_format":{"type":"grammar","grammar":{}}})",
       "response_format.grammar: response_format.grammar is an object, but it must be a string"},
  };
  for (const auto& [body, error] : kCases) EXPECT_EQ(error_of_form(body), error) << body;
}

// Whichever two come together: the later is named, with the earlier beside it.
TEST(StructureFields, AnAnswerHasOneForm) {
  const std::pair<std::string_view, std::string_view> kForms[] = {
      {"response_format", R"({"type":"regex","pattern":"a"})"},
      {"guided_json", "{}"},
      {"guided_choice", R"(["a"])"},
      {"json_object", "true"},
      {"ebnf", R"("g")"},
      {"structured_outputs", R"({"regex":"a"})"},
  };
  const auto param_of = [](std::string_view name) {
    if (name == "response_format") return std::string("response_format.pattern");
    return name == "structured_outputs" ? std::string("structured_outputs.regex")
                                        : std::string(name);
  };
  for (size_t i = 0; i < std::size(kForms); ++i) {
    for (size_t j = i + 1; j < std::size(kForms); ++j) {
      const std::string body = fmt::format(R"({{"{}":{},"{}":{}}})", kForms[j].first,
                                           kForms[j].second, kForms[i].first, kForms[i].second);
      const std::string later = param_of(kForms[j].first);
      EXPECT_EQ(error_of_form(body),
                fmt::format("{0}: {0} is given beside {1}, but it must be the only one that says "
                            "what form the answer has",
                            later, param_of(kForms[i].first)));
    }
  }
  EXPECT_EQ(error_of_form(R"({"response_format":{"type":"text"},"regex":"a"})"), "taken");
  EXPECT_EQ(error_of_form(R"({"response_format":{"type":"json_object"},"regex":"a"})"),
            "regex: regex is given beside response_format, but it must be the only one that says "
            "what form the answer has");
}

TEST(StructureFields, AFormatMayStandUnderAnyPath) {
  IgnoredFields ignored;
  const auto format = parse_body(R"({"type":"json_schema","schema":{"a":1},"nmae":1})").value();
  const auto structure = parse_format(format.get_object(), "text.format.", ignored);
  ASSERT_TRUE(structure.ok());
  EXPECT_EQ(structure->kind, StructureKindOf::kJsonSchema);
  EXPECT_EQ(structure->param, "text.format.schema");
  EXPECT_EQ(ignored.text(), "text.format.nmae");
}

// What calls are held to.

boost::json::value structure_of_calls(std::string_view format, ToolUse tools, Structure answer = {},
                                      std::string_view reasoning = "none") {
  const OutputFormats formats{reasoning_format_named(reasoning).value(),
                              tool_format_named(format).value()};
  std::vector<std::string> schemas;
  for (const ToolFunction& each : tools.functions) schemas.push_back(each.parameters);
  const Structure made = call_structure(formats, tools, schemas, answer).value();
  if (made.kind == StructureKindOf::kNone) return nullptr;
  EXPECT_EQ(made.kind, StructureKindOf::kTags);
  return parse_body(made.text).value().at("format");
}

ToolUse two_tools(ToolChoice::Kind choice, std::string name = {}) {
  ToolUse tools;
  tools.functions = {{"find", "", R"({"properties":{"q":{"type":"string"}},"required":["q"]})"},
                     {"stop", "", "", false}};
  tools.choice = {choice, std::move(name)};
  return tools;
}

TEST(CallStructure, RequiredCallsAreSeparatedAsTheFormatSays) {
  const auto format = structure_of_calls("hermes", two_tools(ToolChoice::Kind::kRequired));
  const auto& calls = format.at("elements").at(1);
  EXPECT_EQ(calls.at("type"), "tags_with_separator");
  EXPECT_EQ(calls.at("separator"), "\n");
  EXPECT_EQ(calls.at("at_least_one"), true);
  EXPECT_EQ(calls.at("stop_after_first"), false);
  ASSERT_EQ(calls.at("tags").as_array().size(), 2u);
  EXPECT_EQ(calls.at("tags").at(0).at("begin"),
            "<tool_call>\n{\"name\": \"find\", \"arguments\": ");
  EXPECT_EQ(calls.at("tags").at(0).at("end"), "}\n</tool_call>");
  EXPECT_EQ(to_text(calls.at("tags").at(1).at("content").at("json_schema")), R"({"type":"object"})")
      << "without a schema any object";
}

TEST(CallStructure, ANamedCallAndOneThatMustBeAloneComeOnce) {
  const auto named = structure_of_calls("hermes", two_tools(ToolChoice::Kind::kNamed, "stop"));
  ASSERT_EQ(named.at("elements").at(1).at("tags").as_array().size(), 1u);
  EXPECT_EQ(named.at("elements").at(1).at("stop_after_first"), true);
  ToolUse alone = two_tools(ToolChoice::Kind::kRequired);
  alone.parallel = false;
  const auto one = structure_of_calls("hermes", alone);
  EXPECT_EQ(one.at("elements").at(1).at("tags").as_array().size(), 2u);
  EXPECT_EQ(one.at("elements").at(1).at("stop_after_first"), true);
}

TEST(CallStructure, FormatsWithoutMarksAreHeldOnlyWhereACallMustCome) {
  for (const std::string_view format : {"llama3", "pythonic"}) {
    EXPECT_TRUE(structure_of_calls(format, two_tools(ToolChoice::Kind::kAuto)).is_null());
    EXPECT_FALSE(structure_of_calls(format, two_tools(ToolChoice::Kind::kRequired)).is_null());
  }
}

TEST(CallStructure, InTextTheFirstMarkOfEachFormatIsTheTrigger) {
  for (const ToolFormat& format : tool_formats()) {
    const auto made = structure_of_calls(format.name, two_tools(ToolChoice::Kind::kAuto));
    if (made.is_null()) continue;
    EXPECT_EQ(made.at("type"), "triggered_tags") << format.name;
    const auto& trigger = made.at("triggers").at(0).as_string();
    EXPECT_EQ(std::string_view(trigger.data(), trigger.size()), format.opens[0]);
    size_t num_bare = 0;
    for (const auto& tag : made.at("tags").as_array()) {
      const auto& begin = tag.at("begin").as_string();
      const bool is_marked =
          std::string_view(begin.data(), begin.size()).starts_with(format.opens[0]);
      const auto& triggers = made.at("triggers").as_array();
      const bool is_bare = !is_marked && begin.front() == format.bare &&
                           std::find(triggers.begin(), triggers.end(), begin) != triggers.end();
      num_bare += is_bare ? 1 : 0;
      EXPECT_TRUE(is_marked || is_bare) << format.name << ": a tag that its trigger does not begin";
    }
    EXPECT_EQ(num_bare, 2 * bare_writings(format).size()) << format.name << ": of two tools";
    EXPECT_EQ(made.at("triggers").as_array().size(), 1 + num_bare) << format.name;
  }
}

TEST(CallStructure, MarksOfChannelsMayStandInTheText) {
  const auto made =
      structure_of_calls("harmony", two_tools(ToolChoice::Kind::kAuto), {}, "harmony");
  const std::string triggers = to_text(made.at("triggers"));
  for (const std::string_view mark : {"<|channel|>analysis<|message|>", "<|return|>", "<|end|>"}) {
    EXPECT_NE(triggers.find(mark), std::string::npos) << mark;
  }
}

TEST(CallStructure, TheClientsFormIsTheOtherWayToAnswer) {
  const std::pair<Structure, std::string_view> kAnswers[] = {
      {{StructureKindOf::kJsonObject, "", "p"},
       R"({"type":"json_schema","json_schema":{"type":"object"}})"},
      {{StructureKindOf::kJsonSchema, R"({"a":1})", "p"},
       R"({"type":"json_schema","json_schema":{"a":1}})"},
      {{StructureKindOf::kRegex, "a+", "p"}, R"({"type":"regex","pattern":"a+"})"},
      {{StructureKindOf::kGrammar, "g", "p"}, R"({"type":"grammar","grammar":"g"})"},
      {{StructureKindOf::kChoice, R"(["a","b"])", "p"},
       R"({"type":"or","elements":[{"type":"const_string","value":"a"},)"
       R"({"type":"const_string","value":"b"}]})"},
      {{StructureKindOf::kJsonSchema, "true", "p"}, R"({"type":"json_schema","json_schema":true})"},
      {{StructureKindOf::kTags, R"({"type":"structural_tag","format":{"type":"any_text"}})", "p"},
       R"({"type":"any_text"})"},
      {{StructureKindOf::kTags, R"({"tags":[{"begin":"<a>"}],"separator":""})", "p"},
       R"({"tags":[{"begin":"<a>"}],"separator":"","type":"triggered_tags"})"},
      {{StructureKindOf::kTags, R"({"tags":[{"begin":"<a>"}],"triggers":["<a"],"text":false})",
        "p"},
       R"({"tags":[{"begin":"<a>"}],"triggers":["<a"],"text":false,"type":"triggered_tags"})"},
  };
  for (const auto& [answer, json] : kAnswers) {
    const auto either = structure_of_calls("hermes", two_tools(ToolChoice::Kind::kAuto), answer);
    EXPECT_EQ(either.at("type"), "or");
    EXPECT_EQ(to_text(either.at("elements").at(1)), json);
    // A call that must come leaves no room for it.
    EXPECT_EQ(structure_of_calls("hermes", two_tools(ToolChoice::Kind::kRequired), answer),
              structure_of_calls("hermes", two_tools(ToolChoice::Kind::kRequired)));
  }
}

TEST(CallStructure, AmongTheClientsTagsInTextCallsAreSomeMore) {
  const ToolUse tools = two_tools(ToolChoice::Kind::kAuto);
  for (const std::string_view name : {"structures", "tags"}) {
    const Structure answer{
        StructureKindOf::kTags,
        fmt::format(R"({{"{}":[{{"begin":"<a>"}}],"triggers":["<a"],"at_least_one":true}})", name),
        "p"};
    const auto made = structure_of_calls("hermes", tools, answer);
    EXPECT_EQ(made.at("type"), "triggered_tags");
    EXPECT_EQ(made.at("at_least_one"), true);
    EXPECT_TRUE(to_text(made.at("triggers")).starts_with(R"(["<a","<tool_call>",)"));
    const auto calls = structure_of_calls("hermes", tools);
    EXPECT_EQ(calls.at("tags").as_array().size(), 6u) << "two tools, behind the mark or bare";
    for (const auto& [list, first, more] :
         {std::tuple{made.at("triggers").as_array(), boost::json::value("<a"), "triggers"},
          {made.at(name).as_array(), boost::json::value{{"begin", "<a>"}}, "tags"}}) {
      const auto& added = calls.at(more).as_array();
      ASSERT_EQ(list.size(), 1 + added.size());
      EXPECT_EQ(list[0], first);
      EXPECT_TRUE(std::equal(added.begin(), added.end(), list.begin() + 1)) << more;
    }
    // Where no mark begins a call, it is one or the other.
    EXPECT_EQ(structure_of_calls("llama3", tools, answer).at("type"), "or");
  }
}

TEST(CallStructure, AFormThatCannotStandBesideCallsIsNamed) {
  const OutputFormats formats{nullptr, tool_format_named("hermes").value()};
  const ToolUse tools = two_tools(ToolChoice::Kind::kAuto);
  const Structure kBad[] = {{StructureKindOf::kChoice, "broken", "p"},
                            {StructureKindOf::kChoice, R"(["a",1])", "p"},
                            {StructureKindOf::kJsonSchema, "{", "p"},
                            {StructureKindOf::kJsonSchema, std::string(200, '['), "p"},
                            {StructureKindOf::kTags, "[]", "p"},
                            {StructureKindOf::kTags, R"({"format":null})", "p"}};
  for (const Structure& answer : kBad) {
    const auto made = call_structure(formats, tools, {"", ""}, answer);
    ASSERT_FALSE(made.ok()) << answer.text;
    EXPECT_EQ(made.error().param, "p");
    EXPECT_TRUE(made.error().message.starts_with(
        "p cannot be combined with tools, unless tool_choice is \"none\": "))
        << made.error().message;
  }
}

TEST(CallStructure, TextsAreWrittenWithoutQuotesWhereTheFormatHasNone) {
  ToolUse tools;
  tools.functions = {{"f", "",
                      R"({"properties":{"s":{"type":"string","enum":["x","y"]},
                          "r":{"$ref":"#/$defs/d"}},"required":["s"],
                          "$defs":{"d":{"type":"integer"}}})"}};
  tools.choice.kind = ToolChoice::Kind::kRequired;
  const auto tag_of = [&tools](std::string_view format) {
    return structure_of_calls(format, tools).at("elements").at(1).at("tags").at(0).at("content");
  };
  const auto coder = tag_of("qwen3_coder").at("elements");
  EXPECT_EQ(coder.at(1).at("begin"), "<parameter=s>\n");
  EXPECT_EQ(coder.at(1).at("end"), "\n</parameter>");
  EXPECT_EQ(coder.at(1).at("content").at("type"), "or") << "the listed texts";
  const auto reference = coder.at(3).at("elements").at(1).at("elements").at(0);
  EXPECT_EQ(reference.at("begin"), "<parameter=r>\n");
  EXPECT_EQ(to_text(reference.at("content").at("json_schema").at("$defs")),
            R"({"d":{"type":"integer"}})")
      << "references keep what they lead to";
  const auto says_type = tag_of("deepseek_v32").at("elements");
  EXPECT_EQ(says_type.at(1).at("begin"), "<｜DSML｜parameter name=\"s\" string=\"true\">");
  EXPECT_EQ(tag_of("hermes").at("type"), "json_schema");
}

TEST(CallStructure, KeywordsThatPlainTextsCannotBeHeldToAreNamed) {
  const auto& coder = *tool_format_named("qwen3_coder").value();
  for (const std::string_view keyword : {"pattern", "format", "minLength", "maxLength", "const"}) {
    const auto schema = [&](std::string_view type) {
      return fmt::format(R"({{"properties":{{"s":{{"type":"{}","{}":1}}}}}})", type, keyword);
    };
    EXPECT_EQ(unheld_keyword(coder, schema("string")), keyword);
    EXPECT_EQ(unheld_keyword(coder, schema("integer")), "") << "JSON is held to all";
    EXPECT_EQ(unheld_keyword(*tool_format_named("hermes").value(), schema("string")), "");
    EXPECT_EQ(unheld_keyword(*tool_format_named("gemma4").value(), schema("string")), keyword);
  }
  EXPECT_EQ(unheld_keyword(coder, R"({"properties":{"s":{"type":"string","pattern":"^(?:a+)$"}}})"),
            "")
      << "a pattern of the whole text";
  for (const std::string_view schema : {"", "7", "{}", "{\"properties\":7}", "{broken"}) {
    EXPECT_EQ(unheld_keyword(coder, std::string(schema)), "") << schema;
  }
}

}  // namespace structure_fields_test
}  // namespace headrace
