#include "engine/pool.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace pool_test {

TEST(Pool, RangesAreThoseOfTheirKind) {
  const auto is = [](Pooling pooling, int64_t num_prompt, int64_t first, int64_t end) {
    const PromptRange range = pooled_range(pooling, num_prompt);
    return range.first == first && range.end == end;
  };
  EXPECT_TRUE(is(Pooling::kNone, 9, 0, 0));
  EXPECT_TRUE(is(Pooling::kMean, 9, 0, 9));
  EXPECT_TRUE(is(Pooling::kFirst, 9, 0, 1));
  EXPECT_TRUE(is(Pooling::kLast, 9, 8, 9));
  EXPECT_TRUE(is(Pooling::kLast, 1, 0, 1));
}

TEST(Pool, OneRowIsItself) {
  Pool pool;
  const std::vector<float> row = {0.1f, -3.3e-20f, 7e18f};
  pool.add(row, 1);
  EXPECT_EQ(pool.mean(), row);
}

TEST(Pool, HowRowsComeDoesNotChangeABit) {
  constexpr size_t kWidth = 5;
  constexpr int64_t kRows = 23;
  std::vector<float> rows(kWidth * kRows);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i) * 0.7f) * 1e3f;
  Pool whole;
  whole.add(rows, kRows);
  for (const int64_t chunk : {1, 2, 7, 22}) {
    Pool parts;
    for (int64_t row = 0; row < kRows; row += chunk) {
      const int64_t count = std::min(chunk, kRows - row);
      parts.add(std::span(rows).subspan(static_cast<size_t>(row) * kWidth,
                                        static_cast<size_t>(count) * kWidth),
                count);
    }
    EXPECT_EQ(parts.mean(), whole.mean()) << chunk;
    EXPECT_EQ(parts.num_rows(), kRows);
  }
  double sum = 0;
  for (size_t row = 0; row < kRows; ++row) sum += static_cast<double>(rows[row * kWidth + 3]);
  EXPECT_EQ(whole.mean()[3], static_cast<float>(sum / kRows));
}

}  // namespace pool_test
}  // namespace headrace
