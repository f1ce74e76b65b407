#include "checkpoint/metadata.h"

#include <gtest/gtest.h>

#include "checkpoint/gguf.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace metadata_test {

using testing::GgufBuilder;

// Every width of integer and kind of scalar, read back through the getters.
TEST(Metadata, ReadsEveryScalarType) {
  GgufBuilder builder;
  builder.key("u8", testing::kU8, uint8_t{200}).key("i8", testing::kI8, int8_t{-100});
  builder.key("u16", testing::kU16, uint16_t{60000}).key("i16", testing::kI16, int16_t{-30000});
  builder.key("u32", testing::kU32, uint32_t{4000000000}).key("i32", testing::kI32, int32_t{-7});
  builder.key("u64", testing::kU64, UINT64_MAX).key("i64", testing::kI64, INT64_MIN);
  builder.key("f32", testing::kF32, 1e-5f).key("f64", testing::kF64, 2.5);
  builder.key("bool", testing::kBool, uint8_t{2}).text_key("text", "hello");
  const auto bytes = builder.build();
  const auto checkpoint = parse_gguf(bytes, "x");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Metadata& metadata = (*checkpoint)->metadata();
  EXPECT_EQ(metadata.integer("u8"), 200);
  EXPECT_EQ(metadata.integer("i8"), -100);
  EXPECT_EQ(metadata.integer("u16"), 60000);
  EXPECT_EQ(metadata.integer("i16"), -30000);
  EXPECT_EQ(metadata.integer("u32"), 4000000000);
  EXPECT_EQ(metadata.integer("i32"), -7);
  EXPECT_EQ(metadata.integer("u64"), std::nullopt);  // does not fit
  EXPECT_EQ(metadata.number("u64"), 0x1p64);
  EXPECT_EQ(metadata.integer("i64"), INT64_MIN);
  EXPECT_EQ(metadata.number("f32"), static_cast<double>(1e-5f));
  EXPECT_EQ(metadata.integer("f32"), std::nullopt);  // not whole
  EXPECT_EQ(metadata.number("f64"), 2.5);
  EXPECT_EQ(metadata.boolean("bool"), true);
  EXPECT_EQ(metadata.integer("bool"), 1);
  EXPECT_EQ(metadata.boolean("i32"), true);
  EXPECT_EQ(metadata.boolean("f64"), std::nullopt);
  EXPECT_EQ(metadata.text("text"), "hello");
  EXPECT_EQ(metadata.text("u8"), std::nullopt);
  EXPECT_EQ(metadata.integer("text"), std::nullopt);
  EXPECT_EQ(metadata.number("text"), std::nullopt);
  EXPECT_FALSE(metadata.has("absent"));
  EXPECT_EQ(metadata.integer("absent"), std::nullopt);
  EXPECT_EQ(metadata.entries().size(), 12u);
}

TEST(Metadata, ReadsScalarsAndArraysInterchangeably) {
  GgufBuilder builder;
  builder.array_key<uint32_t>("one", testing::kU32, {5}).key("scalar", testing::kU32, uint32_t{6});
  builder.array_key<int16_t>("many", testing::kI16, {1, -1});
  builder.array_key<uint8_t>("flags", testing::kBool, {1, 0, 3});
  builder.array_key<float>("floats", testing::kF32, {0.5f, 2.0f});
  builder.array_key<uint64_t>("wide", testing::kU64, {1, UINT64_MAX});
  builder.texts_key("text", {"only"}).texts_key("none", {});
  const auto bytes = builder.build();
  const auto checkpoint = parse_gguf(bytes, "x");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Metadata& metadata = (*checkpoint)->metadata();
  EXPECT_EQ(metadata.integer("one"), 5);
  EXPECT_EQ(metadata.number("one"), 5.0);
  EXPECT_EQ(metadata.boolean("one"), true);
  EXPECT_EQ(metadata.integers("scalar"), std::vector<int64_t>{6});
  EXPECT_EQ(metadata.numbers("scalar"), std::vector<double>{6.0});
  EXPECT_EQ(metadata.integer("many"), std::nullopt);
  EXPECT_EQ(metadata.integers("many"), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(metadata.integers("flags"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(metadata.numbers("floats"), (std::vector<double>{0.5, 2.0}));
  EXPECT_EQ(metadata.integers("floats"), std::nullopt);
  EXPECT_EQ(metadata.integers("wide"), std::nullopt);
  EXPECT_EQ(metadata.numbers("wide"), (std::vector<double>{1.0, 0x1p64}));
  EXPECT_EQ(metadata.text("text"), "only");
  EXPECT_EQ(metadata.texts("scalar"), nullptr);
  ASSERT_NE(metadata.texts("none"), nullptr);
  EXPECT_TRUE(metadata.texts("none")->empty());
  EXPECT_EQ(metadata.integers("text"), std::nullopt);
  EXPECT_EQ(metadata.numbers("text"), std::nullopt);
}

TEST(Metadata, WholeFloatsOutsideInt64AreNoIntegers) {
  Metadata metadata;
  EXPECT_TRUE(metadata.insert("a", {0x1p63}));
  EXPECT_TRUE(metadata.insert("b", {-0x1p63}));
  EXPECT_TRUE(metadata.insert("c", {4096.0}));
  EXPECT_FALSE(metadata.insert("c", {1.0}));
  EXPECT_EQ(metadata.integer("a"), std::nullopt);
  EXPECT_EQ(metadata.integer("b"), INT64_MIN);
  EXPECT_EQ(metadata.integer("c"), 4096);
}

}  // namespace metadata_test
}  // namespace headrace
