#include "engine/tenant_book.h"

#include <gtest/gtest.h>

namespace headrace {
namespace tenant_book_test {

TEST(TenantBook, EachReaderLearnsOfEachChangeOnce) {
  TenantBook book;
  uint64_t early = 0, late = 0;
  EXPECT_FALSE(book.newer_than(&early));
  book.set({{.name = "a"}});
  ASSERT_TRUE(book.newer_than(&early));
  EXPECT_FALSE(book.newer_than(&early));
  book.set({{.name = "b"}, {.name = "c"}});
  for (uint64_t* reader : {&early, &late}) {
    const auto found = book.newer_than(reader);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->front().name, "b");
    EXPECT_FALSE(book.newer_than(reader));
  }
}

}  // namespace tenant_book_test
}  // namespace headrace
