// How sequences with equal beginnings share the work: who follows whom, and what a follower takes.
#include <algorithm>

#include "engine/scheduler.h"

namespace headrace {
namespace {

constexpr int32_t kMaxLeaders = 4;  // that a sequence follows, one after another

// Where the next block of a sequence ends of which so many are found, or all of its tokens but the
// last, whose row is wanted.
int64_t end_of_next(const Sequence& sequence, int64_t num_found) {
  return std::min((num_found + 1) * kBlockTokens, sequence.num_known() - 1);
}

}  // namespace

// Takes a copy of the next block of who has computed it, or what is kept of it.
void Scheduler::fork_leader(Sequence* sequence) {
  const BlockTable& table = sequence->table;
  const KvCache::Found found{table.num_published, table.name(table.num_published)};
  const Sequence* leader = find_leader(*sequence, found);
  const int64_t end = end_of_next(*sequence, found.num_blocks);
  if (leader != nullptr && leader->num_computed >= end) {
    sequence->num_computed = kv_.fork(leader->table, end, &sequence->table);
  } else {
    sequence->num_computed = kv_.fork_cached(sequence->tokens, &sequence->table);
  }
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
  const KvCache::Deeper deeper = kv_.find_deeper(sequence->tokens, sequence->root);
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
  if (sequence->wants_earlier_rows()) return false;  // computes all by itself
  if (awaits_tier(sequence)) return true;
  if (sequence->leader_id != 0) {
    const Sequence* leader = find(sequence->leader_id);
    const bool leads = leader != nullptr && leader->running && leader->root == sequence->root &&
                       leader->num_computed < sequence->awaited_tokens;
    if (leads) return stats_.num_steps < sequence->patience_ends;
  }
  if (sequence->num_leaders >= kMaxLeaders || running_.empty()) return false;
  const KvCache::Found found = kv_.peek(sequence->tokens, sequence->root);
  const Sequence* leader = find_leader(*sequence, found);
  const int64_t end = end_of_next(*sequence, found.num_blocks);
  if (leader == nullptr || leader->num_computed >= end) return false;
  const int64_t limit = std::min(sequence->num_known() - 1, leader->num_known());
  const auto differ = std::mismatch(sequence->tokens.begin(), sequence->tokens.begin() + limit,
                                    leader->tokens.begin());
  const int64_t num_common = differ.first - sequence->tokens.begin();
  sequence->leader_id = leader->id;
  sequence->awaited_tokens = num_common == sequence->num_known() - 1
                                 ? num_common
                                 : num_common / kBlockTokens * kBlockTokens;
  ++sequence->num_leaders;
  // Four times as long as the leader needs alone, in steps such as the last.
  const int64_t num_missing = sequence->awaited_tokens - leader->num_computed;
  sequence->patience_ends =
      stats_.num_steps + 4 * static_cast<uint64_t>(1 + num_missing / chunk_tokens_);
  return true;
}

// A running sequence that has the same tokens in the block that this one has to compute next, up to
// its last token, which is always computed.
const Sequence* Scheduler::find_leader(const Sequence& sequence,
                                       const KvCache::Found& found) const {
  const int64_t first = found.num_blocks * kBlockTokens;
  const int64_t end = end_of_next(sequence, found.num_blocks);
  if (end <= first) return nullptr;
  const auto begin = sequence.tokens.begin();
  for (const Sequence* leader : running_) {
    const BlockTable& table = leader->table;
    if (leader->root == sequence.root && table.num_published >= found.num_blocks &&
        table.name(found.num_blocks) == found.name && leader->num_known() >= end &&
        std::equal(begin + first, begin + end, leader->tokens.begin() + first) &&
        publishes(*leader)) {
      return leader;
    }
  }
  return nullptr;
}

}  // namespace headrace
