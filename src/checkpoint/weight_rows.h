// Rows of a weight as numbers: checked once, then read as float32 or as the codes of the file.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "checkpoint/weight_view.h"

namespace headrace {

// Checks every shape, dtype and group index against the scheme's definition: after this returns ok,
// reading any row is in bounds. Names the tensor, what was found and what is needed.
Status validate_weight(const WeightView& weight);

// Writes rows [first, first + count) as float32 [count, K], exactly as the format defines. Only for
// a view that validate_weight accepted. Thread-safe; larger counts read column-major layouts (GPTQ,
// AWQ) with fewer cache misses.
void dequantise_rows(const WeightView& weight, int64_t first, int64_t count, float* values);

// For layouts that keep the codes of the file. Codes of rows [first, first + count) as bytes
// [count, K]: unsigned integers (kCtInt8: plus 128), bits of fp8 values, indices of fp4 values. Of
// kDense only the formats of one byte per value have codes. As dequantise_rows otherwise.
void read_codes(const WeightView& weight, int64_t first, int64_t count, uint8_t* codes);

// Scale and zero point (of the codes of read_codes) of one row in each group. Not for kDense.
void read_group_factors(const WeightView& weight, int64_t row, float* scales, float* zeros);

// Values of rows [first, first + count) as they are stored, two bytes each [count, K]: of F16 and
// BF16, dense or transposed.
void read_halves(const WeightView& weight, int64_t first, int64_t count, uint16_t* values);

// A plain weight that the file holds as [inputs, outputs]; other schemes say themselves how they
// are stored and stay as they are. kUnsupported unless it is of F32, F16 or BF16.
Result<WeightView> as_transposed(const WeightView& weight);

// The view restricted to rows [first, first + count): one of q, k, v in a fused tensor.
WeightView slice_rows(const WeightView& weight, int64_t first, int64_t count);

}  // namespace headrace
