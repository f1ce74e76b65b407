// What a step runner does while a pass ends: results are the same whether it could or not, and what
// was not called is not called later.
#include <gtest/gtest.h>

#include <atomic>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "engine/engine_core.h"
#include "engine/step_runner.h"
#include "sim/collector.h"
#include "sim/fake_model.h"

namespace headrace {
namespace {

// The fake model, whose passes end with an op on the team, or with none, as those without a head.
class EndingModel final : public Model {
 public:
  EndingModel(Backend& backend, bool has_op)
      : backend_(backend), has_op_(has_op), fake_(options_of()) {}

  const ModelConfig& config() const override { return fake_.config(); }
  const ModelOptions& options() const override { return fake_.options(); }
  std::vector<CacheGroup> cache_groups() const override { return fake_.cache_groups(); }
  int64_t rope_epoch(int64_t num_tokens) const override { return fake_.rope_epoch(num_tokens); }
  void forward(const Batch& batch, KvStore& kv, const StepOutput& output,
               const HiddenTap& tap) override {
    backend_.call_near_end(output.near_end);
    std::atomic<int64_t> sum{0};
    if (has_op_) backend_.run_on_team(64, [&](int64_t item, int) { sum += item; });
    EXPECT_EQ(sum, has_op_ ? 64 * 63 / 2 : 0);
    fake_.forward(batch, kv, output, tap);
  }

 private:
  static FakeModelOptions options_of() {
    FakeModelOptions options;
    options.max_batch_tokens = 16;
    options.max_logit_rows = 8;
    return options;
  }

  Backend& backend_;
  const bool has_op_;
  FakeModel fake_;
};

struct Heard {
  std::vector<std::vector<int32_t>> outputs;
  int64_t num_steps = 0;
  int64_t num_calls = 0;  // near the end of passes
};

// Six requests, from first to last event. Between passes the team has other work.
Heard run_all(int num_threads, bool has_op) {
  const auto backend = create_cpu_backend({.num_threads = num_threads}).value();
  EndingModel model(*backend, has_op);
  SchedulerOptions options;
  options.max_batch_tokens = 16;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = 64;
  options.max_context = 256;
  options.vocab_size = model.config().vocab_size;
  options.cache_rules = plan_cache(model.cache_groups(), *backend).rules;
  options.rope_epoch = [&model](int64_t count) { return model.rope_epoch(count); };
  const auto runner = StepRunner::create(model, *backend, options).value();
  EngineCore core(options, {runner->kv_type(), runner->kv_block_bytes()}, nullptr);
  std::vector<Collector> collectors(6);
  for (size_t i = 0; i < collectors.size(); ++i) {
    Request request;
    request.prompt_ids = {static_cast<int32_t>(i), 7, 9};
    request.max_tokens = 100;
    core.admit({i + 1, std::move(request), collectors[i].sink(), 1});
  }
  Heard heard;
  for (TimeUs now = 2; !core.idle(); ++now) {
    const StepPlan& plan = core.plan(now);
    int num_calls = 0, num_begun = 0;
    runner->launch(plan, {.at_begin = [&] { ++num_begun; }, .near_end = [&] { ++num_calls; }});
    EXPECT_EQ(num_begun, 1);
    EXPECT_LE(num_calls, has_op ? 1 : 0);
    const int called = num_calls;
    backend->run_on_team(64, [](int64_t, int) {});
    EXPECT_EQ(num_calls, called) << "the pass has ended";
    core.commit(runner->finish(), now);
    heard.num_calls += called;
    ++heard.num_steps;
    while (core.has_events()) {
      core.count_events();
      core.deliver_events(now, [](RequestId) {});
    }
  }
  for (const Collector& collector : collectors) heard.outputs.push_back(collector.output());
  return heard;
}

TEST(StepRunnerSim, ResultsAreTheSameWhereverTheyAreMadeReady) {
  const Heard alone = run_all(1, true);
  EXPECT_EQ(alone.num_calls, 0) << "nobody else computes";
  EXPECT_GT(alone.num_steps, 50);
  const Heard shared = run_all(2, true);
  EXPECT_EQ(shared.outputs, alone.outputs);
  EXPECT_EQ(shared.num_steps, alone.num_steps);
}

TEST(StepRunnerSim, WhatWasNotCalledInAPassIsNotCalledLater) {
  const Heard heard = run_all(2, false);
  EXPECT_EQ(heard.num_calls, 0);
  EXPECT_EQ(heard.outputs, run_all(1, true).outputs);
}

}  // namespace
}  // namespace headrace
