#include "engine/head_drafter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/draft_shadow.h"

namespace headrace {
namespace {

constexpr int64_t kMostWaiting = 64;  // rows of a sequence that wait for guesses to be wanted

// What its states depend on. The tokens of slots begin with the second, so the first is a name of
// its own.
Digest root_of(const KvCache& kv, const Sequence& sequence) {
  std::array<int32_t, kBlockTokens> first{};
  first[0] = sequence.tokens.front();
  return kv.extend(kv.root(root_of(sequence)), first.data());
}

}  // namespace

Result<std::unique_ptr<HeadDrafter>> HeadDrafter::create(Model& head, Backend& backend,
                                                         const SchedulerOptions& target) {
  SchedulerOptions options = drafter_options(head, backend, target);
  CHECK(KvCache::can_roll_back(options.cache_rules), "a head for further tokens that keeps state");
  std::unique_ptr<StepRunner> runner = TRY(StepRunner::create(head, backend, options));
  return std::unique_ptr<HeadDrafter>(new HeadDrafter(head, std::move(options), std::move(runner)));
}

HeadDrafter::HeadDrafter(const Model& head, SchedulerOptions options,
                         std::unique_ptr<StepRunner> runner)
    : options_(std::move(options)),
      width_(static_cast<size_t>(head.config().hidden_size)),
      runner_(std::move(runner)),
      kv_(cache_options(options_)) {}

// Null: it is not told of, or has failed.
HeadDrafter::Shadow* HeadDrafter::find(const Sequence& sequence) {
  const auto found = shadows_.find(sequence.id);
  if (found == shadows_.end()) return nullptr;
  Shadow& shadow = found->second;
  return shadow.sequence.ending == FinishReason::kNone ? &shadow : nullptr;
}

void HeadDrafter::observe(const Sequence& sequence, int64_t first_position,
                          std::span<const float> states) {
  const auto [at, is_new] = shadows_.try_emplace(sequence.id);
  Shadow* shadow = &at->second;
  if (is_new) begin(sequence, shadow);
  if (shadow->sequence.ending != FinishReason::kNone) return;
  if (shadow->sequence.rope_epoch != sequence.rope_epoch) restart(sequence, shadow);
  const auto num_told = static_cast<int64_t>(states.size() / width_);
  const int64_t next = shadow->positions.empty() ? 0 : shadow->positions.back() + 1;
  const int64_t num_had = std::clamp<int64_t>(next - first_position, 0, num_told);
  for (int64_t i = num_had; i < num_told; ++i) shadow->positions.push_back(first_position + i);
  const std::span<const float> rows = states.subspan(static_cast<size_t>(num_had) * width_);
  shadow->states.insert(shadow->states.end(), rows.begin(), rows.end());
}

// With the slots that are known of its beginning.
void HeadDrafter::begin(const Sequence& sequence, Shadow* shadow) {
  Sequence& own = shadow->sequence;
  own.id = sequence.id;
  own.request = drafted_request(sequence.request);
  own.num_prompt = sequence.num_prompt;
  own.rope_epoch = sequence.rope_epoch;
  own.root = root_of(kv_, sequence);
  own.tokens.reserve(static_cast<size_t>(sequence.max_known));
  if (sequence.num_known() < 2) return;
  follow(sequence, shadow);
  open(shadow);
  own.num_computed = kv_.match(inputs_of(*shadow), &own.table);
  for (int64_t i = 0; i < own.num_computed; ++i) shadow->positions.push_back(i);
}

// Under another rope table nothing of before counts.
void HeadDrafter::restart(const Sequence& sequence, Shadow* shadow) {
  leave(shadow);
  shadow->positions.clear();
  shadow->states.clear();
  shadow->sequence.rope_epoch = sequence.rope_epoch;
  shadow->sequence.root = root_of(kv_, sequence);
}

void HeadDrafter::follow(const Sequence& sequence, Shadow* shadow) {
  const auto known = std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_known()));
  std::vector<int32_t>& tokens = shadow->sequence.tokens;
  tokens.insert(tokens.end(), known.begin() + std::ssize(tokens), known.end());
  shadow->num_known = sequence.num_known();
}

// The tokens of its slots.
std::span<const int32_t> HeadDrafter::inputs_of(const Shadow& shadow) {
  return std::span(shadow.sequence.tokens).subspan(1);
}

void HeadDrafter::open(Shadow* shadow) {
  Sequence& own = shadow->sequence;
  if (own.running) return;
  own.running = true;
  kv_.begin(own.root, std::max(own.num_prompt - 1, 0), &own.table);
}

void HeadDrafter::leave(Shadow* shadow) {
  Sequence& own = shadow->sequence;
  if (!own.running) return;
  kv_.release(&own.table);
  own.running = false;
  shadow->positions.erase(shadow->positions.begin(), shadow->positions.begin() + own.num_computed);
  own.num_computed = 0;
}

// Blocks for so many slots; at need those of sequences that are not asked for, as they wait.
bool HeadDrafter::make_room(int64_t num_slots, Shadow* shadow) {
  open(shadow);
  BlockTable* table = &shadow->sequence.table;
  if (kv_.reserve(num_slots, table)) return true;
  for (auto& [id, other] : shadows_) {
    const auto is_in = [&other](const std::vector<Shadow*>& list) {
      return std::ranges::find(list, &other) != list.end();
    };
    if (&other != shadow && !is_in(asked_) && !is_in(run_)) leave(&other);
  }
  if (kv_.reserve(num_slots, table)) return true;
  leave(shadow);
  return false;
}

// The oldest rows that wait: the head will not see their positions.
void HeadDrafter::drop_waiting(int64_t count, Shadow* shadow) const {
  const auto first = shadow->positions.begin() + shadow->num_slots();
  shadow->positions.erase(first, first + count);
  shadow->states.erase(shadow->states.begin(),
                       shadow->states.begin() + count * static_cast<int64_t>(width_));
}

int32_t HeadDrafter::keep_up(std::span<Sequence* const> sequences, bool may_run) {
  const int64_t most = std::min<int64_t>(kMostWaiting, options_.max_batch_tokens - 1);
  asked_.clear();
  for (int32_t num_runs = 0;; ++num_runs) {
    plan_ = StepPlan();
    run_.clear();
    for (const Sequence* sequence : sequences) {
      Shadow* shadow = find(*sequence);
      if (shadow == nullptr || shadow->num_waiting() <= most + 1) continue;
      follow(*sequence, shadow);
      if (may_run && make_room(shadow->num_slots() + shadow->num_waiting(), shadow)) {
        add_span({shadow->num_waiting() - 1}, shadow);
      } else {
        drop_waiting(shadow->num_waiting() - most, shadow);
      }
    }
    if (plan_.spans.empty()) return num_runs;
    const std::span<const SpanResult> results = run();
    for (size_t i = 0; i < results.size(); ++i) {
      if (take_rows(results[i], plan_.spans[i], run_[i])) settle(run_[i]);
    }
  }
}

int32_t HeadDrafter::propose(std::span<DraftTask> tasks) {
  asked_.clear();
  run_.clear();
  for (DraftTask& task : tasks) {
    Shadow* shadow = find(*task.sequence);
    const int64_t known = task.sequence->num_known();
    const bool is_ready =
        shadow != nullptr && shadow->num_waiting() > 0 && shadow->positions.back() == known - 2;
    asked_.push_back(is_ready ? shadow : nullptr);
    task.draft.ground = {DraftSource::kHead};
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    Shadow* shadow = asked_[i];
    if (shadow == nullptr) continue;
    follow(*tasks[i].sequence, shadow);
    const int64_t end = shadow->num_slots() + shadow->num_waiting() + tasks[i].max_tokens - 1;
    if (!make_room(end, shadow)) asked_[i] = nullptr;
  }
  std::vector<std::pair<Shadow*, int64_t>> ran;  // with the slots that stay
  int32_t num_runs = 0;
  for (; plan_chains(tasks, num_runs); ++num_runs) {
    const std::span<const SpanResult> results = run();
    for (size_t i = 0; i < results.size(); ++i) {
      const size_t task_idx = planned_[i];
      const bool is_sound = take_rows(results[i], plan_.spans[i], run_[i]);
      if (is_sound && num_runs == 0) ran.emplace_back(run_[i], run_[i]->num_slots());
      if (is_sound) take_guess(results[i], task_idx, &tasks[task_idx].draft);
      if (!is_sound) asked_[task_idx] = nullptr;
    }
  }
  for (const auto& [shadow, num_slots] : ran) take_back(num_slots, shadow);
  return num_runs;
}

// The next guess of each chain that goes on; false: there is none.
bool HeadDrafter::plan_chains(std::span<const DraftTask> tasks, int32_t num_runs) {
  plan_ = StepPlan();
  planned_.clear();
  run_.clear();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto num_guesses = static_cast<int32_t>(tasks[i].draft.token_ids.size());
    Shadow* shadow = asked_[i];
    if (shadow == nullptr || num_guesses != num_runs || num_guesses == tasks[i].max_tokens) {
      continue;
    }
    const Wanted wanted{.max_rows = shadow->num_waiting(),
                        .guess = true,
                        .state = num_guesses + 1 < tasks[i].max_tokens};
    if (add_span(wanted, shadow)) planned_.push_back(i);
  }
  return !plan_.spans.empty();
}

// A guess needs all rows that wait.
bool HeadDrafter::add_span(const Wanted& wanted, Shadow* shadow) {
  const Sequence& own = shadow->sequence;
  const int64_t room = options_.max_batch_tokens - plan_.num_tokens;
  const int64_t num_rows = std::min(wanted.max_rows, room);
  const int32_t num_sampled = wanted.guess ? 1 : 0;
  if (num_rows <= 0 || (wanted.guess && num_rows < shadow->num_waiting()) ||
      plan_.num_logit_rows + num_sampled > options_.max_logit_rows) {
    return false;
  }
  shadow->token_ids.clear();
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = shadow->positions[static_cast<size_t>(own.num_computed + i)];
    shadow->token_ids.push_back(own.tokens[static_cast<size_t>(position + 1)]);
  }
  Span span;
  span.first_row = plan_.num_tokens;
  span.num_rows = static_cast<int32_t>(num_rows);
  span.first_position = own.num_computed;
  span.num_sampled = num_sampled;
  span.tables = own.table.tables.data();
  span.rope_epoch = own.rope_epoch;
  span.rope_positions = shadow->positions.data() + own.num_computed;
  span.states = shadow->states.data();
  span.token_ids = shadow->token_ids.data();
  span.first_pooled = span.end_position() - 1;
  span.num_pooled = wanted.state ? 1 : 0;
  plan_.num_tokens += span.num_rows;
  plan_.num_logit_rows += num_sampled;
  plan_.spans.push_back(span);
  plan_.sequences.push_back(&own);
  run_.push_back(shadow);
  return true;
}

std::span<const SpanResult> HeadDrafter::run() {
  runner_->launch(plan_);
  return runner_->finish();
}

// The rows of the run have slots now; false: what they gave was not finite.
bool HeadDrafter::take_rows(const SpanResult& result, const Span& span, Shadow* shadow) {
  if (result.failed()) {
    fail(shadow);
    return false;
  }
  shadow->sequence.num_computed = span.end_position();
  shadow->states.erase(shadow->states.begin(),
                       shadow->states.begin() + span.num_rows * static_cast<int64_t>(width_));
  return true;
}

void HeadDrafter::take_guess(const SpanResult& result, size_t task_idx, Draft* draft) {
  Shadow* shadow = asked_[task_idx];
  const int32_t id = result.sampled.front().token_id;
  if (ends_answer(shadow->sequence.request, options_.end_ids, id)) {
    asked_[task_idx] = nullptr;
    return;
  }
  shadow->sequence.tokens.push_back(id);
  draft->token_ids.push_back(id);
  if (result.pooled.empty()) return;
  shadow->states.assign(result.pooled.begin(), result.pooled.end());
  shadow->positions.push_back(shadow->positions.back() + 1);
}

// The slots of a chain, and its guesses.
void HeadDrafter::take_back(int64_t num_slots, Shadow* shadow) {
  Sequence& own = shadow->sequence;
  if (!own.running) return;
  own.num_computed = num_slots;
  own.tokens.resize(static_cast<size_t>(shadow->num_known));
  shadow->positions.resize(static_cast<size_t>(num_slots));
  shadow->states.clear();
  settle(shadow);
}

// Slots of all positions of a prefix can be found again.
void HeadDrafter::settle(Shadow* shadow) {
  Sequence& own = shadow->sequence;
  const int64_t num_slots = own.num_computed;
  const bool is_whole =
      num_slots > 0 && shadow->positions[static_cast<size_t>(num_slots - 1)] + 1 == num_slots;
  if (is_whole) {
    kv_.commit(inputs_of(*shadow), num_slots, &own.table);
  } else {
    kv_.advance(num_slots, &own.table);
  }
  kv_.rollback(num_slots, &own.table);
}

void HeadDrafter::fail(Shadow* shadow) {
  Sequence& own = shadow->sequence;
  own.ending = FinishReason::kError;
  kv_.discard(&own.table);
  own.running = false;
  runner_->scrub(kv_.take_tainted());
}

void HeadDrafter::forget(RequestId id) {
  const auto found = shadows_.find(id);
  if (found == shadows_.end()) return;
  leave(&found->second);
  shadows_.erase(found);
}

}  // namespace headrace
