#include "checkpoint/split_name.h"

#include <gtest/gtest.h>

namespace headrace {
namespace split_name_test {

TEST(SplitName, PartsAreTakenApartAndNamedAgain) {
  const auto split = parse_split_name("Q8/m-00002-of-00003.gguf");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->prefix, "Q8/m");
  EXPECT_EQ(split->part, 1);
  EXPECT_EQ(split->num_parts, 3);
  EXPECT_EQ(split->of_part(0), "Q8/m-00001-of-00003.gguf");
  EXPECT_EQ(split->of_part(2), "Q8/m-00003-of-00003.gguf");
  EXPECT_EQ(parse_split_name("m-00001-of-99999.gguf")->num_parts, 99'999);
  EXPECT_EQ(parse_split_name("m-00001-of-00001.gguf")->num_parts, 1);
}

TEST(SplitName, OtherNamesAreNot) {
  for (const char* name :
       {"", "m.gguf", "-00001-of-00003.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf",
        "m-1-of-3.gguf", "m-0001a-of-00003.gguf", "m--0001-of-00003.gguf", "m-00001-of-00000.gguf",
        "m-00001-of-00003.safetensors", "m-00001-of-00003.gguf.part", "m-00001_of-00003.gguf"}) {
    EXPECT_FALSE(parse_split_name(name).has_value()) << name;
  }
}

}  // namespace split_name_test
}  // namespace headrace
