// TokenHistory: what penalties and DRY ask of a sequence's tokens, kept up token by token.
//
// Counts of each token and an index of the earlier places of each run of allowed_length tokens, so
// that a step costs what is new and not the whole text. Tokens behind those that it knows (guesses
// that are being verified) are looked at beside it: the result is a pure function of the tokens,
// whatever of them is known. Owned by its sequence; extended on the engine thread between steps,
// read by several at once within one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headrace {

inline constexpr float kLargestLogit = 1e30f;  // nothing pushes a logit further
inline constexpr int32_t kMaxDryAllowed = 64;
inline constexpr int32_t kMaxDryLength = 256;  // longer repetitions count as this long
inline constexpr int32_t kMaxDryPlaces = 256;  // earlier places that are looked at

// Positions or numbers by 64-bit keys; open addressing.
class KeyIndex {
 public:
  // The place of the key's value; -1 where it is new.
  int32_t& at(uint64_t key);
  // -1: no such key.
  int32_t find(uint64_t key) const;

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t value = -1;
    bool used = false;
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t num_used_ = 0;
};

class TokenHistory {
 public:
  // Whether the request asks anything of it.
  static bool is_needed(const SamplingParams& sampling);
  // `sampling` outlives it.
  TokenHistory(const SamplingParams& sampling, int32_t num_prompt);

  // The tokens that are known now, those of before at their beginning.
  void extend(std::span<const int32_t> tokens);
  // Changes the logits of the token after `tokens`: those that are known, and maybe more.
  void penalise(std::span<const int32_t> tokens, float* logits) const;

 private:
  struct Seen {
    int32_t id = 0;
    int32_t num_output = 0;  // times in the output
  };
  struct Repeat {
    int32_t next_id = 0;
    int32_t length = 0;
  };

  bool counts() const;
  bool is_breaker(int32_t id) const;
  void index_run(std::span<const int32_t> tokens);
  void add_penalties(std::span<const int32_t> tokens, float* logits) const;
  void penalise_token(const Seen& seen, float* logits) const;
  void add_dry(std::span<const int32_t> tokens, float* logits) const;
  int32_t repeated_length(std::span<const int32_t> tokens, size_t last) const;
  std::vector<Repeat> find_repeats(std::span<const int32_t> tokens) const;

  const SamplingParams& sampling_;
  const size_t num_prompt_;
  size_t size_ = 0;  // tokens known
  std::vector<Seen> seen_;
  KeyIndex seen_index_;            // into seen_
  KeyIndex runs_;                  // where a run of tokens ended last
  std::vector<int32_t> previous_;  // [size_] where the run that ends here ended before; -1: nowhere
};

}  // namespace headrace
