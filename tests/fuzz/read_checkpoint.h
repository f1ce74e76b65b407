// Reads everything that an opened checkpoint offers, as a user of it would.
#pragma once

#include "checkpoint/checkpoint.h"

namespace headrace::fuzz {

struct ReadCounts {
  int64_t num_values = 0;      // dequantised
  int num_linear_weights = 0;  // found as a linear weight, in some quantised or plain layout
};

// Every metadata value, every row of every tensor that holds weights, and of the first few thousand
// tensors each that also reads as a linear weight under any quantisation method. Bounded by the
// size of the file.
ReadCounts read_everything(const Checkpoint& checkpoint);

}  // namespace headrace::fuzz
