#include "server/api/infill.h"

#include <gtest/gtest.h>

#include <map>

#include "server/api/test_support.h"

namespace headrace {
namespace infill_test {

// Bytes, and further tokens by name.
class MarkedTokenizer : public test::ByteTokenizer {
 public:
  explicit MarkedTokenizer(std::map<std::string, int32_t, std::less<>> marks)
      : marks_(std::move(marks)) {}
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const auto found = marks_.find(token);
    if (found != marks_.end()) return found->second;
    return ByteTokenizer::token_to_id(token);
  }
  bool is_special(int32_t id) const override { return id >= 200; }

 private:
  const std::map<std::string, int32_t, std::less<>> marks_;
};

TEST(Infill, MarksAreFoundByTheirSpelling) {
  const MarkedTokenizer qwen({{"<|fim_prefix|>", 201},
                              {"<|fim_suffix|>", 202},
                              {"<|fim_middle|>", 203},
                              {"<|fim_pad|>", 204},
                              {"<|repo_name|>", 5}});  // not special: a word
  const auto marks = find_infill_marks(qwen, Metadata());
  ASSERT_TRUE(marks.has_value());
  EXPECT_EQ(marks->before, 201);
  EXPECT_EQ(marks->after, 202);
  EXPECT_EQ(marks->middle, 203);
  EXPECT_EQ(marks->ends, (std::vector<int32_t>{201, 202, 203, 204}));
  const auto codestral =
      find_infill_marks(MarkedTokenizer({{"[PREFIX]", 201}, {"[SUFFIX]", 202}}), Metadata());
  ASSERT_TRUE(codestral.has_value());
  EXPECT_TRUE(codestral->after_first);
}

TEST(Infill, OrdinaryTokenizersHaveNone) {
  EXPECT_FALSE(find_infill_marks(test::ByteTokenizer(), Metadata()).has_value());
  EXPECT_FALSE(find_infill_marks(MarkedTokenizer({{"<|fim_prefix|>", 201}}), Metadata()));
  EXPECT_FALSE(find_infill_marks(
      MarkedTokenizer({{"<|fim_prefix|>", 1}, {"<|fim_suffix|>", 2}, {"<|fim_middle|>", 3}}),
      Metadata()));
}

TEST(Infill, LimitsHoldForEachText) {
  const InfillMarks marks{201, 202, 203, false, {}};
  EncodeLimits limits;
  limits.max_tokens = 3;
  EXPECT_TRUE(encode_infill(marks, "abc", "abc", test::ByteTokenizer(), limits).ok());
  EXPECT_FALSE(encode_infill(marks, "abc", "abcd", test::ByteTokenizer(), limits).ok());
}

}  // namespace infill_test
}  // namespace headrace
