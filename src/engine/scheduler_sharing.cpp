// How sequences with equal beginnings share the work: who follows whom, and what a follower takes.
#include <algorithm>

#include "engine/scheduler.h"

namespace headrace {
namespace {

constexpr int32_t kMaxLeaders = 4;  // that a sequence follows, one after another

}  // namespace

// What a sequence has to compute next: after a prefix that it finds, tokens up to `end`.
struct Scheduler::Next {
  KvCache::Found found;
  int64_t end = 0;
};

// Tokens that may be found in the cache, and one more: something is left to compute.
std::span<const int32_t> Scheduler::findable(const Sequence& sequence) const {
  return std::span(sequence.tokens).first(static_cast<size_t>(sequence.first_wanted_row() + 1));
}

// The blocks of its prompt, from the beginning, whose scores are kept.
KvCache::Found Scheduler::find_scores(const Sequence& sequence) const {
  KvCache::Found found{0, sequence.root};
  const int num_top = *sequence.request.num_prompt_logprobs;
  for (int64_t end = kBlockTokens; end <= sequence.num_prompt; end += kBlockTokens) {
    const Digest name = kv_.extend(found.name, sequence.tokens.data() + end - kBlockTokens);
    if (!scores_.contains(name, num_top)) break;
    found = {found.num_blocks + 1, name};
  }
  return found;
}

void Scheduler::take_kept_scores(Sequence* sequence) {
  if (!sequence->lacks_scores() || scores_.num_blocks() == 0) return;
  Digest name = sequence->root;
  const int num_top = *sequence->request.num_prompt_logprobs;
  for (int64_t end = kBlockTokens; end <= sequence->num_prompt; end += kBlockTokens) {
    const int64_t first = end - kBlockTokens;
    name = kv_.extend(name, sequence->tokens.data() + first);
    const auto wanted =
        std::span(sequence->prompt_logprobs).subspan(static_cast<size_t>(first), kBlockTokens);
    if (!scores_.read(name, num_top, wanted)) return;
    sequence->num_scored = std::max(sequence->num_scored, static_cast<int32_t>(end - 1));
    sequence->num_stored = std::max(sequence->num_stored, static_cast<int32_t>(end / kBlockTokens));
  }
}

// Those of whole blocks that are published: their bytes are verified, their names are there.
void Scheduler::keep_scores(Sequence* sequence) {
  const int64_t num_ready =
      std::min((int64_t{sequence->num_scored} + 1) / kBlockTokens, sequence->table.num_published);
  for (int64_t i = sequence->num_stored; i < num_ready; ++i) {
    const auto first = static_cast<size_t>(i * kBlockTokens);
    scores_.put(sequence->table.name(i + 1), *sequence->request.num_prompt_logprobs,
                std::span(sequence->prompt_logprobs).subspan(first, kBlockTokens));
    sequence->num_stored = static_cast<int32_t>(i + 1);
  }
}

// Takes a copy of the next block of who has computed it, or what is kept of it.
void Scheduler::fork_leader(Sequence* sequence) {
  const BlockTable& table = sequence->table;
  const int64_t row = sequence->first_wanted_row();
  const Next next{{table.num_published, table.name(table.num_published)},
                  std::min((table.num_published + 1) * kBlockTokens, row)};
  const Sequence* leader = find_leader(*sequence, next);
  if (leader != nullptr && leader->num_computed >= next.end) {
    sequence->num_computed = kv_.fork(leader->table, next.end, &sequence->table);
  } else {
    sequence->num_computed = kv_.fork_cached(findable(*sequence), &sequence->table);
  }
}

// One that scores its prompt goes on after what is scored: to the end of the next whole block. The
// others go on after what is cached: to the end of the next block, or to their last token, whose
// row is wanted.
Scheduler::Next Scheduler::next_of(const Sequence& sequence) const {
  if (sequence.lacks_scores()) {
    const KvCache::Found found = find_scores(sequence);
    const int64_t end = (found.num_blocks + 1) * kBlockTokens;
    return {found, end <= sequence.num_prompt ? end : 0};
  }
  const KvCache::Found found = kv_.peek(sequence.tokens, sequence.root);
  return {found, std::min((found.num_blocks + 1) * kBlockTokens, sequence.num_known() - 1)};
}

// Whether blocks computed now are of use to a later token: a rope table that changes with every
// token gives none that can be found again, and publishing them would evict others.
bool Scheduler::publishes(const Sequence& sequence) const {
  const int64_t known = sequence.num_known();
  return options_.rope_epoch(known + 1) == sequence.rope_epoch ||
         (known > 1 && options_.rope_epoch(known - 1) == sequence.rope_epoch);
}

// Whether a waiting sequence waits for blocks that the tier brings. Not longer than computing them
// would take.
bool Scheduler::awaits_tier(Sequence* sequence) {
  if (options_.tier == nullptr) return false;
  if (!sequence->asked_tier) ask_tier(sequence);
  if (sequence->tier_ticket == 0) return false;
  const bool is_done = options_.tier->is_done(sequence->tier_ticket);
  if (!is_done && planned_us_ < sequence->tier_patience_ends) return awaits_tier_ = true;
  stats_.num_late_fetches += is_done ? 0 : 1;
  sequence->tier_ticket = 0;
  return false;
}

void Scheduler::ask_tier(Sequence* sequence) {
  sequence->asked_tier = true;
  const KvCache::Deeper deeper = kv_.find_deeper(findable(*sequence), sequence->root);
  if (deeper.blocks.empty()) return;
  if (!tier_cost_.pays(deeper.num_tokens, std::ssize(deeper.blocks) * options_.tier->read_us())) {
    ++stats_.num_refusals;
    return;
  }
  sequence->tier_ticket = options_.tier->fetch(deeper.blocks);
  sequence->tier_patience_ends = planned_us_ + tier_cost_.patience(deeper.num_tokens);
  stats_.num_fetches += sequence->tier_ticket != 0 ? 1 : 0;
}

// Whether a waiting sequence goes on waiting: for the tier, or for a leader, maybe a new one.
bool Scheduler::follows(Sequence* sequence) {
  // What is pooled it computes by itself.
  if (!sequence->lacks_scores() && sequence->first_wanted_row() < sequence->num_known() - 1) {
    return false;
  }
  if (awaits_tier(sequence)) return true;
  if (sequence->leader_id != 0) {
    const Sequence* leader = find(sequence->leader_id);
    const bool leads = leader != nullptr && leader->running && leader->root == sequence->root &&
                       leader->num_computed < sequence->awaited_tokens;
    if (leads) return stats_.num_steps < sequence->patience_ends;
  }
  if (sequence->num_leaders >= kMaxLeaders || running_.empty()) return false;
  const Next next = next_of(*sequence);
  const Sequence* leader = find_leader(*sequence, next);
  if (leader == nullptr || leader->num_computed >= next.end) return false;
  const bool scores = sequence->lacks_scores();
  const int64_t limit = scores ? std::min(sequence->num_prompt, leader->num_prompt)
                               : std::min(sequence->num_known() - 1, leader->num_known());
  const auto differ = std::mismatch(sequence->tokens.begin(), sequence->tokens.begin() + limit,
                                    leader->tokens.begin());
  const int64_t num_common = differ.first - sequence->tokens.begin();
  sequence->leader_id = leader->id;
  sequence->awaited_tokens = !scores && num_common == sequence->num_known() - 1
                                 ? num_common
                                 : num_common / kBlockTokens * kBlockTokens;
  ++sequence->num_leaders;
  // Four times as long as the leader needs alone, in steps such as the last.
  const int64_t num_missing = sequence->awaited_tokens - leader->num_computed;
  const int64_t per_step =
      scores ? std::min<int64_t>(chunk_tokens_, options_.max_logit_rows) : chunk_tokens_;
  sequence->patience_ends =
      stats_.num_steps + 4 * static_cast<uint64_t>(1 + num_missing / per_step);
  return true;
}

// Whether it computes what the sequence has to compute next: with the scores that are wanted of it.
bool Scheduler::leads(const Sequence& leader, const Sequence& sequence, const Next& next) const {
  if (sequence.lacks_scores() &&
      (leader.num_prompt < next.end ||
       leader.request.num_prompt_logprobs.value_or(-1) < *sequence.request.num_prompt_logprobs)) {
    return false;
  }
  const int64_t first = next.found.num_blocks * kBlockTokens;
  const BlockTable& table = leader.table;
  return leader.root == sequence.root && table.num_published >= next.found.num_blocks &&
         table.name(next.found.num_blocks) == next.found.name && leader.num_known() >= next.end &&
         std::equal(sequence.tokens.begin() + first, sequence.tokens.begin() + next.end,
                    leader.tokens.begin() + first) &&
         publishes(leader);
}

const Sequence* Scheduler::find_leader(const Sequence& sequence, const Next& next) const {
  if (next.end <= next.found.num_blocks * kBlockTokens) return nullptr;
  for (const Sequence* leader : running_) {
    if (leads(*leader, sequence, next)) return leader;
  }
  return nullptr;
}

}  // namespace headrace
