#include "checkpoint/gguf_values.h"

#include <gtest/gtest.h>

#include "checkpoint/testing/file_builders.h"

namespace headrace {
namespace gguf_values_test {

using testing::ByteWriter;

template <typename T, typename Stored>
T scalar(uint32_t type_id, Stored value) {
  ByteWriter writer;
  writer.put(value);
  return std::get<T>(find_gguf_value_type(type_id)->read_scalar(writer.bytes().data()).value);
}

template <typename T, typename Stored>
std::vector<T> array(uint32_t type_id, std::initializer_list<Stored> values) {
  ByteWriter writer;
  for (const Stored value : values) writer.put(value);
  const auto read = find_gguf_value_type(type_id)->read_array(writer.bytes().data(), values.size());
  const auto* elements = std::get_if<std::vector<T>>(&read);
  EXPECT_NE(elements, nullptr) << "type " << type_id << " gives another kind of array";
  return elements == nullptr ? std::vector<T>{} : *elements;
}

TEST(GgufValues, TypesHaveTheSizesOfTheFormat) {
  struct Case {
    uint32_t id;
    std::string_view name;
    uint32_t num_bytes;
  };
  constexpr Case kCases[] = {
      {0, "u8", 1},   {1, "i8", 1},   {2, "u16", 2},  {3, "i16", 2},    {4, "u32", 4},
      {5, "i32", 4},  {6, "f32", 4},  {7, "bool", 1}, {8, "string", 0}, {9, "array", 0},
      {10, "u64", 8}, {11, "i64", 8}, {12, "f64", 8},
  };
  for (const Case& c : kCases) {
    const GgufValueType* type = find_gguf_value_type(c.id);
    ASSERT_NE(type, nullptr) << c.name;
    EXPECT_EQ(type->name, c.name);
    EXPECT_EQ(type->num_bytes, c.num_bytes) << c.name;
    EXPECT_EQ(type->read_scalar == nullptr, c.num_bytes == 0) << c.name;
    EXPECT_EQ(type->read_array == nullptr, c.num_bytes == 0) << c.name;
  }
  EXPECT_EQ(find_gguf_value_type(kGgufTypeU32)->name, "u32");
  EXPECT_EQ(find_gguf_value_type(kGgufTypeString)->name, "string");
  EXPECT_EQ(find_gguf_value_type(kGgufTypeArray)->name, "array");
}

TEST(GgufValues, UnknownTypesAreNone) {
  for (const uint32_t id : {13u, 14u, 255u, UINT32_MAX}) {
    EXPECT_EQ(find_gguf_value_type(id), nullptr) << id;
  }
}

TEST(GgufValues, ScalarsKeepTheirValueToTheEdgesOfTheirType) {
  EXPECT_EQ(scalar<int64_t>(0, uint8_t{255}), 255);
  EXPECT_EQ(scalar<int64_t>(1, int8_t{-128}), -128);
  EXPECT_EQ(scalar<int64_t>(2, uint16_t{65535}), 65535);
  EXPECT_EQ(scalar<int64_t>(3, int16_t{-32768}), -32768);
  EXPECT_EQ(scalar<int64_t>(4, UINT32_MAX), int64_t{UINT32_MAX});
  EXPECT_EQ(scalar<int64_t>(5, INT32_MIN), int64_t{INT32_MIN});
  EXPECT_EQ(scalar<uint64_t>(10, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(scalar<int64_t>(11, INT64_MIN), INT64_MIN);
  EXPECT_EQ(scalar<double>(6, 0.1f), static_cast<double>(0.1f));
  EXPECT_EQ(scalar<double>(12, 0.1), 0.1);
  EXPECT_EQ(scalar<bool>(7, uint8_t{0}), false);
  EXPECT_EQ(scalar<bool>(7, uint8_t{1}), true);
  EXPECT_EQ(scalar<bool>(7, uint8_t{200}), true);
}

TEST(GgufValues, ArraysOfEveryWidthAreOfThreeKinds) {
  EXPECT_EQ((array<int64_t, uint8_t>(0, {0, 255})), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ((array<int64_t, int8_t>(1, {-128, 127})), (std::vector<int64_t>{-128, 127}));
  EXPECT_EQ((array<int64_t, uint16_t>(2, {65535})), (std::vector<int64_t>{65535}));
  EXPECT_EQ((array<int64_t, int16_t>(3, {-32768})), (std::vector<int64_t>{-32768}));
  EXPECT_EQ((array<int64_t, uint32_t>(4, {UINT32_MAX})), (std::vector<int64_t>{UINT32_MAX}));
  EXPECT_EQ((array<int64_t, int32_t>(5, {INT32_MIN})), (std::vector<int64_t>{INT32_MIN}));
  EXPECT_EQ((array<int64_t, int64_t>(11, {INT64_MIN, 1})), (std::vector<int64_t>{INT64_MIN, 1}));
  EXPECT_EQ((array<double, float>(6, {0.5f, -2.0f})), (std::vector<double>{0.5, -2.0}));
  EXPECT_EQ((array<double, double>(12, {0.1})), (std::vector<double>{0.1}));
  EXPECT_EQ((array<bool, uint8_t>(7, {0, 1, 9})), (std::vector<bool>{false, true, true}));
  EXPECT_TRUE((array<int64_t, uint32_t>(4, {})).empty());
}

TEST(GgufValues, LargeUnsignedElementsMakeAnArrayOfDoubles) {
  EXPECT_EQ((array<int64_t, uint64_t>(10, {1, INT64_MAX})), (std::vector<int64_t>{1, INT64_MAX}));
  EXPECT_EQ((array<double, uint64_t>(10, {1, UINT64_MAX})), (std::vector<double>{1.0, 0x1p64}));
}

}  // namespace gguf_values_test
}  // namespace headrace
