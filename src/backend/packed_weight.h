// Weights in the layouts that a backend's kernels read, and what adapters make of them: as it is
// read (WeightDelta), and as ops read it (PackedAdapter).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/device_memory.h"

namespace headrace {

// What a weight is for; decides how its rows are laid out.
enum class WeightRole : uint8_t {
  kLinear,     // y = x W^T; several parts are stacked by rows (q, k, v)
  kGateUp,     // exactly two parts of N rows each, gate then up: read by gated_linear only
  kEmbedding,  // rows read by id (embed); also usable by linear, as a tied head
  kRouter,     // as kLinear, but float32 in every mode: its sums decide who computes
};

// How the parts of a weight are laid out. With experts, `parts` are those of the first, then as
// many of the second, and so on; each expert is a weight of its own, at a 64-byte boundary.
struct PackForm {
  PackForm(WeightRole use, int64_t experts = 1) : role(use), num_experts(experts) {}

  WeightRole role;
  int64_t num_experts;
};

// A weight in the layout its kernels read. Immutable after packing.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t num_experts() const { return 1; }
  // One expert, as ops take it; a weight without experts is expert 0 itself.
  virtual const PackedWeight& expert(int64_t /*index*/) const { return *this; }
  virtual int64_t num_outputs() const = 0;      // N over all parts (kGateUp: 2 I), of one expert
  virtual int64_t num_inputs() const = 0;       // K
  virtual size_t num_bytes() const = 0;         // as packed
  virtual std::string_view layout() const = 0;  // row of the layout table, for --list-kernels
};

// What an adapter makes of a weight W, as float32 in host memory. Outputs [first_output,
// first_output + num_outputs) of y = x W^T become
//   factors * (y + scale * (x A^T) B^T) + bias
// where factors are magnitudes / (norms of the rows of W + scale * B A), and 1 without magnitudes.
// Of a table whose rows are looked up (embed), row i gets scale * B A[:, i]; it has no magnitudes
// and no bias.
struct WeightDelta {
  const PackedWeight* weight = nullptr;  // with experts: one of them
  bool of_table = false;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t rank = 0;
  float scale = 1.0f;
  std::span<const float> a = {};           // [rank, K]; of a table [rank, N]
  std::span<const float> b = {};           // [num_outputs, rank]; of a table [K, rank]
  std::span<const float> magnitudes = {};  // [num_outputs] or empty
  std::span<const float> bias = {};        // [num_outputs] or empty
  // Of the weight's own bias, which `bias` takes the place of; null: it is added to what there is.
  DevicePtr<const float> replaced_bias = {};  // [num_outputs]
  std::span<const float> replacement = {};    // [N, K] in the place of W, or empty
};

// An adapter in the form that ops read. Immutable. What it was made for outlives it.
class PackedAdapter {
 public:
  virtual ~PackedAdapter() = default;
  virtual size_t num_bytes() const = 0;
};

}  // namespace headrace
