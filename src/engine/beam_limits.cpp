#include "engine/beam_limits.h"

#include "backend/backend.h"

namespace headrace {

int64_t BeamLimits::most_blocks(int32_t width, int64_t num_prompt, int64_t num_tokens) const {
  int64_t shared = 0;
  for (const CacheRule& rule : rules) {
    const bool is_full = rule.policy == CachePolicy::kFull;
    shared += is_full && shares_prompt ? num_prompt / kBlockTokens * rule.num_columns : 0;
  }
  return width * headrace::most_blocks(rules, num_tokens, max_chunk) - (width - 1) * shared;
}

int64_t BeamLimits::longest(int32_t width, int64_t num_prompt, int64_t max_tokens) const {
  int64_t fits = num_prompt;
  for (int64_t past = max_tokens + 1; past - fits > 1;) {
    const int64_t middle = fits + (past - fits) / 2;
    (most_blocks(width, num_prompt, middle) <= num_blocks ? fits : past) = middle;
  }
  return fits > num_prompt ? fits : 0;
}

}  // namespace headrace
