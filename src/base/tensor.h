// TensorView: a typed, shaped look at bytes that somebody else owns (a mapped file, a Buffer).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace headrace {

// Row-major; shape[0] is the slowest dimension (a GGUF reader reverses the file's order). A view is
// valid as long as its owner. The reader that made it has checked that `data` holds `num_bytes` and
// that the sizes multiply without overflow. `data` may have any alignment: files promise none.
struct TensorView {
  static constexpr int kMaxRank = 8;

  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  size_t num_bytes = 0;

  bool empty() const { return data == nullptr; }
  int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[static_cast<size_t>(i)];
    return count;
  }
  int64_t dim(int index) const { return shape[static_cast<size_t>(index)]; }
  std::string shape_string() const;  // "[49152, 576]"
  // Slice `index` of the slowest dimension, of one rank less: expert e of stacked experts.
  TensorView slice(int64_t index) const;
};

}  // namespace headrace
