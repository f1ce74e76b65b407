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
        boost::json::value("5x"), boost::json::value("m"), boost::json::value(nullptr),
        boost::json::value(true), boost::json::value(boost::json::object{})}) {
    EXPECT_EQ(keep_alive_of(value), std::nullopt) << value;
  }
}

}  // namespace keep_alive_test
}  // namespace headrace
