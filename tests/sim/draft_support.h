// What tests of guesses and masks share: a core driven to its end on one thread, a drafter that
// knows what will come and errs on purpose, a constraint that forbids by position.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/constraint.h"
#include "engine/drafter.h"
#include "engine/engine_core.h"
#include "engine/step_runner.h"
#include "sim/collector.h"
#include "sim/fake_model.h"

namespace headrace {

// Guesses the answers it is told, with errors: of the guess at position p, error_at(p) decides.
class TellingDrafter final : public Drafter {
 public:
  TellingDrafter(std::vector<std::vector<int32_t>> answers, int32_t vocab_size,
                 uint64_t errors_per_8)
      : answers_(std::move(answers)), vocab_size_(vocab_size), errors_per_8_(errors_per_8) {}

  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) tell(*task.sequence, task.max_tokens, &task.draft.token_ids);
    return 0;
  }

 private:
  void tell(const Sequence& sequence, int32_t max_tokens, std::vector<int32_t>* draft) const {
    const std::vector<int32_t>& answer = answers_[static_cast<size_t>(sequence.id - 1)];
    for (int32_t i = 0; i < max_tokens; ++i) {
      const auto index = static_cast<size_t>(sequence.num_output() + i);
      if (index >= answer.size()) return;
      const uint64_t bits = mix_bits(sequence.id * 1000 + index);
      const bool errs = bits % 8 < errors_per_8_;
      draft->push_back(errs ? (answer[index] + 1) % vocab_size_ : answer[index]);
    }
  }

  const std::vector<std::vector<int32_t>> answers_;  // by request, the first is 1
  const int32_t vocab_size_;
  const uint64_t errors_per_8_;
};

// After n tokens, tokens with (id + n + salt) % 3 == 0 are forbidden.
class EveryThirdForbidden final : public Constraint {
 public:
  explicit EveryThirdForbidden(int64_t salt) : salt_(salt) {}

  static bool allows(int64_t salt, int64_t num_tokens, int64_t id) {
    return (id + num_tokens + salt) % 3 != 0;
  }
  void fill_mask(std::span<uint64_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    for (size_t id = 0; id < mask.size() * 64; ++id) {
      if (!allows(salt_, num_tokens_, static_cast<int64_t>(id))) continue;
      mask[id / 64] |= uint64_t{1} << (id % 64);
    }
  }
  void accept(int32_t token_id) override {
    EXPECT_TRUE(allows(salt_, num_tokens_, token_id)) << "token " << token_id << " is forbidden";
    ++num_tokens_;
  }
  void rollback(int32_t num_tokens) override {
    num_tokens_ -= num_tokens;
    EXPECT_GE(num_tokens_, 0);
  }

 private:
  const int64_t salt_;
  int64_t num_tokens_ = 0;
};

struct CoreRun {
  std::vector<Collector> collectors;  // in the order of the requests
  SchedulerStats stats;
};

// All requests at once, from first to last event. salts: of a constraint per request; empty: none.
inline CoreRun run_core(Model& model, Backend& backend, SchedulerOptions options,
                        const std::vector<Request>& requests, std::vector<int64_t> salts = {}) {
  options.vocab_size = model.config().vocab_size;
  options.cache_rules = plan_cache(model.cache_groups(), backend).rules;
  options.rope_epoch = [&model](int64_t count) { return model.rope_epoch(count); };
  auto runner = StepRunner::create(model, backend, options).value();
  EngineCore core(options, {runner->kv_type(), runner->kv_block_bytes()}, nullptr);
  CoreRun run;
  run.collectors.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    run.collectors[i] = Collector();
    Request request = requests[i];
    if (!salts.empty()) request.constraint = std::make_shared<EveryThirdForbidden>(salts[i]);
    core.admit({i + 1, std::move(request), run.collectors[i].sink(), 1});
  }
  for (TimeUs now = 2; !core.idle(); ++now) {
    const StepPlan& plan = core.plan(now);
    runner->scrub(core.take_tainted_blocks());
    runner->copy(core.take_block_copies());
    runner->launch(plan);
    core.fill_masks();
    core.commit(runner->finish(), now);
    const Status sound = core.scheduler().check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    while (core.has_events()) {
      core.count_events();
      core.deliver_events(now, [](RequestId) {});
    }
  }
  run.stats = core.scheduler().stats();
  return run;
}

inline std::vector<std::vector<int32_t>> outputs_of(const CoreRun& run) {
  std::vector<std::vector<int32_t>> outputs;
  for (const Collector& collector : run.collectors) outputs.push_back(collector.output());
  return outputs;
}

}  // namespace headrace
