// The model of the tile instructions against other formulations of the manual's text, and against
// the instructions where the processor has them.

#include <gtest/gtest.h>
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "backend/cpu/kernels/bf16_model.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/numeric.h"
#include "half_model.h"
#include "tile_cases.h"
#include "tile_model.h"
#include "tile_traps.h"

namespace headrace::cpu {
namespace {

using Random = std::mt19937;

struct Shape {
  int rows, columns, depth;
};
constexpr Shape kShapes[] = {{1, 1, 1},   {16, 16, 16}, {16, 16, 8},  {16, 16, 4}, {1, 16, 16},
                             {15, 16, 8}, {16, 1, 16},  {16, 15, 16}, {7, 5, 3},   {2, 16, 1},
                             {9, 16, 8},  {1, 1, 16},   {16, 2, 15}};

TileCase random_case(const Shape& shape, Random& random) {
  const auto words = [&random](int count) {
    std::vector<uint32_t> values(static_cast<size_t>(count));
    for (uint32_t& value : values) value = static_cast<uint32_t>(random());
    return values;
  };
  return {shape.rows,
          shape.columns,
          shape.depth,
          words(shape.rows * shape.columns),
          words(shape.rows * shape.depth),
          words(shape.depth * shape.columns)};
}

uint32_t& word(std::vector<uint32_t>& words, int row, int width, int i) {
  return words[static_cast<size_t>(row * width + i)];
}
uint32_t word(const std::vector<uint32_t>& words, int row, int width, int i) {
  return words[static_cast<size_t>(row * width + i)];
}

std::vector<uint32_t> run_model(TileProduct product, const TileCase& c) {
  tile_machine().reset();
  std::vector<uint32_t> out = run_tile_case<ModelTiles>(product, c);
  EXPECT_EQ(tile_machine().fault(), "");
  EXPECT_FALSE(tile_machine().configured());
  return out;
}

// TDPBxxD as plain loops over 64-bit numbers, cut to 32 bits at the end.
std::vector<uint32_t> plain_byte_product(TileProduct product, const TileCase& c) {
  const bool a_signed =
      product == TileProduct::kSignedSigned || product == TileProduct::kSignedUnsigned;
  const bool b_signed =
      product == TileProduct::kSignedSigned || product == TileProduct::kUnsignedSigned;
  const auto byte = [](uint32_t w, int i, bool is_signed) -> int64_t {
    const auto value = static_cast<uint8_t>(w >> (8 * i));
    return is_signed ? int64_t{static_cast<int8_t>(value)} : int64_t{value};
  };
  std::vector<uint32_t> out = c.sum;
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.columns; ++n) {
      int64_t total = static_cast<int32_t>(word(c.sum, m, c.columns, n));
      for (int k = 0; k < 4 * c.depth; ++k) {
        total += byte(word(c.a, m, c.depth, k / 4), k % 4, a_signed) *
                 byte(word(c.b, k / 4, c.columns, n), k % 4, b_signed);
      }
      word(out, m, c.columns, n) = static_cast<uint32_t>(total);
    }
  }
  return out;
}

// A double rounded to 24 bits as if exponents had no end, then tiny results to zero.
float round_to_tile_float(double v) {
  if (v == 0 || !std::isfinite(v)) return static_cast<float>(v);
  int exponent = 0;
  const double fraction = std::frexp(v, &exponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(fraction, 24)), exponent - 24);
  if (std::fabs(rounded) < 0x1p-126) return std::copysign(0.0f, static_cast<float>(rounded));
  if (std::fabs(rounded) > 0x1.fffffep127) {
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(rounded));
  }
  return static_cast<float>(rounded);
}

// a + b with the last bit set where the sum is inexact ("round to odd"): rounding that to 24 bits
// rounds the exact sum.
double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

double operand(float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.0, v) : double{v}; }

float exact_fma(float a, float b, float c) {
  return round_to_tile_float(add_to_odd(operand(a) * operand(b), operand(c)));
}

// TDPBF16PS in doubles, column by column.
std::vector<uint32_t> exact_bf16_product(const TileCase& c) {
  std::vector<uint32_t> out = c.sum;
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.columns; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < c.depth; ++k) {
        const uint32_t x = word(c.a, m, c.depth, k);
        const uint32_t w = word(c.b, k, c.columns, n);
        even = exact_fma(bits_to_float(x << 16), bits_to_float(w << 16), even);
        odd = exact_fma(bits_to_float(x & 0xFFFF0000u), bits_to_float(w & 0xFFFF0000u), odd);
      }
      const float both = round_to_tile_float(operand(even) + operand(odd));
      const float total = round_to_tile_float(
          add_to_odd(operand(bits_to_float(word(c.sum, m, c.columns, n))), operand(both)));
      word(out, m, c.columns, n) = std::bit_cast<uint32_t>(total);
    }
  }
  return out;
}

bool same_floats(uint32_t a, uint32_t b) {  // which NaN it is, the manual does not say
  return a == b || (std::isnan(bits_to_float(a)) && std::isnan(bits_to_float(b)));
}

// Floats in [-2, 2] scaled by 2^low to 2^high; bf16 pairs of such.
uint32_t ranged_float(int low, int high, Random& random) {
  const int scale = std::uniform_int_distribution(low, high)(random);
  const double v = std::uniform_real_distribution(-2.0, 2.0)(random);
  return std::bit_cast<uint32_t>(static_cast<float>(std::ldexp(v, scale)));
}
uint32_t ranged_pair(int low, int high, Random& random) {
  return (ranged_float(low, high, random) & 0xFFFF0000u) | (ranged_float(low, high, random) >> 16);
}

void expect_same_floats(const std::vector<uint32_t>& got, const std::vector<uint32_t>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same_floats(got[i], wanted[i]))
        << i << ": " << bits_to_float(got[i]) << " " << bits_to_float(wanted[i]);
  }
}

// Exponents of the operands and of the sums: ordinary, around the smallest normal, overflowing.
struct Range {
  int low, high, sum_low, sum_high;
};
constexpr Range kRanges[] = {{-3, 3, -3, 3},         {-20, 20, -20, 20},    {-64, -62, -128, -124},
                             {-70, -60, -149, -120}, {-126, 0, -149, -120}, {60, 64, 120, 127},
                             {-127, 127, -127, 127}};

TileCase ranged_case(const Shape& shape, const Range& range, Random& random) {
  TileCase c = random_case(shape, random);
  for (uint32_t& w : c.a) w = ranged_pair(range.low, range.high, random);
  for (uint32_t& w : c.b) w = ranged_pair(range.low, range.high, random);
  for (uint32_t& w : c.sum) w = ranged_float(range.sum_low, range.sum_high, random);
  return c;
}

TEST(TileModel, ByteProductByHand) {
  // One output: -1 * 255 + 2 * 1 + 3 * 0 + -128 * 128 with a signed, b unsigned, on top of 10.
  const TileCase c{1, 1, 1, {10}, {0x800302FFu}, {0x800001FFu}};
  EXPECT_EQ(static_cast<int32_t>(run_model(TileProduct::kSignedUnsigned, c)[0]),
            10 - 255 + 2 - 128 * 128);
  EXPECT_EQ(static_cast<int32_t>(run_model(TileProduct::kSignedSigned, c)[0]),
            10 + 1 + 2 + 128 * 128);
  EXPECT_EQ(static_cast<int32_t>(run_model(TileProduct::kUnsignedSigned, c)[0]),
            10 - 255 + 2 - 128 * 128);
  EXPECT_EQ(static_cast<int32_t>(run_model(TileProduct::kUnsignedUnsigned, c)[0]),
            10 + 255 * 255 + 2 + 128 * 128);
}

TEST(TileModel, ByteProductsMatchPlainLoops) {
  Random random(1);
  int num_cases = 0;
  for (const Shape& shape : kShapes) {
    for (const TileProduct product : kTileProducts) {
      if (product == TileProduct::kBf16) continue;
      for (int round = 0; round < 4; ++round) {
        const TileCase c = random_case(shape, random);
        EXPECT_EQ(run_model(product, c), plain_byte_product(product, c));
        EXPECT_EQ(tile_machine().counts().products, 1);
        EXPECT_EQ(tile_machine().counts().product_rows, shape.rows);
        ++num_cases;
      }
    }
  }
  EXPECT_EQ(num_cases, 13 * 4 * 4);
}

TEST(TileModel, SumsWrapAround) {
  const TileCase c{1, 1, 1, {0x7FFFFFFFu}, {1}, {1}};
  EXPECT_EQ(run_model(TileProduct::kSignedSigned, c)[0], 0x80000000u);
}

TEST(TileModel, Bf16ProductByHand) {
  // 1 * 3 (even) and 2 * -0.5 (odd) on top of 0.25.
  const TileCase c{1, 1, 1, {0x3E800000u}, {0x40003F80u}, {0xBF004040u}};
  EXPECT_EQ(bits_to_float(run_model(TileProduct::kBf16, c)[0]), 2.25f);
}

// Even parts sum to 2^30 and to 1, odd parts to -2^30: within the parts 1 is lost, and kept where
// the big numbers cancel before it is added. Tells the order apart from any other.
TEST(TileModel, Bf16OrderIsEvenThenOddThenSum) {
  const uint32_t big = 0x4700u, minus_big = 0xC700u, one = 0x3F80u;  // +-2^15, 1
  const uint32_t x = big | (big << 16);
  {  // depth 2: even = 2^30 + 1 rounds to 2^30, odd = -2^30
    const TileCase c{1, 1, 2, {0}, {x, one}, {big | (minus_big << 16), one}};
    EXPECT_EQ(bits_to_float(run_model(TileProduct::kBf16, c)[0]), 0.0f);
  }
  {  // the 1 in the accumulator: even + odd = 0 first
    const TileCase c{1, 1, 1, {0x3F800000u}, {x}, {big | (minus_big << 16)}};
    EXPECT_EQ(bits_to_float(run_model(TileProduct::kBf16, c)[0]), 1.0f);
  }
}

TEST(TileModel, Bf16MatchesExactArithmetic) {
  Random random(2);
  int num_cases = 0;
  for (const Shape& shape : kShapes) {
    for (const Range& range : kRanges) {
      for (int round = 0; round < 8; ++round) {
        const TileCase c = ranged_case(shape, range, random);
        expect_same_floats(run_model(TileProduct::kBf16, c), exact_bf16_product(c));
        ++num_cases;
      }
    }
  }
  EXPECT_EQ(num_cases, 13 * 7 * 8);
}

// Every pattern of bits: denormals, infinities, NaN, both zeros among them.
TEST(TileModel, Bf16MatchesExactArithmeticOnAnyBits) {
  Random random(3);
  constexpr uint16_t kSpecial[] = {0,      0x8000, 1,      0x807F, 0x0080,
                                   0x8080, 0x7F80, 0xFF80, 0x7FC0, 0x3F80};
  int num_nan = 0, num_numbers = 0;
  for (int round = 0; round < 400; ++round) {
    TileCase c = random_case({4, 4, round % 3 + 1}, random);
    for (std::vector<uint32_t>* words : {&c.a, &c.b}) {
      for (uint32_t& w : *words) {
        if (random() % 2 == 0) w = (w & 0xFFFF0000u) | kSpecial[random() % std::size(kSpecial)];
        if (random() % 2 == 0) w = (w & 0xFFFFu) | (uint32_t{kSpecial[random() % 10]} << 16);
      }
    }
    const auto got = run_model(TileProduct::kBf16, c);
    expect_same_floats(got, exact_bf16_product(c));
    for (const uint32_t w : got) ++(std::isnan(bits_to_float(w)) ? num_nan : num_numbers);
  }
  EXPECT_GT(num_nan, 100);
  EXPECT_GT(num_numbers, 1000);
}

TEST(TileModel, DenormalsAreZeros) {
  const float denormal = 0x1p-127f, smallest = 0x1p-126f;
  EXPECT_EQ(bf16_add(denormal, 0.0f), 0.0f);
  EXPECT_EQ(bf16_add(smallest, denormal), smallest);
  EXPECT_EQ(bf16_fma(denormal, 0x1p100f, 1.0f), 1.0f);
  EXPECT_EQ(bf16_fma(0x1p-100f, 0x1p-27f, 0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(bf16_fma(-0x1p-100f, 0x1p-27f, 0.0f)));
  EXPECT_TRUE(std::signbit(bf16_add(-0x1.8p-126f, smallest)));
  EXPECT_EQ(bf16_fma(0x1p-100f, 0x1p-26f, 0.0f), smallest);
  // Just below the smallest normal: what 24 bits cannot hold rounds up, what they can is tiny.
  EXPECT_EQ(bf16_fma(0x1p-100f, -0x1p-51f, smallest), smallest);
  EXPECT_EQ(bf16_fma(0x1p-100f, -0x1.02p-51f, smallest), 0.0f);
}

[[gnu::target("fma")]] float host_fma(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

// This processor's FMA with denormals as zeros on both sides.
TEST(TileModel, FmaMatchesTheProcessorsFlushMode) {
  if ((detect_isa() & kIsaFma) == 0) GTEST_SKIP() << "needs FMA";
  Random random(4);
  const unsigned saved = _mm_getcsr();
  int num_tiny = 0, num_other = 0;
  for (int i = 0; i < 400000; ++i) {
    const Range& range = kRanges[static_cast<size_t>(i) % std::size(kRanges)];
    const float a = bits_to_float(ranged_pair(range.low, range.high, random) & 0xFFFF0000u);
    const float b = bits_to_float(ranged_pair(range.low, range.high, random) & 0xFFFF0000u);
    const float c = bits_to_float(ranged_float(range.sum_low, range.sum_high, random));
    // Volatile, so that the operation stays between the two changes of the control register.
    const volatile float operands[] = {a, b, c};
    _mm_setcsr(saved | 0x8040u);
    const volatile float result = host_fma(operands[0], operands[1], operands[2]);
    _mm_setcsr(saved);
    const float host = result;
    const float model = bf16_fma(a, b, c);
    ASSERT_TRUE(same_floats(std::bit_cast<uint32_t>(host), std::bit_cast<uint32_t>(model)))
        << a << " " << b << " " << c << ": " << host << " " << model;
    ++(model == 0 ? num_tiny : num_other);
  }
  EXPECT_GT(num_tiny, 1000);
  EXPECT_GT(num_other, 100000);
}

// Against the plain form, which rounds to odd on its way.
TEST(HalfModel, ProductsAndSumsAreRoundedOnce) {
  Random random(31);
  const auto finite = [&random] {
    uint16_t half;
    do half = static_cast<uint16_t>(random());
    while ((half >> 10 & 31) == 31);
    return half;
  };
  constexpr uint16_t kEdges[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF,
                                 0x0400, 0x3C00, 0x7BFF, 0xFBFF};
  int num_tiny = 0, num_infinite = 0;
  for (int round = 0; round < 20000; ++round) {
    uint16_t a[kHalvesOfVector], b[kHalvesOfVector], c[kHalvesOfVector], got[kHalvesOfVector];
    for (int i = 0; i < kHalvesOfVector; ++i) {
      a[i] = i < static_cast<int>(std::size(kEdges)) ? kEdges[i] : finite();
      b[i] = finite();
      c[i] = round % 3 == 0 ? uint16_t{0x8000} : finite();
    }
    multiply_add_halves(a, b, c, got);
    for (int i = 0; i < kHalvesOfVector; ++i) {
      const auto value = [](uint16_t half) { return double{f16_to_float(half)}; };
      const double exact = value(a[i]) * value(b[i]) + value(c[i]);
      ASSERT_EQ(got[i], double_to_f16(exact)) << exact;
      num_tiny += std::fabs(exact) < 0x1p-14 && exact != 0 ? 1 : 0;
      num_infinite += (got[i] >> 10 & 31) == 31 ? 1 : 0;
    }
  }
  EXPECT_GT(num_tiny, 1000);
  EXPECT_GT(num_infinite, 1000);
}

TEST(TileModel, LoadsAndStoresKeepToTheirShape) {
  TileMachine machine;
  TileConfig config{};
  set_shape(&config, 2, 3, 8);
  machine.configure(config);
  std::vector<uint8_t> from(64), to(64, 0xEE);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i + 1);
  machine.load(2, from.data() + 5, 11);
  machine.store(2, to.data() + 1, 17);
  for (size_t i = 0; i < to.size(); ++i) {
    const size_t row = (i - 1) / 17, column = (i - 1) % 17;
    const bool inside = i >= 1 && row < 3 && column < 8;
    EXPECT_EQ(to[i], inside ? from[5 + row * 11 + column] : 0xEE) << i;
  }
  machine.load(2, from.data() + 55, -20);  // strides may go backwards
  machine.store(2, to.data(), 8);
  EXPECT_EQ(to[8], from[35]);
  machine.zero(2);
  machine.store(2, to.data(), 8);
  EXPECT_EQ(std::vector<uint8_t>(to.begin(), to.begin() + 24), std::vector<uint8_t>(24, 0));
  EXPECT_EQ(machine.fault(), "");
}

// Tiles hold zeros after a configuration, whatever they held before.
TEST(TileModel, ConfigurationClearsTiles) {
  TileMachine machine;
  TileConfig config{};
  set_shape(&config, 1, 1, 4);
  machine.configure(config);
  uint32_t value = 7;
  machine.load(1, &value, 4);
  machine.configure(config);
  machine.store(1, &value, 4);
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(machine.fault(), "");
}

std::string fault_of_config(void (*change)(TileConfig*)) {
  TileMachine machine;
  TileConfig config{};
  set_shape(&config, 0, 16, 64);
  change(&config);
  machine.configure(config);
  return machine.fault();
}

TEST(TileModel, WrongConfigurationsFault) {
  EXPECT_EQ(fault_of_config([](TileConfig*) {}), "");
  EXPECT_EQ(fault_of_config([](TileConfig* c) { c->palette = 0; }), "");
  void (*const kWrong[])(TileConfig*) = {
      [](TileConfig* c) { c->palette = 2; },           [](TileConfig* c) { c->start_row = 1; },
      [](TileConfig* c) { c->reserved[13] = 1; },      [](TileConfig* c) { set_shape(c, 8, 1, 4); },
      [](TileConfig* c) { set_shape(c, 15, 16, 64); }, [](TileConfig* c) { c->rows[7] = 1; },
      [](TileConfig* c) { c->row_bytes[7] = 4; },      [](TileConfig* c) { c->rows[0] = 17; },
      [](TileConfig* c) { c->row_bytes[0] = 65; },     [](TileConfig* c) { c->row_bytes[0] = 256; },
  };
  int i = 0;
  for (const auto change : kWrong) EXPECT_NE(fault_of_config(change), "") << i++;
}

std::string fault_of(void (*use)(TileMachine*)) {
  TileMachine machine;
  TileConfig config{};
  set_shape(&config, 0, 4, 32);
  set_shape(&config, 1, 4, 24);
  set_shape(&config, 2, 6, 32);
  set_shape(&config, 3, 5, 32);
  set_shape(&config, 4, 4, 30);
  machine.configure(config);
  use(&machine);
  return machine.fault();
}

TEST(TileModel, WrongUsesFault) {
  EXPECT_EQ(fault_of([](TileMachine* m) { m->product_bytes(0, 1, 2, true, true); }), "");
  void (*const kWrong[])(TileMachine*) = {
      [](TileMachine* m) { m->zero(5); },
      [](TileMachine* m) { m->product_bytes(0, 1, 1, true, true); },
      [](TileMachine* m) { m->product_bytes(0, 0, 2, true, true); },
      [](TileMachine* m) { m->product_bf16(3, 1, 2); },  // rows of the sums
      [](TileMachine* m) { m->product_bf16(0, 1, 3); },  // inputs
      [](TileMachine* m) { m->product_bf16(1, 0, 2); },  // columns
      [](TileMachine* m) { m->zero(4); },                // 30 bytes
      [](TileMachine* m) { m->release(), m->zero(0); },  // nothing configured
  };
  int i = 0;
  for (const auto use : kWrong) EXPECT_NE(fault_of(use), "") << i++;
  TileMachine machine;
  machine.zero(0);
  EXPECT_NE(machine.fault(), "");
  machine.reset();
  EXPECT_EQ(machine.fault(), "");
}

// Where the processor has no AMX, this is a test of the traps.
TEST(TileInstructions, MatchTheModel) {
  constexpr uint32_t kNeeded = kIsaAmxTile | kIsaAmxInt8 | kIsaAmxBf16;
  std::optional<TileTraps> traps;
  if ((detect_isa() & kNeeded) != kNeeded) traps.emplace();
  Random random(5);
  int num_cases = 0;
  for (const Shape& shape : kShapes) {
    for (const TileProduct product : kTileProducts) {
      for (const Range& range : kRanges) {
        const bool floats = product == TileProduct::kBf16;
        const TileCase c = floats ? ranged_case(shape, range, random) : random_case(shape, random);
        const auto wanted = run_model(product, c);
        const auto got = run_on_hardware(product, c);
        if (floats) {
          expect_same_floats(got, wanted);
        } else {
          EXPECT_EQ(got, wanted);
        }
        ++num_cases;
      }
    }
  }
  EXPECT_EQ(num_cases, 13 * 5 * 7);
  // A configuration, three loads, a product, a store and the end of the configuration.
  if (traps.has_value()) EXPECT_EQ(traps->num_instructions(), num_cases * 7);
}

}  // namespace
}  // namespace headrace::cpu
