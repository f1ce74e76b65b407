#include "checkpoint/weight_scheme.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "base/numeric.h"
#include "base/quote.h"

namespace headrace {
namespace {

constexpr int kSchemeWordBits = 32;

template <typename T>
T load(const TensorView& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float float_at(const TensorView& tensor, int64_t index) {
  const DTypeRow& row = dtype_row(tensor.dtype);
  float value = 0;
  row.dequantise(tensor.data + index * row.block_bytes, 1, &value);
  return value;
}

// ---- checks ----

using Shape = std::initializer_list<int64_t>;
using DTypes = std::initializer_list<DType>;
constexpr DTypes kFloatTypes = {DType::kF16, DType::kBF16, DType::kF32};
constexpr DTypes kBlockScaleTypes = {DType::kF16, DType::kBF16, DType::kF32, DType::kF8E8M0};
constexpr DTypes kE8m0Types = {DType::kU8, DType::kF8E8M0};
constexpr DTypes kFloat8Types = {DType::kF8E4M3, DType::kF8E5M2};

bool has_shape(const TensorView& tensor, std::span<const int64_t> shape) {
  return static_cast<size_t>(tensor.rank) == shape.size() &&
         std::equal(shape.begin(), shape.end(), tensor.shape.begin());
}

// The tensor has one of these dtypes, exactly this shape, and the bytes for it.
Status check_tensor(const WeightView& weight, std::string_view part, const TensorView& tensor,
                    DTypes dtypes, Shape shape) {
  if (tensor.empty()) {
    return weight_error(weight, fmt::format("lacks its tensor of {}", part));
  }
  if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
    std::string needed;
    for (const DType dtype : dtypes) {
      needed += (needed.empty() ? "" : " or ") + std::string(dtype_name(dtype));
    }
    return weight_error(weight, fmt::format("has {} of dtype {}, needed is {}", part,
                                            dtype_name(tensor.dtype), needed));
  }
  if (!has_shape(tensor, std::span(shape.begin(), shape.size()))) {
    TensorView needed;
    needed.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), needed.shape.begin());
    return weight_error(weight, fmt::format("has {} of shape {}, needed is {}", part,
                                            tensor.shape_string(), needed.shape_string()));
  }
  const DTypeRow& row = dtype_row(tensor.dtype);
  const CheckedSize blocks = static_cast<uint64_t>(tensor.num_elements()) / row.block_elements;
  const CheckedSize needed_bytes = blocks * row.block_bytes;
  if (!needed_bytes.at_most(tensor.num_bytes)) {
    return weight_error(
        weight, fmt::format("has {} bytes of {}, its shape needs more", tensor.num_bytes, part));
  }
  return {};
}

// Both sizes positive and indexable by row_order.
Status check_sizes(const WeightView& weight) {
  const int64_t num_stored = stored_outputs(weight);
  if (weight.num_outputs > 0 && weight.num_inputs > 0 && num_stored > 0 &&
      num_stored <= INT32_MAX && weight.num_inputs <= INT32_MAX) {
    return {};
  }
  return weight_error(weight,
                      fmt::format("has {} outputs ({} stored) and {} inputs, needed are 1 "
                                  "to {}",
                                  weight.num_outputs, num_stored, weight.num_inputs, INT32_MAX));
}

Status check_rank2(const WeightView& weight) {
  if (!weight.values.empty() && weight.values.rank == 2) return check_sizes(weight);
  return weight_error(weight, fmt::format("has values of shape {}, needed are two dimensions",
                                          weight.values.shape_string()));
}

Status check_group_size(const WeightView& weight) {
  if (weight.group_size > 0 && weight.group_size <= weight.num_inputs) return {};
  return weight_error(weight, fmt::format("has group size {}, needed is 1 to {} (its inputs)",
                                          weight.group_size, weight.num_inputs));
}

Status check_bits(const WeightView& weight, std::initializer_list<int> readable) {
  if (std::find(readable.begin(), readable.end(), weight.bits) != readable.end()) return {};
  return make_error(ErrorCode::kUnsupported, "weight {} ({}) has {} bits, readable are {}",
                    quote(weight.name), weight_scheme_name(weight.scheme), weight.bits,
                    fmt::join(readable, ", "));
}

// Every input's group exists. Without an index the groups are consecutive.
Status check_group_index(const WeightView& weight, int64_t num_groups) {
  if (weight.group_index.empty()) {
    const int64_t needed = divide_up(weight.num_inputs, weight.group_size);
    if (needed == num_groups) return {};
    return weight_error(weight,
                        fmt::format("has {} groups of scales, {} inputs in groups of {} "
                                    "need {}",
                                    num_groups, weight.num_inputs, weight.group_size, needed));
  }
  TRY(check_tensor(weight, "group index", weight.group_index, {DType::kI32}, {weight.num_inputs}));
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    const auto group = load<int32_t>(weight.group_index, k);
    if (group < 0 || group >= num_groups) {
      return weight_error(weight, fmt::format("has group {} for input {}, needed is 0 to {}", group,
                                              k, num_groups - 1));
    }
  }
  return {};
}

Status check_scales_2d(const WeightView& weight, DTypes dtypes) {
  if (!weight.scales.empty() && weight.scales.rank == 2) return {};
  if (!weight.scales.empty() && weight.scales.num_elements() == 1) {
    // One scale for the whole weight, of any rank.
    TensorView flat = weight.scales;
    flat.rank = 1;
    flat.shape[0] = 1;
    return check_tensor(weight, "scales", flat, dtypes, {1});
  }
  return weight_error(weight, fmt::format("has scales of shape {}, needed are two dimensions or "
                                          "one element",
                                          weight.scales.shape_string()));
}

// Scales [outputs / block_outputs, groups], or one element.
Status check_output_major_scales(const WeightView& weight, DTypes dtypes) {
  TRY(check_group_size(weight));
  if (weight.block_outputs <= 0) {
    return weight_error(
        weight, fmt::format("has {} outputs per scale, needed is 1 or more", weight.block_outputs));
  }
  TRY(check_scales_2d(weight, dtypes));
  if (weight.scales.num_elements() == 1) {
    if (weight.group_size != weight.num_inputs || !weight.group_index.empty()) {
      return weight_error(weight,
                          fmt::format("has one scale for groups of {} inputs", weight.group_size));
    }
    if (weight.scales.rank != 2) return {};
  }
  const int64_t num_groups = weight.scales.dim(1);
  const int64_t num_rows = divide_up(stored_outputs(weight), weight.block_outputs);
  const bool single = weight.scales.num_elements() == 1;
  TRY(check_tensor(weight, "scales", weight.scales, dtypes,
                   {single ? int64_t{1} : num_rows, num_groups}));
  return check_group_index(weight, num_groups);
}

Status check_dense(const WeightView& weight) {
  TRY(check_rank2(weight));
  const DTypeRow& row = dtype_row(weight.values.dtype);
  if (row.dequantise == nullptr) {
    return weight_error(weight, fmt::format("has dtype {}, which holds no weights", row.name));
  }
  if (weight.num_inputs % row.block_elements != 0) {
    return weight_error(weight, fmt::format("has {} inputs, {} needs a multiple of {}",
                                            weight.num_inputs, row.name, row.block_elements));
  }
  TRY(check_tensor(weight, "values", weight.values, {weight.values.dtype},
                   {weight.values.dim(0), weight.num_inputs}));
  if (!weight.global_scale.empty()) {
    TRY(check_tensor(weight, "global scale", weight.global_scale, {DType::kF32}, {1}));
  }
  return {};
}

Status check_dense_transposed(const WeightView& weight) {
  TRY(check_rank2(weight));
  return check_tensor(weight, "transposed values", weight.values, kFloatTypes,
                      {weight.num_inputs, stored_outputs(weight)});
}

Status check_gptq(const WeightView& weight) {
  TRY(check_rank2(weight));
  TRY(check_bits(weight, {2, 4, 8}));
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const int64_t num_stored = stored_outputs(weight);
  if (weight.num_inputs % per_word != 0 || num_stored % per_word != 0) {
    return weight_error(weight, fmt::format("is [{}, {}], {} bits need multiples of {}", num_stored,
                                            weight.num_inputs, weight.bits, per_word));
  }
  TRY(check_tensor(weight, "values", weight.values, {DType::kI32},
                   {weight.num_inputs / per_word, num_stored}));
  TRY(check_group_size(weight));
  TRY(check_scales_2d(weight, kFloatTypes));
  const int64_t num_groups = weight.scales.dim(0);
  TRY(check_tensor(weight, "scales", weight.scales, kFloatTypes, {num_groups, num_stored}));
  if (!weight.zeros.empty()) {
    TRY(check_tensor(weight, "zero points", weight.zeros, {DType::kI32},
                     {num_groups, num_stored / per_word}));
  }
  return check_group_index(weight, num_groups);
}

Status check_awq(const WeightView& weight) {
  TRY(check_rank2(weight));
  TRY(check_bits(weight, {4}));
  const int64_t num_stored = stored_outputs(weight);
  TRY(check_tensor(weight, "values", weight.values, {DType::kI32},
                   {weight.num_inputs, num_stored / 8}));
  TRY(check_group_size(weight));
  TRY(check_scales_2d(weight, kFloatTypes));
  const int64_t num_groups = weight.scales.dim(0);
  TRY(check_tensor(weight, "scales", weight.scales, kFloatTypes, {num_groups, num_stored}));
  if (!weight.zeros.empty()) {
    TRY(check_tensor(weight, "zero points", weight.zeros, {DType::kI32},
                     {num_groups, num_stored / 8}));
  }
  return check_group_index(weight, num_groups);
}

Status check_ct_packed(const WeightView& weight) {
  TRY(check_rank2(weight));
  TRY(check_bits(weight, {2, 4, 8}));
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const int64_t num_stored = stored_outputs(weight);
  TRY(check_tensor(weight, "values", weight.values, {DType::kI32},
                   {num_stored, divide_up(weight.num_inputs, per_word)}));
  TRY(check_output_major_scales(weight, kFloatTypes));
  if (weight.zeros.empty()) return {};
  return check_tensor(weight, "zero points", weight.zeros, {DType::kI32},
                      {divide_up(num_stored, per_word), num_scale_groups(weight)});
}

Status check_ct_int8(const WeightView& weight) {
  TRY(check_rank2(weight));
  TRY(check_tensor(weight, "values", weight.values, {DType::kI8},
                   {weight.values.dim(0), weight.num_inputs}));
  TRY(check_output_major_scales(weight, kFloatTypes));
  if (weight.zeros.empty()) return {};
  if (weight.scales.rank != 2) {
    return weight_error(weight, "has zero points but one scale for the whole weight");
  }
  return check_tensor(weight, "zero points", weight.zeros, {DType::kI8},
                      {weight.scales.dim(0), weight.scales.dim(1)});
}

Status check_float8(const WeightView& weight) {
  TRY(check_rank2(weight));
  TRY(check_tensor(weight, "values", weight.values, kFloat8Types,
                   {weight.values.dim(0), weight.num_inputs}));
  return check_output_major_scales(weight, kBlockScaleTypes);
}

// Two codes per byte: [N, K/2], or [N, K/32, 16] as gpt-oss stores its experts.
Status check_fp4(const WeightView& weight, int64_t group_size, DTypes scale_types) {
  if (weight.values.empty() || (weight.values.rank != 2 && weight.values.rank != 3)) {
    return weight_error(weight, fmt::format("has values of shape {}, needed are two or three "
                                            "dimensions",
                                            weight.values.shape_string()));
  }
  TRY(check_sizes(weight));
  if (weight.group_size != group_size || weight.num_inputs % group_size != 0) {
    return weight_error(weight,
                        fmt::format("has {} inputs in groups of {}, needed are groups of {}",
                                    weight.num_inputs, weight.group_size, group_size));
  }
  const int64_t num_stored = weight.values.dim(0);
  if (weight.values.rank == 2) {
    TRY(check_tensor(weight, "values", weight.values, {DType::kU8},
                     {num_stored, weight.num_inputs / 2}));
  } else {
    TRY(check_tensor(weight, "values", weight.values, {DType::kU8},
                     {num_stored, weight.num_inputs / group_size, group_size / 2}));
  }
  return check_tensor(weight, "scales", weight.scales, scale_types,
                      {num_stored, weight.num_inputs / group_size});
}

Status check_mxfp4(const WeightView& weight) { return check_fp4(weight, 32, kE8m0Types); }

Status check_nvfp4(const WeightView& weight) {
  TRY(check_fp4(weight, 16, {DType::kF8E4M3}));
  return check_tensor(weight, "global scale", weight.global_scale, {DType::kF32}, {1});
}

// ---- codes ----

void read_rows(const WeightView& weight, int64_t first, int64_t count, float* codes) {
  const DTypeRow& row = dtype_row(weight.values.dtype);
  const int64_t num_blocks = weight.num_inputs / row.block_elements;
  const int64_t row_bytes = num_blocks * row.block_bytes;
  if (weight.row_order.empty()) {
    row.dequantise(weight.values.data + first * row_bytes, count * num_blocks, codes);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    row.dequantise(weight.values.data + weight.stored_row(first + i) * row_bytes, num_blocks,
                   codes + i * weight.num_inputs);
  }
}

void read_transposed(const WeightView& weight, int64_t first, int64_t count, float* codes) {
  const DTypeRow& row = dtype_row(weight.values.dtype);
  const int64_t num_values = count * weight.num_inputs;
  std::vector<std::byte> values(static_cast<size_t>(num_values) * row.block_bytes);
  copy_columns(weight, first, count, values.data());
  row.dequantise(values.data(), num_values, codes);
}

// Inputs run along words, outputs along columns: words outside, so that cache lines are shared.
template <typename T>
void read_gptq(const WeightView& weight, int64_t first, int64_t count, T* codes) {
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const uint32_t mask = (1u << weight.bits) - 1;
  const int64_t num_columns = weight.values.dim(1);
  for (int64_t word = 0; word < weight.num_inputs / per_word; ++word) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = weight.stored_row(first + i);
      auto packed = load<uint32_t>(weight.values, word * num_columns + column);
      T* target = codes + i * weight.num_inputs + word * per_word;
      for (int64_t j = 0; j < per_word; ++j, packed >>= weight.bits) {
        target[j] = static_cast<T>(packed & mask);
      }
    }
  }
}

// Eight outputs share a word; nibble p holds output 0 2 4 6 1 3 5 7 [p].
uint32_t awq_nibble(uint32_t packed, int64_t output) {
  const int64_t position = output % 8 / 2 + output % 2 * 4;
  return packed >> (4 * position) & 15u;
}

template <typename T>
void read_awq(const WeightView& weight, int64_t first, int64_t count, T* codes) {
  const int64_t num_columns = weight.values.dim(1);
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = weight.stored_row(first + i);
      const auto packed = load<uint32_t>(weight.values, k * num_columns + row / 8);
      codes[i * weight.num_inputs + k] = static_cast<T>(awq_nibble(packed, row));
    }
  }
}

template <typename T>
void read_ct_packed(const WeightView& weight, int64_t first, int64_t count, T* codes) {
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const uint32_t mask = (1u << weight.bits) - 1;
  const int64_t num_words = weight.values.dim(1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = weight.stored_row(first + i);
    for (int64_t k = 0; k < weight.num_inputs; ++k) {
      const auto packed = load<uint32_t>(weight.values, row * num_words + k / per_word);
      codes[i * weight.num_inputs + k] =
          static_cast<T>(packed >> (k % per_word * weight.bits) & mask);
    }
  }
}

constexpr std::array<float, 16> kFp4Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                              4.0f,  6.0f,  0.0f,  -0.5f, -1.0f, -1.5f,
                                              -2.0f, -3.0f, -4.0f, -6.0f};

void read_fp4(const WeightView& weight, int64_t first, int64_t count, float* codes) {
  const int64_t row_bytes = weight.num_inputs / 2;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = weight.stored_row(first + i);
    float* target = codes + i * weight.num_inputs;
    for (int64_t j = 0; j < row_bytes; ++j) {
      const auto pair = load<uint8_t>(weight.values, row * row_bytes + j);
      target[2 * j] = kFp4Values[pair & 15];
      target[2 * j + 1] = kFp4Values[pair >> 4];
    }
  }
}

void read_fp4_indices(const WeightView& weight, int64_t first, int64_t count, uint8_t* codes) {
  const int64_t row_bytes = weight.num_inputs / 2;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = weight.stored_row(first + i);
    uint8_t* target = codes + i * weight.num_inputs;
    for (int64_t j = 0; j < row_bytes; ++j) {
      const auto pair = load<uint8_t>(weight.values, row * row_bytes + j);
      target[2 * j] = pair & 15;
      target[2 * j + 1] = static_cast<uint8_t>(pair >> 4);
    }
  }
}

// Rows of one byte per value, as they are but for the sign of integers.
void read_byte_rows(const WeightView& weight, int64_t first, int64_t count, uint8_t* codes) {
  const auto row_bytes = static_cast<size_t>(weight.num_inputs);
  const bool is_signed = weight.values.dtype == DType::kI8;
  CHECK(dtype_row(weight.values.dtype).block_bytes == 1, "{}: codes of {}", weight.name,
        dtype_name(weight.values.dtype));
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* target = codes + i * weight.num_inputs;
    std::memcpy(target,
                weight.values.data + static_cast<size_t>(weight.stored_row(first + i)) * row_bytes,
                row_bytes);
    if (!is_signed) continue;
    for (size_t k = 0; k < row_bytes; ++k) target[k] ^= kSignedByteOffset;
  }
}

// ---- zero points ----

float no_zero(const WeightView&, int64_t, int64_t) { return 0.0f; }

float middle_code(const WeightView& weight) { return static_cast<float>(1 << (weight.bits - 1)); }

float gptq_zero(const WeightView& weight, int64_t row, int64_t group) {
  if (weight.zeros.empty()) return middle_code(weight);
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const uint32_t mask = (1u << weight.bits) - 1;
  const auto packed = load<uint32_t>(weight.zeros, group * weight.zeros.dim(1) + row / per_word);
  const uint32_t stored = packed >> (row % per_word * weight.bits) & mask;
  // Version 1 stores zero - 1 and wraps around: a zero point of 0 is stored as all ones.
  return static_cast<float>((stored + (weight.zero_is_stored_minus_one ? 1u : 0u)) & mask);
}

float awq_zero(const WeightView& weight, int64_t row, int64_t group) {
  if (weight.zeros.empty()) return middle_code(weight);
  const auto packed = load<uint32_t>(weight.zeros, group * weight.zeros.dim(1) + row / 8);
  return static_cast<float>(awq_nibble(packed, row));
}

// Zero points are packed along the outputs.
float ct_packed_zero(const WeightView& weight, int64_t row, int64_t group) {
  if (weight.zeros.empty()) return middle_code(weight);
  const int64_t per_word = kSchemeWordBits / weight.bits;
  const auto packed = load<uint32_t>(weight.zeros, row / per_word * weight.zeros.dim(1) + group);
  const uint32_t mask = (1u << weight.bits) - 1;
  return static_cast<float>(packed >> (row % per_word * weight.bits) & mask);
}

float ct_int8_zero(const WeightView& weight, int64_t row, int64_t group) {
  if (weight.zeros.empty()) return 0.0f;
  if (weight.zeros.num_elements() == 1) return float_at(weight.zeros, 0);
  return float_at(weight.zeros, row * weight.zeros.dim(1) + group);
}

using enum WeightScheme;
// clang-format off
constexpr std::array<SchemeRow, static_cast<size_t>(kCount)> kSchemes = {{
    // scheme, name; columns are N, outputs per column, scales are group-major;
    // check, codes, codes as bytes, zeros
    {kDense,       "dense",              false, 1, false,
     check_dense, read_rows, read_byte_rows, no_zero},
    {kGptq,        "gptq",               true,  1, true,
     check_gptq, read_gptq, read_gptq, gptq_zero},
    {kAwq,         "awq",                true,  8, true,
     check_awq, read_awq, read_awq, awq_zero},
    {kCtPacked,    "ct-pack-quantized",  false, 1, false,
     check_ct_packed, read_ct_packed, read_ct_packed, ct_packed_zero},
    {kCtInt8,      "ct-int-quantized",   false, 1, false,
     check_ct_int8, read_rows, read_byte_rows, ct_int8_zero},
    {kCtFloat8,    "ct-float-quantized", false, 1, false,
     check_float8, read_rows, read_byte_rows, no_zero},
    {kFloat8Block, "fp8-block",          false, 1, false,
     check_float8, read_rows, read_byte_rows, no_zero},
    {kMxfp4,       "mxfp4",              false, 1, false,
     check_mxfp4, read_fp4, read_fp4_indices, no_zero},
    {kNvfp4,       "nvfp4",              false, 1, false,
     check_nvfp4, read_fp4, read_fp4_indices, no_zero},
    {kDenseTransposed, "dense-transposed", true, 1, false,
     check_dense_transposed, read_transposed, read_byte_rows, no_zero},
}};
// clang-format on

constexpr bool rows_are_in_enum_order() {
  for (size_t i = 0; i < kSchemes.size(); ++i) {
    if (static_cast<size_t>(kSchemes[i].scheme) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_enum_order());

}  // namespace

const SchemeRow& scheme_row(WeightScheme scheme) {
  const auto index = static_cast<size_t>(scheme);
  CHECK(index < kSchemes.size(), "weight scheme {}", index);
  return kSchemes[index];
}

std::string_view weight_scheme_name(WeightScheme scheme) { return scheme_row(scheme).name; }

void copy_columns(const WeightView& weight, int64_t first, int64_t count, std::byte* values) {
  const auto size = static_cast<int64_t>(dtype_row(weight.values.dtype).block_bytes);
  const int64_t num_inputs = weight.num_inputs, num_columns = weight.values.dim(1);
  for (int64_t k = 0; k < num_inputs; ++k) {
    const std::byte* stored = weight.values.data + k * num_columns * size;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(values + (i * num_inputs + k) * size,
                  stored + weight.stored_row(first + i) * size, static_cast<size_t>(size));
    }
  }
}

int64_t stored_outputs(const WeightView& weight) {
  return weight.values.dim(scheme_row(weight.scheme).columns_are_outputs ? 1 : 0) *
         scheme_row(weight.scheme).outputs_per_column;
}

size_t WeightView::stored_bytes() const {
  const int64_t num_stored = headrace::stored_outputs(*this);
  if (num_stored == 0) return 0;
  const auto share = static_cast<double>(num_outputs) / static_cast<double>(num_stored);
  const size_t total =
      values.num_bytes + scales.num_bytes + zeros.num_bytes + global_scale.num_bytes;
  return static_cast<size_t>(static_cast<double>(total) * share);
}

int64_t num_scale_groups(const WeightView& weight) {
  if (weight.scales.rank != 2) return 1;
  return weight.scales.dim(scheme_row(weight.scheme).scales_are_group_major ? 0 : 1);
}

int64_t group_of(const WeightView& weight, int64_t input) {
  if (weight.group_index.empty()) return input / weight.group_size;
  // Checked, but mapped: whatever is written to the file now must not lead out of bounds.
  return std::clamp<int64_t>(load<int32_t>(weight.group_index, input), 0,
                             num_scale_groups(weight) - 1);
}

float scale_at(const WeightView& weight, int64_t stored_row, int64_t group) {
  const TensorView& scales = weight.scales;
  int64_t index = 0;
  if (scheme_row(weight.scheme).scales_are_group_major) {
    index = group * scales.dim(1) + stored_row;
  } else if (scales.num_elements() > 1) {
    index = stored_row / weight.block_outputs * scales.dim(1) + group;
  }
  if (scales.dtype == DType::kU8) return e8m0_to_float(load<uint8_t>(scales, index));
  const float scale = float_at(scales, index);
  return weight.scheme == WeightScheme::kNvfp4 ? scale / global_scale_of(weight) : scale;
}

float global_scale_of(const WeightView& weight) { return load<float>(weight.global_scale, 0); }

Error weight_error(const WeightView& weight, const std::string& problem) {
  return make_error(ErrorCode::kCorrupt, "weight {} ({}) {}", quote(weight.name),
                    weight_scheme_name(weight.scheme), problem);
}

}  // namespace headrace
