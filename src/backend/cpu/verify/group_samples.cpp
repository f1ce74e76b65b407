// Samples of the layouts that quantised safetensors keep their codes in.

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/verify/samples.h"
#include "base/numeric.h"
#include "checkpoint/weight_rows.h"

namespace headrace::cpu {
namespace {

constexpr int kMaxGroup = 128;  // inputs of a group that has a layout

// Formats of scales in turn, but where a layout is taken for float32 ones alone.
DType scale_dtype_of(const LayoutInfo& info) {
  if (info.sub_float != 0) return DType::kF8E4M3;
  const bool is_odd = static_cast<int>(info.layout) % 2 != 0;
  if (info.split_scale != 0) return is_odd ? DType::kF16 : DType::kBF16;
  return info.low_bits == 8 && !is_odd ? DType::kBF16 : DType::kF32;
}

TensorView random_tensor(SampleWeight* weight, DType dtype, int64_t rows, int64_t columns,
                         Random& random) {
  const auto num_bytes = static_cast<size_t>(rows * columns) * dtype_row(dtype).block_bytes;
  std::vector<std::byte>& bytes = weight->tensors.emplace_back(num_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  TensorView view;
  view.data = bytes.data();
  view.dtype = dtype;
  view.rank = 2;
  view.shape = {rows, columns};
  view.num_bytes = num_bytes;
  return view;
}

void put_scale(DType dtype, std::byte* at, float value) {
  const uint32_t bits = float_to_bits(value);
  const uint16_t half = dtype == DType::kF16 ? float_to_f16(value) : float_to_bf16(value);
  if (dtype == DType::kF32) {
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    std::memcpy(at, &half, sizeof(half));
  }
}

std::byte float8_scale(WeightSample sample, Random& random) {
  constexpr uint8_t kExtremes[] = {0, 1, 7, 8, 0x7E, 0x81, 0xFE};
  if (sample == WeightSample::kWhole) return std::byte{0x38};  // 1
  if (sample == WeightSample::kExtreme)
    return std::byte{kExtremes[random() % std::size(kExtremes)]};
  return static_cast<std::byte>(random() % 0x7F);
}

TensorView sample_scales(SampleWeight* weight, DType dtype, int64_t columns, WeightSample sample,
                         Random& random) {
  const TensorView view = random_tensor(weight, dtype, weight->view.num_outputs, columns, random);
  std::vector<std::byte>& bytes = weight->tensors.back();
  const size_t width = dtype_row(dtype).block_bytes;
  for (size_t i = 0; i < bytes.size(); i += width) {
    if (dtype == DType::kF8E4M3) {
      bytes[i] = float8_scale(sample, random);
    } else {
      put_scale(dtype, bytes.data() + i, sample_factor(sample, random));
    }
  }
  return view;
}

}  // namespace

int64_t group_inputs(Layout layout, int64_t inputs) {
  const LayoutInfo& info = layout_info(layout);
  // With one group a row would take the layout of the largest groups.
  const int64_t least =
      info.zero_bytes == 0 || info.block_inputs == kMaxGroup ? 1 : int64_t{2} * info.block_inputs;
  inputs = std::max(inputs, least);
  return (inputs + kActivationBlock - 1) / kActivationBlock * kActivationBlock;
}

std::unique_ptr<SampleWeight> sample_group_weight(Layout layout, WeightSample sample,
                                                  int64_t num_outputs, int64_t num_inputs,
                                                  Random& random) {
  const LayoutInfo& info = layout_info(layout);
  auto weight = std::make_unique<SampleWeight>();
  WeightView& view = weight->view;
  view.name = "sample";
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  view.bits = info.low_bits;
  if (info.sub_float != 0) {
    view.scheme = WeightScheme::kNvfp4;
    view.group_size = 16;
    view.values = random_tensor(weight.get(), DType::kU8, num_outputs, num_inputs / 2, random);
    view.global_scale = random_tensor(weight.get(), DType::kF32, 1, 1, random);
    put_scale(DType::kF32, weight->tensors.back().data(),
              sample == WeightSample::kWhole ? 0.5f : 2687.3f);
  } else {
    const int64_t per_word = 32 / info.low_bits;
    view.scheme = WeightScheme::kCtPacked;
    view.group_size = std::min<int64_t>(info.block_inputs, num_inputs);
    view.values = random_tensor(weight.get(), DType::kI32, num_outputs,
                                (num_inputs + per_word - 1) / per_word, random);
    view.zeros = random_tensor(weight.get(), DType::kI32, (num_outputs + per_word - 1) / per_word,
                               (num_inputs + view.group_size - 1) / view.group_size, random);
  }
  const int64_t num_groups = (num_inputs + view.group_size - 1) / view.group_size;
  view.scales = sample_scales(weight.get(), scale_dtype_of(info), num_groups, sample, random);
  weight->values.resize(static_cast<size_t>(num_outputs * num_inputs));
  dequantise_rows(view, 0, num_outputs, weight->values.data());
  return weight;
}

}  // namespace headrace::cpu
