// Back ends on the threads of one team: what is computed in turns is what each computes alone.
#include "backend/cpu/team/shared_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/verify/samples.h"
#include "backend/device_access.h"

namespace headrace {
namespace shared_team_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kWide = 64;

// A back end with one weight, as an engine has it.
struct Engine {
  explicit Engine(std::shared_ptr<CpuTeam> team, uint64_t seed)
      : backend(create_cpu_backend({.team = std::move(team)}).value()) {
    cpu::Random random(seed);
    sample = cpu::sample_weight(DType::kF32, cpu::WeightSample::kRandom, kWide, kWide, random);
    weight = backend->pack({&sample->view, 1}, WeightRole::kLinear).value();
    x = cpu::sample_values(cpu::Values::kRandom, 5, kWide, random);
  }
  std::vector<float> step() {
    std::vector<float> out(x.size());
    backend->begin_turn();
    backend->begin_step({});
    backend->linear(*weight, on_device(x.data()), 5, {}, on_device(out.data()));
    backend->synchronize();
    backend->end_turn();
    return out;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<cpu::SampleWeight> sample;
  std::unique_ptr<PackedWeight> weight;
  std::vector<float> x;
};

TEST(SharedTeam, NumbersOfThreadsThatAreNoneAreRefused) {
  for (const int num_threads : {-1, 1025}) {
    const auto team = create_cpu_team(num_threads);
    ASSERT_FALSE(team.ok());
    EXPECT_EQ(team.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(team.error().message.find(std::to_string(num_threads)), std::string::npos);
  }
}

TEST(SharedTeam, BackEndsHaveTheThreadsOfTheTeam) {
  const auto team = create_cpu_team(2).value();
  Engine first(team, 1), second(team, 2);
  EXPECT_EQ(first.backend->num_threads(), 2);
  const int64_t joins = first.backend->num_joins();
  second.step();
  EXPECT_GT(first.backend->num_joins(), joins);  // one team has one count
  EXPECT_EQ(first.backend->num_joins(), second.backend->num_joins());
}

TEST(SharedTeam, ATeamLivesAsLongAsABackEndComputesOnIt) {
  auto team = create_cpu_team(3).value();
  auto first = std::make_unique<Engine>(team, 1);
  Engine second(std::move(team), 2);
  const std::vector<float> before = second.step();
  first.reset();
  EXPECT_EQ(second.step(), before);
}

TEST(SharedTeam, StepsFromSeveralThreadsAreThoseOfEachAlone) {
  const auto team = create_cpu_team(2).value();
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<float>> alone;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    engines.push_back(std::make_unique<Engine>(team, seed));
    alone.push_back(Engine(nullptr, seed).step());
  }
  std::vector<std::future<int>> running;
  for (size_t i = 0; i < engines.size(); ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      int num_equal = 0;
      for (int step = 0; step < 40; ++step) num_equal += engines[i]->step() == alone[i];
      return num_equal;
    }));
  }
  for (std::future<int>& each : running) EXPECT_EQ(each.get(), 40);
}

// Loading a model takes turns with the steps of another.
TEST(SharedTeam, PackingWaitsForTheTurnOfAStep) {
  const auto team = create_cpu_team(2).value();
  Engine busy(team, 1), loading(team, 2);
  busy.backend->begin_turn();
  auto packed = std::async(std::launch::async, [&] {
    return loading.backend->pack({&loading.sample->view, 1}, WeightRole::kLinear).ok();
  });
  EXPECT_EQ(packed.wait_for(milliseconds(30)), std::future_status::timeout);
  busy.backend->end_turn();
  EXPECT_TRUE(packed.get());
}

// An adapter is loaded while the engine computes: it needs nobody's turn.
TEST(SharedTeam, PackingAnAdapterWaitsForNobody) {
  const auto team = create_cpu_team(2).value();
  Engine engine(team, 1);
  const std::vector<float> a(4 * kWide, 0.5f), b(4 * kWide, 0.25f);
  WeightDelta delta;
  delta.weight = engine.weight.get();
  delta.num_outputs = kWide;
  delta.rank = 4;
  delta.a = a;
  delta.b = b;
  engine.backend->begin_turn();
  auto packed = std::async(std::launch::async, [&] {
    return engine.backend->pack_adapter({&delta, 1}).value()->num_bytes();
  });
  const bool done = packed.wait_for(seconds(60)) == std::future_status::ready;
  engine.backend->end_turn();
  EXPECT_TRUE(done);
  EXPECT_GE(packed.get(), 2 * 4 * kWide * sizeof(uint16_t));
}

}  // namespace shared_team_test
}  // namespace headrace
