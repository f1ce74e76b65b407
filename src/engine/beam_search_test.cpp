#include "engine/beam_search.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "engine/testing/beam_reference.h"

namespace headrace {
namespace beam_search_test {

constexpr int32_t kVocabOfSix = 6;
constexpr float kNotAllowed = -std::numeric_limits<float>::infinity();

// A language model with random log-probs for each output: the same for the same output and seed.
class TinyModel {
 public:
  TinyModel(uint64_t seed, int32_t vocab_size, bool has_ties, bool has_memory)
      : seed_(seed), vocab_size_(vocab_size), has_ties_(has_ties), has_memory_(has_memory) {}

  std::vector<float> row(const std::vector<int32_t>& output) const {
    uint64_t hash = seed_;
    for (const int32_t token : output) hash = hash * 31 + static_cast<uint64_t>(token) + 1;
    std::mt19937_64 random(has_memory_ ? hash : seed_);
    std::vector<float> row;
    double sum = 0;
    for (int32_t i = 0; i < vocab_size_; ++i) {
      row.push_back(1 + static_cast<float>(random() % (has_ties_ ? 3 : 100'000)));
      sum += row.back();
    }
    for (float& each : row) each = static_cast<float>(std::log(each / sum));
    return row;
  }

 private:
  const uint64_t seed_;
  const int32_t vocab_size_;
  const bool has_ties_, has_memory_;
};

std::vector<BeamHypothesis> search(const BeamParams& params, int32_t max_length,
                                   const std::set<int32_t>& end_ids,
                                   const BeamReference::Rows& rows) {
  BeamSearch search(params, max_length);
  std::vector<std::vector<int32_t>> live = {{}};
  while (!search.is_done()) {
    std::vector<std::vector<BeamCandidate>> candidates;
    for (const std::vector<int32_t>& output : live) {
      candidates.push_back(beam_candidates(rows(output), params.width, end_ids));
    }
    search.advance(candidates);
    std::vector<std::vector<int32_t>> next;
    for (const BeamSearch::Beam& beam : search.beams()) {
      next.push_back(live[static_cast<size_t>(beam.parent)]);
      next.back().push_back(beam.token_id);
    }
    live = std::move(next);
  }
  return search.best();
}

void expect_same(const std::vector<BeamHypothesis>& a, const std::vector<BeamHypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token_ids, b[i].token_ids) << "hypothesis " << i;
    EXPECT_EQ(a[i].stop_id, b[i].stop_id) << "hypothesis " << i;
    EXPECT_EQ(a[i].logprob, b[i].logprob);
    EXPECT_EQ(a[i].score, b[i].score);
  }
}

BeamParams random_params(std::mt19937_64& random, int32_t most_beams) {
  constexpr float kPenalties[] = {1, 0, 0.5f, 2, -1};
  BeamParams params;
  params.width = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(most_beams));
  params.num_returned = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(params.width));
  params.length_penalty = kPenalties[random() % 5];
  params.early_stopping = static_cast<EarlyStopping>(random() % 3);
  return params;
}

TEST(BeamSearch, FindsWhatTheReferenceFinds) {
  std::mt19937_64 random(1);
  int num_stopped = 0, num_full_length = 0;
  for (int round = 0; round < 4000 && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const TinyModel model(random(), kVocabOfSix, random() % 3 == 0, random() % 4 != 0);
    const BeamParams params = random_params(random, 5);
    std::set<int32_t> end_ids;
    for (uint64_t i = random() % 4; i > 0; --i) end_ids.insert(static_cast<int32_t>(random() % 6));
    const int32_t banned = static_cast<int32_t>(random() % 12);
    const auto rows = [&](const std::vector<int32_t>& output) {
      std::vector<float> row = model.row(output);
      if (banned < kVocabOfSix) row[static_cast<size_t>(banned)] = kNotAllowed;
      return row;
    };
    const auto max_length = static_cast<int32_t>(1 + random() % 6);
    const std::vector<BeamHypothesis> found = search(params, max_length, end_ids, rows);
    expect_same(found, BeamReference(params, max_length, end_ids).run(rows));
    for (const BeamHypothesis& each : found) ++(each.stop_id >= 0 ? num_stopped : num_full_length);
  }
  EXPECT_GT(num_stopped, 1000);
  EXPECT_GT(num_full_length, 1000);
}

// All outputs that a model has, with their last token.
struct Outputs {
  BeamReference::Rows rows;
  int32_t vocab_size, max_length, end_id;
  std::function<void(const std::vector<int32_t>&, double logprob)> each;

  void list(double logprob = 0, std::vector<int32_t> output = {}) const {
    const std::vector<float> row = rows(output);
    for (int32_t token = 0; token < vocab_size; ++token) {
      output.push_back(token);
      const double sum = logprob + double{row[static_cast<size_t>(token)]};
      if (token == end_id || std::ssize(output) == max_length) {
        each(output, sum);
      } else {
        list(sum, output);
      }
      output.pop_back();
    }
  }
};

// Where the beam is as wide as the tree, nothing is missed.
TEST(BeamSearch, IsExhaustiveWhereTheBeamIsWideEnough) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const TinyModel model(seed, 3, /*has_ties=*/false, /*has_memory=*/true);
    const auto rows = [&](const std::vector<int32_t>& output) { return model.row(output); };
    const auto penalty = static_cast<float>(seed % 3);
    std::vector<std::pair<double, std::vector<int32_t>>> all;
    const auto keep = [&](const std::vector<int32_t>& output, double logprob) {
      all.emplace_back(-logprob / std::pow(std::ssize(output), penalty), output);
    };
    Outputs{rows, 3, 3, /*end_id=*/2, keep}.list();
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), 1u + 2u + 12u);
    const BeamParams params{16, 15, penalty, EarlyStopping::kNever};
    const std::vector<BeamHypothesis> found = search(params, 3, {2}, rows);
    ASSERT_EQ(found.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<int32_t> output = found[i].token_ids;
      if (found[i].stop_id >= 0) output.push_back(found[i].stop_id);
      EXPECT_EQ(output, all[i].second) << "seed " << seed << ", hypothesis " << i;
    }
  }
}

// Vocabulary of 6, outputs of up to 5 tokens: no result is better than the best of all thousands,
// each is worth what the model says, and without memory and ends the best of all is found.
TEST(BeamSearch, IsNeverBetterThanAllThereIs) {
  int num_optimal = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const bool has_memory = seed % 2 == 0;
    const TinyModel model(seed, kVocabOfSix, /*has_ties=*/false, has_memory);
    const auto rows = [&](const std::vector<int32_t>& output) { return model.row(output); };
    double best = -1e9;
    const auto see = [&](const auto&, double logprob) { best = std::max(best, logprob); };
    Outputs{rows, kVocabOfSix, 5, /*end_id=*/has_memory ? 0 : -1, see}.list();
    const std::set<int32_t> end_ids = has_memory ? std::set<int32_t>{0} : std::set<int32_t>{};
    const std::vector<BeamHypothesis> found =
        search({4, 4, /*length_penalty=*/0, EarlyStopping::kNever}, 5, end_ids, rows);
    ASSERT_EQ(found.size(), 4u);
    for (const BeamHypothesis& each : found) {
      double sum = 0;
      std::vector<int32_t> output;
      for (const int32_t token : each.token_ids) {
        sum += double{rows(output)[static_cast<size_t>(token)]};
        output.push_back(token);
      }
      if (each.stop_id >= 0) sum += double{rows(output)[static_cast<size_t>(each.stop_id)]};
      EXPECT_EQ(each.logprob, sum);
      EXPECT_LE(each.score, best);
    }
    EXPECT_TRUE(has_memory || found[0].score == best) << "seed " << seed;
    num_optimal += found[0].score == best ? 1 : 0;
  }
  EXPECT_GT(num_optimal, 30);
}

TEST(BeamSearch, OneBeamTakesTheBestTokenEachTime) {
  const TinyModel model(5, kVocabOfSix, /*has_ties=*/true, /*has_memory=*/true);
  const auto rows = [&](const std::vector<int32_t>& output) { return model.row(output); };
  const std::vector<BeamHypothesis> found = search({1, 1, 1, EarlyStopping::kNo}, 6, {}, rows);
  std::vector<int32_t> greedy;
  while (greedy.size() < 6) {
    const std::vector<float> row = rows(greedy);
    greedy.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].token_ids, greedy);
}

// Equal log-probs: the lower token, then the earlier beam.
TEST(BeamSearch, DecidesTies) {
  BeamSearch search({3, 3, 0, EarlyStopping::kNever}, 9);
  const std::vector<BeamCandidate> first = {{7, -1, false}, {4, -1, false}, {9, -1, false}};
  search.advance(std::vector<std::vector<BeamCandidate>>{first});
  ASSERT_EQ(search.beams().size(), 3u);
  EXPECT_EQ(search.beams()[0].token_id, 4);
  EXPECT_EQ(search.beams()[1].token_id, 7);
  EXPECT_EQ(search.beams()[2].token_id, 9);
  const std::vector<BeamCandidate> second = {{8, -1, false}, {5, -1, false}};
  search.advance(std::vector<std::vector<BeamCandidate>>{second, second, second});
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(search.beams()[static_cast<size_t>(i)].token_id, 5);
    EXPECT_EQ(search.beams()[static_cast<size_t>(i)].parent, i);
  }
}

// An end that is not among the first `width` continuations is no hypothesis.
TEST(BeamSearch, EndsBelowTheBeamAreDropped) {
  BeamSearch search({2, 1, 1, EarlyStopping::kYes}, 2);
  search.advance(std::vector<std::vector<BeamCandidate>>{
      {{0, -0.1f, false}, {1, -0.2f, false}, {5, -0.3f, true}}});
  EXPECT_FALSE(search.is_done());
  search.advance(std::vector<std::vector<BeamCandidate>>(2, {{0, -1, false}, {5, -1.5f, true}}));
  ASSERT_TRUE(search.is_done());
  EXPECT_EQ(search.best()[0].stop_id, -1);  // the length ended it
}

TEST(BeamSearch, EndsWhenNothingMayCome) {
  BeamSearch search({2, 2, 1, EarlyStopping::kNo}, 5);
  search.advance(std::vector<std::vector<BeamCandidate>>{{{5, -0.5f, true}}});
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best().size(), 1u);
}

}  // namespace beam_search_test
}  // namespace headrace
