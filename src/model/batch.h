// Batch: the model's input for one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
};

}  // namespace headrace
