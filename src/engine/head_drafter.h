// HeadDrafter: the model's own head for further tokens guesses (multi-token prediction).
//
// The head (Model::prediction) has keys and values of its own, of one layer, in slots: slot i is of
// a position whose state a step has computed, and of the token after it. A chain of guesses feeds
// the head its own states; these slots are taken back. What a request samples with, the draws are
// made with too, seed and position included, as ModelDrafter's are.
//
// Steps tell it the states of all their rows. Rows that an answer gives wait until guesses are
// wanted; rows of prompts are worked off between steps. Slots of whole prefixes are found again
// under the names that the network's are, so that who finds the one mostly finds the other. Of
// positions whose states it was not told (what was found is longer than what it knows, blocks were
// short) it has no slots: the head then sees what there is. This decides how good guesses are,
// never what is said. Engine thread, between steps; owns its KV bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/step_runner.h"

namespace headrace {

class HeadDrafter final : public Drafter {
 public:
  // target: the scheduler's of the engine it is for; its context, sequences and steps are the
  // head's. The model that has the head and its backend outlive the drafter. kExhausted when
  // memory is short.
  static Result<std::unique_ptr<HeadDrafter>> create(Model& head, Backend& backend,
                                                     const SchedulerOptions& target);

  DraftSource source() const override { return DraftSource::kHead; }
  bool wants_states() const override { return true; }
  void observe(const Sequence& sequence, int64_t first_position,
               std::span<const float> states) override;
  int32_t keep_up(std::span<Sequence* const> sequences, bool may_run) override;
  int32_t propose(std::span<DraftTask> tasks) override;
  void forget(RequestId id) override;

 private:
  struct Shadow {
    // What decides draws; the known tokens, then guesses; blocks, and the slots computed.
    Sequence sequence;
    int64_t num_known = 0;           // tokens that are no guesses
    std::vector<int64_t> positions;  // of the slots computed, then of the rows that wait
    std::vector<float> states;       // of the rows that wait, [n, hidden_size]
    std::vector<int32_t> token_ids;  // of the rows of the run: each the one after its position

    int64_t num_slots() const { return sequence.num_computed; }
    int64_t num_waiting() const { return std::ssize(positions) - num_slots(); }
  };
  struct Wanted {
    int64_t max_rows = 0;
    bool guess = false;  // of the last of all rows that wait
    bool state = false;  // and its state
  };

  HeadDrafter(const Model& head, SchedulerOptions options, std::unique_ptr<StepRunner> runner);
  Shadow* find(const Sequence& sequence);
  void begin(const Sequence& sequence, Shadow* shadow);
  void restart(const Sequence& sequence, Shadow* shadow);
  static void follow(const Sequence& sequence, Shadow* shadow);
  static std::span<const int32_t> inputs_of(const Shadow& shadow);
  void open(Shadow* shadow);
  void leave(Shadow* shadow);
  bool make_room(int64_t num_slots, Shadow* shadow);
  void drop_waiting(int64_t count, Shadow* shadow) const;
  bool plan_chains(std::span<const DraftTask> tasks, int32_t num_runs);
  bool add_span(const Wanted& wanted, Shadow* shadow);
  std::span<const SpanResult> run();
  bool take_rows(const SpanResult& result, const Span& span, Shadow* shadow);
  void take_guess(const SpanResult& result, size_t task_idx, Draft* draft);
  void take_back(int64_t num_slots, Shadow* shadow);
  void settle(Shadow* shadow);
  void fail(Shadow* shadow);

  const SchedulerOptions options_;
  const size_t width_;  // hidden_size
  const std::unique_ptr<StepRunner> runner_;
  KvCache kv_;
  std::map<RequestId, Shadow> shadows_;
  // Of the call: by task, null: it gets no more guesses; and of its run.
  std::vector<Shadow*> asked_;
  StepPlan plan_;
  std::vector<size_t> planned_;  // the task of each span
  std::vector<Shadow*> run_;     // whose each span is
};

}  // namespace headrace
