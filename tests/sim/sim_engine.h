// An engine without thread and clock: LiveRequests and EngineCore as the server's sessions see
// them, stepped by the simulation, on the model of sim_model.h. Checks each step, keeps a digest of
// all.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_core.h"
#include "engine/live_requests.h"
#include "engine/request_check.h"
#include "sim/sim_model.h"

namespace headrace::sim {

struct Digest {
  uint64_t value = 0;
  void add(uint64_t word) { value = mix_bits(value * 0x9E3779B97F4A7C15u + word); }
  void add(std::string_view text) {
    uint64_t sum = text.size();
    for (const char c : text) sum = sum * 1099511628211u + static_cast<unsigned char>(c);
    add(sum);
  }
};

// What the simulation knows of a request of the engine.
struct Record {
  Request request;  // without its constraint
  Identity who;
  Prefixes prefixes;
  std::vector<int32_t> output;
  int num_terminal = 0;
  int num_prompt_events = 0;
  bool refused = false;  // an event, by its sink
  bool ended = false;    // cancelled or stopped by its caller
  Event last;
};

// Guesses with errors, from the model itself.
class SimDrafter final : public Drafter {
 public:
  SimDrafter(const std::map<RequestId, Record>& records, uint64_t mood)
      : records_(records), mood_(mood) {}

  int32_t propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) guess(*task.sequence, task.max_tokens, &task.draft.token_ids);
    return 0;
  }

 private:
  void guess(const Sequence& sequence, int32_t max_tokens, std::vector<int32_t>* draft) const {
    const Record& record = records_.at(sequence.id);
    const uint64_t bits =
        mix_bits(sequence.id * 977 + static_cast<uint64_t>(sequence.num_known()) + mood_);
    const int32_t count = std::min(max_tokens, static_cast<int32_t>(bits % 5));
    if (count == 0 || record.prefixes.hashes.empty()) return;
    uint64_t hash = record.prefixes.hashes.back();
    for (auto p = record.prefixes.hashes.size(); p < sequence.tokens.size(); ++p) {
      hash = hash_after(hash, record.who, sequence.tokens[p], static_cast<int64_t>(p),
                        sequence.rope_epoch);
    }
    int64_t position = sequence.num_known();
    for (int32_t i = 0; i < count; ++i, ++position) {
      const int64_t num_output = sequence.num_output() + i;
      int32_t token = token_after(hash, record.who, [&](int32_t id) {
        return record.who.salt < 0 || EveryThirdForbidden::allows(record.who.salt, num_output, id);
      });
      if ((bits >> (8 + 2 * i)) % 4 == 0) token = kFirstLetter + (token + 1) % kNumLetters;
      draft->push_back(token);
      hash = hash_after(hash, record.who, token, position, sequence.rope_epoch);
    }
  }

  const std::map<RequestId, Record>& records_;
  const uint64_t mood_;
};

class SimEngine final : public Engine {
 public:
  SimEngine(SchedulerOptions options, const ModelRules& rules, size_t max_live, uint64_t draft_mood,
            Digest* digest)
      : rules_(rules),
        digest_(*digest),
        drafter_(records_, draft_mood),
        live_({max_live, size_t{1} << 30, size_t{1} << 40}),
        core_(with_means(std::move(options)), {"f32", 64}, nullptr),
        slots_(core_.scheduler().options()) {}

  Result<RequestId> submit(Request request, EventSink sink) override {
    TRY(check_request(request, {kVocabSize, max_context(), beam_limits()}));
    const RequestId id = TRY(live_.accept(request.client, size_of(request)));
    Record& record = records_[id];
    record.request = request;
    record.request.constraint = nullptr;
    record.who = identity_of(request, salt_of_next_);
    inbox_.push_back({id, std::move(request),
                      [this, id, listener = std::move(sink)](Event&& event) {
                        return hear(id, std::move(event), listener);
                      },
                      now_});
    return id;
  }
  BeamLimits beam_limits() const { return beam_limits_of(core_.scheduler().options()); }
  // The constraint of the request that is submitted next.
  void constrain_next(int64_t salt) { salt_of_next_ = salt; }
  void cancel(RequestId id) override { end(id, FinishReason::kCancelled); }
  void stop(RequestId id) override { end(id, FinishReason::kStop); }
  bool drain(std::chrono::milliseconds) override { return live_.empty(); }
  EngineSnapshot snapshot() const override { return core_.snapshot(); }
  int64_t max_context() const override { return core_.scheduler().options().max_context; }

  // One turn of the engine's thread up to the commit. False: nothing to do.
  template <typename InFlight>
  bool step(const InFlight& while_in_flight) {
    take_inputs();
    core_.expire(++now_);
    if (core_.idle()) {
      deliver();
      EXPECT_EQ(live_.size(), inbox_.size()) << "places are held by requests that are over";
      return false;
    }
    const StepPlan& plan = core_.plan(++now_);
    check_plan(plan);
    slots_.scrub(core_.take_tainted_blocks());
    for (const BlockCopy& copy : core_.take_block_copies()) slots_.copy(copy);
    core_.fill_masks();
    deliver();
    while_in_flight();
    take_inputs();
    const std::span<SpanResult> results = compute(plan);
    Found found = found_by_failing(plan, results);
    found.num_blocks = kv_cache().peek(found.tokens, found.root).num_blocks;
    // Steps have times only where they decide something.
    if (core_.scheduler().options().drafts_must_pay) now_ += 50 + 10 * plan.num_tokens;
    core_.commit(results, ++now_);
    EXPECT_GE(kv_cache().peek(found.tokens, found.root).num_blocks, found.num_blocks)
        << "healthy blocks went with a request that failed";
    if (core_.idle()) deliver();
    check();
    ++num_steps_;
    return true;
  }

  const std::map<RequestId, Record>& records() const { return records_; }
  Record& record(RequestId id) { return records_.at(id); }
  void forget(RequestId id) { records_.erase(id); }
  const SchedulerStats& stats() const { return core_.scheduler().stats(); }
  const KvCache& kv_cache() const { return core_.scheduler().kv_cache(); }
  bool idle() const { return core_.idle() && inbox_.empty() && live_.empty(); }
  size_t num_live() const { return live_.size(); }
  uint64_t num_steps() const { return num_steps_; }

 private:
  SchedulerOptions with_means(SchedulerOptions options) {
    options.rope_epoch = [this](int64_t count) { return rules_.epoch(count); };
    options.vocab_size = kVocabSize;
    options.end_ids = {kEndToken};
    if (options.max_draft_tokens > 0) options.drafter = &drafter_;
    options.drafts_must_pay &= options.max_draft_tokens > 0;
    return options;
  }

  void end(RequestId id, FinishReason reason) {
    const auto found = records_.find(id);
    if (found != records_.end()) found->second.ended = true;
    live_.end(id, reason);
    ends_now_.push_back(id);
  }

  void take_inputs() {
    std::vector<Ending> endings = live_.take_endings();
    for (Submission& submission : std::exchange(inbox_, {})) core_.admit(std::move(submission));
    for (const Ending& ending : endings) core_.end(ending, ++now_);
  }

  void deliver() {
    while (core_.has_events()) {
      core_.count_events();
      core_.deliver_events(++now_, [this](RequestId id) { live_.remove(id); });
    }
  }

  bool hear(RequestId id, Event&& event, const EventSink& listener) {
    Record& record = records_.at(id);
    EXPECT_EQ(record.num_terminal, 0) << "an event after the terminal one";
    EXPECT_FALSE(record.refused && event.kind != Event::Kind::kFinished) << "after a refusal";
    digest_.add(id * 4 + static_cast<uint64_t>(event.kind));
    digest_.add(static_cast<uint64_t>(event.token_id) << 8 | static_cast<uint64_t>(event.reason));
    if (event.kind == Event::Kind::kToken) record.output.push_back(event.token_id);
    if (event.kind == Event::Kind::kPromptLogprobs) ++record.num_prompt_events;
    if (event.kind == Event::Kind::kFinished) {
      ++record.num_terminal;
      record.last = event;
      for (const BeamHypothesis& each : event.hypotheses) {
        record.output.insert(record.output.end(), each.token_ids.begin(), each.token_ids.end());
        for (const int32_t token : each.token_ids) digest_.add(static_cast<uint64_t>(token));
      }
      EXPECT_LT(event.usage.cached_tokens, event.usage.prompt_tokens) << "its last row is computed";
      EXPECT_LE(event.times.submitted, event.times.finished);
    }
    const bool taken = listener(std::move(event));
    if (!taken) record.refused = true;
    if (!taken && record.num_terminal == 0) ends_now_.push_back(id);
    return taken;
  }

  void check_plan(const StepPlan& plan) {
    const SchedulerOptions& options = core_.scheduler().options();
    int32_t num_tokens = 0;
    int32_t num_logit_rows = 0;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.spans[i];
      const Sequence& sequence = *plan.sequences[i];
      const int64_t known_end = span.end_position() - span.num_draft;
      const bool sound =
          span.first_row == num_tokens && span.num_rows > span.num_draft &&
          span.first_position == sequence.num_computed && known_end <= sequence.num_known() &&
          span.end_position() < sequence.max_known + (sequence.samples() ? 0 : 1) &&
          (span.num_draft == 0 || span.num_sampled == span.num_draft + 1) &&
          (span.num_sampled > 0) == (sequence.samples() && known_end == sequence.num_known());
      EXPECT_TRUE(sound) << "span of request " << sequence.id;
      const Adapter* adapter = sequence.request.adapter.get();
      EXPECT_EQ(span.adapter, adapter == nullptr ? nullptr : adapter->packed.get());
      num_tokens += span.num_rows;
      num_logit_rows += span.num_logit_rows();
      digest_.add(sequence.id << 20 | static_cast<uint64_t>(span.num_rows) << 8 |
                  static_cast<uint64_t>(span.num_draft));
      digest_.add(static_cast<uint64_t>(span.first_position));
    }
    EXPECT_GT(num_tokens, 0);
    EXPECT_EQ(num_tokens, plan.num_tokens);
    EXPECT_EQ(num_logit_rows, plan.num_logit_rows);
    EXPECT_LE(num_tokens, options.max_batch_tokens);
    EXPECT_LE(num_logit_rows, options.max_logit_rows);
  }

  std::span<SpanResult> compute(const StepPlan& plan) {
    results_.clear();
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.spans[i];
      const Sequence& sequence = *plan.sequences[i];
      Record& record = records_.at(sequence.id);
      Prefixes of_beam;
      const bool is_beam = sequence.request.beams.width > 0;
      slots_.run(rules_, record.who, span, sequence.tokens, is_beam ? &of_beam : &record.prefixes);
      results_.push_back(
          result_of(rules_, sequence.request, record.who, span, slots_.row_hashes()));
    }
    EXPECT_EQ(slots_.num_errors(), 0) << "K and V of another prefix, or not finite, were read";
    return results_;
  }

  struct Found {
    std::vector<int32_t> tokens = {0};
    headrace::Digest root;
    int64_t num_blocks = 0;
  };

  // What the one request of a step that fails has in its table and others computed: as far as it is
  // found now it stays, and can be found.
  static Found found_by_failing(const StepPlan& plan, std::span<const SpanResult> results) {
    Found found;
    int num_failures = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto failed = [](const SampledToken& sampled) { return !sampled.failure.empty(); };
      const bool guess_fails =
          std::any_of(results[i].sampled.begin(), results[i].sampled.end(), failed);
      if (!results[i].failed() && !guess_fails) continue;
      const Sequence& sequence = *plan.sequences[i];
      const std::vector<bool>& wrote = sequence.table.wrote;
      const int64_t num_blocks = std::find(wrote.begin(), wrote.end(), true) - wrote.begin();
      found = {sequence.tokens, sequence.root};
      const auto end = static_cast<size_t>(num_blocks * kBlockTokens + 1);
      found.tokens.resize(std::min(found.tokens.size(), end));
      ++num_failures;
    }
    return num_failures == 1 ? found : Found();  // two may have shared what one of them computed
  }

  void check() {
    const Status sound = core_.scheduler().check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    for (const RequestId id : std::exchange(ends_now_, {})) {
      EXPECT_EQ(core_.scheduler().find(id), nullptr)
          << "request " << id << " was ended, and outlives the step";
    }
  }

  const ModelRules rules_;
  Digest& digest_;
  std::map<RequestId, Record> records_;
  SimDrafter drafter_;
  LiveRequests live_;
  EngineCore core_;
  Slots slots_;
  std::vector<Submission> inbox_;
  std::vector<SpanResult> results_;
  std::vector<RequestId> ends_now_;  // by the end of the step they are gone
  int64_t salt_of_next_ = -1;
  TimeUs now_ = 1;
  uint64_t num_steps_ = 0;
};

}  // namespace headrace::sim
