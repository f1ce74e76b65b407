// Tenants on a clock that runs as a machine's costs say: what each is given over time, how long who
// asks seldom waits beside who asks without end, and that nobody who runs stands still. Times are
// of that clock, so they are the same on every machine.
//
// HEADRACE_SIM_SCHEDULES sets how many trees run (one in 160), HEADRACE_SIM_SEED the first
// seed; there are fewer under sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "base/sanitizers.h"
#include "engine/scheduler.h"
#include "engine/step_log.h"

namespace headrace {
namespace tenants_sim_test {

constexpr uint64_t kNumSchedules = kIsInstrumented ? 640 : 4'000;
constexpr int kShortLoads[] = {1, 8, 16}, kLongLoads[] = {1, 4, 6};
constexpr int kFewOrManySlots[] = {16, 32};
constexpr int kSlots = 32;
constexpr TimeUs kTargetUs = 50'000;
constexpr TimeUs kShortPause = 1500;  // shorter than a step

// What steps take, in microseconds.
struct Machine {
  TimeUs step = 4000, token = 250, sampled = 0;

  TimeUs step_time(const StepPlan& plan) const {
    return step + token * plan.num_tokens + sampled * plan.num_logit_rows;
  }
};

// On which 31 streams alone take twice the target.
constexpr Machine kSlowMachine{5000, 1000, 2000};

SchedulerOptions tenant_options(std::vector<TenantSpec> tenants) {
  SchedulerOptions options;
  options.max_batch_tokens = 256;
  options.max_logit_rows = kSlots;
  options.max_sequences = kSlots;
  options.num_blocks = 4000;
  options.max_context = 4000;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  options.inter_token_target_us = kTargetUs;
  options.tenants = std::move(tenants);
  return options;
}

// Without tenants, and with what the start of an engine learns of the machine.
SchedulerOptions calibrated_options(const Machine& machine, int slots) {
  SchedulerOptions options = tenant_options({});
  options.max_logit_rows = options.max_sequences = slots;
  for (int64_t rows = 1; rows <= options.max_batch_tokens; rows *= 2) {
    StepLoad load;
    load.add(0, rows, 1, true);
    for (int i = 0; i < 2; ++i) {
      options.step_cost.observe(load, machine.step + machine.token * rows + machine.sampled);
    }
  }
  return options;
}

// How a client asks: so many requests at a time, of such lengths, each again so long after it is
// answered. Without a pause it never finds that a step without it has begun.
struct Habit {
  int num_at_once = 1;
  int32_t least_prompt = 20, most_prompt = 60;
  int32_t least_answer = 5, most_answer = 40;
  TimeUs pause = 0;
};

class World {
 public:
  World(const std::vector<TenantSpec>& tenants, uint64_t seed, const Machine& machine = {})
      : World(tenant_options(tenants), seed, machine) {}
  World(const SchedulerOptions& options, uint64_t seed, const Machine& machine)
      : options_(options), machine_(machine), scheduler_(options_), random_(seed) {
    EXPECT_TRUE(check_tenants(options.tenants).ok());
    for (const TenantSpec& spec : options.tenants) {
      for (const uint64_t client : spec.clients) tenant_of_[client] = spec.name;
    }
  }

  void add_client(uint64_t client, const Habit& habit) {
    habits_[client] = habit;
    for (int i = 0; i < habit.num_at_once; ++i) coming_.emplace(now_, client);
  }

  void step() {
    ask_all_that_came();
    const StepPlan& plan = scheduler_.plan(now_);
    log_.planned(plan, scheduler_, now_);
    check_gaps(plan);
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {7});
      tokens_[plan.sequences[i]->request.client] += plan.spans[i].num_rows;
    }
    count_excess(plan);
    now_ += machine_.step_time(plan);
    log_.committed(results, now_);
    std::vector<Event> events;
    scheduler_.commit(results, now_, &events);
    for (const Event& event : events) hear(event);
  }
  void steps(int count) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) step();
  }
  // From now on the client asks so, and waits count anew.
  void change(uint64_t client, const Habit& habit) {
    habits_[client] = habit;
    waits_[client].clear();
  }
  void run_answers(uint64_t client, size_t count) {
    while (waits_[client].size() < count && !testing::Test::HasFailure()) step();
  }

  // So much of the time until the first token, from all answers of the client.
  TimeUs wait(uint64_t client, double share) {
    std::vector<TimeUs>& waits = waits_[client];
    std::sort(waits.begin(), waits.end());
    return waits[static_cast<size_t>(share * static_cast<double>(waits.size() - 1))];
  }
  // Of all tokens since the last call, that part was the client's.
  std::map<uint64_t, double> parts() {
    double sum = 0;
    for (const auto& [client, count] : tokens_) sum += static_cast<double>(count);
    std::map<uint64_t, double> parts;
    for (const auto& [client, count] : tokens_) parts[client] = static_cast<double>(count) / sum;
    tokens_.clear();
    return parts;
  }
  // The most rows that client 1 had more than the half of all, from any step to any later one.
  double most_excess() const { return most_excess_; }
  const Scheduler& scheduler() const { return scheduler_; }
  Status replay() const { return log_.replay(options_); }

 private:
  int32_t range(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  // Where nobody is there, once somebody came.
  void ask_all_that_came() {
    if (asked_.empty()) now_ = std::max(now_, coming_.begin()->first);
    while (!coming_.empty() && coming_.begin()->first <= now_) {
      const auto [since, client] = *coming_.begin();
      coming_.erase(coming_.begin());
      ask(client, since);
    }
  }

  void ask(uint64_t client, TimeUs since) {
    const Habit& habit = habits_.at(client);
    Request request;
    const RequestId id = ++last_id_;
    request.client = client;
    request.ignore_eos = true;
    request.max_tokens = range(habit.least_answer, habit.most_answer);
    request.prompt_ids.assign(static_cast<size_t>(range(habit.least_prompt, habit.most_prompt)),
                              static_cast<int32_t>(id));
    log_.admitted(id, request, now_);
    scheduler_.admit(id, std::move(request), now_);
    asked_[id] = {client, since, false};
  }

  void hear(const Event& event) {
    Asked& asked = asked_.at(event.request_id);
    if (event.kind == Event::Kind::kToken && !std::exchange(asked.is_heard, true)) {
      waits_[asked.client].push_back(now_ - asked.since);
    }
    if (event.kind != Event::Kind::kFinished) return;
    const uint64_t client = asked.client;
    asked_.erase(event.request_id);
    coming_.emplace(now_ + habits_.at(client).pause, client);
  }

  void count_excess(const StepPlan& plan) {
    double excess = -0.5 * plan.num_tokens;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      if (plan.sequences[i]->request.client == 1) excess += plan.spans[i].num_rows;
    }
    excess_ = std::max(0.0, excess_ + excess);
    most_excess_ = std::max(most_excess_, excess_);
  }

  // A tenant that always wants something has some of each step, a slot of its own being the least.
  void check_gaps(const StepPlan& plan) {
    std::set<std::string> served;
    for (const Sequence* sequence : plan.sequences) {
      served.insert(tenant_of_[sequence->request.client]);
    }
    for (const auto& [client, habit] : habits_) {
      if (habit.pause > 0) continue;
      ASSERT_TRUE(served.contains(tenant_of_[client]))
          << "tenant " << tenant_of_[client] << " has nothing of step " << plan.step_idx;
    }
  }

  struct Asked {
    uint64_t client = 0;
    TimeUs since = 0;
    bool is_heard = false;
  };

  const SchedulerOptions options_;
  const Machine machine_;
  Scheduler scheduler_;
  StepLog log_{20'000, /*keep_requests=*/true};
  std::mt19937_64 random_;
  std::map<uint64_t, std::string> tenant_of_;  // empty: none
  std::map<uint64_t, Habit> habits_;
  std::map<RequestId, Asked> asked_;
  std::multimap<TimeUs, uint64_t> coming_;  // clients, that ask then
  std::map<uint64_t, std::vector<TimeUs>> waits_;
  std::map<uint64_t, int64_t> tokens_;
  double excess_ = 0, most_excess_ = 0;
  TimeUs now_ = 1;
  RequestId last_id_ = 0;
};

uint64_t sim_setting(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// A tree of two or three levels with its clients, and the part of each client by the weights.
struct Tree {
  std::vector<TenantSpec> tenants;
  std::map<uint64_t, double> parts;
};

Tree random_tree(std::mt19937_64& random) {
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  Tree tree;
  uint64_t last_client = 0;
  struct Branch {
    std::string name;
    double part = 0;
  };
  std::vector<Branch> leaves;
  const auto split = [&](const std::string& parent, double part, uint64_t count) {
    std::vector<double> weights;
    double sum = 0;
    for (uint64_t i = 0; i < count; ++i)
      sum += weights.emplace_back(static_cast<double>(pick(1, 3)));
    std::vector<Branch> made;
    for (uint64_t i = 0; i < count; ++i) {
      made.push_back(
          {fmt::format("{}{}", parent, static_cast<char>('a' + i)), part * weights[i] / sum});
      tree.tenants.push_back({.name = made.back().name, .parent = parent, .weight = weights[i]});
    }
    return made;
  };
  for (const Branch& branch : split("", 1, pick(2, 3))) {
    if (pick(0, 1) == 0) {
      leaves.push_back(branch);
      continue;
    }
    for (const Branch& leaf : split(branch.name, branch.part, 2)) leaves.push_back(leaf);
  }
  for (const Branch& leaf : leaves) {
    const uint64_t num_clients = pick(1, 2);
    const auto spec = std::find_if(tree.tenants.begin(), tree.tenants.end(),
                                   [&](const TenantSpec& each) { return each.name == leaf.name; });
    for (uint64_t i = 0; i < num_clients; ++i) {
      spec->clients.push_back(++last_client);
      tree.parts[last_client] = leaf.part / static_cast<double>(num_clients);
    }
  }
  std::shuffle(tree.tenants.begin(), tree.tenants.end(), random);
  return tree;
}

// All want more than there is, in their own ways. A slot is the least that anybody has, so the
// parts are within one and a half slots of what the weights say.
TEST(TenantsSim, PartsConvergeToTheWeightsWhileAllWantMore) {
  const uint64_t first = sim_setting("HEADRACE_SIM_SEED", 1);
  const uint64_t count =
      std::max<uint64_t>(1, sim_setting("HEADRACE_SIM_SCHEDULES", kNumSchedules) / 160);
  double worst = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const Tree tree = random_tree(random);
    World world(tree.tenants, seed);
    for (const auto& [client, part] : tree.parts)
      world.add_client(client, Habit{.num_at_once = 40});
    world.steps(200);
    world.parts();
    world.steps(1200);
    for (const auto& [client, part] : world.parts()) {
      worst = std::max(worst, std::abs(part - tree.parts.at(client)));
      EXPECT_NEAR(part, tree.parts.at(client), 1.5 / kSlots) << "client " << client;
    }
    if (seed % 8 == 0) {
      const Status replayed = world.replay();
      EXPECT_TRUE(replayed.ok()) << replayed.error().message;
    }
    if (testing::Test::HasFailure()) return;
  }
  fmt::print("{} trees, at most {:.3f} from the weights\n", count, worst);
}

// The 95th percentile of the time to the first token of client 1, alone or beside a flood.
TimeUs wait_beside(const std::vector<TenantSpec>& tenants, const Habit& habit, const Habit* flood,
                   const Machine& machine) {
  World world(tenants, 7, machine);
  world.add_client(1, habit);
  if (flood != nullptr) world.add_client(2, *flood);
  world.run_answers(1, 400);
  return world.wait(1, 0.95);
}

const std::vector<TenantSpec> kTwoTenants = {{.name = "a", .clients = {1}},
                                             {.name = "b", .clients = {2}}};

void expect_at_most_doubled(const Habit& habit, const Habit& flood, const Machine& machine) {
  for (const auto& tenants : {std::vector<TenantSpec>(), kTwoTenants}) {
    const TimeUs alone = wait_beside(tenants, habit, nullptr, machine);
    const TimeUs flooded = wait_beside(tenants, habit, &flood, machine);
    EXPECT_LE(flooded, 2 * alone) << habit.num_at_once << " at once";
    fmt::print("{} at once of {} to {} tokens: {} us alone, {} us beside a flood\n",
               habit.num_at_once, habit.least_prompt, habit.most_prompt, alone, flooded);
    if (testing::Test::HasFailure()) return;
  }
}

// A flood of a hundred times as many requests of the same kind.
void expect_at_most_doubled(const Habit& habit) {
  Habit flood = habit;
  flood.num_at_once *= 100;
  expect_at_most_doubled(habit, flood, Machine{});
}

// First with long prompts, which use up what it has spared, then with such ones.
void expect_half_of_the_machine(const Machine& machine, int slots, const Habit& habit) {
  SCOPED_TRACE(testing::Message() << "a step takes " << machine.step << " us, " << slots
                                  << " slots, prompts of " << habit.least_prompt << ", answers of "
                                  << habit.least_answer << ", pauses of " << habit.pause);
  const SchedulerOptions options = calibrated_options(machine, slots);
  World alone(options, 7, machine);
  alone.add_client(1, habit);
  alone.run_answers(1, 30);
  Habit flood = habit, first = habit;
  flood.num_at_once = 100;
  first.least_prompt = first.most_prompt = 430;
  World world(options, 7, machine);
  world.add_client(1, first);
  world.add_client(2, flood);
  world.run_answers(1, 60);
  world.change(1, habit);
  world.run_answers(1, 40);
  world.parts();
  world.change(1, habit);
  world.run_answers(1, 60);
  EXPECT_LE(world.wait(1, 0.95), 2 * alone.wait(1, 0.95));
  // A few tokens are lent; in pauses it spares some.
  EXPECT_LE(world.parts()[1], habit.pause > 0 ? 0.52 : 0.51) << "of the tokens";
  if (habit.pause == kShortPause) {
    EXPECT_LE(world.scheduler().stats().num_turns_given, 1u) << "its place is kept for it";
  }
}

// Whether it keeps the machine busy by itself, or finds it idle when it is alone.
TEST(TenantsSim, WhoAsksAHundredTimesAsMuchAtMostDoublesAnothersWait) {
  for (const int num_at_once : kShortLoads) {
    expect_at_most_doubled({.num_at_once = num_at_once});
    expect_at_most_doubled({.num_at_once = num_at_once, .pause = kShortPause});
  }
}

// So does who sends long ones and needs less than its half of the machine.
TEST(TenantsSim, LongPromptsWaitAtMostTwiceAsLongToo) {
  for (const int num_at_once : kLongLoads) {
    Habit habit{.num_at_once = num_at_once, .least_prompt = 200, .most_prompt = 600};
    expect_at_most_doubled(habit);
    habit.pause = kShortPause;
    expect_at_most_doubled(habit);
  }
}

// Where the streams of the flood alone take twice the target.
TEST(TenantsSim, StreamsOfAFloodLeaveALongPromptMostOfTheTime) {
  const Habit streams{.num_at_once = 100, .least_answer = 200, .most_answer = 400};
  for (const int num_at_once : {1, 2}) {
    expect_at_most_doubled({.num_at_once = num_at_once, .least_prompt = 200, .most_prompt = 600},
                           streams, kSlowMachine);
  }
}

// Whether a step has begun when it asks, or not. Streams that alone take longer than a prompt are
// not among these, nor is one that fills the machine when alone with prompts of several steps and
// never pauses: half of it is twice the time, and a token.
TEST(TenantsSim, WhoAsksForOneThingAtATimeHasHalfOfTheMachineAtLeast) {
  int count = 0;
  for (const Machine& machine : {Machine{8000, 300, 0}, Machine{2000, 500, 100}}) {
    for (const int slots : kFewOrManySlots) {
      for (const int32_t prompt : {40, 70, 120, 430}) {
        for (const int32_t answer : {1, 8, 40}) {
          for (const TimeUs pause : {TimeUs{0}, kShortPause, TimeUs{20'000}}) {
            if (prompt > 256 && answer == 1 && pause == 0) continue;
            const Habit habit{1, prompt, prompt, answer, answer, pause};
            expect_half_of_the_machine(machine, slots, habit);
            if (testing::Test::HasFailure()) return;
            ++count;
          }
        }
      }
    }
  }
  fmt::print("{} combinations\n", count);
}

// However it asks: what it may take beyond its part is what it spared before.
TEST(TenantsSim, NobodyTakesMoreThanItsPartForLong) {
  std::mt19937_64 random(5);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  double most = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed % 2 == 0 ? kTwoTenants : std::vector<TenantSpec>(), seed);
    world.add_client(2, Habit{.num_at_once = 100, .least_prompt = 300, .most_prompt = 600});
    world.steps(50);
    const int longest = pick(20, 3000), answer = pick(1, 40);
    world.add_client(1, Habit{pick(1, 16), longest / 2 + 1, longest, 1, answer});
    world.steps(600);
    EXPECT_LE(world.most_excess(), kMostSpareRows + 256) << "and a step";
    most = std::max(most, world.most_excess());
  }
  EXPECT_GT(most, kMostSpareRows / 2) << "some make use of it";
}

// Each of many keys has nothing running and so takes a slot from who runs 32; but not more of them
// than are their tenant's.
TEST(TenantsSim, KeysOfATenantTakeNothingFromAnother) {
  TenantSpec many{.name = "many"};
  for (uint64_t client = 2; client < 50; ++client) many.clients.push_back(client);
  World world({many, {.name = "one", .clients = {1}}}, 3);
  world.add_client(1, Habit{.num_at_once = 100});
  world.steps(50);
  EXPECT_EQ(world.parts().at(1), 1);
  for (const uint64_t client : many.clients) world.add_client(client, Habit{});
  world.steps(20);
  world.parts();
  world.steps(500);
  std::map<uint64_t, double> parts = world.parts();
  EXPECT_NEAR(parts.at(1), 0.5, 1.5 / kSlots);
  EXPECT_EQ(parts.size(), 49u) << "all keys have their turns";
}

}  // namespace tenants_sim_test
}  // namespace headrace
