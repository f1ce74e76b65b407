#include "checkpoint/weight_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/numeric.h"

namespace headrace {
namespace weight_rows_test {

// Owns the bytes of a few tensors and makes views of them.
class WeightViewTest : public ::testing::Test {
 protected:
  template <typename T>
  TensorView tensor(DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
    std::vector<std::byte>& bytes = owned_.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    TensorView view;
    view.data = bytes.data();
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape.begin());
    view.num_bytes = bytes.size();
    return view;
  }

  TensorView halves(const std::vector<int64_t>& shape, const std::vector<float>& values) {
    std::vector<uint16_t> stored;
    for (const float value : values) stored.push_back(float_to_f16(value));
    return tensor(DType::kF16, shape, stored);
  }

  // [4, 6] float32, value = 10 * row + column.
  WeightView dense() {
    std::vector<float> values;
    for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(10 * (i / 6) + i % 6));
    WeightView weight;
    weight.name = "w";
    weight.values = tensor(DType::kF32, {4, 6}, values);
    weight.num_outputs = 4;
    weight.num_inputs = 6;
    return weight;
  }

  // GPTQ, 4 bits, [8 outputs, 8 inputs], 2 groups of 4. Code of (k, n) is k, zero is 3 (v1: 2).
  WeightView gptq() {
    WeightView weight;
    weight.scheme = WeightScheme::kGptq;
    weight.name = "q";
    weight.bits = 4;
    weight.num_outputs = 8;
    weight.num_inputs = 8;
    weight.group_size = 4;
    weight.values = tensor(DType::kI32, {1, 8}, std::vector<uint32_t>(8, 0x76543210));
    weight.zeros = tensor(DType::kI32, {2, 1}, std::vector<uint32_t>(2, 0x22222222));
    std::vector<float> scales(16, 0.5f);
    std::fill(scales.begin() + 8, scales.end(), 2.0f);
    weight.scales = halves({2, 8}, scales);
    weight.zero_is_stored_minus_one = true;
    return weight;
  }

  // compressed-tensors, 4 bits, [8 outputs, 8 inputs], groups of 8, symmetric. Code of input k is
  // k.
  WeightView packed() {
    WeightView weight;
    weight.scheme = WeightScheme::kCtPacked;
    weight.name = "p";
    weight.bits = 4;
    weight.num_outputs = 8;
    weight.num_inputs = 8;
    weight.group_size = 8;
    weight.values = tensor(DType::kI32, {8, 1}, std::vector<uint32_t>(8, 0x76543210));
    weight.scales = halves({8, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
    return weight;
  }

  static std::vector<float> rows(const WeightView& weight, int64_t first, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count * weight.num_inputs), -99.0f);
    dequantise_rows(weight, first, count, values.data());
    return values;
  }

  static void expect_invalid(const WeightView& weight, const std::string& message,
                             ErrorCode code = ErrorCode::kCorrupt) {
    const Status status = validate_weight(weight);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_EQ(status.error().message, message);
    EXPECT_EQ(status.error().code, code);
  }

  std::vector<std::vector<std::byte>> owned_;
};

TEST_F(WeightViewTest, DenseReadsRows) {
  const WeightView weight = dense();
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 2, 1), (std::vector<float>{20, 21, 22, 23, 24, 25}));
  EXPECT_EQ(rows(weight, 0, 4).back(), 35.0f);
  EXPECT_EQ(rows(weight, 4, 0), std::vector<float>{});
  EXPECT_EQ(weight.stored_bytes(), 96u);
}

TEST_F(WeightViewTest, RowOrderPermutesAndRepeats) {
  WeightView weight = dense();
  weight.row_order = {3, 0, 3};
  weight.num_outputs = 3;
  ASSERT_TRUE(validate_weight(weight).ok());
  const std::vector<float> values = rows(weight, 0, 3);
  EXPECT_EQ(values[0], 30.0f);
  EXPECT_EQ(values[6], 0.0f);
  EXPECT_EQ(values[12], 30.0f);
  EXPECT_EQ(weight.stored_bytes(), 72u);
  const WeightView slice = slice_rows(weight, 1, 1);
  EXPECT_EQ(rows(slice, 0, 1)[1], 1.0f);
}

TEST_F(WeightViewTest, SlicesCompose) {
  for (const bool quantised : {false, true}) {
    const WeightView weight = quantised ? packed() : dense();
    const WeightView slice = slice_rows(slice_rows(weight, 1, 3), 1, 2);
    ASSERT_TRUE(validate_weight(slice).ok()) << validate_weight(slice).error().message;
    EXPECT_EQ(slice.num_outputs, 2);
    EXPECT_EQ(rows(slice, 0, 2), rows(weight, 2, 2));
    EXPECT_EQ(rows(slice, 1, 1), rows(weight, 3, 1));
    EXPECT_EQ(slice.stored_bytes() * static_cast<size_t>(weight.num_outputs / 2),
              weight.stored_bytes());
  }
}

TEST_F(WeightViewTest, DenseMultipliesByAGlobalScale) {
  WeightView weight = dense();
  weight.global_scale = tensor<float>(DType::kF32, {1}, {0.5f});
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 1, 1), (std::vector<float>{5, 5.5, 6, 6.5, 7, 7.5}));
  weight.global_scale.shape[0] = 2;
  expect_invalid(weight, "weight 'w' (dense) has global scale of shape [2], needed is [1]");
}

TEST_F(WeightViewTest, DenseRefusesWhatDoesNotFit) {
  WeightView weight = dense();
  weight.num_inputs = 5;
  expect_invalid(weight, "weight 'w' (dense) has values of shape [4, 6], needed is [4, 5]");
  weight = dense();
  weight.num_outputs = 3;
  expect_invalid(weight, "weight 'w' (dense) has 4 outputs, needed are 3");
  weight = dense();
  weight.values.rank = 1;
  expect_invalid(weight, "weight 'w' (dense) has values of shape [4], needed are two dimensions");
  weight = dense();
  weight.values.dtype = DType::kI32;
  expect_invalid(weight, "weight 'w' (dense) has dtype I32, which holds no weights");
  weight = dense();
  weight.values.dtype = DType::kQ4_0;
  expect_invalid(weight, "weight 'w' (dense) has 6 inputs, Q4_0 needs a multiple of 32");
  weight = dense();
  weight.values.num_bytes = 95;
  expect_invalid(weight, "weight 'w' (dense) has 95 bytes of values, its shape needs more");
  weight = dense();
  weight.num_outputs = 0;
  weight.values.shape[0] = 0;
  expect_invalid(weight,
                 "weight 'w' (dense) has 0 outputs (0 stored) and 6 inputs, needed are 1 to "
                 "2147483647");
}

TEST_F(WeightViewTest, RefusesRowOrdersOutOfRange) {
  WeightView weight = dense();
  weight.row_order = {0, 1, 2};
  expect_invalid(weight, "weight 'w' (dense) has a row order of 3 rows, needed are 4");
  weight.row_order = {0, 1, 2, 4};
  expect_invalid(weight, "weight 'w' (dense) has row 4 in its row order, stored are 4 rows");
  weight.row_order[3] = -1;
  expect_invalid(weight, "weight 'w' (dense) has row -1 in its row order, stored are 4 rows");
}

TEST_F(WeightViewTest, GptqAppliesGroupsAndZeroPoints) {
  WeightView weight = gptq();
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  EXPECT_EQ(rows(weight, 5, 1), (std::vector<float>{-1.5, -1, -0.5, 0, 2, 4, 6, 8}));
  weight.zero_is_stored_minus_one = false;  // version 2: the zero point is 2
  EXPECT_EQ(rows(weight, 5, 1), (std::vector<float>{-1, -0.5, 0, 0.5, 4, 6, 8, 10}));
  weight.zeros = TensorView{};  // symmetric: the zero point is 8
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 0, 1)[0], -4.0f);
}

TEST_F(WeightViewTest, GptqZeroPointWrapsAround) {
  WeightView weight = gptq();
  weight.zeros = tensor(DType::kI32, {2, 1}, std::vector<uint32_t>(2, 0xFFFFFFFF));
  EXPECT_EQ(rows(weight, 0, 1)[1], 0.5f);  // stored 15 means 0
}

TEST_F(WeightViewTest, GptqFollowsTheGroupIndex) {
  WeightView weight = gptq();
  weight.group_index = tensor<int32_t>(DType::kI32, {8}, {1, 0, 1, 0, 1, 0, 1, 0});
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 3, 1), (std::vector<float>{-6, -1, -2, 0, 2, 1, 6, 2}));
  weight.group_index = tensor<int32_t>(DType::kI32, {8}, {1, 0, 1, 0, 1, 2, 1, 0});
  expect_invalid(weight, "weight 'q' (gptq) has group 2 for input 5, needed is 0 to 1");
  weight.group_index = tensor<int32_t>(DType::kI32, {8}, {1, 0, 1, 0, 1, -1, 1, 0});
  expect_invalid(weight, "weight 'q' (gptq) has group -1 for input 5, needed is 0 to 1");
  weight.group_index = tensor<int32_t>(DType::kI32, {7}, {1, 0, 1, 0, 1, 1, 1});
  expect_invalid(weight, "weight 'q' (gptq) has group index of shape [7], needed is [8]");
}

TEST_F(WeightViewTest, GptqRefusesWhatDoesNotFit) {
  WeightView weight = gptq();
  weight.bits = 3;
  expect_invalid(weight, "weight 'q' (gptq) has 3 bits, readable are 2, 4, 8",
                 ErrorCode::kUnsupported);
  weight = gptq();
  weight.group_size = 8;
  expect_invalid(weight,
                 "weight 'q' (gptq) has 2 groups of scales, 8 inputs in groups of 8 need 1");
  weight.group_size = 0;
  expect_invalid(weight, "weight 'q' (gptq) has group size 0, needed is 1 to 8 (its inputs)");
  weight = gptq();
  weight.num_inputs = 12;
  expect_invalid(weight, "weight 'q' (gptq) is [8, 12], 4 bits need multiples of 8");
  weight = gptq();
  weight.zeros.shape[0] = 1;
  expect_invalid(weight, "weight 'q' (gptq) has zero points of shape [1, 1], needed is [2, 1]");
  weight = gptq();
  weight.scales.dtype = DType::kI16;
  expect_invalid(weight, "weight 'q' (gptq) has scales of dtype I16, needed is F16 or BF16 or F32");
  weight = gptq();
  weight.scales = TensorView{};
  expect_invalid(weight,
                 "weight 'q' (gptq) has scales of shape [], needed are two dimensions or one "
                 "element");
}

TEST_F(WeightViewTest, AwqUndoesTheNibbleOrder) {
  WeightView weight;
  weight.scheme = WeightScheme::kAwq;
  weight.name = "a";
  weight.bits = 4;
  weight.num_outputs = 8;
  weight.num_inputs = 1;
  weight.group_size = 1;
  weight.values = tensor<uint32_t>(DType::kI32, {1, 1}, {0x75316420});  // output n holds code n
  weight.zeros = tensor<uint32_t>(DType::kI32, {1, 1}, {0x11111111});
  weight.scales = halves({1, 8}, std::vector<float>(8, 2.0f));
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  EXPECT_EQ(rows(weight, 0, 8), (std::vector<float>{-2, 0, 2, 4, 6, 8, 10, 12}));
  weight.bits = 8;
  expect_invalid(weight, "weight 'a' (awq) has 8 bits, readable are 4", ErrorCode::kUnsupported);
}

TEST_F(WeightViewTest, PackedReadsInputsInWordsAndZerosAlongOutputs) {
  WeightView weight = packed();
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  EXPECT_EQ(rows(weight, 1, 1), (std::vector<float>{-16, -14, -12, -10, -8, -6, -4, -2}));
  weight.zeros = tensor<uint32_t>(DType::kI32, {1, 1}, {0x76543210});  // zero of output n is n
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 2, 1), (std::vector<float>{-6, -3, 0, 3, 6, 9, 12, 15}));
  weight.zeros.shape[0] = 2;
  expect_invalid(weight,
                 "weight 'p' (ct-pack-quantized) has zero points of shape [2, 1], needed is [1, "
                 "1]");
}

TEST_F(WeightViewTest, PackedAcceptsInputsThatFillNoWholeWord) {
  WeightView weight = packed();
  weight.num_inputs = 5;
  weight.group_size = 5;
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  EXPECT_EQ(rows(weight, 0, 1), (std::vector<float>{-8, -7, -6, -5, -4}));
}

TEST_F(WeightViewTest, Int8TakesChannelTensorAndZeroPoints) {
  WeightView weight;
  weight.scheme = WeightScheme::kCtInt8;
  weight.name = "i";
  weight.num_outputs = 2;
  weight.num_inputs = 2;
  weight.group_size = 2;
  weight.values = tensor<int8_t>(DType::kI8, {2, 2}, {-128, 127, 1, 0});
  weight.scales = tensor<float>(DType::kF32, {2, 1}, {0.5f, 3.0f});
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 0, 2), (std::vector<float>{-64, 63.5, 3, 0}));
  weight.zeros = tensor<int8_t>(DType::kI8, {2, 1}, {-1, 1});
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 0, 2), (std::vector<float>{-63.5, 64, 0, -3}));
  weight.zeros = TensorView{};
  weight.scales = tensor<float>(DType::kF32, {}, {2.0f});
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 1, 1), (std::vector<float>{2, 0}));
  weight.zeros = tensor<int8_t>(DType::kI8, {2, 1}, {-1, 1});
  expect_invalid(
      weight, "weight 'i' (ct-int-quantized) has zero points but one scale for the whole weight");
  weight.zeros = TensorView{};
  weight.group_size = 1;
  expect_invalid(weight, "weight 'i' (ct-int-quantized) has one scale for groups of 1 inputs");
}

TEST_F(WeightViewTest, Float8BlocksMayBeShortAtTheEdges) {
  WeightView weight;
  weight.scheme = WeightScheme::kFloat8Block;
  weight.name = "f";
  weight.num_outputs = 3;
  weight.num_inputs = 3;
  weight.group_size = 2;
  weight.block_outputs = 2;
  weight.values = tensor(DType::kF8E4M3, {3, 3}, std::vector<uint8_t>(9, 0x38));  // 1.0
  weight.scales = tensor<float>(DType::kF32, {2, 2}, {1, 2, 3, 4});
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  EXPECT_EQ(rows(weight, 0, 3), (std::vector<float>{1, 1, 2, 1, 1, 2, 3, 3, 4}));
  weight.block_outputs = 1;
  expect_invalid(weight, "weight 'f' (fp8-block) has scales of shape [2, 2], needed is [3, 2]");
  weight.block_outputs = 0;
  expect_invalid(weight, "weight 'f' (fp8-block) has 0 outputs per scale, needed is 1 or more");
}

TEST_F(WeightViewTest, Fp4ReadsTheLowNibbleFirst) {
  WeightView weight;
  weight.scheme = WeightScheme::kMxfp4;
  weight.name = "m";
  weight.num_outputs = 1;
  weight.num_inputs = 32;
  weight.group_size = 32;
  std::vector<uint8_t> codes(16);
  for (size_t i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>(i % 8 * 2 * 17 + 16);
  weight.values = tensor(DType::kU8, {1, 16}, codes);
  weight.scales = tensor<uint8_t>(DType::kU8, {1, 1}, {128});
  ASSERT_TRUE(validate_weight(weight).ok()) << validate_weight(weight).error().message;
  const std::vector<float> values = rows(weight, 0, 1);
  const std::vector<float> expected = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 16), expected);
  weight.values.rank = 3;  // the same bytes as [N, K/32, 16]
  weight.values.shape = {1, 1, 16};
  ASSERT_TRUE(validate_weight(weight).ok());
  EXPECT_EQ(rows(weight, 0, 1), values);
  weight.scales = tensor<uint8_t>(DType::kU8, {1, 2}, {128, 128});
  expect_invalid(weight, "weight 'm' (mxfp4) has scales of shape [1, 2], needed is [1, 1]");
  weight.scheme = WeightScheme::kNvfp4;
  expect_invalid(weight,
                 "weight 'm' (nvfp4) has 32 inputs in groups of 32, needed are groups of 16");
}

// The same matrix, outputs along columns.
TEST_F(WeightViewTest, TransposedValuesAreReadByColumns) {
  WeightView stored = dense();  // [4, 6] in the file: 4 inputs, 6 outputs
  const auto found = as_transposed(stored);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->num_outputs, 6);
  EXPECT_EQ(found->num_inputs, 4);
  EXPECT_EQ(rows(*found, 0, 2), (std::vector<float>{0, 10, 20, 30, 1, 11, 21, 31}));
  EXPECT_EQ(rows(*found, 5, 1), (std::vector<float>{5, 15, 25, 35}));
  EXPECT_EQ(rows(slice_rows(*found, 4, 1), 0, 1), (std::vector<float>{4, 14, 24, 34}));
  WeightView reordered = *found;
  reordered.row_order = {1, 3, 5, 0, 2, 4};
  ASSERT_TRUE(validate_weight(reordered).ok());
  EXPECT_EQ(rows(reordered, 1, 2), (std::vector<float>{3, 13, 23, 33, 5, 15, 25, 35}));
  EXPECT_EQ(rows(slice_rows(reordered, 3, 3), 1, 1), (std::vector<float>{2, 12, 22, 32}));
  EXPECT_EQ(found->stored_bytes(), stored.stored_bytes());
}

TEST_F(WeightViewTest, HalvesAreReadAsTheyAreStored) {
  WeightView weight;
  weight.name = "h";
  weight.values = tensor<uint16_t>(DType::kBF16, {2, 3}, {1, 2, 3, 4, 5, 6});
  weight.num_outputs = 2;
  weight.num_inputs = 3;
  const auto read = [](const WeightView& view, int64_t first, int64_t count) {
    std::vector<uint16_t> values(static_cast<size_t>(count * view.num_inputs));
    read_halves(view, first, count, values.data());
    return values;
  };
  EXPECT_EQ(read(weight, 0, 2), (std::vector<uint16_t>{1, 2, 3, 4, 5, 6}));
  const WeightView transposed = as_transposed(weight).value();
  EXPECT_EQ(read(transposed, 1, 2), (std::vector<uint16_t>{2, 5, 3, 6}));
  weight.row_order = {1, 0};
  EXPECT_EQ(read(weight, 0, 2), (std::vector<uint16_t>{4, 5, 6, 1, 2, 3}));
  EXPECT_DEATH(read(dense(), 0, 1), "halves of F32");
}

TEST_F(WeightViewTest, OnlyPlainFloatsAreTransposed) {
  const WeightView packed = gptq();
  const auto same = as_transposed(packed);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->scheme, WeightScheme::kGptq);
  WeightView bytes;
  bytes.name = "b";
  bytes.values = tensor(DType::kF8E4M3, {2, 4}, std::vector<uint8_t>(8));
  bytes.num_outputs = 2;
  bytes.num_inputs = 4;
  ASSERT_TRUE(validate_weight(bytes).ok());
  EXPECT_FALSE(as_transposed(bytes).ok());
}

TEST_F(WeightViewTest, EverySchemeHasAName) {
  for (int i = 0; i < static_cast<int>(WeightScheme::kCount); ++i) {
    EXPECT_FALSE(weight_scheme_name(static_cast<WeightScheme>(i)).empty());
  }
}

TEST_F(WeightViewTest, RowsOutOfRangeAreABug) {
  const WeightView weight = dense();
  float values[6];
  EXPECT_DEATH(dequantise_rows(weight, 4, 1, values), "rows 4 \\+ 1 of 4");
  EXPECT_DEATH((void)slice_rows(weight, -1, 1), "rows -1");
}

}  // namespace weight_rows_test
}  // namespace headrace
