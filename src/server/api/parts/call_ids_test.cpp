#include "server/api/parts/call_ids.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace headrace {
namespace call_ids_test {

std::string fitted(std::string_view messages, CallIds wanted) {
  boost::json::value value = boost::json::parse(messages);
  fit_call_ids(value.get_array(), wanted);
  return boost::json::serialize(value);
}

constexpr std::string_view kTurn =
    R"([{"tool_calls":[{"id":"call_abc","function":{"name":"f"}},)"
    R"({"id":"123456789","function":{"name":"g"}}]},{"tool_call_id":"123456789"},)"
    R"({"tool_call_id":"call_abc"},{"tool_calls":[{"function":{"name":"f"}}]}])";

TEST(CallIds, AreLeftAloneWhereAnyWillDo) {
  EXPECT_EQ(fitted(kTurn, CallIds::kAny), boost::json::serialize(boost::json::parse(kTurn)));
}

TEST(CallIds, HaveNineLettersAndDigits) {
  const auto turn = boost::json::parse(fitted(kTurn, CallIds::kNineCharacters)).as_array();
  const auto first = turn.at(0).at("tool_calls").at(0).at("id").as_string();
  EXPECT_EQ(first.size(), 9u);
  EXPECT_NE(first, "call_abc");
  EXPECT_EQ(turn.at(0).at("tool_calls").at(1).at("id").as_string(), "123456789");
  EXPECT_EQ(turn.at(1).at("tool_call_id").as_string(), "123456789");
  EXPECT_EQ(turn.at(2).at("tool_call_id").as_string(), first);
  EXPECT_EQ(turn.at(3).at("tool_calls").at(0).at("id").as_string().size(), 9u);
}

TEST(CallIds, AreCountedThroughTheConversation) {
  EXPECT_EQ(fitted(kTurn, CallIds::kCounted),
            R"([{"tool_calls":[{"id":"functions.f:0","function":{"name":"f"}},)"
            R"({"id":"functions.g:1","function":{"name":"g"}}]},{"tool_call_id":"functions.g:1"},)"
            R"({"tool_call_id":"functions.f:0"},{"tool_calls":[{"function":{"name":"f"},)"
            R"("id":"functions.f:2"}]}])");
}

TEST(CallIds, TheTemplateSaysWhichItWants) {
  EXPECT_EQ(call_ids_of("{% if id|length != 9 %}", false), CallIds::kNineCharacters);
  EXPECT_EQ(call_ids_of("{{ id }}", false), CallIds::kAny);
  EXPECT_EQ(call_ids_of("{{ id }}", true), CallIds::kCounted);
}

}  // namespace call_ids_test
}  // namespace headrace
