#include "backend/cpu/team/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cpu/team/topology.h"

namespace headrace::cpu {
namespace team_test {

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

// In every phase each has even parts of the items, whose first it takes first; all wait until all
// have one. One job after another: what was taken in the last does not count.
TEST_P(TeamTest, MembersBeginWithTheirOwnShare) {
  const int num_members = team_.num_threads();
  for (int job = 0; job < 20; ++job) {
    for (const int64_t num_items : {num_members, 4 * num_members + 1, 1000}) {
      std::vector<int64_t> first(static_cast<size_t>(num_members), -1);
      std::atomic<int> num_waiting = 0;
      const auto nothing = [](int64_t, int) {};
      const auto wait_at_first = [&](int64_t item, int member) {
        int64_t& taken = first[static_cast<size_t>(member)];
        if (taken >= 0) return;
        taken = item;
        ++num_waiting;
        while (num_waiting < num_members) std::this_thread::yield();
      };
      team_.run(Phase{2, nothing}, Phase{num_items, wait_at_first});
      for (int member = 0; member < num_members; ++member) {
        EXPECT_EQ(first[static_cast<size_t>(member)], num_items * member / num_members)
            << num_items << " items, member " << member;
      }
    }
  }
}

// By the caller, in the first job that has work, when others may have its items.
TEST_P(TeamTest, CallsOnceBesideTheNextJob) {
  int num_calls = 0;
  const std::thread::id caller = std::this_thread::get_id();
  const auto call = [&] { num_calls += std::this_thread::get_id() == caller ? 1 : 100; };
  team_.call_beside(call);
  team_.run(0, [](int64_t, int) {});
  EXPECT_EQ(num_calls, 0);
  std::atomic<int> num_items = 0;
  for (int i = 0; i < 3; ++i) team_.run(5, [&](int64_t, int) { ++num_items; });
  EXPECT_EQ(num_calls, 1);
  team_.call_beside(call);
  team_.call_beside(nullptr);
  team_.run(1, [&](int64_t, int) { ++num_items; });
  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(num_items, 16);
}

// The others do not wait for what the caller does beside its job.
TEST(Team, OthersWorkWhileTheCallerIsBusyBeside) {
  Team team(2, cores(2));
  std::atomic<bool> has_run = false;
  bool was_seen = false;
  team.call_beside([&] {
    const TimeUs patience = now_us() + 5'000'000;
    while (!has_run && now_us() < patience) std::this_thread::yield();
    was_seen = has_run;
  });
  team.run(8, [&](int64_t, int member) { has_run = has_run || member == 1; });
  EXPECT_TRUE(was_seen);
}

// By the caller, while others have items; never in another job than the next one with work.
TEST_P(TeamTest, CallsOnceNearTheEndOfTheNextJob) {
  const std::thread::id caller = std::this_thread::get_id();
  const int64_t few = team_.num_threads();
  std::atomic<int64_t> num_finished = 0;
  int num_calls = 0;
  constexpr int64_t kItems = 64;
  for (int round = 0; round < 500; ++round) {
    num_finished = 0;
    int num_here = 0;
    team_.call_near_end([&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_GE(num_finished, kItems - 2 * few) << "each other member holds one";
      ++num_here;
    });
    team_.run(0, [](int64_t, int) {});
    team_.run(kItems, [&](int64_t, int) { ++num_finished; });
    EXPECT_LE(num_here, few > 1 ? 1 : 0) << "alone there is nobody who goes on";
    const int called = num_here;
    team_.run(kItems, [&](int64_t, int) { ++num_finished; });
    EXPECT_EQ(num_here, called) << "not in the job after";
    num_calls += num_here;
  }
  EXPECT_LE(num_calls, few > 1 ? 500 : 0);
}

// An item that waits for the call ends: another member has it.
TEST(Team, OthersWorkWhileTheCallerIsBusyNearTheEnd) {
  Team team(2, cores(2));
  std::atomic<bool> was_called = false;
  int num_calls = 0;
  team.call_near_end([&] {
    was_called = true;
    ++num_calls;
  });
  const TimeUs patience = now_us() + 5'000'000;
  team.run(8, [&](int64_t, int member) {
    while (member == 1 && !was_called && now_us() < patience) std::this_thread::yield();
  });
  EXPECT_EQ(num_calls, 1);
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

// A count is taken once, when all items before it have finished, and its items see all of them.
TEST_P(TeamTest, PhasesMayCountTheirItemsWhenTheyStart) {
  std::array<std::atomic<int64_t>, 4> finished = {};
  std::array<int64_t, 4> counts = {};
  std::array<int, 4> times_counted = {};
  std::atomic<int> num_errors = 0;
  const auto work = [&](size_t p) {
    return [&, p](int64_t item, int) {
      if (item < 0 || item >= counts[p]) ++num_errors;
      for (size_t before = 0; before < p; ++before) {
        if (finished[before] != counts[before]) ++num_errors;
      }
      ++finished[p];
    };
  };
  const auto count = [&](size_t p) {
    return [&, p] {
      for (size_t before = 0; before < p; ++before) {
        if (finished[before] != counts[before]) ++num_errors;
      }
      ++times_counted[p];
      return counts[p];
    };
  };
  constexpr std::array<int64_t, 6> kCounts = {0, 1, 2, 3, 7, 40};
  for (size_t round = 0; round < 6 * 6 * 6 * 6; ++round) {
    counts = {kCounts[round % 6], kCounts[round / 6 % 6], kCounts[round / 36 % 6],
              kCounts[round / 216]};
    times_counted = {};
    for (auto& count_of_phase : finished) count_of_phase = 0;
    team_.run(Phase{counts[0], work(0)}, CountedPhase{count(1), work(1)}, Phase{counts[2], work(2)},
              CountedPhase{count(3), work(3)});
    for (size_t p = 0; p < 4; ++p) {
      ASSERT_EQ(finished[p], counts[p]) << "phase " << p << " of round " << round;
      ASSERT_EQ(times_counted[p], p % 2) << "phase " << p << " of round " << round;
    }
  }
  EXPECT_EQ(num_errors, 0);
}

// What one phase writes decides how many items the next one has: a chain of them, with other jobs
// between, so that late members of each meet the next.
TEST_P(TeamTest, ACountFollowsFromThePhaseBefore) {
  for (int64_t round = 0; round < 1000; ++round) {
    std::atomic<int64_t> sum = 0;
    int64_t seen[3] = {};
    const auto add = [&](int64_t item, int) { sum += item % 3 + 1; };
    const auto count = [&](int index) {
      return [&, index] { return seen[index] = sum.load() % 11; };
    };
    team_.run(Phase{round % 13, add}, CountedPhase{count(0), add}, CountedPhase{count(1), add},
              CountedPhase{count(2), add});
    int64_t expected = 0;
    const auto run = [&](int64_t num_items) {
      for (int64_t item = 0; item < num_items; ++item) expected += item % 3 + 1;
    };
    run(round % 13);
    for (const int64_t counted : seen) {
      ASSERT_EQ(counted, expected % 11) << "round " << round;
      run(counted);
    }
    ASSERT_EQ(sum, expected) << "round " << round;
    std::atomic<int> num_items = 0;
    team_.run(round % 5, [&](int64_t, int) { ++num_items; });
    ASSERT_EQ(num_items, round % 5);
  }
}

TEST_P(TeamTest, JobsOfCountedPhasesAloneStartToo) {
  const auto nothing = [](int64_t, int) {};
  int64_t num_run = 0;
  team_.run(CountedPhase{[] { return int64_t{0}; }, nothing});
  EXPECT_EQ(team_.num_joins(), 0);
  team_.run(CountedPhase{[] { return int64_t{-3}; }, nothing},
            CountedPhase{[] { return int64_t{1}; }, [&](int64_t, int) { ++num_run; }},
            CountedPhase{[&] { return num_run; }, [&](int64_t, int) { ++num_run; }});
  EXPECT_EQ(num_run, 2);
  EXPECT_EQ(team_.num_joins(), 1);
}

TEST_P(TeamTest, NoMemberHoldsTwoItemsOfCountedPhases) {
  std::vector<std::atomic<int>> busy(static_cast<size_t>(team_.num_threads()));
  std::atomic<int> num_errors = 0;
  const auto work = [&](int64_t, int member) {
    if (busy.at(static_cast<size_t>(member)).fetch_add(1) != 0) ++num_errors;
    busy[static_cast<size_t>(member)].fetch_sub(1);
  };
  for (int64_t i = 0; i < 300; ++i) {
    const auto count = [&] { return i % 9; };
    team_.run(Phase{2, work}, CountedPhase{count, work}, CountedPhase{count, work});
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

// Of a thread that keeps apart from a team on some of the cores of this one.
std::vector<int> cores_apart(int num_threads, size_t num_cores) {
  std::vector<int> found, cores = usable_cores();
  cores.resize(std::min(num_cores, cores.size()));
  Team team(num_threads, cores);
  std::thread([&] {
    team.keep_apart();
    found = usable_cores();
  }).join();
  return found;
}

TEST(TeamCaller, KeepsOffTheCoresOfOthers) {
  const std::vector<int> all = usable_cores();
  if (all.size() < 2) GTEST_SKIP() << "one core";
  EXPECT_EQ(cores_apart(2, 2), std::vector<int>{all[0]});
  EXPECT_EQ(cores_apart(1, 2), all) << "there are no others";
  EXPECT_EQ(cores_apart(3, 2), all) << "the others are nowhere in particular";
}

TEST(TeamCaller, KnowsWhetherACoreIsLeft) {
  EXPECT_TRUE(Team(1, {0, 1}).has_spare_core());
  EXPECT_FALSE(Team(2, {0, 1}).has_spare_core());
  EXPECT_FALSE(Team(3, {0, 1}).has_spare_core());
}

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

// Members that fell asleep over a long item are woken for the items that become known after it:
// two that wait for each other need two members.
TEST(TeamOfTwoTest, SleepersAreWokenForItemsThatBecomeKnown) {
  Team team(2, cores(2));
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> num_started = 0;
    std::atomic<bool> in_time = true;
    team.run(
        Phase{1, [](int64_t, int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }},
        CountedPhase{[] { return int64_t{2}; },
                     [&](int64_t, int) {
                       ++num_started;
                       const auto deadline =
                           std::chrono::steady_clock::now() + std::chrono::seconds(60);
                       while (num_started < 2 && std::chrono::steady_clock::now() < deadline) {
                         std::this_thread::yield();
                       }
                       if (num_started < 2) in_time = false;
                     }});
    EXPECT_TRUE(in_time);
  }
}

}  // namespace team_test
}  // namespace headrace::cpu
