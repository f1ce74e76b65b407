#include "text/tokenizer.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Tokenizer, CorruptJsonIsAnError) {
  for (const char* json : {"", "{", "[]", "{\"model\":{}}"}) {
    const auto tokenizer = Tokenizer::from_json(json);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace headrace
