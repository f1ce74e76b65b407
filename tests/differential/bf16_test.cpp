// bf16 weights with activations in one bf16 term (AVX-512 BF16): the choice of rows, bits for any
// number of rows and threads, and the class's arithmetic for any bit pattern.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/kernels/units.h"
#include "base/numeric.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

using cpu::ActivationType;
using cpu::kPanel;
using cpu::Layout;
using cpu::NumericsClass;

constexpr uint32_t kEveryIsa = std::numeric_limits<uint32_t>::max();

bool has_bf16_unit() { return (cpu::kAvx512Bf16Unit.isa & ~cpu::detect_isa()) == 0; }

std::unique_ptr<Backend> fast_backend(const std::string& isa, int num_threads) {
  return create_cpu_backend({isa, num_threads, ActivationArithmetic::kFast}).value();
}

std::unique_ptr<PackedWeight> pack_parts(Backend& backend, std::span<const WeightView> parts) {
  return backend.pack(parts, WeightRole::kLinear).value();
}

NumericsClass class_of_bf16(const cpu::KernelSet& set, int64_t num_rows) {
  return set.matmul[static_cast<size_t>(Layout::kBF16)].for_rows(num_rows).numerics;
}

TEST(Bf16Rows, OneTermOnAvx512Bf16AndFloat32InExactMode) {
  const cpu::KernelSet fast =
      cpu::select_kernels(cpu::kAvx512Bf16Unit, kEveryIsa, ActivationType::kInt8);
  const cpu::KernelSet exact =
      cpu::select_kernels(cpu::kAvx512Bf16Unit, kEveryIsa, ActivationType::kInt16);
  for (const int64_t rows : {1, 6, 7, 240}) {
    EXPECT_EQ(class_of_bf16(fast, rows), NumericsClass::kBf16Dot) << rows;
    EXPECT_EQ(class_of_bf16(exact, rows), NumericsClass::kFma) << rows;
  }
  ASSERT_TRUE(fast.quantise_dense != nullptr);
  EXPECT_EQ(fast.quantise_dense->activation, ActivationType::kBF16);
  EXPECT_EQ(exact.quantise_dense, nullptr);
  const auto other_rows = [](const cpu::KernelSet& set, Layout layout) {
    return set.matmul[static_cast<size_t>(layout)];
  };
  EXPECT_EQ(other_rows(fast, Layout::kF16).activation(), ActivationType::kF32);
  EXPECT_EQ(other_rows(fast, Layout::kQ4_1).activation(), ActivationType::kInt8);
  EXPECT_EQ(other_rows(exact, Layout::kQ4_1).activation(), ActivationType::kInt16);
}

// Every layout has one kind of input, whatever the unit and the mode.
TEST(Bf16Rows, ALayoutHasOneKindOfInput) {
  int num_sets = 0;
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    for (const auto activations : {ActivationType::kInt16, ActivationType::kInt8}) {
      for (const uint32_t available : {unit->isa, kEveryIsa}) {
        const cpu::KernelSet set = cpu::select_kernels(*unit, available, activations);
        for (const cpu::MatmulRows& rows : set.matmul) {
          for (int i = 0; i < rows.count; ++i) {
            const cpu::KernelRow& row = *rows.rows[static_cast<size_t>(i)];
            EXPECT_EQ(row.activation, rows.activation()) << unit->name << " " << row.name;
            EXPECT_EQ(row.numerics, rows.rows[0]->numerics) << unit->name << " " << row.name;
          }
        }
        ++num_sets;
      }
    }
  }
  EXPECT_EQ(num_sets, static_cast<int>(cpu::all_units().size()) * 4);
  // Tiles have their own order of summation for every number of rows.
  const cpu::KernelSet tiles = cpu::select_kernels(cpu::kAmxUnit, kEveryIsa, ActivationType::kInt8);
  EXPECT_EQ(class_of_bf16(tiles, 1), NumericsClass::kBf16Tile);
}

// Exact mode is the same arithmetic with and without the instruction; fast mode is another.
TEST(Bf16Rows, NumericsIdNamesTheArithmetic) {
  if (!has_bf16_unit()) GTEST_SKIP() << "no AVX-512 BF16";
  EXPECT_EQ(make_backend("avx512_bf16", 1)->numerics(KvType::kF16),
            make_backend("avx512", 1)->numerics(KvType::kF16));
  EXPECT_NE(fast_backend("avx512_bf16", 1)->numerics(KvType::kF16),
            fast_backend("avx512", 1)->numerics(KvType::kF16));
}

// Bits of the reference for any number of rows and threads, inputs around slices and pairs.
TEST(Bf16Linear, BitsOfTheReferenceForAnyRowsAndThreads) {
  if (!has_bf16_unit()) GTEST_SKIP() << "no AVX-512 BF16";
  std::unique_ptr<Backend> backends[] = {fast_backend("avx512_bf16", 1),
                                         fast_backend("avx512_bf16", 2),
                                         fast_backend("avx512_bf16", 3)};
  const auto reference = fast_backend("reference", 2);
  int num_cases = 0;
  for (const int64_t inputs : {1, 2, 255, 256, 257, 530}) {
    Random random(static_cast<uint32_t>(inputs));
    const int64_t outputs = 150, max_rows = 64;
    const auto weight = random_weight(DType::kBF16, outputs, inputs, random);
    const auto x = random_floats(static_cast<size_t>(max_rows * inputs), random);
    std::vector<float> expected(static_cast<size_t>(max_rows * outputs));
    reference->linear(*pack_parts(*reference, {&weight->view, 1}), on_device(x.data()), max_rows,
                      {}, on_device(expected.data()));
    for (const auto& backend : backends) {
      const auto packed = pack_parts(*backend, {&weight->view, 1});
      for (int64_t rows = 1; rows <= max_rows; rows += rows < 27 ? 1 : 37) {
        GuardedFloats out(static_cast<size_t>(rows * outputs));
        backend->linear(*packed, on_device(x.data()), rows, {}, on_device(out.data()));
        ASSERT_TRUE(out.intact());
        ASSERT_TRUE(same_bits(out.values(), std::span(expected).first(out.values().size())))
            << "inputs " << inputs << " rows " << rows << " threads " << backend->num_threads();
        ++num_cases;
      }
    }
  }
  EXPECT_EQ(num_cases, 6 * 3 * 28);
}

// Parts that read bf16, float32 and integer input of the same rows.
TEST(Bf16Linear, PartsOfSeveralFormats) {
  const DType formats[] = {DType::kBF16, DType::kF16, DType::kQ8_0};
  const int64_t outputs[] = {40, 17, 33}, inputs = 288, rows = 9, total = 90;
  Random random(31);
  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<WeightView> parts;
  for (size_t i = 0; i < 3; ++i) {
    weights.push_back(random_weight(formats[i], outputs[i], inputs, random));
    parts.push_back(weights.back()->view);
  }
  const auto x = random_floats(static_cast<size_t>(rows * inputs), random);
  int num_isas = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = fast_backend(isa, 2);
    GuardedFloats out(static_cast<size_t>(rows * total));
    backend->linear(*pack_parts(*backend, parts), on_device(x.data()), rows, {},
                    on_device(out.data()));
    ASSERT_TRUE(out.intact());
    for (int64_t m = 0; m < rows; ++m) {
      int64_t column = 0;
      for (const auto& weight : weights) {
        for (int64_t n = 0; n < weight->view.num_outputs; ++n, ++column) {
          double sum = 0, squares = 0;
          for (int64_t k = 0; k < inputs; ++k) {
            const double term = double{x[static_cast<size_t>(m * inputs + k)]} *
                                double{weight->values[static_cast<size_t>(n * inputs + k)]};
            sum += term;
            squares += term * term;
          }
          // 8 bits of a block's largest value, or of each; errors add up like a random walk.
          const double tolerance = 0x1p-5 * std::sqrt(squares) + 1e-4;
          EXPECT_NEAR(double{out.values()[static_cast<size_t>(m * total + column)]}, sum, tolerance)
              << isa << " m " << m << " column " << column;
        }
      }
    }
    ++num_isas;
  }
  EXPECT_GE(num_isas, 1);
}

// One pair of inputs times 16 outputs through a row.
std::vector<float> one_pair(const cpu::KernelUnit& unit, std::span<const uint16_t> x,
                            std::span<const uint16_t> weights) {
  const cpu::KernelRow* row = nullptr;
  for (const cpu::KernelRow* candidate : cpu::rows_of(unit)) {
    const bool fits =
        candidate->op == cpu::KernelOp::kMatmul && candidate->activation == ActivationType::kBF16;
    if (fits && row == nullptr) row = candidate;
  }
  EXPECT_TRUE(row != nullptr) << unit.name;
  const auto num_inputs = static_cast<int64_t>(x.size());
  std::vector<uint8_t> panel(weights.size_bytes()), record(512);
  std::memcpy(panel.data(), weights.data(), panel.size());
  std::memcpy(record.data(), x.data(), x.size_bytes());
  std::vector<float> sums(kPanel);
  cpu::MatmulArgs args{};
  args.weight = panel.data();
  args.panel_bytes = panel.size();
  args.num_inputs = num_inputs;
  args.x = record.data();
  args.x_stride = 512;
  args.num_rows = args.num_panels = 1;
  args.sums = sums.data();
  args.sums_stride = kPanel;
  row->function.matmul(args);
  return sums;
}

// All exponents, denormals, infinities and NaN, and sums on the edge of the normal numbers.
TEST(Bf16Class, InstructionAndModelAgreeOnAnyBits) {
  Random random(41);
  int64_t num_denormal = 0, num_nan = 0, num_normal = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    constexpr size_t kInputs = 8;
    uint16_t x[kInputs], weights[kInputs * kPanel];
    // Every second trial near the edge: products around 2^-126.
    const auto draw = [&] {
      const auto bits = static_cast<uint16_t>(random());
      if (trial % 2 == 0) return bits;
      return static_cast<uint16_t>((bits & 0x807Fu) | (56u + random() % 14u) << 7);
    };
    for (uint16_t& value : x) value = draw();
    for (uint16_t& value : weights) value = draw();
    const std::vector<float> expected = one_pair(cpu::kReferenceUnit, x, weights);
    for (const float sum : expected) {
      num_nan += std::isnan(sum);
      num_normal += std::isnormal(sum);
      num_denormal += std::fpclassify(sum) == FP_SUBNORMAL;
    }
    if (!has_bf16_unit()) continue;
    const std::vector<float> sums = one_pair(cpu::kAvx512Bf16Unit, x, weights);
    for (size_t n = 0; n < kPanel; ++n) {
      if (std::isnan(expected[n]) && std::isnan(sums[n])) continue;
      ASSERT_EQ(float_to_bits(sums[n]), float_to_bits(expected[n])) << "trial " << trial;
    }
  }
  EXPECT_EQ(num_denormal, 0);
  EXPECT_GT(num_nan, 1000);
  EXPECT_GT(num_normal, 100'000);
}

TEST(Bf16Class, OddInputsFirstAndOneRoundingEach) {
  // 1 + 2^-24 is a tie and rounds down to 1; then 2^-23 makes it 1 + 2^-23. In the other order
  // 1 + 2^-23 + 2^-24 is a tie that rounds up to 1 + 2^-22.
  const uint16_t one = float_to_bf16(1.0f), small = float_to_bf16(0x1p-12f);
  const uint16_t x[] = {0, one, small, small};
  uint16_t weights[4 * kPanel];
  for (size_t n = 0; n < kPanel; ++n) {
    const uint16_t words[2][2] = {{0, one}, {float_to_bf16(0x1p-11f), small}};
    std::memcpy(weights + 2 * n, words[0], 4);
    std::memcpy(weights + 2 * kPanel + 2 * n, words[1], 4);
  }
  for (const cpu::KernelUnit* unit : {&cpu::kReferenceUnit, &cpu::kAvx512Bf16Unit}) {
    if ((unit->isa & ~cpu::detect_isa()) != 0) continue;
    for (const float sum : one_pair(*unit, x, weights)) EXPECT_EQ(sum, 1.0f + 0x1p-23f);
  }
}

}  // namespace
}  // namespace headrace
