// Scheduler: decides what each step computes. A deterministic state machine.
//
// No thread, clock, lock or I/O inside: the same calls with the same arguments give the same plans
// and events, always; the simulation and the step log rely on it. One loop serves prefill, decode
// and recomputation: a plan gives sequences parts of their gap between tokens known and computed.
//
// Policy. Clients take turns at slots, blocks and tokens of a step, by the tenants that they are of
// (tenants.h); with one client all below is in its order. Slots: who has nothing running gets one
// at once, from the last of the client that runs the most for its part, unless that takes from a
// tenant what is its own (waiting_room.h has the order of starts). Who lacks blocks for a start may
// be passed by others that have them, max_passes times. Blocks: running sequences keep blocks for
// all tokens they know; who cannot get them pre-empts the last in rank (order within the client),
// which waits again with its outputs kept. After max_preemptions a request is protected: nobody
// takes its blocks for their own growth. It takes them as it grows, unless that could keep an
// earlier one of the protected from its end; then it stands still until that one has ended
// (scheduler_bounds.cpp). Tokens: single tokens go first, then chunks by the parts of clients;
// within a share the first has half for sure, the shortest gap is served first, so a short prompt
// overtakes a long one without starving it.
//
// Equal beginnings are computed once: a waiting sequence whose next block, or all of whose tokens
// but the last, a running one is about to compute follows it, that is, starts when they are there:
// with the common blocks, and a copy of the last if it is not full. It gives up when that takes
// much longer than computing alone. Log-probs of a prompt are kept by its blocks
// (engine/score_store.h), so that who scores the same beginning again, or follows who does,
// computes only the rest. Blocks are published when the rows of their step are finite, and only
// under a rope table that lasts longer than one token.
//
// A beam search is one of these sequences, whose beams share what they have in common
// (scheduler_beams.cpp). It has a slot for each beam that it may have, and no guesses.
//
// Time. Where somebody decodes, chunks get as many tokens as keep the step within the inter-token
// target, or within kMostStretch of what it takes without them where that is more: so that prompts
// always have a good part of the time. Where streams are ahead of the target, since steps were
// shorter, one may take up to twice the target, at the cost of that lead: a crowd of short prompts
// is answered soon, and streams keep the target over a second. Prompts of many such steps, where
// nobody waits for a place, get no more than kMostStretch allows, if that gives them kPromptShare
// of their speed alone. A client that runs less than its part beside others may stretch steps by
// kMostFavour, for as many tokens as it has spared (tenants.h): so the streams of many leave it
// more than half of the time. While a client that uses little comes again and again, prompts of
// others fill a step up to kLeastStretch, or until it takes as long as the light client's prompt
// does alone without its streams, and that prompt is computed whole: so it waits twice as long at
// most. While one that uses more asks for one thing at a time and others wait for a place, steps
// take up to twice what its prompt does: half of each is its part. What steps cost is
// learned from the times of the calls (step_cost.h). Where nobody decodes, and nobody light is
// expected, a step has all the tokens that it can.
//
// Guesses (engine/drafter.h) take tokens, logit rows and blocks that nobody else wants in this
// step, and are as many as pay (draft_policy.h). Those that equal what is sampled in their place
// become known in one go; the others leave no trace: they are not published, and their blocks are
// given back. Where there is state, guesses leave theirs in blocks of their own; if one of them is
// wrong, the next step computes the right ones before it again.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/span.h"
#include "engine/beam_limits.h"
#include "engine/draft_policy.h"
#include "engine/drafter.h"
#include "engine/kv_cache.h"
#include "engine/score_store.h"
#include "engine/sequence.h"
#include "engine/session_memory.h"
#include "engine/step_cost.h"
#include "engine/tier_cost.h"
#include "engine/waiting_room.h"

namespace headrace {

inline constexpr int kMaxPreemptions = 4;
inline constexpr double kMostStretch = 1.7;   // of a step of streams, by chunks of prompts
inline constexpr double kMostFavour = 3;      // the same, by those of clients that run less
inline constexpr double kLeastStretch = 1.3;  // the same, where a light client is expected
inline constexpr double kPromptShare = 0.43;  // of its speed alone, that a long prompt shall have
inline constexpr int64_t kShortSteps = 4;     // within the target, that a short prompt takes
inline constexpr double kMostLead = 20;       // of streams, in targets
inline constexpr int32_t kLeastChunk = 8;     // tokens of all chunks of a step
inline constexpr double kCloseShare = 0.15;   // a prediction within this counts as close
inline constexpr int kMaxPasses = 16;
inline constexpr TimeUs kPriorityAge = 30'000'000;

struct SchedulerOptions {
  int max_batch_tokens = 512;
  int max_logit_rows = 64;
  // <= max_batch_tokens and <= max_logit_rows: each gets its row. Beams count one by one.
  int max_sequences = 64;
  int64_t num_blocks = 0;
  int64_t max_context = 0;                // within num_blocks: any admitted request fits alone
  int max_preemptions = kMaxPreemptions;  // per request, then it is protected
  int max_passes = kMaxPasses;            // of who waits for blocks, by others that start
  TimeUs priority_age = kPriorityAge;     // what a level of priority is worth
  std::vector<int32_t> end_ids;
  std::function<int64_t(int64_t)> rope_epoch;          // Model::rope_epoch; a pure function
  std::vector<CacheRule> cache_rules = {CacheRule{}};  // the model's cache groups
  std::vector<TenantSpec> tenants = {};                // checked ones, at the start
  HashKey hash_key = {};  // of the prefix index; a secret where prompts come from strangers
  std::string numerics;   // names the arithmetic behind the cache
  size_t max_score_bytes = size_t{64} << 20;  // of prompt log-probs that are kept
  KvEventSink* kv_events = nullptr;           // null, or outlives the scheduler
  KvTier* tier = nullptr;                     // null, or outlives the scheduler
  Drafter* drafter = nullptr;                 // null: nobody guesses; outlives the scheduler
  Drafter* model_drafter = nullptr;  // a costly one, where that has nothing as good; likewise
  int32_t max_draft_tokens = 0;      // guesses of a sequence in one step
  bool drafts_must_pay = true;       // false: as many as fit, whatever they cost
  int32_t max_forced_tokens = 8;     // the same, of those that its constraint makes
  int64_t vocab_size = 0;            // of masks; 0: no request has a constraint
  TimeUs inter_token_target_us = 0;  // 0: steps take as long as they take
  StepCost step_cost = {};           // what is known of it at the start
  // Told how many blocks were ever held when a step is planned that computes something: how many
  // pieces of memory that was never written the step has to touch (StepLoad). Null: none.
  std::function<int64_t(int64_t num_blocks)> claim_memory = {};
};

// Of a scheduler with these options.
BeamLimits beam_limits_of(const SchedulerOptions& options);

struct StepPlan {
  uint64_t step_idx = 0;
  std::vector<Span> spans;                 // cover rows 0..num_tokens-1 in order
  std::vector<const Sequence*> sequences;  // whose each span is; valid until the plan is committed
  int32_t num_tokens = 0;
  int32_t num_logit_rows = 0;
  StepLoad load;
  double predicted_us = 0;  // what it takes; 0: nothing is known yet
};

// What one sampled row gave.
struct SampledToken {
  int32_t token_id = -1;
  std::optional<TokenLogprobs> logprobs = {};  // if asked for
  std::string failure = {};                    // not empty: why there is no token, for the client
  std::vector<float> label_logprobs = {};      // of the first token, if asked for
  double surprise = 0;                         // in bits, where mirostat asks for it
  std::vector<BeamCandidate> candidates = {};  // of a beam: in place of the token

  // As a new one, in the memory that it has.
  void clear() {
    token_id = -1;
    logprobs.reset();
    failure.clear();
    label_logprobs.clear();
    surprise = 0;
    candidates.clear();
  }
};

// What a step gave one span.
struct SpanResult {
  std::string failure;                // not empty: of the rows before the guesses, for the client
  std::vector<SampledToken> sampled;  // num_sampled of them, and
  std::vector<TokenLogprobs> scored;  // num_scored, unless it failed
  std::span<const float> pooled;      // [num_pooled, hidden_size]; good until the next step

  bool failed() const { return !failure.empty(); }
};

struct SchedulerStats {  // since start
  uint64_t num_steps = 0;
  uint64_t num_preemptions = 0;  // for blocks, and to give way to another client
  uint64_t num_turns_given = 0;  // of them, to give way
  uint64_t num_followed = 0;     // starts after waiting for an equal beginning
  uint64_t num_epoch_restarts = 0;
  uint64_t prompt_tokens = 0;  // of requests whose prompt is computed
  uint64_t cached_tokens = 0;  // of them found in the cache
  uint64_t generation_tokens = 0;
  uint64_t draft_tokens = 0;      // guessed and computed
  uint64_t accepted_tokens = 0;   // of them, right
  uint64_t restored_tokens = 0;   // that the tier gave back
  uint64_t num_fetches = 0;       // waits for the tier
  uint64_t num_refusals = 0;      // of waits, where computing is faster
  uint64_t num_late_fetches = 0;  // waited for in vain
  uint64_t predicted_steps = 0;
  uint64_t close_predictions = 0;  // of them, those that took within kCloseShare of it
  uint64_t shortened_steps = 0;    // whose chunks had to be short, for somebody who decodes
  std::array<DraftCounts, kNumDraftSources> drafts{};  // the same by source
};

// The cache that these options are of, and whose prefixes a sequence may share there.
KvCacheOptions cache_options(const SchedulerOptions& options);
PrefixRoot root_of(const Sequence& sequence);

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);

  // The request was checked (engine/request_check.h), within beam_limits_of(). Ids are never used
  // twice.
  void admit(RequestId id, Request request, TimeUs submitted_us);
  // Ends the request now, or with the step in flight: cancelled or stopped. Unknown ids are
  // ignored.
  void end(RequestId id, FinishReason reason, TimeUs now, std::vector<Event>* events);
  // Requests whose queue time or deadline has passed and who are not told so yet: the caller ends
  // each with kExpired.
  std::vector<RequestId> take_expired(TimeUs now);
  // The next step. Must be committed before the next plan, unless its spans are empty while
  // requests are admitted: then all of them wait for the tier, and planning again later is right.
  const StepPlan& plan(TimeUs now);
  // Before plan(), which else does it itself: lets drafters guess. The time until plan() is what
  // that takes.
  void draft(TimeUs now);
  // Writes the masks of the step in flight: any time between plan() and the sampling.
  void fill_masks();
  // Learns what the step before the one in flight took, and charges it to its clients: any time
  // before the commit, which else does it itself. So plans go by what is known of the steps before
  // the last; who is idle knows all. Where somebody waits, ends or has chunks to share, the step is
  // charged before that.
  void settle();
  // When the step is computed: asks the memory for what commit() and the next plan read of its
  // sequences, all at once; the model's weights have pushed it out of the caches.
  void touch() const;
  // results[i] belongs to plan().spans[i]. Appends events, each request's in order.
  void commit(std::span<SpanResult> results, TimeUs now, std::vector<Event>* events);

  // Freed blocks of failed spans: to be zeroed after plan() and before the step runs, so that what
  // is not a finite number stays with the request that made it.
  std::vector<int32_t> take_tainted_blocks() { return kv_.take_tainted(); }
  // Blocks to be copied after that, in this order, before the step runs.
  std::vector<BlockCopy> take_block_copies() { return kv_.take_copies(); }

  // Checked ones (engine/tenants.h), from the next plan on.
  void set_tenants(const std::vector<TenantSpec>& specs) {
    charge();
    room_.set_tenants(specs);
  }
  const Tenants& tenants() const { return room_.tenants(); }
  // Between steps: no prefix that is cached now is found again.
  void reset_cache() {
    kv_.reset();
    scores_.clear();
    sessions_.clear();
  }

  bool idle() const { return sequences_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(room_.num_waiting()); }
  const SchedulerStats& stats() const { return stats_; }
  const DraftPolicy& draft_policy() const { return draft_policy_; }
  const KvCache& kv_cache() const { return kv_; }
  const ScoreStore& scores() const { return scores_; }
  const SchedulerOptions& options() const { return options_; }
  const StepCost& step_cost() const { return cost_; }
  std::vector<RequestId> ids() const;  // all that are not finished, oldest first
  const Sequence* find(RequestId id) const;
  // Invariants of cache, lists and tables. For tests; O(everything).
  Status check() const;

 private:
  void secure_blocks();
  void list_for_blocks();
  bool secure(Sequence* holder, Sequence* beam);
  void start_waiting(TimeUs now);
  Sequence* first_to_start(const Client& client);
  bool make_room(Sequence* sequence);
  bool give_way(const Sequence& taker);
  void rank_running();
  bool start(Sequence* sequence);
  void begin_table(Sequence* sequence);
  void begin(Sequence* sequence, TimeUs now);
  bool follows(Sequence* sequence);
  bool awaits_tier(Sequence* sequence);
  void ask_tier(Sequence* sequence);
  void fork_leader(Sequence* sequence);
  struct Next;
  Next next_of(const Sequence& sequence) const;
  bool leads(const Sequence& leader, const Sequence& sequence, const Next& next) const;
  const Sequence* find_leader(const Sequence& sequence, const Next& next) const;
  std::span<const int32_t> findable(const Sequence& sequence) const;
  KvCache::Found find_scores(const Sequence& sequence) const;
  void take_kept_scores(Sequence* sequence);
  void keep_scores(Sequence* sequence);
  struct Donor;
  void begin_search(Sequence* sequence) const;
  Donor find_donor(const Sequence& head, const Sequence& beam) const;
  int64_t missing_of(const Sequence& head, const Sequence& beam) const;
  bool take_blocks(const Sequence& head, Sequence* beam);
  int64_t num_next(const Sequence& sequence) const;
  void plan_next_of(Sequence* head);
  void commit_beam(Sequence* head, size_t span_idx, SpanResult* result, std::vector<Event>* events);
  void commit_search(Sequence* head, TimeUs now, std::vector<Event>* events);
  void fail_search(Sequence* head, TimeUs now, std::vector<Event>* events);
  void advance_search(Sequence* head, TimeUs now, std::vector<Event>* events);
  void replace_beams(Sequence* head);
  static std::unique_ptr<Sequence> make_beam(const Sequence& head);
  void finish_search(Sequence* head, TimeUs now, std::vector<Event>* events);
  int64_t most_blocks_of(const Sequence& sequence) const;
  bool may_be_passed(const Sequence& sequence) const;
  bool may_pass(const Sequence& sequence) const;
  static int64_t num_held(const Sequence& sequence);
  bool may_take(const Sequence& sequence, int64_t num_blocks) const;
  void set_limits(Sequence* sequence) const;
  static Error expired_error(const Sequence& sequence);
  void owe_charge(TimeUs now);
  void charge();
  void watch(const Sequence& sequence);
  void unwatch(const Sequence& sequence);
  bool publishes(const Sequence& sequence) const;
  DraftTask new_task(const Sequence* sequence, int32_t max_tokens);
  void clear_tasks();
  void propose_drafts();
  void propose_forced(int64_t* num_free);
  DraftStep step_without_guesses() const;
  void ask_model(const DraftStep& step);
  bool tells_states(const Sequence& sequence) const;
  void add_drafts(const DraftStep& step);
  bool is_stream(const Sequence& sequence) const;
  bool may_guess(const Sequence& sequence) const;
  int32_t room_for_draft(const Sequence& sequence, int64_t limit) const;
  bool add_draft(Sequence* sequence, const Draft& draft);
  void count_draft(Sequence* sequence, const Span& span, int32_t num_accepted);
  void plan_single_tokens();
  int32_t room_for_chunks(int32_t num_clients);
  ChunkOffer offer_chunks(int32_t room) const;
  int64_t rows_in_time(const StepLoad& load, const ChunkOffer& chunk) const;
  double most_lead_us() const;
  void gain_lead(double took_us);
  int64_t rows_of_favoured(const StepLoad& load, const ChunkOffer& chunk, double patience_us) const;
  int64_t rows_in_patience(const StepLoad& load, const ChunkOffer& chunk, double patience_us) const;
  double prompt_alone_us(const Sequence& sequence) const;
  void predict();
  void owe(uint64_t num_tokens, TimeUs now);
  void plan_chunks();
  void plan_chunks_of(std::span<Sequence*> sequences, int32_t max_tokens, int32_t max_logit_rows);
  void add_span(Sequence* sequence, int32_t max_tokens, int32_t max_logit_rows);
  void assign_masks();
  bool is_protected(const Sequence& sequence) const;
  void preempt(Sequence* sequence);
  void stop(Sequence* sequence);
  void commit_span(Sequence* sequence, const Span& span, SpanResult* result, TimeUs now,
                   std::vector<Event>* events);
  int32_t count_accepted(const Sequence& sequence, const Span& span,
                         const SpanResult& result) const;
  void advance(Sequence* sequence, const Span& span, const SpanResult& result,
               int32_t num_accepted);
  void recompute(Sequence* sequence);
  void fail(Sequence* sequence, std::string failure, TimeUs now, std::vector<Event>* events);
  void take_scores(Sequence* sequence, const Span& span, SpanResult* result,
                   std::vector<Event>* events);
  void finish_prompt(Sequence* sequence, TimeUs now, std::vector<Event>* events);
  void take_states(Sequence* sequence, const Span& span, const SpanResult& result,
                   int32_t num_accepted);
  bool take_token(Sequence* sequence, SampledToken* sampled, TimeUs now,
                  std::vector<Event>* events);
  static void add_token(Sequence* sequence, const SampledToken& sampled);
  void update_epoch(Sequence* sequence);
  bool ends(const Sequence& sequence, int32_t token_id) const;
  // Removes the sequence; the event carries reason, usage and times.
  void finish(Sequence* sequence, FinishReason reason, TimeUs now, std::vector<Event>* events);

  Status check_running(const Sequence& sequence) const;
  Status check_protected() const;
  Digest name_of_session(const Request& request, const std::string& session) const;
  CacheMiss explain_miss(const Sequence& sequence);
  void use_parent(const Sequence& sequence);
  void remember(Sequence* sequence);

  const SchedulerOptions options_;
  const BeamLimits beam_limits_;
  KvCache kv_;
  SessionMemory sessions_;
  ScoreStore scores_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;   // in order (comes_before)
  int num_slots_ = 0;                // that these have
  std::vector<Sequence*> shielded_;  // of them the protected, by the order of their starts
  std::vector<Sequence*> passed_;    // in a plan: those that wait for blocks
  WaitingRoom room_;
  std::set<std::pair<TimeUs, RequestId>> limits_;  // of queue times and deadlines
  std::vector<Sequence*> scratch_;
  DraftPolicy draft_policy_;
  std::vector<DraftTask> draft_tasks_, model_tasks_;
  std::vector<std::vector<int32_t>> spare_guesses_;  // memory of drafts
  bool is_drafted_ = false;                          // the step to be planned
  int32_t num_draft_runs_ = 0;                       // of a model, for it
  bool keeps_up_ = false;                            // instead of that it worked off prompts
  double prompt_us_ = 0;                             // of the last step, if it was one with prompts
  TimeUs drafted_us_ = 0;                            // when that began
  StepLoad plain_load_;                              // DraftStep::plain_load of the step
  // A step that was committed, until settle() has learned from it.
  struct Owed {
    TakenStep step;
    TimeUs took_us = 0;
    double predicted_us = 0;
  };
  std::optional<Owed> owed_;
  // A step that was committed, until charge() has counted it: before one of these stops. Beams may
  // be gone by then, their clients not.
  struct RowsOf {
    Client* client;
    int32_t num_rows;
  };
  std::vector<RowsOf> charged_rows_;
  std::optional<TimeUs> charged_us_;
  std::vector<uint64_t> masks_;  // of the step's rows that have one
  uint64_t next_order_ = 0, next_shield_ = 1;
  StepPlan plan_;
  std::vector<Sequence*> planned_;  // as plan_.sequences
  bool in_flight_ = false;          // planned, not committed
  TimeUs planned_us_ = 0;           // when
  bool awaits_tier_ = false;        // a waiting one, as of the last plan
  TierCost tier_cost_;
  StepCost cost_;
  double lead_us_;        // of the streams: by how much steps were shorter than the target
  int32_t chunk_tokens_;  // that the last step with chunks had for them
  SchedulerStats stats_;
};

}  // namespace headrace
