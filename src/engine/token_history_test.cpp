// Penalties and DRY against a plain walk over the whole text, and what an output that goes round in
// a loop looks like.
#include "engine/token_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "engine/loop_watch.h"

namespace headrace {
namespace token_history_test {

using Tokens = std::vector<int32_t>;

constexpr int32_t kVocab = 12;

SamplingParams dry_params(float multiplier, float base, int32_t allowed, Tokens breakers = {}) {
  SamplingParams sampling;
  sampling.dry = {multiplier, base, allowed, -1,
                  std::make_shared<const Tokens>(std::move(breakers))};
  return sampling;
}

// The logits after `tokens`, of which the first `num_known` were told one by one.
std::vector<float> penalise(const SamplingParams& sampling, const Tokens& tokens,
                            int32_t num_prompt, size_t num_known, std::vector<float> logits) {
  TokenHistory history(sampling, num_prompt);
  history.extend(std::span(tokens).first(std::min<size_t>(num_known, 3)));
  for (size_t i = 3; i <= num_known; ++i) history.extend(std::span(tokens).first(i));
  history.penalise(tokens, logits.data());
  return logits;
}

std::vector<float> penalise(const SamplingParams& sampling, const Tokens& tokens) {
  return penalise(sampling, tokens, 0, tokens.size(), std::vector<float>(kVocab));
}

// Every earlier place, one after the other.
std::vector<float> plain_dry(const SamplingParams& sampling, const Tokens& tokens,
                             std::vector<float> logits) {
  const DryParams& dry = sampling.dry;
  const std::set<int32_t> breakers(dry.breakers->begin(), dry.breakers->end());
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t first = dry.window < 0 ? 0 : std::max<int64_t>(0, size - dry.window);
  const auto at = [&](int64_t i) { return tokens[static_cast<size_t>(i)]; };
  std::map<int32_t, int32_t> longest;  // of each next token
  int num_places = 0;
  for (int64_t last = size - 2; last >= first && num_places < kMaxDryPlaces; --last) {
    int32_t length = 0;
    while (length < kMaxDryLength && last - length >= first &&
           at(last - length) == at(size - 1 - length) && !breakers.contains(at(last - length))) {
      ++length;
    }
    if (length < dry.allowed_length) continue;
    ++num_places;
    int32_t& best = longest[at(last + 1)];
    best = std::max(best, length);
  }
  for (const auto& [id, length] : longest) {
    if (breakers.contains(id)) continue;
    const double loss = std::min(
        1e30, double{dry.multiplier} * std::pow(double{dry.base}, length - dry.allowed_length));
    float& logit = logits[static_cast<size_t>(id)];
    logit = std::clamp(logit - static_cast<float>(loss), -1e30f, 1e30f);
  }
  return logits;
}

std::vector<float> plain_penalties(const SamplingParams& sampling, const Tokens& tokens,
                                   int32_t num_prompt, std::vector<float> logits) {
  for (int32_t id = 0; id < kVocab; ++id) {
    const auto output = std::count(tokens.begin() + num_prompt, tokens.end(), id);
    const auto all = std::count(tokens.begin(), tokens.end(), id);
    float& logit = logits[static_cast<size_t>(id)];
    if (all > 0 && logit > 0) logit /= sampling.repetition_penalty;
    if (all > 0 && logit < 0) logit *= sampling.repetition_penalty;
    if (output > 0) {
      logit -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(output);
    }
  }
  return logits;
}

TEST(Dry, TheTokenThatWouldGoOnWithARepetitionLoses) {
  // "1 2 3" stood before 4; "2 3" also before 5.
  const Tokens tokens = {1, 2, 3, 4, 2, 3, 5, 9, 1, 2, 3};
  std::vector<float> expected(kVocab);
  expected[4] = -0.5f * 2;  // a repetition of 3, 2 are allowed
  expected[5] = -0.5f;
  EXPECT_EQ(penalise(dry_params(0.5f, 2, 2), tokens), expected);
  expected[4] = -0.5f;
  expected[5] = 0;
  EXPECT_EQ(penalise(dry_params(0.5f, 2, 3), tokens), expected);
  EXPECT_EQ(penalise(dry_params(0.5f, 2, 4), tokens), std::vector<float>(kVocab));
}

TEST(Dry, NoRepetitionGoesAcrossABreaker) {
  const Tokens tokens = {1, 2, 3, 4, 9, 1, 2, 3};
  EXPECT_EQ(penalise(dry_params(1, 2, 2, {2}), tokens), std::vector<float>(kVocab));
  EXPECT_EQ(penalise(dry_params(1, 2, 2, {3}), tokens), std::vector<float>(kVocab));
  std::vector<float> expected(kVocab);
  expected[4] = -1;
  EXPECT_EQ(penalise(dry_params(1, 2, 2, {1}), tokens), expected);
  EXPECT_EQ(penalise(dry_params(1, 2, 2, {4}), tokens), std::vector<float>(kVocab))
      << "what breaks a repetition may always come";
}

TEST(Dry, TheWindowEndsWhatIsLookedAt) {
  SamplingParams sampling = dry_params(1, 2, 2);
  const Tokens tokens = {1, 2, 3, 9, 1, 2};
  std::vector<float> expected(kVocab);
  expected[3] = -1;
  sampling.dry.window = 6;
  EXPECT_EQ(penalise(sampling, tokens), expected);
  sampling.dry.window = 5;
  EXPECT_EQ(penalise(sampling, tokens), std::vector<float>(kVocab));
}

TEST(Dry, LongRepetitionsLoseNoMoreThanALogitCan) {
  const Tokens tokens(2000, 7);
  const std::vector<float> logits = penalise(dry_params(100, 100, 1), tokens);
  EXPECT_EQ(logits[7], -1e30f);
  EXPECT_EQ(logits[6], 0);
}

// However much of the text was known before, and however it was told: the same bits.
TEST(TokenHistory, EqualsAPlainWalkOverTheText) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const int32_t num_ids = 1 + static_cast<int32_t>(random() % 4);  // few: much is repeated
    Tokens tokens(1 + random() % 120);
    for (int32_t& id : tokens) id = static_cast<int32_t>(random() % num_ids) * 2;
    const size_t copied = random() % tokens.size();
    std::copy_n(tokens.begin(), copied / 2, tokens.end() - static_cast<ptrdiff_t>(copied / 2));
    const auto num_prompt = static_cast<int32_t>(random() % (tokens.size() + 1));
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = static_cast<float>(random() % 100) - 50.5f;
    SamplingParams sampling = dry_params(0.8f, 1.75f, 1 + static_cast<int32_t>(random() % 5),
                                         random() % 2 == 0 ? Tokens{} : Tokens{0, 4});
    if (random() % 3 == 0) sampling.dry.window = static_cast<int32_t>(random() % 60);
    const std::vector<float> dry = plain_dry(sampling, tokens, logits);
    SamplingParams penalties;
    penalties.repetition_penalty = random() % 2 == 0 ? 1.0f : 1.3f;
    penalties.presence_penalty = 0.7f;
    penalties.frequency_penalty = 0.1f;
    const std::vector<float> penalised = plain_penalties(penalties, tokens, num_prompt, logits);
    for (const size_t num_later : {size_t{0}, size_t{1}, size_t{7}, tokens.size()}) {
      const size_t num_known = tokens.size() - std::min(num_later, tokens.size());
      EXPECT_EQ(penalise(sampling, tokens, num_prompt, num_known, logits), dry) << i;
      EXPECT_EQ(penalise(penalties, tokens, num_prompt, num_known, logits), penalised) << i;
    }
  }
}

TEST(TokenHistory, IsNeededOnlyWhereSomethingIsAsked) {
  EXPECT_FALSE(TokenHistory::is_needed({}));
  SamplingParams sampling;
  sampling.dry.base = 3;
  EXPECT_FALSE(TokenHistory::is_needed(sampling));
  sampling.dry.multiplier = 0.1f;
  EXPECT_TRUE(TokenHistory::is_needed(sampling));
  sampling = {};
  sampling.repetition_penalty = 1.1f;
  EXPECT_TRUE(TokenHistory::is_needed(sampling));
}

TEST(KeyIndex, KeepsWhatItWasTold) {
  KeyIndex index;
  EXPECT_EQ(index.find(5), -1);
  for (int32_t i = 0; i < 5000; ++i) {
    int32_t& value = index.at(static_cast<uint64_t>(i) << 40);
    EXPECT_EQ(value, -1);
    value = i;
  }
  for (int32_t i = 0; i < 5000; ++i) EXPECT_EQ(index.find(static_cast<uint64_t>(i) << 40), i);
  EXPECT_EQ(index.find(1), -1);
}

// After how many tokens the loop is seen; 0: never.
size_t seen_after(const RepetitionStop& stop, const Tokens& output) {
  LoopWatch watch(stop);
  for (size_t i = 1; i <= output.size(); ++i) {
    if (watch.sees_loop(std::span(output).first(i))) return i;
  }
  return 0;
}

TEST(LoopWatch, SeesABlockThatCameOftenEnoughInARow) {
  EXPECT_EQ(seen_after({1, 8, 3}, {4, 1, 2, 1, 2, 1, 2, 1, 2}), 7u);
  EXPECT_EQ(seen_after({1, 8, 4}, {4, 1, 2, 1, 2, 1, 2, 1, 2}), 9u);
  EXPECT_EQ(seen_after({1, 8, 5}, {4, 1, 2, 1, 2, 1, 2, 1, 2}), 0u);
  EXPECT_EQ(seen_after({1, 8, 2}, {1, 2, 3, 1, 2, 4}), 0u) << "two words are no block";
  EXPECT_EQ(seen_after({1, 8, 3}, {5, 5, 5}), 3u);
}

TEST(LoopWatch, LooksAtBlocksOfTheSizesAskedFor) {
  EXPECT_EQ(seen_after({2, 8, 3}, {5, 5, 5, 5, 5, 5}), 6u) << "a block of two equal tokens";
  EXPECT_EQ(seen_after({1, 1, 2}, {1, 2, 1, 2, 1, 2}), 0u);
  EXPECT_EQ(seen_after({1, 2, 2}, {1, 2, 1, 2, 1, 2}), 4u);
  EXPECT_EQ(seen_after({}, Tokens(100, 1)), 0u) << "off";
}

TEST(LoopWatch, AgreesWithAPlainComparison) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    Tokens output(60);
    for (int32_t& id : output) id = static_cast<int32_t>(random() % 2);
    const RepetitionStop stop{1 + static_cast<int32_t>(random() % 3), 6,
                              2 + static_cast<int32_t>(random() % 4)};
    size_t expected = 0;
    for (size_t size = 1; size <= output.size() && expected == 0; ++size) {
      for (auto block = static_cast<size_t>(stop.min_block); block <= 6; ++block) {
        const size_t length = block * static_cast<size_t>(stop.min_count);
        if (length > size) continue;
        const auto begin = output.begin() + static_cast<ptrdiff_t>(size - length);
        const auto end = output.begin() + static_cast<ptrdiff_t>(size - block);
        if (std::equal(begin, end, begin + static_cast<ptrdiff_t>(block))) expected = size;
      }
    }
    EXPECT_EQ(seen_after(stop, output), expected) << i;
  }
}

}  // namespace token_history_test
}  // namespace headrace
