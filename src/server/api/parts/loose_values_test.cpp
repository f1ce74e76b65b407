// The small readers below the formats: values that are written loosely, the span of JSON values,
// calls as objects, marks in a text.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>

#include "server/api/parts/call_ids.h"
#include "server/api/parts/call_values.h"
#include "server/api/parts/json_calls.h"
#include "server/api/parts/loose_json.h"
#include "server/api/parts/mark_scanner.h"

namespace headrace {
namespace loose_values_test {

// The JSON of what stands behind an opening bracket; "broken", or "open: ..." if it goes on.
std::string loose(std::string_view text, char closing = ')') {
  LooseObject object(closing);
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    const LooseObject::Step step = object.feed(text[i], json);
    if (step == LooseObject::Step::kBroken) return "broken";
    if (step == LooseObject::Step::kEnds) return i + 1 == text.size() ? json : "ends early";
  }
  return "open: " + json;
}

TEST(LooseJson, PythonArgumentsAreJson) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {")", "{}"},
      {"  )", "{}"},
      {"a=1)", R"({"a":1})"},
      {"a = 1 , b = 2)", R"({"a":1,"b":2})"},
      {"a=1,)", R"({"a":1})"},
      {"a=True,b=False,c=None)", R"({"a":true,"b":false,"c":null})"},
      {"a=true,b=null)", R"({"a":true,"b":null})"},
      {"a=-1.5e3)", R"({"a":-1.5e3})"},
      {"a=word)", R"({"a":"word"})"},
      {"a=01)", R"({"a":"01"})"},
      {"a='x')", R"({"a":"x"})"},
      {"a=\"it's\")", R"({"a":"it's"})"},
      {"a='say \"x\"')", R"({"a":"say \"x\""})"},
      {"a='x)y')", R"({"a":"x)y"})"},
      {"a='\n\t')", R"({"a":"\n\t"})"},
      {R"(a='\'\\\n\q'))", R"({"a":"'\\\n\\q"})"},
      {R"(a='\x41\u00e9'))", R"({"a":"\u0041\u00e9"})"},
      {"a=[1, 'b', [True]])", R"({"a":[1,"b",[true]]})"},
      {"a=(1, 2))", R"({"a":[1,2]})"},
      {"a={'b': {'c': []}})", R"({"a":{"b":{"c":[]}}})"},
      {"a={1: 2})", R"({"a":{"1":2}})"},
      {"a=Z\xC3\xBCrich)", "{\"a\":\"Z\xC3\xBCrich\"}"},
  };
  for (const auto& [text, json] : kCases) EXPECT_EQ(loose(text), json) << text;
}

TEST(LooseJson, WhatIsNoListOfArgumentsIsBroken) {
  for (const std::string_view text :
       {",", "a,", "a)", "=1)", "a=)", "a==1)", "a=1 b=2)", "a=1]", "a=[1)", "a=1,,b=2)", "a=1;",
        "'a' 'b'", "[1]=2)", "a=1}", "a=<x>)", "{}=1)"}) {
    EXPECT_EQ(loose(text), "broken") << text;
  }
  EXPECT_EQ(loose("a=1, b='x"), R"(open: {"a":1,"b":"x)");
  EXPECT_EQ(loose("a=tru"), R"(open: {"a":)") << "a word is told when it is whole";
}

TEST(LooseJson, DepthAndWordsAreBounded) {
  const std::string at_most = "a=" + std::string(63, '[') + std::string(63, ']') + ")";
  EXPECT_NE(loose(at_most), "broken");
  EXPECT_EQ(loose("a=" + std::string(64, '[')), "broken");
  EXPECT_NE(loose("a=" + std::string(256, 'x') + ")"), "broken");
  EXPECT_EQ(loose("a=" + std::string(257, 'x') + ")"), "broken");
}

TEST(LooseJson, TextsBetweenMarksHaveNoEscapes) {
  const std::string mark(1, LooseObject::kMarkQuote);
  EXPECT_EQ(loose("a:" + mark + "\\n \"x\" 'y'" + mark + "}", '}'), R"({"a":"\\n \"x\" 'y'"})");
  EXPECT_EQ(loose("a:1,b:{c:[2]}}", '}'), R"({"a":1,"b":{"c":[2]}})");
}

TEST(LooseJson, WordsThatAreValues) {
  EXPECT_EQ(json_of_word("None"), "null");
  EXPECT_EQ(json_of_word("12"), "12");
  EXPECT_EQ(json_of_word("-0.5"), "-0.5");
  for (const std::string_view word : {"NONE", "1.", "1_000", "nan", "inf", "", "-", "0x1"}) {
    EXPECT_EQ(json_of_word(word), "") << word;
  }
}

TEST(CallValues, ValuesAreWrittenByTheirType) {
  struct Row {
    std::string_view value;
    ValueType type;
    std::string_view json;
  };
  constexpr ValueType kJson = ValueType::kJson, kOrNull = ValueType::kTextOrNull;
  const Row kRows[] = {
      {"3", kJson, "3"},
      {" 3\n", kJson, "3"},
      {"3 km", kJson, R"("3 km")"},
      {"", kJson, R"("")"},
      {"null", kJson, "null"},
      {"None", kJson, "null"},
      {"True", kJson, "true"},
      {"yes", kJson, R"("yes")"},
      {R"({"a": [1]})", kJson, R"({"a": [1]})"},
      {"{'a': [True, None]}", kJson, R"({"a":[true,null]})"},
      {"['a', ]", kJson, R"(["a"])"},
      {"[1, 2", kJson, R"("[1, 2")"},
      {"1, 2", kJson, R"("1, 2")"},
      {"1}", kJson, R"("1}")"},
      {R"("x")", kJson, R"("x")"},
      {"'x'", kJson, R"("x")"},
      {"a \"b\"\n", kJson, R"("a \"b\"\n")"},
      {"null", kOrNull, "null"},
      {" null ", kOrNull, "null"},
      {"None", kOrNull, R"("None")"},
      {"3", kOrNull, R"("3")"},
      {"", kOrNull, R"("")"},
  };
  for (const Row& row : kRows) EXPECT_EQ(value_json(row.value, row.type), row.json) << row.value;
}

TEST(CallValues, TypesAreThoseOfTheSchema) {
  const CallableTools tools({{"f",
                              R"({"properties":{"s":{"type":"string"},"l":{"type":["string"]},
                                  "n":{"type":["null","string"]},"i":{"type":"integer"},
                                  "u":{"type":["integer","null"]},"a":{"enum":["x"]},"t":true,
                                  "w":{"type":7}}})"},
                             {"g", ""},
                             {"broken", "{\"properties\":"},
                             {"odd", R"({"properties":[]})"}});
  const std::pair<std::string_view, ValueType> kKeys[] = {
      {"s", ValueType::kText}, {"l", ValueType::kText}, {"n", ValueType::kTextOrNull},
      {"i", ValueType::kJson}, {"u", ValueType::kJson}, {"a", ValueType::kJson},
      {"t", ValueType::kJson}, {"w", ValueType::kJson}, {"other", ValueType::kJson},
  };
  for (const auto& [key, type] : kKeys) EXPECT_EQ(tools.type_of("f", key), type) << key;
  for (const std::string_view name : {"g", "broken", "odd", "none"}) {
    EXPECT_EQ(tools.type_of(name, "s"), ValueType::kJson) << name;
  }
  for (const std::string_view name : {"f", "g", "broken", "odd"}) EXPECT_TRUE(tools.has(name));
  for (const std::string_view name : {"", "F", "f ", "ff"}) EXPECT_FALSE(tools.has(name)) << name;
}

TEST(CallValues, CountsAreNoPartOfNames) {
  const std::pair<const char*, std::string_view> kNames[] = {
      {"functions.search:3", "search"},
      {"search:12", "search"},
      {"functions.search", "search"},
      {"search", "search"},
      {"a:b", "a:b"},
      {"a:", "a:"},
      {"a:1:2", "a:1"},
      {"a.functions.b:0", "a.functions.b"},
      {"", ""},
      {":1", ""},
  };
  for (const auto& [written, name] : kNames) EXPECT_EQ(without_count(written), name) << written;
}

TEST(CallValues, QuotedTextsAreJson) {
  EXPECT_EQ(quoted(""), R"("")");
  EXPECT_EQ(quoted("a\"\\\r\n\t\x01\x1f"), R"("a\"\\\r\n\t\u0001\u001f")");
  EXPECT_EQ(quoted("\xC3\xBC\xFF"), "\"\xC3\xBC\xFF\"") << "bytes above 0x7F stay";
  EXPECT_EQ(trimmed(" \r\n\ta b\n "), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
}

// How many bytes the value has; -1: it goes on.
int span_of(std::string_view text) {
  JsonSpan span;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonSpan::Step step = span.feed(text[i]);
    if (step == JsonSpan::Step::kEnds) return static_cast<int>(i) + 1;
    if (step == JsonSpan::Step::kBehind) return static_cast<int>(i);
  }
  return -1;
}

TEST(JsonSpanTest, EndsWhereTheValueEnds) {
  EXPECT_EQ(span_of("{}x"), 2);
  EXPECT_EQ(span_of(" \n{\"a\": [1, {}]} }"), 16);
  EXPECT_EQ(span_of(R"({"}": "\"}"}x)"), 12);
  EXPECT_EQ(span_of(R"("a\\"x)"), 5);
  EXPECT_EQ(span_of(R"("a\"b"})"), 6);
  EXPECT_EQ(span_of("12,"), 2);
  EXPECT_EQ(span_of("true}"), 4);
  EXPECT_EQ(span_of("null ]"), 4);
  for (const std::string_view open : {"", "  ", "{", "[{}", "\"a", R"("a\")", "12"}) {
    EXPECT_EQ(span_of(open), -1) << open;
  }
}

// "name:arguments" of each call, "]" where a list or a lone object is complete, "!" where it broke.
std::string calls_in(std::string_view text, bool keyed = false) {
  JsonCalls calls(keyed, false);
  std::string read;
  for (const char c : text) {
    const JsonCalls::Found found = calls.feed(c);
    if (found.begins) read += calls.name() + ":";
    read += found.arguments;
    if (found.ends) read += ";";
    if (found.closed) read += "]";
    if (found.broken) return read + "!";
  }
  return read;
}

TEST(JsonCallsTest, NamesAndArgumentsComeInAnyOrder) {
  EXPECT_EQ(calls_in(R"({"name":"f","arguments":{"a":1}})"), R"(f:{"a":1};])");
  EXPECT_EQ(calls_in(R"({"parameters": {"a":1}, "id":[{"name":"x"}], "tool_name": "f"})"),
            R"(f:{"a":1};])");
  EXPECT_EQ(calls_in(R"([{"name":"f"}, {"name":"g","arguments":"{\"a\": \"b\"}"}])"),
            R"(f:{};g:{"a": "b"};])");
  EXPECT_EQ(calls_in(R"({"n\u0061me":"f\u0021"})"), "f!:{};]") << "escapes in keys and names";
  EXPECT_EQ(calls_in(R"({"name":"f","arguments":"")"), "f:");
  EXPECT_EQ(calls_in(R"({"name":"f","arguments":""})"), "f:;]") << "the parser adds {}";
}

TEST(JsonCallsTest, TheKeyMayBeTheName) {
  EXPECT_EQ(calls_in(R"([{"f":{"a":1}},{"g":{}}])", true), R"(f:{"a":1};g:{};])");
  EXPECT_EQ(calls_in(R"([{"f":{},"g":{}}])", true), "f:{}!");
  EXPECT_EQ(calls_in(R"([{"":{}}])", true), "!");
}

TEST(JsonCallsTest, WhatIsNoCallBreaks) {
  for (const std::string_view text :
       {"x", "]", "[[", "{}", "{1", R"({"a":1})", R"({"name":1})", R"({"name":""})",
        R"({"name" "f")", R"({"name":"f" "a")", R"({"arguments":{}})"}) {
    EXPECT_TRUE(calls_in(text).ends_with("!")) << text << " -> " << calls_in(text);
  }
  const std::string name(255, 'x');
  EXPECT_FALSE(calls_in("{\"" + name + "\":1").ends_with("!"));
  EXPECT_TRUE(calls_in("{\"" + name + "yz\":1").ends_with("!"));
}

// The text with each mark that was found as <n>.
std::string scanned(std::string_view text, const MarkList& marks) {
  MarkScanner scanner;
  std::string read;
  std::string bytes(text);
  while (!bytes.empty()) {
    const char c = bytes.front();
    bytes.erase(0, 1);
    const int found = scanner.feed(c, marks, read);
    if (found == MarkScanner::kNone) continue;
    read += '<' + std::to_string(found) + '>';
    bytes = scanner.take_rest() + bytes;
  }
  read += '|';
  for (int found = 0; found != MarkScanner::kNone;) {
    found = scanner.finish(marks, read);
    if (found != MarkScanner::kNone) read += '<' + std::to_string(found) + '>';
    std::string rest = scanner.take_rest();
    for (const char c : rest) scanner.feed(c, marks, read);
  }
  return read;
}

TEST(MarkScannerTest, TheLeftmostAndOfThoseTheLongestMarkIsFound) {
  const MarkList kMarks{"ab", "abcd", "bcx", ""};
  EXPECT_EQ(scanned("xaby", kMarks), "x<0>y|");
  EXPECT_EQ(scanned("abcd", kMarks), "<1>|");
  EXPECT_EQ(scanned("abcx", kMarks), "<0>cx|") << "what a mark took is not looked at again";
  EXPECT_EQ(scanned("abc", kMarks), "|<0>c") << "held until the text is over";
  EXPECT_EQ(scanned("bcbcx", kMarks), "bc<2>|");
  EXPECT_EQ(scanned("aab", kMarks), "a|<0>") << "abcd may come";
  EXPECT_EQ(scanned("a", kMarks), "|a");
  EXPECT_EQ(scanned("plain", {}), "plain|");
}

TEST(CallIdsOfAnswers, UnknownIdsAreOnlyMadeToFitWhereTheFormAsksIt) {
  const auto fit = [](CallIds wanted) {
    boost::json::array messages{
        {{"tool_call_id", "call_zz"}}, "no object", {{"tool_calls", 7}}, {{"tool_call_id", 5}}};
    fit_call_ids(messages, wanted);
    return messages;
  };
  EXPECT_EQ(fit(CallIds::kCounted).at(0).at("tool_call_id"), "call_zz");
  const auto nine = fit(CallIds::kNineCharacters);
  EXPECT_EQ(nine.at(0).at("tool_call_id").as_string().size(), 9u);
  EXPECT_EQ(nine, fit(CallIds::kNineCharacters)) << "the same id becomes the same id";
  EXPECT_EQ(nine.at(1), "no object");
  EXPECT_EQ(nine.at(3).at("tool_call_id"), 5);
}

}  // namespace loose_values_test
}  // namespace headrace
