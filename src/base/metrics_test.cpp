#include "base/metrics.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace {
namespace metrics_test {

TEST(Metrics, HistogramEdgesAreInclusiveAndCumulative) {
  static constexpr std::array<double, 3> kEdges = {1, 5, 10};
  Histogram histogram(kEdges);
  for (const double value : {0.5, 1.0, 1.5, 5.0, 10.0, 10.5}) histogram.observe(value);
  EXPECT_EQ(histogram.cumulative(0), 2u);
  EXPECT_EQ(histogram.cumulative(1), 4u);
  EXPECT_EQ(histogram.cumulative(2), 5u);
  EXPECT_EQ(histogram.count(), 6u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 28.5);
}

TEST(Metrics, HistogramWeighsRepeatedObservations) {
  static constexpr std::array<double, 2> kEdges = {1, 2};
  Histogram histogram(kEdges);
  histogram.observe(2, 3);
  EXPECT_EQ(histogram.cumulative(0), 0u);
  EXPECT_EQ(histogram.cumulative(1), 3u);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 6);
}

TEST(Metrics, CopyOfHistogramIsIndependent) {
  static constexpr std::array<double, 1> kEdges = {1};
  Histogram histogram(kEdges);
  histogram.observe(0);
  const Histogram copy = histogram;
  histogram.observe(0);
  EXPECT_EQ(copy.count(), 1u);
  EXPECT_EQ(histogram.cumulative(0), 2u);
}

TEST(Metrics, CounterAndGaugeAccumulate) {
  Counter counter;
  counter.add();
  counter.add(4);
  EXPECT_EQ(counter.value(), 5u);
  Gauge gauge;
  gauge.set(2.5);
  gauge.add(-1);
  EXPECT_DOUBLE_EQ(gauge.value(), 1.5);
}

}  // namespace metrics_test
}  // namespace headrace
