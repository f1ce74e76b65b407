// Random schedules from seeds: arrivals, cancels in every state, exhaustion, pre-emption, refused
// events, failed rows, rope epochs, priorities, deadlines, beam searches. After each step all
// invariants hold; at the end every request has had exactly one terminal event, and its tokens are
// those it gets when it is alone.
//
// HEADRACE_SIM_SCHEDULES sets how many schedules run (default 4,000, under sanitizers 1,000),
// HEADRACE_SIM_SEED the first seed; a failure names its seed (make sim ARGS="--seed N").

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "base/sanitizers.h"
#include "engine/scheduler.h"
#include "engine/step_log.h"
#include "engine/testing/beam_reference.h"
#include "sim/group_kv.h"

namespace headrace {
namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kEndId = 7;
constexpr uint64_t kNoClient = ~uint64_t{0};

int32_t token_after(uint64_t hash) {
  return static_cast<int32_t>(mix_bits(hash) % static_cast<uint64_t>(kVocab));
}

// Prefixes of two domains are different sequences.
int64_t domain_epoch(const Request& request, int64_t epoch) {
  return static_cast<int64_t>(request.cache_domain.size()) * 1'000'000 + epoch;
}

// Knows what comes; one guess of four is another token.
class KnowingDrafter final : public Drafter {
 public:
  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      std::vector<int32_t> tokens = task.sequence->tokens;
      tokens.resize(static_cast<size_t>(task.sequence->num_known()));
      const int64_t epoch = domain_epoch(task.sequence->request, task.sequence->rope_epoch);
      for (int32_t i = 0; i < task.max_tokens; ++i) {
        const uint64_t hash = prefix_hash(tokens, tokens.size(), epoch);
        const bool errs = mix_bits(hash + 1) % 4 == 0;
        tokens.push_back((token_after(hash) + (errs ? 1 : 0)) % kVocab);
        task.draft.token_ids.push_back(tokens.back());
      }
    }
    return 0;
  }
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        options_(make_options()),
        scheduler_(options_),
        kv_(options_.num_blocks, options_.cache_rules),
        log_(100'000, /*keep_requests=*/true) {}

  // Faults and arrivals for some steps, then only what is there until it is done.
  void run() {
    const int num_busy = static_cast<int>(range(10, 120));
    num_faults_per_64_ = static_cast<int>(range(0, 6));
    for (int i = 0; i < num_busy && !testing::Test::HasFatalFailure(); ++i) {
      while (range(0, 2) == 0 && live_.size() < 40) arrive();
      step();
    }
    num_faults_per_64_ = 0;
    int64_t bound = 10;
    for (const RequestId id : live_) bound += 8 * scheduler_.find(id)->max_known;
    while (!scheduler_.idle() && !testing::Test::HasFatalFailure()) {
      ASSERT_GT(bound--, 0) << "requests do not finish";
      step();
    }
    if (testing::Test::HasFatalFailure()) return;
    check_end();
  }

  uint64_t digest() const { return digest_; }
  int64_t num_forked() const { return kv_.num_copied(); }
  int64_t num_passes() const { return num_passes_; }
  int64_t num_expired() const { return num_expired_; }
  int64_t num_searches() const { return num_searches_; }
  int64_t num_searches_preempted() const { return num_searches_preempted_; }
  bool has_groups() const { return options_.cache_rules.size() > 1; }
  bool has_state() const { return !KvCache::can_roll_back(options_.cache_rules); }
  int64_t num_redone() const { return num_redone_; }
  bool met_protection() const {
    return most_preemptions_ > 0 && most_preemptions_ == options_.max_preemptions;
  }
  const SchedulerStats& stats() const { return scheduler_.stats(); }
  Status replay() const { return log_.replay(options_); }

 private:
  struct Record {  // what the test knows of a request
    Request request;
    std::vector<int32_t> output;
    int num_terminal = 0;
    int num_prompt_events = 0;
    Event last;
    bool disturbed = false;  // cancelled or failed by the test
  };

  int64_t range(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool fault() { return range(0, 63) < num_faults_per_64_; }

  SchedulerOptions make_options() {
    SchedulerOptions options;
    options.max_sequences = static_cast<int>(range(1, 8));
    options.max_batch_tokens = static_cast<int>(range(options.max_sequences, 48));
    options.max_logit_rows = static_cast<int>(range(options.max_sequences, 16));
    options.cache_rules = random_rules();
    const int64_t most = range(0, 1) == 0 ? range(2, 8) : range(4, 24);
    // Under pressure every request may grow to more than its share of the blocks.
    pressed_ = range(0, 3) == 0;
    has_searches_ = range(0, 1) == 0;
    options.max_context = pressed_ ? most * kBlockTokens : range(2, most * kBlockTokens);
    options.num_blocks = std::max(
        most, most_blocks(options.cache_rules, options.max_context, options.max_batch_tokens));
    options.max_preemptions = static_cast<int>(range(0, kMaxPreemptions));
    options.max_passes = static_cast<int>(range(0, 4));
    options.priority_age = range(0, 40);
    options.hash_key = {random_(), random_()};
    if (range(0, 1) == 0) options.drafter = &drafter_;
    options.max_draft_tokens = static_cast<int32_t>(range(1, 5));
    options.drafts_must_pay = false;
    num_clients_ = static_cast<uint64_t>(range(0, 2) == 0 ? 1 : range(2, 5));
    if (num_clients_ > 1 && range(0, 1) == 0) options.tenants = random_tenants();
    options.end_ids = {kEndId};
    const int64_t kind = pressed_ ? 0 : range(0, 3);
    const int64_t edge = range(1, options.max_context);
    options.rope_epoch = [kind, edge](int64_t num_tokens) -> int64_t {
      if (kind < 2 || num_tokens <= edge) return 0;
      return kind == 2 ? 1 : (num_tokens - edge) / 8 + 1;
    };
    return options;
  }

  // A model of full attention, or one with windows and states beside it or alone.
  std::vector<CacheRule> random_rules() {
    const CacheRule full = {};
    const CacheRule window{CachePolicy::kWindow, range(1, 60), 0, static_cast<int>(range(1, 3))};
    const CacheRule state{CachePolicy::kState, 0, range(1, 4), static_cast<int>(range(1, 2))};
    switch (range(0, 7)) {
      case 0:
        return {full, window};
      case 1:
        return {window};
      case 2:
        return {full, state};
      case 3:
        return {window, full, state};
      default:
        return {full};
    }
  }

  // Each below one before it or at the root; some clients have none.
  std::vector<TenantSpec> random_tenants() {
    std::vector<TenantSpec> tenants(static_cast<size_t>(range(1, 4)));
    for (size_t i = 0; i < tenants.size(); ++i) {
      tenants[i].name = fmt::format("t{}", i);
      const auto parent = static_cast<size_t>(range(0, static_cast<int64_t>(i)));
      if (parent > 0) tenants[i].parent = tenants[parent - 1].name;
      tenants[i].weight = static_cast<double>(range(1, 8)) / 4;
      const double most = parent > 0 ? tenants[parent - 1].guarantee : 1;
      tenants[i].guarantee = most * static_cast<double>(range(0, 1)) / 4;
      if (tenants[i].guarantee > 0) tenants[i].burst_s = static_cast<double>(range(0, 20)) * 1e-6;
    }
    for (uint64_t client = 0; client < num_clients_; ++client) {
      const auto owner = static_cast<size_t>(range(0, static_cast<int64_t>(tenants.size())));
      if (owner > 0) tenants[owner - 1].clients.push_back(client);
    }
    EXPECT_TRUE(check_tenants(tenants).ok());
    return tenants;
  }

  void arrive() {
    Record record;
    Request& request = record.request;
    request.max_tokens = static_cast<int32_t>(range(0, 3) == 0 ? range(1, 200) : range(1, 20));
    const int64_t longest = std::min<int64_t>(options_.max_context - 1, 150);
    const int64_t num_prompt =
        range(0, 2) == 0 ? range(1, longest) : range(1, std::min<int64_t>(longest, 20));
    const bool shares_prefix = range(0, 1) == 0;
    for (int64_t i = 0; i < num_prompt; ++i) {
      request.prompt_ids.push_back(
          static_cast<int32_t>(shares_prefix && i < 70 ? i % kVocab : range(0, kVocab - 1)));
    }
    if (range(0, 5) == 0) request.num_prompt_logprobs = 1;
    if (request.num_prompt_logprobs && range(0, 1) == 0) request.max_tokens = 0;
    request.ignore_eos = pressed_ || range(0, 1) == 0;
    if (pressed_) request.max_tokens = static_cast<int32_t>(range(10, 110));
    if (range(0, 3) == 0) request.stop_ids = {static_cast<int32_t>(range(0, kVocab - 1))};
    request.client = num_clients_ == 1 ? 0 : random_() % num_clients_ * (random_() % 2);
    if (range(0, 2) == 0) request.priority = static_cast<int32_t>(range(-3, 3));
    if (range(0, 9) == 0) request.max_queue_us = range(1, 60);
    if (range(0, 9) == 0) request.deadline_us = range(1, 200);
    if (range(0, 3) == 0) request.cache_domain.assign(random_() % 3, 'd');
    if (range(0, 2) == 0 && last_id_ > 0) {  // the same prompt again, maybe at the same time
      request.prompt_ids = records_.at(last_id_).request.prompt_ids;
    }
    if (has_searches_ && range(0, 2) == 0) make_search(&request);
    const RequestId id = ++last_id_;
    scheduler_.admit(id, request, ++now_);
    log_.admitted(id, request, now_);
    records_.emplace(id, std::move(record));
    live_.insert(id);
  }

  // If it fits, as far as it does.
  void make_search(Request* request) {
    constexpr float kPenalties[] = {1, 0, 2, -1};
    BeamParams beams;
    beams.width = static_cast<int32_t>(range(1, std::min(5, limits_.max_width)));
    beams.num_returned = static_cast<int32_t>(range(1, beams.width));
    beams.length_penalty = kPenalties[range(0, 3)];
    beams.early_stopping = static_cast<EarlyStopping>(range(0, 2));
    const int64_t longest = longest_search(beams.width, *request);
    if (longest == 0 || request->num_prompt_logprobs) return;
    request->beams = beams;
    const auto room = static_cast<int32_t>(longest - std::ssize(request->prompt_ids));
    request->max_tokens = std::min(request->max_tokens, room);
    request->min_tokens = std::min(request->min_tokens, room);
    ++num_searches_;
  }

  int64_t longest_search(int32_t width, const Request& request) const {
    const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
    return limits_.longest(width, num_prompt,
                           std::min(options_.max_context, num_prompt + request.max_tokens));
  }

  void cancel_some() {
    if (!fault() || last_id_ == 0) return;
    const RequestId id = static_cast<RequestId>(range(1, static_cast<int64_t>(last_id_) + 1));
    if (live_.contains(id)) records_.at(id).disturbed = true;
    log_.ended(id, FinishReason::kCancelled, ++now_);
    scheduler_.end(id, FinishReason::kCancelled, now_, &events_);
  }

  void expire() {
    for (const RequestId id : scheduler_.take_expired(++now_)) {
      records_.at(id).disturbed = true;
      ++num_expired_;
      log_.ended(id, FinishReason::kExpired, now_);
      scheduler_.end(id, FinishReason::kExpired, now_, &events_);
    }
  }

  void step() {
    cancel_some();
    expire();
    take_events();
    if (scheduler_.idle()) return;
    std::map<RequestId, bool> started_before;
    for (const RequestId id : scheduler_.ids()) {
      started_before[id] = scheduler_.find(id)->times.started != 0;
    }
    const StepPlan& plan = scheduler_.plan(++now_);
    log_.planned(plan, scheduler_, now_);
    check_plan(plan);
    check_order(started_before);
    check_turns();
    check_protection();
    if (testing::Test::HasFatalFailure()) return;
    scheduler_.take_tainted_blocks();
    kv_.copy(scheduler_.take_block_copies());
    std::vector<SpanResult> results = compute(plan);
    log_.committed(results, ++now_);
    scheduler_.commit(results, now_, &events_);
    take_events();
    const Status sound = scheduler_.check();
    ASSERT_TRUE(sound.ok()) << sound.error().message;
  }

  void check_plan(const StepPlan& plan) {
    ASSERT_FALSE(plan.spans.empty());
    ASSERT_LE(plan.num_tokens, options_.max_batch_tokens);
    ASSERT_LE(plan.num_logit_rows, options_.max_logit_rows);
    std::set<const Sequence*> seen;
    int32_t num_tokens = 0;
    int32_t num_logit_rows = 0;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.spans[i];
      const Sequence& sequence = *plan.sequences[i];
      ASSERT_TRUE(seen.insert(&sequence).second) << "two spans of one sequence";
      ASSERT_TRUE(live_.contains(sequence.id));
      ASSERT_EQ(span.first_position, sequence.num_computed);
      ASSERT_EQ(span.first_row, num_tokens);
      ASSERT_GE(span.num_rows, 1);
      const int64_t end = span.end_position();
      ASSERT_LE(end, std::ssize(sequence.tokens));
      const bool samples = sequence.samples() && end == std::ssize(sequence.tokens);
      ASSERT_EQ(span.num_sampled, samples ? 1 + sequence.num_draft : 0);
      ASSERT_EQ(span.num_draft, samples ? sequence.num_draft : 0);
      num_redone_ += samples && span.num_rows - span.num_draft > 1 && sequence.num_output() > 1 &&
                     span.first_position > sequence.num_prompt;
      ASSERT_EQ(span.rope_epoch, options_.rope_epoch(sequence.num_known()));
      if (span.num_scored > 0) {
        ASSERT_EQ(span.first_scored, sequence.num_scored);
        ASSERT_GE(span.first_scored, span.first_position);
        ASSERT_LE(span.first_scored + span.num_scored, end - span.num_draft);
      }
      most_preemptions_ = std::max(most_preemptions_, sequence.num_preemptions);
      const bool goes_on = sequence.num_preemptions > 0 && !sequence.other_beams.empty();
      num_searches_preempted_ += goes_on ? 1 : 0;
      num_tokens += span.num_rows;
      num_logit_rows += span.num_logit_rows();
    }
    ASSERT_EQ(num_tokens, plan.num_tokens);
    ASSERT_EQ(num_logit_rows, plan.num_logit_rows);
  }

  // Nobody starts while an earlier request of its client has never started, unless that one waits
  // for another to compute what both begin with, or was passed less than max_passes times.
  void check_order(const std::map<RequestId, bool>& started_before) {
    std::vector<const Sequence*> sequences;
    for (const auto& [id, started] : started_before) sequences.push_back(scheduler_.find(id));
    std::sort(sequences.begin(), sequences.end(), comes_before);
    std::map<uint64_t, std::vector<RequestId>> waiting;  // by client, those that are passed
    for (const Sequence* sequence : sequences) {
      const bool starts_now = !started_before.at(sequence->id) && sequence->times.started != 0;
      for (const RequestId earlier : waiting[starts_now ? sequence->request.client : kNoClient]) {
        ++num_passes_;
        ASSERT_LE(++passes_[earlier], options_.max_passes)
            << "request " << sequence->id << " overtook " << earlier;
      }
      if (sequence->times.started != 0) continue;
      if (sequence->leader_id == 0) {
        waiting[sequence->request.client].push_back(sequence->id);
      } else {
        check_following(*sequence);
      }
    }
  }

  void check_following(const Sequence& sequence) {
    const Sequence* leader = scheduler_.find(sequence.leader_id);
    if (leader == nullptr || !leader->running) return;
    ASSERT_EQ(leader->request.cache_domain, sequence.request.cache_domain);
    const auto common = sequence.awaited_tokens;
    ASSERT_LE(common, sequence.num_known() - (sequence.scores_prompt() ? 0 : 1));
    ASSERT_TRUE(std::equal(sequence.tokens.begin(), sequence.tokens.begin() + common,
                           leader->tokens.begin()));
  }

  // Who has nothing running gets a slot before another client gets its second; where there are
  // tenants, unless its own run as many as are theirs.
  void check_turns() {
    if (!options_.tenants.empty()) return;
    std::map<uint64_t, int> num_running;
    for (const RequestId id : scheduler_.ids()) {
      const Sequence& sequence = *scheduler_.find(id);
      if (sequence.running) ++num_running[sequence.request.client];
    }
    const auto has_two = [](const auto& entry) { return entry.second > 1; };
    if (std::none_of(num_running.begin(), num_running.end(), has_two)) return;
    // For the slots of a search others wait after a while.
    for (const RequestId id : scheduler_.ids()) {
      const Sequence& sequence = *scheduler_.find(id);
      if (!sequence.running && sequence.search != nullptr) return;
    }
    for (const RequestId id : scheduler_.ids()) {
      const Sequence& sequence = *scheduler_.find(id);
      ASSERT_TRUE(sequence.running || sequence.leader_id != 0 ||
                  num_running.contains(sequence.request.client))
          << "client " << sequence.request.client << " waits while another runs two";
    }
  }

  // Who is protected is not pre-empted for the blocks of others, whether it goes on or waits.
  void check_protection() {
    for (const RequestId id : scheduler_.ids()) {
      ASSERT_LE(scheduler_.find(id)->num_preemptions, options_.max_preemptions) << "request " << id;
    }
  }

  int64_t epoch_of(const Request& request, size_t num_tokens) const {
    return domain_epoch(request, options_.rope_epoch(static_cast<int64_t>(num_tokens)));
  }

  static std::vector<float> beam_row(uint64_t hash) {
    std::vector<float> row;
    for (uint64_t id = 0; id < uint64_t{kVocab}; ++id) {
      row.push_back(-0.01f * static_cast<float>(mix_bits(hash + id * 977) % 1000) - 0.01f);
    }
    return row;
  }
  static std::set<int32_t> end_ids_of(const Request& request) {
    std::set<int32_t> ids(request.stop_ids.begin(), request.stop_ids.end());
    if (!request.ignore_eos) ids.insert(kEndId);
    return ids;
  }

  std::vector<SpanResult> compute(const StepPlan& plan) {
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.spans[i];
      const Sequence& sequence = *plan.sequences[i];
      const std::vector<uint64_t> hashes =
          kv_.run(span, sequence.tokens,
                  epoch_of(sequence.request, static_cast<size_t>(sequence.num_known())));
      for (int32_t row = 0; row < span.num_scored; ++row) {
        const uint64_t hash =
            hashes[static_cast<size_t>(span.first_scored + row - span.first_position)];
        TokenLogprobs score;
        score.rank = static_cast<int32_t>(hash & 0xFFFF);
        results[i].scored.push_back(score);
      }
      if (span.num_sampled > 0) results[i].sampled = sample(span, sequence, hashes);
      const int32_t width = sequence.request.beams.width;
      if (span.num_sampled > 0 && width > 0) {
        results[i].sampled[0] = {};
        results[i].sampled[0].candidates =
            beam_candidates(beam_row(hashes.back()), width, end_ids_of(sequence.request));
      }
      if (fault()) {
        results[i].failure = "a fault of the test";
        records_.at(sequence.id).disturbed = true;
      }
    }
    EXPECT_EQ(kv_.num_errors(), 0);
    cancel_some();  // while the step is in flight
    return results;
  }

  // Rows past a wrong guess may fail: nobody asks for them.
  std::vector<SampledToken> sample(const Span& span, const Sequence& sequence,
                                   const std::vector<uint64_t>& hashes) {
    std::vector<SampledToken> sampled;
    bool is_right = true;
    for (int32_t i = 0; i < span.num_sampled; ++i) {
      const auto row = static_cast<size_t>(span.num_rows - span.num_sampled + i);
      sampled.push_back({token_after(hashes[row])});
      if (!is_right && fault()) sampled.back().failure = "a fault of the test";
      if (i == span.num_draft) break;
      const auto guess = static_cast<size_t>(sequence.num_known() + i);
      is_right = is_right && sequence.tokens[guess] == sampled.back().token_id;
    }
    return sampled;
  }

  void take_events() {
    std::vector<Event> events;
    std::swap(events, events_);
    for (Event& event : events) {
      ASSERT_TRUE(live_.contains(event.request_id)) << "an event after the terminal one";
      Record& record = records_.at(event.request_id);
      digest_ = mix_bits(digest_ ^ (event.request_id * 64 + static_cast<uint64_t>(event.kind)) ^
                         (static_cast<uint64_t>(event.token_id + 1) << 32) ^
                         (static_cast<uint64_t>(event.reason) << 24));
      switch (event.kind) {
        case Event::Kind::kPromptLogprobs: {
          ++record.num_prompt_events;
          check_scores(record, event);
          break;
        }
        case Event::Kind::kToken: {
          ASSERT_EQ(record.request.beams.width, 0);
          record.output.push_back(event.token_id);
          if (!fault()) break;
          record.disturbed = true;  // a slow sink refuses
          log_.ended(event.request_id, FinishReason::kCancelled, ++now_);
          scheduler_.end(event.request_id, FinishReason::kCancelled, now_, &events_);
          break;
        }
        case Event::Kind::kFinished: {
          ++record.num_terminal;
          record.last = std::move(event);
          for (const BeamHypothesis& each : record.last.hypotheses) {
            record.output.insert(record.output.end(), each.token_ids.begin(), each.token_ids.end());
            for (const int32_t id : each.token_ids) {
              digest_ = mix_bits(digest_ + static_cast<uint64_t>(id));
            }
          }
          live_.erase(record.last.request_id);
          break;
        }
      }
    }
    if (!events_.empty()) take_events();
  }

  void check_scores(const Record& record, const Event& event) {
    const std::vector<int32_t>& prompt = record.request.prompt_ids;
    ASSERT_EQ(event.prompt_logprobs.size(), prompt.size());
    ASSERT_FALSE(event.prompt_logprobs[0].has_value());
    const int64_t epoch = epoch_of(record.request, prompt.size());
    for (size_t i = 1; i < prompt.size(); ++i) {
      ASSERT_TRUE(event.prompt_logprobs[i].has_value());
      ASSERT_EQ(event.prompt_logprobs[i]->rank,
                static_cast<int32_t>(prefix_hash(prompt, i, epoch) & 0xFFFF));
    }
  }

  void check_search_alone(const Record& record) {
    const Request& request = record.request;
    const std::set<int32_t> end_ids = end_ids_of(request);
    const int64_t longest = longest_search(request.beams.width, request);
    const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
    BeamReference reference(request.beams, static_cast<int32_t>(longest - num_prompt), end_ids);
    const std::vector<BeamHypothesis> best = reference.run([&](const std::vector<int32_t>& output) {
      std::vector<int32_t> tokens = request.prompt_ids;
      tokens.insert(tokens.end(), output.begin(), output.end());
      return beam_row(prefix_hash(tokens, tokens.size(), epoch_of(request, tokens.size())));
    });
    ASSERT_EQ(record.last.hypotheses.size(), best.size());
    for (size_t i = 0; i < best.size(); ++i) {
      ASSERT_EQ(record.last.hypotheses[i].token_ids, best[i].token_ids) << "hypothesis " << i;
      ASSERT_EQ(record.last.hypotheses[i].stop_id, best[i].stop_id) << "hypothesis " << i;
      ASSERT_EQ(record.last.hypotheses[i].score, best[i].score) << "hypothesis " << i;
    }
    ASSERT_EQ(record.last.stop_id, best[0].stop_id);
    ASSERT_EQ(record.last.reason,
              best[0].stop_id < 0 ? FinishReason::kLength : FinishReason::kStop);
  }

  // What the request gives when it is alone, computed without scheduler and cache.
  void check_alone(const Record& record) {
    if (record.request.beams.width > 0) return check_search_alone(record);
    std::vector<int32_t> tokens = record.request.prompt_ids;
    const size_t num_prompt = tokens.size();
    FinishReason reason = FinishReason::kLength;
    while (static_cast<int64_t>(tokens.size() - num_prompt) < record.request.max_tokens &&
           static_cast<int64_t>(tokens.size()) < options_.max_context) {
      const int64_t epoch = epoch_of(record.request, tokens.size());
      const int32_t token = token_after(prefix_hash(tokens, tokens.size(), epoch));
      const std::vector<int32_t>& stops = record.request.stop_ids;
      if ((token == kEndId && !record.request.ignore_eos) ||
          std::find(stops.begin(), stops.end(), token) != stops.end()) {
        ASSERT_EQ(record.last.stop_id, token);
        reason = FinishReason::kStop;
        break;
      }
      tokens.push_back(token);
    }
    ASSERT_EQ(record.last.reason, reason);
    ASSERT_EQ(record.output, std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(num_prompt),
                                                  tokens.end()));
    ASSERT_EQ(record.num_prompt_events, record.request.num_prompt_logprobs.has_value() ? 1 : 0);
  }

  void check_end() {
    ASSERT_TRUE(live_.empty());
    ASSERT_EQ(scheduler_.kv_cache().pool().num_used(), 0);
    for (const auto& [id, record] : records_) {
      ASSERT_EQ(record.num_terminal, 1) << "request " << id;
      ASSERT_EQ(record.last.usage.prompt_tokens,
                static_cast<int32_t>(record.request.prompt_ids.size()));
      ASSERT_EQ(record.last.usage.output_tokens, static_cast<int32_t>(record.output.size()));
      if (!record.disturbed) check_alone(record);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  std::mt19937_64 random_;
  bool pressed_ = false, has_searches_ = false;
  uint64_t num_clients_ = 1;
  KnowingDrafter drafter_;
  const SchedulerOptions options_;
  const BeamLimits limits_ = beam_limits_of(options_);
  Scheduler scheduler_;
  GroupKv kv_;
  StepLog log_;
  std::map<RequestId, Record> records_;
  std::set<RequestId> live_;
  std::vector<Event> events_;
  RequestId last_id_ = 0;
  TimeUs now_ = 1;
  int num_faults_per_64_ = 0;
  int most_preemptions_ = 0;
  uint64_t digest_ = 0;
  std::map<RequestId, int> passes_;
  int64_t num_passes_ = 0, num_expired_ = 0, num_redone_ = 0;
  int64_t num_searches_ = 0, num_searches_preempted_ = 0;  // steps of those that were
};

uint64_t setting(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
constexpr uint64_t kNumSchedules = kIsInstrumented ? 1'000 : 4'000;
uint64_t num_schedules() { return setting("HEADRACE_SIM_SCHEDULES", kNumSchedules); }

TEST(SchedulerSim, EveryScheduleKeepsItsPromises) {
  SchedulerStats total;
  int64_t num_forked = 0;         // blocks that were copied
  uint64_t cached_by_groups = 0;  // tokens found by models with several groups
  uint64_t kept_with_state = 0;   // guesses that were right there
  int64_t num_redone = 0;         // steps that computed rows again after wrong ones
  int64_t num_passes = 0, num_expired = 0, num_searches = 0, num_searches_preempted = 0;
  uint64_t num_protected = 0;  // schedules where a request was pre-empted as often as it can be
  const uint64_t first = setting("HEADRACE_SIM_SEED", 1);
  for (uint64_t seed = first; seed < first + num_schedules(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.run();
    if (HasFailure()) return;
    total.num_steps += simulation.stats().num_steps;
    total.num_preemptions += simulation.stats().num_preemptions;
    total.num_epoch_restarts += simulation.stats().num_epoch_restarts;
    total.cached_tokens += simulation.stats().cached_tokens;
    total.num_turns_given += simulation.stats().num_turns_given;
    total.num_followed += simulation.stats().num_followed;
    num_protected += simulation.met_protection() ? 1 : 0;
    num_passes += simulation.num_passes();
    num_expired += simulation.num_expired();
    num_searches += simulation.num_searches();
    num_searches_preempted += simulation.num_searches_preempted();
    num_forked += simulation.num_forked();
    if (simulation.has_state()) {
      kept_with_state += simulation.stats().accepted_tokens;
      num_redone += simulation.num_redone();
    }
    if (simulation.has_groups()) cached_by_groups += simulation.stats().cached_tokens;
  }
  fmt::print(
      "{} steps, {} pre-emptions, {} of them to give way, {} followed, {} epoch restarts, {} "
      "cached tokens, {} protected, {} passed, {} expired, {} searches, {} steps of pre-empted "
      "ones, {} guesses right where there is state, {} steps that compute rows again\n",
      total.num_steps, total.num_preemptions, total.num_turns_given, total.num_followed,
      total.num_epoch_restarts, total.cached_tokens, num_protected, num_passes, num_expired,
      num_searches, num_searches_preempted, kept_with_state, num_redone);
  // A simulation that never meets what it is for proves nothing.
  if (num_schedules() < 500) return;
  EXPECT_GT(total.num_preemptions, num_schedules() / 10);
  EXPECT_GT(num_protected, num_schedules() / 100);
  EXPECT_GT(num_passes, static_cast<int64_t>(num_schedules()) / 10);
  EXPECT_GT(num_expired, static_cast<int64_t>(num_schedules()) / 10);
  EXPECT_GT(num_searches, static_cast<int64_t>(num_schedules()));
  EXPECT_GT(num_searches_preempted, static_cast<int64_t>(num_schedules()) / 10);
  EXPECT_GT(total.num_epoch_restarts, num_schedules() / 10);
  EXPECT_GT(total.cached_tokens, num_schedules() / 10);
  EXPECT_GT(total.num_turns_given, num_schedules() / 10);
  EXPECT_GT(total.num_followed, num_schedules() / 10);
  EXPECT_GT(num_forked, static_cast<int64_t>(num_schedules()) / 10);
  EXPECT_GT(cached_by_groups, num_schedules() / 10);
  EXPECT_GT(kept_with_state, num_schedules() / 4);
  EXPECT_GT(num_redone, static_cast<int64_t>(num_schedules()) / 10);
}

TEST(SchedulerSim, EqualSeedsGiveEqualEvents) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Simulation first(seed);
    Simulation second(seed);
    first.run();
    second.run();
    ASSERT_EQ(first.digest(), second.digest()) << "seed " << seed;
    digests.insert(first.digest());
  }
  EXPECT_GT(digests.size(), 45u);
}

TEST(SchedulerSim, StepLogReplays) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Simulation simulation(seed);
    simulation.run();
    const Status replayed = simulation.replay();
    ASSERT_TRUE(replayed.ok()) << "seed " << seed << ": " << replayed.error().message;
  }
}

}  // namespace
}  // namespace headrace
