#include "engine/step_runner.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/prefetch.h"
#include "engine/constraint.h"

namespace headrace {
namespace {

// Rows share the samplers: each has some 40 bytes per token of the vocabulary.
constexpr int kMaxSamplers = 16;

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::create(Model& model, Backend& backend,
                                                       const SchedulerOptions& options) {
  const auto vocab_size = static_cast<size_t>(model.config().vocab_size);
  const auto num_rows = static_cast<size_t>(options.max_logit_rows);
  KvStore kv =
      TRY(KvStore::create(backend, plan_cache(model.cache_groups(), backend), options.num_blocks));
  DeviceMemory logits =
      TRY(backend.allocate(num_rows * vocab_size * sizeof(float), MemoryUse::kResults));
  const auto num_states = static_cast<size_t>(options.max_batch_tokens) *
                          static_cast<size_t>(model.config().hidden_size);
  DeviceMemory states = TRY(backend.allocate(num_states * sizeof(float), MemoryUse::kResults));
  return std::unique_ptr<StepRunner>(
      new StepRunner(model, backend, options, std::move(kv), std::move(logits), std::move(states)));
}

StepRunner::StepRunner(Model& model, Backend& backend, const SchedulerOptions& options, KvStore kv,
                       DeviceMemory logits, DeviceMemory states)
    : model_(model),
      backend_(backend),
      end_ids_(options.end_ids),
      vocab_size_(model.config().vocab_size),
      kv_(std::move(kv)),
      tier_(options.tier),
      logits_(std::move(logits)),
      states_(std::move(states)) {
  const auto max_rows = static_cast<size_t>(options.max_logit_rows);
  const int num_samplers = std::min({backend.num_threads(), kMaxSamplers, options.max_logit_rows});
  for (int i = 0; i < num_samplers; ++i) samplers_.emplace_back(vocab_size_);
  token_ids_.reserve(static_cast<size_t>(options.max_batch_tokens));
  hidden_rows_.reserve(static_cast<size_t>(options.max_batch_tokens));
  logit_rows_.reserve(max_rows);
  best_rows_.reserve(max_rows);
  best_.resize(max_rows);
  rows_.reserve(max_rows);
  row_failures_.resize(max_rows);
  finite_ = std::make_unique<bool[]>(static_cast<size_t>(options.max_batch_tokens));
}

void StepRunner::launch(const StepPlan& plan, const BesidePass& beside) {
  CHECK(plan_ == nullptr, "step {} is not finished", plan_->step_idx);
  plan_ = &plan;
  build_batch();
  backend_.begin_turn();
  StepOutput output(logits_.as<float>(), best_.data(), finite_.get());
  output.hidden = states_.as<float>();
  is_prepared_ = false;
  output.near_end = [this, &beside] {
    prepare_results();
    beside.near_end();
  };
  gap_us_ = now_us() - returned_us_ - waited_us_;
  bool is_called = false;
  backend_.call_beside([&] {
    is_called = true;
    beside.at_begin();
  });
  model_.forward(Batch{token_ids_, plan.spans, logit_rows_, best_rows_, hidden_rows_}, kv_, output);
  returned_us_ = now_us();
  backend_.call_beside(nullptr);
  backend_.call_near_end(nullptr);    // a pass without rows for the head has no such op
  if (!is_called) beside.at_begin();  // nothing was computed on the team
}

void StepRunner::touch() const {
  const auto results = std::span(results_).first(std::min(results_.size(), plan_->spans.size()));
  prefetch<PrefetchFor::kWrite>(results.data(), results.size_bytes());
  for (const SpanResult& result : results) {
    prefetch<PrefetchFor::kWrite>(result.sampled.data(), sizeof(SampledToken));
  }
}

void StepRunner::work_before(int64_t num_items, ItemWork work) {
  const TimeUs begins_us = now_us();
  backend_.begin_turn();
  backend_.run_on_team(num_items, work);
  backend_.end_turn();
  waited_us_ += now_us() - begins_us;
}

void StepRunner::build_batch() {
  token_ids_.clear();
  logit_rows_.clear();
  best_rows_.clear();
  hidden_rows_.clear();
  rows_.clear();
  for (size_t i = 0; i < plan_->spans.size(); ++i) {
    const Span& span = plan_->spans[i];
    const int32_t* first = span.token_ids != nullptr
                               ? span.token_ids
                               : plan_->sequences[i]->tokens.data() + span.first_position;
    token_ids_.insert(token_ids_.end(), first, first + span.num_rows);
    const int64_t row_of_position_0 = span.first_row - span.first_position;
    for (int32_t row = 0; row < span.num_scored; ++row) {
      rows_.push_back({.span_idx = i,
                       .index = row,
                       .scores = true,
                       .has_logits = true,
                       .result_row = logit_rows_.size()});
      logit_rows_.push_back(static_cast<int32_t>(row_of_position_0 + span.first_scored + row));
    }
    for (int32_t row = 0; row < span.num_sampled; ++row) add_sampled_row(i, row);
    for (int32_t row = 0; row < span.num_pooled; ++row) {
      hidden_rows_.push_back(static_cast<int32_t>(row_of_position_0 + span.first_pooled + row));
    }
  }
}

void StepRunner::add_sampled_row(size_t span_idx, int32_t index) {
  const Span& span = plan_->spans[span_idx];
  const int32_t row = span.first_row + span.num_rows - span.num_sampled + index;
  const bool has_logits =
      !Sampler::needs_best_only(plan_->sequences[span_idx]->request, context_of(span_idx, index));
  std::vector<int32_t>& rows = has_logits ? logit_rows_ : best_rows_;
  rows_.push_back({span_idx, index, /*scores=*/false, has_logits, rows.size()});
  rows.push_back(row);
}

// Known tokens, then the guesses before the row.
SampleContext StepRunner::context_of(size_t span_idx, int32_t index) const {
  const Span& span = plan_->spans[span_idx];
  const Sequence& sequence = *plan_->sequences[span_idx];
  const auto num_tokens = static_cast<size_t>(sequence.num_known() + index);
  const uint64_t* mask = span.masks == nullptr
                             ? nullptr
                             : span.masks + static_cast<size_t>(index) * mask_words(vocab_size_);
  return {.tokens = std::span(sequence.tokens).first(num_tokens),
          .num_prompt = sequence.num_prompt,
          .end_ids = end_ids_,
          .mask = mask,
          .parts = parts_,
          .history = sequence.history.get(),
          .mirostat_bound = sequence.mirostat_bound};
}

std::vector<ExpertRows> StepRunner::expert_layers() const {
  std::vector<ExpertRows> layers;
  const ModelConfig& config = model_.config();
  for (int i = 0; i < config.num_layers(); ++i) {
    const auto count =
        static_cast<size_t>(config.layers[static_cast<size_t>(i)].experts.num_experts);
    if (count > 0) layers.push_back({i, std::vector<uint64_t>(count)});
  }
  return layers;
}

void StepRunner::read_expert_rows(std::span<ExpertRows> layers) const {
  std::span<const uint64_t> rows = model_.expert_rows();
  if (rows.empty()) return;
  std::span<const uint64_t> uncounted = uncounted_expert_rows_;
  for (ExpertRows& layer : layers) {
    const size_t count = layer.rows.size();
    for (size_t e = 0; e < count; ++e) {
      layer.rows[e] = rows[e] - (uncounted.empty() ? 0 : uncounted[e]);
    }
    rows = rows.subspan(count);
    if (!uncounted.empty()) uncounted = uncounted.subspan(count);
  }
}

void StepRunner::forget_expert_rows() {
  const std::span<const uint64_t> rows = model_.expert_rows();
  uncounted_expert_rows_.assign(rows.begin(), rows.end());
}

std::span<SpanResult> StepRunner::finish() {
  const TimeUs waits_us = now_us();
  backend_.synchronize();
  waited_us_ = now_us() - waits_us;
  const auto num_logits = logit_rows_.size() * static_cast<size_t>(vocab_size_);
  logits_view_ = backend_.read_view(logits_.as<float>(), num_logits);
  if (!is_prepared_) prepare_results();
  share_states();
  run_rows();
  backend_.end_turn();
  // A span's failure is that of its first row, whatever was wanted of it.
  for (size_t i = rows_.size(); i-- > 0;) {
    const RowWork& work = rows_[i];
    if (row_failures_[i].empty()) continue;
    SpanResult& result = results_[work.span_idx];
    const bool is_guess = !work.scores && work.index > 0;
    (is_guess ? result.sampled[static_cast<size_t>(work.index)].failure : result.failure) =
        std::exchange(row_failures_[i], {});
  }
  for (size_t i = 0; i < plan_->spans.size(); ++i) check_rows(i);
  plan_ = nullptr;
  return results_;
}

void StepRunner::prepare_results() {
  results_.resize(plan_->spans.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    SpanResult& result = results_[i];
    result.failure.clear();
    result.sampled.resize(static_cast<size_t>(plan_->spans[i].num_sampled));
    for (SampledToken& sampled : result.sampled) sampled.clear();
    result.scored.assign(static_cast<size_t>(plan_->spans[i].num_scored), {});
    result.pooled = {};
  }
  is_prepared_ = true;
}

// Each span gets those of its own rows.
void StepRunner::share_states() {
  if (hidden_rows_.empty()) return;
  const auto width = static_cast<size_t>(model_.config().hidden_size);
  std::span<const float> left =
      backend_.read_view(states_.as<float>(), hidden_rows_.size() * width);
  for (size_t i = 0; i < results_.size(); ++i) {
    const size_t count = static_cast<size_t>(plan_->spans[i].num_pooled) * width;
    results_[i].pooled = left.first(count);
    left = left.subspan(count);
  }
}

// Rows side by side, each on one thread; a few rows of logits one after the other, each with the
// whole team. Best tokens are there already and cost nothing.
void StepRunner::run_rows() {
  const RowParts team(backend_);
  const bool few = 2 * logit_rows_.size() <= team.count(static_cast<size_t>(vocab_size_));
  parts_ = few ? team : RowParts();
  std::atomic<size_t> next{0};
  const auto work = [&](int64_t sampler_idx, int /*member*/) {
    for (size_t i = next++; i < rows_.size(); i = next++) {
      Sampler& sampler = samplers_[static_cast<size_t>(sampler_idx)];
      const RowWork& row = rows_[i];
      const Status status = row.scores ? score_row(row, &sampler) : sample_row(row, &sampler);
      if (!status.ok()) row_failures_[i] = status.error().message;
    }
  };
  if (few || logit_rows_.empty()) return work(0, 0);
  backend_.run_on_team(std::min(std::ssize(samplers_), std::ssize(logit_rows_)), work);
}

Status StepRunner::score_row(const RowWork& work, Sampler* sampler) {
  const Span& span = plan_->spans[work.span_idx];
  const Sequence& sequence = *plan_->sequences[work.span_idx];
  const auto position = static_cast<size_t>(span.first_scored + work.index + 1);
  results_[work.span_idx].scored[static_cast<size_t>(work.index)] = TRY(sampler->score(
      logits_of(work), sequence.tokens[position], *sequence.request.num_prompt_logprobs, parts_));
  return {};
}

Status StepRunner::sample_row(const RowWork& work, Sampler* sampler) {
  const Request& request = plan_->sequences[work.span_idx]->request;
  SampledToken& sampled = results_[work.span_idx].sampled[static_cast<size_t>(work.index)];
  if (!work.has_logits) {
    sampled.token_id = TRY(Sampler::take(best_[work.result_row]));
    return {};
  }
  const SampleContext context = context_of(work.span_idx, work.index);
  if (request.beams.width > 0) {
    sampled.candidates = TRY(sampler->continuations(logits_of(work), request, context));
    return {};
  }
  sampled.token_id = TRY(sampler->sample(logits_of(work), request, context, &sampled.surprise));
  if (request.num_logprobs) {
    sampled.logprobs =
        TRY(sampler->score(logits_of(work), sampled.token_id, *request.num_logprobs, parts_));
  }
  const bool is_first = plan_->sequences[work.span_idx]->num_output() == 0 && work.index == 0;
  return is_first ? score_labels(work, sampler, &sampled) : Status();
}

Status StepRunner::score_labels(const RowWork& work, Sampler* sampler, SampledToken* sampled) {
  for (const int32_t id : plan_->sequences[work.span_idx]->request.label_ids) {
    sampled->label_logprobs.push_back(TRY(sampler->score(logits_of(work), id, 0, parts_)).logprob);
  }
  return {};
}

// Of rows without logits too: their keys and values are about to be published. In place of other
// failures of the same row, so that the words do not depend on which rows have logits.
void StepRunner::check_rows(size_t span_idx) {
  const Span& span = plan_->spans[span_idx];
  SpanResult& result = results_[span_idx];
  const int32_t num_known = span.num_rows - span.num_draft;
  for (int32_t row = span.num_rows - 1; row >= 0; --row) {
    if (finite_[static_cast<size_t>(int64_t{span.first_row} + row)]) continue;
    std::string& failure =
        row < num_known ? result.failure
                        : result.sampled[static_cast<size_t>(int64_t{row} - num_known + 1)].failure;
    failure = fmt::format(
        "the model computed something that is not a finite number for the token at position {}",
        span.first_position + row);
  }
}

std::string_view StepRunner::kv_type() const { return kv_type_name(model_.options().kv_type); }

void StepRunner::scrub(std::span<const int32_t> block_ids) {
  for (const int32_t block_id : block_ids) kv_.zero_block(block_id);
}

void StepRunner::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (copy.to < 0) {
      kv_.read_block(copy.from, tier_->bytes(copy.slot));
    } else if (copy.from < 0) {
      kv_.write_block(copy.to, tier_->bytes(copy.slot));
    } else {
      kv_.copy_block(copy.from, copy.to);
    }
  }
  if (tier_ != nullptr) tier_->copies_done();
}

}  // namespace headrace
