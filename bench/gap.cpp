// bench_gap [--streams N] [--steps N] [--period N] [--guesses N] [--errors P] [--read-mib N]
// [--forget-code] [--rehearse]
//
// Time of the engine's core between two forward passes: guesses, plan, commit. There is no model:
// texts repeat themselves every --period tokens but for a share of --errors (0: never), a pass is
// --read-mib MiB of other memory read, which pushes what the core needs out of the caches, with
// --forget-code also its code, with --rehearse a rehearsal follows, and the clock that the core is
// told advances by 20 ms and 0.4 ms a row. Medians and means of all steps but the first tenth, in
// microseconds. --guesses 0: nobody guesses.

#include <fmt/format.h>
#include <immintrin.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/rehearsal.h"
#include "engine/text_drafter.h"

extern "C" const char __executable_start, etext;  // of the program's code

namespace headrace {
namespace {

constexpr size_t kNumParts = 3;
constexpr std::array<std::string_view, kNumParts> kParts = {"guesses", "plan", "commit"};
constexpr int32_t kVocab = 40'000, kPrompt = 64;

struct Given {
  int streams = 16, steps = 3000, period = 150, guesses = 16;
  double errors = 0.05;
  size_t read_mib = 48;
  bool forgets_code = false, rehearses = false;
};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

// What stands at this position of the stream's text.
int32_t token_of(const Given& given, uint64_t stream, int64_t position) {
  const uint64_t own = mix(stream * 1'000'003 + static_cast<uint64_t>(position) + 1);
  const bool errs = static_cast<double>(own >> 40) < given.errors * 0x1p24;
  const bool repeats = given.period > 0 && !errs;
  const int64_t at = repeats ? position % given.period : position;
  const uint64_t text = repeats ? stream : stream + 4096;
  return static_cast<int32_t>(mix(mix(text) + static_cast<uint64_t>(at)) % kVocab);
}

// The program's code leaves the caches.
void forget_code() {
  for (const char* at = &__executable_start; at < &etext; at += 64) _mm_clflush(at);
  _mm_mfence();
}

class Gap {
 public:
  explicit Gap(const Given& given)
      : given_(given),
        memory_((given.read_mib << 20) / sizeof(uint64_t), 1),
        core_(options_of(given, &drafter_), {"f32", 1}, nullptr) {
    for (int i = 0; i < given.streams; ++i) admit(i);
  }

  void step() {
    const auto start = Clock::now();
    core_.draft(now_);
    const auto drafted = Clock::now();
    const StepPlan& plan = core_.plan(now_);
    const auto planned = Clock::now();
    core_.settle();
    deliver();
    sum_ += std::accumulate(memory_.begin(), memory_.end(), uint64_t{0});
    if (given_.forgets_code) forget_code();
    if (given_.rehearses) rehearsal_.step();
    core_.touch();
    make_results(plan);
    num_rows_ += plan.num_tokens;
    now_ += 20'000 + 400 * plan.num_tokens;
    const auto computed = Clock::now();
    core_.commit(results_, now_);
    const auto committed = Clock::now();
    deliver_ended();
    const std::array spans = {drafted - start, planned - drafted, committed - computed};
    for (size_t i = 0; i < kNumParts; ++i) times_[i].push_back(1e-3 * double(spans[i].count()));
  }

  void print() {
    const double steps = static_cast<double>(times_[0].size());
    fmt::print("{} streams, {:.1f} rows and {:.1f} tokens a step (check {})\n", given_.streams,
               num_rows_ / steps, num_tokens_ / steps, sum_ % 10);
    fmt::print("{:<10}{:>10}{:>10}\n", "us", "median", "mean");
    double medians = 0, means = 0;
    for (size_t i = 0; i < kNumParts; ++i) {
      std::vector<double> each(times_[i].begin() + std::ssize(times_[i]) / 10, times_[i].end());
      std::sort(each.begin(), each.end());
      const double median = each[each.size() / 2];
      const double mean =
          std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
      fmt::print("{:<10}{:>10.1f}{:>10.1f}\n", kParts[i], median, mean);
      medians += median;
      means += mean;
    }
    fmt::print("{:<10}{:>10.1f}{:>10.1f}\n", "all", medians, means);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static SchedulerOptions options_of(const Given& given, Drafter* drafter) {
    SchedulerOptions options;
    options.max_context = 2048;
    options.num_blocks = 2 * given.streams * options.max_context / kBlockTokens;
    options.rope_epoch = [](int64_t) { return int64_t{0}; };
    options.drafter = given.guesses > 0 ? drafter : nullptr;
    options.max_draft_tokens = given.guesses;
    return options;
  }

  void admit(int stream) {
    Request request;
    for (int64_t i = 0; i < kPrompt; ++i) {
      request.prompt_ids.push_back(token_of(given_, static_cast<uint64_t>(stream), i));
    }
    request.max_tokens = 1500;
    request.ignore_eos = true;
    const RequestId id = ++next_id_;
    streams_.push_back({id, static_cast<uint64_t>(stream)});
    core_.admit({id, std::move(request), [this](Event&&) { return ++num_tokens_ > 0; }, now_});
  }

  void make_results(const StepPlan& plan) {
    results_.resize(plan.spans.size());
    for (size_t i = 0; i < results_.size(); ++i) {
      const Span& span = plan.spans[i];
      results_[i].sampled.resize(static_cast<size_t>(span.num_sampled));
      const uint64_t stream = stream_of(plan.sequences[i]->id);
      for (int32_t row = 0; row < span.num_sampled; ++row) {
        SampledToken& sampled = results_[i].sampled[static_cast<size_t>(row)];
        sampled.clear();
        const int64_t position = span.first_position + span.num_rows - span.num_sampled + row + 1;
        sampled.token_id = token_of(given_, stream, position);
      }
    }
  }

  uint64_t stream_of(RequestId id) const {
    return std::find_if(streams_.begin(), streams_.end(),
                        [id](const auto& each) { return each.first == id; })
        ->second;
  }

  void deliver() {
    while (core_.has_events()) {
      core_.count_events();
      core_.deliver_events(now_, [this](RequestId id) { ended_.push_back(id); });
    }
  }

  // Another stream begins for each that has ended.
  void deliver_ended() {
    for (const RequestId id : std::exchange(ended_, {})) {
      const auto stream = static_cast<int>(stream_of(id));
      std::erase_if(streams_, [id](const auto& each) { return each.first == id; });
      admit(stream);
    }
  }

  const Given given_;
  std::vector<uint64_t> memory_;
  TextDrafter drafter_;
  EngineCore core_;
  Rehearsal rehearsal_{core_.scheduler().options()};
  TimeUs now_ = 1;
  RequestId next_id_ = 0;
  std::vector<std::pair<RequestId, uint64_t>> streams_;
  std::vector<RequestId> ended_;
  std::vector<SpanResult> results_;
  uint64_t sum_ = 0;
  double num_rows_ = 0, num_tokens_ = 0;
  std::array<std::vector<double>, kNumParts> times_;
};

int run(int argc, char** argv) {
  Given given;
  CLI::App app("Time of the engine's core between two forward passes.");
  app.add_option("--streams", given.streams)->check(CLI::Range(1, 64));
  app.add_option("--steps", given.steps)->check(CLI::Range(10, 1'000'000));
  app.add_option("--period", given.period)->check(CLI::Range(0, 1000));
  app.add_option("--guesses", given.guesses)->check(CLI::Range(0, 64));
  app.add_option("--errors", given.errors)->check(CLI::Range(0.0, 1.0));
  app.add_option("--read-mib", given.read_mib)->check(CLI::Range(0, 4096));
  app.add_flag("--forget-code", given.forgets_code);
  app.add_flag("--rehearse", given.rehearses);
  CLI11_PARSE(app, argc, argv);
  Gap gap(given);
  for (int i = 0; i < given.steps; ++i) gap.step();
  gap.print();
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::run(argc, argv); }
