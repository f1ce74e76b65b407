#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

bool is_older(const Sequence* a, const Sequence* b) { return a->order < b->order; }

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)), kv_(options_.num_blocks) {
  CHECK(options_.max_sequences > 0 && options_.max_sequences <= options_.max_batch_tokens &&
            options_.max_sequences <= options_.max_logit_rows,
        "{} sequences, {} tokens, {} logit rows", options_.max_sequences, options_.max_batch_tokens,
        options_.max_logit_rows);
  CHECK(options_.max_context > 0 && blocks_for(options_.max_context) <= options_.num_blocks,
        "context of {} tokens, {} blocks", options_.max_context, options_.num_blocks);
  CHECK(options_.rope_epoch != nullptr);
  const auto max_sequences = static_cast<size_t>(options_.max_sequences);
  running_.reserve(max_sequences);
  scratch_.reserve(max_sequences);
  plan_.spans.reserve(max_sequences);
}

void Scheduler::admit(RequestId id, Request request, TimeUs submitted_us) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->order = next_order_++;
  sequence->num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  sequence->max_known =
      std::min<int64_t>(options_.max_context, int64_t{sequence->num_prompt} + request.max_tokens);
  CHECK(sequence->num_prompt > 0 && sequence->num_prompt <= options_.max_context,
        "a prompt of {} tokens", sequence->num_prompt);
  sequence->tokens = std::move(request.prompt_ids);
  sequence->request = std::move(request);
  if (sequence->scores_prompt()) sequence->prompt_logprobs.resize(sequence->tokens.size());
  sequence->rope_epoch = options_.rope_epoch(sequence->num_known());
  sequence->times.submitted = submitted_us;
  waiting_.push_back(sequence.get());
  const bool inserted = sequences_.emplace(id, std::move(sequence)).second;
  CHECK(inserted, "request id {} is used twice", id);
}

void Scheduler::cancel(RequestId id, TimeUs now, std::vector<Event>* events) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence* sequence = found->second.get();
  const bool planned =
      in_flight_ && std::any_of(plan_.spans.begin(), plan_.spans.end(),
                                [&](const PlannedSpan& span) { return span.sequence == sequence; });
  if (planned) {
    sequence->cancelled = true;
  } else {
    finish(sequence, FinishReason::kCancelled, now, events);
  }
}

const StepPlan& Scheduler::plan(TimeUs now) {
  CHECK(!in_flight_, "step {} is not committed", plan_.step_idx);
  plan_.step_idx = stats_.num_steps++;
  plan_.spans.clear();
  plan_.num_tokens = 0;
  plan_.num_logit_rows = 0;
  secure_blocks();
  start_waiting(now);
  plan_single_tokens();
  plan_chunks();
  CHECK(!plan_.spans.empty() || idle(), "{} running and {} waiting, but nothing can be computed",
        running_.size(), waiting_.size());
  in_flight_ = true;
  return plan_;
}

bool Scheduler::is_protected(const Sequence& sequence) const {
  return sequence.num_preemptions >= options_.max_preemptions;
}

int64_t Scheduler::needed_tokens(const Sequence& sequence) const {
  return is_protected(sequence) ? sequence.max_known : sequence.num_known();
}

// Every running sequence gets blocks for what it knows, the protected first, then by age. The first
// of this order can always have them, so some sequence moves in every step.
void Scheduler::secure_blocks() {
  scratch_.clear();
  for (const bool protection : {true, false}) {
    for (Sequence* sequence : running_) {
      if (is_protected(*sequence) == protection) scratch_.push_back(sequence);
    }
  }
  for (size_t i = 0; i < scratch_.size(); ++i) {
    Sequence* sequence = scratch_[i];
    while (!kv_.reserve(needed_tokens(*sequence), &sequence->table)) {
      Sequence* victim = scratch_.back();
      if (victim == sequence || is_protected(*victim)) break;  // waits, with what it holds
      preempt(victim);
      scratch_.pop_back();
    }
  }
}

void Scheduler::preempt(Sequence* sequence) {
  CHECK(!is_protected(*sequence), "request {} is protected", sequence->id);
  kv_.release(&sequence->table);
  sequence->num_computed = 0;
  sequence->running = false;
  ++sequence->num_preemptions;
  ++stats_.num_preemptions;
  std::erase(running_, sequence);
  waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), sequence, is_older), sequence);
}

void Scheduler::start_waiting(TimeUs now) {
  while (!waiting_.empty() && num_running() < options_.max_sequences) {
    Sequence* sequence = waiting_.front();
    if (!start(sequence)) return;  // nobody overtakes it
    waiting_.pop_front();
    running_.insert(std::lower_bound(running_.begin(), running_.end(), sequence, is_older),
                    sequence);
    if (sequence->times.started == 0) {
      sequence->times.started = now;
      // Once, for the whole length; requests that only wait hold no more than their prompt.
      sequence->tokens.reserve(static_cast<size_t>(sequence->max_known));
      sequence->table.blocks.reserve(static_cast<size_t>(blocks_for(sequence->max_known)));
      sequence->cached_tokens = static_cast<int32_t>(sequence->num_computed);
    }
  }
}

bool Scheduler::start(Sequence* sequence) {
  BlockTable& table = sequence->table;
  // Rows that still have to score the prompt are computed, found or not.
  if (sequence->num_scored >= sequence->num_to_score()) {
    sequence->num_computed = kv_.match(sequence->tokens, sequence->rope_epoch, &table);
  }
  const int64_t needed = needed_tokens(*sequence);
  const int64_t missing = blocks_for(needed) - static_cast<int64_t>(table.blocks.size());
  // Running sequences can grow by one block each before this start makes them pre-empt it.
  const int64_t spare = is_protected(*sequence) ? 0 : num_running();
  if (missing + spare > kv_.num_available() || !kv_.reserve(needed, &table)) {
    kv_.release(&table);
    sequence->num_computed = 0;
    return false;
  }
  sequence->running = true;
  return true;
}

void Scheduler::plan_single_tokens() {
  for (Sequence* sequence : running_) {
    if (sequence->gap() != 1 || !sequence->table.covers(sequence->num_known())) continue;
    add_span(sequence, options_.max_batch_tokens - plan_.num_tokens,
             options_.max_logit_rows - plan_.num_logit_rows);
  }
}

void Scheduler::plan_chunks() {
  scratch_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->gap() > 1 && sequence->table.covers(sequence->num_known())) {
      scratch_.push_back(sequence);
    }
  }
  if (scratch_.empty()) return;
  const Sequence* oldest = scratch_.front();
  std::sort(scratch_.begin(), scratch_.end(), [](const Sequence* a, const Sequence* b) {
    return a->gap() != b->gap() ? a->gap() < b->gap() : a->order < b->order;
  });
  // What is kept for the oldest until its turn comes.
  int32_t kept_tokens = (options_.max_batch_tokens - plan_.num_tokens + 1) / 2;
  int32_t kept_logit_rows = (options_.max_logit_rows - plan_.num_logit_rows + 1) / 2;
  for (Sequence* sequence : scratch_) {
    if (sequence == oldest) kept_tokens = kept_logit_rows = 0;
    add_span(sequence, options_.max_batch_tokens - plan_.num_tokens - kept_tokens,
             options_.max_logit_rows - plan_.num_logit_rows - kept_logit_rows);
  }
}

// Gives the sequence as many of its next tokens as both limits allow; maybe none.
void Scheduler::add_span(Sequence* sequence, int32_t max_tokens, int32_t max_logit_rows) {
  const int64_t computed = sequence->num_computed;
  const int64_t first_scored = std::max<int64_t>(computed, sequence->num_scored);
  const auto num_scored = [&](int64_t count) {
    return std::max<int64_t>(
        0, std::min<int64_t>(computed + count, sequence->num_to_score()) - first_scored);
  };
  const auto reaches_end = [&](int64_t count) {
    return sequence->samples() && computed + count == sequence->num_known();
  };
  int64_t count = std::min<int64_t>(sequence->gap(), max_tokens);
  if (count > 0 && num_scored(count) > max_logit_rows) {
    count = first_scored - computed + max_logit_rows;
  }
  if (count > 0 && reaches_end(count) && num_scored(count) + 1 > max_logit_rows) --count;
  if (count <= 0) return;
  PlannedSpan span;
  span.sequence = sequence;
  span.first_position = computed;
  span.num_tokens = static_cast<int32_t>(count);
  span.first_row = plan_.num_tokens;
  span.rope_epoch = sequence->rope_epoch;
  span.first_scored = static_cast<int32_t>(first_scored);
  span.num_scored = static_cast<int32_t>(num_scored(count));
  span.samples = reaches_end(count);
  plan_.num_tokens += span.num_tokens;
  plan_.num_logit_rows += span.num_logit_rows();
  plan_.spans.push_back(span);
}

void Scheduler::commit(std::span<SpanResult> results, TimeUs now, std::vector<Event>* events) {
  CHECK(in_flight_ && results.size() == plan_.spans.size(), "{} results for {} spans",
        results.size(), plan_.spans.size());
  in_flight_ = false;
  for (size_t i = 0; i < results.size(); ++i) commit_span(plan_.spans[i], &results[i], now, events);
}

void Scheduler::commit_span(const PlannedSpan& span, SpanResult* result, TimeUs now,
                            std::vector<Event>* events) {
  Sequence* sequence = sequences_.at(span.sequence->id).get();
  if (result->failed) {
    kv_.discard(&sequence->table, &poisoned_blocks_);
    finish(sequence, FinishReason::kError, now, events);
    events->back().error = Error{ErrorCode::kInternal, std::move(result->failure), {}, {}};
    return;
  }
  if (sequence->cancelled) {
    finish(sequence, FinishReason::kCancelled, now, events);
    return;
  }
  sequence->num_computed += span.num_tokens;
  kv_.commit(sequence->tokens, sequence->num_computed, span.rope_epoch, &sequence->table);
  take_scores(sequence, span, result, events);
  if (span.samples) {
    take_token(sequence, result, now, events);
  } else if (sequence->gap() == 0) {  // max_tokens = 0: only the prompt was wanted
    finish(sequence, FinishReason::kLength, now, events);
  }
}

void Scheduler::take_scores(Sequence* sequence, const PlannedSpan& span, SpanResult* result,
                            std::vector<Event>* events) {
  CHECK(static_cast<int32_t>(result->scored.size()) == span.num_scored, "{} scores for {} rows",
        result->scored.size(), span.num_scored);
  for (int32_t i = 0; i < span.num_scored; ++i) {
    const int32_t position = span.first_scored + i + 1;
    sequence->prompt_logprobs[static_cast<size_t>(position)] =
        std::move(result->scored[static_cast<size_t>(i)]);
  }
  if (span.num_scored > 0) sequence->num_scored = span.first_scored + span.num_scored;
  if (sequence->prompt_reported || sequence->num_computed < sequence->num_prompt) return;
  sequence->prompt_reported = true;
  stats_.prompt_tokens += static_cast<uint64_t>(sequence->num_prompt);
  stats_.cached_tokens += static_cast<uint64_t>(sequence->cached_tokens);
  if (!sequence->scores_prompt()) return;
  Event event;
  event.kind = Event::Kind::kPromptLogprobs;
  event.request_id = sequence->id;
  event.prompt_logprobs = std::move(sequence->prompt_logprobs);
  events->push_back(std::move(event));
}

bool Scheduler::ends(const Sequence& sequence, int32_t token_id) const {
  const auto contains = [token_id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  return contains(sequence.request.stop_ids) ||
         (!sequence.request.ignore_eos && contains(options_.end_ids));
}

void Scheduler::take_token(Sequence* sequence, SpanResult* result, TimeUs now,
                           std::vector<Event>* events) {
  if (sequence->times.first_token == 0) sequence->times.first_token = now;
  if (ends(*sequence, result->token_id)) {
    finish(sequence, FinishReason::kStop, now, events);
    events->back().stop_id = result->token_id;
    return;
  }
  sequence->tokens.push_back(result->token_id);
  ++stats_.generation_tokens;
  Event event;
  event.kind = Event::Kind::kToken;
  event.request_id = sequence->id;
  event.token_id = result->token_id;
  event.logprobs = std::move(result->logprobs);
  events->push_back(std::move(event));
  if (sequence->num_known() >= sequence->max_known) {
    finish(sequence, FinishReason::kLength, now, events);
  } else {
    update_epoch(sequence);
  }
}

// With another rope table all K and V are stale: the sequence is computed again from position 0.
void Scheduler::update_epoch(Sequence* sequence) {
  const int64_t epoch = options_.rope_epoch(sequence->num_known());
  if (epoch == sequence->rope_epoch) return;
  sequence->rope_epoch = epoch;
  sequence->num_computed = 0;
  kv_.release(&sequence->table);
  ++stats_.num_epoch_restarts;
}

void Scheduler::finish(Sequence* sequence, FinishReason reason, TimeUs now,
                       std::vector<Event>* events) {
  kv_.release(&sequence->table);
  Event event;
  event.kind = Event::Kind::kFinished;
  event.request_id = sequence->id;
  event.reason = reason;
  event.usage.prompt_tokens = sequence->num_prompt;
  event.usage.output_tokens = sequence->num_output();
  event.usage.cached_tokens = sequence->cached_tokens;
  event.times = sequence->times;
  event.times.finished = now;
  events->push_back(std::move(event));
  if (sequence->running) {
    std::erase(running_, sequence);
  } else {
    std::erase(waiting_, sequence);
  }
  sequences_.erase(sequence->id);
}

const Sequence* Scheduler::find(RequestId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

std::vector<RequestId> Scheduler::ids() const {
  std::vector<const Sequence*> all(running_.begin(), running_.end());
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  std::sort(all.begin(), all.end(), is_older);
  std::vector<RequestId> ids;
  for (const Sequence* sequence : all) ids.push_back(sequence->id);
  return ids;
}

Status Scheduler::check() const {
  std::vector<const BlockTable*> tables;
  for (const Sequence* sequence : running_) {
    tables.push_back(&sequence->table);
    const bool sound = sequence->running && sequence->gap() > 0 &&
                       sequence->table.covers(sequence->num_computed) &&
                       sequence->num_known() < sequence->max_known + (sequence->samples() ? 0 : 1);
    if (!sound) {
      return make_error(ErrorCode::kInternal, "running sequence {} knows {}, has computed {}",
                        sequence->id, sequence->num_known(), sequence->num_computed);
    }
  }
  for (const Sequence* sequence : waiting_) {
    if (sequence->running || sequence->num_computed != 0 || !sequence->table.blocks.empty()) {
      return make_error(ErrorCode::kInternal, "waiting sequence {} holds something", sequence->id);
    }
  }
  if (num_running() > options_.max_sequences ||
      running_.size() + waiting_.size() != sequences_.size() ||
      !std::is_sorted(running_.begin(), running_.end(), is_older) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), is_older)) {
    return make_error(ErrorCode::kInternal, "lists of {} running, {} waiting, {} in all",
                      running_.size(), waiting_.size(), sequences_.size());
  }
  return kv_.check(tables);
}

}  // namespace headrace
