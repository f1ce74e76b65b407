// Drafter: guesses the next tokens of sequences, so that one step can verify several.
//
// A guess decides how fast a sequence moves, never what it says: a step samples at every guessed
// position with the draw that belongs there, and keeps the guesses that equal it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/draft.h"
#include "engine/sequence.h"

namespace headrace {

struct DraftTask {
  const Sequence* sequence = nullptr;
  int32_t max_tokens = 0;  // at least 1
  Draft draft = {};        // empty; the drafter's answer
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Fills each draft with at most max_tokens guesses at what follows the sequence's known tokens;
  // maybe none. A function of what the sequences are and were when it was asked before: steps can
  // be replayed. Engine thread, between steps. Returns how many times a model ran for guesses
  // alone.
  virtual int32_t propose(std::span<DraftTask> tasks) = 0;
  // Of the guesses of a costly one (SchedulerOptions::model_drafter).
  virtual DraftSource source() const { return DraftSource::kModel; }
  // Whether it learns from what steps compute: then it is told of their rows, and asked to keep up.
  virtual bool wants_states() const { return false; }
  // States after the final norm, [n, hidden_size], of the sequence's positions from first_position
  // on, whose tokens are known to be right. Engine thread, while a step is committed.
  virtual void observe(const Sequence& /*sequence*/, int64_t /*first_position*/,
                       std::span<const float> /*states*/) {}
  // Works off what it has been told of prompts, or, where may_run is false, forgets it. Between
  // steps. Returns how many times a model ran.
  virtual int32_t keep_up(std::span<Sequence* const> /*sequences*/, bool /*may_run*/) { return 0; }
  // Asks for the memory that the next propose() will read, before it is needed.
  virtual void touch() const {}
  // The sequence has ended; its id never comes again.
  virtual void forget(RequestId /*id*/) {}
};

}  // namespace headrace
