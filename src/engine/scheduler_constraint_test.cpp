// Requests under a constraint, in the scheduler: what it is told and asked, and how it ends them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/constraint.h"
#include "engine/scheduler.h"

namespace headrace {
namespace scheduler_constraint_test {

constexpr int64_t kVocab = 100;  // two words of a mask

SchedulerOptions constrained_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 16;
  options.max_sequences = 4;
  options.num_blocks = 64;
  options.max_context = 128;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  options.vocab_size = kVocab;
  return options;
}

// A language of `length` tokens: every third may be one of two, the others follow from where they
// stand. Keeps a record of what it was told.
class Language final : public Constraint {
 public:
  explicit Language(int32_t whole_length, int32_t first_token = 20)
      : length(whole_length), first(first_token) {}

  void fill_mask(std::span<uint64_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    for (const int32_t id : next()) {
      mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
  }
  void accept(int32_t token_id) override {
    const std::vector<int32_t> may_come = next();
    EXPECT_NE(std::find(may_come.begin(), may_come.end(), token_id), may_come.end()) << token_id;
    told.push_back(token_id);
  }
  void rollback(int32_t num_tokens) override {
    ASSERT_LE(static_cast<size_t>(num_tokens), told.size());
    told.resize(told.size() - static_cast<size_t>(num_tokens));
  }
  bool is_finished() const override { return std::ssize(told) == length; }
  void propose(int32_t max_tokens, std::vector<int32_t>* draft) override {
    most_asked = std::max(most_asked, max_tokens);
    if (!proposes) return;
    const int32_t count = max_tokens + num_too_many;
    for (auto i = static_cast<int32_t>(told.size());
         i < length && std::ssize(*draft) < count && (i % 3 != 0 || num_too_many > 0); ++i) {
      draft->push_back(first + i % 7);
    }
  }

  int32_t length, first;
  bool proposes = true;
  int32_t num_too_many = 0;
  int32_t most_asked = 0;
  std::vector<int32_t> told;

 private:
  std::vector<int32_t> next() const {
    const auto i = static_cast<int32_t>(told.size());
    if (i >= length) return {};
    if (i % 3 == 0) return {first + i % 7, 70 + i % 7};
    return {first + i % 7};
  }
};

Request constrained_request(std::shared_ptr<Constraint> constraint, int32_t max_tokens = 60,
                            int32_t num_prompt = 20) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), 5);
  request.max_tokens = max_tokens;
  request.constraint = std::move(constraint);
  return request;
}

// A model that takes one of the tokens a mask allows, by the position alone; 7 without a mask.
class MaskedEngine {
 public:
  explicit MaskedEngine(SchedulerOptions options = constrained_options())
      : scheduler(std::move(options)) {}

  // As the sampler: a row of which nothing may come has a failure.
  static SampledToken pick(const uint64_t* mask, int64_t position) {
    if (mask == nullptr) return {7};
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (mask_allows(mask, id)) allowed.push_back(id);
    }
    if (allowed.empty()) return {-1, {}, "no token is left"};
    return {allowed[static_cast<size_t>(position * 7 / 3) % allowed.size()]};
  }
  const StepPlan& plan() {
    const StepPlan& planned = scheduler.plan(++now);
    scheduler.fill_masks();
    return planned;
  }
  void commit(const StepPlan& planned) {
    std::vector<SpanResult> results(planned.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Span& span = planned.spans[i];
      for (int32_t row = 0; row < span.num_sampled; ++row) {
        const uint64_t* mask = span.masks == nullptr
                                   ? nullptr
                                   : span.masks + static_cast<size_t>(row) * mask_words(kVocab);
        const int64_t position = span.end_position() - span.num_sampled + row + 1;
        results[i].sampled.push_back(pick(mask, position));
      }
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    ++num_steps;
    for (Event& event : events) {
      if (event.kind == Event::Kind::kToken) answers[event.request_id].push_back(event.token_id);
      if (event.kind == Event::Kind::kFinished) ends[event.request_id] = std::move(event);
    }
  }
  void run() {
    while (!scheduler.idle()) commit(plan());
  }

  Scheduler scheduler;
  TimeUs now = 1;
  int num_steps = 0;
  std::map<RequestId, std::vector<int32_t>> answers;
  std::map<RequestId, Event> ends;
};

TEST(SchedulerConstraint, ProposalsSaveStepsAndChangeNoToken) {
  const auto asked = std::make_shared<Language>(40), silent = std::make_shared<Language>(40);
  silent->proposes = false;
  MaskedEngine with, without;
  with.scheduler.admit(1, constrained_request(asked), 1);
  without.scheduler.admit(1, constrained_request(silent), 1);
  with.run();
  without.run();
  EXPECT_EQ(with.answers[1], without.answers[1]);
  EXPECT_EQ(with.answers[1].size(), 40u);
  EXPECT_EQ(without.num_steps, 40);
  EXPECT_LT(with.num_steps, 20);
  EXPECT_EQ(with.scheduler.stats().accepted_tokens, with.scheduler.stats().draft_tokens);
  EXPECT_EQ(without.scheduler.stats().draft_tokens, 0u);
}

TEST(SchedulerConstraint, ItHearsOfEachTokenOnceHoweverOftenTheyAreComputed) {
  SchedulerOptions options = constrained_options();
  options.num_blocks = 9;  // one whole request, and little beside it
  MaskedEngine engine(options);
  std::map<RequestId, std::shared_ptr<Language>> languages;
  for (RequestId id = 1; id <= 6; ++id) {
    const auto number = static_cast<int32_t>(id);
    // Tokens of its own: equal ones would share their blocks.
    languages[id] = std::make_shared<Language>(60 + number, 10 + 7 * number);
    engine.scheduler.admit(id, constrained_request(languages[id], 100), 1);
  }
  engine.run();
  EXPECT_GT(engine.scheduler.stats().num_preemptions, 0u);
  for (const auto& [id, language] : languages) {
    EXPECT_EQ(language->told, engine.answers[id]) << id;
    EXPECT_TRUE(language->is_finished());
    EXPECT_EQ(engine.ends[id].reason, FinishReason::kStop);
  }
}

// What is complete ends well, even with the last token that was asked for.
TEST(SchedulerConstraint, AnEndByTheConstraintIsAStop) {
  struct Case {
    int32_t length, max_tokens;
    FinishReason reason;
    int32_t num_tokens;
  };
  const Case cases[] = {
      {1, 60, FinishReason::kStop, 1},   {12, 13, FinishReason::kStop, 12},
      {12, 12, FinishReason::kStop, 12}, {12, 11, FinishReason::kLength, 11},
      {12, 1, FinishReason::kLength, 1},
  };
  for (const Case& at : cases) {
    MaskedEngine engine;
    const auto language = std::make_shared<Language>(at.length);
    engine.scheduler.admit(1, constrained_request(language, at.max_tokens), 1);
    engine.run();
    const Event& end = engine.ends.at(1);
    EXPECT_EQ(end.reason, at.reason) << at.length << " " << at.max_tokens;
    EXPECT_EQ(end.stop_id, -1);
    EXPECT_EQ(end.usage.output_tokens, at.num_tokens);
    EXPECT_EQ(std::ssize(engine.answers[1]), at.num_tokens);
    EXPECT_EQ(language->told, engine.answers[1]);
  }
}

// The token after the last proposal still has a place.
TEST(SchedulerConstraint, NoMoreIsAskedForThanMayCome) {
  for (const int32_t max_tokens : {2, 3, 5}) {
    MaskedEngine engine;
    const auto language = std::make_shared<Language>(40);
    engine.scheduler.admit(1, constrained_request(language, max_tokens), 1);
    engine.run();
    EXPECT_EQ(language->most_asked, max_tokens - 2) << max_tokens;
    EXPECT_EQ(std::ssize(engine.answers[1]), max_tokens);
  }
  SchedulerOptions few = constrained_options();
  few.max_forced_tokens = 3;
  MaskedEngine engine(few);
  const auto language = std::make_shared<Language>(40);
  engine.scheduler.admit(1, constrained_request(language), 1);
  engine.run();
  EXPECT_EQ(language->most_asked, 3);
}

TEST(SchedulerConstraint, MoreThanWasAskedForIsABug) {
  MaskedEngine engine;
  const auto language = std::make_shared<Language>(60);
  language->num_too_many = 1;
  engine.scheduler.admit(1, constrained_request(language), 1);
  engine.commit(engine.plan());
  EXPECT_DEATH(engine.plan(), "9 guesses, 8 were asked for");
}

// End and stop ids are the engine's: they end the request before its constraint hears of them.
TEST(SchedulerConstraint, StopIdsAreNotTold) {
  MaskedEngine engine;
  const auto language = std::make_shared<Language>(40);
  Request request = constrained_request(language);
  request.stop_ids = {20 + 8 % 7};  // of the second token, too; the first is 20 or 70
  engine.scheduler.admit(1, std::move(request), 1);
  engine.run();
  EXPECT_EQ(engine.ends.at(1).reason, FinishReason::kStop);
  EXPECT_EQ(engine.ends.at(1).stop_id, 21);
  EXPECT_EQ(engine.answers[1].size(), 1u);
  EXPECT_EQ(language->told, engine.answers[1]);
}

TEST(SchedulerConstraint, RequestsOfAStepHaveMasksOfTheirOwn) {
  MaskedEngine engine;
  const auto low = std::make_shared<Language>(9, 20), high = std::make_shared<Language>(9, 80);
  engine.scheduler.admit(1, constrained_request(low, 60, 4), 1);
  engine.scheduler.admit(2, constrained_request(nullptr, 9, 5), 1);
  engine.scheduler.admit(3, constrained_request(high, 60, 6), 1);
  bool have_met = false;
  while (!engine.scheduler.idle()) {
    const StepPlan& plan = engine.plan();
    std::vector<const uint64_t*> masks;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const bool constrained = plan.sequences[i]->id != 2;
      if (plan.spans[i].num_sampled == 0) continue;
      EXPECT_EQ(plan.spans[i].masks != nullptr, constrained);
      if (constrained) masks.push_back(plan.spans[i].masks);
    }
    have_met = have_met || (masks.size() == 2 && masks[0] != masks[1]);
    engine.commit(plan);
  }
  EXPECT_TRUE(have_met);
  EXPECT_EQ(engine.answers[1], low->told);
  EXPECT_EQ(engine.answers[3], high->told);
  EXPECT_EQ(engine.answers[2], std::vector<int32_t>(9, 7));
  // The same as alone.
  MaskedEngine alone;
  const auto again = std::make_shared<Language>(9, 80);
  alone.scheduler.admit(3, constrained_request(again, 60, 6), 1);
  alone.run();
  EXPECT_EQ(alone.answers[3], engine.answers[3]);
}

TEST(SchedulerConstraint, ACancelledStepTellsNothing) {
  MaskedEngine engine;
  const auto language = std::make_shared<Language>(40);
  engine.scheduler.admit(1, constrained_request(language), 1);
  engine.commit(engine.plan());
  const std::vector<int32_t> told = language->told;
  const StepPlan& plan = engine.plan();
  EXPECT_GT(plan.spans[0].num_draft, 0);
  std::vector<Event> events;
  engine.scheduler.end(1, FinishReason::kCancelled, 5, &events);
  EXPECT_TRUE(events.empty());  // it ends with the step
  engine.commit(plan);
  EXPECT_EQ(engine.ends.at(1).reason, FinishReason::kCancelled);
  EXPECT_EQ(language->told, told);
  EXPECT_EQ(engine.scheduler.kv_cache().pool().num_used(), 0);
}

}  // namespace scheduler_constraint_test
}  // namespace headrace
