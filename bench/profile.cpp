// bench_profile MODEL [--threads N] [--rounds N] [--steps N] [--prompt N]
//
// What profiles cost: answers and a prompt of a model (a file) on the back end itself, on the same
// behind TimedBackend that nobody watches ("off"), and watched ("on"), in turns, the first one of a
// round last in the next. Each side has weights of its own. Prints medians over the rounds of the
// ratio to the bare back end, with their 95 % bootstrap interval, and exits with 1 where "off"
// costs 1 % or more or "on" 5 %. With one thread the time is the process's own, which other
// processes disturb less. Bits of the logits must agree.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/timed_backend.h"
#include "bench/step_bench.h"
#include "op_support.h"

namespace headrace {
namespace {

constexpr size_t kNumSides = 3;
constexpr std::array<std::string_view, kNumSides> kSides = {"bare", "off", "on"};
constexpr std::array<double, kNumSides> kMost = {1, 1.01, 1.05};  // ratios

struct Setup {
  std::string model;
  int num_threads = 1, num_rounds = 40;
  int64_t num_steps = 32, prompt_tokens = 128;
};

// A model on one back end, and its clock.
class Side {
 public:
  static Result<std::unique_ptr<Side>> create(const Setup& setup, const Checkpoint& checkpoint,
                                              std::shared_ptr<CpuTeam> team, bool timed) {
    auto side = std::make_unique<Side>();
    side->backend_ = TRY(create_cpu_backend({.team = std::move(team)}));
    if (timed) side->backend_ = std::make_unique<TimedBackend>(std::move(side->backend_));
    side->model_ = TRY(Model::load(checkpoint, *side->backend_, ModelOptions()));
    StepBench::Room room;
    room.single_tokens = setup.prompt_tokens + setup.num_steps;
    side->bench_ =
        std::make_unique<StepBench>(TRY(StepBench::create(*side->model_, *side->backend_, room)));
    side->bench_->fill_contexts(setup.prompt_tokens);
    return side;
  }

  struct Outcome {
    double answer_s = 0, prompt_s = 0;
    uint64_t digest = 0;
  };
  Outcome run(const Setup& setup, bool watched) {
    std::vector<OpRecord> records;
    Outcome outcome;
    if (watched) backend_->watch_ops(&records);
    const double start = op_seconds(setup.num_threads);
    outcome.digest = bench_->decode(setup.prompt_tokens, setup.num_steps).digest;
    const double middle = op_seconds(setup.num_threads);
    bench_->prefill(setup.prompt_tokens);
    outcome.prompt_s = op_seconds(setup.num_threads) - middle;
    outcome.answer_s = middle - start;
    if (watched) backend_->watch_ops(nullptr);
    return outcome;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StepBench> bench_;
};

struct Spread {
  double median, low, high;
};
Spread bootstrap(const std::vector<double>& ratios) {
  constexpr int kDraws = 2000;
  std::mt19937_64 random(1);
  std::vector<double> medians;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<double> drawn(ratios.size());
    for (double& each : drawn) each = ratios[random() % ratios.size()];
    medians.push_back(median(std::move(drawn)));
  }
  std::ranges::sort(medians);
  return {median(ratios), medians[kDraws / 40], medians[kDraws - kDraws / 40]};
}

// Returns whether both limits hold.
bool report(std::string_view work, const std::array<std::vector<double>, kNumSides>& seconds) {
  bool holds = true;
  for (size_t side = 1; side < kNumSides; ++side) {
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds[side].size(); ++i) {
      ratios.push_back(seconds[side][i] / seconds[0][i]);
    }
    const Spread spread = bootstrap(ratios);
    fmt::print("{:<7} {:<4} {:.4f} ({:.4f} to {:.4f}) of bare, {:.2f} ms\n", work, kSides[side],
               spread.median, spread.low, spread.high, 1e3 * median(seconds[0]));
    holds &= spread.median < kMost[side];
  }
  return holds;
}

Result<bool> measure(const Setup& setup) {
  const auto checkpoint = TRY(Checkpoint::open(setup.model));
  const auto team = TRY(create_cpu_team(setup.num_threads));
  std::array<std::unique_ptr<Side>, 2> sides;  // bare, timed
  for (const bool timed : {false, true}) {
    sides[timed] = TRY(Side::create(setup, *checkpoint, team, timed));
  }
  std::array<std::vector<double>, kNumSides> answers, prompts;
  for (int round = 0; round < setup.num_rounds + 1; ++round) {
    for (size_t turn = 0; turn < kNumSides; ++turn) {
      const size_t side = (turn + static_cast<size_t>(round)) % kNumSides;
      const Side::Outcome outcome = sides[side > 0]->run(setup, side == 2);
      static const uint64_t digest = outcome.digest;
      if (outcome.digest != digest) {
        return make_error(ErrorCode::kInternal, "'{}' gave other logits", kSides[side]);
      }
      if (round == 0) continue;  // memory is touched
      answers[side].push_back(outcome.answer_s);
      prompts[side].push_back(outcome.prompt_s);
    }
  }
  const bool answers_hold = report("answer", answers), prompts_hold = report("prompt", prompts);
  return answers_hold && prompts_hold;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Setup setup;
  CLI::App app{"What profiles cost while they are on, and while they are off."};
  app.add_option("model", setup.model)->required();
  app.add_option("--threads", setup.num_threads);
  app.add_option("--rounds", setup.num_rounds);
  app.add_option("--steps", setup.num_steps);
  app.add_option("--prompt", setup.prompt_tokens);
  CLI11_PARSE(app, argc, argv);
  const auto holds = headrace::measure(setup);
  if (!holds.ok()) fmt::print(stderr, "bench_profile: {}\n", holds.error().to_string());
  return holds.ok() && *holds ? 0 : 1;
}
