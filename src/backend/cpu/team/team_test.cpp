#include "backend/cpu/team/team.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <vector>

namespace headrace::cpu {
namespace {

std::vector<int> cores(int count) {
  std::vector<int> list;
  for (int core = 0; core < count; ++core) list.push_back(core);
  return list;
}

class TeamTest : public testing::TestWithParam<std::pair<int, int>> {  // threads, cores
 protected:
  Team team_{GetParam().first, cores(GetParam().second)};
};

TEST_P(TeamTest, EachItemRunsOnce) {
  for (const int64_t num_items : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_items));
    team_.run(num_items, [&](int64_t item, int) { ++runs[static_cast<size_t>(item)]; });
    for (const auto& count : runs) ASSERT_EQ(count, 1) << num_items << " items";
  }
}

TEST_P(TeamTest, NoMemberHoldsTwoItems) {
  std::vector<std::atomic<int>> busy(static_cast<size_t>(team_.num_threads()));
  std::atomic<int> num_errors = 0;
  const auto work = [&](int64_t, int member) {
    if (busy.at(static_cast<size_t>(member)).fetch_add(1) != 0) ++num_errors;
    busy[static_cast<size_t>(member)].fetch_sub(1);
  };
  for (int i = 0; i < 200; ++i) team_.run(Phase{5, work}, Phase{3, work});
  EXPECT_EQ(num_errors, 0);
}

// Items see everything that the phases before have written.
TEST_P(TeamTest, PhasesRunInOrder) {
  constexpr std::array<int64_t, 4> kItems = {7, 1, 0, 24};
  std::array<std::vector<int64_t>, 4> written;
  for (size_t p = 0; p < 4; ++p) written[p].resize(static_cast<size_t>(kItems[p]));
  std::atomic<int> num_errors = 0;
  int64_t round = 0;
  const auto phase = [&](size_t p) {
    return [&, p](int64_t item, int) {
      for (size_t before = 0; before < p; ++before) {
        for (const int64_t value : written[before]) num_errors += value == round ? 0 : 1;
      }
      written[p][static_cast<size_t>(item)] = round;
    };
  };
  for (round = 1; round <= 2000; ++round) {
    team_.run(Phase{kItems[0], phase(0)}, Phase{kItems[1], phase(1)}, Phase{kItems[2], phase(2)},
              Phase{kItems[3], phase(3)});
    for (const auto& values : written) {
      for (const int64_t value : values) ASSERT_EQ(value, round);
    }
  }
  EXPECT_EQ(num_errors, 0);
}

TEST_P(TeamTest, JoinsAreCounted) {
  const auto nothing = [](int64_t, int) {};
  team_.run(10, nothing);
  team_.run(Phase{3, nothing}, Phase{1, nothing}, Phase{4, nothing});
  team_.run(0, nothing);
  EXPECT_EQ(team_.num_joins(), 2);
}

// Jobs of every gap, so that members are met spinning, falling asleep and asleep.
TEST_P(TeamTest, WakesFromSleep) {
  int64_t sum = 0;
  for (int gap_us : {0, 50, 150, 190, 200, 210, 300, 1000}) {
    for (int i = 0; i < 10; ++i) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(gap_us);
      while (std::chrono::steady_clock::now() < until) {
      }
      std::atomic<int64_t> local = 0;
      team_.run(20, [&](int64_t item, int) { local += item; });
      sum += local;
    }
  }
  EXPECT_EQ(sum, 8 * 10 * 190);
}

// Teams end while their members still look for items of the last job, spin or fall asleep.
TEST_P(TeamTest, EndsWhateverItsMembersDo) {
  const auto [num_threads, num_cores] = GetParam();
  std::atomic<int64_t> num_items = 0;
  for (int i = 0; i < 300; ++i) {
    Team team(num_threads, cores(num_cores));
    for (int job = 0; job < i % 4; ++job) team.run(3, [&](int64_t, int) { ++num_items; });
  }
  EXPECT_EQ(num_items, 75 * 3 * (0 + 1 + 2 + 3));
}

INSTANTIATE_TEST_SUITE_P(Sizes, TeamTest,
                         testing::Values(std::pair{1, 1}, std::pair{2, 2}, std::pair{4, 1},
                                         std::pair{7, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.first) + "ThreadsOn" +
                                  std::to_string(test.param.second);
                         });

// Who holds an item delays that item and nothing else: the rest is done by the others.
TEST(TeamOfTwoTest, OthersTakeWhatASlowMemberLeaves) {
  Team team(2, cores(2));
  std::atomic<int> num_done = 0;
  bool in_time = false;
  team.run(50, [&](int64_t item, int) {
    if (item == 0) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (num_done < 49 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      in_time = num_done == 49;
      return;
    }
    ++num_done;
  });
  EXPECT_TRUE(in_time);
}

}  // namespace
}  // namespace headrace::cpu
