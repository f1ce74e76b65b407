#include "server/api/live_sessions.h"

#include <gtest/gtest.h>

namespace headrace {
namespace live_sessions_test {

TEST(LiveSessions, AreListedOldestFirstAndEndedByEitherId) {
  LiveSessions live;
  int ended_a = 0, ended_b = 0;
  const int a = 0, b = 0;  // any addresses
  live.add(&a, {"request-a", "answer-a", 20}, [&] { ++ended_a; });
  live.add(&b, {"request-b", "answer-b", 10}, [&] { ++ended_b; });
  ASSERT_EQ(live.list().size(), 2u);
  EXPECT_EQ(live.list()[0].request_id, "request-b");
  EXPECT_EQ(live.abort("request-a"), 1u);
  EXPECT_EQ(live.abort("answer-b"), 1u);
  EXPECT_EQ(live.abort("answer"), 0u);
  EXPECT_EQ(ended_a, 1);
  EXPECT_EQ(ended_b, 1);
  live.remove(&a);
  EXPECT_EQ(live.abort("request-a"), 0u);
  EXPECT_EQ(live.list().size(), 1u);
}

TEST(LiveSessions, OfOneRequestIdAllAreEnded) {
  LiveSessions live;
  int ended = 0;
  const int a = 0, b = 0;
  live.add(&a, {"same", "1", 0}, [&] {
    ++ended;
    live.remove(&a);  // as a session does that ends at once
  });
  live.add(&b, {"same", "2", 0}, [&] { ++ended; });
  EXPECT_EQ(live.abort("same"), 2u);
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(live.list().size(), 1u);
}

}  // namespace live_sessions_test
}  // namespace headrace
