#include "server/api/generation.h"

#include <gtest/gtest.h>

namespace headrace {
namespace generation_test {

using Kind = OutputPart::Kind;

OutputPart part_of(Kind kind, std::string text, int call_idx = 0) {
  return {kind, std::move(text), call_idx, {}, {}};
}

TEST(ChoiceDelta, NeighboursOfOneKindAreOnePart) {
  ChoiceDelta delta;
  delta.add(part_of(Kind::kReasoning, "a"));
  delta.add(part_of(Kind::kText, "b"));
  delta.add(part_of(Kind::kText, "c"));
  delta.add({Kind::kToolCall, "{", 0, "id-0", "f"});
  delta.add(part_of(Kind::kToolCall, "}"));
  delta.add({Kind::kToolCall, "[]", 1, "id-1", "g"});
  delta.add(part_of(Kind::kText, "d"));
  ASSERT_EQ(delta.parts.size(), 5u);
  EXPECT_EQ(delta.parts[1].text, "bc");
  EXPECT_EQ(delta.parts[2].text, "{}");
  EXPECT_EQ(delta.parts[2].call_name, "f");
  EXPECT_EQ(delta.parts[3].call_id, "id-1");
  EXPECT_EQ(delta.text_of(Kind::kText), "bcd");
  EXPECT_EQ(delta.text_of(Kind::kReasoning), "a");
  EXPECT_EQ(delta.text_of(Kind::kRefusal), "");
  EXPECT_EQ(delta.bytes(), 8u + 2 * (4u + 1u));
}

GenerationRequest request_of(int32_t max_tokens, int32_t min_tokens) {
  GenerationRequest request;
  request.prompts = {{{1, 2, 3}, {}}, {{4}, {}}};
  request.num_choices = 2;
  request.prototype.max_tokens = max_tokens;
  request.prototype.min_tokens = min_tokens;
  request.prototype.sampling.seed = 7;
  return request;
}

TEST(GenerationRequest, EachChoiceIsARequestOfItsPrompt) {
  const GenerationRequest request = request_of(5, 0);
  ASSERT_EQ(request.total_choices(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Request made = request.engine_request(i, 100);
    EXPECT_EQ(made.prompt_ids, request.prompts[i / 2].ids);
    EXPECT_EQ(made.sampling.choice_idx, i % 2);
    EXPECT_EQ(made.sampling.seed, 7u);
    EXPECT_EQ(made.max_tokens, 5);
  }
}

TEST(GenerationRequest, LengthsFitTheContext) {
  const GenerationRequest request = request_of(50, 20);
  const Request first = request.engine_request(0, 10);
  EXPECT_EQ(first.max_tokens, 7);
  EXPECT_EQ(first.min_tokens, 7);
  const Request last = request.engine_request(3, 10);
  EXPECT_EQ(last.max_tokens, 9);
}

TEST(GenerationRequest, OnlyAnEchoWithoutScoresNeedsNoWork) {
  GenerationRequest request = request_of(0, 0);
  EXPECT_TRUE(request.only_echoes());
  request.prototype.num_prompt_logprobs = 0;
  EXPECT_FALSE(request.only_echoes());
  EXPECT_FALSE(request_of(1, 0).only_echoes());
}

TEST(ScoreText, CountsWhatItsListsHold) {
  ScoreText scores;
  EXPECT_EQ(scores.bytes(), 0u);
  scores.lists[0].integer(12);
  scores.lists[3].text("a");
  EXPECT_EQ(scores.bytes(), 2u + 3u);
  EXPECT_EQ(score_bytes(0), 160u);
  EXPECT_EQ(score_bytes(20), 80u * 22);
}

}  // namespace generation_test
}  // namespace headrace
