#include "engine/live_requests.h"

#include <gtest/gtest.h>

namespace headrace {
namespace live_requests_test {

TEST(LiveRequests, IdsAreNeverUsedTwice) {
  LiveRequests live(2);
  const RequestId first = live.accept(0).value();
  live.remove(first);
  const RequestId second = live.accept(0).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(live.size(), 1u);
}

// A client may hold three times as many places as are free; what ends is free again.
TEST(LiveRequests, PlacesAreKeptForOtherClients) {
  LiveRequests live(8);
  std::vector<RequestId> held;
  for (auto id = live.accept(7); id.ok(); id = live.accept(7)) held.push_back(*id);
  EXPECT_EQ(held.size(), 6u);
  const Result<RequestId> more = live.accept(7);
  EXPECT_EQ(more.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(more.error().message,
            "6 requests of this client are running or waiting; the 2 places that are free are kept "
            "for others");
  EXPECT_EQ(more.error().hint, "try again later");
  EXPECT_TRUE(live.accept(8).ok());
  EXPECT_TRUE(live.accept(9).ok());
  EXPECT_EQ(live.accept(10).error().message, "8 requests are running or waiting, the limit");
  for (const RequestId id : held) live.remove(id);
  EXPECT_TRUE(live.accept(7).ok());
}

TEST(LiveRequests, EachRequestIsEndedOnceByTheFirstWhoAsks) {
  LiveRequests live(4);
  const RequestId a = live.accept(0).value(), b = live.accept(0).value();
  live.end(b, FinishReason::kStop);
  live.end(b, FinishReason::kCancelled);
  live.end(99, FinishReason::kCancelled);
  live.end_all(FinishReason::kCancelled);
  const std::vector<Ending> endings = live.take_endings();
  ASSERT_EQ(endings.size(), 2u);
  EXPECT_EQ(endings[0].id, b);
  EXPECT_EQ(endings[0].reason, FinishReason::kStop);
  EXPECT_EQ(endings[1].id, a);
  EXPECT_EQ(endings[1].reason, FinishReason::kCancelled);
  live.end_all(FinishReason::kStop);
  EXPECT_TRUE(live.take_endings().empty());
}

TEST(LiveRequests, ClosedTakesNothingMore) {
  LiveRequests live(4);
  const RequestId id = live.accept(0).value();
  live.close();
  EXPECT_EQ(live.accept(0).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(live.accept(0).error().message, "the engine is shutting down");
  EXPECT_FALSE(live.empty());
  live.remove(id);
  EXPECT_TRUE(live.empty());
}

}  // namespace live_requests_test
}  // namespace headrace
