#include "group_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/numeric.h"
#include "checkpoint/weight_rows.h"

namespace headrace {
namespace {

using enum WeightScheme;
constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16, kF32 = DType::kF32;

// clang-format off
constexpr GroupCase kCases[] = {
    // GPTQ always stores zero points.
    {"gptq4_g128",       kGptq,        4, 128, kF16,  true,  false, "int4_g128x16",  1.05},
    {"gptq4_g64",        kGptq,        4, 64,  kF16,  true,  false, "int4_g64x16",   1.05},
    {"gptq4_g32",        kGptq,        4, 32,  kF16,  true,  false, "int4_g32x16",   1.05},
    {"gptq4_row",        kGptq,        4, 0,   kF16,  true,  false, "int4_g128x16",  1.05},
    {"gptq4_act_order",  kGptq,        4, 128, kF16,  true,  true,  "int4_g128x16",  1.05},
    {"gptq4_act_g32",    kGptq,        4, 32,  kBF16, true,  true,  "int4_g32x16",   1.05},
    {"gptq8_g128",       kGptq,        8, 128, kF16,  true,  false, "int8_g128x16",  1.05},
    {"gptq8_g64",        kGptq,        8, 64,  kBF16, true,  false, "int8_g64x16",   1.05},
    {"gptq8_g32",        kGptq,        8, 32,  kF16,  true,  true,  "int8_g32x16",   1.06},
    {"gptq2_g128",       kGptq,        2, 128, kF16,  true,  false, "int2_g128x16",  1.05},
    {"gptq2_g64",        kGptq,        2, 64,  kF16,  true,  false, "int2_g64x16",   1.05},
    {"gptq2_g32",        kGptq,        2, 32,  kF16,  true,  false, "int2_g32x16",   1.08},
    {"awq_g128",         kAwq,         4, 128, kF16,  true,  false, "int4_g128x16",  1.05},
    {"awq_g64",          kAwq,         4, 64,  kF16,  true,  false, "int4_g64x16",   1.05},
    {"awq_g32_f32",      kAwq,         4, 32,  kF32,  true,  false, "int4w_g32x16",  1.05},
    {"ct4_g128",         kCtPacked,    4, 128, kBF16, false, false, "int4_g128x16",  1.05},
    {"ct4_g32_asym",     kCtPacked,    4, 32,  kBF16, true,  false, "int4_g32x16",   1.05},
    {"ct4_row",          kCtPacked,    4, 0,   kBF16, false, false, "int4_g128x16",  1.05},
    {"ct4_g128_f32",     kCtPacked,    4, 128, kF32,  true,  false, "int4w_g128x16", 1.05},
    {"ct4_g64_f32",      kCtPacked,    4, 64,  kF32,  false, false, "int4w_g64x16",  1.05},
    {"ct8_g128",         kCtPacked,    8, 128, kBF16, false, false, "int8_g128x16",  1.05},
    {"ct8_g256_f32",     kCtPacked,    8, 256, kF32,  true,  false, "int8_g128x16",  1.05},
    {"ct2_g128",         kCtPacked,    2, 128, kBF16, false, false, "int2_g128x16",  1.05},
    {"int8_row",         kCtInt8,      8, 0,   kBF16, false, false, "int8_g128x16",  1.05},
    {"int8_row_asym",    kCtInt8,      8, 0,   kF32,  true,  false, "int8_g128x16",  1.05},
    {"int8_g64",         kCtInt8,      8, 64,  kF32,  true,  false, "int8_g64x16",   1.05},
    {"fp8_row",          kCtFloat8,    8, 0,   kBF16, false, false, "e4m3x16",       1.05},
    {"fp8_block",        kFloat8Block, 8, 128, kF32,  false, false, "e4m3x16",       1.05},
    {"mxfp4",            kMxfp4,       4, 32,  DType::kU8,     false, false, "mxfp4x16", 1.0},
    {"nvfp4",            kNvfp4,       4, 16,  DType::kF8E4M3, false, false, "nvfp4x16", 1.05},
};
// clang-format on

class Builder {
 public:
  Builder(GroupWeight* weight, Random* random) : weight_(weight), random_(random) {}

  TensorView bytes(DType dtype, std::initializer_list<int64_t> shape, size_t num_bytes) {
    std::vector<std::byte>& data = weight_->tensors.emplace_back(num_bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>((*random_)() & 0xFF);
    TensorView view;
    view.data = data.data();
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape.begin());
    view.num_bytes = num_bytes;
    return view;
  }

  TensorView words(int64_t rows, int64_t columns) {
    return bytes(DType::kI32, {rows, columns}, static_cast<size_t>(rows * columns) * 4);
  }

  TensorView scales(DType dtype, int64_t rows, int64_t columns) {
    const size_t width = dtype_row(dtype).block_bytes;
    const TensorView view =
        bytes(dtype, {rows, columns}, static_cast<size_t>(rows * columns) * width);
    std::byte* at = weight_->tensors.back().data();
    for (int64_t i = 0; i < rows * columns; ++i, at += width) put_scale(dtype, at, random_scale());
    return view;
  }

 private:
  float random_scale() { return 0.001f + 0x1p-22f * static_cast<float>((*random_)() % 65536); }

  void put_scale(DType dtype, std::byte* at, float value) {
    const uint32_t bits = float_to_bits(value);
    const uint16_t half = dtype == kF16 ? float_to_f16(value) : float_to_bf16(value);
    if (dtype == kF32) std::memcpy(at, &bits, sizeof(bits));
    if (dtype == kF16 || dtype == kBF16) std::memcpy(at, &half, sizeof(half));
    if (dtype == DType::kU8) *at = static_cast<std::byte>(118 + (*random_)() % 8);
    if (dtype == DType::kF8E4M3) *at = static_cast<std::byte>((*random_)() % 0x7F);
  }

  GroupWeight* weight_;
  Random* random_;
};

// [groups, outputs] or [outputs, groups] as the scheme has it; values and zero points.
void fill_integers(const GroupCase& info, int64_t outputs, int64_t inputs, Builder& build,
                   WeightView* view) {
  const int64_t groups = (inputs + view->group_size - 1) / view->group_size;
  const int64_t per_word = 32 / info.bits;
  if (info.scheme == kGptq || info.scheme == kAwq) {
    view->values = info.scheme == kGptq ? build.words(inputs / per_word, outputs)
                                        : build.words(inputs, outputs / 8);
    if (info.has_zeros) view->zeros = build.words(groups, outputs / per_word);
    view->scales = build.scales(info.scale_dtype, groups, outputs);
    return;
  }
  if (info.scheme == kCtPacked) {
    view->values = build.words(outputs, (inputs + per_word - 1) / per_word);
    if (info.has_zeros) view->zeros = build.words((outputs + per_word - 1) / per_word, groups);
  } else {
    view->values =
        build.bytes(DType::kI8, {outputs, inputs}, static_cast<size_t>(outputs * inputs));
    if (info.has_zeros) {
      view->zeros =
          build.bytes(DType::kI8, {outputs, groups}, static_cast<size_t>(outputs * groups));
    }
  }
  view->scales = build.scales(info.scale_dtype, outputs, groups);
}

void fill_floats(const GroupCase& info, int64_t outputs, int64_t inputs, Builder& build,
                 GroupWeight* weight) {
  WeightView& view = weight->view;
  const int64_t groups = (inputs + view.group_size - 1) / view.group_size;
  if (info.bits == 8) {
    const auto count = static_cast<size_t>(outputs * inputs);
    view.values = build.bytes(DType::kF8E4M3, {outputs, inputs}, count);
    for (std::byte& code : weight->tensors.back()) {
      if ((code & std::byte{0x7F}) == std::byte{0x7F}) code = std::byte{0x11};  // not NaN
    }
    view.block_outputs = info.scheme == kFloat8Block ? 128 : 1;
    view.scales = build.scales(info.scale_dtype,
                               (outputs + view.block_outputs - 1) / view.block_outputs, groups);
    return;
  }
  view.values =
      build.bytes(DType::kU8, {outputs, inputs / 2}, static_cast<size_t>(outputs * inputs / 2));
  view.scales = build.scales(info.scale_dtype, outputs, groups);
  if (info.scheme != kNvfp4) return;
  view.global_scale = build.bytes(DType::kF32, {1}, sizeof(float));
  const float divisor = 2688.7f;
  std::memcpy(weight->tensors.back().data(), &divisor, sizeof(divisor));
}

// Inputs dealt to the groups at random, each group as large as without.
void permute(int64_t inputs, Random& random, Builder& build, GroupWeight* weight) {
  std::vector<int32_t> groups(static_cast<size_t>(inputs));
  for (size_t k = 0; k < groups.size(); ++k) {
    groups[k] = static_cast<int32_t>(static_cast<int64_t>(k) / weight->view.group_size);
  }
  std::shuffle(groups.begin(), groups.end(), random);
  weight->view.group_index = build.bytes(DType::kI32, {inputs}, groups.size() * sizeof(int32_t));
  std::memcpy(weight->tensors.back().data(), groups.data(), groups.size() * sizeof(int32_t));
}

void read_values(GroupWeight* weight) {
  const WeightView& view = weight->view;
  weight->values.resize(static_cast<size_t>(view.num_outputs * view.num_inputs));
  dequantise_rows(view, 0, view.num_outputs, weight->values.data());
}

}  // namespace

std::span<const GroupCase> group_cases() { return kCases; }

std::unique_ptr<GroupWeight> group_weight(const GroupCase& info, int64_t num_outputs,
                                          int64_t num_inputs, Random& random) {
  auto weight = std::make_unique<GroupWeight>();
  Builder build(weight.get(), &random);
  WeightView& view = weight->view;
  view.scheme = info.scheme;
  view.name = info.name;
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  view.bits = info.bits;
  view.group_size = info.group_size == 0 ? num_inputs : std::min(info.group_size, num_inputs);
  const bool integers = info.scheme == kGptq || info.scheme == kAwq || info.scheme == kCtPacked ||
                        info.scheme == kCtInt8;
  if (integers) {
    fill_integers(info, num_outputs, num_inputs, build, &view);
  } else {
    fill_floats(info, num_outputs, num_inputs, build, weight.get());
  }
  if (info.permuted) permute(num_inputs, random, build, weight.get());
  const Status status = validate_weight(view);
  EXPECT_TRUE(status.ok()) << info.name << ": " << (status.ok() ? "" : status.error().message);
  read_values(weight.get());
  return weight;
}

void take_rows(GroupWeight* weight, int64_t first, int64_t count) {
  weight->view = slice_rows(weight->view, first, count);
  read_values(weight);
}

}  // namespace headrace
