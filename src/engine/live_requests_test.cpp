#include "engine/live_requests.h"

#include <gtest/gtest.h>

namespace headrace {
namespace live_requests_test {

RequestSize places(size_t count) { return {count, 1000, size_t{100} << 20}; }

TEST(LiveRequests, IdsAreNeverUsedTwice) {
  LiveRequests live(places(2));
  const RequestId first = live.accept(0, {}).value();
  live.remove(first);
  const RequestId second = live.accept(0, {}).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(live.size(), 1u);
}

// A client may hold three times as many places as are free; what ends is free again.
TEST(LiveRequests, PlacesAreKeptForOtherClients) {
  LiveRequests live(places(8));
  std::vector<RequestId> held;
  for (auto id = live.accept(7, {}); id.ok(); id = live.accept(7, {})) held.push_back(*id);
  EXPECT_EQ(held.size(), 6u);
  const Result<RequestId> more = live.accept(7, {});
  EXPECT_EQ(more.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(more.error().message,
            "6 requests of this client are running or waiting; the 2 places that are free are kept "
            "for others");
  EXPECT_EQ(more.error().hint, "try again later");
  EXPECT_TRUE(live.accept(8, {}).ok());
  EXPECT_TRUE(live.accept(9, {}).ok());
  EXPECT_EQ(live.accept(10, {}).error().message, "8 requests are running or waiting, the limit");
  for (const RequestId id : held) live.remove(id);
  EXPECT_TRUE(live.accept(7, {}).ok());
}

// Long prompts fill the room that few requests of them take; a client alone fills three quarters.
TEST(LiveRequests, TokensAreLimitedAsPlacesAre) {
  LiveRequests live(places(100));
  const RequestSize large{.prompt_tokens = 250};
  const RequestId first = live.accept(7, large).value();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(live.accept(7, large).ok()) << i;
  EXPECT_EQ(live.accept(7, large).error().message,
            "750 tokens of prompts of this client are running or waiting; the 250 tokens that are "
            "free are kept for others");
  EXPECT_TRUE(live.accept(8, large).ok());
  const Error full = live.accept(9, large).error();
  EXPECT_EQ(full.code, ErrorCode::kExhausted);
  EXPECT_EQ(
      full.message,
      "1000 tokens of prompts are running or waiting, the limit is 1000, and this request has "
      "250");
  live.remove(first);
  EXPECT_TRUE(live.accept(9, large).ok());
}

TEST(LiveRequests, MemoryIsLimited) {
  LiveRequests live(places(100));
  const RequestSize large{.bytes = size_t{60} << 20};
  EXPECT_TRUE(live.accept(7, large).ok());
  EXPECT_EQ(live.accept(8, large).error().message,
            "60 MiB of requests are running or waiting, the limit is 100, and this request has 60");
}

// What could never fit beside another is taken alone.
TEST(LiveRequests, OneAloneIsAlwaysTaken) {
  LiveRequests live(places(100));
  const RequestSize huge{.prompt_tokens = 5000, .bytes = size_t{1} << 30};
  const RequestId id = live.accept(7, huge).value();
  EXPECT_FALSE(live.accept(8, huge).ok());
  live.remove(id);
  EXPECT_TRUE(live.accept(8, huge).ok());
}

TEST(LiveRequests, ARequestIsAsLargeAsWhatItHolds) {
  Request request;
  request.prompt_ids.resize(100);
  EXPECT_EQ(size_of(request).places, 1u);
  EXPECT_EQ(size_of(request).prompt_tokens, 100u);
  const size_t plain = size_of(request).bytes;
  EXPECT_GE(plain, 400u);
  request.num_prompt_logprobs = 20;
  EXPECT_GE(size_of(request).bytes, plain + 100 * 20 * 8);
}

TEST(LiveRequests, EachRequestIsEndedOnceByTheFirstWhoAsks) {
  LiveRequests live(places(4));
  const RequestId a = live.accept(0, {}).value(), b = live.accept(0, {}).value();
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
  LiveRequests live(places(4));
  const RequestId id = live.accept(0, {}).value();
  live.close();
  EXPECT_EQ(live.accept(0, {}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(live.accept(0, {}).error().message, "the engine is shutting down");
  EXPECT_FALSE(live.empty());
  live.remove(id);
  EXPECT_TRUE(live.empty());
}

}  // namespace live_requests_test
}  // namespace headrace
