// The time of a step: what it will take, and how many tokens of prompts it has time for.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/prefetch.h"
#include "engine/scheduler.h"

namespace headrace {
namespace {

StepLoad load_of(const StepPlan& plan) {
  StepLoad load;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const bool looks = span.num_scored > 0 || plan.sequences[i]->draws();
    load.add(span.first_position, span.num_rows, span.num_logit_rows(), looks);
  }
  return load;
}

}  // namespace

// Tokens for the sequences in scratch_, of so many clients, when all single tokens are planned: as
// many as the step can have, or where somebody decodes or is expected, as many as it has time for.
int32_t Scheduler::room_for_chunks(int32_t num_clients) {
  const int32_t room = options_.max_batch_tokens - plan_.num_tokens;
  const bool someone_decodes =
      std::any_of(plan_.sequences.begin(), plan_.sequences.end(),
                  [](const Sequence* sequence) { return sequence->num_output() > 0; });
  chunk_tokens_ = options_.max_batch_tokens;
  if (options_.inter_token_target_us <= 0) return room;
  if (!someone_decodes) lead_us_ = most_lead_us();
  const std::optional<double> patience_us = room_.least_patience_us(planned_us_);
  const std::optional<int64_t> halves = room_.rows_of_halves(planned_us_);
  if (!someone_decodes && !patience_us && !halves) return room;
  const StepLoad load = load_of(plan_);
  const ChunkOffer chunk = offer_chunks(room);
  const int64_t num_favoured = room_.num_favoured(scratch_);
  int64_t rows = someone_decodes ? rows_in_time(load, chunk) : chunk.max_rows;
  // Where favoured clients alone want chunks, nothing is kept from them.
  if (patience_us && num_favoured < chunk.max_rows) {
    rows = std::min(rows, rows_in_patience(load, chunk, *patience_us));
  }
  if (halves) rows = std::min(rows, *halves + num_clients - 1);
  if (num_favoured > 0) {
    ChunkOffer favoured = chunk;
    favoured.max_rows = std::min(chunk.max_rows, num_favoured);
    int64_t most = rows_of_favoured(load, favoured, patience_us.value_or(0));
    // The token that each of the others has at least must not be the last of theirs.
    if (most == num_favoured) most += num_clients - 1;
    rows = std::max(rows, std::min(chunk.max_rows, most));
  }
  if (rows == chunk.max_rows) return room;
  ++stats_.shortened_steps;
  chunk_tokens_ = std::min(room, std::max(kLeastChunk, static_cast<int32_t>(rows)));
  return chunk_tokens_;
}

// All that the sequences in scratch_ want, or that there is room for.
ChunkOffer Scheduler::offer_chunks(int32_t room) const {
  int64_t wanted = 0;
  ChunkOffer chunk;
  for (const Sequence* sequence : scratch_) {
    wanted += sequence->gap();
    chunk.first_position = std::max(chunk.first_position, sequence->num_computed);
    chunk.scores |= sequence->scores_prompt();
  }
  chunk.max_rows = std::min<int64_t>(room, wanted);
  return chunk;
}

double Scheduler::most_lead_us() const {
  return kMostLead * static_cast<double>(options_.inter_token_target_us);
}

// Of a step that may take twice the target while streams have a lead, if somebody waits for a place
// or the prompts are short, and nobody is expected who would find that such a step has begun.
// Beside a long one streams would wait so much longer for many steps: it gets as many as stretch a
// step of theirs by what prompts may always take, or as many more within the target as its part of
// the time asks for.
int64_t Scheduler::rows_in_time(const StepLoad& load, const ChunkOffer& chunk) const {
  const auto target_us = static_cast<double>(options_.inter_token_target_us);
  const double lead_us = room_.expects_who_spared(planned_us_) ? 0 : lead_us_;
  const double most_us = target_us + std::min(lead_us, target_us);
  const double stretched_us = kMostStretch * cost_.predict(load);
  const int64_t stretched = rows_within(cost_, load, chunk, stretched_us);
  if (stretched == chunk.max_rows || most_us <= stretched_us) return stretched;
  const int64_t most = rows_within(cost_, load, chunk, most_us);
  if (room_.num_waiting() > 0) return most;
  const int64_t in_target = rows_within(cost_, load, chunk, target_us);
  int64_t rows_of_short = 0;
  for (const Sequence* sequence : scratch_) {
    if (sequence->gap() <= kShortSteps * in_target) rows_of_short += sequence->gap();
  }
  const int64_t fair = rows_for_share(cost_, load, chunk, kPromptShare);
  return std::max({stretched, std::min(in_target, fair), std::min(most, rows_of_short)});
}

// Of favoured clients: where the streams of the others alone take long, what is within the target,
// or stretches them as usual, is less than half of a step. The prompt of a light one, which takes
// patience_us by itself, is computed at once.
int64_t Scheduler::rows_of_favoured(const StepLoad& load, const ChunkOffer& chunk,
                                    double patience_us) const {
  const double streams_us = cost_.predict(load);
  return rows_within(cost_, load, chunk,
                     std::max(kMostFavour * streams_us, streams_us + patience_us));
}

// Where a light client comes again and again, it shall wait for a step in flight, and for the
// streams of others in its own, no longer than its prompt takes by itself. So shall one that asks
// for one thing at a time; half of the step that it waits for is spared for its own.
int64_t Scheduler::rows_in_patience(const StepLoad& load, const ChunkOffer& chunk,
                                    double patience_us) const {
  const double streams_us = cost_.predict(load);
  return rows_within(cost_, load, chunk,
                     std::max(patience_us - streams_us, kLeastStretch * streams_us));
}

double Scheduler::prompt_alone_us(const Sequence& sequence) const {
  StepLoad load;
  const int64_t num_rows = std::min<int64_t>(sequence.gap(), options_.max_batch_tokens);
  load.add(sequence.num_computed, num_rows, 1, sequence.draws());
  return cost_.predict(load);
}

void Scheduler::predict() {
  plan_.load = load_of(plan_);
  if (options_.claim_memory && !plan_.spans.empty()) {
    plan_.load.num_fresh = options_.claim_memory(kv_.pool().num_touched());
    plain_load_.num_fresh = plan_.load.num_fresh;
  }
  plan_.predicted_us = cost_.predict(plan_.load);
}

void Scheduler::touch() const {
  for (const Sequence* sequence : planned_) prefetch(sequence, sizeof(Sequence));
  for (const Sequence* sequence : planned_) {
    prefetch(sequence->tokens.data() + sequence->tokens.size(), sizeof(int32_t));
    for (const TableColumn& column : sequence->table.columns) prefetch(&column, 1);
    prefetch(sequence->client, sizeof(Client));
  }
  cost_.touch();
  prefetch<PrefetchFor::kWrite>(plan_.spans.data(), plan_.spans.size() * sizeof(Span));
  if (options_.drafter == nullptr) return;
  for (const DraftTask& task : draft_tasks_) {
    prefetch<PrefetchFor::kWrite>(task.draft.token_ids.data(), kCacheLineBytes);
  }
  draft_policy_.touch();
  options_.drafter->touch();
}

// What the step gave and took.
void Scheduler::owe(uint64_t num_tokens, TimeUs now) {
  if (plan_.spans.empty()) return;
  Owed owed;
  owed.took_us = now - planned_us_;
  owed.predicted_us = plan_.predicted_us;
  owed.step.load = plan_.load;
  owed.step.plain_load = plain_load_;
  owed.step.num_streams = static_cast<int32_t>(plan_.spans.size());
  owed.step.num_tokens = static_cast<int32_t>(num_tokens);
  owed.step.us = static_cast<double>(owed.took_us);
  if (num_draft_runs_ > 0) owed.step.draft_us = static_cast<double>(planned_us_ - drafted_us_);
  const bool is_decode = plain_load_.num_rows == owed.step.num_streams;
  prompt_us_ = is_decode ? 0 : owed.step.us;
  gain_lead(owed.step.us);
  cost_.note(owed.step.load, owed.took_us);
  owed_ = owed;
}

// Steps without a stream fill it up where they are planned (room_for_chunks).
void Scheduler::gain_lead(double took_us) {
  const double gained_us = static_cast<double>(options_.inter_token_target_us) - took_us;
  lead_us_ = std::clamp(lead_us_ + gained_us, 0.0, most_lead_us());
}

void Scheduler::settle() {
  charge();
  if (!owed_) return;
  const Owed owed = *std::exchange(owed_, std::nullopt);
  if (owed.predicted_us > 0) {
    const double error = static_cast<double>(owed.took_us) - owed.predicted_us;
    ++stats_.predicted_steps;
    stats_.close_predictions += std::abs(error) <= kCloseShare * owed.predicted_us;
  }
  cost_.observe(owed.step.load, owed.took_us);
  // Guesses are judged by steps that are decode and guesses alone.
  if (owed.step.plain_load.num_rows == owed.step.num_streams) draft_policy_.took(cost_, owed.step);
}

}  // namespace headrace
