// WeightView: one logical linear weight [N outputs, K inputs], however a file spreads it.
//
// Most formats hold a weight in one tensor (scheme kDense; the tensor's dtype may be a block
// format). Quantised safetensors spread it over several tensors: values, scales, zero points, group
// index. A row of the scheme table knows how to read each. Views live as long as the checkpoint.
// Of every scheme but the dense ones the value is scale * (code - zero), computed once in float32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace headrace {

enum class WeightScheme : uint8_t {
  kDense,  // values [N, K] in values.dtype
  kGptq,   // qweight [K*bits/32, N], qzeros [G, N*bits/32], scales [G, N], g_idx [K]
  kAwq,    // qweight [K, N/8], 4 bits, qzeros [G, N/8], scales [G, N]; nibble order 0 2 4 6 1 3 5 7
  kCtPacked,     // compressed-tensors pack-quantized: weight_packed [N, K*bits/32], group scales
  kCtInt8,       // int8 values, channel or tensor scale
  kCtFloat8,     // fp8 values, channel or tensor scale
  kFloat8Block,  // fp8 values, float scale per 128 x 128 block (weight_scale_inv)
  kMxfp4,        // fp4 pairs [N, K/2] or [N, K/32, 16], e8m0 scale per 32
  kNvfp4,        // fp4 pairs [N, K/2], fp8 scale per 16, divided by one global scale
  kDenseTransposed,  // values [K, N] in values.dtype: F32, F16 or BF16
  kCount,
};

struct WeightView {
  WeightScheme scheme = WeightScheme::kDense;
  std::string name;  // for messages: "model.layers.0.self_attn.q_proj"
  int64_t num_outputs = 0;
  int64_t num_inputs = 0;
  TensorView values;
  TensorView scales;
  TensorView zeros;           // empty: symmetric
  TensorView group_index;     // GPTQ act-order: group of each input, empty: k / group_size
  TensorView global_scale;    // NVFP4, or GGUF's NAME.scale
  int bits = 0;               // of packed integers
  int64_t group_size = 0;     // inputs per scale; == num_inputs: one scale per output
  int64_t block_outputs = 1;  // stored rows per scale: 128 for kFloat8Block
  bool zero_is_stored_minus_one = false;  // GPTQ v1
  // Row i of this view is stored row row_order[i]; empty: as stored. Undoes what a converter did
  // (GGUF permutes q and k rows), and selects rows of fused tensors.
  std::vector<int32_t> row_order;

  int64_t stored_row(int64_t row) const {
    return row_order.empty() ? row : row_order[static_cast<size_t>(row)];
  }
  // Bytes that decoding one token must stream: values, scales, zeros.
  size_t stored_bytes() const;
};

int64_t num_scale_groups(const WeightView& weight);
// Group of an input: its index in what read_group_factors writes.
int64_t group_of(const WeightView& weight, int64_t input);
// Rows as the file holds them; what row_order indexes.
int64_t stored_outputs(const WeightView& weight);

// Values as they are, without scales of groups.
inline bool is_dense(WeightScheme scheme) {
  return scheme == WeightScheme::kDense || scheme == WeightScheme::kDenseTransposed;
}
std::string_view weight_scheme_name(WeightScheme scheme);

}  // namespace headrace
