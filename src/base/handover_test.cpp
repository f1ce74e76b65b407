#include "base/handover.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace headrace {
namespace handover_test {

class Place final : public HandoverPlace {
 public:
  void take(std::vector<std::function<void()>> tasks) override {
    ++num_takes;
    for (const auto& task : tasks) task();
  }
  int num_takes = 0;
};

TEST(Handover, EachPlaceIsWokenOnceWithAllInOrder) {
  const auto first = std::make_shared<Place>();
  const auto second = std::make_shared<Place>();
  std::string said;
  {
    Handover handover;
    ASSERT_EQ(Handover::current(), &handover);
    handover.add(first, [&] { said += 'a'; });
    handover.add(second, [&] { said += 'x'; });
    handover.add(first, [&] { said += 'b'; });
    EXPECT_EQ(said, "");
    EXPECT_EQ(handover.finish(), 2);
    EXPECT_EQ(said, "abx");
    EXPECT_EQ(handover.finish(), 0);
    handover.add(second, [&] { said += 'y'; });
  }
  EXPECT_EQ(said, "abxy");  // what is left goes at the end
  EXPECT_EQ(first->num_takes, 1);
  EXPECT_EQ(second->num_takes, 2);
  EXPECT_EQ(Handover::current(), nullptr);
}

TEST(Handover, IsOfItsThreadAndTheInnermostOne) {
  Handover outer;
  std::thread([] { EXPECT_EQ(Handover::current(), nullptr); }).join();
  {
    Handover inner;
    EXPECT_EQ(Handover::current(), &inner);
  }
  EXPECT_EQ(Handover::current(), &outer);
}

TEST(Handover, WhatATaskPostsMeanwhileGoesWithTheNext) {
  const auto place = std::make_shared<Place>();
  int num_run = 0;
  Handover handover;
  handover.add(place, [&] {
    ++num_run;
    handover.add(place, [&] { ++num_run; });
  });
  EXPECT_EQ(handover.finish(), 1);
  EXPECT_EQ(num_run, 1);
  EXPECT_EQ(handover.finish(), 1);
  EXPECT_EQ(num_run, 2);
}

}  // namespace handover_test
}  // namespace headrace
