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

#include "base/sanitizers.h"
#include "engine/philox.h"
#include "engine/sampler.h"

namespace headrace {
namespace rank_search_test {

// Sorts everything, adds everything up from the front; the steps are those that SamplingParams
// states, one after the other.
class Oracle {
 public:
  Oracle(const std::vector<float>& row, const SamplingParams& sampling, double mirostat_bound)
      : sampling_(sampling), row_(row), ids_(row.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
      return value(a) != value(b) ? value(a) > value(b) : a < b;
    });
    largest_ = value(ids_[0]);
    if (sampling.mirostat) {
      weigh(-std::numeric_limits<float>::infinity());
      cut(1, total() * std::exp2(-mirostat_bound));
      return;
    }
    const float lowest = lowest_of_sigma();
    if (sampling.top_k > 0) {
      ids_.resize(std::min(ids_.size(), static_cast<size_t>(sampling.top_k)));
    }
    weigh(lowest);
    if (sampling.typical_p < 1) keep_typical();
    cut(sampling.top_p, sampling.min_p * *std::max_element(weights_.begin(), weights_.end()));
  }

  struct Drawn {
    int32_t id = -1;
    double surprise = 0;
  };
  Drawn draw(double uniform, double coin) const {
    double begin = 0;
    const double end = sums_.back();
    if (!sampling_.mirostat && coin < sampling_.xtc_probability) begin = end_of_top();
    const double target = begin + uniform * (end - begin);
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), target);
    const auto i = static_cast<size_t>(std::min(found, sums_.end() - 1) - sums_.begin());
    return {kept_[i].first, std::log2((end - begin) / double{kept_[i].second})};
  }

 private:
  float value(int32_t id) const { return row_[static_cast<size_t>(id)]; }
  double total() const { return std::accumulate(weights_.begin(), weights_.end(), 0.0); }

  float lowest_of_sigma() const {
    if (sampling_.top_n_sigma <= 0) return -std::numeric_limits<float>::infinity();
    double count = 0, sum = 0, squares = 0;
    for (const float logit : row_) {
      const double below = double{logit - largest_};
      if (below <= -1e4) continue;
      count += 1;
      sum += below;
      squares += below * below;
    }
    const double variance = std::max(0.0, squares / count - sum / count * (sum / count));
    return largest_ - static_cast<float>(double{sampling_.top_n_sigma} * std::sqrt(variance));
  }

  void weigh(float lowest) {
    for (const int32_t id : ids_) {
      const float weight = weigh_one(value(id), largest_, sampling_.temperature, row_.size());
      weights_.push_back(value(id) < lowest ? 0 : weight);
    }
  }

  void keep_typical() {
    double sum = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (weights_[i] > 0) sum += double{weights_[i]} * double{value(ids_[i]) - largest_};
    }
    const auto centre = static_cast<float>(sum / total());
    std::vector<std::pair<float, float>> by_distance;  // and weight
    const auto distance = [&](size_t i) { return std::abs((value(ids_[i]) - largest_) - centre); };
    for (size_t i = 0; i < ids_.size(); ++i) by_distance.emplace_back(distance(i), weights_[i]);
    std::sort(by_distance.begin(), by_distance.end());
    const double enough = double{sampling_.typical_p} * total();
    size_t last = 0;
    for (double reached = by_distance[0].second; reached < enough;) {
      reached += by_distance[++last].second;
    }
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (distance(i) > by_distance[last].first) weights_[i] = 0;
    }
  }

  void cut(float share, double least) {
    const double enough =
        share < 1 ? double{share} * total() : std::numeric_limits<double>::infinity();
    const float lightest = static_cast<float>(
        std::min(least, double{*std::max_element(weights_.begin(), weights_.end())}));
    double sum = 0;
    for (size_t i = 0; i < ids_.size() && sum < enough; ++i) {
      if (weights_[i] == 0) continue;
      if (weights_[i] < lightest) break;
      sums_.push_back(sum += double{weights_[i]});
      kept_.emplace_back(ids_[i], weights_[i]);
    }
  }

  // The weight before the last token of at least the threshold's share.
  double end_of_top() const {
    const auto least = static_cast<float>(double{sampling_.xtc_threshold} * sums_.back());
    size_t num_heavy = 0;
    while (num_heavy < kept_.size() && kept_[num_heavy].second >= least) ++num_heavy;
    return num_heavy < 2 ? 0.0 : sums_[num_heavy - 2];
  }

  const SamplingParams& sampling_;
  const std::vector<float>& row_;
  float largest_ = 0;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;  // of ids_
  std::vector<std::pair<int32_t, float>> kept_;
  std::vector<double> sums_;  // of kept_
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
  // Half of them only with the filters that everybody uses.
  const auto filters = static_cast<uint32_t>(1 + random() % (random() % 2 == 0 ? 7 : 127));
  if (filters & 1) sampling.top_p = pick({1e-3f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999999f});
  if (filters & 2) {
    sampling.top_k = static_cast<int32_t>(pick({1, 2, 20, 40, 255, 256, 257, 1000, 100'000}));
  }
  if (filters & 4) sampling.min_p = pick({1e-6f, 1e-3f, 0.05f, 0.5f, 1.0f});
  if (filters & 8) sampling.top_n_sigma = pick({1e-3f, 0.5f, 1.0f, 3.0f, 100.0f});
  if (filters & 16) sampling.typical_p = pick({1e-3f, 0.2f, 0.5f, 0.9f, 0.999f});
  if (filters & 32) {
    sampling.xtc_threshold = pick({0.0f, 1e-4f, 0.01f, 0.1f, 0.5f, 1.0f});
    sampling.xtc_probability = (filters & 31) == 0 ? 1.0f : pick({0.3f, 1.0f});
  }
  sampling.mirostat = filters == 64 || ((filters & 64) != 0 && random() % 2 == 0);
  return sampling;
}

std::string describe(const SamplingParams& sampling) {
  return fmt::format(
      "temperature {}, top_n_sigma {}, top_k {}, typical_p {}, top_p {}, min_p {}, XTC {} {}, "
      "mirostat {}",
      sampling.temperature, sampling.top_n_sigma, sampling.top_k, sampling.typical_p,
      sampling.top_p, sampling.min_p, sampling.xtc_probability, sampling.xtc_threshold,
      sampling.mirostat);
}

void compare_draws_with(size_t vocab_size, const SamplingParams& params, Random& random,
                        int num_seeds) {
  Request request;
  request.sampling = params;
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
  const double bound = normal(random, 8);
  const Oracle oracle(allowed, request.sampling, bound);
  Sampler sampler(static_cast<int64_t>(vocab_size));
  const std::vector<int32_t> tokens(3);
  for (int i = 0; i < num_seeds; ++i) {
    SamplingParams& sampling = request.sampling;
    sampling.seed = random();
    sampling.choice_idx = static_cast<uint32_t>(random() % 3);
    SampleContext context{tokens, 3, {}};
    context.mirostat_bound = bound;
    double surprise = 0;
    const int32_t found = sampler.sample(row.data(), request, context, &surprise).value();
    const auto uniform = [&](uint32_t stream) {
      return uniform_at(sampling.seed, sampling.choice_idx, 3, stream);
    };
    const Oracle::Drawn expected = oracle.draw(uniform(0), uniform(1));
    EXPECT_EQ(found, expected.id) << describe(sampling) << ", vocabulary " << vocab_size
                                  << ", bound " << bound;
    EXPECT_EQ(surprise, expected.surprise) << describe(sampling);
    if (found != expected.id) break;
  }
}

int64_t compare_draws(size_t vocab_size, Random& random, int num_seeds) {
  const SamplingParams params = some_params(random);
  compare_draws_with(vocab_size, params, random, num_seeds);
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

// Rows of so many tokens that each filter's steps hold many: what one left out must not come back.
TEST(RankSearch, FiltersBehindEachOtherInLargeRowsAreThoseOfAPlainSort) {
  Random random(6);
  const auto pick = [&](std::initializer_list<float> list) {
    return list.begin()[random() % list.size()];
  };
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    SamplingParams sampling;
    sampling.temperature = pick({0.7f, 1.0f, 10.0f, 100.0f});
    sampling.top_k = static_cast<int32_t>(pick({300, 2'000, 9'000}));
    sampling.typical_p = pick({0.2f, 0.9f, 0.999f});
    sampling.top_n_sigma = pick({0.0f, 1.0f, 3.0f});
    sampling.top_p = pick({0.3f, 0.99f, 1.0f});
    sampling.min_p = pick({0.0f, 1e-4f, 0.5f});
    sampling.xtc_threshold = pick({1e-6f, 1e-3f});
    sampling.xtc_probability = pick({0.0f, 1.0f});
    compare_draws_with(10'000, sampling, random, 20);
  }
}

constexpr VocabForm kForms[] = {VocabForm::kPlain, VocabForm::kAvx2, VocabForm::kAvx512};

TEST(RankSearch, EveryProcessorDrawsTheSame) {
  for (const VocabForm form : kForms) {
    limit_vocab_form(form);
    Random random(4);
    for (int i = 0; i < 100 && !HasFailure(); ++i) compare_draws(1'000, random, 20);
  }
  limit_vocab_form(VocabForm::kAvx512);
}

std::vector<float> some_row(size_t size, Random& random) {
  std::vector<float> row(size);
  for (float& value : row) value = normal(random, 3);
  return row;
}

TEST(RankSearch, EveryProcessorWeighsTheSame) {
  Random random(4);
  const std::vector<float> row = some_row(5'001, random);
  std::vector<float> expected;
  for (const float value : row) {
    expected.push_back(value < -9 ? 0 : weigh_one(value, 12.0f, 0.7f, row.size()));
  }
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  std::vector<double> plain_blocks;
  for (const VocabForm form : kForms) {
    limit_vocab_form(form);
    std::vector<float> weights(row.size());
    std::vector<double> blocks((row.size() + kVocabBlock - 1) / kVocabBlock);
    const VocabWeights args{row.data(), row.size(), row.size(), 12.0f, 0.7f, -9.0f, weights.data()};
    EXPECT_EQ(weigh_vocab(args), sum);
    EXPECT_EQ(weights, expected);
    sum_vocab_blocks(args, blocks.data());
    if (form == VocabForm::kPlain) plain_blocks = blocks;
    EXPECT_EQ(blocks, plain_blocks);
  }
  limit_vocab_form(VocabForm::kAvx512);
}

struct Stepped {
  std::vector<float> weights;
  std::vector<uint8_t> steps;
  StepSums sums;
};

Stepped step_row(const std::vector<float>& row, float temperature, bool in_one_pass) {
  const size_t size = row.size();
  Stepped made{std::vector<float>(size), std::vector<uint8_t>(size), {}};
  const VocabWeights weighing{.values = row.data(),
                              .count = size,
                              .vocab_size = size,
                              .largest = 14,
                              .temperature = temperature,
                              .lowest = -9,
                              .weights = made.weights.data()};
  const VocabSteps steps{.values = row.data(),
                         .weights = made.weights.data(),
                         .count = size,
                         .vocab_size = size,
                         .highest = 8,
                         .span = 15,
                         .steps = made.steps.data()};
  if (in_one_pass) {
    weigh_and_step_vocab(weighing, steps, &made.sums);
  } else {
    weigh_vocab(weighing);
    step_vocab(steps, &made.sums);
  }
  return made;
}

// Of rows of any size, also where batches are not full.
TEST(RankSearch, WeighingAndSteppingInOnePassIsOneAfterTheOther) {
  Random random(7);
  for (const size_t size : {1u, 63u, 255u, 256u, 257u, 511u, 512u, 1'000u, 66'000u, 151'936u}) {
    const std::vector<float> row = some_row(size, random);
    for (const float temperature : {1.0f, 0.7f}) {
      for (const VocabForm form : kForms) {
        limit_vocab_form(form);
        const Stepped one = step_row(row, temperature, true);
        const Stepped two = step_row(row, temperature, false);
        EXPECT_TRUE(one.weights == two.weights) << size;
        EXPECT_TRUE(one.steps == two.steps) << size;
        EXPECT_TRUE(one.sums.weights == two.sums.weights) << size;
        EXPECT_TRUE(one.sums.counts == two.sums.counts) << size;
      }
    }
  }
  limit_vocab_form(VocabForm::kAvx512);
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

// A sort of a large vocabulary takes more than a hundred passes over it. Instrumented code is
// slower; a pass is nearly all intrinsics and is not.
constexpr double kFewPasses = kHasAddressSanitizer ? 60 : 12;

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
        [&] { weigh_vocab({row.data(), kVocab, kVocab, 30.0f, 1.0f, -1e9f, weights.data()}); });
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
      EXPECT_LT(cost, kFewPasses * pass)
          << temperature << " " << top_k << " " << top_p << " " << min_p;
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
