// RowParts: cuts a row of the vocabulary into parts that the threads of a backend pass over side by
// side, for a row that has the team to itself.
//
// What is made of the parts must not depend on the cut: maxima, counts, lists in order of ids, and
// sums that are exact in any order (engine/vocab_passes.h). A plain value; engine thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "backend/backend.h"

namespace headrace {

class RowParts {
 public:
  static constexpr size_t kMost = 8;
  static constexpr size_t kGrain = 1024;  // parts begin at multiples of it

  // One part, on the calling thread.
  RowParts() = default;
  explicit RowParts(Backend& backend)
      : backend_(&backend),
        most_(std::clamp<size_t>(static_cast<size_t>(backend.num_threads()), 1, kMost)) {}

  // Of a row of `size` values: at least some thousands each.
  size_t count(size_t size) const { return std::clamp<size_t>(size / kWorthwhile, 1, most_); }

  // each(part, first, end), all parts at once; returns when all are done.
  template <typename F>
  void run(size_t size, const F& each) const {
    const size_t num_parts = count(size);
    if (num_parts == 1) return each(size_t{0}, size_t{0}, size);
    const size_t grains = (size + kGrain - 1) / kGrain;
    backend_->run_on_team(static_cast<int64_t>(num_parts), [&](int64_t item, int) {
      const auto part = static_cast<size_t>(item);
      const size_t end = std::min(grains * (part + 1) / num_parts * kGrain, size);
      each(part, grains * part / num_parts * kGrain, end);
    });
  }

 private:
  static constexpr size_t kWorthwhile = 8192;

  Backend* backend_ = nullptr;
  size_t most_ = 1;
};

// One value of each part.
template <typename T>
using OfParts = std::array<T, RowParts::kMost>;

}  // namespace headrace
