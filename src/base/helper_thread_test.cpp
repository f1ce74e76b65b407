#include "base/helper_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace headrace {
namespace helper_thread_test {

TEST(HelperThread, DoesEachPieceOnceAndInOrder) {
  int in = 0, out = 0;  // no atomics: start and finish are the order
  HelperThread helper([&] { out = out * 3 + in; });
  int expected = 0;
  for (int i = 1; i <= 2000; ++i) {
    in = i % 7;
    expected = (expected * 3 + in) % 1'000'003;
    helper.start();
    if (i % 3 == 0) std::this_thread::yield();
    helper.finish();
    out %= 1'000'003;
    ASSERT_EQ(out, expected);
  }
}

TEST(HelperThread, WorksWhileItsOwnerGoesOn) {
  std::atomic<bool> begun{false}, owner_went_on{false};
  HelperThread helper([&] {
    begun = true;
    while (!owner_went_on) std::this_thread::yield();
  });
  helper.start();
  while (!begun) std::this_thread::yield();  // not reached if start() did the work
  owner_went_on = true;
  helper.finish();
}

// Who has seen that it is done may look at what it wrote, before finish().
TEST(HelperThread, IsDoneWhenAllIsWritten) {
  int written = 0;  // no atomic
  HelperThread helper([&] { ++written; });
  for (int i = 1; i <= 500; ++i) {
    EXPECT_FALSE(helper.is_done());
    helper.start();
    while (!helper.is_done()) std::this_thread::yield();
    ASSERT_EQ(written, i);
    helper.finish();
  }
}

// Whoever comes first does it: an owner that has nothing else to do does not wait for a switch.
TEST(HelperThread, TheOwnerDoesWhatWasNotBegun) {
  const auto owner = std::this_thread::get_id();
  int num_by_owner = 0;
  HelperThread helper([&] { num_by_owner += std::this_thread::get_id() == owner ? 1 : 0; });
  for (int i = 0; i < 1000; ++i) {
    helper.start();
    helper.finish();
  }
  EXPECT_GT(num_by_owner, 0);
}

TEST(HelperThread, EndsWithoutWork) {
  HelperThread idle([] {});
}

TEST(HelperThread, WorkIsStartedAndFinishedInTurn) {
  HelperThread helper([] {});
  EXPECT_DEATH(helper.finish(), "no work was started");
  helper.start();
  helper.finish();
  EXPECT_DEATH(helper.finish(), "no work was started");
}

}  // namespace helper_thread_test
}  // namespace headrace
