// BestOutputs: the arg-max of rows whose values come in pieces, from any member in any order.
//
// A candidate is one 64-bit word, value first and then the index turned round, so that the largest
// word is the largest value of lowest index: merging is an atomic maximum and the order of merging
// cannot matter. Values that are not finite are kept beside it the same way, lowest index first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace headrace::cpu {

class BestOutputs {
 public:
  // Grows, never shrinks. Called at load.
  Status reserve(int64_t max_rows);
  void clear(int64_t num_rows);
  // Outputs first .. first + count of a row. Thread-safe. num_outputs < 2^31.
  void add(int64_t row, const float* values, int64_t count, int64_t first);
  BestOutput get(int64_t row) const;

 private:
  struct Row {
    std::atomic<uint64_t> best;
    std::atomic<uint64_t> bad;  // the same for values that are not finite: index << 32 | bits
  };
  std::unique_ptr<Row[]> rows_;
  int64_t num_rows_ = 0;
};

}  // namespace headrace::cpu
