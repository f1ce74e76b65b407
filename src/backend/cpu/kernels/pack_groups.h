// Pack groups: quantised safetensors as layouts that keep their codes (layouts: kernels.h).
//
// Integers by groups with scales and zero points, 8-bit floats with scales, 4-bit floats. What has
// no such layout (inputs that are no multiple of 32, groups of other sizes, scales of absurd size)
// is packed as its exact float32 values instead. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "base/result.h"
#include "checkpoint/weight_view.h"

namespace headrace::cpu {

// Inputs in order of their groups, stable, where the file has them in another order (GPTQ
// act-order); else empty. Position i of the packed weight is input order[i].
std::vector<int32_t> input_order(const WeightView& weight);

// The layout that keeps the weight's codes with its inputs in this order; kF32: none does.
Layout group_layout(const WeightView& weight, std::span<const int32_t> order);

// Refuses scales that the layout cannot hold: e8m0 NaN. Reads all of them.
Status check_group_scales(const WeightView& weight, Layout layout);

struct GroupScratch {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> ordered;  // codes of one row
  std::vector<float> scales, zeros;
};

// Rows [first_row, first_row + lanes) as lanes [first_lane, ..) of a panel that is zero there.
struct GroupRows {
  int64_t first_row;
  int lanes;
  int first_lane;
};
void pack_groups(const WeightView& weight, Layout layout, std::span<const int32_t> order,
                 const GroupRows& rows, GroupScratch& scratch, uint8_t* panel);

}  // namespace headrace::cpu
