// Proves the books of the scheduler: lists, slots, tables, blocks.
#include <algorithm>

#include "engine/scheduler.h"

namespace headrace {

// Of one that runs, or of one of its beams.
Status Scheduler::check_running(const Sequence& sequence) const {
  const bool covers = sequence.has_table() ? kv_.covers(sequence.num_computed, sequence.table)
                                           : sequence.num_computed == 0 && sequence.beam_idx > 0;
  if (covers && sequence.gap() > 0 &&
      sequence.num_known() < sequence.max_known + (sequence.samples() ? 0 : 1)) {
    return {};
  }
  return make_error(ErrorCode::kInternal, "running sequence {} knows {}, has computed {}",
                    sequence.id, sequence.num_known(), sequence.num_computed);
}

// No more than max_preemptions of anybody, and each of the protected can have all that it may
// become while those after it keep what they hold.
Status Scheduler::check_protected() const {
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->num_preemptions <= options_.max_preemptions) continue;
    return make_error(ErrorCode::kInternal, "sequence {} was pre-empted {} times of {}", id,
                      sequence->num_preemptions, options_.max_preemptions);
  }
  int64_t held_after = 0;
  for (auto each = shielded_.rbegin(); each != shielded_.rend(); ++each) {
    const int64_t most = most_blocks_of(**each);
    if (most + held_after > options_.num_blocks) {
      return make_error(ErrorCode::kInternal,
                        "protected sequence {} may need {} blocks, those after it hold {} of {}",
                        (*each)->id, most, held_after, options_.num_blocks);
    }
    held_after += num_held(**each);
  }
  return {};
}

Status Scheduler::check() const {
  std::vector<const BlockTable*> tables;
  int num_slots = 0;
  for (const Sequence* sequence : running_) {
    num_slots += sequence->num_slots();
    for (size_t i = 0; i < sequence->num_beams(); ++i) {
      tables.push_back(&sequence->beam(i).table);
      TRY(check_running(sequence->beam(i)));
    }
    if (!sequence->running || std::ssize(sequence->other_beams) >= sequence->num_slots()) {
      return make_error(ErrorCode::kInternal, "sequence {} with {} beams of {}", sequence->id,
                        sequence->num_beams(), sequence->num_slots());
    }
  }
  int64_t num_waiting = 0;
  int num_running_of_clients = 0;
  for (const auto& [id, client] : room_.clients()) {
    num_waiting += std::ssize(client.waiting);
    num_running_of_clients += client.share.num_running;
    if (!std::is_sorted(client.waiting.begin(), client.waiting.end(), comes_before)) {
      return make_error(ErrorCode::kInternal, "the waiting of client {} are not in order", id);
    }
    for (const Sequence* sequence : client.waiting) {
      if (sequence->running || sequence->num_computed != 0 || !sequence->table.columns.empty()) {
        return make_error(ErrorCode::kInternal, "waiting sequence {} holds something",
                          sequence->id);
      }
    }
  }
  if (num_slots > options_.max_sequences || num_slots != num_slots_ ||
      num_running() != num_running_of_clients || num_waiting != room_.num_waiting() ||
      running_.size() + static_cast<size_t>(num_waiting) != sequences_.size() ||
      !std::is_sorted(running_.begin(), running_.end(), comes_before)) {
    return make_error(ErrorCode::kInternal, "lists of {} running, {} waiting, {} in all",
                      running_.size(), num_waiting, sequences_.size());
  }
  TRY(check_protected());
  return kv_.check(tables);
}

}  // namespace headrace
