// Drafter: guesses the next tokens of a sequence, so that one step can verify several.
//
// A guess decides how fast a sequence moves, never what it says: a step samples at every guessed
// position with the draw that belongs there, and keeps the guesses that equal it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"

namespace headrace {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Appends at most max_tokens guesses at what follows the sequence's tokens; maybe none. A
  // function of the sequence alone: steps can be replayed. Engine thread: must not block.
  virtual void propose(const Sequence& sequence, int32_t max_tokens,
                       std::vector<int32_t>* draft) const = 0;
};

}  // namespace headrace
