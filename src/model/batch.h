// Batch: the model's input for one step, and where its output goes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace headrace {

struct Batch {
  std::span<const int32_t> token_ids;   // [M]
  std::span<const Span> spans;          // cover rows 0..M-1 in order
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // Rows of which only the best token is wanted, ascending. Nothing is written for them but that.
  std::span<const int32_t> best_rows = {};
  // Rows whose state after the final norm is wanted, ascending.
  std::span<const int32_t> hidden_rows = {};
};

// There when Backend::synchronize() has returned, or the logits are asked for.
struct StepOutput {
  StepOutput(DevicePtr<float> rows) : logits(rows) {}  // a step without best_rows
  StepOutput(DevicePtr<float> rows, BestOutput* best_outputs, bool* finite_rows = nullptr)
      : logits(rows), best(best_outputs), finite(finite_rows) {}

  DevicePtr<float> logits;     // [num logit_rows, vocab_size]
  BestOutput* best = nullptr;  // [num best_rows]
  // [M] whether all that the last layer gave this row is finite; null: not wanted. What is not
  // finite in any layer stays so in the row, so that K and V of a finite row are finite too.
  bool* finite = nullptr;
  DevicePtr<float> hidden = nullptr;  // [num hidden_rows, hidden_size]
  // Called when the last op is about to end, if then somebody else computes (call_near_end).
  std::function<void()> near_end = {};
};

// Sees the residual stream: layer -1 = embeddings, i = after layer i, num_layers = after final
// norm.
using HiddenTap =
    std::function<void(int layer, const float* hidden, int64_t num_rows, int64_t width)>;

}  // namespace headrace
