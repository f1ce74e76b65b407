// Pool: one vector of the states that the rows of a prompt have after the final norm.
//
// Rows come in the order of their positions, whatever the steps were cut into, and are summed in
// that order in float64: the same prompt gives the same bits, alone, in a batch or in chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headrace {

// Positions [first, end) of a prompt.
struct PromptRange {
  int64_t first = 0, end = 0;
};
// Those whose states make the vector.
PromptRange pooled_range(Pooling pooling, int64_t num_prompt);

class Pool {
 public:
  // rows: [n, width] of the next n positions; every call has the same width.
  void add(std::span<const float> rows, int64_t num_rows);
  int64_t num_rows() const { return num_rows_; }
  // Of all rows so far; of one row, the row itself.
  std::vector<float> mean() const;

 private:
  std::vector<double> sum_;
  int64_t num_rows_ = 0;
};

}  // namespace headrace
