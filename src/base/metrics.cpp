#include "base/metrics.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace headrace {

Histogram::Histogram(std::span<const double> edges) : edges_(edges), counts_(edges.size()) {
  CHECK(std::is_sorted(edges.begin(), edges.end()), "histogram edges must ascend");
}

void Histogram::observe(double value, uint64_t times) {
  const auto edge = std::lower_bound(edges_.begin(), edges_.end(), value);
  if (edge != edges_.end()) counts_[static_cast<size_t>(edge - edges_.begin())] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

uint64_t Histogram::cumulative(size_t index) const {
  CHECK(index < counts_.size(), "bucket {} of {}", index, counts_.size());
  return std::accumulate(counts_.begin(), counts_.begin() + static_cast<int64_t>(index) + 1,
                         uint64_t{0});
}

}  // namespace headrace
