#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/numeric.h"

namespace headrace {
namespace dtype_test {

uint32_t read_u32(const std::byte*& cursor) {
  uint32_t value;
  std::memcpy(&value, cursor, sizeof(value));
  cursor += sizeof(value);
  return value;
}

bool same_float(float a, float b) {
  return float_to_bits(a) == float_to_bits(b) || (std::isnan(a) && std::isnan(b));
}

// Blocks and expected values were written by tools/make_gguf_vectors.py with the package gguf.
TEST(DType, DequantisesBitForBitAsTheGgufPackage) {
  const std::string path = std::string(HEADRACE_SOURCE_DIR) + "/tests/data/gguf_blocks.bin";
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::byte* cursor = file->bytes().data();
  const std::byte* end = cursor + file->bytes().size();
  std::set<DType> checked;
  while (cursor < end) {
    const uint32_t type_id = read_u32(cursor);
    const uint32_t num_blocks = read_u32(cursor);
    const uint32_t block_bytes = read_u32(cursor);
    const uint32_t block_elements = read_u32(cursor);
    const DTypeRow* row = find_dtype_by_gguf_id(type_id);
    ASSERT_NE(row, nullptr) << type_id;
    ASSERT_EQ(row->block_bytes, block_bytes) << row->name;
    ASSERT_EQ(row->block_elements, block_elements) << row->name;
    const size_t num_values = size_t{num_blocks} * block_elements;
    std::vector<float> expected(num_values);
    std::memcpy(expected.data(), cursor + size_t{num_blocks} * block_bytes, num_values * 4);
    std::vector<float> found(num_values, std::numeric_limits<float>::quiet_NaN());
    row->dequantise(cursor, num_blocks, found.data());
    for (size_t i = 0; i < num_values; ++i) {
      ASSERT_TRUE(same_float(expected[i], found[i]))
          << row->name << " element " << i << ": expected " << expected[i] << ", found "
          << found[i];
    }
    cursor += size_t{num_blocks} * block_bytes + num_values * sizeof(float);
    checked.insert(row->dtype);
  }
  EXPECT_EQ(checked.size(), 17u);
}

TEST(DType, RowsAreConsistent) {
  ASSERT_EQ(dtype_rows().size(), static_cast<size_t>(DType::kCount));
  std::set<std::string_view> names;
  for (const DTypeRow& row : dtype_rows()) {
    EXPECT_EQ(&dtype_row(row.dtype), &row);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GE(row.block_bytes, 1u);
    EXPECT_GE(row.block_elements, 1u);
    if (row.gguf_id >= 0) {
      EXPECT_EQ(find_dtype_by_gguf_id(static_cast<uint32_t>(row.gguf_id)), &row);
    }
    if (!row.safetensors_name.empty()) {
      EXPECT_EQ(find_dtype_by_safetensors_name(row.safetensors_name), &row);
    }
  }
  EXPECT_EQ(find_dtype_by_gguf_id(4), nullptr);
  EXPECT_EQ(find_dtype_by_gguf_id(UINT32_MAX), nullptr);
  EXPECT_EQ(find_dtype_by_safetensors_name("Q4_0"), nullptr);
  EXPECT_EQ(find_dtype_by_safetensors_name(""), nullptr);
}

TEST(DType, ScalarsWidenExactly) {
  const double doubles[] = {1.5, -0.0, 1e300};
  float values[3];
  dtype_row(DType::kF64).dequantise(reinterpret_cast<const std::byte*>(doubles), 3, values);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_TRUE(std::signbit(values[1]));
  EXPECT_TRUE(std::isinf(values[2]));
  const int8_t bytes[] = {-128, 127, 0};
  dtype_row(DType::kI8).dequantise(reinterpret_cast<const std::byte*>(bytes), 3, values);
  EXPECT_EQ(values[0], -128.0f);
  EXPECT_EQ(values[1], 127.0f);
  const uint8_t codes[] = {0x7E, 0x01, 0xC0};  // 448, 2^-9, -2 as e4m3
  dtype_row(DType::kF8E4M3).dequantise(reinterpret_cast<const std::byte*>(codes), 3, values);
  EXPECT_EQ(values[0], 448.0f);
  EXPECT_EQ(values[1], 0x1p-9f);
  EXPECT_EQ(values[2], -2.0f);
}

TEST(DType, ReadsUnalignedBlocks) {
  std::vector<std::byte> bytes(1 + 34);
  const uint16_t one = 0x3C00;
  std::memcpy(bytes.data() + 1, &one, sizeof(one));
  for (int i = 0; i < 32; ++i) bytes[static_cast<size_t>(3 + i)] = static_cast<std::byte>(i - 16);
  float values[32];
  dtype_row(DType::kQ8_0).dequantise(bytes.data() + 1, 1, values);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], static_cast<float>(i - 16));
}

}  // namespace dtype_test
}  // namespace headrace
