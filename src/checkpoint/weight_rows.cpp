#include "checkpoint/weight_rows.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "checkpoint/weight_scheme.h"

namespace headrace {
namespace {

// scale * (code - zero) for one row of codes; `row` is the stored row.
void apply_scales(const WeightView& weight, const SchemeRow& scheme, int64_t row, float* values) {
  const int64_t num_groups = num_scale_groups(weight);
  std::vector<float> scales(static_cast<size_t>(num_groups));
  std::vector<float> zeros(static_cast<size_t>(num_groups));
  for (int64_t group = 0; group < num_groups; ++group) {
    scales[static_cast<size_t>(group)] = scale_at(weight, row, group);
    zeros[static_cast<size_t>(group)] = scheme.zero_at(weight, row, group);
  }
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    const auto group = static_cast<size_t>(group_of(weight, k));
    values[k] = scales[group] * (values[k] - zeros[group]);
  }
}

}  // namespace

Status validate_weight(const WeightView& weight) {
  const SchemeRow& scheme = scheme_row(weight.scheme);
  TRY(scheme.check(weight));
  const int64_t num_stored = stored_outputs(weight);
  if (weight.row_order.empty() && weight.num_outputs != num_stored) {
    return weight_error(
        weight, fmt::format("has {} outputs, needed are {}", num_stored, weight.num_outputs));
  }
  if (!weight.row_order.empty() &&
      static_cast<int64_t>(weight.row_order.size()) != weight.num_outputs) {
    return weight_error(weight, fmt::format("has a row order of {} rows, needed are {}",
                                            weight.row_order.size(), weight.num_outputs));
  }
  for (const int32_t row : weight.row_order) {
    if (row < 0 || row >= num_stored) {
      return weight_error(
          weight, fmt::format("has row {} in its row order, stored are {} rows", row, num_stored));
    }
  }
  return {};
}

void dequantise_rows(const WeightView& weight, int64_t first, int64_t count, float* values) {
  CHECK(first >= 0 && count >= 0 && first + count <= weight.num_outputs, "rows {} + {} of {}",
        first, count, weight.num_outputs);
  const SchemeRow& scheme = scheme_row(weight.scheme);
  scheme.read_codes(weight, first, count, values);
  if (is_dense(weight.scheme)) {
    if (weight.global_scale.empty()) return;
    const float scale = global_scale_of(weight);
    for (int64_t i = 0; i < count * weight.num_inputs; ++i) values[i] *= scale;
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    apply_scales(weight, scheme, weight.stored_row(first + i), values + i * weight.num_inputs);
  }
}

void read_codes(const WeightView& weight, int64_t first, int64_t count, uint8_t* codes) {
  CHECK(first >= 0 && count >= 0 && first + count <= weight.num_outputs, "rows {} + {} of {}",
        first, count, weight.num_outputs);
  scheme_row(weight.scheme).read_bytes(weight, first, count, codes);
}

void read_group_factors(const WeightView& weight, int64_t row, float* scales, float* zeros) {
  const SchemeRow& scheme = scheme_row(weight.scheme);
  CHECK(!is_dense(weight.scheme), "{} has no groups", weight.name);
  const int64_t stored_row = weight.stored_row(row);
  const float offset = weight.values.dtype == DType::kI8 ? kSignedByteOffset : 0;
  for (int64_t group = 0; group < num_scale_groups(weight); ++group) {
    scales[group] = scale_at(weight, stored_row, group);
    zeros[group] = scheme.zero_at(weight, stored_row, group) + offset;
  }
}

void read_halves(const WeightView& weight, int64_t first, int64_t count, uint16_t* values) {
  CHECK(first >= 0 && count >= 0 && first + count <= weight.num_outputs, "rows {} + {} of {}",
        first, count, weight.num_outputs);
  CHECK(is_dense(weight.scheme) && dtype_row(weight.values.dtype).block_bytes == 2,
        "{}: halves of {}", weight.name, dtype_name(weight.values.dtype));
  const int64_t num_inputs = weight.num_inputs;
  if (weight.scheme == WeightScheme::kDenseTransposed) {
    return copy_columns(weight, first, count, reinterpret_cast<std::byte*>(values));
  }
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(values + i * num_inputs,
                weight.values.data + weight.stored_row(first + i) * num_inputs * 2,
                static_cast<size_t>(num_inputs) * 2);
  }
}

Result<WeightView> as_transposed(const WeightView& weight) {
  if (weight.scheme != WeightScheme::kDense) return weight;
  WeightView transposed = weight;
  transposed.scheme = WeightScheme::kDenseTransposed;
  std::swap(transposed.num_outputs, transposed.num_inputs);
  transposed.group_size = transposed.num_inputs;
  TRY(validate_weight(transposed));
  return transposed;
}

WeightView slice_rows(const WeightView& weight, int64_t first, int64_t count) {
  CHECK(first >= 0 && count >= 0 && first + count <= weight.num_outputs, "rows {} + {} of {}",
        first, count, weight.num_outputs);
  WeightView slice = weight;
  slice.num_outputs = count;
  if (!weight.row_order.empty()) {
    slice.row_order.assign(weight.row_order.begin() + first,
                           weight.row_order.begin() + first + count);
  } else if (weight.scheme == WeightScheme::kDense) {
    const size_t row_bytes = weight.values.num_bytes / static_cast<size_t>(weight.values.dim(0));
    slice.values.data += static_cast<size_t>(first) * row_bytes;
    slice.values.num_bytes = static_cast<size_t>(count) * row_bytes;
    slice.values.shape[0] = count;
  } else {
    slice.row_order.resize(static_cast<size_t>(count));
    std::iota(slice.row_order.begin(), slice.row_order.end(), static_cast<int32_t>(first));
  }
  return slice;
}

}  // namespace headrace
