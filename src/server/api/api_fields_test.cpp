#include "server/api/api_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "server/api/json.h"

namespace headrace {
namespace api_fields_test {

std::string check(std::string_view body, FieldPlace place, std::string* ignored_text = nullptr) {
  IgnoredFields ignored;
  const auto value = parse_body(body).value();
  const Status status = check_fields(value.get_object(), place, "", ignored);
  if (ignored_text != nullptr) *ignored_text = ignored.text();
  return status.ok() ? "" : status.error().to_string();
}

TEST(ApiFields, ThePageIsTheTable) {
  const std::string path = HEADRACE_SOURCE_DIR "/docs/api-fields.md";
  if (std::getenv("HEADRACE_WRITE_DOCS") != nullptr) std::ofstream(path) << api_page();
  std::ifstream file(path);
  std::stringstream written;
  written << file.rdbuf();
  EXPECT_TRUE(written.str() == api_page())
      << "write it again: HEADRACE_WRITE_DOCS=1 test_server --gtest_filter=ApiFields.*";
}

TEST(ApiFields, EachFieldHasOneRowInAPlace) {
  for (const PlaceRow& place : place_rows()) {
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
  for (const PlaceRow& place : place_rows()) {
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
       {R"({"typical":0.5})", R"({"dry_range":8})", R"({"top_a":0.5})", R"({"mirostat_mode":2})",
        R"({"truncate_prompt_tokens":4})", R"({"functions":[{"name":"f"}]})",
        R"({"function_call":{"name":"f"}})", R"({"repeat_penalty":1.3})",
        R"({"guided_whitespace_pattern":" "})", R"({"no_repeat_ngram_size":2})"}) {
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

TEST(ApiFields, TheHeaderIsThereWhereAFieldWasIgnored) {
  IgnoredFields ignored;
  HttpHeaders headers = {{"a", "b"}};
  name_ignored(ignored, headers);
  EXPECT_EQ(headers.size(), 1u);
  ignored.add("zebra");
  name_ignored(ignored, headers);
  ASSERT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers[1], (std::pair<std::string, std::string>("x-headrace-ignored", "zebra")));
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

}  // namespace api_fields_test
}  // namespace headrace
