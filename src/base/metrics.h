// Counters, gauges and histograms as plain numbers; text exposition is the server's business.
//
// Counter and Gauge may be changed and read by any thread. Histogram is a value with no lock: its
// owner guards it and hands out copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double delta) { value_.fetch_add(delta, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Counts observations in buckets with fixed upper edges, inclusive, ascending; what lies above the
// last edge is counted in count() alone (the bucket +Inf). The edges outlive the histogram.
class Histogram {
 public:
  Histogram() = default;  // no edges: count and sum alone
  explicit Histogram(std::span<const double> edges);

  void observe(double value) { observe(value, 1); }
  void observe(double value, uint64_t times);

  std::span<const double> edges() const { return edges_; }
  // Observations <= edges()[index]: cumulative, as the exposition wants them.
  uint64_t cumulative(size_t index) const;
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::span<const double> edges_;
  std::vector<uint64_t> counts_;  // per edge, not cumulative
  uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace headrace
