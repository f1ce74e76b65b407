#include "server/api/wall_clock.h"

#include <gtest/gtest.h>

namespace headrace {
namespace wall_clock_test {

TEST(WallClock, WritesTimesAsRfc3339) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(rfc3339(1'767'323'045'000'000), "2026-01-02T03:04:05Z");
  EXPECT_EQ(rfc3339(1'767'323'045'000'120), "2026-01-02T03:04:05.000120Z");
}

TEST(WallClock, GoesOn) {
  const int64_t earlier = wall_clock_us();
  EXPECT_GT(earlier, 1'700'000'000'000'000);
  EXPECT_GE(wall_clock_us(), earlier);
  EXPECT_GE(unix_seconds(), earlier / 1'000'000);
}

}  // namespace wall_clock_test
}  // namespace headrace
