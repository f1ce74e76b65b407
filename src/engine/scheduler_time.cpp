// The time of a step: what it will take, and how many tokens of prompts it has time for.
#include <algorithm>
#include <cmath>

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

// Tokens for the sequences in scratch_, when all single tokens are planned: as many as the step can
// have, or where somebody decodes, as many as it has time for.
int32_t Scheduler::room_for_chunks() {
  const int32_t room = options_.max_batch_tokens - plan_.num_tokens;
  const bool someone_decodes =
      std::any_of(plan_.sequences.begin(), plan_.sequences.end(),
                  [](const Sequence* sequence) { return sequence->num_output() > 0; });
  if (scratch_.empty() || options_.inter_token_target_us <= 0 || !someone_decodes) {
    if (!scratch_.empty()) chunk_tokens_ = options_.max_batch_tokens;
    return room;
  }
  int64_t wanted = 0;
  int64_t position = 0;
  bool scores = false;
  for (const Sequence* sequence : scratch_) {
    wanted += sequence->gap();
    position = std::max(position, sequence->num_computed);
    scores |= sequence->scores_prompt();
  }
  const StepLoad load = load_of(plan_);
  const double budget = std::max(static_cast<double>(options_.inter_token_target_us),
                                 kMostStretch * cost_.predict(load));
  const int64_t most = std::min<int64_t>(room, wanted);
  const int64_t within = rows_within(cost_, load, {position, most, kLeastChunk, scores}, budget);
  if (within == most) {
    chunk_tokens_ = options_.max_batch_tokens;
    return room;
  }
  ++stats_.shortened_steps;
  chunk_tokens_ = std::min(room, std::max(kLeastChunk, static_cast<int32_t>(within)));
  return chunk_tokens_;
}

void Scheduler::predict() {
  plan_.load = load_of(plan_);
  plan_.predicted_us = cost_.predict(plan_.load);
}

void Scheduler::learn(TimeUs now) {
  if (plan_.spans.empty()) return;
  const TimeUs took_us = now - planned_us_;
  if (plan_.predicted_us > 0) {
    const double error = static_cast<double>(took_us) - plan_.predicted_us;
    ++stats_.predicted_steps;
    stats_.close_predictions += std::abs(error) <= kCloseShare * plan_.predicted_us;
  }
  cost_.observe(plan_.load, took_us);
}

}  // namespace headrace
