// Sequence: one request inside the engine, as tokens known and tokens computed.
//
// A step closes part of the gap between the two; prefill, decode and recomputation are that one
// thing. Owned by the scheduler; engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/beam_search.h"
#include "engine/draft.h"
#include "engine/kv_cache.h"
#include "engine/loop_watch.h"
#include "engine/pool.h"
#include "engine/request.h"
#include "engine/token_history.h"

namespace headrace {

struct Client;  // waiting_room.h

struct Sequence {
  RequestId id = 0;
  uint64_t order = 0;           // of admission; smaller is older
  TimeUs place_us = 0;          // in the line of its client (waiting_room.h)
  Client* client = nullptr;     // while it waits or runs; of beams that of the first
  TimeUs queue_ends = 0;        // it has started by then, or ends; 0: no limit
  TimeUs ends = 0;              // it is finished by then, or ends; 0: no limit
  Request request;              // prompt_ids has moved to tokens
  std::vector<int32_t> tokens;  // known: prompt, then output; in a step, guesses after them
  int32_t num_prompt = 0;
  int32_t num_draft = 0;           // guesses at the end of tokens: planned, not committed
  DraftGround draft_ground;        // what they rest on
  DraftRecord draft_record;        // how those of drafters fared
  int32_t num_predicted_kept = 0;  // of them from request.predicted_ids, what came
  int32_t num_forced = 0;          // guesses of its constraint so far
  int32_t num_forced_kept = 0;     // of these, what came
  int64_t max_known = 0;           // finishes with kLength when this many tokens are known
  int64_t num_computed = 0;        // tokens whose K and V are in the cache, for this rope epoch
  int64_t rope_epoch = 0;
  Digest root;                     // whose prefixes it may share: domain, rope epoch, adapter
  Digest session, parent_session;  // names, if its request names them
  BlockTable table;

  bool running = false;
  FinishReason ending = FinishReason::kNone;  // else: finishes so when the step in flight ends
  bool prompt_reported = false;  // the prompt was computed once (and its log-probs were sent)
  int32_t num_preemptions = 0;   // for want of blocks
  int32_t num_passed = 0;        // while it waits: starts of others while it lacked blocks
  uint64_t shield = 0;           // while it runs protected: which start of such a one it was
  int32_t rank = 0;              // while it runs: how many earlier ones of its client run
  double standing = 0;           // while it runs: tokens of these, by its client's part
  // While it waits for another to compute what both begin with.
  RequestId leader_id = 0;     // 0: it waits for nobody
  int64_t awaited_tokens = 0;  // that the leader is to compute
  uint64_t patience_ends = 0;  // step at which it waits no longer
  int32_t num_leaders = 0;     // it has followed so far
  // While it waits for blocks that the tier brings.
  bool asked_tier = false;        // since it waits
  uint64_t tier_ticket = 0;       // 0: it waits for none
  TimeUs tier_patience_ends = 0;  // when it waits no longer
  int32_t cached_tokens = 0;      // found in the cache when first started
  CacheMiss miss;                 // why not more
  int32_t num_scored = 0;         // prompt positions whose row has scored the token after it
  int32_t num_stored = 0;         // blocks of the prompt whose scores are kept for others, at least
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;  // one per prompt token, if asked for
  std::unique_ptr<TokenHistory> history;  // of what is known, if sampling asks for it
  double mirostat_bound = 0;              // of the next token's surprise
  LoopWatch loop_watch;
  Pool pool;               // of the prompt's states, if asked for
  int64_t num_pooled = 0;  // prompt positions before it need no row for the pool any more
  RequestTimes times;
  // A beam search is its first beam, and has these (scheduler_beams.cpp). The others are in no list
  // and have no table until they branch off.
  std::unique_ptr<BeamSearch> search;
  std::vector<std::unique_ptr<Sequence>> other_beams;
  int32_t beam_idx = 0;
  std::vector<BeamCandidate> candidates;  // of the row that the step has sampled
  std::string failure;                    // of one of the beams, in the step that is committed

  size_t num_beams() const { return 1 + other_beams.size(); }
  Sequence& beam(size_t i) { return i == 0 ? *this : *other_beams[i - 1]; }
  const Sequence& beam(size_t i) const { return i == 0 ? *this : *other_beams[i - 1]; }
  bool has_table() const { return !table.columns.empty(); }
  // Rows that it may have in one step, but for guesses.
  int32_t num_slots() const { return std::max(1, request.beams.width); }

  int64_t num_known() const { return static_cast<int64_t>(tokens.size()) - num_draft; }
  int64_t gap() const { return num_known() - num_computed; }
  // All but one token of the gap have been computed before: a step that closes it is a decode.
  bool lacks_one() const { return gap() == 1 + table.num_taken_back(); }
  // Where most of them were wrong (a model that cuts texts into other tokens), there are no more.
  bool takes_forced() const { return num_forced < 32 || 2 * num_forced_kept >= num_forced; }
  int32_t num_output() const { return static_cast<int32_t>(num_known()) - num_prompt; }
  std::span<const int32_t> output() const {
    return std::span(tokens).subspan(static_cast<size_t>(num_prompt),
                                     static_cast<size_t>(num_output()));
  }
  bool scores_prompt() const { return request.num_prompt_logprobs.has_value(); }
  bool samples() const { return request.max_tokens > 0; }
  // Whether logits are looked at for its tokens, not the best token alone taken: about what costs.
  bool draws() const {
    return request.sampling.temperature > 0 || request.beams.width > 0 || request.num_logprobs ||
           request.constraint != nullptr;
  }
  // Prompt positions whose rows are wanted for scoring: all but the last.
  int32_t num_to_score() const { return scores_prompt() ? num_prompt - 1 : 0; }
  PromptRange to_pool() const { return pooled_range(request.pooling, num_prompt); }
  // The first row that is computed, found in the cache or not: that of the last token, or the first
  // that still has to score the prompt or to be pooled.
  int64_t first_wanted_row() const {
    int64_t row = num_known() - 1;
    if (lacks_scores()) row = std::min<int64_t>(row, num_scored);
    const PromptRange range = to_pool();
    const int64_t first_pooled = std::max(num_pooled, range.first);
    if (first_pooled < std::min<int64_t>(range.end, num_prompt - 1))
      row = std::min(row, first_pooled);
    return row;
  }
  bool lacks_scores() const { return num_scored < num_to_score(); }
};

// The order within a client: earlier in its line, else older. Beams of a search in theirs.
inline bool comes_before(const Sequence* a, const Sequence* b) {
  if (a->place_us != b->place_us) return a->place_us < b->place_us;
  return a->order != b->order ? a->order < b->order : a->beam_idx < b->beam_idx;
}

}  // namespace headrace
