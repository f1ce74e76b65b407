#include "engine/step_calibration.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headrace {
namespace {

// Tokens of prompts, each a step. Twice: the first time also brings memory and caches in.
constexpr int64_t kPromptSizes[] = {4, 16, 64, 256};
constexpr int kRepeats = 2;
constexpr int32_t kDecodeSteps = 4;
constexpr int kStreams = 8;

SchedulerOptions scratch_options(SchedulerOptions options) {
  options.kv_events = nullptr;
  options.tier = nullptr;
  options.drafter = nullptr;
  options.inter_token_target_us = 0;
  options.step_cost = {};
  return options;
}

// A scheduler of its own drives the steps, on the runner's memory.
class Measurement {
 public:
  Measurement(StepRunner& runner, const SchedulerOptions& options, TimeUs ends_us)
      : runner_(runner), scheduler_(scratch_options(options)), ends_us_(ends_us) {}

  // Prompts of this size, then tokens. Not where the time does not suffice, or the engine is
  // smaller.
  void run(int num_sequences, int64_t num_prompt, int32_t num_output) {
    const SchedulerOptions& options = scheduler_.options();
    if (num_sequences > options.max_sequences || num_prompt + num_output > options.max_context ||
        num_sequences * num_prompt > options.max_batch_tokens) {
      return;
    }
    StepLoad load;
    for (int i = 0; i < num_sequences; ++i) load.add(0, num_prompt, 1, /*draws=*/false);
    if (now_us() + static_cast<TimeUs>(cost().predict(load)) > ends_us_) return;
    for (int i = 0; i < num_sequences; ++i) admit(num_prompt, num_output);
    while (!scheduler_.idle()) step();
  }
  const StepCost& cost() const { return scheduler_.step_cost(); }

 private:
  // Tokens differ, so that experts are met as by texts. Each is of a domain of its own: nobody
  // takes blocks of another.
  void admit(int64_t num_prompt, int32_t num_output) {
    Request request;
    const int64_t num_words = std::max<int64_t>(1, scheduler_.options().vocab_size);
    for (int64_t i = 0; i < num_prompt; ++i) {
      next_token_ = (next_token_ + 7919) % num_words;
      request.prompt_ids.push_back(static_cast<int32_t>(next_token_));
    }
    request.max_tokens = num_output;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.cache_domain = std::to_string(++last_id_);
    scheduler_.admit(last_id_, std::move(request), now_us());
  }
  void step() {
    const StepPlan& plan = scheduler_.plan(now_us());
    runner_.scrub(scheduler_.take_tainted_blocks());
    runner_.launch(plan);
    const std::span<SpanResult> results = runner_.finish();
    events_.clear();
    scheduler_.commit(results, now_us(), &events_);
    scheduler_.settle();
    runner_.scrub(scheduler_.take_tainted_blocks());
  }

  StepRunner& runner_;
  Scheduler scheduler_;
  const TimeUs ends_us_;
  std::vector<Event> events_;  // nobody hears them
  int64_t next_token_ = 0;
  RequestId last_id_ = 0;
};

}  // namespace

StepCost measure_steps(StepRunner& runner, const SchedulerOptions& options,
                       std::chrono::milliseconds limit) {
  Measurement measurement(runner, options, now_us() + TimeUs{limit.count()} * 1000);
  measurement.run(1, 1, kDecodeSteps);
  for (const int64_t size : kPromptSizes) {
    for (int i = 0; i < kRepeats; ++i) measurement.run(1, size, 1);
  }
  measurement.run(kStreams, 1, kDecodeSteps);
  runner.forget_expert_rows();
  return measurement.cost();
}

}  // namespace headrace
