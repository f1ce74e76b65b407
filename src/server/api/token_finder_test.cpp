#include "server/api/token_finder.h"

#include <gtest/gtest.h>

#include "server/api/test_support.h"

namespace headrace {
namespace token_finder_test {

TEST(TokenFinder, FindsTheTokensThatHoldAText) {
  const TextBundle bundle = test::make_bundle();
  TokenFinder finder;
  const Tokenizer& tokenizer = *bundle.tokenizer;
  for (const std::string text : {"a", ":", "<", "s>", "ab", "no token"}) {
    std::vector<int32_t> expected;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.token_bytes(id, false).find(text) != std::string::npos) expected.push_back(id);
    }
    EXPECT_EQ(finder.find(tokenizer, text), expected) << text;
  }
  EXPECT_EQ(finder.find(tokenizer, "a"), (std::vector<int32_t>{'a'}));
  EXPECT_TRUE(finder.find(tokenizer, "ab").empty()) << "no text goes across tokens";
}

}  // namespace token_finder_test
}  // namespace headrace
