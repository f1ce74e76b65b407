#include "verify/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace perplexity_test {

TEST(LogProbability, IsTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits = {1.0f, 3.0f, -2.0f, 3.0f};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  double total = 0;
  for (int32_t id = 0; id < 4; ++id) {
    const double found = log_probability(logits, id);
    EXPECT_NEAR(found, logits[static_cast<size_t>(id)] - std::log(sum), 1e-12);
    total += std::exp(found);
  }
  EXPECT_NEAR(total, 1.0, 1e-12);
}

TEST(LogProbability, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30f, 0.0f, -1e30f};
  EXPECT_EQ(log_probability(logits, 0), 0.0);
  EXPECT_LT(log_probability(logits, 1), -1e29);
  const std::vector<float> equal(1000, 500.0f);
  EXPECT_NEAR(log_probability(equal, 7), -std::log(1000.0), 1e-9);
}

}  // namespace perplexity_test
}  // namespace headrace
