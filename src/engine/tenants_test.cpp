#include "engine/tenants.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace tenants_test {

std::string refusal(const std::vector<TenantSpec>& specs) {
  const Status status = check_tenants(specs);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(Tenants, BadTreesAreNamed) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{.name = "a"}, {.name = "b", .parent = "a", .weight = 3}}), "");
  EXPECT_EQ(refusal({{.name = "a"}, {.name = "a"}}), "tenant 'a' is there twice");
  EXPECT_EQ(refusal({{.name = "a", .parent = "b"}}),
            "tenant 'a' has the parent 'b', which is no tenant");
  EXPECT_EQ(refusal({{.name = "a", .parent = "b"}, {.name = "b", .parent = "a"}}),
            "tenant 'a' is below itself");
  EXPECT_EQ(refusal({{.name = "a", .weight = 0}}),
            "tenant 'a' has the weight 0, but it must be from 1e-06 to 1000000");
  EXPECT_EQ(refusal({{.name = "a", .guarantee = 1.5}}),
            "tenant 'a' has the guarantee 1.5, but it must be from 0 to 1");
  EXPECT_EQ(refusal({{.name = "a", .guarantee = 0.7}, {.name = "b", .guarantee = 0.5}}),
            "the tenants below the root are guaranteed 1.2 together, but it has 1 to give");
  EXPECT_EQ(
      refusal({{.name = "a", .guarantee = 0.2}, {.name = "b", .parent = "a", .guarantee = 0.25}}),
      "the tenants below 'a' are guaranteed 0.25 together, but it has 0.2 to give");
  std::vector<TenantSpec> deep = {{.name = "0"}};
  while (deep.size() < kMaxTenantDepth) {
    deep.push_back({.name = std::to_string(deep.size()), .parent = deep.back().name});
  }
  EXPECT_EQ(refusal(deep), "");
  deep.push_back({.name = "low", .parent = deep.back().name});
  EXPECT_EQ(refusal(deep), "tenant 'low' stands on level 9, but there may be 8");
  EXPECT_EQ(refusal({{.name = "a", .burst_s = 5}}),
            "tenant 'a' has a burst, but no guarantee that could be saved up");
  EXPECT_EQ(refusal({{.name = "a", .clients = {1}}, {.name = "b", .clients = {2, 1}}}),
            "tenant 'b' has a client that 'a' has too");
}

class TenantsTest : public testing::Test {
 protected:
  void begin(const std::vector<TenantSpec>& specs, size_t num_clients) {
    ASSERT_TRUE(check_tenants(specs).ok());
    tenants_.set(specs);
    for (size_t i = 0; i < num_clients; ++i) clients_.push_back(tenants_.place(i));
    for (Share& client : clients_) Tenants::count_waiting(&client, 1);
  }
  // One slot: who comes first runs for one step of so long, and waits again. The client, by number.
  size_t serve_one(double took_us = 1000) {
    size_t best = clients_.size();
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].num_waiting == 0) continue;
      if (best == clients_.size() || Tenants::goes_before(clients_[i], clients_[best])) best = i;
    }
    Share* client = &clients_[best];
    Tenants::count_running(client, 1);
    Tenants::count_waiting(client, -1);
    Tenants::add_step(client, 10, 1);
    tenants_.charge(took_us, 100, {client});
    Tenants::count_waiting(client, 1);
    Tenants::count_running(client, -1);
    return best;
  }
  std::vector<int> serve(int num_steps) {
    std::vector<int> turns(clients_.size());
    for (int i = 0; i < num_steps; ++i) ++turns[serve_one()];
    return turns;
  }

  Tenants tenants_;
  std::vector<Share> clients_;
};

TEST_F(TenantsTest, ClientsWithoutATenantAreEqual) {
  begin({}, 4);
  EXPECT_EQ(serve(400), (std::vector<int>{100, 100, 100, 100}));
}

TEST_F(TenantsTest, WeightsAreOfTenantsHoweverManyClientsTheyHave) {
  begin({{.name = "a", .weight = 3, .clients = {0}}, {.name = "b", .clients = {1, 2, 3}}}, 4);
  const std::vector<int> turns = serve(1200);
  EXPECT_NEAR(turns[0], 900, 4);
  for (const size_t i : {1u, 2u, 3u}) EXPECT_NEAR(turns[i], 100, 4);
}

TEST_F(TenantsTest, ATreeSharesWithinItsBranches) {
  begin({{.name = "x", .parent = "org", .weight = 2, .clients = {0}},
         {.name = "y", .parent = "org", .clients = {1}},
         {.name = "org"},
         {.name = "side", .clients = {2}}},
        4);
  const std::vector<int> turns = serve(1200);
  EXPECT_NEAR(turns[0], 267, 4);
  EXPECT_NEAR(turns[1], 133, 4);
  EXPECT_NEAR(turns[2], 400, 4);
  EXPECT_NEAR(turns[3], 400, 4) << "of no tenant: beside them";
}

TEST_F(TenantsTest, WhatEachHadIsToldWithThoseBelowIt) {
  begin({{.name = "x", .parent = "org", .clients = {0}}, {.name = "org", .clients = {1}}}, 3);
  Tenants::count_running(&clients_[2], 1);
  Tenants::add_step(&clients_[0], 30, 1);
  Tenants::add_step(&clients_[1], 10, 1);
  Tenants::add_step(&clients_[2], 60, 1);
  tenants_.charge(1e6, 100, {&clients_[0], &clients_[1], &clients_[2]});
  const std::vector<TenantUse> uses = tenants_.uses();
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].name, "org");  // parents first
  EXPECT_EQ(uses[0].num_tokens, 40);
  EXPECT_NEAR(uses[0].step_s, 0.4, 1e-9);
  EXPECT_EQ(uses[0].num_waiting, 2);
  EXPECT_EQ(uses[1].num_tokens, 30);
  EXPECT_EQ(uses[2].name, Tenants::kOthers);
  EXPECT_EQ(uses[2].num_tokens, 60);
  EXPECT_EQ(uses[2].num_running, 1);
  EXPECT_EQ(uses[2].num_waiting, 1);
  tenants_.set({});
  EXPECT_TRUE(tenants_.uses().empty());
}

TEST_F(TenantsTest, NobodySavesUpTurns) {
  begin({}, 2);
  Tenants::count_waiting(&clients_[1], -1);
  EXPECT_EQ(serve(1000)[0], 1000);
  Tenants::count_waiting(&clients_[1], 1);
  EXPECT_NEAR(serve(100)[1], 50, 1);
}

TEST_F(TenantsTest, AGuaranteeComesFirstAndItsBurstIsSavedUp) {
  begin({{.name = "a", .weight = 1, .guarantee = 0.5, .burst_s = 0.2, .clients = {0}},
         {.name = "b", .weight = 99, .clients = {1}}},
        2);
  EXPECT_NEAR(serve(1000)[0], 500, 5) << "its weight alone would give it ten";
  Tenants::count_waiting(&clients_[0], -1);
  serve(1000);
  Tenants::count_waiting(&clients_[0], 1);
  std::vector<size_t> first;
  for (int i = 0; i < 300; ++i) first.push_back(serve_one());
  EXPECT_EQ(std::count(first.begin(), first.begin() + 300, 0u), 300)
      << "0.2 s of credit, and a half of each step beside";
  EXPECT_NEAR(serve(2000)[0], 1050, 60);
}

// Who holds most of the memory is charged for it, however few rows it computes.
TEST_F(TenantsTest, TheDominantResourceCounts) {
  begin({}, 2);
  Tenants::add_step(&clients_[0], 1, 80);
  Tenants::add_step(&clients_[1], 9, 10);
  tenants_.charge(1000, 100, {&clients_[0], &clients_[1]});
  EXPECT_DOUBLE_EQ(clients_[0].served_us, 800);
  EXPECT_DOUBLE_EQ(clients_[1].served_us, 900);
}

TEST_F(TenantsTest, PartsFollowTheTreeAndWhoLeavesGivesToSiblings) {
  begin({{.name = "a", .weight = 3, .clients = {0, 1}}, {.name = "b", .clients = {2}}}, 3);
  std::vector<Share*> all = {&clients_[0], &clients_[1], &clients_[2]};
  Tenants::begin_division(all);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[0]), 0.375);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[2]), 0.25);
  Tenants::leave_division(&clients_[0]);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[1]), 0.75);
  Tenants::leave_division(&clients_[1]);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[2]), 1);
}

TEST_F(TenantsTest, AGuaranteeIsAPartHoweverLittleTheWeight) {
  begin({{.name = "a", .weight = 1, .guarantee = 0.5, .clients = {0}},
         {.name = "b", .weight = 99, .clients = {1, 2}},
         {.name = "c", .weight = 100, .guarantee = 0.3, .clients = {3}}},
        4);
  Tenants::begin_division({&clients_[0], &clients_[1], &clients_[2]});
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[0]), 0.505);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[1]), 0.2475);
  Tenants::leave_division(&clients_[1]);  // of what is left the others have more
  Tenants::leave_division(&clients_[2]);
  EXPECT_DOUBLE_EQ(Tenants::part_of(clients_[0]), 1);
  Tenants::begin_division({&clients_[0], &clients_[3]});
  EXPECT_NEAR(Tenants::part_of(clients_[0]), 0.5 + 0.2 / 101, 1e-12);
}

// Steps of 100 rows, as many of them of the first as of it are said.
TEST_F(TenantsTest, WhatAPartWasMoreThanWasUsedIsSpared) {
  begin({{.name = "a", .guarantee = 0.2, .clients = {0}}, {.name = "b", .clients = {1, 2}}}, 3);
  const std::vector<Share*> all = {&clients_[0], &clients_[1], &clients_[2]};
  const auto step = [&](int64_t rows_of_first) {
    Tenants::add_step(&clients_[0], rows_of_first, 1);
    Tenants::add_step(&clients_[1], 100 - rows_of_first, 1);
    EXPECT_EQ(tenants_.charge(1000, 100, all).num_rows, 100);
  };
  const auto spare_of = [&](size_t client) {
    Tenants::begin_division(all);
    return Tenants::spare_of(clients_[client]);
  };
  EXPECT_DOUBLE_EQ(spare_of(0), kMostSpareRows) << "at first";
  step(100);
  EXPECT_DOUBLE_EQ(spare_of(0), kMostSpareRows - 40) << "its part is 60: 20, and half of the rest";
  EXPECT_DOUBLE_EQ(spare_of(1), kMostSpareRows);
  step(10);
  EXPECT_DOUBLE_EQ(spare_of(0), kMostSpareRows);
  EXPECT_DOUBLE_EQ(spare_of(1), kMostSpareRows - 70) << "of its own, not of its tenant's";
  EXPECT_DOUBLE_EQ(spare_of(2), kMostSpareRows - 50) << "of its tenant's: by what siblings took";
  for (int i = 0; i < 100; ++i) step(100);
  EXPECT_DOUBLE_EQ(spare_of(0), 0);
  Tenants::add_step(&clients_[1], 100, 1);
  Tenants::rest(&clients_[0], tenants_.charge(1000, 100, {&clients_[1]}));
  EXPECT_DOUBLE_EQ(spare_of(0), 60) << "who has nothing of a step has spared its part";
}

TEST_F(TenantsTest, OnlyWhoRunsLessThanItsPartBesideOthersIsFavoured) {
  begin({{.name = "a", .weight = 2, .clients = {0, 1}}, {.name = "b", .clients = {2}}}, 3);
  const auto step = [&](std::vector<Share*> shares) {
    for (Share* share : shares) Tenants::add_step(share, 10, 1);
    tenants_.charge(1000, 100, shares);
  };
  Tenants::count_running(&clients_[0], 3);
  step({&clients_[0]});
  EXPECT_DOUBLE_EQ(Tenants::spare_beside(clients_[0]), 0) << "nobody is beside it";
  Tenants::count_running(&clients_[2], 3);
  step({&clients_[0], &clients_[2]});
  EXPECT_GT(Tenants::spare_beside(clients_[0]), 0) << "half of all, two thirds are its";
  EXPECT_DOUBLE_EQ(Tenants::spare_beside(clients_[2]), 0);
  Tenants::count_running(&clients_[1], 1);
  step({&clients_[0], &clients_[1], &clients_[2]});
  EXPECT_DOUBLE_EQ(Tenants::spare_beside(clients_[0]), 0) << "more than its sibling";
  EXPECT_GT(Tenants::spare_beside(clients_[1]), 0);
}

TEST_F(TenantsTest, WhoUsesAQuarterOfWhatItsSiblingsDoIsLightUntilTheyStop) {
  begin({{.name = "a", .clients = {0, 1}}, {.name = "b", .clients = {2}}}, 3);
  const std::vector<Share*> all = {&clients_[0], &clients_[1], &clients_[2]};
  const auto step = [&](const std::vector<int64_t>& rows, double took_us = 1000) {
    for (size_t i = 0; i < 3; ++i) Tenants::add_step(&clients_[i], rows[i], 1);
    tenants_.charge(took_us, 100, all);
  };
  const auto lights = [&] {
    std::vector<bool> found;
    for (const Share* client : all) found.push_back(Tenants::is_light(*client));
    return found;
  };
  step({10, 10, 20});
  EXPECT_EQ(lights(), std::vector<bool>({false, false, false})) << "all use the same";
  for (int i = 0; i < 20; ++i) step({10, 1, 11});
  EXPECT_EQ(lights(), std::vector<bool>({false, true, false})) << "beside its sibling";
  for (int i = 0; i < 50; ++i) step({5, 5, 100});
  EXPECT_EQ(lights(), std::vector<bool>({true, true, false})) << "by their tenant";
  for (int i = 0; i < 10; ++i) step({5, 5, 0}, 1e6);
  EXPECT_EQ(lights(), std::vector<bool>({false, false, true})) << "what was long ago is forgotten";
}

TEST_F(TenantsTest, WhoHasOneSequenceInATenantThatHasOneAsksForOne) {
  begin({{.name = "a", .clients = {0, 1}}}, 3);
  EXPECT_TRUE(Tenants::asks_for_one(clients_[2]));
  EXPECT_FALSE(Tenants::asks_for_one(clients_[0])) << "its sibling asks besides";
  Tenants::count_waiting(&clients_[1], -1);
  EXPECT_TRUE(Tenants::asks_for_one(clients_[0]));
  Tenants::count_running(&clients_[2], 1);
  EXPECT_FALSE(Tenants::asks_for_one(clients_[2]));
}

TEST_F(TenantsTest, GuaranteesOfOthersAreNotTaken) {
  begin({{.name = "a", .guarantee = 0.1, .clients = {0}},
         {.name = "b", .guarantee = 0.3, .clients = {1}},
         {.name = "c", .guarantee = 0.2, .clients = {2}}},
        4);
  Tenants::begin_division({&clients_[0], &clients_[1], &clients_[2], &clients_[3]});
  EXPECT_DOUBLE_EQ(Tenants::most_of(clients_[0]), 0.5);
  EXPECT_NEAR(Tenants::most_of(clients_[3]), 0.4, 1e-12);
  // What is left by who leaves is divided, its guarantee with it.
  Tenants::leave_division(&clients_[1]);
  EXPECT_NEAR(Tenants::most_of(clients_[0]), 1 - 0.2 / 0.6, 1e-12);
  Tenants::begin_division({&clients_[3]});
  EXPECT_DOUBLE_EQ(Tenants::most_of(clients_[3]), 1);
}

TEST_F(TenantsTest, ATenantsKeysTakeNoMoreThanItsOwn) {
  begin({{.name = "a", .weight = 2, .clients = {0, 1}}, {.name = "b", .clients = {2}}}, 4);
  Tenants::count_running(&clients_[2], 4);
  Tenants::count_running(&clients_[3], 2);
  EXPECT_TRUE(Tenants::may_take_from(clients_[0], clients_[2]));
  EXPECT_TRUE(Tenants::may_take_from(clients_[0], clients_[3]));
  Tenants::count_running(&clients_[0], 4);
  EXPECT_TRUE(Tenants::may_take_from(clients_[1], clients_[2])) << "five for two, four for one";
  EXPECT_FALSE(Tenants::may_take_from(clients_[1], clients_[3])) << "of no tenant, two for one";
  EXPECT_TRUE(Tenants::may_take_from(clients_[1], clients_[0])) << "they are siblings";
}

TEST_F(TenantsTest, NewTenantsKeepWhatTheOldWereGiven) {
  begin({{.name = "a", .clients = {0}}, {.name = "b", .clients = {1}}}, 2);
  serve(100);
  const double before = tenants_.uses()[0].step_s;
  tenants_.set({{.name = "c"}, {.name = "a", .parent = "c", .clients = {0}}});
  EXPECT_EQ(tenants_.uses()[1].name, "a");
  EXPECT_EQ(tenants_.uses()[1].step_s, before);
  EXPECT_EQ(tenants_.uses()[1].num_waiting, 0) << "clients are placed and counted anew";
}

}  // namespace tenants_test
}  // namespace headrace
