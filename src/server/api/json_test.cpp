#include "server/api/json.h"

#include <gtest/gtest.h>

namespace headrace {
namespace json_test {

TEST(ParseBody, SaysWhatIsWrongAndWhere) {
  EXPECT_TRUE(parse_body(" {\"a\":1} \n").ok());
  const auto message = [](std::string_view text) {
    const auto value = parse_body(text);
    return value.ok() ? std::string("accepted") : value.error().message;
  };
  EXPECT_EQ(message("{\"a\":1"), "the body is not valid JSON: incomplete JSON at byte 6");
  EXPECT_TRUE(message("{\"a\":NaN}").starts_with("the body is not valid JSON: syntax error"));
  EXPECT_TRUE(message("{\"a\":Infinity}").starts_with("the body is not valid JSON: syntax error"));
  EXPECT_TRUE(message("{\"a\":1} x").starts_with("the body is not valid JSON: extra data"));
  EXPECT_TRUE(message("{'a':1}").starts_with("the body is not valid JSON"));
  EXPECT_TRUE(message("").starts_with("the body is not valid JSON: incomplete JSON"));
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_TRUE(message(deep).starts_with("the body is not valid JSON: too deep"));
  EXPECT_EQ(message(std::string(64, '[') + std::string(64, ']')), "accepted");
  EXPECT_NE(message(std::string(1'000'000, '[')), "accepted");
}

// As they come from clients that cut texts anywhere, or write JSON by hand.
TEST(ParseBody, NamesFaultsOfText) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(["\ud83d"])", "half of a surrogate pair at byte 2"},
      {R"(["a\ud83d b"])", "half of a surrogate pair at byte 3"},
      {R"(["\uD83D\n"])", "half of a surrogate pair at byte 2"},
      {R"(["\ud83d\u0041"])", "half of a surrogate pair at byte 2"},
      {R"(["\ude00"])", "half of a surrogate pair at byte 2"},
      {"[\"a\xFF\"]", "a character that is not whole UTF-8 at byte 3"},
      {"[\"a\xE2\x82\"]", "a character that is not whole UTF-8 at byte 3"},
      {"[\"a\xED\xA0\xBD\"]", "a character that is not whole UTF-8 at byte 3"},
      {"[\"a\nb\"]", "a control character that is not escaped at byte 3"},
      {"\xEF\xBB\xBF[]", "a byte order mark at byte 0"},
      {"[\xE2\x80\x9C\x61\xE2\x80\x9D]", "syntax error at byte 1"},  // quotes of a typesetter
      {R"(["\ud83d\ude00", a])", "syntax error at byte 17"},
      {"[\"\\ud83d\\ude00\n\"]", "a control character that is not escaped at byte 14"},
      {"[\"\\\\ud83d\n\"]", "a control character that is not escaped at byte 9"},
  };
  for (const auto& [text, fault] : cases) {
    const auto value = parse_body(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().message, fmt::format("the body is not valid JSON: {}", fault));
  }
}

TEST(ParseBody, AnObjectHasABoundedNumberOfKeys) {
  const auto object_of = [](int num_keys) {
    std::string text = "{\"inner\":[{";
    for (int i = 0; i < num_keys; ++i) text += fmt::format("{}\"{}\":0", i > 0 ? "," : "", i);
    return parse_body(text + "}]}");
  };
  EXPECT_TRUE(object_of(9'999).ok());
  EXPECT_TRUE(object_of(10'000).ok());
  const auto over = object_of(10'001);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(over.error().message, "an object of the body has more than 10000 keys");
}

TEST(ParseBody, NumbersThatNoDoubleHoldsAreRefused) {
  for (const char* text : {"15e505", "{\"temperature\": 1e999}", "[1, [2, -1e400]]"}) {
    const auto value = parse_body(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(value.error().message,
              "the body holds a number beyond the range of a double (about 1.8e308)");
  }
  EXPECT_TRUE(parse_body("[1e308, -1.7e308, 1e-400]").ok());
}

TEST(ParseBody, AKeyThatIsGivenTwiceIsNamedAtEveryDepth) {
  const auto error = [](std::string_view text) {
    const auto value = parse_body(text);
    return value.ok() ? Error{} : value.error();
  };
  for (const char* text : {R"({"a":1,"a":1})", R"({"a":{},"b":2,"a":null})",
                           R"({"x":{"a":1,"b":{"c":0},"a":2}})", R"([{"b":1},{"a":1,"a":2}])",
                           R"({"\u0061":1,"a":2})", R"({"tools":[{"f":{"a":[],"a":[]}}]})"}) {
    EXPECT_EQ(
        error(text).message,
        "the body gives the key \"a\" more than once in one object, but each may be given once")
        << text;
    EXPECT_EQ(error(text).param, "a");
    EXPECT_EQ(error(text).code, ErrorCode::kInvalidArgument);
  }
  // Equal keys of different objects, and keys that differ, are fine.
  EXPECT_TRUE(parse_body(R"({"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}],"A":0,"a ":1,"":2})").ok());
  const std::string long_key(100'000, 'k');
  EXPECT_EQ(error(fmt::format(R"({{"{0}":1,"{0}":2}})", long_key)).param.size(), 64u);
  std::string many = "{";
  for (int i = 0; i < 9'000; ++i) many += fmt::format(R"("k{}":{},)", i * 7919 % 9'000, i);
  EXPECT_TRUE(parse_body(many + R"("z":1})").ok());
  EXPECT_EQ(error(many + R"("k77":1})").param, "k77");
}

TEST(JsonWriter, WritesWhatReadsBack) {
  JsonWriter json;
  json.open_object().text("a\"b", "\x01\n\\\xFFz").integer("i", -5).number("d", 0.1);
  json.key("f").number(0.1f).key("inf").number(1e308 * 10).boolean("t", true);
  json.key("list").open_array().integer(1).text("x").open_object().close_object().null();
  json.close_array().close_object();
  EXPECT_EQ(json.str(),
            "{\"a\\\"b\":\"\\u0001\\n\\\\\xEF\xBF\xBDz\",\"i\":-5,\"d\":0.1,\"f\":0.1,\"inf\":null,"
            "\"t\":true,\"list\":[1,\"x\",{},null]}");
  EXPECT_TRUE(parse_body(json.str()).ok());
}

TEST(Utf8, KnowsWhatIsValid) {
  for (const std::string_view good : {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    EXPECT_TRUE(is_valid_utf8(good));
    EXPECT_EQ(valid_utf8(good), good);
  }
  for (const std::string_view bad : {"\xC3", "\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                     "\xE2\x82", "\xFF", "\xE0\x80\x80"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
    EXPECT_TRUE(is_valid_utf8(valid_utf8(bad)));
  }
}

TEST(Json, AnObjectsTextIsOneLineOrEmpty) {
  EXPECT_EQ(object_text("{\n  \"a\": 1,\n  \"b\": [2, \"x\\ny\"]\n}"), R"({"a":1,"b":[2,"x\ny"]})");
  for (const char* text : {"", "{", "{\"a\":", "[1]", "7", "null", "{} x"}) {
    EXPECT_EQ(object_text(text), "{}") << text;
  }
}

}  // namespace json_test
}  // namespace headrace
