#include "backend/cpu/panel_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace headrace::cpu {
namespace panel_shares_test {

// All that `member` is given, `first` before the rest.
std::vector<Piece> take_all(PanelShares& shares, int member, Piece first = {0, 0}) {
  std::vector<Piece> pieces;
  for (Piece piece = first.count > 0 ? first : shares.take(member); piece.count > 0;
       piece = shares.take(member)) {
    pieces.push_back(piece);
  }
  return pieces;
}

std::vector<std::pair<int64_t, int64_t>> ranges_of(const std::vector<Piece>& pieces) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const Piece& piece : pieces) ranges.emplace_back(piece.first, piece.count);
  return ranges;
}

// How often each panel was taken, by as many threads as there are members.
std::vector<int> taken_by_all(PanelShares& shares, int num_members, const PanelShares::Plan& plan) {
  const Piece first = shares.divide(plan);
  std::vector<std::vector<Piece>> pieces(static_cast<size_t>(num_members));
  std::vector<std::thread> threads;
  for (int member = 0; member < num_members; ++member) {
    threads.emplace_back([&, member] {
      pieces[static_cast<size_t>(member)] =
          take_all(shares, member, member == 0 ? first : Piece{0, 0});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> counts(static_cast<size_t>(plan.num_panels));
  for (const auto& list : pieces) {
    for (const Piece& piece : list) {
      EXPECT_LE(piece.first + piece.count, plan.num_panels);
      EXPECT_EQ(piece.first % plan.unit, 0);
      for (int64_t i = 0; i < piece.count; ++i) ++counts.at(static_cast<size_t>(piece.first + i));
    }
  }
  return counts;
}

TEST(PanelShares, EveryPanelIsTakenOnce) {
  int num_divisions = 0;
  for (const int num_members : {1, 2, 3, 7}) {
    PanelShares shares(num_members);
    for (const int64_t num_panels : {1, 2, 36, 500, 3}) {
      for (const int64_t unit : {1, 4}) {
        const PanelShares::Plan plan{num_panels, unit, 64};
        const std::vector<int> counts = taken_by_all(shares, num_members, plan);
        EXPECT_TRUE(std::ranges::all_of(counts, [](int count) { return count == 1; }))
            << num_members << " members, " << num_panels << " panels";
        ++num_divisions;
      }
    }
  }
  EXPECT_EQ(num_divisions, 40);
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

TEST(PanelShares, OwnShareFrontToBackThenOthersFromTheirBack) {
  PanelShares shares(2);
  const Piece first = shares.divide({16, 1, 64});
  EXPECT_EQ(ranges_of({first}), (Ranges{{0, 6}}));
  // Member 0 is at work on its share: its last panel is left to it.
  EXPECT_EQ(ranges_of(take_all(shares, 1)), (Ranges{{8, 6}, {14, 1}, {15, 1}, {7, 1}}));
  EXPECT_EQ(ranges_of(take_all(shares, 0)), (Ranges{{6, 1}}));
}

TEST(PanelShares, OthersTakeAllOfAShareWhoseOwnerDoesNotCome) {
  PanelShares shares(2);
  const Piece first = shares.divide({16, 1, 64});
  int64_t sum = 0;
  for (const Piece& piece : take_all(shares, 0, first)) sum += piece.count;
  EXPECT_EQ(sum, 16);
  EXPECT_EQ(shares.take(1).count, 0);
}

TEST(PanelShares, NoPieceIsLargerThanThePlanAllows) {
  PanelShares shares(2);
  const Piece first = shares.divide({1000, 1, 10});
  int64_t sum = 0;
  for (const Piece& piece : take_all(shares, 0, first)) {
    EXPECT_LE(piece.count, 10);
    sum += piece.count;
  }
  EXPECT_EQ(sum, 1000);
}

TEST(PanelShares, MoreUnitsThanAWordCounts) {
  PanelShares shares(1);
  constexpr int64_t kPanels = 300'000;
  const Piece first = shares.divide({kPanels, 1, 100'000});
  int64_t next = 0;
  for (const Piece& piece : take_all(shares, 0, first)) {
    EXPECT_EQ(piece.first, next);
    next += piece.count;
  }
  EXPECT_EQ(next, kPanels);
}

TEST(PanelShares, FewPanelsHaveFewTakers) {
  PanelShares shares(4);
  shares.divide({9, 4, 64});
  EXPECT_EQ(shares.num_takers(), 3);
}

// A later phase of an op may be one member's alone, whoever it is.
TEST(PanelShares, WhatWasStartedWithoutAnOwnerIsTakenWholeByAnyone) {
  PanelShares shares(3);
  for (int member = 0; member < 3; ++member) {
    for (const int64_t num_panels : {1, 2, 7, 40}) {
      shares.start({num_panels, 1, 64});
      int64_t taken = 0;
      for (const Piece& piece : take_all(shares, member)) taken += piece.count;
      EXPECT_EQ(taken, num_panels) << "member " << member;
    }
  }
}

}  // namespace panel_shares_test
}  // namespace headrace::cpu
