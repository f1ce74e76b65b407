#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/draft_shadow.h"

namespace headrace {
namespace {

constexpr int32_t kMaxCatchUp = 128;  // tokens of prompts in one call
constexpr int32_t kFewRows = 8;       // that a sequence lacks: not to be caught up with

}  // namespace

Result<std::unique_ptr<ModelDrafter>> ModelDrafter::create(Model& model, Backend& backend,
                                                           const SchedulerOptions& target) {
  SchedulerOptions options = drafter_options(model, backend, target);
  if (!KvCache::can_roll_back(options.cache_rules)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this draft model keeps state, from which guesses cannot be taken back; "
                      "choose one with attention in all layers");
  }
  std::unique_ptr<StepRunner> runner = TRY(StepRunner::create(model, backend, options));
  return std::unique_ptr<ModelDrafter>(
      new ModelDrafter(model, std::move(options), target.vocab_size, std::move(runner)));
}

ModelDrafter::ModelDrafter(Model& model, SchedulerOptions options, int64_t target_vocab_size,
                           std::unique_ptr<StepRunner> runner)
    : model_(model),
      options_(std::move(options)),
      target_vocab_size_(target_vocab_size),
      runner_(std::move(runner)),
      kv_(cache_options(options_)) {}

int32_t ModelDrafter::propose(std::span<DraftTask> tasks) {
  asked_.clear();
  for (const DraftTask& task : tasks) asked_.push_back(shadow_of(*task.sequence));
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (asked_[i] != nullptr && !make_room(tasks[i].max_tokens, asked_[i])) asked_[i] = nullptr;
    tasks[i].draft.ground = {DraftSource::kModel};
  }
  bool catches_up = false;
  for (int32_t num_runs = 0;; ++num_runs) {
    plan_ = StepPlan();
    planned_.clear();
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto num_guesses = static_cast<int32_t>(tasks[i].draft.token_ids.size());
      const bool goes_on = num_guesses == num_runs && num_guesses < tasks[i].max_tokens;
      if (goes_on && asked_[i] != nullptr && asked_[i]->gap() <= kFewRows) add_span(i, kFewRows);
    }
    const size_t num_ready = plan_.spans.size();
    for (size_t i = 0; i < tasks.size() && num_runs == 0; ++i) {
      add_span(i, std::min(kMaxCatchUp, options_.max_batch_tokens) - plan_.num_tokens);
    }
    catches_up |= plan_.spans.size() > num_ready;
    if (plan_.spans.empty()) return catches_up ? 0 : num_runs;
    run(tasks);
  }
}

// Null: it gets no guesses.
ModelDrafter::Shadow* ModelDrafter::shadow_of(const Sequence& sequence) {
  const auto [at, is_new] = shadows_.try_emplace(sequence.id);
  Shadow& shadow = at->second;
  if (is_new) {
    shadow.id = sequence.id;
    shadow.request = drafted_request(sequence.request);
    shadow.num_prompt = sequence.num_prompt;
  }
  follow(sequence, &shadow);
  return shadow.ending == FinishReason::kNone ? &shadow : nullptr;
}

// The tokens become those of the sequence; what was computed of equal ones stays.
void ModelDrafter::follow(const Sequence& sequence, Shadow* shadow) {
  const auto known = std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_known()));
  const auto differs = std::ranges::mismatch(shadow->tokens, known);
  const int64_t num_same = differs.in1 - shadow->tokens.begin();
  if (std::any_of(differs.in2, known.end(),
                  [this](int32_t id) { return id >= options_.vocab_size; })) {
    return fail(shadow);
  }
  shadow->num_computed = std::min(shadow->num_computed, num_same);
  shadow->tokens.assign(known.begin(), known.end());
  if (!shadow->running) return;
  kv_.commit(known, shadow->num_computed, &shadow->table);
  kv_.rollback(shadow->num_computed, &shadow->table);
}

// Blocks for the tokens and the guesses, under one rope table; at need those of sequences that are
// not asked for, as they wait.
bool ModelDrafter::make_room(int32_t max_guesses, Shadow* shadow) {
  const int64_t end = std::ssize(shadow->tokens) + max_guesses;
  const int64_t epoch = model_.rope_epoch(end);
  if (shadow->running && epoch != shadow->rope_epoch) leave(shadow);
  if (!shadow->running) {
    shadow->running = true;
    shadow->rope_epoch = epoch;
    PrefixRoot root;
    root.domain = shadow->request.cache_domain;
    root.rope_epoch = epoch;
    shadow->root = kv_.root(root);
    kv_.begin(shadow->root, shadow->num_prompt, &shadow->table);
    shadow->num_computed = kv_.match(shadow->tokens, &shadow->table);
  }
  if (kv_.reserve(end, &shadow->table)) return true;
  for (auto& [id, other] : shadows_) {
    const bool is_asked = std::ranges::find(asked_, &other) != asked_.end();
    if (other.running && !is_asked) leave(&other);
  }
  if (kv_.reserve(end, &shadow->table)) return true;
  leave(shadow);
  return false;
}

void ModelDrafter::leave(Shadow* shadow) {
  kv_.release(&shadow->table);
  shadow->running = false;
  shadow->num_computed = 0;
}

// If all that the sequence lacks are at most max_rows rows, the last gives a guess; of more, so
// many are caught up with.
void ModelDrafter::add_span(size_t task_idx, int32_t max_rows) {
  Shadow* shadow = asked_[task_idx];
  const bool is_planned = std::ranges::find(planned_, task_idx) != planned_.end();
  if (shadow == nullptr || is_planned) return;
  max_rows = std::min(max_rows, options_.max_batch_tokens - plan_.num_tokens);
  Span span;
  span.first_row = plan_.num_tokens;
  span.num_rows = static_cast<int32_t>(std::min<int64_t>(shadow->gap(), max_rows));
  span.first_position = shadow->num_computed;
  span.num_sampled = span.num_rows == shadow->gap() ? 1 : 0;
  span.tables = shadow->table.tables.data();
  span.rope_epoch = shadow->rope_epoch;
  if (span.num_rows <= 0 || plan_.num_logit_rows + span.num_sampled > options_.max_logit_rows) {
    return;
  }
  plan_.num_tokens += span.num_rows;
  plan_.num_logit_rows += span.num_sampled;
  plan_.spans.push_back(span);
  plan_.sequences.push_back(shadow);
  planned_.push_back(task_idx);
}

void ModelDrafter::run(std::span<DraftTask> tasks) {
  runner_->launch(plan_);
  const std::span<SpanResult> results = runner_->finish();
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t task_idx = planned_[i];
    Shadow* shadow = asked_[task_idx];
    if (results[i].failed()) {
      asked_[task_idx] = nullptr;
      fail(shadow);
      continue;
    }
    shadow->num_computed = plan_.spans[i].end_position();
    for (const SampledToken& sampled : results[i].sampled) {
      take(sampled, task_idx, &tasks[task_idx].draft);
    }
  }
}

// A guess that ends the answer, or that the larger model does not know, is the last and not told.
void ModelDrafter::take(const SampledToken& sampled, size_t task_idx, Draft* draft) {
  Shadow* shadow = asked_[task_idx];
  const int32_t id = sampled.token_id;
  if (id >= target_vocab_size_ || ends_answer(shadow->request, options_.end_ids, id)) {
    asked_[task_idx] = nullptr;
    return;
  }
  shadow->tokens.push_back(id);
  draft->token_ids.push_back(id);
}

// A token that the draft does not know, or what it computed was not finite.
void ModelDrafter::fail(Shadow* shadow) {
  shadow->ending = FinishReason::kError;
  if (!shadow->running) return;
  kv_.discard(&shadow->table);
  shadow->running = false;
  runner_->scrub(kv_.take_tainted());
}

void ModelDrafter::forget(RequestId id) {
  const auto found = shadows_.find(id);
  if (found == shadows_.end()) return;
  if (found->second.running) kv_.release(&found->second.table);
  shadows_.erase(found);
}

}  // namespace headrace
