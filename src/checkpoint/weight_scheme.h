// The table of weight schemes: how each layout is checked and read. Used by weight_view.cpp only.
//
// Every function but `check` expects a view that `check` accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/weight_view.h"

namespace headrace {

struct SchemeRow {
  WeightScheme scheme;
  std::string_view name;
  // Where the stored outputs are: dimension 1 or 0 of `values`, this many per column.
  bool columns_are_outputs;
  int outputs_per_column;
  // Where the scales are: [groups, outputs] or [outputs, groups].
  bool scales_are_group_major;
  Status (*check)(const WeightView& weight);
  // Codes (for kDense: values) of rows [first, first + count) as floats [count, K].
  void (*read_codes)(const WeightView& weight, int64_t first, int64_t count, float* codes);
  // The codes as bytes; see headrace::read_codes.
  void (*read_bytes)(const WeightView& weight, int64_t first, int64_t count, uint8_t* codes);
  // Zero point of a stored row in a group; 0 where the codes are signed.
  float (*zero_at)(const WeightView& weight, int64_t stored_row, int64_t group);
};

// What read_bytes adds to codes that are signed bytes.
inline constexpr int kSignedByteOffset = 128;

const SchemeRow& scheme_row(WeightScheme scheme);

// NVFP4: already divided by the global scale.
float scale_at(const WeightView& weight, int64_t stored_row, int64_t group);
float global_scale_of(const WeightView& weight);

// Of kDenseTransposed: rows [first, first + count) as stored values [count, K], side by side.
void copy_columns(const WeightView& weight, int64_t first, int64_t count, std::byte* values);

// kCorrupt: "weight 'NAME' (SCHEME) PROBLEM".
Error weight_error(const WeightView& weight, const std::string& problem);

}  // namespace headrace
