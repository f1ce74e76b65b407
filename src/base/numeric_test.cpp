#include "base/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace headrace {
namespace numeric_test {

// value = sign * fraction * 2^exponent from the definition of a small float format.
double by_definition(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1));
  const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1u ? -1.0 : 1.0;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

TEST(Numeric, F16RoundTripsForEveryPattern) {
  int num_checked = 0;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = f16_to_float(static_cast<uint16_t>(bits));
    if ((bits & 0x7C00u) == 0x7C00u && (bits & 0x3FFu) != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
      continue;
    }
    if ((bits & 0x7C00u) == 0x7C00u) {
      ASSERT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(value, by_definition(bits, 5, 10)) << bits;
    }
    ASSERT_EQ(float_to_f16(value), bits);
    ++num_checked;
  }
  EXPECT_EQ(num_checked, 0x10000 - 2 * 1023);
}

TEST(Numeric, Bf16RoundTripsForEveryPattern) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(float_to_bits(value), bits << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
}

// Between two neighbours: below the middle rounds down, above rounds up, the middle to even.
TEST(Numeric, F16NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = f16_to_float(static_cast<uint16_t>(bits));
    const float high = f16_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_f16(middle), even) << bits;
    ASSERT_EQ(float_to_f16(-middle), even | 0x8000u) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, low)), bits) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, high)), bits + 1) << bits;
  }
  EXPECT_EQ(float_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);  // halfway to 2^16 rounds to infinity
  EXPECT_EQ(float_to_f16(-1e30f), 0xFC00);
}

TEST(Numeric, Bf16NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_bf16(bits_to_float(bits << 16 | 0x8000u)), even);
    ASSERT_EQ(float_to_bf16(bits_to_float(bits << 16 | 0x7FFFu)), bits);
    ASSERT_EQ(float_to_bf16(bits_to_float(bits << 16 | 0x8001u)), bits + 1);
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Numeric, Float8FollowsItsDefinitionForEveryPattern) {
  for (uint32_t bits = 0; bits <= 0xFF; ++bits) {
    const float e4m3 = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7Fu) == 0x7Fu) {
      EXPECT_TRUE(std::isnan(e4m3));
    } else {
      EXPECT_EQ(e4m3, by_definition(bits, 4, 3)) << bits;
      EXPECT_EQ(std::signbit(e4m3), (bits & 0x80u) != 0) << bits;
    }
    const float e5m2 = e5m2_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7Cu) != 0x7Cu) {
      EXPECT_EQ(e5m2, by_definition(bits, 5, 2)) << bits;
    } else {
      EXPECT_EQ(std::isinf(e5m2), (bits & 3u) == 0) << bits;
      EXPECT_EQ(std::isnan(e5m2), (bits & 3u) != 0) << bits;
    }
  }
}

TEST(Numeric, E8m0IsAPowerOfTwoForEveryPattern) {
  for (int bits = 0; bits < 0xFF; ++bits) {
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(bits)), std::ldexp(1.0f, bits - 127)) << bits;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(0xFF)));
}

}  // namespace numeric_test
}  // namespace headrace
