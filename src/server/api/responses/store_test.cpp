#include "server/api/responses/store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace {
namespace responses_store_test {

using namespace std::chrono_literals;

TimeUs test_time = 0;
TimeUs test_now() { return test_time; }

StoredResponse response_of(std::string id, uint64_t owner = 0, size_t body_bytes = 100) {
  return {std::move(id), owner, std::string(body_bytes, 'x'), "[]", "[]"};
}

class ResponseStoreTest : public testing::Test {
 protected:
  void SetUp() override { test_time = 1; }
};

TEST_F(ResponseStoreTest, IsReadAndErasedByItsOwnerOnly) {
  ResponseStore store(100'000, 60s, test_now);
  store.put(response_of("resp_1", 7));
  EXPECT_EQ(store.find("resp_1", 8), nullptr);
  EXPECT_FALSE(store.erase("resp_1", 8));
  ASSERT_NE(store.find("resp_1", 7), nullptr);
  EXPECT_EQ(store.find("resp_1", 7)->id, "resp_1");
  EXPECT_EQ(store.find("resp_2", 7), nullptr);
  EXPECT_TRUE(store.erase("resp_1", 7));
  EXPECT_FALSE(store.erase("resp_1", 7));
  EXPECT_EQ(store.bytes(), 0u);
}

TEST_F(ResponseStoreTest, GoesWhenItsTimeIsOver) {
  ResponseStore store(100'000, 60s, test_now);
  store.put(response_of("resp_1"));
  test_time = 59'000'000;
  store.put(response_of("resp_2"));
  ASSERT_NE(store.find("resp_1", 0), nullptr);  // being read does not make it stay
  test_time = 60'000'001;
  EXPECT_EQ(store.find("resp_1", 0), nullptr);
  EXPECT_NE(store.find("resp_2", 0), nullptr);
  test_time = 200'000'000;
  EXPECT_EQ(store.find("resp_2", 0), nullptr);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST_F(ResponseStoreTest, TheLongestUnusedMakesRoom) {
  const size_t each = response_of("resp_1").bytes();
  ResponseStore store(3 * each, 60s, test_now);
  for (const char* id : {"resp_1", "resp_2", "resp_3"}) store.put(response_of(id));
  EXPECT_EQ(store.bytes(), 3 * each);
  ASSERT_NE(store.find("resp_1", 0), nullptr);
  store.put(response_of("resp_4"));
  EXPECT_NE(store.find("resp_1", 0), nullptr);
  EXPECT_EQ(store.find("resp_2", 0), nullptr);
  EXPECT_LE(store.bytes(), 3 * each);
  store.put(response_of("resp_5", 0, 4 * each));  // larger than the store
  EXPECT_EQ(store.find("resp_5", 0), nullptr);
  EXPECT_NE(store.find("resp_4", 0), nullptr);
}

TEST_F(ResponseStoreTest, WhoReadsKeepsWhatIsDropped) {
  ResponseStore store(response_of("resp_1").bytes(), 60s, test_now);
  store.put(response_of("resp_1"));
  const auto kept = store.find("resp_1", 0);
  store.put(response_of("resp_2"));
  EXPECT_EQ(store.find("resp_1", 0), nullptr);
  EXPECT_EQ(kept->body.size(), 100u);
}

TEST_F(ResponseStoreTest, WithoutRoomNothingIsKept) {
  ResponseStore store(0, 60s, test_now);
  store.put(response_of("resp_1"));
  EXPECT_EQ(store.find("resp_1", 0), nullptr);
}

TEST_F(ResponseStoreTest, ManyThreadsStayWithinTheLimit) {
  ResponseStore store(5'000, 60s, test_now);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string id = "resp_" + std::to_string(t) + "_" + std::to_string(i);
        store.put(response_of(id));
        store.find(id, 0);
        if (i % 3 == 0) store.erase(id, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store.bytes(), 5'000u);
  EXPECT_GT(store.bytes(), 0u);
}

}  // namespace responses_store_test
}  // namespace headrace
