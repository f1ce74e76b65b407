#include "model/config/json_object.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace headrace {
namespace json_object_test {

// A parsed text and the view of it.
class Parsed {
 public:
  explicit Parsed(std::string_view text) : value_(parse_json_object(text, "config.json").value()) {}
  JsonObject json() const { return JsonObject(value_.get_object()); }
  const boost::json::object& object() const { return value_.get_object(); }

 private:
  boost::json::value value_;
};

template <typename T>
void expect_refused(const Result<T>& result, ErrorCode code, std::string_view message) {
  ASSERT_FALSE(result.ok()) << message;
  EXPECT_EQ(result.error().code, code);
  EXPECT_EQ(result.error().message, message);
}

TEST(JsonObject, OnlyOneWholeObjectIsRead) {
  struct Case {
    std::string_view text, message;
  };
  constexpr Case kCases[] = {
      {"[1, 2]", "a.json holds [1,2], but must hold a JSON object"},
      {"\"text\"", "a.json holds \"text\", but must hold a JSON object"},
      {"null", "a.json holds null, but must hold a JSON object"},
  };
  for (const Case& c : kCases) {
    expect_refused(parse_json_object(c.text, "a.json"), ErrorCode::kCorrupt, c.message);
  }
  for (const std::string_view text : {"", "{", "{} {}", "{\"a\": 1,}", "{\"a\": nan}"}) {
    const auto value = parse_json_object(text, "a.json");
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(value.error().message.starts_with("a.json is not valid JSON: ")) << text;
  }
  EXPECT_TRUE(parse_json_object(" {} \n", "a.json").ok());
}

// A file that holds a book instead must not fill a terminal.
TEST(JsonObject, LongValuesAreShownCut) {
  const std::string text = fmt::format("[\"{}\"]", std::string(500, 'a'));
  expect_refused(
      parse_json_object(text, "a.json"), ErrorCode::kCorrupt,
      fmt::format("a.json holds [\"{}..., but must hold a JSON object", std::string(55, 'a')));
  const Parsed parsed(fmt::format(R"({{"r": "{}"}})", std::string(58, 'b')));
  expect_refused(
      parsed.json().integer("r"), ErrorCode::kInvalidArgument,
      fmt::format("config.json: r is \"{}\", but must be a whole number", std::string(58, 'b')));
}

TEST(JsonObject, AbsentAndNullGiveTheDefault) {
  const Parsed parsed(R"({"null": null})");
  const JsonObject json = parsed.json();
  for (const std::string_view key : {"null", "absent"}) {
    EXPECT_EQ(json.integer(key, 7).value(), 7);
    EXPECT_EQ(json.small_integer(key, 8).value(), 8);
    EXPECT_EQ(json.number(key, 0.5).value(), 0.5);
    EXPECT_TRUE(json.boolean(key, true).value());
    EXPECT_EQ(json.text(key, "x").value(), "x");
    EXPECT_TRUE(json.numbers(key).value().empty());
    EXPECT_TRUE(json.texts(key).value().empty());
    EXPECT_FALSE(json.object(key).value().has_value());
    EXPECT_FALSE(json.has_value(key));
  }
  EXPECT_TRUE(json.has("null"));
  EXPECT_TRUE(json.is_null("null"));
  EXPECT_FALSE(json.has("absent"));
  EXPECT_FALSE(json.is_null("absent"));
}

TEST(JsonObject, WhatHasNoDefaultIsNeeded) {
  const Parsed parsed(R"({"null": null})");
  const JsonObject json = parsed.json();
  for (const std::string_view key : {"null", "absent"}) {
    const std::string message = fmt::format("config.json has no {}, which is needed", key);
    expect_refused(json.integer(key), ErrorCode::kNotFound, message);
    expect_refused(json.small_integer(key), ErrorCode::kNotFound, message);
    expect_refused(json.number(key), ErrorCode::kNotFound, message);
    expect_refused(json.text(key), ErrorCode::kNotFound, message);
  }
}

// Files made by scripts write 4096.0, and powers of ten with an exponent.
TEST(JsonObject, WholeNumbersComeInEveryNotation) {
  const Parsed parsed(
      R"({"plain": -3, "float": 4096.0, "exponent": 1e6, "large": 9007199254740993,
          "half": 0.5, "huge": 1e300, "beyond": 18446744073709551615, "text": "3", "flag": true,
          "fine": 9007199254740992.0})");
  const JsonObject json = parsed.json();
  EXPECT_EQ(json.integer("plain").value(), -3);
  EXPECT_EQ(json.integer("float").value(), 4096);
  EXPECT_EQ(json.integer("exponent").value(), 1'000'000);
  EXPECT_EQ(json.integer("large").value(), 9007199254740993) << "not by way of a double";
  // "fine" is 2^53: doubles from there on do not tell a number from its neighbours.
  for (const std::string_view key : {"half", "huge", "beyond", "text", "flag", "fine"}) {
    const auto value = json.integer(key);
    ASSERT_FALSE(value.ok()) << key;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(value.error().message.ends_with(", but must be a whole number"))
        << value.error().message;
  }
  expect_refused(json.integer("half", 3), ErrorCode::kInvalidArgument,
                 "config.json: half is 5E-1, but must be a whole number");
}

TEST(JsonObject, SizesHaveBounds) {
  const Parsed parsed(
      R"({"none": 0, "less": -1, "most": 1000000, "more": 1000001, "wrap": 4294967297})");
  const JsonObject json = parsed.json();
  EXPECT_EQ(json.small_integer("most").value(), 1'000'000);
  EXPECT_EQ(json.small_integer("none", {}, 0).value(), 0);
  expect_refused(json.small_integer("none"), ErrorCode::kInvalidArgument,
                 "config.json: none is 0, but must be between 1 and 1000000");
  expect_refused(json.small_integer("less", 5, 0), ErrorCode::kInvalidArgument,
                 "config.json: less is -1, but must be between 0 and 1000000");
  expect_refused(json.small_integer("more"), ErrorCode::kInvalidArgument,
                 "config.json: more is 1000001, but must be between 1 and 1000000");
  EXPECT_FALSE(json.small_integer("wrap").ok()) << "it must not become 1 as an int";
  // A default is no better than what a file says.
  EXPECT_FALSE(json.small_integer("absent", 0).ok());
}

TEST(JsonObject, NumbersAreFinite) {
  const Parsed parsed(
      R"({"whole": 3, "large": 18446744073709551615, "small": 1e-300, "text": "1", "flag": false,
          "list": [1]})");
  const JsonObject json = parsed.json();
  EXPECT_EQ(json.number("whole").value(), 3.0);
  EXPECT_EQ(json.number("large").value(), 0x1p64);
  EXPECT_EQ(json.number("small").value(), 1e-300);
  expect_refused(json.number("text"), ErrorCode::kInvalidArgument,
                 "config.json: text is \"1\", but must be a finite number");
  expect_refused(json.number("flag", 1), ErrorCode::kInvalidArgument,
                 "config.json: flag is false, but must be a finite number");
  expect_refused(json.number("list", 1), ErrorCode::kInvalidArgument,
                 "config.json: list is [1], but must be a finite number");
}

TEST(JsonObject, FlagsMayBeNumbers) {
  const Parsed parsed(
      R"({"on": 1, "off": 0, "float": 1.0, "true": true, "two": 2, "text": "true"})");
  const JsonObject json = parsed.json();
  EXPECT_TRUE(json.boolean("on", false).value());
  EXPECT_FALSE(json.boolean("off", true).value());
  EXPECT_TRUE(json.boolean("float", false).value());
  EXPECT_TRUE(json.boolean("true", false).value());
  expect_refused(json.boolean("two", false), ErrorCode::kInvalidArgument,
                 "config.json: two is 2, but must be true or false");
  expect_refused(json.boolean("text", false), ErrorCode::kInvalidArgument,
                 "config.json: text is \"true\", but must be true or false");
}

TEST(JsonObject, ListsAreOfOneKind) {
  const Parsed parsed(
      R"({"numbers": [1, 2.5, -3], "texts": ["a", ""], "mixed": [1, "a"], "none": [], "one": 1,
          "gap": [1, null], "object": {}})");
  const JsonObject json = parsed.json();
  EXPECT_EQ(json.numbers("numbers").value(), (std::vector<double>{1, 2.5, -3}));
  EXPECT_EQ(json.texts("texts").value(), (std::vector<std::string>{"a", ""}));
  EXPECT_TRUE(json.numbers("none").value().empty());
  EXPECT_TRUE(json.texts("none").value().empty());
  for (const std::string_view key : {"mixed", "one", "gap", "texts", "object"}) {
    EXPECT_EQ(json.numbers(key).error().code, ErrorCode::kInvalidArgument) << key;
  }
  for (const std::string_view key : {"mixed", "one", "gap", "numbers", "object"}) {
    EXPECT_EQ(json.texts(key).error().code, ErrorCode::kInvalidArgument) << key;
  }
  expect_refused(json.numbers("mixed"), ErrorCode::kInvalidArgument,
                 "config.json: mixed is [1,\"a\"], but must be a list of numbers");
  expect_refused(json.texts("one"), ErrorCode::kInvalidArgument,
                 "config.json: one is 1, but must be a list of strings");
  expect_refused(json.text("none"), ErrorCode::kInvalidArgument,
                 "config.json: none is [], but must be a string");
  expect_refused(json.object("none"), ErrorCode::kInvalidArgument,
                 "config.json: none is [], but must be an object");
  EXPECT_TRUE(json.object("object").value()->empty());
}

// The settings of a wrapper count where the text configuration has none.
TEST(JsonObject, TheInnerObjectIsLookedAtFirst) {
  const Parsed parsed(
      R"({"both": 1, "outer": 2, "off": 3, "text": {"both": 10, "inner": 20, "off": null}})");
  const JsonObject json(parsed.object().at("text").get_object(), &parsed.object());
  EXPECT_EQ(json.integer("both").value(), 10);
  EXPECT_EQ(json.integer("inner").value(), 20);
  EXPECT_EQ(json.integer("outer").value(), 2);
  EXPECT_EQ(json.integer("off", 4).value(), 4) << "null is said, so the wrapper is not asked";
  EXPECT_EQ(json.keys(), (std::vector<std::string_view>{"both", "inner", "off"}));
}

TEST(JsonObject, OtherNamesAndNestedObjectsCountAsTheFilesOwn) {
  static constexpr KeyAlias kAliases[] = {{"hidden_size", "n_embd"}, {"hidden_size", "d_model"}};
  const KeyNames names{.aliases = kAliases, .nested = {"attn_config"}};
  const auto hidden_of = [&](std::string_view text) {
    const Parsed parsed(text);
    return parsed.json().with_names(names).integer("hidden_size", -1).value();
  };
  EXPECT_EQ(hidden_of(R"({"n_embd": 3})"), 3);
  EXPECT_EQ(hidden_of(R"({"d_model": 4})"), 4);
  EXPECT_EQ(hidden_of(R"({"d_model": 4, "n_embd": 3})"), 3) << "the first alias";
  EXPECT_EQ(hidden_of(R"({"d_model": 4, "hidden_size": 5})"), 5) << "the name itself";
  EXPECT_EQ(hidden_of(R"({"attn_config": {"n_embd": 6}})"), 6);
  EXPECT_EQ(hidden_of(R"({"attn_config": {"n_embd": 6}, "n_embd": 3})"), 3);
  EXPECT_EQ(hidden_of(R"({"attn_config": {"hidden_size": 7}, "n_embd": 3})"), 7);
  EXPECT_EQ(hidden_of(R"({"attn_config": 8})"), -1) << "no object, so nothing is in it";
}

}  // namespace json_object_test
}  // namespace headrace
