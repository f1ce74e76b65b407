// Guesses of a plan: what a constraint forces or a drafter proposes, the room for it, and the masks
// of its rows.
#include <algorithm>

#include "engine/constraint.h"
#include "engine/scheduler.h"

namespace headrace {
namespace {

// The mask of each row as if the guesses before it had come. Nothing is sampled past a guess that
// is forbidden, so the masks after it allow all.
void fill_span_masks(std::span<uint64_t> masks, std::span<const int32_t> guesses,
                     Constraint* constraint) {
  const size_t num_words = masks.size() / (guesses.size() + 1);
  int32_t num_taken = 0;
  for (size_t row = 0; row <= guesses.size(); ++row) {
    const auto mask = masks.subspan(row * num_words, num_words);
    constraint->fill_mask(mask);
    if (row == guesses.size()) break;
    if (!mask_allows(mask.data(), guesses[row])) {
      std::fill(mask.end(), masks.end(), ~uint64_t{0});
      break;
    }
    constraint->accept(guesses[row]);
    ++num_taken;
  }
  constraint->rollback(num_taken);
}

}  // namespace

// Guesses fit where every running sequence has what it wants.
void Scheduler::propose_drafts() {
  if (!kv_.can_roll_back()) return;
  int64_t num_free = options_.max_batch_tokens;
  int64_t num_free_rows = options_.max_logit_rows;
  for (const Sequence* sequence : running_) {
    num_free -= sequence->gap();
    num_free_rows -= 1 + std::max(0, sequence->num_to_score() - sequence->num_scored);
  }
  for (Sequence* sequence : running_) {
    if (sequence->gap() != 1 || !sequence->samples() || !has_guesses(*sequence) ||
        !kv_.covers(sequence->num_known(), sequence->table)) {
      continue;
    }
    const int32_t room = room_for_draft(*sequence, std::min(num_free, num_free_rows));
    if (room <= 0 || !add_draft(sequence, room)) continue;
    num_free -= sequence->num_draft;
    num_free_rows -= sequence->num_draft;
  }
}

// Mirostat's bound for a row is made of the surprise of the row before: there is none to verify.
bool Scheduler::has_guesses(const Sequence& sequence) const {
  if (sequence.request.sampling.mirostat) return false;
  const bool forced = sequence.request.constraint != nullptr && sequence.takes_forced();
  return options_.drafter != nullptr || (forced && options_.max_forced_tokens > 0);
}

// The token after the last guess still has a place, and the rope table of all of them is one.
int32_t Scheduler::room_for_draft(const Sequence& sequence, int64_t limit) const {
  const int64_t known = sequence.num_known();
  int64_t room =
      std::min<int64_t>({limit, std::max(options_.max_draft_tokens, options_.max_forced_tokens),
                         sequence.max_known - known - 1});
  while (room > 0 && options_.rope_epoch(known + room) != sequence.rope_epoch) --room;
  return static_cast<int32_t>(room);
}

// What the constraint forces, or else what the drafter guesses.
void Scheduler::guess(Sequence* sequence, int32_t max_tokens) {
  draft_.clear();
  Constraint* constraint = sequence->request.constraint.get();
  if (constraint != nullptr && sequence->takes_forced()) {
    constraint->propose(std::min(max_tokens, options_.max_forced_tokens), &draft_);
  }
  sequence->draft_is_forced = !draft_.empty();
  max_tokens = std::min(max_tokens, options_.max_draft_tokens);
  if (!draft_.empty() || options_.drafter == nullptr || max_tokens <= 0) return;
  options_.drafter->propose(*sequence, max_tokens, &draft_);
}

// Guesses take no block that a running sequence may want next.
bool Scheduler::add_draft(Sequence* sequence, int32_t max_tokens) {
  guess(sequence, max_tokens);
  const auto count = static_cast<int32_t>(draft_.size());
  CHECK(count <= max_tokens, "{} guesses, {} were asked for", count, max_tokens);
  if (count == 0) return false;
  const int64_t end = sequence->num_known() + count;
  const int64_t missing = kv_.missing(end, sequence->table);
  const int64_t spare = missing > 0 ? int64_t{num_running()} * kv_.num_columns() : 0;
  if (missing + spare > kv_.pool().num_available() || !may_take(*sequence, missing) ||
      !kv_.reserve(end, &sequence->table)) {
    return false;
  }
  sequence->tokens.insert(sequence->tokens.end(), draft_.begin(), draft_.end());
  sequence->num_draft = count;
  stats_.draft_tokens += static_cast<uint64_t>(count);
  return true;
}

// Rows that sample under a constraint get their masks in order.
void Scheduler::assign_masks() {
  const size_t num_words = mask_words(options_.vocab_size);
  size_t num_masks = 0;
  for (size_t i = 0; i < plan_.spans.size(); ++i) {
    Span& span = plan_.spans[i];
    if (span.num_sampled == 0 || plan_.sequences[i]->request.constraint == nullptr) continue;
    span.masks = masks_.data() + num_masks * num_words;
    num_masks += static_cast<size_t>(span.num_sampled);
  }
  CHECK(num_masks * num_words <= masks_.size(), "{} masks of {} words", num_masks, num_words);
}

void Scheduler::fill_masks() {
  CHECK(in_flight_, "no step is in flight");
  const size_t num_words = mask_words(options_.vocab_size);
  for (size_t i = 0; i < plan_.spans.size(); ++i) {
    const Span& span = plan_.spans[i];
    if (span.masks == nullptr) continue;
    const Sequence& sequence = *plan_.sequences[i];
    const auto guesses = std::span(sequence.tokens).last(static_cast<size_t>(span.num_draft));
    fill_span_masks({span.masks, static_cast<size_t>(span.num_sampled) * num_words}, guesses,
                    sequence.request.constraint.get());
  }
}

}  // namespace headrace
