#include "model/weight_transpose.h"

#include <cstring>
#include <vector>

#include "base/numeric.h"
#include "checkpoint/weight_rows.h"

namespace headrace {
namespace {

DType transposed_type(const WeightView& weight) {
  const DType type = weight.values.dtype;
  const bool dense =
      weight.scheme == WeightScheme::kDense && weight.scales.empty() && weight.global_scale.empty();
  return dense && (type == DType::kBF16 || type == DType::kF16) ? type : DType::kF32;
}

void store(DType type, float value, std::byte* at) {
  if (type == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t half = type == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
  std::memcpy(at, &half, sizeof(half));
}

}  // namespace

WeightView transposed_view(const WeightView& weight) {
  WeightView view;
  view.name = weight.name;
  view.num_outputs = weight.num_inputs;
  view.num_inputs = weight.num_outputs;
  view.group_size = view.num_inputs;
  view.values.dtype = transposed_type(weight);
  view.values.rank = 2;
  view.values.shape = {view.num_outputs, view.num_inputs};
  const size_t element = view.values.dtype == DType::kF32 ? sizeof(float) : sizeof(uint16_t);
  view.values.num_bytes = static_cast<size_t>(view.num_outputs * view.num_inputs) * element;
  return view;
}

void transpose_weight(const WeightView& weight, std::span<std::byte> out) {
  const DType type = transposed_type(weight);
  const int64_t rows = weight.num_outputs, columns = weight.num_inputs;
  const size_t element = out.size() / static_cast<size_t>(rows * columns);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  dequantise_rows(weight, 0, rows, values.data());
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      store(type, values[static_cast<size_t>(row * columns + column)],
            out.data() + static_cast<size_t>(column * rows + row) * element);
    }
  }
}

}  // namespace headrace
