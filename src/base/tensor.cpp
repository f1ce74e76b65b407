#include "base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace headrace {

std::string TensorView::shape_string() const {
  return fmt::format("[{}]", fmt::join(std::span(shape).first(static_cast<size_t>(rank)), ", "));
}

}  // namespace headrace
