// ModelDrafter: a smaller model with the same vocabulary guesses what the larger one will say.
//
// It has keys, values and a prefix cache of its own, and keeps for each sequence a shadow: the
// same tokens, then its guesses. What a request samples with, the draft's draws are made with too,
// seed and position included, so that equal distributions give equal tokens. A prompt is caught up
// with in chunks, one at a time it is asked; until then the sequence has no guesses. Guesses never
// reach the cache. Engine thread, between steps; owns its KV bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/step_runner.h"

namespace headrace {

class ModelDrafter final : public Drafter {
 public:
  // target: the scheduler's of the engine it is for; its context, sequences and steps are the
  // draft's. Model and backend outlive the drafter. kInvalidArgument, with the reason, when the
  // model keeps state, which cannot take guesses back; kExhausted when memory is short.
  static Result<std::unique_ptr<ModelDrafter>> create(Model& model, Backend& backend,
                                                      const SchedulerOptions& target);

  int32_t propose(std::span<DraftTask> tasks) override;
  void forget(RequestId id) override;

 private:
  // Its guesses are known tokens; running: it has blocks; ending: it gets no guesses any more.
  using Shadow = Sequence;

  ModelDrafter(Model& model, SchedulerOptions options, int64_t target_vocab_size,
               std::unique_ptr<StepRunner> runner);
  Shadow* shadow_of(const Sequence& sequence);
  void follow(const Sequence& sequence, Shadow* shadow);
  void restart(Shadow* shadow);
  bool make_room(int32_t max_guesses, Shadow* shadow);
  void leave(Shadow* shadow);
  void add_span(size_t task_idx, int32_t max_rows);
  void run(std::span<DraftTask> tasks);
  void take(const SampledToken& sampled, size_t task_idx, Draft* draft);
  void fail(Shadow* shadow);

  Model& model_;
  const SchedulerOptions options_;
  const int64_t target_vocab_size_;
  const std::unique_ptr<StepRunner> runner_;
  KvCache kv_;
  std::map<RequestId, Shadow> shadows_;
  // Of the call: by task, null: it gets no guesses; and of its step.
  std::vector<Shadow*> asked_;
  StepPlan plan_;
  std::vector<size_t> planned_;  // the task of each span
};

}  // namespace headrace
