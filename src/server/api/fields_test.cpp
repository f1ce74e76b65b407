#include "server/api/fields.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>

#include "server/api/json.h"

namespace headrace {
namespace fields_test {

boost::json::object object_of(std::string_view text) { return parse_body(text)->get_object(); }

template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().param + ": " + result.error().message;
}

TEST(Fields, AbsentAndNullAreNotGiven) {
  for (const char* text : {"{}", R"({"x":null})"}) {
    const boost::json::object object = object_of(text);
    const Fields fields(object);
    EXPECT_EQ(fields.find("x"), nullptr);
    EXPECT_FALSE(fields.number("x", 0, 1)->has_value());
    EXPECT_FALSE(fields.integer("x", 0, 1)->has_value());
    EXPECT_FALSE(fields.boolean("x")->has_value());
    EXPECT_FALSE(fields.text("x")->has_value());
    EXPECT_EQ(*fields.array("x"), nullptr);
    EXPECT_EQ(*fields.object("x"), nullptr);
  }
}

TEST(Fields, GivesWhatIsThere) {
  const boost::json::object object =
      object_of(R"({"n":1.5,"i":4.0,"b":false,"t":"text","a":[1],"o":{"k":2}})");
  const Fields fields(object);
  EXPECT_EQ(fields.number("n", 0, 2).value(), 1.5);
  EXPECT_EQ(fields.number("i", 0, 9).value(), 4.0);
  EXPECT_EQ(fields.integer("i", 0, 9).value(), 4);
  EXPECT_EQ(fields.boolean("b").value(), false);
  EXPECT_EQ(fields.text("t").value(), "text");
  EXPECT_EQ(fields.array("a").value()->size(), 1u);
  EXPECT_TRUE(fields.object("o").value()->contains("k"));
}

TEST(Fields, SaysWhatWasFoundAndWhatIsNeeded) {
  const boost::json::object object =
      object_of(R"({"s":"a","f":1.5,"n":3,"big":1e300,"b":1,"t":[1,2],"a":{},"o":true})");
  const Fields fields(object, "outer.");
  EXPECT_EQ(message_of(fields.number("n", 0, 2)),
            "outer.n: outer.n is 3, but it must be a number from 0 to 2");
  EXPECT_EQ(message_of(fields.number("s", 0, 2)),
            "outer.s: outer.s is \"a\", but it must be a number from 0 to 2");
  EXPECT_EQ(message_of(fields.integer("f", 0, 2)),
            "outer.f: outer.f is 1.5, but it must be a whole number from 0 to 2");
  EXPECT_EQ(message_of(fields.integer("big", 0, 2)),
            "outer.big: outer.big is 1e+300, but it must be a whole number from 0 to 2");
  EXPECT_EQ(message_of(fields.boolean("b")), "outer.b: outer.b is 1, but it must be true or false");
  EXPECT_EQ(message_of(fields.text("t")),
            "outer.t: outer.t is a list of 2, but it must be a string");
  EXPECT_EQ(message_of(fields.array("a")), "outer.a: outer.a is an object, but it must be a list");
  EXPECT_EQ(message_of(fields.object("o")), "outer.o: outer.o is true, but it must be an object");
}

TEST(Fields, LongValuesAreShownByTypeAndSize) {
  EXPECT_EQ(show_value(boost::json::string(std::string(40, 'x'))),
            "\"" + std::string(40, 'x') + "\"");
  EXPECT_EQ(show_value(boost::json::string(std::string(41, 'x'))), "a string of 41 bytes");
  EXPECT_EQ(show_value(boost::json::array(1000)), "a list of 1000");
  EXPECT_EQ(show_value(0.1), "0.1");
  EXPECT_EQ(show_value(nullptr), "null");
}

TEST(Fields, WholeNumbersAreThoseThatADoubleHoldsExactly) {
  EXPECT_EQ(whole_number(-3), -3);
  EXPECT_EQ(whole_number(4.0), 4);
  EXPECT_EQ(whole_number(4.5), std::nullopt);
  EXPECT_EQ(whole_number(0x1p53), std::nullopt);
  EXPECT_EQ(whole_number(0x1p53 - 1), (int64_t{1} << 53) - 1);
  EXPECT_EQ(whole_number(uint64_t{1} << 63), std::nullopt);
  EXPECT_EQ(whole_number("4"), std::nullopt);
}

TEST(Json, TypesHaveNames) {
  const std::pair<const char*, const char*> kTypes[] = {
      {"null", "null"},      {"true", "a boolean"}, {"1", "an integer"}, {"1.5", "a number"},
      {"\"a\"", "a string"}, {"[]", "a list"},      {"{}", "an object"},
  };
  for (const auto& [text, name] : kTypes) EXPECT_EQ(type_name(*parse_body(text)), name) << text;
}

}  // namespace fields_test
}  // namespace headrace
