#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/constraint.h"
#include "engine/sampler.h"
#include "model/adapter.h"

namespace headrace {
namespace {

constexpr int64_t kMaxLookedAt = 256;  // waiting sequences of a client in one search
constexpr size_t kMaxSessions = 256;   // remembered, with their branches
constexpr size_t kMaxSessionTokens = size_t{4} << 20;

bool is_older(const Sequence* a, const Sequence* b) { return a->order < b->order; }

Usage usage_of(const Sequence& sequence) {
  // A search has put nothing out before its end.
  const int32_t num_output = sequence.search == nullptr ? sequence.num_output() : 0;
  Usage usage{sequence.num_prompt, num_output, sequence.cached_tokens};
  usage.accepted_predicted_tokens = sequence.num_predicted_kept;
  usage.miss = sequence.miss;
  return usage;
}

// What the sampler asks of the tokens, up to the end of the prompt.
void begin_sampling(Sequence* sequence) {
  const SamplingParams& sampling = sequence->request.sampling;
  sequence->mirostat_bound = first_mirostat_bound(sampling);
  sequence->loop_watch = LoopWatch(sequence->request.repetition_stop);
  const bool draws = sequence->samples() && sequence->search == nullptr;
  if (!draws || !TokenHistory::is_needed(sampling)) return;
  sequence->history = std::make_unique<TokenHistory>(sampling, sequence->num_prompt);
  sequence->history->extend(sequence->tokens);
}

// Whether a sampled row from this one on was not finite.
bool fails_past(const SpanResult& result, int32_t first_row) {
  for (auto row = static_cast<size_t>(first_row); row < result.sampled.size(); ++row) {
    if (!result.sampled[row].failure.empty()) return true;
  }
  return false;
}

}  // namespace

KvCacheOptions cache_options(const SchedulerOptions& options) {
  return {options.num_blocks, options.cache_rules, options.max_batch_tokens,
          options.hash_key,   options.numerics,    options.kv_events,
          options.tier};
}

PrefixRoot root_of(const Sequence& sequence) {
  PrefixRoot root;
  root.domain = sequence.request.cache_domain;
  root.rope_epoch = sequence.rope_epoch;
  if (sequence.request.adapter != nullptr) root.adapter = sequence.request.adapter->digest;
  return root;
}

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      beam_limits_(beam_limits_of(options_)),
      kv_(cache_options(options_)),
      sessions_(kMaxSessions, kMaxSessionTokens),
      scores_(options_.max_score_bytes),
      cost_(options_.step_cost),
      lead_us_(most_lead_us()),
      chunk_tokens_(options_.max_batch_tokens) {
  room_.set_tenants(options_.tenants);
  CHECK(options_.max_sequences > 0 && options_.max_sequences <= options_.max_batch_tokens &&
            options_.max_sequences <= options_.max_logit_rows,
        "{} sequences, {} tokens, {} logit rows", options_.max_sequences, options_.max_batch_tokens,
        options_.max_logit_rows);
  CHECK(options_.max_context > 0 && most_blocks(options_.cache_rules, options_.max_context,
                                                options_.max_batch_tokens) <= options_.num_blocks,
        "context of {} tokens, {} blocks", options_.max_context, options_.num_blocks);
  CHECK(options_.rope_epoch != nullptr);
  const auto max_sequences = static_cast<size_t>(options_.max_sequences);
  running_.reserve(max_sequences);
  scratch_.reserve(max_sequences);
  plan_.spans.reserve(max_sequences);
  plan_.sequences.reserve(max_sequences);
  planned_.reserve(max_sequences);
  masks_.resize(static_cast<size_t>(options_.max_logit_rows) * mask_words(options_.vocab_size));
}

void Scheduler::admit(RequestId id, Request request, TimeUs submitted_us) {
  charge();
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->order = next_order_++;
  sequence->num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  sequence->max_known =
      std::min<int64_t>(options_.max_context, int64_t{sequence->num_prompt} + request.max_tokens);
  CHECK(request.constraint == nullptr || options_.vocab_size > 0,
        "a constraint, but no size of the vocabulary");
  CHECK(sequence->num_prompt > 0 && sequence->num_prompt <= options_.max_context,
        "a prompt of {} tokens", sequence->num_prompt);
  sequence->tokens = std::move(request.prompt_ids);
  sequence->request = std::move(request);
  if (sequence->request.beams.width > 0) begin_search(sequence.get());
  begin_sampling(sequence.get());
  if (sequence->scores_prompt()) sequence->prompt_logprobs.resize(sequence->tokens.size());
  sequence->rope_epoch = options_.rope_epoch(sequence->num_known());
  sequence->root = kv_.root(root_of(*sequence));
  sequence->session = name_of_session(sequence->request, sequence->request.session);
  sequence->parent_session = name_of_session(sequence->request, sequence->request.parent_session);
  sequence->times.submitted = submitted_us;
  set_limits(sequence.get());
  watch(*sequence);
  room_.add(sequence.get());
  const bool inserted = sequences_.emplace(id, std::move(sequence)).second;
  CHECK(inserted, "request id {} is used twice", id);
}

void Scheduler::end(RequestId id, FinishReason reason, TimeUs now, std::vector<Event>* events) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence* sequence = found->second.get();
  const bool planned =
      in_flight_ && std::any_of(plan_.sequences.begin(), plan_.sequences.end(),
                                [id](const Sequence* each) { return each->id == id; });
  if (planned) {
    sequence->ending = reason;
  } else {
    finish(sequence, reason, now, events);
  }
}

const StepPlan& Scheduler::plan(TimeUs now) {
  CHECK(!in_flight_, "step {} is not committed", plan_.step_idx);
  planned_us_ = now;
  awaits_tier_ = false;
  plan_.step_idx = stats_.num_steps;
  plan_.spans.clear();
  plan_.sequences.clear();
  planned_.clear();
  plan_.num_tokens = 0;
  plan_.num_logit_rows = 0;
  kv_.set_time(now);
  secure_blocks();
  start_waiting(now);
  propose_drafts();
  plan_single_tokens();
  plan_chunks();
  if (plan_.spans.empty() && !running_.empty()) {
    // Who gave way to one that could not start left blocks that who stays was waiting for.
    secure_blocks();
    plan_single_tokens();
    plan_chunks();
  }
  assign_masks();
  if (plan_.spans.empty()) settle();  // no step that it could be done beside
  if (plan_.spans.empty() && awaits_tier_ && running_.empty()) return plan_;
  predict();
  CHECK(!plan_.spans.empty() || idle(), "{} running and {} waiting, but nothing can be computed",
        running_.size(), room_.num_waiting());
  ++stats_.num_steps;
  in_flight_ = true;
  return plan_;
}

bool Scheduler::is_protected(const Sequence& sequence) const {
  return sequence.num_preemptions >= options_.max_preemptions;
}

// Every running sequence gets blocks for what it knows, the protected first, as they started, then
// by rank. The first of this order can always have them, so some sequence moves in every step.
void Scheduler::secure_blocks() {
  list_for_blocks();
  for (size_t i = 0; i < scratch_.size(); ++i) {
    Sequence* sequence = scratch_[i];
    for (size_t b = 0; b < sequence->num_beams(); ++b) {
      if (!secure(sequence, &sequence->beam(b))) break;  // waits, with what it holds
    }
  }
}

// One beam of a search, or the sequence itself. Who comes after its holder gives way.
bool Scheduler::secure(Sequence* holder, Sequence* beam) {
  if (!may_take(*holder, missing_of(*holder, *beam))) return false;
  while (!take_blocks(*holder, beam)) {
    Sequence* victim = scratch_.back();
    // may_take() leaves the protected enough: none is ever the last here.
    if (victim == holder || is_protected(*victim)) return false;
    ++victim->num_preemptions;
    preempt(victim);
    scratch_.pop_back();
  }
  return true;
}

void Scheduler::preempt(Sequence* sequence) {
  for (size_t i = 0; i < sequence->num_beams(); ++i) {
    kv_.release(&sequence->beam(i).table);
    sequence->beam(i).num_computed = 0;
  }
  ++stats_.num_preemptions;
  stop(sequence);
  room_.add(sequence);
}

void Scheduler::stop(Sequence* sequence) {
  charge();
  sequence->running = false;
  num_slots_ -= sequence->num_slots();
  std::erase(running_, sequence);
  std::erase(shielded_, sequence);
  room_.stop(sequence);
}

void Scheduler::start_waiting(TimeUs now) {
  passed_.clear();
  if (room_.num_waiting() == 0) return;
  charge();
  room_.begin_turns(plan_.step_idx);
  while (Client* client = room_.next_turn()) {
    Sequence* sequence = first_to_start(*client);
    if (sequence == nullptr) continue;  // all of them follow others, or are passed
    if (!may_pass(*sequence)) return;
    const uint64_t preemptions = stats_.num_preemptions;
    if (make_room(sequence)) {
      begin(sequence, now);
      for (Sequence* each : passed_) ++each->num_passed;
    } else if (may_be_passed(*sequence)) {
      passed_.push_back(sequence);
    } else {
      return;
    }
    if (stats_.num_preemptions == preemptions) {
      room_.return_turn(client);
    } else {
      room_.begin_turns(plan_.step_idx);
    }
  }
}

Sequence* Scheduler::first_to_start(const Client& client) {
  const auto last = std::min<int64_t>(std::ssize(client.waiting), kMaxLookedAt);
  for (int64_t i = 0; i < last; ++i) {
    Sequence* sequence = client.waiting[static_cast<size_t>(i)];
    const bool is_passed = std::find(passed_.begin(), passed_.end(), sequence) != passed_.end();
    if (!is_passed && !follows(sequence)) return sequence;
  }
  return nullptr;
}

// Slot and blocks for a waiting sequence; others give way to one whose client has nothing running.
// Slots that another client has just left and will ask for again are no room for one that has some.
// A search has to wait for its slots: one that gives way may not be enough.
bool Scheduler::make_room(Sequence* sequence) {
  const bool has_none = room_.has_none_running(*sequence);
  const int num_kept = has_none || running_.empty() ? 0 : room_.num_kept_from(*sequence);
  if (num_kept > 0 && num_slots_ + num_kept + sequence->num_slots() > options_.max_sequences)
    return false;
  while (num_slots_ + sequence->num_slots() > options_.max_sequences) {
    if (!has_none || sequence->search != nullptr || !give_way(*sequence)) return false;
  }
  while (!start(sequence)) {
    if (!has_none || !give_way(*sequence)) return false;
  }
  return true;
}

// The youngest of the client that runs the most for its part waits again. None does of clients that
// run but one, or whose tenant would then run less for its weight than that of the taker.
bool Scheduler::give_way(const Sequence& taker) {
  rank_running();
  Sequence* last = nullptr;
  for (Sequence* sequence : running_) {
    if (sequence->rank == 0 || !room_.may_take_from(taker, *sequence)) continue;
    const bool is_better =
        last == nullptr || (is_protected(*last) && !is_protected(*sequence)) ||
        (is_protected(*last) == is_protected(*sequence) && sequence->standing >= last->standing);
    if (is_better) last = sequence;
  }
  if (last == nullptr) return false;
  preempt(last);
  ++stats_.num_turns_given;
  return true;
}

void Scheduler::begin(Sequence* sequence, TimeUs now) {
  room_.start(sequence);
  sequence->running = true;
  num_slots_ += sequence->num_slots();
  running_.insert(std::lower_bound(running_.begin(), running_.end(), sequence, comes_before),
                  sequence);
  if (is_protected(*sequence)) {
    sequence->shield = next_shield_++;
    shielded_.push_back(sequence);
  }
  sequence->num_passed = 0;
  if (sequence->leader_id != 0) ++stats_.num_followed;
  sequence->leader_id = 0;
  sequence->asked_tier = false;
  if (sequence->times.started != 0) return;
  sequence->times.started = now;
  // Once, for the whole length; requests that only wait hold no more than their prompt.
  sequence->tokens.reserve(static_cast<size_t>(sequence->max_known));
  sequence->cached_tokens = static_cast<int32_t>(sequence->num_computed);
  sequence->miss = explain_miss(*sequence);
  use_parent(*sequence);
  room_.note_prompt(*sequence, prompt_alone_us(*sequence), now);
}

void Scheduler::begin_table(Sequence* sequence) {
  kv_.begin(sequence->root, sequence->num_prompt, &sequence->table);
  sequence->table.retention = sequence->request.retention;
  sequence->table.owner = sequence->request.client;
}

bool Scheduler::start(Sequence* sequence) {
  BlockTable& table = sequence->table;
  begin_table(sequence);
  take_kept_scores(sequence);
  sequence->num_computed = kv_.match(findable(*sequence), &table);
  // Running sequences can grow by one block each before this start makes them pre-empt it; and the
  // beams of this one branch off from it.
  const int64_t known = sequence->num_known();
  const int64_t missing = kv_.missing(known, table);
  const int64_t growth = int64_t{num_slots_ + sequence->num_slots() - 1} * kv_.num_columns();
  if (missing + growth <= kv_.pool().num_available() && may_take(*sequence, missing)) {
    const int64_t num_found = sequence->num_computed;
    sequence->num_computed = kv_.restore(findable(*sequence), &table);
    stats_.restored_tokens += static_cast<uint64_t>(sequence->num_computed - num_found);
    fork_leader(sequence);
    // Behind a copied last block the first chunk reaches further, maybe into more blocks of
    // windows.
    if (may_take(*sequence, kv_.missing(known, table)) && kv_.reserve(known, &table)) return true;
  }
  kv_.release(&table);
  sequence->num_computed = 0;
  return false;
}

void Scheduler::plan_single_tokens() {
  for (Sequence* sequence : running_) plan_next_of(sequence);
}

// What is left goes to clients by their parts; what one cannot use goes to those who want more.
void Scheduler::plan_chunks() {
  scratch_.clear();
  for (Sequence* sequence : running_) {
    for (size_t i = 0; i < sequence->num_beams(); ++i) {
      Sequence& beam = sequence->beam(i);
      const bool can_go_on = beam.has_table() && kv_.covers(beam.num_known(), beam.table);
      if (beam.gap() > 1 && !beam.lacks_one() && can_go_on && num_next(beam) > 0)
        scratch_.push_back(&beam);
    }
  }
  if (scratch_.empty()) return;
  charge();
  room_.sort_by_wants(&scratch_, planned_us_);
  int32_t num_clients = 0;
  for (size_t i = 0; i < scratch_.size(); ++i) {
    num_clients += i == 0 || scratch_[i]->request.client != scratch_[i - 1]->request.client;
  }
  const int32_t end_tokens = plan_.num_tokens + std::max(room_for_chunks(num_clients), num_clients);
  for (auto first = scratch_.begin(); first != scratch_.end(); --num_clients) {
    const auto last = std::find_if(first, scratch_.end(), [&](const Sequence* sequence) {
      return sequence->request.client != (*first)->request.client;
    });
    const int32_t tokens = end_tokens - plan_.num_tokens;
    const int32_t rows = options_.max_logit_rows - plan_.num_logit_rows;
    plan_chunks_of({first, last}, room_.take_part(**first, tokens, num_clients - 1),
                   room_.part_of(**first, rows, num_clients - 1));
    room_.leave_division(**first);
    first = last;
  }
}

// sequences: of one client, in order.
void Scheduler::plan_chunks_of(std::span<Sequence*> sequences, int32_t max_tokens,
                               int32_t max_logit_rows) {
  const int32_t end_tokens = plan_.num_tokens + max_tokens;
  const int32_t end_logit_rows = plan_.num_logit_rows + max_logit_rows;
  const Sequence* first = sequences.front();
  std::sort(sequences.begin(), sequences.end(), [](const Sequence* a, const Sequence* b) {
    return a->gap() != b->gap() ? a->gap() < b->gap() : comes_before(a, b);
  });
  // What is kept for the first until its turn comes.
  int32_t kept_tokens = (max_tokens + 1) / 2;
  int32_t kept_logit_rows = (max_logit_rows + 1) / 2;
  for (Sequence* sequence : sequences) {
    if (sequence == first) kept_tokens = kept_logit_rows = 0;
    add_span(sequence, end_tokens - plan_.num_tokens - kept_tokens,
             end_logit_rows - plan_.num_logit_rows - kept_logit_rows);
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
  int64_t count = std::min<int64_t>(num_next(*sequence), max_tokens);
  if (count > 0) count = kv_.limit_chunk(count, sequence->table);
  if (count > 0 && num_scored(count) > max_logit_rows) {
    count = first_scored - computed + max_logit_rows;
  }
  if (count > 0 && reaches_end(count) && num_scored(count) + 1 > max_logit_rows) --count;
  if (count <= 0) return;
  Span span;
  span.first_row = plan_.num_tokens;
  span.num_rows = static_cast<int32_t>(count);
  span.first_position = computed;
  span.tables = sequence->table.tables.data();
  span.rope_epoch = sequence->rope_epoch;
  if (sequence->request.adapter != nullptr) {
    span.adapter = sequence->request.adapter->packed.get();
  }
  span.first_scored = first_scored;
  span.num_scored = static_cast<int32_t>(num_scored(count));
  span.num_sampled = reaches_end(count) ? 1 + sequence->num_draft : 0;
  const PromptRange to_pool = sequence->to_pool();
  span.first_pooled = std::max({computed, sequence->num_pooled, to_pool.first});
  span.num_pooled = static_cast<int32_t>(
      std::max<int64_t>(0, std::min(computed + count, to_pool.end) - span.first_pooled));
  if (reaches_end(count)) {
    span.num_draft = sequence->num_draft;
    span.num_rows += span.num_draft;
    if (span.num_draft > 0 && !kv_.can_roll_back())
      span.states_ahead = sequence->table.ahead.data();
  }
  if (tells_states(*sequence)) {
    span.first_pooled = computed;
    span.num_pooled = span.num_rows;
  }
  plan_.num_tokens += span.num_rows;
  plan_.num_logit_rows += span.num_logit_rows();
  plan_.spans.push_back(span);
  plan_.sequences.push_back(sequence);
  planned_.push_back(sequence);
  kv_.prepare(count, &sequence->table, span.num_draft);
}

void Scheduler::commit(std::span<SpanResult> results, TimeUs now, std::vector<Event>* events) {
  CHECK(in_flight_ && results.size() == plan_.spans.size(), "{} results for {} spans",
        results.size(), plan_.spans.size());
  settle();  // of the step before
  in_flight_ = false;
  kv_.set_time(now);
  tier_cost_.computed(plan_.num_tokens, now - planned_us_);
  owe_charge(now);
  const uint64_t before = stats_.generation_tokens;
  scratch_.clear();  // for the searches
  for (size_t i = 0; i < results.size(); ++i) {
    if (planned_[i]->request.beams.width == 0) {
      commit_span(planned_[i], plan_.spans[i], &results[i], now, events);
      continue;
    }
    Sequence* search = sequences_.at(planned_[i]->id).get();
    commit_beam(search, i, &results[i], events);
    const bool is_listed = std::find(scratch_.begin(), scratch_.end(), search) != scratch_.end();
    if (!is_listed) scratch_.push_back(search);
  }
  for (Sequence* search : scratch_) commit_search(search, now, events);
  owe(stats_.generation_tokens - before, now);
  if (idle()) settle();
}

void Scheduler::commit_span(Sequence* sequence, const Span& span, SpanResult* result, TimeUs now,
                            std::vector<Event>* events) {
  if (result->failed() || sequence->ending != FinishReason::kNone) {
    sequence->tokens.resize(static_cast<size_t>(sequence->num_known()));
    sequence->num_draft = 0;
    if (result->failed()) return fail(sequence, std::move(result->failure), now, events);
    if (fails_past(*result, 0)) kv_.discard(&sequence->table);
    return finish(sequence, sequence->ending, now, events);
  }
  CHECK(std::ssize(result->sampled) == span.num_sampled, "{} tokens of {} sampled rows",
        result->sampled.size(), span.num_sampled);
  const int32_t num_accepted = count_accepted(*sequence, span, *result);
  if (span.num_draft > 0) count_draft(sequence, span, num_accepted);
  advance(sequence, span, *result, num_accepted);
  take_scores(sequence, span, result, events);
  take_states(sequence, span, *result, num_accepted);
  if (fails_past(*result, num_accepted + 1)) recompute(sequence);
  if (span.num_sampled == 0) {  // max_tokens = 0: only the prompt was wanted
    if (sequence->gap() == 0) finish_prompt(sequence, now, events);
    return;
  }
  for (int32_t i = 0; i <= num_accepted; ++i) {
    SampledToken& sampled = result->sampled[static_cast<size_t>(i)];
    if (!sampled.failure.empty()) return fail(sequence, std::move(sampled.failure), now, events);
    if (!take_token(sequence, &sampled, now, events)) return;
  }
  // Wrong guesses leave their blocks.
  if (span.num_draft > 0 && sequence->num_computed > 0) {
    kv_.rollback(sequence->num_known(), &sequence->table);
  }
}

// How many guesses are what was sampled in their place; none after the end of the sequence.
int32_t Scheduler::count_accepted(const Sequence& sequence, const Span& span,
                                  const SpanResult& result) const {
  const auto guesses = std::span(sequence.tokens).last(static_cast<size_t>(span.num_draft));
  for (size_t i = 0; i < guesses.size(); ++i) {
    const SampledToken& sampled = result.sampled[i];
    const bool is_right = sampled.failure.empty() && sampled.token_id == guesses[i];
    if (!is_right || ends(sequence, sampled.token_id)) return static_cast<int32_t>(i);
  }
  return span.num_draft;
}

// Tokens are computed: publishes what is verified, unless the step computed what is not finite.
void Scheduler::advance(Sequence* sequence, const Span& span, const SpanResult& result,
                        int32_t num_accepted) {
  sequence->num_computed =
      kv_.verify(span.end_position(), span.num_draft, num_accepted, &sequence->table);
  const bool fails =
      span.num_sampled > 0 && !result.sampled[static_cast<size_t>(num_accepted)].failure.empty();
  const auto verified =
      std::span(sequence->tokens).first(static_cast<size_t>(sequence->num_known() + num_accepted));
  if (!fails && publishes(*sequence)) {
    kv_.commit(verified, sequence->num_computed, &sequence->table);
  } else {
    kv_.advance(sequence->num_computed, &sequence->table);
  }
  sequence->tokens.resize(static_cast<size_t>(sequence->num_known()));
  sequence->num_draft = 0;
}

// What is not finite among the keys and values of wrong guesses must not stay in a block that is
// read, by this sequence or a later one.
void Scheduler::recompute(Sequence* sequence) {
  kv_.discard(&sequence->table);
  begin_table(sequence);
  sequence->num_computed = 0;
}

void Scheduler::fail(Sequence* sequence, std::string failure, TimeUs now,
                     std::vector<Event>* events) {
  kv_.discard(&sequence->table);
  finish(sequence, FinishReason::kError, now, events);
  events->back().error = Error{ErrorCode::kUnprocessable,
                               std::move(failure),
                               "it fails each time it is computed; change the request",
                               {}};
}

void Scheduler::take_scores(Sequence* sequence, const Span& span, SpanResult* result,
                            std::vector<Event>* events) {
  CHECK(static_cast<int32_t>(result->scored.size()) == span.num_scored, "{} scores for {} rows",
        result->scored.size(), span.num_scored);
  for (int32_t i = 0; i < span.num_scored; ++i) {
    const int64_t position = span.first_scored + i + 1;
    sequence->prompt_logprobs[static_cast<size_t>(position)] =
        std::move(result->scored[static_cast<size_t>(i)]);
  }
  if (span.num_scored > 0) {
    sequence->num_scored = static_cast<int32_t>(span.first_scored + span.num_scored);
  }
  if (sequence->scores_prompt() && !sequence->prompt_reported) keep_scores(sequence);
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

// Scored or pooled: there is nothing to generate.
void Scheduler::finish_prompt(Sequence* sequence, TimeUs now, std::vector<Event>* events) {
  const bool pools = sequence->request.pooling != Pooling::kNone;
  std::vector<float> embedding;
  if (pools) embedding = sequence->pool.mean();
  finish(sequence, pools ? FinishReason::kStop : FinishReason::kLength, now, events);
  events->back().embedding = std::move(embedding);
}

bool Scheduler::ends(const Sequence& sequence, int32_t token_id) const {
  const auto contains = [token_id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  return contains(sequence.request.stop_ids) ||
         (!sequence.request.ignore_eos && contains(options_.end_ids));
}

// False: the sequence has ended.
bool Scheduler::take_token(Sequence* sequence, SampledToken* sampled, TimeUs now,
                           std::vector<Event>* events) {
  const int32_t token_id = sampled->token_id;
  if (sequence->times.first_token == 0) sequence->times.first_token = now;
  if (ends(*sequence, token_id)) {
    finish(sequence, FinishReason::kStop, now, events);
    events->back().stop_id = token_id;
    return false;
  }
  if (sequence->request.constraint != nullptr) sequence->request.constraint->accept(token_id);
  add_token(sequence, *sampled);
  ++stats_.generation_tokens;
  Event event;
  event.kind = Event::Kind::kToken;
  event.request_id = sequence->id;
  event.token_id = token_id;
  event.logprobs = std::move(sampled->logprobs);
  event.label_logprobs = std::move(sampled->label_logprobs);
  event.usage = usage_of(*sequence);
  events->push_back(std::move(event));
  const Constraint* constraint = sequence->request.constraint.get();
  const bool repeats = sequence->loop_watch.sees_loop(sequence->output());
  const bool finished = repeats || (constraint != nullptr && constraint->is_finished());
  if (finished || sequence->num_known() >= sequence->max_known) {
    finish(sequence, finished ? FinishReason::kStop : FinishReason::kLength, now, events);
    events->back().repeats = repeats;
    return false;
  }
  update_epoch(sequence);
  return true;
}

void Scheduler::add_token(Sequence* sequence, const SampledToken& sampled) {
  sequence->tokens.push_back(sampled.token_id);
  if (sequence->history != nullptr) sequence->history->extend(sequence->tokens);
  const SamplingParams& sampling = sequence->request.sampling;
  if (!sampling.mirostat) return;
  sequence->mirostat_bound =
      next_mirostat_bound(sampling, sequence->mirostat_bound, sampled.surprise);
}

// With another rope table all K and V are stale: the sequence is computed again from position 0.
void Scheduler::update_epoch(Sequence* sequence) {
  const int64_t epoch = options_.rope_epoch(sequence->num_known());
  if (epoch == sequence->rope_epoch) return;
  sequence->rope_epoch = epoch;
  sequence->num_computed = 0;
  sequence->root = kv_.root(root_of(*sequence));
  kv_.release(&sequence->table);
  begin_table(sequence);
  ++stats_.num_epoch_restarts;
}

void Scheduler::finish(Sequence* sequence, FinishReason reason, TimeUs now,
                       std::vector<Event>* events) {
  CHECK(!in_flight_ || std::find(planned_.begin(), planned_.end(), sequence) == planned_.end(),
        "request {} ends before its step", sequence->id);
  const bool ends_by_itself = sequence->ending == FinishReason::kNone;
  if (ends_by_itself && sequence->search == nullptr && publishes(*sequence))
    kv_.keep_end(sequence->tokens, &sequence->table);
  for (size_t i = 0; i < sequence->num_beams(); ++i) kv_.release(&sequence->beam(i).table);
  Event event;
  event.kind = Event::Kind::kFinished;
  event.request_id = sequence->id;
  event.reason = reason;
  if (reason == FinishReason::kExpired) event.error = expired_error(*sequence);
  event.usage = usage_of(*sequence);
  event.times = sequence->times;
  event.times.finished = now;
  events->push_back(std::move(event));
  unwatch(*sequence);
  if (reason != FinishReason::kError) remember(sequence);
  charge();
  if (sequence->running) {
    room_.keep_place(*sequence, now, stats_.num_steps);
    stop(sequence);
  } else {
    room_.remove(sequence);
  }
  for (Drafter* drafter : {options_.drafter, options_.model_drafter}) {
    if (drafter != nullptr) drafter->forget(sequence->id);
  }
  sequences_.erase(sequence->id);
  if (idle() && !in_flight_) settle();
}

const Sequence* Scheduler::find(RequestId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

std::vector<RequestId> Scheduler::ids() const {
  std::vector<const Sequence*> all(running_.begin(), running_.end());
  for (const auto& [id, client] : room_.clients()) {
    all.insert(all.end(), client.waiting.begin(), client.waiting.end());
  }
  std::sort(all.begin(), all.end(), is_older);
  std::vector<RequestId> ids;
  for (const Sequence* sequence : all) ids.push_back(sequence->id);
  return ids;
}

}  // namespace headrace
