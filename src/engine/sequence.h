// Sequence: one request inside the engine, as tokens known and tokens computed.
//
// A step closes part of the gap between the two; prefill, decode and recomputation are that one
// thing. Owned by the scheduler; engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/request.h"

namespace headrace {

struct Sequence {
  RequestId id = 0;
  uint64_t order = 0;           // of admission; smaller is older
  Request request;              // prompt_ids has moved to tokens
  std::vector<int32_t> tokens;  // known: prompt, then output
  int32_t num_prompt = 0;
  int64_t max_known = 0;     // finishes with kLength when this many tokens are known
  int64_t num_computed = 0;  // tokens whose K and V are in the cache, for this rope epoch
  int64_t rope_epoch = 0;
  BlockTable table;

  bool running = false;
  bool cancelled = false;        // finishes when the step in flight ends
  bool prompt_reported = false;  // the prompt was computed once (and its log-probs were sent)
  int32_t num_preemptions = 0;
  int32_t cached_tokens = 0;  // found in the cache when first started
  int32_t num_scored = 0;     // prompt positions whose row has scored the token after it
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;  // one per prompt token, if asked for
  RequestTimes times;

  int64_t num_known() const { return static_cast<int64_t>(tokens.size()); }
  int64_t gap() const { return num_known() - num_computed; }
  int32_t num_output() const { return static_cast<int32_t>(tokens.size()) - num_prompt; }
  bool scores_prompt() const { return request.num_prompt_logprobs.has_value(); }
  bool samples() const { return request.max_tokens > 0; }
  // Prompt positions whose rows are wanted for scoring: all but the last.
  int32_t num_to_score() const { return scores_prompt() ? num_prompt - 1 : 0; }
};

}  // namespace headrace
