// StepRunner: carries a plan out. Builds the batch, runs the model, samples and scores.
//
// launch() begins the forward pass, finish() ends it and samples. A backend whose ops end later
// than their calls computes between the two; on one whose ops end with the call, launch() is the
// forward pass. Masks are read by finish() only, so they may be made meanwhile. The rows of a step
// are sampled and scored on the backend's team. Owns the KV bytes, the logits and the samplers;
// memory is allocated at creation. Engine thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine_snapshot.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace headrace {

// What the thread that launches a pass does beside it.
struct BesidePass {
  // Once, when the back end has begun (Backend::call_beside), or at the latest when the pass is
  // launched.
  std::function<void()> at_begin = [] {};
  // Once, when the pass is about to end, if then others still compute (Backend::call_near_end).
  std::function<void()> near_end = [] {};
};

class StepRunner {
 public:
  // options: the scheduler's. Model and backend outlive the runner. kExhausted when memory is
  // short.
  static Result<std::unique_ptr<StepRunner>> create(Model& model, Backend& backend,
                                                    const SchedulerOptions& options);

  // The plan stays as it is until finish(), but for its masks.
  void launch(const StepPlan& plan, const BesidePass& beside = {});
  // Asks for the memory that finish() fills, after launch().
  void touch() const;
  // results[i] belongs to the plan's spans[i]; valid until the next launch.
  std::span<SpanResult> finish();
  // As Backend::keep_apart, on the thread that steps.
  void keep_apart() { backend_.keep_apart(); }
  bool has_spare_core() const { return backend_.has_spare_core(); }
  int num_threads() const { return backend_.num_threads(); }
  // Backend::run_on_team(), of what has to be done before the pass that is launched next.
  void work_before(int64_t num_items, ItemWork work);
  // Changes while a step is computed. From any thread.
  int64_t progress() const { return backend_.num_joins(); }
  // How keys and values are stored.
  std::string_view kv_type() const;
  size_t kv_block_bytes() const { return kv_.block_bytes(); }
  // Zeroes blocks that nobody holds. Not between launch and finish.
  void scrub(std::span<const int32_t> block_ids);
  // As KvStore::num_pieces, touch_piece.
  int64_t num_pieces(int64_t num_blocks) const { return kv_.num_pieces(num_blocks); }
  void touch_piece(int64_t piece) { kv_.touch_piece(piece); }
  // In this order. Not between launch and finish.
  void copy(std::span<const BlockCopy> copies);
  // The layers with experts, and what these have had since the start. Between finish() and the next
  // launch().
  std::vector<ExpertRows> expert_layers() const;
  void read_expert_rows(std::span<ExpertRows> layers) const;
  // What they have had by now does not count.
  void forget_expert_rows();
  // Backend::watch_ops(), of the forward passes. Not between launch and finish.
  void watch_ops(std::vector<OpRecord>* records) { backend_.watch_ops(records); }
  // Between the forward pass before the last and the last: what the engine did besides computing.
  TimeUs gap_us() const { return gap_us_; }

 private:
  // A row of logits, or its best token, and what it is wanted for.
  struct RowWork {
    size_t span_idx = 0;
    int32_t index = 0;  // among the span's scored or sampled rows
    bool scores = false;
    bool has_logits = false;  // else the best token is all that is wanted
    size_t result_row = 0;    // of the logits, or of the best tokens
  };

  StepRunner(Model& model, Backend& backend, const SchedulerOptions& options, KvStore kv,
             DeviceMemory logits, DeviceMemory states);
  void build_batch();
  void add_sampled_row(size_t span_idx, int32_t index);
  void share_states();
  Status score_labels(const RowWork& work, Sampler* sampler, SampledToken* sampled);
  void prepare_results();
  void run_rows();
  Status score_row(const RowWork& work, Sampler* sampler);
  Status sample_row(const RowWork& work, Sampler* sampler);
  void check_rows(size_t span_idx);
  const float* logits_of(const RowWork& work) const {
    return logits_view_.data() + work.result_row * static_cast<size_t>(vocab_size_);
  }
  SampleContext context_of(size_t span_idx, int32_t index) const;

  Model& model_;
  Backend& backend_;
  const std::vector<int32_t> end_ids_;
  const int64_t vocab_size_;
  KvStore kv_;
  KvTier* const tier_;
  DeviceMemory logits_;                 // float [max_logit_rows, vocab_size]
  DeviceMemory states_;                 // float [max_batch_tokens, hidden_size]
  std::span<const float> logits_view_;  // of this step's rows, while they are sampled
  std::vector<Sampler> samplers_;       // rows of a step are shared among them
  RowParts parts_;                      // of each row of this step
  const StepPlan* plan_ = nullptr;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> logit_rows_;
  std::vector<int32_t> best_rows_;    // sampled rows whose logits nobody reads
  std::vector<int32_t> hidden_rows_;  // rows whose states are pooled
  std::vector<BestOutput> best_;
  std::unique_ptr<bool[]> finite_;         // [max_batch_tokens]
  std::vector<RowWork> rows_;              // all that are wanted, span by span
  bool is_prepared_ = false;               // results_ are, for this step
  std::vector<std::string> row_failures_;  // of each; empty: it is well
  std::vector<SpanResult> results_;
  std::vector<uint64_t> uncounted_expert_rows_;
  TimeUs returned_us_ = 0;  // the last forward pass
  TimeUs waited_us_ = 0;    // for its ops, since then
  TimeUs gap_us_ = 0;
};

}  // namespace headrace
