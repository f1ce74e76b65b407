#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "engine/philox.h"

namespace headrace {
namespace sampler_test {

// The rounds and constants, against the published vectors of the generator (all zeros, all ones).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformIsInRangeAndSpread) {
  double sum = 0;
  for (uint64_t position = 0; position < 100'000; ++position) {
    const double value = uniform_at(7, 0, position);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
  EXPECT_NE(uniform_at(7, 0, 3), uniform_at(8, 0, 3));
  EXPECT_NE(uniform_at(7, 0, 3), uniform_at(7, 0, 4));
}

// The answers to one request draw independently, also of the answers to the next seed.
TEST(Philox, ChoicesAndSeedsShareNoDraws) {
  std::set<double> values;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint32_t choice = 0; choice < 20; ++choice) {
      for (uint64_t position = 0; position < 50; ++position) {
        values.insert(uniform_at(seed, choice, position));
      }
    }
  }
  EXPECT_EQ(values.size(), 20u * 20 * 50);
}

struct Draw {
  Request request;
  std::vector<int32_t> tokens{0};
  int32_t num_prompt = 1;
  std::vector<int32_t> end_ids;

  SampleContext context() const { return {tokens, num_prompt, end_ids}; }
};

int32_t sample(const std::vector<float>& logits, const Draw& draw) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  return sampler.sample(logits.data(), draw.request, draw.context()).value();
}

// How often each id comes over many seeds.
std::map<int32_t, int> histogram(const std::vector<float>& logits, Draw draw, int num_draws) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  std::map<int32_t, int> counts;
  for (int i = 0; i < num_draws; ++i) {
    draw.request.sampling.seed = static_cast<uint64_t>(i);
    ++counts[sampler.sample(logits.data(), draw.request, draw.context()).value()];
  }
  return counts;
}

std::set<int32_t> support(const std::vector<float>& logits, const Draw& draw) {
  std::set<int32_t> ids;
  for (const auto& [id, count] : histogram(logits, draw, 3000)) ids.insert(id);
  return ids;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature = 1) {
  std::vector<double> weights;
  for (const float logit : logits) weights.push_back(std::exp(double{logit} / temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

std::vector<float> random_logits(size_t count, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheLargest) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  EXPECT_EQ(sample({1, 3, 2, 3, 0}, draw), 1);
  EXPECT_EQ(sample({-5, -5, -5}, draw), 0);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = random_logits(12, 1, 1.5f);
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    Draw draw;
    draw.request.sampling.temperature = temperature;
    const int num_draws = 60'000;
    auto counts = histogram(logits, draw, num_draws);
    const std::vector<double> expected = softmax(logits, temperature);
    double chi2 = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double mean = expected[i] * num_draws;
      if (mean < 5) continue;
      const double difference = counts[static_cast<int32_t>(i)] - mean;
      chi2 += difference * difference / mean;
    }
    EXPECT_LT(chi2, 35) << "temperature " << temperature;  // 11 degrees: p = 0.0003
  }
}

TEST(Sampler, FilteredFrequenciesFollowTheRenormalisedSoftmax) {
  const std::vector<float> logits = random_logits(200, 5, 1.0f);
  Draw draw;
  draw.request.sampling.top_k = 5;
  const int num_draws = 40'000;
  auto counts = histogram(logits, draw, num_draws);
  ASSERT_EQ(counts.size(), 5u);
  const std::vector<double> expected = softmax(logits);
  double kept = 0;
  for (const auto& [id, count] : counts) kept += expected[static_cast<size_t>(id)];
  for (const auto& [id, count] : counts) {
    const double mean = expected[static_cast<size_t>(id)] / kept * num_draws;
    EXPECT_NEAR(count, mean, 5 * std::sqrt(mean));
  }
}

TEST(Sampler, TopKKeepsExactlyKAndTiesGoToLowerIds) {
  Draw draw;
  draw.request.sampling.top_k = 3;
  EXPECT_EQ(support({0, 1, 1, 1, 1, 2}, draw), (std::set<int32_t>{1, 2, 5}));
  draw.request.sampling.top_k = 1;
  EXPECT_EQ(support({0, 1, 1}, draw), (std::set<int32_t>{1}));
  draw.request.sampling.top_k = -1;
  EXPECT_EQ(support({0, 0, 0}, draw).size(), 3u);
  draw.request.sampling.top_k = 1000;
  EXPECT_EQ(support({0, 0, 0}, draw).size(), 3u);
}

TEST(Sampler, TopKOneIsGreedyEvenWhenWeightsRoundToEqual) {
  const float best = std::nextafter(10.0f, 11.0f);
  Draw draw;
  draw.request.sampling.top_k = 1;
  draw.request.sampling.temperature = 50;
  EXPECT_EQ(support({10, best, 10}, draw), (std::set<int32_t>{1}));
}

TEST(Sampler, TopPKeepsTheShortestBeginningThatReachesP) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const float step = std::log(2.0f);
  const std::vector<float> logits = {3 * step, 2 * step, step, step};
  Draw draw;
  draw.request.sampling.top_p = 0.4f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
  draw.request.sampling.top_p = 0.6f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1}));
  draw.request.sampling.top_p = 0.8f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1, 2}));
  draw.request.sampling.top_p = 0.99f;
  EXPECT_EQ(support(logits, draw).size(), 4u);
}

TEST(Sampler, TopPCountsShareOfWhatTopKKeeps) {
  const float step = std::log(2.0f);
  const std::vector<float> logits = {3 * step, 2 * step, step, step};
  Draw draw;
  draw.request.sampling.top_k = 2;  // 2/3, 1/3
  draw.request.sampling.top_p = 0.6f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
  draw.request.sampling.top_p = 0.7f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, TopPReachesFarIntoAFlatDistribution) {
  const std::vector<float> logits(5000, 0.0f);
  Draw draw;
  draw.request.sampling.top_p = 0.5f;
  const auto counts = histogram(logits, draw, 4'000);
  EXPECT_GT(counts.size(), 1800u);
  for (const auto& [id, count] : counts) EXPECT_LT(id, 2501);  // ties: the lower ids are kept
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  const std::vector<float> logits = {0, std::log(0.5f), std::log(0.2f), std::log(0.05f)};
  Draw draw;
  draw.request.sampling.min_p = 0.1f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1, 2}));
  draw.request.sampling.min_p = 0.3f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1}));
  draw.request.sampling.min_p = 1.0f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
}

TEST(Sampler, PenaltiesCountPromptAndOutputAsSpecified) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  draw.tokens = {1, 1, 2, 2, 2};
  draw.num_prompt = 2;
  // Presence and frequency look at output only: token 2 stands there three times, token 1 never.
  draw.request.sampling.presence_penalty = 1.0f;
  EXPECT_EQ(sample({0, 2.0f, 2.9f}, draw), 1);
  EXPECT_EQ(sample({0, 1.8f, 2.9f}, draw), 2);
  draw.request.sampling.presence_penalty = 0;
  draw.request.sampling.frequency_penalty = 0.5f;
  EXPECT_EQ(sample({0, 1.5f, 2.9f}, draw), 1);
  EXPECT_EQ(sample({0, 1.3f, 2.9f}, draw), 2);
  // Repetition looks at both; divides above zero, multiplies below, once per token.
  draw.request.sampling.frequency_penalty = 0;
  draw.request.sampling.repetition_penalty = 2.0f;
  EXPECT_EQ(sample({1.1f, 2.0f, 2.0f}, draw), 0);
  EXPECT_EQ(sample({0.9f, 2.0f, 1.0f}, draw), 1);
  EXPECT_EQ(sample({-1.5f, -1.0f, -2.0f}, draw), 0);
}

TEST(Sampler, ScratchCarriesNothingOver) {
  Sampler sampler(3);
  Draw penalised;
  penalised.request.sampling.temperature = 0;
  penalised.request.sampling.frequency_penalty = 2;
  penalised.tokens = {0, 1, 1, 1};
  const std::vector<float> logits = {1, 2, 0};
  Draw one = penalised;
  one.tokens = {0, 1};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sampler.sample(logits.data(), penalised.request, penalised.context()).value(), 0);
    EXPECT_EQ(sampler.sample(logits.data(), one.request, one.context()).value(), 0);
  }
  one.request.sampling.frequency_penalty = 0.5f;
  EXPECT_EQ(sampler.sample(logits.data(), one.request, one.context()).value(), 1);
}

TEST(Sampler, BiasIsAddedFirst) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  draw.request.sampling.logit_bias = {{2, 5.0f}, {0, -100.0f}};
  EXPECT_EQ(sample({4, 1, 0}, draw), 2);
  draw.request.sampling.repetition_penalty = 10;
  draw.tokens = {2};
  EXPECT_EQ(sample({4, 1, 0}, draw), 1);  // the biased 5 is divided by 10
}

TEST(Sampler, MinTokensForbidsStopIds) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  draw.request.min_tokens = 2;
  draw.request.max_tokens = 5;
  draw.request.stop_ids = {1};
  draw.end_ids = {2};
  EXPECT_EQ(sample({0, 5, 4}, draw), 0);
  draw.request.ignore_eos = true;  // then end ids are ordinary tokens
  EXPECT_EQ(sample({0, 5, 4}, draw), 2);
  draw.tokens = {0, 0, 0};  // two output tokens: the minimum is reached
  EXPECT_EQ(sample({0, 5, 4}, draw), 1);
}

TEST(Sampler, TopNSigmaKeepsWhatIsNearTheBest) {
  std::vector<float> logits(100);  // ten of 4, eighty of 0, ten of -4: the deviation is sqrt(3.2)
  std::fill_n(logits.begin() + 10, 10, 4.0f);
  std::fill_n(logits.begin() + 50, 10, -4.0f);
  Draw draw;
  draw.request.sampling.temperature = 100;
  draw.request.sampling.top_n_sigma = 2.2f;  // down to 0.06
  EXPECT_EQ(support(logits, draw).size(), 10u);
  draw.request.sampling.top_n_sigma = 2.3f;  // down to -0.1
  EXPECT_EQ(support(logits, draw).size(), 90u);
  draw.request.sampling.temperature = 0.1f;  // the same ones, whatever the temperature
  EXPECT_EQ(support(logits, draw).size(), 10u) << "the others weigh nothing";
  // What a bias took away for good is no part of the deviation.
  draw.request.sampling.temperature = 100;
  draw.request.sampling.logit_bias = {{0, -1e6f}};
  EXPECT_EQ(support(logits, draw).size(), 89u);
}

// Probabilities 0.5, 0.25, 0.125, 0.125: the entropy is 1.75 bits, which lies between the first two
// and the others.
TEST(Sampler, TypicalKeepsTheUsualSurprise) {
  const float step = std::log(2.0f);
  const std::vector<float> logits = {3 * step, 2 * step, step, step};
  Draw draw;
  draw.request.sampling.typical_p = 0.2f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{1}));
  draw.request.sampling.typical_p = 0.3f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1}));
  draw.request.sampling.typical_p = 0.8f;
  EXPECT_EQ(support(logits, draw).size(), 4u);
  // top_p and min_p look at what is left.
  draw.request.sampling.typical_p = 0.3f;
  draw.request.sampling.top_p = 0.6f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
  draw.request.sampling.typical_p = 0.2f;
  draw.request.sampling.min_p = 1;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{1}));
}

TEST(Sampler, TypicalKeepsTheUsualInLargeRowsToo) {
  std::vector<float> logits(9000, 0.0f);
  logits[77] = 7;  // a tenth of the probability, and far from usual
  Draw draw;
  draw.request.sampling.typical_p = 0.5f;
  const auto ids = support(logits, draw);
  EXPECT_GT(ids.size(), 2000u);
  EXPECT_FALSE(ids.contains(77));
}

TEST(Sampler, XtcLeavesOutAllButTheLastOfTheTop) {
  const float step = std::log(2.0f);
  const std::vector<float> logits = {step, 3 * step, 2 * step, step};
  Draw draw;
  draw.request.sampling.xtc_probability = 1;
  draw.request.sampling.xtc_threshold = 0.2f;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 2, 3}));
  draw.request.sampling.xtc_threshold = 0.3f;
  EXPECT_EQ(support(logits, draw).size(), 4u) << "only one is that likely";
  draw.request.sampling.xtc_threshold = 0;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{3}));
}

TEST(Sampler, XtcHappensAsOftenAsItsProbabilitySays) {
  const std::vector<float> logits = {std::log(9.0f), 0};
  Draw draw;
  draw.request.sampling.xtc_threshold = 0.05f;
  draw.request.sampling.xtc_probability = 0.25f;  // then the second comes for sure
  auto counts = histogram(logits, draw, 20'000);
  EXPECT_NEAR(counts[1], 20'000 * (0.25 + 0.75 * 0.1), 350);
}

std::string letter(int32_t id) { return std::string(1, static_cast<char>('a' + id)); }

TEST(Sampler, InfillIsTheLastFilter) {
  const std::vector<float> logits = {2.0f, 1.9f, 1.8f, 0.5f, -9.0f};
  Draw draw;
  draw.end_ids = {4};
  draw.request.sampling.top_k = 5;
  draw.request.sampling.infill = letter;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0, 1, 2}));
  draw.request.sampling.top_k = 1;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
  draw.request.sampling.top_k = 5;
  draw.request.sampling.infill = [](int32_t) { return "same"; };
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0})) << "the likeliest stands for all";
}

TEST(Sampler, InfillEndsWhereNothingIsLikelyUnlessItMayNot) {
  std::vector<float> logits(300, -20.0f);
  for (size_t id = 0; id < 20; ++id) logits[id] = 1.0f;
  logits[298] = -9.0f;
  logits[299] = -8.0f;
  Draw draw;
  draw.end_ids = {298, 299};
  draw.request.sampling.top_k = 20;
  draw.request.sampling.infill = letter;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{299}));
  draw.request.ignore_eos = true;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
  draw.request.ignore_eos = false;
  draw.request.min_tokens = 1;
  EXPECT_EQ(support(logits, draw), (std::set<int32_t>{0}));
}

TEST(Sampler, MirostatLeavesOutWhatSurprisesMoreThanItsBound) {
  const float step = std::log(2.0f);
  const std::vector<float> logits = {3 * step, 2 * step, step, step};  // 1, 2, 3, 3 bits
  Draw draw;
  draw.request.sampling.mirostat = true;
  draw.request.sampling.top_k = 1;  // mirostat stands in its place
  Sampler sampler(4);
  const auto ids = [&](double bound) {
    std::set<int32_t> found;
    for (uint64_t seed = 0; seed < 500; ++seed) {
      draw.request.sampling.seed = seed;
      SampleContext context = draw.context();
      context.mirostat_bound = bound;
      double surprise = -1;
      const int32_t id = sampler.sample(logits.data(), draw.request, context, &surprise).value();
      if (bound > 3) {
        EXPECT_NEAR(surprise, id == 3 ? 3 : id + 1, 1e-6);
      }
      found.insert(id);
    }
    return found;
  };
  EXPECT_EQ(ids(4).size(), 4u);
  EXPECT_EQ(ids(2.5), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(ids(1.5), (std::set<int32_t>{0}));
  EXPECT_EQ(ids(-3), (std::set<int32_t>{0})) << "the best is always left";
}

// Over a long output the surprise comes to what was asked for.
TEST(Sampler, MirostatHoldsTheSurpriseOfAnOutput) {
  const std::vector<float> logits = random_logits(3000, 21, 2);
  Sampler sampler(3000);
  for (const float tau : {2.0f, 4.0f, 6.0f}) {
    Draw draw;
    draw.request.sampling.mirostat = true;
    draw.request.sampling.mirostat_tau = tau;
    double bound = first_mirostat_bound(draw.request.sampling);
    double sum = 0;
    for (int i = 0; i < 2000; ++i) {
      draw.tokens.push_back(0);
      SampleContext context = draw.context();
      context.mirostat_bound = bound;
      double surprise = 0;
      ASSERT_TRUE(sampler.sample(logits.data(), draw.request, context, &surprise).ok());
      bound = next_mirostat_bound(draw.request.sampling, bound, surprise);
      sum += surprise;
    }
    EXPECT_NEAR(sum / 2000, tau, 0.1);
  }
}

TEST(Sampler, BadWordsAreNeverCompleted) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  draw.request.sampling.bad_words = {{3}, {1, 2}, {0, 1, 2}};
  EXPECT_EQ(sample({0, 1, 5, 9}, draw), 2);
  draw.tokens = {0, 1};
  EXPECT_EQ(sample({0, 1, 5, 9}, draw), 1) << "the output ends with 1";
  draw.num_prompt = 2;
  EXPECT_EQ(sample({0, 1, 5, 9}, draw), 2) << "the prompt begins no word";
  draw.request.sampling.bad_words = {{0}, {1}, {2}, {3}};
  Sampler sampler(4);
  const std::vector<float> logits(4);
  const auto result = sampler.sample(logits.data(), draw.request, draw.context());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "bad_words forbid every token that is left");
}

// What was counted before and what is counted in the call give the same bits.
TEST(Sampler, AHistoryChangesNothing) {
  const std::vector<float> logits = random_logits(500, 5);
  Draw draw;
  SamplingParams& sampling = draw.request.sampling;
  sampling.repetition_penalty = 1.2f;
  sampling.frequency_penalty = 0.3f;
  sampling.dry.multiplier = 0.8f;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) draw.tokens.push_back(static_cast<int32_t>(random() % 5));
  TokenHistory history(sampling, draw.num_prompt);
  history.extend(std::span(draw.tokens).first(55));
  SampleContext context = draw.context();
  context.history = &history;
  Sampler sampler(500);
  for (sampling.seed = 0; sampling.seed < 50; ++sampling.seed) {
    EXPECT_EQ(sampler.sample(logits.data(), draw.request, context).value(), sample(logits, draw));
  }
}

TEST(Sampler, NothingLeftIsAnError) {
  Draw draw;
  draw.request.min_tokens = 2;
  draw.request.stop_ids = {0, 1};
  Sampler sampler(2);
  const std::vector<float> logits = {0, 0};
  const auto result = sampler.sample(logits.data(), draw.request, draw.context());
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("min_tokens"), std::string::npos);
}

TEST(Sampler, BestTokenIsEnoughOnlyWithoutAnyChangeOfTheLogits) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  const auto enough = [](const Draw& given) {
    return Sampler::needs_best_only(given.request, given.context());
  };
  EXPECT_TRUE(enough(draw));
  draw.request.sampling.top_k = 3;  // greedy whatever is filtered
  EXPECT_TRUE(enough(draw));
  const std::vector<std::function<void(Request*)>> changes = {
      [](Request* r) { r->sampling.temperature = 0.5f; },
      [](Request* r) { r->num_logprobs = 0; },
      [](Request* r) { r->min_tokens = 1; },
      [](Request* r) { r->sampling.logit_bias = {{3, 1.0f}}; },
      [](Request* r) { r->sampling.repetition_penalty = 1.1f; },
      [](Request* r) { r->sampling.presence_penalty = 0.1f; },
      [](Request* r) { r->sampling.frequency_penalty = 0.1f; },
      [](Request* r) { r->sampling.dry.multiplier = 0.1f; },
      [](Request* r) { r->sampling.bad_words = {{3}}; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Draw changed = draw;
    changes[i](&changed.request);
    EXPECT_FALSE(enough(changed)) << i;
  }
}

TEST(Sampler, TakenTokensAreThoseThatAreSampled) {
  Draw draw;
  draw.request.sampling.temperature = 0;
  EXPECT_EQ(Sampler::take({2, true, 5.0f}).value(), sample({1.0f, 4.0f, 5.0f, 5.0f}, draw));
  Sampler sampler(4);
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    const float logits[] = {0.0f, bad, 9.0f, bad};
    const auto sampled = sampler.sample(logits, draw.request, draw.context());
    const auto taken = Sampler::take({1, false, bad});
    ASSERT_FALSE(sampled.ok() || taken.ok());
    EXPECT_EQ(taken.error().message, sampled.error().message);
    EXPECT_EQ(taken.error().code, sampled.error().code);
  }
}

// Large vocabularies are searched by blocks: exactly the best remain, ties to the lower id.
TEST(Sampler, LargeVocabularyKeepsExactlyTheBest) {
  std::mt19937 random(9);
  int num_checked = 0;
  for (const size_t vocab_size : {5000u, 6401u}) {
    for (const int num_levels : {3, 40, 100'000}) {
      std::vector<float> logits(vocab_size);
      for (float& logit : logits) {
        logit =
            1e-3f * static_cast<float>(static_cast<int>(random() % num_levels) - num_levels / 2);
      }
      std::vector<int32_t> ids(vocab_size);
      std::iota(ids.begin(), ids.end(), 0);
      std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
      });
      for (const int32_t top_k : {1, 2, 7, 20}) {
        Draw draw;
        draw.request.sampling.top_k = top_k;
        draw.request.sampling.temperature = 1000.0f;
        std::set<int32_t> drawn;
        for (const auto& [id, count] : histogram(logits, draw, 600)) drawn.insert(id);
        EXPECT_EQ(drawn, std::set<int32_t>(ids.begin(), ids.begin() + top_k))
            << vocab_size << " " << num_levels << " " << top_k;
        ++num_checked;
      }
    }
  }
  EXPECT_EQ(num_checked, 24);
}

TEST(Sampler, NotFiniteLogitsAreAnErrorNeverAToken) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const float temperature : {0.0f, 1.0f}) {
      std::vector<float> logits(100, 1.0f);
      logits[77] = bad;
      Draw draw;
      draw.request.sampling.temperature = temperature;
      Sampler sampler(100);
      const auto result = sampler.sample(logits.data(), draw.request, draw.context());
      ASSERT_FALSE(result.ok());
      EXPECT_NE(result.error().message.find("token 77"), std::string::npos);
      EXPECT_FALSE(sampler.score(logits.data(), 0, 1).ok());
    }
  }
}

TEST(Sampler, ExtremeValuesStayInRange) {
  Draw draw;
  for (const float temperature : {1e-30f, 1e-6f, 1.0f, 100.0f}) {
    draw.request.sampling.temperature = temperature;
    const int32_t id = sample({1e30f, -1e30f, 3e38f, -3e38f}, draw);
    EXPECT_EQ(id, 2);
  }
  draw.request.sampling.temperature = 1e-38f;
  EXPECT_EQ(sample({0.5f, 1.0f, 0.9999f}, draw), 1);
  draw.request.sampling.repetition_penalty = 0.01f;
  draw.tokens = {0, 1};
  EXPECT_GE(sample({3e38f, -3e38f, 0}, draw), 0);
}

TEST(Sampler, DrawDependsOnSeedAndPositionAlone) {
  const std::vector<float> logits = random_logits(1000, 3);
  Draw draw;
  draw.request.sampling.seed = 42;
  draw.tokens = std::vector<int32_t>(17, 5);
  const int32_t first = sample(logits, draw);
  draw.tokens = std::vector<int32_t>(17, 6);
  EXPECT_EQ(sample(logits, draw), first);
  std::set<int32_t> others;
  for (int i = 0; i < 20; ++i) {
    draw.tokens.push_back(0);
    others.insert(sample(logits, draw));
  }
  EXPECT_GT(others.size(), 3u);
}

TEST(Sampler, LogprobsMatchFloat64) {
  const std::vector<float> logits = random_logits(5000, 9, 4);
  double max_logit = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - max_logit);
  Sampler sampler(5000);
  for (const int32_t id : {0, 17, 4999}) {
    const TokenLogprobs score = sampler.score(logits.data(), id, 0).value();
    const double expected = double{logits[static_cast<size_t>(id)]} - max_logit - std::log(sum);
    EXPECT_NEAR(score.logprob, expected, 2e-6 * std::max(1.0, std::abs(expected)));
    EXPECT_TRUE(score.top.empty());
  }
}

TEST(Sampler, TopAlternativesAreSortedAndPrintedFromTheSameNumber) {
  const std::vector<float> logits = {1, 3, 2, 3, 0, 2};
  Sampler sampler(6);
  const TokenLogprobs score = sampler.score(logits.data(), 3, 4).value();
  ASSERT_EQ(score.top.size(), 4u);
  EXPECT_EQ(score.top[0].first, 1);  // the arg-max; ties to the lower id
  EXPECT_EQ(score.top[1].first, 3);
  EXPECT_EQ(score.top[2].first, 2);
  EXPECT_EQ(score.top[3].first, 5);
  EXPECT_EQ(score.rank, 2);
  EXPECT_EQ(score.logprob, score.top[1].second);
  EXPECT_EQ(score.logprob, score.top[0].second);  // equal logits: equal floats
  EXPECT_EQ(sampler.score(logits.data(), 4, 20).value().rank, 6);
  EXPECT_EQ(sampler.score(logits.data(), 4, 20).value().top.size(), 6u);
}

TEST(Sampler, RankAgreesWithTheSortedList) {
  const std::vector<float> logits = random_logits(300, 11);
  Sampler sampler(300);
  const auto top = sampler.score(logits.data(), 0, 20).value().top;
  for (size_t i = 0; i < top.size(); ++i) {
    const TokenLogprobs score = sampler.score(logits.data(), top[i].first, 0).value();
    EXPECT_EQ(score.rank, static_cast<int32_t>(i) + 1);
    EXPECT_EQ(score.logprob, top[i].second);
  }
}

// However many threads pass over a row: the same token, the same log-probs to the last bit. Flat
// rows have many candidates for every filter, so that all passes are made.
TEST(Sampler, ARowCutIntoPartsGivesTheSame) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 2);
  std::uniform_real_distribution<float> flat(0, 0.02f);
  int num_cases = 0, num_cut = 0;
  for (const int num_threads : {2, 3, 9}) {
    const auto backend = create_cpu_backend({.isa = "reference", .num_threads = num_threads});
    const RowParts parts(**backend);
    for (const size_t vocab_size : {1'000u, 16'384u, 40'001u, 151'936u}) {
      num_cut += parts.count(vocab_size) > 1 ? 1 : 0;
      Sampler whole(static_cast<int64_t>(vocab_size)), cut(static_cast<int64_t>(vocab_size));
      std::vector<float> row(vocab_size);
      for (float& logit : row) logit = num_cases % 2 == 0 ? normal(random) : flat(random);
      row[vocab_size / 2] = row[vocab_size - 1];  // a tie between parts
      for (int option = 0; option < 16; ++option) {
        Draw draw;
        SamplingParams& sampling = draw.request.sampling;
        sampling.temperature = option == 7 ? 0.0f : 0.9f;
        sampling.seed = static_cast<uint64_t>(num_cases++);
        if ((option & 1) != 0) sampling.top_k = static_cast<int32_t>(vocab_size / 2);
        if ((option & 2) != 0) sampling.top_p = 0.95f;
        if ((option & 4) != 0) sampling.min_p = 1e-4f;
        if ((option & 8) != 0) {
          sampling.typical_p = 0.8f;
          sampling.top_n_sigma = 2;
          sampling.xtc_probability = 0.5f;
          sampling.xtc_threshold = 1e-4f;
          sampling.mirostat = option == 15;
        }
        SampleContext context = draw.context();
        context.mirostat_bound = 9;
        const int32_t token = whole.sample(row.data(), draw.request, context).value();
        context.parts = parts;
        EXPECT_EQ(cut.sample(row.data(), draw.request, context).value(), token) << option;
        const TokenLogprobs expected = whole.score(row.data(), token, 20).value();
        const TokenLogprobs found = cut.score(row.data(), token, 20, parts).value();
        EXPECT_EQ(found.logprob, expected.logprob);
        EXPECT_EQ(found.rank, expected.rank);
        EXPECT_EQ(found.top, expected.top);
      }
    }
  }
  EXPECT_EQ(num_cases, 3 * 4 * 16);
  EXPECT_EQ(num_cut, 3 * 3);
}

TEST(Sampler, ALogitThatIsNotFiniteIsFoundInEveryPart) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 3});
  std::vector<float> row(50'000, 1.0f);
  Sampler sampler(std::ssize(row));
  Draw draw;
  SampleContext context = draw.context();
  context.parts = RowParts(**backend);
  for (const size_t at : {0u, 20'000u, 49'999u}) {
    row[at] = std::numeric_limits<float>::quiet_NaN();
    const auto token = sampler.sample(row.data(), draw.request, context);
    ASSERT_FALSE(token.ok());
    EXPECT_NE(token.error().message.find(fmt::format("for token {},", at)), std::string::npos);
    row[at] = 1.0f;
  }
  EXPECT_TRUE(sampler.sample(row.data(), draw.request, context).ok());
}

}  // namespace sampler_test
}  // namespace headrace
