// The drafter with a prediction head under random schedules: prompts in chunks, prefixes that are
// found, pre-emptions, gaps, few blocks. The head is a fake that checks its slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/head_drafter.h"
#include "sim/fake_model.h"

namespace headrace {
namespace {

constexpr int64_t kWidth = 2;
constexpr int32_t kVocabulary = 20;

// A state of the network names its sequence and position; those of the head are -1.
float state_at(RequestId id, int64_t position) {
  return static_cast<float>(id * 1000) + static_cast<float>(position);
}

// Checks that each row's token is the one after the position of its state.
class CheckingHead final : public Model {
 public:
  explicit CheckingHead(const std::map<RequestId, Sequence>* sequences)
      : sequences_(sequences),
        fake_({.vocab_size = kVocabulary,
               .max_batch_tokens = 24,
               .max_logit_rows = 8,
               .hidden_size = kWidth}) {}

  const ModelConfig& config() const override { return fake_.config(); }
  const ModelOptions& options() const override { return fake_.options(); }
  std::vector<CacheGroup> cache_groups() const override { return fake_.cache_groups(); }
  int64_t rope_epoch(int64_t num_tokens) const override { return fake_.rope_epoch(num_tokens); }
  void forward(const Batch& batch, KvStore& store, const StepOutput& output,
               const HiddenTap& tap) override {
    for (const Span& span : batch.spans) check_span(batch, span);
    fake_.forward(batch, store, output, tap);
  }
  const FakeModel& fake() const { return fake_; }

 private:
  void check_span(const Batch& batch, const Span& span) const {
    for (int32_t i = 0; i < span.num_rows; ++i) {
      const float state = span.states[i * kWidth];
      if (state < 0) continue;  // of a chain
      const auto id = static_cast<RequestId>(state) / 1000;
      const auto position = static_cast<int64_t>(state) % 1000;
      EXPECT_EQ(span.rope_positions[i], position);
      const Sequence& sequence = sequences_->at(id);
      EXPECT_EQ(batch.token_ids[static_cast<size_t>(span.first_row + i)],
                sequence.tokens[static_cast<size_t>(position + 1)]);
    }
  }

  const std::map<RequestId, Sequence>* sequences_;
  FakeModel fake_;
};

struct Mood {
  int64_t num_blocks = 400;
  int gaps_of_64 = 0;      // rows that the drafter is not told of
  int restarts_of_64 = 0;  // sequences that are computed again
  bool may_run = true;
};

class World {
 public:
  World(uint64_t seed, const Mood& mood) : mood_(mood), random_(seed), head_(&sequences_) {
    SchedulerOptions target;
    target.max_batch_tokens = 24;
    target.max_sequences = 5;
    target.num_blocks = mood.num_blocks;
    target.max_context = std::min<int64_t>(mood.num_blocks * kBlockTokens, 120);
    drafter_ = HeadDrafter::create(head_, backend_, target).value();
  }

  void run(int num_rounds) {
    for (int round = 0; round < num_rounds; ++round) {
      if (sequences_.size() < 5 && one_in(3)) start();
      std::vector<Sequence*> running;
      for (auto& [id, sequence] : sequences_) {
        advance(&sequence);
        running.push_back(&sequence);
      }
      drafter_->keep_up(running, mood_.may_run || one_in(2));
      guess();
      std::erase_if(sequences_, [this](const auto& entry) {
        const bool ends = entry.second.num_known() > 100 || one_in(40);
        if (ends) drafter_->forget(entry.first);
        return ends;
      });
    }
    EXPECT_EQ(head_.fake().num_errors(), 0);
  }
  int num_guesses() const { return num_guesses_; }
  int64_t num_rows() const { return head_.fake().num_tokens(); }

 private:
  bool one_in(uint64_t count) { return random_() % count == 0; }
  int32_t token() { return static_cast<int32_t>(random_() % kVocabulary); }

  // One of three beginnings, then its own; computed from where the network might have found it.
  void start() {
    Sequence& sequence = sequences_[next_id_];
    sequence.id = next_id_++;
    sequence.request.sampling.temperature = 0;
    sequence.request.max_tokens = 100;
    sequence.max_known = 120;
    const auto beginning = static_cast<int32_t>(random_() % 3);
    for (int32_t i = 0; i < 37; ++i) sequence.tokens.push_back((i * 7 + beginning) % kVocabulary);
    for (uint64_t i = random_() % 30; i > 0; --i) sequence.tokens.push_back(token());
    sequence.num_prompt = static_cast<int32_t>(sequence.tokens.size());
    sequence.num_computed = known_of_[beginning] ? 32 : 0;
    if (mood_.gaps_of_64 > 0 && one_in(4)) sequence.num_computed = 35;
    beginning_of_[sequence.id] = beginning;
  }

  void advance(Sequence* sequence) {
    if (static_cast<int>(random_() % 64) < mood_.restarts_of_64) sequence->num_computed = 0;
    const auto chunk = static_cast<int64_t>(1 + random_() % 24);
    const int64_t count = std::min(sequence->gap(), chunk);
    if (static_cast<int>(random_() % 64) >= mood_.gaps_of_64) tell(*sequence, count);
    sequence->num_computed += count;
    if (sequence->gap() > 0) return;
    for (uint64_t i = 1 + (one_in(3) ? random_() % 3 : 0); i > 0; --i) {
      sequence->tokens.push_back(token());
    }
    // Accepted guesses were computed as well.
    tell(*sequence, sequence->gap() - 1);
    sequence->num_computed = sequence->num_known() - 1;
  }

  void tell(const Sequence& sequence, int64_t count) {
    std::vector<float> states;
    for (int64_t i = 0; i < count; ++i) {
      states.insert(states.end(), kWidth, state_at(sequence.id, sequence.num_computed + i));
    }
    drafter_->observe(sequence, sequence.num_computed, states);
  }

  void guess() {
    std::vector<DraftTask> tasks;
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.gap() != 1 || one_in(4)) continue;
      tasks.push_back({&sequence, static_cast<int32_t>(1 + random_() % 4)});
    }
    drafter_->propose(tasks);
    for (const DraftTask& task : tasks) {
      EXPECT_LE(std::ssize(task.draft.token_ids), task.max_tokens);
      if (task.draft.token_ids.empty()) continue;
      ++num_guesses_;
      known_of_[beginning_of_[task.sequence->id]] = true;
      if (mood_.gaps_of_64 > 0 || !mood_.may_run || mood_.num_blocks < 100) continue;
      EXPECT_EQ(task.draft.token_ids, said_after(*task.sequence, task.max_tokens));
    }
  }

  // What the head says of a sequence all of whose positions it knows.
  std::vector<int32_t> said_after(const Sequence& sequence, int32_t count) const {
    std::vector<int32_t> inputs(sequence.tokens.begin() + 1, sequence.tokens.end());
    std::vector<int32_t> guesses;
    std::vector<float> logits(kVocabulary);
    for (; count > 0; --count) {
      head_.fake().fill_logits(prefix_hash(inputs, inputs.size(), 0), logits.data());
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      guesses.push_back(static_cast<int32_t>(best));
      inputs.push_back(guesses.back());
    }
    return guesses;
  }

  const Mood mood_;
  std::mt19937_64 random_;
  std::map<RequestId, Sequence> sequences_;
  std::map<RequestId, int32_t> beginning_of_;
  bool known_of_[3] = {};  // whether the head has run over a beginning
  RequestId next_id_ = 1;
  FakeBackend backend_;
  CheckingHead head_;
  std::unique_ptr<HeadDrafter> drafter_;
  int num_guesses_ = 0;
};

int run_worlds(const Mood& mood, int num_worlds) {
  int num_guesses = 0;
  for (int seed = 0; seed < num_worlds; ++seed) {
    SCOPED_TRACE(seed);
    World world(static_cast<uint64_t>(seed), mood);
    world.run(120);
    num_guesses += world.num_guesses();
    if (testing::Test::HasFailure()) break;
  }
  return num_guesses;
}

// Prefixes that others left are found, chains leave nothing behind.
TEST(HeadDrafterSim, GuessesAreThoseOfTheWholeSequence) { EXPECT_GT(run_worlds({}, 60), 5000); }

TEST(HeadDrafterSim, RowsThatComeAgainAreTakenOnce) {
  EXPECT_GT(run_worlds({.restarts_of_64 = 4}, 30), 2000);
}

TEST(HeadDrafterSim, WhatItIsNotToldOfIsLeftOut) {
  EXPECT_GT(run_worlds({.gaps_of_64 = 6, .restarts_of_64 = 2}, 30), 2000);
}

TEST(HeadDrafterSim, FewBlocksAndNoTimeForPrompts) {
  EXPECT_GT(run_worlds({.num_blocks = 10, .restarts_of_64 = 2}, 30), 1000);
  EXPECT_GT(run_worlds({.num_blocks = 10, .gaps_of_64 = 4, .may_run = false}, 30), 1000);
}

}  // namespace
}  // namespace headrace
