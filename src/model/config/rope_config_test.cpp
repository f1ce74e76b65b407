#include "model/config/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace rope_config_test {

RopeConfig rope_of(RopeType type, double factor = 4) {
  RopeConfig rope;
  rope.type = type;
  rope.factor = factor;
  rope.original_max_position_embeddings = 64;
  return rope;
}

TEST(RopeConfig, TypesHaveTheNamesThatFilesGiveThem) {
  struct Case {
    std::string_view name;
    RopeType type;
  };
  constexpr Case kCases[] = {
      {"none", RopeType::kDefault},      {"default", RopeType::kDefault},
      {"linear", RopeType::kLinear},     {"dynamic", RopeType::kDynamic},
      {"llama3", RopeType::kLlama3},     {"yarn", RopeType::kYarn},
      {"longrope", RopeType::kLongrope}, {"su", RopeType::kLongrope},
  };
  for (const Case& c : kCases) {
    const auto type = rope_type_named(c.name);
    ASSERT_TRUE(type.ok()) << c.name;
    EXPECT_EQ(*type, c.type) << c.name;
  }
}

TEST(RopeConfig, UnknownTypesAreRefusedWithTheKnownOnes) {
  for (const std::string_view name : {"", "Linear", "yarn2", "mrope"}) {
    const auto type = rope_type_named(name);
    ASSERT_FALSE(type.ok()) << name;
    EXPECT_EQ(type.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(type.error().message, "rope type '" + std::string(name) +
                                        "' is unknown; known are default, linear, dynamic, llama3, "
                                        "yarn, longrope and proportional");
  }
}

TEST(RopeConfig, YarnGrowsWithTheLogarithmOfItsFactor) {
  const double grown = 0.1 * std::log(4.0) + 1;
  const RopeConfig yarn = rope_of(RopeType::kYarn);
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {}), grown);
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {.attention_factor = 1.5}), 1.5);
  // mscale counts only together with mscale_all_dim.
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {.mscale = 0.7}), grown);
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {.mscale_all_dim = 0.7}), grown);
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {.mscale = 1, .mscale_all_dim = 0.5}),
                   grown / (0.05 * std::log(4.0) + 1));
  EXPECT_DOUBLE_EQ(rope_attention_factor(yarn, {.mscale = 1, .mscale_all_dim = 1}), 1);
}

TEST(RopeConfig, LongropeGrowsRelativeToItsOriginalLength) {
  const RopeConfig rope = rope_of(RopeType::kLongrope);
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope, {}), std::sqrt(1 + std::log(4.0) / std::log(64.0)));
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope, {.attention_factor = 0.5}), 0.5);
}

TEST(RopeConfig, NothingGrowsWithoutAReason) {
  for (const RopeType type :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic, RopeType::kLlama3}) {
    EXPECT_DOUBLE_EQ(rope_attention_factor(rope_of(type), {.attention_factor = 3}), 1);
  }
  for (const RopeType type : {RopeType::kYarn, RopeType::kLongrope}) {
    EXPECT_DOUBLE_EQ(rope_attention_factor(rope_of(type, 1), {}), 1);
    EXPECT_DOUBLE_EQ(rope_attention_factor(rope_of(type, 0.5), {}), 1);
  }
}

}  // namespace rope_config_test
}  // namespace headrace
