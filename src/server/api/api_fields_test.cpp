#include "server/api/api_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "server/api/json.h"

namespace headrace {
namespace {

struct PlaceRow {
  FieldPlace place;
  std::string_view title;
};

// clang-format off
constexpr PlaceRow kPlaces[] = {
    {kInChat, "POST /v1/chat/completions"},
    {kInCompletion, "POST /v1/completions"},
    {kInLoadAdapter, "POST /v1/load_lora_adapter"},
    {kInUnloadAdapter, "POST /v1/unload_lora_adapter"},
    {kInTokenize, "POST /tokenize"},
    {kInDetokenize, "POST /detokenize"},
    {kInResponses, "POST /v1/responses"},
    {kInResponseItem, "input[] of /v1/responses"},
    {kInResponsePart, "input[].content[] of /v1/responses"},
    {kInResponseTool, "tools[] of /v1/responses"},
    {kInResponseText, "text of /v1/responses"},
    {kInResponseFormat, "text.format of /v1/responses"},
    {kInResponseReasoning, "reasoning of /v1/responses"},
    {kInResponseStream, "stream_options of /v1/responses"},
    {kInEmbedding, "POST /v1/embeddings"},
    {kInRerank, "POST /v1/rerank"},
    {kInScore, "POST /v1/score"},
    {kInStreamOptions, "stream_options"},
    {kInFormat, "response_format"},
    {kInJsonSchema, "response_format.json_schema"},
    {kInStructuredOutputs, "structured_outputs"},
    {kInMessage, "messages[]"},
    {kInPart, "messages[].content[]"},
    {kInTool, "tools[]"},
    {kInFunction, "tools[].function"},
    {kInBlockMessages, "POST /v1/messages"},
    {kInMessageCount, "POST /v1/messages/count_tokens"},
    {kInBlockMessage, "/v1/messages: messages[]"},
    {kInBlock, "/v1/messages: messages[].content[]"},
    {kInBlockTool, "/v1/messages: tools[]"},
    {kInThinking, "/v1/messages: thinking"},
    {kInOutputConfig, "/v1/messages: output_config"},
    {kInOllamaChat, "POST /api/chat"},
    {kInOllamaGenerate, "POST /api/generate"},
    {kInOllamaEmbed, "POST /api/embed"},
    {kInOllamaOptions, "/api: options"},
    {kInOllamaMessage, "/api/chat: messages[]"},
    {kInOllamaModel, "POST /api/show, POST /api/pull, DELETE /api/delete"},
    {kInLlamaCompletion, "POST /completion, POST /completions"},
    {kInInfill, "POST /infill"},
};
// clang-format on

constexpr std::string_view kIntroduction = R"(# Fields of request bodies

This page is the server's own table (`src/server/api/api_fields.cpp`); a test compares the two.

- A **served** field is read and obeyed; a value of the wrong type or out of range is a 400 that
  names the field, the value found and the value needed.
- A field that would change the answer and is **not served** is a 400 that names it, unless it has
  one of the values that ask for nothing. `null` always asks for nothing.
- Fields that **cannot change the answer** are accepted.
- A field that is **not in the table** is accepted and named in the answer's header
  `x-headrace-ignored`, with the field that was probably meant: `x-headrace-ignored: temprature
  (temperature?)`. The header names at most 16.
- A key that is given twice in one object, at any depth, is a 400 that names it.

A request that says nothing of sampling gets what the checkpoint recommends
(`generation_config.json`, or `general.sampling.*` of a GGUF file), and where that is silent
`temperature` 0.7, `top_p` 0.95 and nothing else. The command line and the page use the same rule;
`GET /api/headrace/status` shows the result as `sampling`.

Limits: 64 levels and 1,024 fields in one object; 1,024 answers (prompts times `n`) in one
request, of which 32 are computed at once; a prompt of at most the context, and all prompts
together 16 contexts (or 65,536 tokens). Log-probs and answers that wait to be sent count against
the server's memory for requests: a 429 if it is taken, a 400 if the request could never fit.
)";

// A cell of a table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

void append_table(std::string& page, FieldPlace place) {
  const auto add_rows = [&](FieldUse use, std::string_view head, auto line) {
    std::string rows;
    for (const FieldRow& row : field_rows()) {
      if ((row.places & place) != 0 && row.use == use) rows += line(row);
    }
    if (!rows.empty()) page += fmt::format("\n{}\n{}", head, rows);
  };
  add_rows(FieldUse::kServed, "| served | what is taken |\n|---|---|", [](const FieldRow& row) {
    return fmt::format("| `{}` | {} |\n", row.name, cell(row.note));
  });
  add_rows(FieldUse::kRefused,
           "| not served | values that ask for nothing | instead |\n|---|---|---|",
           [](const FieldRow& row) {
             const std::string values =
                 row.neutral.empty()
                     ? std::string()
                     : fmt::format("`{}`", row.neutral.substr(1, row.neutral.size() - 2));
             return fmt::format("| `{}` | {} | {} |\n", row.name, cell(values), cell(row.note));
           });
  std::string harmless;
  for (const FieldRow& row : field_rows()) {
    if ((row.places & place) == 0 || row.use != FieldUse::kHarmless) continue;
    harmless += fmt::format("{}`{}`", harmless.empty() ? "" : ", ", row.name);
  }
  if (!harmless.empty())
    page += fmt::format("\nAccepted, cannot change the answer: {}.\n", harmless);
}

std::string page() {
  std::string page(kIntroduction);
  for (const PlaceRow& row : kPlaces) {
    page += fmt::format("\n## `{}`\n", row.title);
    append_table(page, row.place);
  }
  return page;
}

std::string check(std::string_view body, FieldPlace place, std::string* ignored_text = nullptr) {
  IgnoredFields ignored;
  const auto value = parse_body(body).value();
  const Status status = check_fields(value.get_object(), place, "", ignored);
  if (ignored_text != nullptr) *ignored_text = ignored.text();
  return status.ok() ? "" : status.error().to_string();
}

TEST(ApiFields, ThePageIsTheTable) {
  const std::string path = HEADRACE_SOURCE_DIR "/docs/api-fields.md";
  if (std::getenv("HEADRACE_WRITE_DOCS") != nullptr) std::ofstream(path) << page();
  std::ifstream file(path);
  std::stringstream written;
  written << file.rdbuf();
  EXPECT_TRUE(written.str() == page())
      << "write it again: HEADRACE_WRITE_DOCS=1 test_server --gtest_filter=ApiFields.*";
}

TEST(ApiFields, EachFieldHasOneRowInAPlace) {
  for (const PlaceRow& place : kPlaces) {
    std::set<std::string_view> names;
    for (const FieldRow& row : field_rows()) {
      const bool is_here = (row.places & place.place) != 0;
      EXPECT_TRUE(!is_here || names.insert(row.name).second) << row.name;
      EXPECT_TRUE(row.use != FieldUse::kRefused || !row.note.empty()) << row.name;
    }
    EXPECT_FALSE(names.empty());
  }
}

// Every field that is not served, with every value that asks for nothing and with one that asks.
TEST(ApiFields, WhatIsNotServedIsNamedUnlessItAsksForNothing) {
  size_t num_refused = 0;
  for (const PlaceRow& place : kPlaces) {
    for (const FieldRow& row : field_rows()) {
      if ((row.places & place.place) == 0 || row.use != FieldUse::kRefused) continue;
      EXPECT_EQ(check(fmt::format(R"({{"{}":null}})", row.name), place.place), "") << row.name;
      const auto neutral = parse_body(row.neutral.empty() ? "[]" : row.neutral).value();
      for (const auto& value : neutral.get_array()) {
        EXPECT_EQ(check(fmt::format(R"({{"{}":{}}})", row.name, to_text(value)), place.place), "")
            << row.name << " " << to_text(value);
      }
      for (const char* value : {"0.37", "\"x\"", "[\"x\"]", "{\"x\":1}"}) {
        const std::string error =
            check(fmt::format(R"({{"{}":{}}})", row.name, value), place.place);
        EXPECT_TRUE(error.starts_with(fmt::format("{} is ", row.name))) << error;
        EXPECT_NE(error.find("which is not supported by this server ("), std::string::npos);
      }
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 250u);
}

TEST(ApiFields, FieldsThatUsersLostInSilenceAreRefused) {
  for (const char* body :
       {R"({"typical_p":0.5})", R"({"dry_multiplier":0.8})", R"({"xtc_probability":0.5})",
        R"({"mirostat":2})", R"({"priority":-1})", R"({"truncate_prompt_tokens":4})",
        R"({"functions":[{"name":"f"}]})", R"({"function_call":{"name":"f"}})",
        R"({"repeat_penalty":1.3})", R"({"guided_whitespace_pattern":" "})",
        R"({"no_repeat_ngram_size":2})"}) {
    EXPECT_NE(check(body, kInChat), "") << body;
    EXPECT_NE(check(body, kInCompletion), "") << body;
  }
  EXPECT_EQ(
      check(R"({"repeat_penalty":1.3})", kInChat),
      "repeat_penalty is 1.3, which is not supported by this server (use repetition_penalty)");
}

TEST(ApiFields, UnknownFieldsAreNamedWithTheOneThatWasMeant) {
  const auto ignored = [](std::string_view body) {
    std::string text;
    EXPECT_EQ(check(body, kInChat, &text), "");
    return text;
  };
  EXPECT_EQ(ignored(R"({"temprature":1})"), "temprature (temperature?)");
  EXPECT_EQ(ignored(R"({"max_token":1,"topp":0.5})"), "max_token (max_tokens?), topp (top_p?)");
  EXPECT_EQ(ignored(R"({"Temperature":1})"), "Temperature (temperature?)");
  EXPECT_EQ(ignored(R"({"zebra":1,"x_trace":{}})"), "zebra, x_trace");
  EXPECT_EQ(ignored(R"({"user":"u","store":true,"metadata":{"a":1}})"), "");
  EXPECT_EQ(ignored(R"({"a\r\nSet-Cookie: x":1})"), "a%0D%0ASet-Cookie%3A%20x");
  EXPECT_EQ(ignored(R"({"\u00e9":1,"":2})"), "%C3%A9, \"\"");
}

TEST(ApiFields, TheHeaderIsShortWhateverTheBodyHolds) {
  std::string body = "{";
  for (int i = 0; i < 1000; ++i) body += fmt::format(R"("{}{}":0,)", i, std::string(1000, '#'));
  body.back() = '}';
  std::string text;
  EXPECT_EQ(check(body, kInChat, &text), "");
  EXPECT_LT(text.size(), 4000u);
  EXPECT_TRUE(text.ends_with(" more")) << text;
  body = "{";
  for (int i = 0; i < 1025; ++i) body += fmt::format(R"("f{}":0,)", i);
  body.back() = '}';
  EXPECT_EQ(check(body, kInChat),
            "the body is an object of 1025 fields, but it must be one of at most 1024");
}

}  // namespace
}  // namespace headrace
