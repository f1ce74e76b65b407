// Constraints that end, have dead ends and guess, in batches with requests that have none: what one
// does is nobody else's business.
#include <gtest/gtest.h>

#include "sim/draft_support.h"

namespace headrace {
namespace {

// As EveryThirdForbidden, with an end after some tokens: nothing is allowed, or nothing may follow.
class Ending final : public Constraint {
 public:
  enum class Kind : uint8_t { kDeadEnd, kFinished };
  Ending(Kind kind, int64_t salt, int32_t length) : kind_(kind), length_(length), inner_(salt) {}

  void fill_mask(std::span<uint64_t> mask) override {
    inner_.fill_mask(mask);
    if (num_tokens_ >= length_) std::fill(mask.begin(), mask.end(), 0);
  }
  void accept(int32_t token_id) override {
    inner_.accept(token_id);
    ++num_tokens_;
  }
  void rollback(int32_t num_tokens) override {
    inner_.rollback(num_tokens);
    num_tokens_ -= num_tokens;
  }
  bool is_finished() const override { return kind_ == Kind::kFinished && num_tokens_ >= length_; }
  // Guesses, right and wrong ones.
  void propose(int32_t max_tokens, std::vector<int32_t>* draft) override {
    for (int32_t i = 0; i < max_tokens; ++i) {
      draft->push_back(static_cast<int32_t>(mix_bits(static_cast<uint64_t>(num_tokens_ + i)) % 50));
    }
  }

 private:
  const Kind kind_;
  const int32_t length_;
  EveryThirdForbidden inner_;
  int32_t num_tokens_ = 0;
};

class ConstraintSim : public testing::Test {
 protected:
  SchedulerOptions options(int32_t max_forced_tokens) const {
    SchedulerOptions options;
    options.max_batch_tokens = 96;
    options.max_logit_rows = 64;
    options.max_sequences = 24;
    options.num_blocks = 96;
    options.max_context = 128;
    options.max_forced_tokens = max_forced_tokens;
    return options;
  }

  Request request(uint64_t seed) const {
    Request request;
    for (uint64_t i = 0; i < 3 + seed % 20; ++i) {
      request.prompt_ids.push_back(static_cast<int32_t>(mix_bits(seed * 64 + i) % 50));
    }
    request.max_tokens = 12;
    request.ignore_eos = true;
    request.sampling.seed = seed;
    request.sampling.temperature = seed % 4 == 0 ? 0.0f : 1.0f;
    return request;
  }

  CoreRun run(const std::vector<Request>& requests, int32_t max_forced_tokens = 8) {
    FakeModelOptions fake;
    fake.max_batch_tokens = 96;
    fake.max_logit_rows = 64;
    FakeBackend backend;
    FakeModel model(fake);
    return run_core(model, backend, options(max_forced_tokens), requests);
  }
};

TEST_F(ConstraintSim, DeadEndsEndOneRequestEach) {
  int num_dead = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    std::vector<Request> plain, mixed;
    for (uint64_t i = 0; i < 300; ++i) {
      plain.push_back(request(round * 1000 + i));
      mixed.push_back(plain.back());
      if (i % 3 == 0) continue;
      const auto salt = static_cast<int64_t>(i % 5);
      const auto length = static_cast<int32_t>(mix_bits(i) % 12);
      plain.back().constraint = std::make_shared<EveryThirdForbidden>(salt);
      mixed.back().constraint = std::make_shared<Ending>(Ending::Kind::kDeadEnd, salt, length);
    }
    CoreRun expected = run(plain), found = run(mixed);
    for (size_t i = 0; i < mixed.size(); ++i) {
      const Event end = found.collectors[i].wait();
      std::vector<int32_t> tokens = expected.collectors[i].output();
      if (i % 3 != 0) {
        tokens.resize(mix_bits(i) % 12);
        EXPECT_EQ(end.reason, FinishReason::kError) << i;
        EXPECT_EQ(end.error.code, ErrorCode::kUnprocessable);
        ++num_dead;
      }
      ASSERT_EQ(found.collectors[i].output(), tokens) << "request " << i;
    }
  }
  EXPECT_EQ(num_dead, 10'000);
}

TEST_F(ConstraintSim, EndsAndGuessesChangeNoToken) {
  for (uint64_t round = 0; round < 20; ++round) {
    const auto make = [&](bool ends) {
      std::vector<Request> requests;
      for (uint64_t i = 0; i < 100; ++i) {
        requests.push_back(request(round * 777 + i));
        const auto salt = static_cast<int64_t>(i % 5);
        const int32_t length = ends ? static_cast<int32_t>(1 + mix_bits(i) % 11) : 100;
        requests.back().constraint =
            std::make_shared<Ending>(Ending::Kind::kFinished, salt, length);
      }
      return requests;
    };
    CoreRun whole = run(make(false), 0), alone = run(make(true), 0), guessed = run(make(true), 5);
    EXPECT_EQ(alone.stats.draft_tokens, 0u);
    EXPECT_GT(guessed.stats.draft_tokens, 100u);
    for (size_t i = 0; i < 100; ++i) {
      std::vector<int32_t> tokens = whole.collectors[i].output();
      tokens.resize(1 + mix_bits(i) % 11);
      ASSERT_EQ(alone.collectors[i].output(), tokens) << "request " << i;
      ASSERT_EQ(guessed.collectors[i].output(), tokens) << "request " << i;
      EXPECT_EQ(guessed.collectors[i].wait().reason, FinishReason::kStop);
    }
  }
}

}  // namespace
}  // namespace headrace
