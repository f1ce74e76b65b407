#include "text/grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "text/grammar_test_support.h"

namespace headrace {
namespace grammar_test {

using test::PieceTokenizer;

const PieceTokenizer& tokenizer() {
  static const PieceTokenizer tokenizer;
  return tokenizer;
}

GrammarCompiler& compiler() {
  static GrammarCompiler compiler(tokenizer(), {PieceTokenizer::kEnd});
  return compiler;
}

bool allows(const std::vector<uint64_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

std::vector<uint64_t> mask_of(GrammarMatcher& matcher) {
  std::vector<uint64_t> mask((static_cast<size_t>(tokenizer().vocab_size()) + 63) / 64, ~0ull);
  matcher.fill_mask(mask);
  return mask;
}

// Whether the tokens may come in this order and the text may end after them.
bool takes(const Grammar& grammar, const std::vector<int32_t>& ids) {
  auto matcher = grammar.matcher().value();
  for (const int32_t id : ids) {
    if (!allows(mask_of(*matcher), id)) return false;
    EXPECT_TRUE(matcher->accept(id));
  }
  const bool ends = allows(mask_of(*matcher), PieceTokenizer::kEnd);
  EXPECT_EQ(ends, matcher->is_complete());
  return ends;
}

// Byte by byte and in pieces: whether a text fits does not depend on its tokens.
bool takes(GrammarKind kind, std::string_view form, std::string_view text) {
  const auto grammar = compiler().compile(kind, form);
  EXPECT_TRUE(grammar.ok()) << form << ": " << (grammar.ok() ? "" : grammar.error().message);
  if (!grammar.ok()) return false;
  const bool by_bytes = takes(**grammar, PieceTokenizer::bytes(text));
  EXPECT_EQ(by_bytes, takes(**grammar, tokenizer().encode(text, false).value())) << text;
  return by_bytes;
}

std::string refusal(GrammarKind kind, std::string_view form) {
  const auto grammar = compiler().compile(kind, form);
  return grammar.ok() ? "" : grammar.error().message;
}

struct KeywordRow {
  std::string_view schema;
  std::vector<std::string_view> valid, invalid;
};

// Every keyword of the table that is enforced, with documents of both kinds.
const KeywordRow kKeywords[] = {
    {R"({"type":"null"})", {"null"}, {"nul", "0", "\"null\"", ""}},
    {R"({"type":"boolean"})", {"true", "false"}, {"True", "1", "null"}},
    {R"({"type":"integer"})", {"0", "-7", "123456"}, {"1.5", "01", "+1", "\"1\""}},
    {R"({"type":"number"})", {"0", "-1.5", "2e3", "1.25E-2"}, {"1.", ".5", "01", "NaN"}},
    {R"({"type":"string"})",
     {R"("")", R"("a b")", R"("\n\"\\")", "\"\xc3\xa9\""},
     {"a", "\"a", R"("\q")", "\"\n\"", "1"}},
    {R"({"type":["string","null"]})", {R"("x")", "null"}, {"1", "true"}},
    {R"({"type":"array","items":{"type":"integer"}})",
     {"[]", "[1]", "[ 1, 2 ]"},
     {"[a]", "[1,]", "1"}},
    {R"({"type":"array","minItems":1,"maxItems":2})", {"[1]", "[1,null]"}, {"[]", "[1,2,3]"}},
    {R"({"type":"array","prefixItems":[{"type":"null"},{"const":1}],"items":false,"minItems":2})",
     {"[null,1]"},
     {"[null]", "[1,null]", "[null,1,2]"}},
    {R"({"type":"array","items":[{"type":"null"}],"additionalItems":{"type":"boolean"}})",
     {"[null,true]", "[]"},
     {"[true]", "[null,1]"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({ "a" : 1 , "b" : null })"},
     {"{}", R"({"b":null})", R"({"a":"x"})", R"({"a":1,"c":2})"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", R"({"x":1,"y":2})"},
     {R"({"x":"1"})", R"({"x":1,})"}},
    {R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false})",
     {R"({"x1":1})", "{}"},
     {R"({"y":1})", R"({"x1":null})"}},
    {R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":1,"maxProperties":2})",
     {R"({"a":null})", R"({"a":null,"b":null})"},
     {"{}", R"({"a":null,"b":null,"c":null})"}},
    {R"({"type":"object","required":["a","b"],"additionalProperties":{"type":"null"},"minProperties":2})",
     {R"({"a":null,"b":null})", R"({"a":null,"b":null,"c":null})"},
     {R"({"a":null,"c":null})"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("abc")"},
     {R"("a")", R"("abcd")"}},
    {R"({"type":"string","pattern":"^[a-c]+\\d$"})",
     {R"("abc1")"},
     {R"("1")", R"("abcd1")", R"("a12")"}},
    {R"({"type":"string","pattern":"b"})", {R"("abc")", R"("b")"}, {R"("ac")"}},
    {R"({"type":"string","format":"date"})", {R"("2024-02-29")"}, {R"("2024-13-01")", R"("x")"}},
    {R"({"type":"string","format":"date-time"})",
     {R"("2024-02-29T10:11:12Z")"},
     {R"("2024-02-29")"}},
    {R"({"type":"string","format":"time"})", {R"("10:11:12Z")"}, {R"("25:00:00Z")"}},
    {R"({"type":"string","format":"duration"})", {R"("P1DT2H")"}, {R"("1D")"}},
    {R"({"type":"string","format":"email"})", {R"("a.b@c.de")"}, {R"("a.b")"}},
    {R"({"type":"string","format":"hostname"})", {R"("a-b.c")"}, {R"("-a")"}},
    {R"({"type":"string","format":"ipv4"})", {R"("10.0.0.255")"}, {R"("10.0.0.256")"}},
    {R"({"type":"string","format":"ipv6"})", {R"("::1")", R"("fe80::1:2")"}, {R"("1")"}},
    {R"({"type":"string","format":"uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567")"}},
    {R"({"type":"string","format":"uri"})", {R"("http://a.b/c?d#e")"}, {R"("a b")"}},
    {R"({"type":"integer","format":"int32"})", {"5"}, {"5.5"}},
    {R"({"type":"integer","minimum":-3,"maximum":12})", {"-3", "0", "12"}, {"-4", "13", "100"}},
    {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":2})",
     {"0.5", "1.99"},
     {"0", "2", "2.5", "-1"}},
    {R"({"type":"integer","multipleOf":5})", {"0", "10", "-25"}, {"3", "12"}},
    {R"({"type":"integer","minimum":9007199254740990,"maximum":9223372036854775807})",
     {"9007199254740990", "9007199254740991"},
     {"9007199254740989", "9223372036854775808"}},
    {R"({"const":9007199254740992})", {"9007199254740992"}, {"9007199254740993"}},
    {R"({"const":{"a":[1,"x"]}})", {R"({"a":[1,"x"]})"}, {R"({"a":[1]})", "{}"}},
    {R"({"const":{"oneOf":[{"$ref":"#/$defs/q"}]},"$defs":{"q":{"type":"string"}}})",
     {R"({"oneOf":[{"$ref":"#/$defs/q"}]})"},
     {R"({"oneOf":[{"type":"string"}]})"}},
    {R"({"enum":["red","green",7,null]})", {R"("red")", "7", "null"}, {R"("blue")", "8", "true"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]})",
     {"1", "[1]"},
     {"[[1]]", "true"}},
    {R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}},
    {R"({"oneOf":[{"type":"string"},{"type":"integer"}]})", {"1", R"("1")"}, {"null"}},
    {R"({"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},{"type":"object","properties":{"next":{"$ref":"#/$defs/list"}},"required":["next"],"additionalProperties":false}]}}})",
     {"null", R"({"next":null})", R"({"next":{"next":null}})"},
     {R"({"next":1})", "{}"}},
    {R"({"$ref":"#/definitions/d","definitions":{"d":{"type":"integer"}}})", {"4"}, {"null"}},
    {R"({"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}],"discriminator":{"propertyName":"kind"},"$defs":{
        "cat":{"type":"object","properties":{"kind":{"const":"cat"},"lives":{"type":"integer"}},
               "required":["kind","lives"],"additionalProperties":false},
        "dog":{"type":"object","properties":{"kind":{"const":"dog"}},"required":["kind"],
               "additionalProperties":false}}})",
     {R"({"kind":"cat","lives":9})", R"({"kind":"dog"})"},
     {R"({"kind":"cat"})", R"({"kind":"dog","lives":9})", R"({"kind":"cow"})"}},
    {R"({"type":"array","uniqueItems":false,"title":"t","description":"d","default":[],"examples":[],"$comment":"c","deprecated":true,"x-order":1})",
     {"[1,1]"},
     {"1"}},
    {"{}", {"1", "[{}]", R"({"a":[null]})"}, {"", "{", "x"}},
    {"true", {"1"}, {"x"}},
};

// What a preparation makes is used, and who goes meanwhile takes it along.
TEST(GrammarCompilerPrepare, IsAheadOfTheFirstCompile) {
  {
    GrammarCompiler gone(tokenizer(), {PieceTokenizer::kEnd});
    gone.prepare();
    gone.prepare();
  }
  GrammarCompiler ahead(tokenizer(), {PieceTokenizer::kEnd});
  ahead.prepare();
  const auto grammar = ahead.compile(GrammarKind::kRegex, "[0-9]{2}").value();
  EXPECT_TRUE(takes(*grammar, PieceTokenizer::bytes("42")));
  EXPECT_FALSE(takes(*grammar, PieceTokenizer::bytes("4x")));
}

TEST(Grammar, EveryKeywordIsEnforced) {
  size_t num_documents = 0;
  for (const KeywordRow& row : kKeywords) {
    for (const std::string_view text : row.valid) {
      EXPECT_TRUE(takes(GrammarKind::kJsonSchema, row.schema, text)) << row.schema << "\n" << text;
    }
    for (const std::string_view text : row.invalid) {
      EXPECT_FALSE(takes(GrammarKind::kJsonSchema, row.schema, text)) << row.schema << "\n" << text;
    }
    num_documents += row.valid.size() + row.invalid.size();
  }
  EXPECT_GT(num_documents, 150u);
}

TEST(Grammar, AKeywordThatIsNotEnforcedIsNamed) {
  for (const std::string_view keyword : {"uniqueItems",
                                         "nullable",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "not",
                                         "if",
                                         "then",
                                         "else",
                                         "propertyNames",
                                         "dependencies",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "unevaluatedItems",
                                         "unevaluatedProperties",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "requierd",
                                         "x-guidance",
                                         "maxlength"}) {
    const std::string inside =
        fmt::format(R"({{"type":"object","properties":{{"p":{{"{}":{{"a":1}}}}}}}})", keyword);
    const std::string message = refusal(GrammarKind::kJsonSchema, inside);
    EXPECT_NE(message.find(keyword), std::string::npos) << keyword << ": " << message;
    EXPECT_NE(message.find("properties.p"), std::string::npos) << message;
  }
  EXPECT_NE(refusal(GrammarKind::kJsonSchema, R"({"type":"string","format":"path"})").find("path"),
            std::string::npos);
  const std::string overlapping =
      R"({"oneOf":[{"type":"integer","minimum":1},{"type":"integer","maximum":5}]})";
  EXPECT_NE(refusal(GrammarKind::kJsonSchema, overlapping).find("oneOf"), std::string::npos);
}

TEST(Grammar, AnObjectIsAnyObject) {
  EXPECT_TRUE(takes(GrammarKind::kJsonObject, "", R"({"a":[1,{"b":null}]})"));
  EXPECT_FALSE(takes(GrammarKind::kJsonObject, "", "[]"));
}

TEST(Grammar, ARegexHoldsTheWholeText) {
  EXPECT_TRUE(takes(GrammarKind::kRegex, "[a-f]+/\\d{2}", "abc/12"));
  EXPECT_FALSE(takes(GrammarKind::kRegex, "[a-f]+/\\d{2}", "abc/1"));
  EXPECT_FALSE(takes(GrammarKind::kRegex, "[a-f]+/\\d{2}", "abc/123"));
  EXPECT_TRUE(takes(GrammarKind::kRegex, "(yes|no)?", ""));
}

TEST(Grammar, AChoiceIsOneOfTheList) {
  const std::string_view list = R"(["long","longer","a \"b\"\n"])";
  for (const std::string_view text : {"long", "longer", "a \"b\"\n"}) {
    EXPECT_TRUE(takes(GrammarKind::kChoice, list, text)) << text;
  }
  EXPECT_FALSE(takes(GrammarKind::kChoice, list, "longe"));
}

TEST(Grammar, LarkAndItsSchemas) {
  const std::string_view lark = "start: \"[\" item (\",\" item)* \"]\"\nitem: /[0-9]+/ | start";
  EXPECT_TRUE(takes(GrammarKind::kGrammar, lark, "[1,[22],3]"));
  EXPECT_FALSE(takes(GrammarKind::kGrammar, lark, "[1,[22]"));
  const std::string_view with_schema =
      R"(start: "call " %json {"type":"object","properties":{"a":{"type":"integer","uniqueItems":false}},"required":["a"],"additionalProperties":false} "!")";
  EXPECT_TRUE(takes(GrammarKind::kGrammar, with_schema, R"(call {"a": 1}!)"));
  EXPECT_FALSE(takes(GrammarKind::kGrammar, with_schema, R"(call {"b": 1}!)"));
  EXPECT_NE(refusal(GrammarKind::kGrammar, R"(start: %json {"uniqueItems":true})").find("unique"),
            std::string::npos);
}

// The grammar of JSON that clients of GGUF tools send, with rules that refer to each other.
constexpr std::string_view kGbnf = R"(# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST(Grammar, EbnfOfGgufTools) {
  for (const std::string_view text :
       {"{}", R"({"a":1})", R"({"a": [1, -2.5e3, {"b": "x\u00e9"}], "c":null})"}) {
    EXPECT_TRUE(takes(GrammarKind::kGrammar, kGbnf, text)) << text;
  }
  for (const std::string_view text : {"", "{", R"({"a"})", R"({a:1})", R"({"a":01x})"}) {
    EXPECT_FALSE(takes(GrammarKind::kGrammar, kGbnf, text)) << text;
  }
  const std::string_view moves = "root ::= move (\" \" move){1,2}\nmove ::= [a-h] [1-8]";
  EXPECT_TRUE(takes(GrammarKind::kGrammar, moves, "a1 b2 h8"));
  EXPECT_FALSE(takes(GrammarKind::kGrammar, moves, "a1"));
  EXPECT_FALSE(takes(GrammarKind::kGrammar, moves, "a1 b2 c3 d4"));
}

TEST(Grammar, MistakesInEbnfNameTheirLine) {
  for (const std::string_view text :
       {"a ::= b", "root ::= x", "root ::= [", "root ::= \"a", "root ::= (", "root ::= *",
        "root ::= \"a\"{3,1}", "root ::= \"a\"\nroot ::= \"b\"", "root ::= [z-a]",
        "root ::= \"\\q\"", "root ::= \"a\"{99999}"}) {
    EXPECT_NE(refusal(GrammarKind::kGrammar, text), "") << text;
  }
  EXPECT_NE(refusal(GrammarKind::kGrammar, "root ::= \"a\"\nb ::= [").find("line 2"),
            std::string::npos);
}

TEST(Grammar, TagsInFreeText) {
  const std::string_view tags = R"({"tags":[
      {"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},
      {"begin":"<f=b>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f="]})";
  for (const std::string_view text :
       {"", "no call < f", "so: <f=a>12</f> done", "<f=a>1</f><f=b>null</f>"}) {
    EXPECT_TRUE(takes(GrammarKind::kTags, tags, text)) << text;
  }
  for (const std::string_view text : {"<f=c>1</f>", "<f=a>x</f>", "<f=a>1", "a <f= b"}) {
    EXPECT_FALSE(takes(GrammarKind::kTags, tags, text)) << text;
  }
}

TEST(Grammar, TagsAlone) {
  const std::string_view one =
      R"json({"tags":[{"begin":"(","regex":"[a-z]+","end":")"}],"text":false,"at_least_one":true,"stop_after_first":true})json";
  EXPECT_TRUE(takes(GrammarKind::kTags, one, "(abc)"));
  for (const std::string_view text : {"", "x(abc)", "(abc)(d)"}) {
    EXPECT_FALSE(takes(GrammarKind::kTags, one, text)) << text;
  }
  const std::string_view several =
      R"json({"tags":[{"begin":"(","regex":"[a-z]+","end":")"}],"text":false,"separator":", "})json";
  for (const std::string_view text : {"", "(abc)", "(a), (b), (c)"}) {
    EXPECT_TRUE(takes(GrammarKind::kTags, several, text)) << text;
  }
  EXPECT_FALSE(takes(GrammarKind::kTags, several, "(a)(b)"));
}

TEST(Grammar, TagsAsClientsDescribeThem) {
  const std::string_view old = R"({"type":"structural_tag","structures":[
      {"begin":"<t>","schema":{"type":"boolean"},"end":"</t>"}],"triggers":["<t"]})";
  EXPECT_TRUE(takes(GrammarKind::kTags, old, "x <t>true</t>"));
  EXPECT_FALSE(takes(GrammarKind::kTags, old, "x <t>1</t>"));
  const std::string_view now = R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"const_string","value":"A:"},
      {"type":"or","elements":[{"type":"regex","pattern":"[0-9]+"},
                               {"type":"const_string","value":"-"}]},
      {"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</x>"},
      {"type":"json_schema","json_schema":{"type":"null"}}]}})";
  EXPECT_TRUE(takes(GrammarKind::kTags, now, "A:12<think>any < text</x>null"));
  EXPECT_TRUE(takes(GrammarKind::kTags, now, "A:-<think></x>null"));
  EXPECT_FALSE(takes(GrammarKind::kTags, now, "A:<think></x>null"));
  EXPECT_NE(refusal(GrammarKind::kTags, R"({"format":{"type":"magic"}})").find("magic"),
            std::string::npos);
}

TEST(Grammar, SpecialTokensAreMatchedAsSuch) {
  const auto grammar = compiler().compile(
      GrammarKind::kTags,
      R"({"tags":[{"begin":"<|call|>","regex":"[0-9]","end":""}],"triggers":["<|call|>"]})");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  const auto text = [](std::string_view bytes) { return PieceTokenizer::bytes(bytes); };
  std::vector<int32_t> ids = text("a ");
  ids.push_back(PieceTokenizer::kCall);
  EXPECT_FALSE(takes(**grammar, ids));
  ids.push_back(text("7")[0]);
  EXPECT_TRUE(takes(**grammar, ids));
  EXPECT_TRUE(takes(**grammar, text("<|call|>")));  // its spelling is text
}

TEST(Grammar, WhatWasTakenBackHasNotHappened) {
  const auto grammar = compiler().compile(GrammarKind::kJsonSchema, kKeywords[10].schema).value();
  auto matcher = grammar->matcher().value();
  const auto ids = PieceTokenizer::bytes(R"({"a": 1})");
  std::vector<std::vector<uint64_t>> masks;
  for (const int32_t id : ids) {
    masks.push_back(mask_of(*matcher));
    ASSERT_TRUE(matcher->accept(id));
  }
  EXPECT_TRUE(matcher->is_complete() && matcher->is_finished());
  for (size_t back = 1; back <= ids.size(); ++back) {
    ASSERT_TRUE(matcher->rollback(static_cast<int32_t>(back)));
    EXPECT_EQ(mask_of(*matcher), masks[ids.size() - back]) << back;
    for (size_t i = ids.size() - back; i < ids.size(); ++i) ASSERT_TRUE(matcher->accept(ids[i]));
    EXPECT_TRUE(matcher->is_finished());
  }
}

TEST(Grammar, ForcedTokensAreAllowedOneAfterTheOther) {
  const auto grammar =
      compiler()
          .compile(GrammarKind::kJsonSchema,
                   R"({"type":"object","properties":{"long_name":{"const":"long value"}},
                       "required":["long_name"],"additionalProperties":false})")
          .value();
  auto matcher = grammar->matcher().value();
  ASSERT_TRUE(matcher->accept(PieceTokenizer::bytes("{")[0]));
  ASSERT_TRUE(matcher->accept(PieceTokenizer::bytes("\"")[0]));
  const auto before = mask_of(*matcher);
  std::vector<int32_t> ids(16);
  const size_t count = matcher->forced(ids);
  ASSERT_GE(count, 3u);
  EXPECT_EQ(mask_of(*matcher), before);  // guessing changes nothing
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(allows(mask_of(*matcher), ids[i]));
    ASSERT_TRUE(matcher->accept(ids[i]));
    text += tokenizer().token_bytes(ids[i], true);
  }
  EXPECT_TRUE(std::string_view("long_name\"").starts_with(text)) << text;
}

TEST(Grammar, MatchersOfOneGrammarDoNotKnowEachOther) {
  const auto grammar = compiler().compile(GrammarKind::kRegex, "[a-z]{3}[0-9]{3}").value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&grammar] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(takes(*grammar, PieceTokenizer::bytes("abc123")));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Grammar, RefusalsAndGrammarsAreKeptWithinTheLimit) {
  GrammarCompiler small(tokenizer(), {PieceTokenizer::kEnd}, 4 << 20);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(small.compile(GrammarKind::kRegex, "a+").ok());
    EXPECT_FALSE(small.compile(GrammarKind::kRegex, "(").ok());
  }
  EXPECT_EQ(small.counts().num_compiled, 2u);
  EXPECT_EQ(small.counts().num_found, 2u);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(small.compile(GrammarKind::kRegex, fmt::format("[a-z]{{{}}}", i + 1)).ok());
    ASSERT_LE(small.counts().num_bytes, size_t{4} << 20);
  }
  EXPECT_LT(small.counts().num_entries, 302u);
  EXPECT_GT(small.counts().num_entries, 1u);
}

TEST(Grammar, AModelWithoutEndTokensCanBeHeldToo) {
  GrammarCompiler endless(tokenizer(), {});
  auto matcher = endless.compile(GrammarKind::kRegex, "a").value()->matcher().value();
  ASSERT_TRUE(matcher->accept(PieceTokenizer::bytes("a")[0]));
  EXPECT_TRUE(matcher->is_finished());
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) {
    EXPECT_FALSE(allows(mask_of(*matcher), id)) << id;
  }
}

}  // namespace grammar_test
}  // namespace headrace
