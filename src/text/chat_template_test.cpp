#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace headrace {
namespace chat_template_test {

constexpr std::string_view kNow = "2026-01-02T03:04:05";

std::unique_ptr<ChatTemplate> compile(std::string_view source, std::string_view special = "{}") {
  auto chat_template = ChatTemplate::create(source, special);
  CHECK(chat_template.ok(), "{}", chat_template.error().message);
  return std::move(chat_template).value();
}

Result<std::string> try_render(std::string_view source, std::string_view options) {
  return compile(source)->render(options, kNow);
}

std::string render(
    std::string_view source,
    std::string_view options = R"({"messages": [{"role": "user", "content": "Hi"}]})") {
  const auto text = try_render(source, options);
  return text.ok() ? *text : "error: " + text.error().message;
}

Error error_of(std::string_view source,
               std::string_view options = R"({"messages": [{"role": "user", "content": "Hi"}]})") {
  const auto text = try_render(source, options);
  EXPECT_FALSE(text.ok()) << *text;
  return text.ok() ? Error{} : text.error();
}

TEST(ChatTemplate, MessagesAndSpecialTokens) {
  const auto chat_template = compile(
      "{{ bos_token }}\n{%- for m in messages %}\n<{{ m.role }}>{{ m['content'] }}\n{% endfor %}\n"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      R"({"bos_token": "<s>"})");
  const auto text = chat_template->render(
      R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})", kNow);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "<s><user>Hi\n<assistant>");
}

// Each expectation is what Python's Jinja with transformers' extensions gives.
TEST(ChatTemplate, ValuesPrintAsInPython) {
  EXPECT_EQ(render("{{ true }} {{ none }} {{ 1.0 }} {{ 1e20 }} {{ 3 }}"), "True None 1.0 1e+20 3");
  EXPECT_EQ(render("{{ [1, 'a', none, 2.5] }}"), "[1, 'a', None, 2.5]");
  EXPECT_EQ(render("{{ {'b': 1, 'a': [true]} }}"), "{'b': 1, 'a': [True]}");
  EXPECT_EQ(render("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 3 }}"),
            "3 -4 3.5 2 8");
  EXPECT_EQ(render("{{ missing }}|{{ missing is defined }}"), "|False");
}

TEST(ChatTemplate, FiltersTakeWhatJinjasTake) {
  EXPECT_EQ(render(R"({{ '<a href="x">/&\'' | e }})"), "&lt;a href=&#34;x&#34;&gt;/&amp;&#39;");
  EXPECT_EQ(render("{{ '<' | escape | e }}{{ '<' | safe | e }}{{ '<' | safe | forceescape }}"),
            "&lt;<&lt;");
  EXPECT_EQ(render("{{ none | e }}|{{ missing | e }}"), "None|");
  EXPECT_EQ(render("{{ 'a.b.c' | replace('.', '-', 1) }} {{ 'a.b.c' | replace('.', '') }}"),
            "a-b.c abc");
  EXPECT_EQ(render("{{ '' | d('x', boolean=true) }}{{ '' | default('x') }}{{ missing | d('y') }}"
                   "{{ 0 | default('z', true) }}[{{ missing | default }}]"),
            "xyz[]");
  EXPECT_EQ(render("{{ 'x' | float }} {{ 'x' | float(1.5) }} {{ '2.5' | float }} {{ 3 | float }}"),
            "0.0 1.5 2.5 3.0");
  EXPECT_EQ(render("{{ '0x1F' | int(0, 16) }} {{ '101' | int(base=2) }} {{ 'x' | int(7) }}"),
            "31 5 7");
  EXPECT_EQ(render("{{ 'Hello World'.swapcase() }} {{ 'Ab Cd'.istitle() }} {{ 'ab'.istitle() }}"),
            "hELLO wORLD True False");
}

TEST(ChatTemplate, RawTextKeepsItsLineEnds) {
  EXPECT_EQ(render("a{% raw %}\n  {{ x }}{% endraw %}\nb"), "a\n  {{ x }}b");
  EXPECT_EQ(render("a{%- raw %}\n\n{{ x }}\n{%- endraw %}"), "a\n\n{{ x }}");
  EXPECT_EQ(render("a{% raw -%}\n  {{ x }} {% endraw %}"), "a{{ x }} ");
}

TEST(ChatTemplate, MacrosSetWhatStandsInANamespaceAroundThem) {
  EXPECT_EQ(render("{% set ns = namespace(v=1) %}{% macro f(a) %}{% set ns.v = a %}{% endmacro %}"
                   "{{ f(2) }}{{ ns.v }}{%- set  ns.v = [3, 4] -%}{{ ns.v }}"),
            "2[3, 4]");
}

TEST(ChatTemplate, ToJsonAsTransformersDoes) {
  const char* options = R"({"messages": [], "v": {"b": [1, 1.0, true, null], "a": "<é\n\"&>"}})";
  EXPECT_EQ(render("{{ v | tojson }}", options),
            "{\"b\": [1, 1.0, true, null], \"a\": \"<é\\n\\\"&>\"}");
  EXPECT_EQ(render("{{ v | tojson(ensure_ascii=true, sort_keys=true) }}", options),
            "{\"a\": \"<\\u00e9\\n\\\"&>\", \"b\": [1, 1.0, true, null]}");
  EXPECT_EQ(render("{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}", options),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(render("{{ v.b | tojson(separators=(',', ':')) }}", options), "[1,1.0,true,null]");
}

TEST(ChatTemplate, ExtensionsOfTransformers) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}"), "02 Jan 2026");
  EXPECT_EQ(render("a{% generation %}b{% endgeneration %}c"), "abc");
  EXPECT_EQ(
      render("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
      "012");
  EXPECT_EQ(render("{{ 'a,b'.split(',') }} {{ ' x '.strip() }} {{ {'k': 1}.get('z', 2) }}"),
            "['a', 'b'] x 2");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
                   "{% endfor %}{{ ns.n }}{{ messages[-1].role }}"),
            "1user");
}

TEST(ChatTemplate, FiltersAndMethodsAsInPython) {
  const char* options = R"({"messages": [], "xs": ["b", "a", "C"], "d": {"k": 1},
      "objs": [{"k": "x", "v": 2}, {"k": "y"}]})";
  EXPECT_EQ(render("{{ objs | map(attribute='v', default=9) | list }}", options), "[2, 9]");
  EXPECT_EQ(render("{{ objs | selectattr('v') | map(attribute='k') | join }}", options), "x");
  EXPECT_EQ(render("{{ xs | sort(reverse=true) | join(',') }}", options), "C,b,a");
  EXPECT_EQ(render("{% if objs | selectattr('no') %}always{% endif %}", options), "always");
  EXPECT_EQ(render("{{ (xs + ['d']) | tojson }}", options), "[\"b\", \"a\", \"C\", \"d\"]");
  EXPECT_EQ(render("{{ none is iterable }} {{ true is number }} {{ 'a' is sequence }}", options),
            "False True True");
  EXPECT_EQ(render("{{ 'a b  c'.rsplit(' ', 1) }} {{ 'a-b'.partition('-') }}", options),
            "['a b ', 'c'] ('a', '-', 'b')");
  EXPECT_EQ(render("{{ ' a  b '.split() }} {{ '7'.zfill(3) }} {{ \"it's\".title() }}", options),
            "['a', 'b'] 007 It'S");
  EXPECT_EQ(render("{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", options), "k1");
}

TEST(ChatTemplate, ReasoningIsThereUnderEachName) {
  const char* source = "{{ messages[0].reasoning_content }} {{ messages[0].thinking }}";
  EXPECT_EQ(render(source, R"({"messages": [{"role": "assistant", "reasoning": "why"}]})"),
            "why why");
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const char* options = R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "1, 2, "}], "continue_final_message": true})";
  EXPECT_EQ(render("{% for m in messages %}<{{ m.content }}>\n{% endfor %}", options),
            "<Hi>\n<1, 2, ");
  EXPECT_EQ(render("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", options),
            "<Hi><1, 2,");
  EXPECT_EQ(error_of("{{ messages[0].content }}", options).code, ErrorCode::kInvalidArgument);
  const char* both = R"({"messages": [{"role": "user", "content": "Hi"}],
      "continue_final_message": true, "add_generation_prompt": true})";
  EXPECT_EQ(error_of("{{ messages[0].content }}", both).code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, TheTemplatesOwnWordsReachTheCaller) {
  const Error error = error_of("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "roles must alternate");
  EXPECT_EQ(error_of("{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{{ f() }}").message,
            "deep");
}

TEST(ChatTemplate, WhatPythonRefusesIsRefused) {
  for (const char* source :
       {"{% for x in none %}{% endfor %}", "{{ 'a' + [1] }}", "{{ none.strip() }}",
        "{{ 'a' in none }}", "{{ undefined_thing.attribute }}", "{{ messages.append(1) }}",
        "{{ 1 | no_such_filter }}", "{{ messages | map(attribute='role') | tojson }}",
        "{{ none | length }}"}) {
    EXPECT_EQ(error_of(source).code, ErrorCode::kInvalidArgument) << source;
  }
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  for (const char* source : {"a\n\n{% if %}", "a\nb\n{% nonsense %}", "\n\n{{ 1 + }}"}) {
    const auto chat_template = ChatTemplate::create(source, "{}");
    ASSERT_FALSE(chat_template.ok()) << source;
    EXPECT_EQ(chat_template.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(chat_template.error().message.find("line 3"), std::string::npos)
        << chat_template.error().message;
  }
}

TEST(ChatTemplate, BadOptionsAreRefused) {
  for (const char* options : {"", "[]", "{", "{}", R"({"messages": 1})", R"({"messages": ["x"]})",
                              "{\"messages\": [], \"a\": \"\xFF\"}"}) {
    EXPECT_EQ(error_of("x", options).code, ErrorCode::kInvalidArgument) << options;
  }
  EXPECT_FALSE(ChatTemplate::create("x", "[]").ok());
  EXPECT_FALSE(ChatTemplate::create("\xFF", "{}").ok());
  EXPECT_FALSE(compile("x")->render(R"({"messages": []})", "yesterday").ok());
}

TEST(ChatTemplate, EndlessLoopsRunOutOfFuel) {
  const std::string loop =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% if a > b %}"
      "{% endif %}{% endfor %}{% endfor %}";
  const Error error = error_of(loop);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.message.find("was stopped"), std::string::npos) << error.message;
  // A small one still renders.
  EXPECT_EQ(render("{% for a in range(300) %}{% for b in range(300) %}{% endfor %}{% endfor %}x"),
            "x");
}

TEST(ChatTemplate, OutputIsBounded) {
  const Error error =
      error_of("{% set x = 'x' * 4096 %}{% for a in range(9999) %}{{ x }}{% endfor %}");
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.message.find("wrote more than"), std::string::npos) << error.message;
}

TEST(ChatTemplate, DeepRecursionIsAnError) {
  EXPECT_EQ(error_of("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}").code,
            ErrorCode::kInvalidArgument);
  const std::string source =
      "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  EXPECT_FALSE(ChatTemplate::create(source, "{}").ok());
  const std::string nots = "{{ " + std::string(400000, '-') + "1 }}";
  EXPECT_FALSE(ChatTemplate::create(nots, "{}").ok());
  std::string json =
      R"({"messages": [], "a": )" + std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(error_of("x", json + "}").code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, TextThatGrowsWithoutOutputIsBounded) {
  for (const char* source :
       {"{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% macro f(x) %}{% if x | length < 2 ** 40 %}{{ f(x ~ x) }}{% endif %}{% endmacro %}"
        "{{ f('abcdefgh') }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(60) %}"
        "{% set ns.x = ns.x * 1000 %}{% endfor %}",
        "{{ 'a' | indent(10 ** 12) }}", "{{ '%1000000000000d' | format(1) }}",
        "{{ '{:>1000000000000}'.format(1) }}", "{{ 'a'.ljust(10 ** 12) }}",
        "{{ [1] | batch(10 ** 12, 1) | list }}", "{{ range(10 ** 12) | list }}",
        "{{ ('a' * (10 ** 12)) | length }}"}) {
    EXPECT_EQ(error_of(source).code, ErrorCode::kInvalidArgument) << source;
  }
}

// Minutes of work in few steps and without an allocation.
constexpr std::string_view kComparesLongTexts =
    "{% set x = 'ab' * 10000000 %}{% set y = x ~ 'c' %}{% set z = x ~ 'd' %}"
    "{% for a in range(99999) %}{% if y in z %}{% endif %}{% endfor %}";

// What a request asks of a template is its own affair: the next one renders, and nothing is left.
TEST(ChatTemplate, ARenderThatWasStoppedLeavesNothingBehind) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  const auto chat_template = compile(
      "{% if messages[0].content == 'time' %}" + std::string(kComparesLongTexts) +
      "{% elif messages[0].content == 'memory' %}{% set ns = namespace(x='abcdefgh') %}"
      "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{% else %}fine{% endif %}");
  const auto options = [](const char* content) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", content);
  };
  ASSERT_EQ(chat_template->render(options("x"), kNow).value(), "fine");
  const auto descriptors = count("/proc/self/fd");
  const auto threads = count("/proc/self/task");
  for (const auto& [content, reason] :
       {std::pair{"time", "more than 2 seconds"}, std::pair{"memory", "more memory than it may"}}) {
    const auto text = chat_template->render(options(content), kNow);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(text.error().message.find(reason), std::string::npos) << text.error().message;
    EXPECT_EQ(chat_template->render(options("x"), kNow).value(), "fine");
    EXPECT_EQ(count("/proc/self/fd"), descriptors);
    EXPECT_EQ(count("/proc/self/task"), threads);
  }
}

TEST(ChatTemplate, ARenderThatTakesLongDoesNotHoldASecondCaller) {
  const auto chat_template = compile(kComparesLongTexts);
  std::thread first([&] { EXPECT_FALSE(chat_template->render(R"({"messages": []})", kNow).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto text = chat_template->render(R"({"messages": []})", kNow);
  first.join();
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kExhausted) << text.error().message;
}

TEST(ChatTemplate, LargeRequestsRender) {
  const auto chat_template = compile("{% for m in messages %}{{ m.content }}{% endfor %}");
  const std::string large(size_t{24} << 20, 'a');
  const std::string one = R"({"messages": [{"role": "user", "content": ")" + large + "\"}]}";
  EXPECT_EQ(chat_template->render(one, kNow).value().size(), large.size());
  std::string many = R"({"messages": [)";
  for (int i = 0; i < 30000; ++i) many += R"({"role": "user", "content": "a few words"},)";
  many.back() = ']';
  EXPECT_EQ(chat_template->render(many + "}", kNow).value().size(), 330000U);
  std::string numbers = R"({"messages": [], "documents": [)";
  for (int i = 0; i < 600000; ++i) numbers += "0,";
  numbers.back() = ']';
  EXPECT_EQ(chat_template->render(numbers + "}", kNow).value(), "");
}

}  // namespace chat_template_test
}  // namespace headrace
