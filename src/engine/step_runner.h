// StepRunner: carries a plan out. Builds the batch, runs the model, samples and scores.
//
// Owns the KV bytes, the logits and the sampler. Memory is allocated at creation. Engine thread
// only.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace headrace {

class StepRunner {
 public:
  // options: the scheduler's. Model and backend outlive the runner. kExhausted when memory is
  // short.
  static Result<std::unique_ptr<StepRunner>> create(Model& model, Backend& backend,
                                                    const SchedulerOptions& options);

  // results[i] belongs to plan.spans[i]; valid until the next call.
  std::span<SpanResult> run(const StepPlan& plan);
  // How keys and values are stored.
  std::string_view kv_type() const;
  size_t kv_block_bytes() const { return kv_.block_bytes(); }
  // Zeroes blocks that nobody holds.
  void scrub(std::span<const int32_t> block_ids);
  // In this order.
  void copy(std::span<const BlockCopy> copies);

 private:
  StepRunner(Model& model, Backend& backend, const SchedulerOptions& options, KvStore kv,
             DeviceMemory logits);
  void build_batch(const StepPlan& plan);
  Status check_rows(const Span& span) const;
  Status fill_result(const Sequence& sequence, const Span& span, const float** logits,
                     const BestOutput** best, SpanResult* result);
  Status score_prompt(const Sequence& sequence, const Span& span, const float* logits,
                      SpanResult* result);
  Status sample_next(const Sequence& sequence, const float* logits, SpanResult* result);
  SampleContext context_of(const Sequence& sequence) const;
  bool samples_best(const Sequence& sequence) const;

  Model& model_;
  Backend& backend_;
  const std::vector<int32_t> end_ids_;
  const int64_t vocab_size_;
  KvStore kv_;
  DeviceMemory logits_;  // float [max_logit_rows, vocab_size]
  Sampler sampler_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> logit_rows_;
  std::vector<int32_t> best_rows_;  // sampled rows whose logits nobody reads
  std::vector<BestOutput> best_;
  std::unique_ptr<bool[]> finite_;  // [max_batch_tokens]
  std::vector<SpanResult> results_;
};

}  // namespace headrace
