#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace headrace {
namespace rope_test {

RopeConfig rope_of(RopeType type, int rope_dims = 16) {
  RopeConfig rope;
  rope.type = type;
  rope.rope_dims = rope_dims;
  rope.factor = 4;
  rope.original_max_position_embeddings = 64;
  rope.max_position_embeddings = 256;
  return rope;
}

double base_frequency(int i, int rope_dims = 16, double theta = 1e4) {
  return std::pow(theta, -2.0 * i / rope_dims);
}

std::vector<float> frequencies(const RopeConfig& rope, int64_t epoch = 0) {
  const RopeTable table(rope);
  std::vector<float> scratch(static_cast<size_t>(table.half()));
  const auto f = table.frequencies(epoch, scratch);
  return {f.begin(), f.end()};
}

void expect_near(double found, double expected) {
  EXPECT_NEAR(found, expected, 2e-6 * std::abs(expected));
}

TEST(Rope, DefaultAndLinear) {
  const auto plain = frequencies(rope_of(RopeType::kDefault));
  const auto linear = frequencies(rope_of(RopeType::kLinear));
  ASSERT_EQ(plain.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    expect_near(plain[static_cast<size_t>(i)], base_frequency(i));
    expect_near(linear[static_cast<size_t>(i)], base_frequency(i) / 4);
  }
}

TEST(Rope, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  const auto f = frequencies(rope_of(RopeType::kLlama3));
  for (int i = 0; i < 8; ++i) {
    const double wavelength = 2 * std::numbers::pi / base_frequency(i);
    const double smooth = std::clamp((64 / wavelength - 1) / (4 - 1), 0.0, 1.0);
    expect_near(f[static_cast<size_t>(i)],
                (1 - smooth) * base_frequency(i) / 4 + smooth * base_frequency(i));
  }
  expect_near(f[0], 1);
  expect_near(f[7], base_frequency(7) / 4);
}

TEST(Rope, YarnRampsBetweenTheTwoDimensions) {
  const auto f = frequencies(rope_of(RopeType::kYarn));
  const auto dimension = [](double turns) {
    return 16 * std::log(64 / (turns * 2 * std::numbers::pi)) / (2 * std::log(1e4));
  };
  const double low = std::max(std::floor(dimension(32)), 0.0);
  const double high = std::min(std::ceil(dimension(1)), 15.0);
  for (int i = 0; i < 8; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    expect_near(f[static_cast<size_t>(i)],
                ramp * base_frequency(i) / 4 + (1 - ramp) * base_frequency(i));
  }
  RopeConfig whole = rope_of(RopeType::kYarn);
  whole.truncate = false;
  EXPECT_NE(frequencies(whole), f);
}

TEST(Rope, LongropeSwitchesOnceBeyondTheOriginalLength) {
  RopeConfig rope = rope_of(RopeType::kLongrope);
  rope.short_factor.assign(8, 2.0f);
  rope.long_factor.assign(8, 8.0f);
  const RopeTable table(rope);
  EXPECT_EQ(table.epoch(1), 0);
  EXPECT_EQ(table.epoch(64), 0);
  EXPECT_GT(table.epoch(65), 0);
  EXPECT_EQ(table.epoch(65), table.epoch(250));
  expect_near(frequencies(rope, table.epoch(64))[0], 1.0 / 2);
  expect_near(frequencies(rope, table.epoch(65))[0], 1.0 / 8);
}

TEST(Rope, DynamicChangesWithEveryTokenBeyondTheMaximum) {
  const RopeConfig rope = rope_of(RopeType::kDynamic);
  const RopeTable table(rope);
  EXPECT_EQ(table.epoch(256), 0);
  EXPECT_NE(table.epoch(257), table.epoch(258));
  EXPECT_EQ(frequencies(rope, 0), frequencies(rope_of(RopeType::kDefault)));
  const double growth = std::pow(4.0 * 300 / 256 - 3, 16.0 / 14);
  expect_near(frequencies(rope, table.epoch(300))[3], base_frequency(3, 16, 1e4 * growth));
}

// The first pairs turn as in a head of full width, the others stand still.
TEST(Rope, ProportionalTurnsTheFirstPairsOfAWholeHead) {
  RopeConfig rope = rope_of(RopeType::kProportional);
  rope.factor = 2;
  rope.rotated_pairs = 3;
  const auto f = frequencies(rope);
  ASSERT_EQ(f.size(), 8u);
  for (int i = 0; i < 3; ++i) expect_near(f[static_cast<size_t>(i)], base_frequency(i) / 2);
  for (size_t i = 3; i < 8; ++i) EXPECT_EQ(f[i], 0.0f);
  EXPECT_EQ(RopeTable(rope).epoch(100'000), 0);
}

TEST(Rope, DivisorsOfTheFile) {
  RopeConfig rope = rope_of(RopeType::kDefault);
  rope.frequency_divisor.assign(8, 1.0f);
  rope.frequency_divisor[2] = 5;
  expect_near(frequencies(rope)[2], base_frequency(2) / 5);
  expect_near(frequencies(rope)[3], base_frequency(3));
}

}  // namespace rope_test
}  // namespace headrace
