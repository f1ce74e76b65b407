// Random weights in every quantised layout of safetensors.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/weight_view.h"
#include "kernel_cases.h"

namespace headrace {

struct GroupCase {
  const char* name;
  WeightScheme scheme;
  int bits;
  int64_t group_size;  // 0: the whole row
  DType scale_dtype;
  bool has_zeros;
  bool permuted;          // GPTQ act-order: inputs belong to groups in random order
  const char* layout;     // that keeps its codes
  double max_size_ratio;  // packed to stored bytes, both dimensions multiples of every tile
};

std::span<const GroupCase> group_cases();

struct GroupWeight {
  WeightView view;
  std::deque<std::vector<std::byte>> tensors;
  std::vector<float> values;  // [N, K], from dequantise_rows
};

// num_outputs is a multiple of 16, num_inputs of 32.
std::unique_ptr<GroupWeight> group_weight(const GroupCase& group_case, int64_t num_outputs,
                                          int64_t num_inputs, Random& random);

// The same weight with these rows alone.
void take_rows(GroupWeight* weight, int64_t first, int64_t count);

}  // namespace headrace
