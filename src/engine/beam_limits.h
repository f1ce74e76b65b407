// BeamLimits: how wide and how long a beam search may be, so that it fits the KV blocks alone.
//
// Beams share the whole blocks of their prompt; the rest each has for itself. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cache_groups.h"

namespace headrace {

struct BeamLimits {
  int max_width = 1;  // each beam has a row of its own in a step
  int64_t num_blocks = 0;
  int64_t max_chunk = 512;                       // tokens of one sequence in one step
  std::vector<CacheRule> rules = {CacheRule{}};  // the model's cache groups
  // Under a rope table that changes on the way, what was shared may have to be computed anew by
  // each beam.
  bool shares_prompt = true;

  // Blocks that all beams together may hold until each has so many tokens.
  int64_t most_blocks(int32_t width, int64_t num_prompt, int64_t num_tokens) const;
  // The most tokens of a beam, prompt and output, up to max_tokens; 0: not even one of output.
  int64_t longest(int32_t width, int64_t num_prompt, int64_t max_tokens) const;
};

}  // namespace headrace
