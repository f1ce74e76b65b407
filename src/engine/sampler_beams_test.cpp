#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "engine/sampler.h"
#include "engine/testing/beam_reference.h"

namespace headrace {
namespace sampler_beams_test {

struct Beam {
  Request request;
  std::vector<int32_t> tokens{0, 4, 6};
  int32_t num_prompt = 1;
  std::vector<int32_t> end_ids{2};

  SampleContext context() const { return {tokens, num_prompt, end_ids}; }
};

Beam beam_of(int32_t width) {
  Beam beam;
  beam.request.beams.width = width;
  return beam;
}

std::vector<float> random_logits(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = static_cast<float>(random() % 4000) / 200 - 10;
  return logits;
}

std::vector<BeamCandidate> continuations(const std::vector<float>& logits, const Beam& beam) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  return sampler.continuations(logits.data(), beam.request, beam.context()).value();
}

// Log-probs of the row as score() has them.
std::vector<float> logprobs_of(const std::vector<float>& logits) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  std::vector<float> row;
  for (size_t id = 0; id < logits.size(); ++id) {
    row.push_back(sampler.score(logits.data(), static_cast<int32_t>(id), 0).value().logprob);
  }
  return row;
}

TEST(Continuations, AreTheBestAndTheBestThatDoNotEnd) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const std::vector<float> logits = random_logits(seed, 50 + seed * 13);
    Beam beam = beam_of(static_cast<int32_t>(1 + seed % 7));
    for (uint64_t i = 0; i < seed % 9; ++i) {
      beam.request.stop_ids.push_back(static_cast<int32_t>((seed * 7 + i * 5) % logits.size()));
    }
    beam.request.ignore_eos = seed % 2 == 0;
    std::set<int32_t> ends(beam.request.stop_ids.begin(), beam.request.stop_ids.end());
    if (!beam.request.ignore_eos) ends.insert(2);
    EXPECT_EQ(continuations(logits, beam),
              beam_candidates(logprobs_of(logits), beam.request.beams.width, ends))
        << "seed " << seed;
  }
}

// Done to log-probs, which are not normalised again: as transformers does it.
TEST(Continuations, ArePenalisedAsLogProbs) {
  const std::vector<float> logits = random_logits(3, 60);
  Beam beam = beam_of(60);
  beam.request.sampling.repetition_penalty = 1.5f;
  beam.request.sampling.presence_penalty = 0.25f;
  beam.request.sampling.logit_bias = {{9, 2.0f}};
  std::vector<float> row = logprobs_of(logits);
  row[9] += 2;
  for (const size_t id : {0, 4, 6}) row[id] *= 1.5f;
  for (const size_t id : {4, 6}) row[id] -= 0.25f;
  EXPECT_EQ(continuations(logits, beam), beam_candidates(row, 60, {2}));
}

TEST(Continuations, LeaveOutWhatIsForbidden) {
  const std::vector<float> logits = random_logits(4, 8);
  Beam beam = beam_of(8);
  beam.request.min_tokens = 3;
  beam.request.stop_ids = {5};
  beam.request.sampling.bad_words = {{7}, {4, 6, 1}, {3, 0}};
  std::vector<float> row = logprobs_of(logits);
  for (const size_t id : {2, 5, 7, 1}) row[id] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(continuations(logits, beam), beam_candidates(row, 8, {2, 5}));
  beam.request.sampling.bad_words = {{0}, {1}, {3}, {4}, {6}, {7}};
  EXPECT_TRUE(continuations(logits, beam).empty());
}

TEST(Continuations, DrawsHaveNoEffect) {
  const std::vector<float> logits = random_logits(5, 300);
  Beam beam = beam_of(4);
  const std::vector<BeamCandidate> plain = continuations(logits, beam);
  beam.request.sampling.temperature = 3;
  beam.request.sampling.top_k = 1;
  beam.request.sampling.top_p = 0.1f;
  beam.request.sampling.seed = 99;
  EXPECT_EQ(continuations(logits, beam), plain);
}

TEST(Continuations, FailWhereALogitIsNotFinite) {
  std::vector<float> logits = random_logits(6, 30);
  logits[11] = NAN;
  Sampler sampler(30);
  const Beam beam = beam_of(2);
  const auto result = sampler.continuations(logits.data(), beam.request, beam.context());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "the model computed the logit nan for token 11, which is not a finite number");
}

// On one thread and on the team.
TEST(Continuations, DoNotDependOnTheParts) {
  const std::vector<float> logits = random_logits(7, 100'000);
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 3}).value();
  Sampler sampler(100'000);
  const Beam beam = beam_of(16);
  SampleContext context = beam.context();
  const auto alone = sampler.continuations(logits.data(), beam.request, context).value();
  context.parts = RowParts(*backend);
  EXPECT_EQ(sampler.continuations(logits.data(), beam.request, context).value(), alone);
}

}  // namespace sampler_beams_test
}  // namespace headrace
