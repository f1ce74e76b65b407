#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace headrace {
namespace api_keys_test {

// Of "abc": FIPS 180-2, appendix B.1.
constexpr const char* kDigestOfAbc =
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string error_of(std::string_view text) {
  const auto keys = parse_api_keys(text, "keys.txt");
  return keys.ok() ? "" : keys.error().message;
}

TEST(ApiKeys, AreLinesOfAFile) {
  const auto keys = parse_api_keys(
      fmt::format("# mine\n\n one \r\nann\tinference,admin  {}\ntwo", kDigestOfAbc), "keys.txt");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 3u);
  EXPECT_EQ((*keys)[0].name, "");
  EXPECT_EQ((*keys)[0].scopes, kInferenceScope | kMetricsScope);
  EXPECT_TRUE(same_digest((*keys)[0].digest, digest_of_key("one")));
  EXPECT_EQ((*keys)[1].name, "ann");
  EXPECT_EQ((*keys)[1].scopes, kInferenceScope | kAdminScope);
  EXPECT_TRUE(same_digest((*keys)[1].digest, digest_of_key("abc")));
  EXPECT_FALSE(same_digest((*keys)[1].digest, digest_of_key("abd")));
}

TEST(ApiKeys, WhatIsNoKeyIsToldByItsLineAndNotRepeated) {
  EXPECT_EQ(error_of("# none\n"), "keys.txt holds no API key");
  const std::string digest = kDigestOfAbc;
  for (const std::string& line :
       {std::string("secret words"), "ann inference " + digest.substr(1),
        "ann inference " + digest.substr(0, digest.size() - 1), "ann root " + digest,
        "ann inference, " + digest + " more", "a/b inference " + digest, digest,
        "ann inference sha256:" + std::string(64, 'G'), std::string(513, 'k'),
        std::string(65, 'n') + " inference " + digest, std::string("\x7Fkey")}) {
    const std::string error = error_of("good\n" + line + "\n");
    EXPECT_TRUE(error.starts_with("keys.txt holds in line 2 what is no API key")) << line << error;
    EXPECT_EQ(error.find("secret"), std::string::npos);
    EXPECT_EQ(error.find("ba7816"), std::string::npos);
  }
  EXPECT_EQ(error_of(std::string(512, 'k')), "");
}

TEST(ApiKeys, AMadeKeyIsLetInByItsLine) {
  const auto made = make_api_key("ann@box", kMetricsScope | kInferenceScope);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->key.size(), 3u + 64u);
  EXPECT_EQ(made->line.find(made->key.substr(3)), std::string::npos);
  EXPECT_TRUE(made->line.starts_with("ann@box inference,metrics sha256:")) << made->line;
  const auto keys = parse_api_keys(made->line, "f");
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(same_digest(keys->front().digest, digest_of_key(made->key)));
  EXPECT_NE(make_api_key("ann@box", kAdminScope)->key, made->key);
  EXPECT_EQ(make_api_key("a b", kAdminScope).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_api_key("", kAdminScope).error().code, ErrorCode::kInvalidArgument);
}

struct Moments {
  double count = 0, mean = 0, squares = 0;

  void add(double value) {
    const double difference = value - mean;
    mean += difference / ++count;
    squares += difference * (value - mean);
  }
  double variance_of_mean() const { return squares / (count - 1) / count; }
};

// Welch's t of the times of two kinds of guesses, without the slow tenth, which is of the machine.
double welch_t(std::vector<std::pair<double, bool>> times) {
  std::sort(times.begin(), times.end());
  // All of the slowest that count, or none: ties in order of their kind would make the difference.
  const double slow = times[times.size() * 9 / 10].first;
  std::erase_if(times, [slow](const auto& each) { return each.first >= slow; });
  Moments kinds[2];
  for (const auto& [time, kind] : times) kinds[kind ? 1 : 0].add(time);
  return (kinds[0].mean - kinds[1].mean) /
         std::sqrt(kinds[0].variance_of_mean() + kinds[1].variance_of_mean());
}

// Welch's t of `guesses` guesses of a key, of which half are right but for their last letter.
double t_of_guesses(int guesses, uint32_t seed) {
  const std::string key = "hr-" + std::string(64, 'a');
  const std::string far = "xx-" + std::string(64, 'b'), near = key.substr(0, 66) + "b";
  const KeyDigest secret = digest_of_key(key);
  std::mt19937 random(seed);
  std::vector<std::pair<double, bool>> times;
  std::string guess = far;
  for (int i = 0; i < guesses; ++i) {
    const bool is_near = random() % 2 == 0;
    // At one address and of both texts: neither caches nor branches know kinds.
    const char of_near = static_cast<char>(is_near ? -1 : 0);
    for (size_t c = 0; c < guess.size(); ++c) {
      guess[c] = static_cast<char>((near[c] & of_near) | (far[c] & ~of_near));
    }
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(same_digest(digest_of_key(guess), secret));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    times.emplace_back(took.count(), is_near);
  }
  return std::abs(welch_t(std::move(times)));
}

// How much of a key is right cannot be timed. HEADRACE_FULL=1: a million guesses. What a guess
// tells is told by each of three tries, what else the machine does is not.
TEST(ApiKeys, TheTimeOfAGuessDoesNotTellHowMuchOfItIsRight) {
  const char* full = std::getenv("HEADRACE_FULL");
  const bool is_full = full != nullptr && std::string_view(full) == "1";
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t attempt = 0; attempt < 3; ++attempt) {
    least = std::min(least, t_of_guesses(is_full ? 1'000'000 : 20'000, attempt));
  }
  EXPECT_LT(least, is_full ? 4.5 : 10);
}

TEST(ApiKeys, ScopesHaveNames) {
  EXPECT_EQ(scope_names(kAnyScope), "inference,admin,metrics");
  EXPECT_EQ(*parse_scopes("metrics, inference"), kInferenceScope | kMetricsScope);
  EXPECT_EQ(parse_scopes("inference,root").error().message,
            "the scopes are 'inference,root', but they must be some of inference, admin and "
            "metrics, with commas between");
  EXPECT_FALSE(parse_scopes("").ok());
}

}  // namespace api_keys_test
}  // namespace headrace
