// Batch: the model's input for one step, and where its output goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace headrace {

// Consecutive tokens of one sequence. Its earlier positions are in the KV store already.
struct BatchSpan {
  int32_t first_row = 0;  // row of the batch where this span starts
  int32_t num_rows = 0;
  int64_t first_position = 0;            // absolute position of the first token
  const int32_t* block_table = nullptr;  // covers position first_position + num_rows - 1
  int64_t rope_epoch = 0;                // Model::rope_epoch(tokens known of this sequence)
};

struct Batch {
  std::span<const int32_t> token_ids;   // [M]
  std::span<const BatchSpan> spans;     // cover rows 0..M-1 in order
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // Rows of which only the best token is wanted, ascending. Nothing is written for them but that.
  std::span<const int32_t> best_rows = {};
};

struct StepOutput {
  StepOutput(float* rows) : logits(rows) {}  // a step without best_rows
  StepOutput(float* rows, BestOutput* best_outputs, bool* finite_rows = nullptr)
      : logits(rows), best(best_outputs), finite(finite_rows) {}

  float* logits;               // [num logit_rows, vocab_size]
  BestOutput* best = nullptr;  // [num best_rows]
  // [M] whether all that the last layer gave this row is finite; null: not wanted. What is not
  // finite in any layer stays so in the row, so that K and V of a finite row are finite too.
  bool* finite = nullptr;
};

}  // namespace headrace
