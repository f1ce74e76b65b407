#include "engine/step_runner.h"

#include <algorithm>
#include <utility>

namespace headrace {

Result<std::unique_ptr<StepRunner>> StepRunner::create(Model& model, Backend& backend,
                                                       const SchedulerOptions& options) {
  const auto vocab_size = static_cast<size_t>(model.config().vocab_size);
  const auto num_rows = static_cast<size_t>(options.max_logit_rows);
  KvStore kv =
      TRY(KvStore::create(backend, plan_cache(model.cache_groups(), backend), options.num_blocks));
  DeviceMemory logits =
      TRY(backend.allocate(num_rows * vocab_size * sizeof(float), MemoryUse::kResults));
  return std::unique_ptr<StepRunner>(
      new StepRunner(model, backend, options, std::move(kv), std::move(logits)));
}

StepRunner::StepRunner(Model& model, Backend& backend, const SchedulerOptions& options, KvStore kv,
                       DeviceMemory logits)
    : model_(model),
      backend_(backend),
      end_ids_(options.end_ids),
      vocab_size_(model.config().vocab_size),
      kv_(std::move(kv)),
      logits_(std::move(logits)),
      sampler_(vocab_size_) {
  token_ids_.reserve(static_cast<size_t>(options.max_batch_tokens));
  logit_rows_.reserve(static_cast<size_t>(options.max_logit_rows));
  best_rows_.reserve(static_cast<size_t>(options.max_logit_rows));
  best_.resize(static_cast<size_t>(options.max_logit_rows));
  finite_ = std::make_unique<bool[]>(static_cast<size_t>(options.max_batch_tokens));
  results_.reserve(static_cast<size_t>(options.max_sequences));
}

void StepRunner::build_batch(const StepPlan& plan) {
  token_ids_.clear();
  logit_rows_.clear();
  best_rows_.clear();
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const Sequence& sequence = *plan.sequences[i];
    const auto first = sequence.tokens.begin() + span.first_position;
    token_ids_.insert(token_ids_.end(), first, first + span.num_rows);
    const int64_t row_of_position_0 = span.first_row - span.first_position;
    for (int32_t row = 0; row < span.num_scored; ++row) {
      logit_rows_.push_back(static_cast<int32_t>(row_of_position_0 + span.first_scored + row));
    }
    if (span.num_sampled == 0) continue;
    auto& rows = samples_best(sequence) ? best_rows_ : logit_rows_;
    rows.push_back(span.first_row + span.num_rows - 1);
  }
}

std::span<SpanResult> StepRunner::run(const StepPlan& plan) {
  build_batch(plan);
  model_.forward(Batch{token_ids_, plan.spans, logit_rows_, best_rows_}, kv_,
                 {logits_.as<float>(), best_.data(), finite_.get()});
  results_.clear();
  backend_.synchronize();
  const auto num_logits = logit_rows_.size() * static_cast<size_t>(vocab_size_);
  const float* logits = backend_.read_view(logits_.as<float>(), num_logits).data();
  const BestOutput* best = best_.data();
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    SpanResult& result = results_.emplace_back();
    Status status = fill_result(*plan.sequences[i], span, &logits, &best, &result);
    // First, so that the words do not depend on which rows have logits.
    if (Status rows = check_rows(span); !rows.ok()) status = std::move(rows);
    if (status.ok()) continue;
    result.failed = true;
    result.failure = std::move(status).error().message;
  }
  return results_;
}

// Of rows without logits too: their keys and values are about to be published.
Status StepRunner::check_rows(const Span& span) const {
  const bool* finite = finite_.get() + span.first_row;
  const bool* bad = std::find(finite, finite + span.num_rows, false);
  if (bad == finite + span.num_rows) return {};
  return make_error(ErrorCode::kUnprocessable,
                    "the model computed something that is not a finite number for the token at "
                    "position {}",
                    span.first_position + (bad - finite));
}

// Takes the span's rows from the front of logits and best.
Status StepRunner::fill_result(const Sequence& sequence, const Span& span, const float** logits,
                               const BestOutput** best, SpanResult* result) {
  const float* scored = *logits;
  *logits += span.num_scored * vocab_size_;
  const float* sampled = *logits;
  if (span.num_sampled == 0 || !samples_best(sequence)) {
    *logits += span.num_sampled * vocab_size_;
    TRY(score_prompt(sequence, span, scored, result));
    return span.num_sampled > 0 ? sample_next(sequence, sampled, result) : Status{};
  }
  const BestOutput& own = *(*best)++;
  TRY(score_prompt(sequence, span, scored, result));
  result->token_id = TRY(Sampler::take(own));
  return {};
}

SampleContext StepRunner::context_of(const Sequence& sequence) const {
  return {sequence.tokens, sequence.num_prompt, end_ids_};
}

bool StepRunner::samples_best(const Sequence& sequence) const {
  return Sampler::needs_best_only(sequence.request, context_of(sequence));
}

Status StepRunner::score_prompt(const Sequence& sequence, const Span& span, const float* logits,
                                SpanResult* result) {
  for (int32_t i = 0; i < span.num_scored; ++i) {
    const int64_t position = span.first_scored + i + 1;
    const int32_t token_id = sequence.tokens[static_cast<size_t>(position)];
    result->scored.push_back(TRY(
        sampler_.score(logits + i * vocab_size_, token_id, *sequence.request.num_prompt_logprobs)));
  }
  return {};
}

Status StepRunner::sample_next(const Sequence& sequence, const float* logits, SpanResult* result) {
  result->token_id = TRY(sampler_.sample(logits, sequence.request, context_of(sequence)));
  if (sequence.request.num_logprobs) {
    result->logprobs =
        TRY(sampler_.score(logits, result->token_id, *sequence.request.num_logprobs));
  }
  return {};
}

std::string_view StepRunner::kv_type() const {
  return kKvTypeNames[static_cast<size_t>(model_.options().kv_type)];
}

void StepRunner::scrub(std::span<const int32_t> block_ids) {
  for (const int32_t block_id : block_ids) kv_.zero_block(block_id);
}

void StepRunner::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) kv_.copy_block(copy.from, copy.to);
}

}  // namespace headrace
