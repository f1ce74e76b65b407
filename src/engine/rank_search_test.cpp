// Draws against a plain sorting oracle, and what they cost.
#include "engine/rank_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "engine/philox.h"
#include "engine/sampler.h"

namespace headrace {
namespace rank_search_test {

// Sorts everything, adds everything up from the front.
class Oracle {
 public:
  Oracle(const std::vector<float>& row, const SamplingParams& sampling) : ids_(row.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
      const float x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    if (sampling.top_k > 0) {
      ids_.resize(std::min(ids_.size(), static_cast<size_t>(sampling.top_k)));
    }
    const float largest = row[static_cast<size_t>(ids_[0])];
    std::vector<float> weights;
    for (const int32_t id : ids_) {
      weights.push_back(
          weigh_one(row[static_cast<size_t>(id)], largest, sampling.temperature, row.size()));
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double enough = sampling.top_p < 1 ? double{sampling.top_p} * total
                                             : std::numeric_limits<double>::infinity();
    double sum = 0;
    for (const float weight : weights) {
      if (sum >= enough || weight == 0 || weight < sampling.min_p) break;
      sums_.push_back(sum += weight);
    }
  }

  int32_t draw(double uniform) const {
    const double target = uniform * sums_.back();
    const auto place = std::upper_bound(sums_.begin(), sums_.end(), target);
    return ids_[static_cast<size_t>(std::min(place, sums_.end() - 1) - sums_.begin())];
  }

 private:
  std::vector<int32_t> ids_;
  std::vector<double> sums_;
};

using Random = std::mt19937;

float normal(Random& random, float spread) {
  return std::normal_distribution<float>(0, spread)(random);
}

// Rows of one kind each; the draw's row is the same whatever the kind's name says.
const std::vector<std::function<float(Random&)>>& kinds() {
  static const std::vector<std::function<float(Random&)>> list = {
      [](Random&) { return 0.0f; },                                             // all equal
      [](Random& r) { return normal(r, 1e-4f); },                               // flat
      [](Random& r) { return normal(r, 3); },                                   // as of models
      [](Random& r) { return normal(r, 3) + (r() % 50 == 0 ? 20.0f : 0.0f); },  // peaked
      [](Random& r) { return static_cast<float>(r() % 5) - 2; },                // ties
      [](Random& r) { return r() % 3 == 0 ? -0.0f : 0.0f; },          // zeros of both signs
      [](Random& r) { return r() % 7 == 0 ? 1e30f : normal(r, 1); },  // huge
      [](Random& r) { return std::ldexp(1.0f, -static_cast<int>(r() % 140)); },  // tiny
      [](Random& r) { return normal(r, 300); },                                  // far apart
      [](Random& r) { return r() % 4 == 0 ? -1e6f : normal(r, 2); },             // biased away
  };
  return list;
}

SamplingParams some_params(Random& random) {
  const auto pick = [&](std::initializer_list<float> list) {
    return list.begin()[random() % list.size()];
  };
  SamplingParams sampling;
  sampling.temperature = pick({1e-3f, 0.3f, 0.8f, 1.0f, 1.5f, 10.0f, 100.0f});
  const auto filters = static_cast<uint32_t>(1 + random() % 7);
  if (filters & 1) sampling.top_p = pick({1e-3f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999999f});
  if (filters & 2) {
    sampling.top_k = static_cast<int32_t>(pick({1, 2, 20, 40, 255, 256, 257, 1000, 100'000}));
  }
  if (filters & 4) sampling.min_p = pick({1e-6f, 1e-3f, 0.05f, 0.5f, 1.0f});
  return sampling;
}

int64_t compare_draws(size_t vocab_size, Random& random, int num_seeds) {
  Request request;
  request.sampling = some_params(random);
  std::vector<float> row(vocab_size);
  const auto& kind = kinds()[random() % kinds().size()];
  for (float& logit : row) logit = kind(random);
  std::vector<float> allowed = row;
  if (random() % 3 == 0 && vocab_size > 2) {  // some tokens may not come: minus infinity
    request.min_tokens = 5;
    request.max_tokens = 9;
    for (size_t i = 0; i < vocab_size / 2 && i < 100; ++i) {
      request.stop_ids.push_back(static_cast<int32_t>(random() % vocab_size));
      allowed[static_cast<size_t>(request.stop_ids.back())] =
          -std::numeric_limits<float>::infinity();
    }
  }
  const Oracle oracle(allowed, request.sampling);
  Sampler sampler(static_cast<int64_t>(vocab_size));
  const std::vector<int32_t> tokens(3);
  for (int i = 0; i < num_seeds; ++i) {
    request.sampling.seed = random();
    request.sampling.choice_idx = static_cast<uint32_t>(random() % 3);
    const int32_t found = sampler.sample(row.data(), request, {tokens, 3, {}}).value();
    const int32_t expected =
        oracle.draw(uniform_at(request.sampling.seed, request.sampling.choice_idx, 3));
    EXPECT_EQ(found, expected) << "vocabulary " << vocab_size << ", top_k "
                               << request.sampling.top_k << ", top_p " << request.sampling.top_p
                               << ", min_p " << request.sampling.min_p << ", temperature "
                               << request.sampling.temperature;
    if (found != expected) break;
  }
  return num_seeds;
}

TEST(RankSearch, AMillionDrawsAreThoseOfAPlainSort) {
  Random random(3);
  constexpr size_t kSizes[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 300, 1000};
  int64_t num_draws = 0;
  for (int i = 0; i < 2'500 && !HasFailure(); ++i) {
    num_draws += compare_draws(kSizes[random() % std::size(kSizes)], random, 400);
  }
  for (int i = 0; i < 150 && !HasFailure(); ++i) num_draws += compare_draws(6'401, random, 30);
  for (int i = 0; i < 24 && !HasFailure(); ++i) num_draws += compare_draws(151'936, random, 10);
  EXPECT_GE(num_draws, 1'000'000);
}

TEST(RankSearch, ProcessorsWithoutVectorsDrawTheSame) {
  force_plain_vocab_passes(true);
  Random random(4);
  for (int i = 0; i < 100 && !HasFailure(); ++i) compare_draws(1'000, random, 20);
  std::vector<float> row(5'001), weights[2];
  for (float& value : row) value = normal(random, 3);
  VocabSums sums[2];
  std::vector<double> blocks[2];
  for (const bool plain : {false, true}) {
    force_plain_vocab_passes(plain);
    weights[plain].resize(row.size());
    blocks[plain].resize((row.size() + kVocabBlock - 1) / kVocabBlock);
    const VocabWeights args{row.data(), row.size(), row.size(),           12.0f,
                            0.7f,       0.01f,      weights[plain].data()};
    sums[plain] = weigh_vocab(args);
    sum_vocab_blocks(args, blocks[plain].data());
  }
  force_plain_vocab_passes(false);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(blocks[0], blocks[1]);
  EXPECT_EQ(sums[0].sum, sums[1].sum);
  EXPECT_EQ(sums[0].heavy_sum, sums[1].heavy_sum);
  for (size_t i = 0; i < row.size(); ++i) {
    ASSERT_EQ(weights[0][i], weigh_one(row[i], 12.0f, 0.7f, row.size()));
  }
}

// Weights fall where values fall: so what a filter keeps by weight is a beginning of the order.
TEST(RankSearch, WeightsNeverRiseWhenValuesFall) {
  float before = 1;
  for (float x = 0; x > -30; x = std::nextafter(x - 1e-5f, -100.0f)) {
    const float weight = weigh_one(x, 0, 1, 151'936);
    ASSERT_LE(weight, before) << x;
    before = weight;
  }
}

double least_seconds(const std::function<void()>& work) {
  double least = 1e9;
  for (int i = 0; i < 15; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

// A sort of a large vocabulary takes more than a hundred passes over it.
TEST(RankSearch, EveryOptionCostsAFewPassesOverTheVocabulary) {
  constexpr size_t kVocab = 151'936;
  Random random(5);
  Sampler sampler(kVocab);
  const std::vector<int32_t> tokens(3);
  std::vector<float> weights(kVocab);
  for (const size_t kind : {1u, 2u, 3u}) {
    std::vector<float> row(kVocab);
    for (float& logit : row) logit = kinds()[kind](random);
    const double pass = least_seconds(
        [&] { weigh_vocab({row.data(), kVocab, kVocab, 30.0f, 1.0f, 0.0f, weights.data()}); });
    const auto expect_cheap = [&](float temperature, int32_t top_k, float top_p, float min_p) {
      Request request;
      request.sampling.temperature = temperature;
      request.sampling.top_k = top_k;
      request.sampling.top_p = top_p;
      request.sampling.min_p = min_p;
      const double cost = least_seconds([&] {
        ++request.sampling.seed;
        EXPECT_TRUE(sampler.sample(row.data(), request, {tokens, 3, {}}).ok());
      });
      EXPECT_LT(cost, 12 * pass) << temperature << " " << top_k << " " << top_p << " " << min_p;
    };
    expect_cheap(1, 0, 1, 0);
    expect_cheap(1, 49'151, 1, 0);
    expect_cheap(1, 100'000, 0.9f, 0);
    expect_cheap(100, 0, 0.99f, 0);
    expect_cheap(100, 0, 1, 1e-3f);
    expect_cheap(0.8f, 40, 0.95f, 0.05f);
    for (const int num_top : {0, 20}) {
      EXPECT_LT(least_seconds([&] { ASSERT_TRUE(sampler.score(row.data(), 7, num_top).ok()); }),
                12 * pass);
    }
  }
}

}  // namespace rank_search_test
}  // namespace headrace
