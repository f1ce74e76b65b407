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

// Streams, and the room for guesses where every running sequence has what it wants.
DraftStep Scheduler::step_without_guesses() const {
  DraftStep step;
  step.redoes_rows = !kv_.can_roll_back();
  int64_t num_free = options_.max_batch_tokens;
  int64_t num_free_rows = options_.max_logit_rows;
  const auto add = [&](const Sequence& sequence, int64_t gap) {
    num_free -= gap;
    num_free_rows -= 1 + std::max(0, sequence.num_to_score() - sequence.num_scored);
    step.load.add(sequence.num_known() - gap, gap, 1, sequence.draws());
    const int64_t plain_gap = gap - (sequence.lacks_one() ? sequence.table.num_taken_back() : 0);
    step.plain_load.add(sequence.num_known() - plain_gap, plain_gap, 1, sequence.draws());
  };
  for (const Sequence* sequence : running_) {
    add(*sequence, sequence->gap());
    step.num_streams += is_stream(*sequence);
    // Beams without a table have computed what the first has.
    for (const auto& beam : sequence->other_beams) add(*beam, beam->has_table() ? beam->gap() : 1);
    if (is_stream(*sequence))
      step.num_streams += static_cast<int32_t>(sequence->other_beams.size());
  }
  step.max_guesses = static_cast<int32_t>(std::max<int64_t>(0, std::min(num_free, num_free_rows)));
  return step;
}

// A task without guesses, in the memory of one before.
DraftTask Scheduler::new_task(const Sequence* sequence, int32_t max_tokens) {
  DraftTask task{sequence, max_tokens};
  if (spare_guesses_.empty()) return task;
  task.draft.token_ids = std::move(spare_guesses_.back());
  spare_guesses_.pop_back();
  return task;
}

void Scheduler::clear_tasks() {
  for (DraftTask& task : draft_tasks_) {
    task.draft.token_ids.clear();
    spare_guesses_.push_back(std::move(task.draft.token_ids));
  }
  draft_tasks_.clear();
}

void Scheduler::draft(TimeUs now) {
  clear_tasks();
  is_drafted_ = true;
  num_draft_runs_ = 0;
  keeps_up_ = false;
  drafted_us_ = now;
  const bool has_drafter = options_.drafter != nullptr || options_.model_drafter != nullptr;
  if (!has_drafter) return;
  if (options_.model_drafter != nullptr && options_.model_drafter->wants_states()) {
    const bool may_run = !options_.drafts_must_pay || draft_policy_.has_credit();
    keeps_up_ = options_.model_drafter->keep_up(running_, may_run) > 0;
  }
  const DraftStep step = step_without_guesses();
  if (step.max_guesses == 0 || (options_.drafts_must_pay && draft_policy_.rests(step))) return;
  for (const Sequence* sequence : running_) {
    if (!may_guess(*sequence)) continue;
    const int32_t room =
        std::min(options_.max_draft_tokens, room_for_draft(*sequence, step.max_guesses));
    if (room > 0) draft_tasks_.push_back(new_task(sequence, room));
  }
  if (draft_tasks_.empty()) return;
  if (options_.drafter != nullptr) options_.drafter->propose(draft_tasks_);
  if (options_.model_drafter != nullptr && !keeps_up_) ask_model(step);
}

void Scheduler::ask_model(const DraftStep& step) {
  model_tasks_.clear();
  const DraftSource source = options_.model_drafter->source();
  for (const DraftTask& task : draft_tasks_) {
    if (draft_policy_.prefers_model(task, source))
      model_tasks_.push_back({task.sequence, task.max_tokens});
  }
  if (model_tasks_.empty()) return;
  if (options_.drafts_must_pay) {
    const int32_t length = draft_policy_.model_length(cost_, step, model_tasks_, source);
    if (length == 0) return;
    for (DraftTask& task : model_tasks_) task.max_tokens = std::min(task.max_tokens, length);
  }
  num_draft_runs_ = options_.model_drafter->propose(model_tasks_);
  auto task = draft_tasks_.begin();
  for (DraftTask& from : model_tasks_) {
    task = std::find_if(task, draft_tasks_.end(),
                        [&](const DraftTask& each) { return each.sequence == from.sequence; });
    if (!from.draft.token_ids.empty()) task->draft = std::move(from.draft);
  }
}

// First what constraints force, which is hardly ever wrong, then what drafters say and the policy
// finds worth its rows.
void Scheduler::propose_drafts() {
  if (!is_drafted_) draft(planned_us_);
  is_drafted_ = false;
  const auto draft_us = static_cast<double>(planned_us_ - drafted_us_);
  if (num_draft_runs_ > 0) draft_policy_.drafted(num_draft_runs_, draft_us);
  if (keeps_up_) draft_policy_.kept_up(cost_, draft_us, prompt_us_);
  DraftStep step = step_without_guesses();
  plain_load_ = step.plain_load;
  if (step.max_guesses == 0) return;
  int64_t num_free = step.max_guesses;
  propose_forced(&num_free);
  step.load.num_rows += step.max_guesses - num_free;
  step.load.num_logit_rows += step.max_guesses - num_free;
  step.max_guesses = static_cast<int32_t>(num_free);
  add_drafts(step);
}

// One token to compute, one to sample.
bool Scheduler::is_stream(const Sequence& sequence) const {
  return sequence.lacks_one() && sequence.samples() &&
         kv_.covers(sequence.num_known(), sequence.table);
}

// Mirostat's bound for a row is made of the surprise of the row before: there is none to verify.
bool Scheduler::may_guess(const Sequence& sequence) const {
  return is_stream(sequence) && sequence.search == nullptr && !sequence.request.sampling.mirostat;
}

void Scheduler::propose_forced(int64_t* num_free) {
  Draft draft{.token_ids = {}, .ground = {DraftSource::kConstraint}};
  for (Sequence* sequence : running_) {
    Constraint* constraint = sequence->request.constraint.get();
    if (constraint == nullptr || !sequence->takes_forced() || !may_guess(*sequence)) continue;
    const int32_t room = std::min(options_.max_forced_tokens, room_for_draft(*sequence, *num_free));
    if (room <= 0) continue;
    draft.token_ids.clear();
    constraint->propose(room, &draft.token_ids);
    CHECK(std::ssize(draft.token_ids) <= room, "{} guesses, {} were asked for",
          draft.token_ids.size(), room);
    if (add_draft(sequence, draft)) *num_free -= sequence->num_draft;
  }
}

void Scheduler::add_drafts(const DraftStep& step) {
  std::erase_if(draft_tasks_, [&](const DraftTask& task) {
    CHECK(std::ssize(task.draft.token_ids) <= task.max_tokens, "{} guesses, {} were asked for",
          task.draft.token_ids.size(), task.max_tokens);
    const Sequence& sequence = *task.sequence;
    return !sequence.running || sequence.num_draft > 0 || !may_guess(sequence);
  });
  if (options_.drafts_must_pay) draft_policy_.choose(cost_, step, draft_tasks_);
  int32_t num_free = step.max_guesses;
  for (DraftTask& task : draft_tasks_) {
    std::vector<int32_t>& ids = task.draft.token_ids;
    ids.resize(std::min(ids.size(), static_cast<size_t>(num_free)));
    const auto running = std::find(running_.begin(), running_.end(), task.sequence);
    CHECK(running != running_.end(), "guesses of a request that does not run");
    if (add_draft(*running, task.draft)) num_free -= (*running)->num_draft;
  }
}

// The token after the last guess still has a place, the rope table of all of them is one, and the
// step ends where state is kept.
int32_t Scheduler::room_for_draft(const Sequence& sequence, int64_t limit) const {
  const int64_t known = sequence.num_known();
  int64_t room =
      std::min<int64_t>({limit, std::max(options_.max_draft_tokens, options_.max_forced_tokens),
                         sequence.max_known - known - 1});
  while (room > 0 && options_.rope_epoch(known + room) != sequence.rope_epoch) --room;
  if (room <= 0) return 0;
  const int64_t gap = sequence.gap();
  return static_cast<int32_t>(kv_.limit_chunk(gap + room, sequence.table) - gap);
}

// Guesses take no block that a running sequence may want next.
bool Scheduler::add_draft(Sequence* sequence, const Draft& draft) {
  const std::vector<int32_t>& ids = draft.token_ids;
  if (ids.empty()) return false;
  const int64_t end = sequence->num_known() + std::ssize(ids);
  const int64_t missing = kv_.missing(end, sequence->table, std::ssize(ids));
  const int64_t spare = missing > 0 ? int64_t{num_slots_} * kv_.num_columns() : 0;
  if (missing + spare > kv_.pool().num_available() || !may_take(*sequence, missing) ||
      !kv_.reserve(end, &sequence->table, std::ssize(ids))) {
    return false;
  }
  sequence->tokens.insert(sequence->tokens.end(), ids.begin(), ids.end());
  sequence->num_draft = static_cast<int32_t>(ids.size());
  sequence->draft_ground = draft.ground;
  stats_.draft_tokens += ids.size();
  return true;
}

void Scheduler::count_draft(Sequence* sequence, const Span& span, int32_t num_accepted) {
  const DraftGround& ground = sequence->draft_ground;
  DraftCounts& counts = stats_.drafts[static_cast<size_t>(ground.source)];
  counts.num_drafts += 1;
  counts.num_tokens += static_cast<uint64_t>(span.num_draft);
  counts.num_accepted += static_cast<uint64_t>(num_accepted);
  stats_.accepted_tokens += static_cast<uint64_t>(num_accepted);
  for (size_t i = 0; i < DraftCounts::kNumPositions; ++i) {
    counts.accepted_at[i] += static_cast<int32_t>(i) < num_accepted;
  }
  if (ground.source == DraftSource::kPrediction) sequence->num_predicted_kept += num_accepted;
  if (ground.source == DraftSource::kConstraint) {
    sequence->num_forced += span.num_draft;
    sequence->num_forced_kept += num_accepted;
  } else {
    draft_policy_.verified(ground, span.num_draft, num_accepted, &sequence->draft_record);
  }
}

// Whether a drafter learns from the rows of this one.
bool Scheduler::tells_states(const Sequence& sequence) const {
  return options_.model_drafter != nullptr && options_.model_drafter->wants_states() &&
         sequence.samples() && sequence.request.beams.width == 0 &&
         !sequence.request.sampling.mirostat;
}

// States of rows: for a drafter those of known tokens, else for the pool.
void Scheduler::take_states(Sequence* sequence, const Span& span, const SpanResult& result,
                            int32_t num_accepted) {
  if (span.num_pooled == 0) return;
  CHECK(!result.pooled.empty(), "no states of {} rows", span.num_pooled);
  if (sequence->samples()) {
    const size_t width = result.pooled.size() / static_cast<size_t>(span.num_pooled);
    const auto num_right =
        static_cast<size_t>(int64_t{span.num_rows} - span.num_draft + num_accepted);
    return options_.model_drafter->observe(*sequence, span.first_pooled,
                                           result.pooled.first(num_right * width));
  }
  sequence->pool.add(result.pooled, span.num_pooled);
  sequence->num_pooled = span.first_pooled + span.num_pooled;
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
