// Norms of rows: an op of its own, and what linear layers need of it.
#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "base/numeric.h"

namespace headrace::cpu {

inline constexpr int64_t kRowsPerItem = 8;  // of phases that work on rows

// Phases of whole rows, some at a time.
class RowItems {
 public:
  explicit RowItems(int64_t num_rows) : num_rows_(num_rows) {}
  int64_t num_items() const { return divide_up(num_rows_, kRowsPerItem); }
  int64_t first(int64_t item) const { return item * kRowsPerItem; }
  int64_t end(int64_t item) const { return std::min((item + 1) * kRowsPerItem, num_rows_); }

 private:
  int64_t num_rows_;
};

// One row of `width` from x to out; rows, residual and scale are the caller's to change.
NormRowsArgs norm_rows(const Norm& norm, const float* x, float* out, int64_t width);

void run_norm(const CpuContext& context, const NormArgs& args);

}  // namespace headrace::cpu
