#include "model/weight_transpose.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/numeric.h"
#include "checkpoint/weight_rows.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace weight_transpose_test {

WeightView view_of(const testing::FakeCheckpoint& file) {
  WeightView weight;
  weight.name = "weight";
  weight.values = *file.find("weight");
  weight.num_outputs = weight.values.dim(0);
  weight.num_inputs = weight.group_size = weight.values.dim(1);
  return weight;
}

std::vector<float> rows_of(const WeightView& weight) {
  std::vector<float> values(static_cast<size_t>(weight.num_outputs * weight.num_inputs));
  dequantise_rows(weight, 0, weight.num_outputs, values.data());
  return values;
}

// The transpose as a weight over its own bytes.
WeightView transpose(const WeightView& weight, std::vector<std::byte>* bytes) {
  WeightView view = transposed_view(weight);
  EXPECT_EQ(view.values.data, nullptr);
  bytes->resize(view.values.num_bytes);
  transpose_weight(weight, *bytes);
  view.values.data = bytes->data();
  EXPECT_TRUE(validate_weight(view).ok());
  return view;
}

TEST(WeightTranspose, RowsOfASliceBecomeColumns) {
  testing::FakeCheckpoint file(CheckpointKind::kSafetensors);
  std::vector<float> values(40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.3f;
  file.tensor_of("weight", {8, 5}, values);
  std::vector<std::byte> bytes;
  const WeightView turned = transpose(slice_rows(view_of(file), 2, 3), &bytes);
  EXPECT_EQ(turned.num_outputs, 5);
  EXPECT_EQ(turned.num_inputs, 3);
  const std::vector<float> found = rows_of(turned);
  for (size_t out = 0; out < 5; ++out) {
    for (size_t in = 0; in < 3; ++in) EXPECT_EQ(found[out * 3 + in], values[(in + 2) * 5 + out]);
  }
}

TEST(WeightTranspose, SixteenBitNumbersKeepTheirType) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    testing::FakeCheckpoint file(CheckpointKind::kSafetensors);
    file.tensor("weight", {4, 6}, type);
    WeightView weight = view_of(file);
    std::vector<uint16_t> halves(24);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3C00 + 7 * i);
    weight.values.data = reinterpret_cast<const std::byte*>(halves.data());
    std::vector<std::byte> bytes;
    const WeightView turned = transpose(weight, &bytes);
    EXPECT_EQ(turned.values.dtype, type);
    ASSERT_EQ(bytes.size(), 48u);
    for (size_t out = 0; out < 6; ++out) {
      for (size_t in = 0; in < 4; ++in) {
        uint16_t half = 0;
        std::memcpy(&half, bytes.data() + 2 * (out * 4 + in), sizeof(half));
        EXPECT_EQ(half, halves[in * 6 + out]);
      }
    }
  }
}

TEST(WeightTranspose, CodesBecomeTheirNumbers) {
  testing::FakeCheckpoint file(CheckpointKind::kGguf);
  file.tensor("weight", {3, 64}, DType::kQ8_0);
  WeightView weight = view_of(file);
  std::vector<std::byte> blocks(weight.values.num_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 5 % 120);
  weight.values.data = blocks.data();
  std::vector<std::byte> bytes;
  const WeightView turned = transpose(weight, &bytes);
  EXPECT_EQ(turned.values.dtype, DType::kF32);
  const std::vector<float> before = rows_of(weight), after = rows_of(turned);
  for (size_t out = 0; out < 64; ++out) {
    for (size_t in = 0; in < 3; ++in) EXPECT_EQ(after[out * 3 + in], before[in * 64 + out]);
  }
}

}  // namespace weight_transpose_test
}  // namespace headrace
