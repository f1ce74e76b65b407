// What the scheduler knows of sessions that clients name, and tells of prompts that were not found.
#include <algorithm>

#include "engine/scheduler.h"

namespace headrace {

// A name of one cache domain. Who may share a domain's prefixes may name its sessions: without keys
// a client is a connection, and the next turn of a conversation often comes over another.
Digest Scheduler::name_of_session(const Request& request, const std::string& session) const {
  if (session.empty()) return {};
  KeyedDigest digest(options_.hash_key);
  digest.add_text(request.cache_domain);
  digest.add_text(session);
  return digest.finish();
}

// Of one that just started: what it found is in its table.
CacheMiss Scheduler::explain_miss(const Sequence& sequence) {
  using Reason = CacheMiss::Reason;
  const BlockTable& table = sequence.table;
  const int64_t row = sequence.first_wanted_row();
  const auto offset = static_cast<int32_t>(sequence.num_computed);
  if (sequence.num_computed >= row) return {};
  const int64_t end = (table.num_published + 1) * kBlockTokens;
  const auto lacks_block = [&](int64_t num_tokens) { return end <= std::min(num_tokens, row); };
  const int32_t* next = sequence.tokens.data() + end - kBlockTokens;
  const bool was_evicted =
      lacks_block(row) && kv_.was_evicted(kv_.extend(table.name(table.num_published), next));
  const SessionMemory::Branch* branch =
      sequence.session == Digest{} ? nullptr : sessions_.find(sequence.session, sequence.tokens);
  if (branch == nullptr || was_evicted) {
    return {was_evicted ? Reason::kEvicted : Reason::kNone, offset};
  }
  const int64_t common = num_common_tokens(branch->tokens, sequence.tokens);
  if (branch->rope_epoch != sequence.rope_epoch) return {Reason::kRope, offset};
  if (branch->root != sequence.root) return {Reason::kAdapter, offset};
  // Its last token was not computed. With states it is kept at some positions only.
  if (kv_.can_roll_back() && lacks_block(std::min(common, std::ssize(branch->tokens) - 1))) {
    return {Reason::kEvicted, offset};
  }
  if (common >= std::min<int64_t>(std::ssize(branch->tokens), sequence.num_prompt)) return {};
  const auto at = static_cast<size_t>(common);
  return {Reason::kEdited, static_cast<int32_t>(common), branch->tokens[at], sequence.tokens[at]};
}

// Who runs an errand for a session will be asked by it again: what the session has is not left
// longer ago than this.
void Scheduler::use_parent(const Sequence& sequence) {
  if (sequence.parent_session == Digest{}) return;
  const SessionMemory::Branch* parent = sessions_.newest(sequence.parent_session);
  if (parent == nullptr) return;
  BlockTable table;
  kv_.begin(parent->root, std::ssize(parent->tokens), &table);
  kv_.match(parent->tokens, &table);
  kv_.release(&table);
}

// Of one that is about to go: its tokens go with it.
void Scheduler::remember(Sequence* sequence) {
  if (sequence->session == Digest{} || sequence->times.started == 0) return;
  sessions_.keep(
      {sequence->session, sequence->root, sequence->rope_epoch, std::move(sequence->tokens)});
}

}  // namespace headrace
