#include "server/api/answer_id.h"

#include <gtest/gtest.h>

namespace headrace {
namespace answer_id_test {

TEST(AnswerId, IsThePrefixAndDigitsOfItsOwn) {
  const std::string id = fresh_answer_id("msg_");
  EXPECT_TRUE(id.starts_with("msg_"));
  EXPECT_EQ(id.size(), 4u + 24u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 4), std::string::npos) << id;
  EXPECT_NE(fresh_answer_id("msg_"), id);
}

}  // namespace answer_id_test
}  // namespace headrace
