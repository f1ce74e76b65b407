#include "base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/check.h"

namespace headrace {

std::string TensorView::shape_string() const {
  return fmt::format("[{}]", fmt::join(std::span(shape).first(static_cast<size_t>(rank)), ", "));
}

TensorView TensorView::slice(int64_t index) const {
  CHECK(rank > 0 && index >= 0 && index < shape[0], "slice {} of {}", index, shape_string());
  TensorView view = *this;
  view.rank = rank - 1;
  std::copy(shape.begin() + 1, shape.end(), view.shape.begin());
  view.shape[kMaxRank - 1] = 0;
  view.num_bytes = num_bytes / static_cast<size_t>(shape[0]);
  view.data = data + static_cast<size_t>(index) * view.num_bytes;
  return view;
}

}  // namespace headrace
