// Forms that are made to hurt: each is refused with a reason, or compiled and followed for some
// tokens, within its budget of processor time and memory; nothing ends the process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>

#include "text/grammar.h"
#include "text/grammar_test_support.h"

namespace headrace {
namespace grammar_hostile_test {

using test::PieceTokenizer;

// The budgets of docs/ADR 0054, with room for a machine that is busy with other tests.
constexpr double kMaxSeconds = 0.25;
constexpr double kRoom = 4;
constexpr size_t kMaxGrammarBytes = size_t{64} << 20;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string repeat(std::string_view text, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string join(std::string_view separator, int64_t count, const auto& each) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) out += separator;
    out += each(i);
  }
  return out;
}

std::string nested(std::string_view before, std::string_view inside, std::string_view after,
                   int64_t depth) {
  return repeat(before, depth) + std::string(inside) + repeat(after, depth);
}

class Hostile : public testing::Test {
 protected:
  static GrammarCompiler& compiler() {
    static const PieceTokenizer tokenizer;
    static GrammarCompiler compiler(tokenizer, {PieceTokenizer::kEnd}, 1 << 20);
    return compiler;
  }

  // Follows a grammar by the first token that each mask allows.
  static void follow(const Grammar& grammar) {
    auto matcher = grammar.matcher().value();
    std::vector<uint64_t> mask(5);
    for (int step = 0; step < 12 && !matcher->is_finished(); ++step) {
      matcher->fill_mask(mask);
      int32_t id = 1;
      while (id < 273 && (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) ++id;
      if (id == 273 || !matcher->accept(id)) return;
    }
  }

  void feed(GrammarKind kind, const std::string& text) {
    ++num_fed_;
    const double begin = cpu_seconds();
    const auto grammar = compiler().compile(kind, text);
    const double seconds = cpu_seconds() - begin;
    worst_ = std::max(worst_, seconds);
    EXPECT_LE(seconds, kMaxSeconds * kRoom) << text.substr(0, 200);
    if (!grammar.ok()) {
      ++num_refused_;
      EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument) << text.substr(0, 200);
      EXPECT_FALSE(grammar.error().message.empty()) << text.substr(0, 200);
      EXPECT_LE(grammar.error().message.size(), 800u);
      EXPECT_EQ(grammar.error().message.find(".rs"), std::string::npos) << grammar.error().message;
      return;
    }
    EXPECT_LE((*grammar)->num_bytes(), kMaxGrammarBytes) << text.substr(0, 200);
    const double began = cpu_seconds();
    follow(**grammar);
    worst_steps_ = std::max(worst_steps_, cpu_seconds() - began);
    EXPECT_LE(cpu_seconds() - began, 12 * kMaxSeconds * kRoom) << text.substr(0, 200);
  }

  void TearDown() override {
    fmt::print("{} forms, {} refused; worst {:.0f} ms to compile, {:.0f} ms for 12 masks\n",
               num_fed_, num_refused_, worst_ * 1e3, worst_steps_ * 1e3);
  }

  int num_fed_ = 0, num_refused_ = 0;
  double worst_ = 0, worst_steps_ = 0;
};

constexpr int64_t kSizes[] = {1, 2, 5, 10, 31, 100, 1000, 10'000, 100'000, 1'000'000'000};
constexpr int64_t kTexts = 100'000;  // no text of a family is made longer than this many pieces

TEST_F(Hostile, RegularExpressions) {
  for (const int64_t n : kSizes) {
    const int64_t m = std::min(n, kTexts);
    for (const std::string& regex : {
             nested("(", "a", ")", m),
             nested("(", "a", "*)*", m),
             nested("(?:", "a", "{2})", m),
             nested("[", "a", "]", m),
             repeat("(a*)*", std::min<int64_t>(m, 20'000)),
             repeat("(a|", m),
             repeat("a?", m) + repeat("a", std::min<int64_t>(m, 1000)),
             fmt::format("a{{1,{}}}", n),
             fmt::format("(a{{{}}}){{{}}}", n, n),
             fmt::format("(.*a){{{}}}", n),
             fmt::format(".*a.{{{}}}", n),
             fmt::format("(a|b)*a(a|b){{{}}}", n),
             fmt::format("(?i)({})", repeat("straße", std::min<int64_t>(m, 10'000))),
             fmt::format("\\p{{L}}{{{}}}", n),
             fmt::format("[^\\d\\s]{{{}}}x", n),
             join("|", std::min<int64_t>(m, 10'000),
                  [](int64_t i) { return fmt::format("w{}x", i); }),
             repeat("\\", m),
             repeat("x", m),
         }) {
      feed(GrammarKind::kRegex, regex);
    }
  }
  EXPECT_GE(num_fed_, 180);
  EXPECT_GE(num_refused_, 20);
}

TEST_F(Hostile, BrokenRegularExpressions) {
  // clang-format off
  for (const std::string_view regex :
      {"", "*", "+", "?", "{1,2}", "(", ")", "[", "]", "[]", "[^]", "a**", "a{2,1}", "(?=a)b",
       "(?!a)b", "(?<=a)b", "(a)\\1", "\\", "\\x", "\\u12", "\\ud800", "[z-a]", "(?P<n>a)(?P=n)",
       "\\Qa", "a{99999999999999999999}", "^^$$", "$a", "a^", "\\b", "(?#c)", "\\C", "\\X", "/",
       "(?x) a # c", "\\p{Nothing}", "[[:alpha:]]", "[\\d-z]", "a\nb"}) {
    // clang-format on
    feed(GrammarKind::kRegex, std::string(regex));
  }
  feed(GrammarKind::kRegex, std::string("a\0b", 3));
  feed(GrammarKind::kRegex, repeat("a", 300 << 10));
  EXPECT_GE(num_fed_, 35);
  EXPECT_GE(num_refused_, 15);
}

TEST_F(Hostile, Schemas) {
  for (const int64_t n : kSizes) {
    const int64_t m = std::min<int64_t>(n, 20'000);
    const auto option = [](int64_t i) { return fmt::format(R"({{"const":"v{}"}})", i); };
    for (const std::string& schema : {
             nested(R"({"type":"array","items":)", "true", "}", m),
             nested(R"({"anyOf":[)", R"({"type":"null"})", "]}", m),
             nested(R"({"oneOf":[{"type":"null"},)", R"({"type":"string"})", "]}", m),
             nested(R"({"allOf":[{"minimum":1},)", R"({"type":"integer"})", "]}", m),
             nested(R"({"properties":{"a":)", "{}", "}}", m),
             nested("[", "", "]", m),
             R"({"enum":[)" +
                 join(",", std::min<int64_t>(n, 20'000),
                      [](int64_t i) { return fmt::format("\"e{}\"", i); }) +
                 "]}",
             R"({"anyOf":[)" + join(",", std::min<int64_t>(m, 5000), option) + "]}",
             R"({"oneOf":[)" + join(",", std::min<int64_t>(m, 1000), option) + "]}",
             R"({"allOf":[)" +
                 join(",", std::min<int64_t>(m, 200),
                      [](int64_t i) {
                        return fmt::format(R"({{"anyOf":[{{"minimum":{}}},{{"maximum":{}}}]}})", i,
                                           i);
                      }) +
                 "]}",
             R"({"properties":{)" +
                 join(",", std::min<int64_t>(m, 5000),
                      [](int64_t i) { return fmt::format(R"("p{}":{{"type":"integer"}})", i); }) +
                 "}}",
             R"({"patternProperties":{)" +
                 join(",", std::min<int64_t>(m, 100),
                      [](int64_t i) { return fmt::format(R"("^a{}":{{}})", i); }) +
                 "}}",
             R"({"required":[)" +
                 join(",", std::min<int64_t>(m, 5000),
                      [](int64_t i) { return fmt::format("\"r{}\"", i); }) +
                 "]}",
             R"({"$ref":"#/$defs/d0","$defs":{)" +
                 join(",", std::min<int64_t>(m, 5000),
                      [](int64_t i) {
                        return fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}})", i, i + 1);
                      }) +
                 "}}",
             R"({"$ref":"#/$defs/d0","$defs":{)" +
                 join(",", std::min<int64_t>(m, 3000),
                      [](int64_t i) {
                        return fmt::format(
                            R"("d{}":{{"items":{{"$ref":"#/$defs/d{}"}},"type":"array"}})", i,
                            i + 1);
                      }) +
                 "}}",
             fmt::format(R"({{"type":"string","minLength":{}}})", n),
             fmt::format(R"({{"type":"string","maxLength":{}}})", n),
             fmt::format(R"({{"type":"string","pattern":"^(a|b)*a(a|b){{{}}}$"}})", n),
             fmt::format(R"({{"type":"array","minItems":{},"items":{{"type":"null"}}}})", n),
             fmt::format(R"({{"type":"array","maxItems":{},"items":{{"type":"object"}}}})", n),
             fmt::format(R"({{"type":"object","minProperties":{}}})", n),
             fmt::format(R"({{"type":"integer","minimum":-{},"maximum":{}}})", n, n),
             fmt::format(R"({{"type":"number","multipleOf":{}e-9}})", n),
             fmt::format(R"({{"const":"{}"}})", repeat("\\u00e9", std::min<int64_t>(m, 10'000))),
         }) {
      feed(GrammarKind::kJsonSchema, schema);
    }
  }
  EXPECT_GE(num_fed_, 240);
  EXPECT_GE(num_refused_, 40);
}

TEST_F(Hostile, ValuesOfTheWrongKind) {
  for (const std::string_view keyword : {"$ref",
                                         "type",
                                         "enum",
                                         "const",
                                         "anyOf",
                                         "oneOf",
                                         "allOf",
                                         "properties",
                                         "patternProperties",
                                         "additionalProperties",
                                         "required",
                                         "minProperties",
                                         "maxProperties",
                                         "items",
                                         "prefixItems",
                                         "minItems",
                                         "maxItems",
                                         "minLength",
                                         "maxLength",
                                         "pattern",
                                         "format",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "multipleOf",
                                         "$defs",
                                         "definitions"}) {
    for (const std::string_view value :
         {"null", "-1", "1.5", "1e400", "18446744073709551616", "\"x\"", "\"\\ud800\"", "[]", "[1]",
          "[[]]", "{}", "{\"a\":1}", "true", "\"#\"", "\"https://example.com/x\""}) {
      feed(GrammarKind::kJsonSchema, fmt::format(R"({{"{}":{}}})", keyword, value));
    }
  }
  for (
      const std::string_view schema :
      {"",
       "nul",
       "1",
       "\"x\"",
       "[]",
       "{",
       "{\"a\"}",
       "false",
       R"({"type":"string","type":"null"})",
       R"({"$ref":"#"})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/a"}}}})",
       R"({"$ref":"#/$defs/a","minimum":1,"$defs":{"a":{"$ref":"#/$defs/a","maximum":3}}})",
       R"({"$ref":"file:///etc/passwd"})",
       R"({"$ref":"#/properties/~0~1"})",
       R"({"type":"object","required":["a"],"properties":{"a":false}})",
       R"({"allOf":[{"type":"string"},{"type":"null"}]})",
       R"({"minimum":5,"maximum":4})",
       R"({"type":"string","minLength":5,"maxLength":4})",
       R"({"x-guidance":{"lenient":true}})",
       R"({"type":"string","pattern":"^a$","const":"b"})",
       R"({"type":"array","minItems":5,"prefixItems":[{}],"items":false})"}) {
    feed(GrammarKind::kJsonSchema, std::string(schema));
  }
  EXPECT_GE(num_fed_, 400);
  EXPECT_GE(num_refused_, 200);
}

TEST_F(Hostile, Grammars) {
  for (const int64_t n : kSizes) {
    const int64_t m = std::min(n, kTexts);
    const int64_t rules = std::min<int64_t>(n, 20'000);
    const auto chain = [](std::string_view form) {
      return [form](int64_t i) { return fmt::format(fmt::runtime(form), i, i + 1); };
    };
    for (const std::string& grammar : {
             "start: " + nested("(", "\"a\"", ")", m),
             "start: " + nested("(", "\"a\"", ")*", m),
             "start: " + nested("[", "\"a\"", "]", m),
             "start: A\nA: " + nested("(", "\"a\"", "|\"b\")", m),
             "start: \"a\"" + repeat(" \"b\"?", std::min<int64_t>(m, 20'000)),
             "start: r0\n" + join("\n", rules, chain("r{}: \"x\" r{}")),
             "start: r0\n" + join("\n", rules, chain("r{}: \"x\" r{} | \"y\"")) +
                 fmt::format("\nr{}: \"z\"", rules),
             "start: T0\n" + join("\n", rules, chain("T{}: \"x\" T{}")) +
                 fmt::format("\nT{}: \"z\"", rules),
             fmt::format("start: \"a\"{{1,{}}}", n),
             fmt::format("start: (a{{{}}}){{{}}}\na: \"x\" | \"y\" a", std::min<int64_t>(n, 1000),
                         n),
             fmt::format("start: /(a|b)*a(a|b){{{}}}/", n),
             "start: " + join(" | ", std::min<int64_t>(m, 5000),
                              [](int64_t i) { return fmt::format("\"k{}\" start", i); }),
             "start: %json " + nested("{\"items\":", "{}", "}", m),
             "root ::= " + nested("(", "\"a\"", ")", m),
             "root ::= " + nested("(", "\"a\"", ")*", m),
             "root ::= " + repeat("\"a\"? ", std::min<int64_t>(m, 20'000)),
             "root ::= r0\n" + join("\n", rules, chain("r{} ::= \"x\" r{}")) +
                 fmt::format("\nr{} ::= \"z\"", rules),
             "root ::= r0\n" + join("\n", rules, chain("r{} ::= \"x\" r{} root | [a-z]")) +
                 fmt::format("\nr{} ::= \"z\"", rules),
             fmt::format("root ::= [a-z]{{1,{}}}", n),
             fmt::format("root ::= ((\"a\" | root){{{0}}}){{{0}}}", std::min<int64_t>(n, 10'000)),
         }) {
      feed(GrammarKind::kGrammar, grammar);
    }
  }
  EXPECT_GE(num_fed_, 200);
  EXPECT_GE(num_refused_, 20);
}

TEST_F(Hostile, BrokenGrammars) {
  // clang-format off
  for (const std::string_view grammar :
      {"", " ", "start:", "start", "x: \"a\"", "start: start", "start: start start | \"a\"",
       "start: start?", "start: a\na: b\nb: a", "start: \"\"", "start: \"\"*", "start: (\"\")+",
       "start: //", "start: /(/", "start: /*/", "start: \"a", "start: %json", "start: %json {",
       "start: %json [1]", "start: %nothing", "%import common.NOTHING\nstart: \"a\"",
       "%declare A\nstart: A", "%ignore /x*/\nstart: \"a\"",
       "%llguidance {\"x\":1}\nstart: \"a\"", "start: <|nothing|>", "start: <[99999999]>",
       "start: <[*]>", "start: <[1-5]>", "start: @x", "start: a{1}{2}\na: \"x\"",
       "start[max_tokens=0]: \"a\"", "start[stop=\"x\"]: /(?s:.*)/", "start[lazy]: /a*/",
       "start: ~\"a\"", "start: A\nA: ~/(?s:.*)/", "start: A\nA: /a/ & /b/", "start: A\nA: A",
       "start: \"a\"i", "start: \"a\"..\"z\"", "start: \"z\"..\"a\"", "start: a::0\na::_: \"x\"",
       "start: %lark { start: \"a\" }", "start: %lark {", "root ::=", "root ::= root",
       "root ::= root root | \"a\"", "root ::= \"\" root", "root ::= (\"\")*",
       "root ::= a\na ::= b\nb ::= a", "root ::= [^]", "root ::= .", "root ::= \"\\x4\"",
       "root ::= \"\\U00110000\"", "root ::= \"a\"{,}", "root ::= | |", "::=", "root ::= ::="}) {
    // clang-format on
    feed(GrammarKind::kGrammar, std::string(grammar));
  }
  EXPECT_GE(num_fed_, 50);
  EXPECT_GE(num_refused_, 30);
}

TEST_F(Hostile, TagsAndChoices) {
  for (const int64_t n : kSizes) {
    const int64_t m = std::min<int64_t>(n, 20'000);
    const auto tag = [](int64_t i) {
      return fmt::format(R"({{"begin":"<t{}>","end":"</t>"}})", i);
    };
    feed(GrammarKind::kTags, R"({"tags":[)" + join(",", m, tag) + R"(],"triggers":["<t"]})");
    feed(GrammarKind::kTags, R"({"tags":[{"begin":"a"}],"triggers":[)" +
                                 join(",", std::min<int64_t>(m, 2000),
                                      [](int64_t i) { return fmt::format("\"a{}\"", i); }) +
                                 "]}");
    feed(GrammarKind::kTags,
         R"({"format":)" +
             nested(R"({"type":"sequence","elements":[)", R"({"type":"any_text"})", "]}", m) + "}");
    feed(GrammarKind::kTags, R"({"format":)" +
                                 nested(R"({"type":"or","elements":[{"type":"any_text"},)",
                                        R"({"type":"any_text"})", "]}", m) +
                                 "}");
    feed(GrammarKind::kChoice,
         "[" + join(",", m, [](int64_t i) { return fmt::format("\"c{}\"", i); }) + "]");
    feed(GrammarKind::kChoice, fmt::format("[\"{}\"]", repeat("ab", m)));
  }
  for (const std::string_view text :
       {"", "[]", "{}", "1", R"({"tags":[]})", R"({"tags":[{}]})", R"({"tags":[{"begin":"a"}]})",
        R"({"tags":[{"begin":"a"}],"triggers":[""]})",
        R"({"tags":[{"begin":"a"}],"triggers":["b"]})", R"({"format":1})",
        R"({"tags":[{"begin":"a","schema":1}],"triggers":["a"]})"}) {
    feed(GrammarKind::kTags, std::string(text));
    feed(GrammarKind::kChoice, std::string(text));
  }
  EXPECT_GE(num_fed_, 80);
  EXPECT_GE(num_refused_, 20);
}

TEST_F(Hostile, ThousandsOfRefusalsLeaveNothingBehind) {
  const auto resident_pages = [] {
    std::ifstream file("/proc/self/statm");
    size_t total = 0, resident = 0;
    file >> total >> resident;
    return resident;
  };
  const auto refuse = [](int from, int to) {
    for (int i = from; i < to; ++i) {
      EXPECT_FALSE(compiler().compile(GrammarKind::kRegex, fmt::format("({}", i)).ok());
    }
  };
  refuse(0, 500);
  const size_t before = resident_pages();
  refuse(500, 2000);
  EXPECT_LE(resident_pages(), before + (16 << 20) / 4096);
}

}  // namespace grammar_hostile_test
}  // namespace headrace
