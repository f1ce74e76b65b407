// Constraint: which tokens may follow, as a mask over the vocabulary. One object per request.
//
// Called by the engine, one call at a time, partly while a forward pass runs; must not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

// A mask has a bit per token, token i is bit i % 64 of word i / 64.
inline size_t mask_words(int64_t vocab_size) { return (static_cast<size_t>(vocab_size) + 63) / 64; }
inline bool mask_allows(const uint64_t* mask, int32_t token_id) {
  return (mask[static_cast<size_t>(token_id) / 64] >> (static_cast<size_t>(token_id) % 64) & 1) !=
         0;
}

class Constraint {
 public:
  virtual ~Constraint() = default;
  // Sets the bits of the tokens that may come next and clears the others; bits past the vocabulary
  // are ignored. With none set the request ends with an error.
  virtual void fill_mask(std::span<uint64_t> mask) = 0;
  // The token came; it was allowed by the mask. End and stop tokens are not told.
  virtual void accept(int32_t token_id) = 0;
  // Takes back the last num_tokens accepted.
  virtual void rollback(int32_t num_tokens) = 0;
  // What was accepted is complete and nothing may follow: the request ends, as with an end token.
  virtual bool is_finished() const { return false; }
  // Appends at most max_tokens tokens that are likely to come because hardly anything else may;
  // maybe none. A function of what was accepted. They are guesses as a drafter's.
  virtual void propose(int32_t /*max_tokens*/, std::vector<int32_t>* /*draft*/) {}
};

}  // namespace headrace
