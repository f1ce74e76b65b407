// What a row of attention has of one split of its positions. Included by the reference unit alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {
namespace {

// Of one split, or of all so far.
template <int64_t kDims>
struct Partial {
  float top = -INFINITY;
  float total = 0.0f;
  float acc[kDims] = {};

  // Adds another with its own top.
  void fold(const Partial& other, int64_t dim) {
    const float highest = std::max(top, other.top);
    const float old_factor = top == highest ? 1.0f : std::exp(top - highest);
    const float new_factor = std::exp(other.top - highest);
    top = highest;
    total = old_factor * total + new_factor * other.total;
    for (int64_t d = 0; d < dim; ++d) acc[d] = old_factor * acc[d] + new_factor * other.acc[d];
  }

  // As partial_floats() says: acc, total in 16 lanes, top.
  void write(int64_t dim, float* to) const {
    const int64_t dims = padded_dim(dim);
    std::fill(to, to + partial_floats(dim), 0.0f);
    std::copy(acc, acc + dim, to);
    to[dims] = total;
    to[dims + 16] = top;
  }
  static Partial read(const float* from, int64_t dim) {
    const int64_t dims = padded_dim(dim);
    Partial partial;
    std::copy(from, from + dim, partial.acc);
    partial.total = from[dims];
    partial.top = from[dims + 16];
    return partial;
  }
};

}  // namespace
}  // namespace headrace::cpu
