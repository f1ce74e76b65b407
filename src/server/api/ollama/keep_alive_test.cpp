#include "server/api/ollama/keep_alive.h"

#include <gtest/gtest.h>

namespace headrace {
namespace keep_alive_test {

using namespace std::chrono_literals;

TEST(KeepAlive, IsSecondsOrADuration) {
  EXPECT_EQ(keep_alive_of(300), 300s);
  EXPECT_EQ(keep_alive_of(0), 0s);
  EXPECT_EQ(keep_alive_of(0.5), 500ms);
  EXPECT_EQ(keep_alive_of("5m"), 5min);
  EXPECT_EQ(keep_alive_of("1h30m"), 90min);
  EXPECT_EQ(keep_alive_of("250ms"), 250ms);
  EXPECT_EQ(keep_alive_of("90"), 90s);
  EXPECT_EQ(keep_alive_of("0s"), 0s);
  EXPECT_EQ(keep_alive_of("1.5h"), 90min);
  EXPECT_EQ(keep_alive_of("2500us"), 2ms);
  EXPECT_EQ(keep_alive_of("3000000ns"), 3ms);
  EXPECT_EQ(keep_alive_of("2000\u00b5s"), 2ms);
}

TEST(KeepAlive, BelowZeroAndVeryLongIsForEver) {
  for (const boost::json::value& value :
       {boost::json::value(-1), boost::json::value("-1"), boost::json::value("-1m"),
        boost::json::value(1e300), boost::json::value("99999999h")}) {
    EXPECT_EQ(keep_alive_of(value), -1ms) << value;
  }
}

TEST(KeepAlive, AllElseIsNothing) {
  for (const boost::json::value& value :
       {boost::json::value("soon"), boost::json::value(""), boost::json::value("-"),
        boost::json::value("5x"), boost::json::value("--5"), boost::json::value("-+5"),
        boost::json::value("inf"), boost::json::value("nan"), boost::json::value("1e3"),
        boost::json::value("0x10"), boost::json::value("1h30"), boost::json::value("5 m"),
        boost::json::value("1.2.3s"), boost::json::value("."), boost::json::value("m"),
        boost::json::value(nullptr), boost::json::value(true),
        boost::json::value(boost::json::object{})}) {
    EXPECT_EQ(keep_alive_of(value), std::nullopt) << value;
  }
}

TEST(KeepAlive, OfABodyWhatIsNeitherIsNamed) {
  EXPECT_EQ(asked_keep_alive({}).value(), std::nullopt);
  EXPECT_EQ(asked_keep_alive({{"keep_alive", nullptr}}).value(), std::nullopt);
  EXPECT_EQ(asked_keep_alive({{"keep_alive", "5m"}}).value(), 5min);
  const auto refused = asked_keep_alive({{"keep_alive", "--5"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "keep_alive");
  EXPECT_TRUE(refused.error().message.starts_with("keep_alive is \"--5\", but it must be "));
}

}  // namespace keep_alive_test
}  // namespace headrace
