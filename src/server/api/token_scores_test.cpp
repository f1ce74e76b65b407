// Log-probs of tokens as every dialect writes them.
#include "server/api/token_scores.h"

#include <gtest/gtest.h>

#include <limits>

#include "server/api/test_support.h"

namespace headrace {
namespace token_scores_test {

constexpr float kZeroChance = -std::numeric_limits<float>::infinity();

// What a writer of this form adds to the first list.
std::string written_score(const ScoredToken& token, int num_top, ScoreForm form = {}) {
  const test::ByteTokenizer tokenizer;
  ScoreText scores;
  ScoreWriter(tokenizer, num_top, form).add(token, scores);
  EXPECT_EQ(scores.num_tokens, 1u);
  return scores.lists[0].str();
}

TEST(TokenScores, ATokenHasItsBytesAndThoseThatWereAskedFor) {
  const ScoredToken token{'A', TokenLogprobs{-0.5f, 1, {{'A', -0.5f}, {'B', -2}}}, 0};
  EXPECT_EQ(written_score(token, 0),
            R"({"token":"A","logprob":-0.5,"bytes":[65],"top_logprobs":[]})");
  const std::string one = R"({"token":"A","logprob":-0.5,"bytes":[65],"top_logprobs":[)"
                          R"({"token":"A","logprob":-0.5,"bytes":[65]}]})";
  EXPECT_EQ(written_score(token, 1), one);
  EXPECT_EQ(written_score(token, 5), written_score(token, 2));  // as many as there are
  EXPECT_EQ(written_score(token, -1), written_score(token, 0));
}

TEST(TokenScores, FormsDiffer) {
  const ScoredToken token{'A', TokenLogprobs{-1, 1, {{'B', -2}}}, 0};
  EXPECT_EQ(written_score(token, 1, {.with_id = true}),
            R"({"id":65,"token":"A","bytes":[65],"logprob":-1,"top_logprobs":[)"
            R"({"id":66,"token":"B","bytes":[66],"logprob":-2}]})");
  EXPECT_EQ(written_score(token, 0, {.omits_no_others = true}),
            R"({"token":"A","logprob":-1,"bytes":[65]})");
  EXPECT_EQ(written_score(token, 1, {.omits_no_others = true}), written_score(token, 1));
}

TEST(TokenScores, WhatIsImpossibleHasANumber) {
  EXPECT_EQ(written_score({0xC3, TokenLogprobs{kZeroChance, 9, {}}, 0}, 0),
            "{\"token\":\"\uFFFD\",\"logprob\":-9999,\"bytes\":[195],\"top_logprobs\":[]}");
  EXPECT_EQ(finite_logprob(-3.5f), -3.5f);
}

TEST(TokenScores, ATokenWithoutLogProbsIsCounted) {
  EXPECT_EQ(written_score({'A', std::nullopt, 0}, 3), "");
}

TEST(TokenScores, AListIsAMemberAlsoWhereItIsEmpty) {
  JsonWriter json, list;
  json.open_object();
  write_score_list(json, "none", list);
  list.integer(1).integer(2);
  write_score_list(json, "some", list);
  json.close_object();
  EXPECT_EQ(json.str(), R"({"none":[],"some":[1,2]})");
}

}  // namespace token_scores_test
}  // namespace headrace
