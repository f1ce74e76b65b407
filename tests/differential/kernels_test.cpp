// Linear layers: every layout and unit against float64 and against each other.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "checkpoint/weight_rows.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

struct Shape {
  int64_t rows, outputs, inputs;
};

// Around the tiles (16 and 32 outputs, 12 rows, 256 inputs), primes, 0 and 1, and real layers.
constexpr Shape kShapes[] = {
    {1, 1, 1},     {0, 5, 7},     {1, 15, 2},    {2, 16, 3},     {3, 17, 31},  {5, 31, 33},
    {13, 33, 259}, {1, 64, 256},  {4, 65, 257},  {12, 48, 255},  {11, 79, 80}, {7, 24, 112},
    {1, 960, 576}, {24, 96, 512}, {1, 130, 768}, {25, 37, 1280}, {1, 16, 32},  {2, 32, 64},
};

// K in whole blocks of a format.
int64_t whole_blocks(DType dtype, int64_t inputs) {
  const auto block = static_cast<int64_t>(dtype_row(dtype).block_elements);
  return (inputs + block - 1) / block * block;
}

std::unique_ptr<PackedWeight> pack_one(Backend& backend, const TestWeight& weight,
                                       WeightRole role = WeightRole::kLinear) {
  auto packed = backend.pack({&weight.view, 1}, role);
  EXPECT_TRUE(packed.ok());
  EXPECT_EQ(packed.value()->num_bytes(), backend.packed_bytes({&weight.view, 1}, role));
  return std::move(packed).value();
}

// What rounding the activations of coded weights to 16 bits may add: half a unit of the block's
// scale, which is at most max|x| / 2^13.
double rounding_tolerance(std::span<const float> x, std::span<const float> weight) {
  double tolerance = 0;
  for (size_t first = 0; first + 32 <= x.size(); first += 32) {
    double largest = 0, magnitude = 0;
    for (size_t k = first; k < first + 32; ++k) {
      largest = std::max(largest, std::fabs(double{x[k]}));
      magnitude += std::fabs(double{weight[k]});
    }
    tolerance += largest * 0x1p-14 * magnitude;
  }
  return tolerance;
}

// What rounding the activations of dense weights may add, in shares of their size.
double dense_rounding(cpu::ActivationType type) {
  return type == cpu::ActivationType::kBF16 ? 0x1p-8 : 0;
}

// Largest excess of |out - exact| over its tolerance; <= 1 passes. `type` is what dense weights are
// multiplied with.
double worst_ratio(const TestWeight& weight, std::span<const float> x, int64_t rows,
                   std::span<const float> out,
                   cpu::ActivationType type = cpu::ActivationType::kF32) {
  const int64_t outputs = weight.view.num_outputs, inputs = weight.view.num_inputs;
  double worst = 0;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        const double term = double{x[static_cast<size_t>(m * inputs + k)]} *
                            double{weight.values[static_cast<size_t>(n * inputs + k)]};
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = std::fabs(sum - double{out[static_cast<size_t>(m * outputs + n)]});
      double allowed = sum_tolerance(inputs, magnitude) + dense_rounding(type) * magnitude;
      if (dtype_row(weight.view.values.dtype).block_elements > 1) {
        const auto count = static_cast<size_t>(inputs);
        allowed += rounding_tolerance(
            x.subspan(static_cast<size_t>(m) * count, count),
            std::span(weight.values).subspan(static_cast<size_t>(n) * count, count));
      }
      const double ratio = error / allowed;
      worst = std::isnan(ratio) ? 1e30 : std::max(worst, ratio);
    }
  }
  return worst;
}

TEST(KernelTable, HasRows) {
  size_t num_rows = 0;
  for (const cpu::KernelUnit* unit : cpu::all_units()) num_rows += cpu::rows_of(*unit).size();
  EXPECT_GT(num_rows, 100u);
  for (const cpu::LayoutInfo& info : cpu::kLayouts) {
    EXPECT_EQ(static_cast<int>(info.layout), &info - cpu::kLayouts) << info.name;
    if (info.low_bits == 0) continue;
    EXPECT_EQ(info.chunk_bytes, cpu::chunk_offsets(info).end) << info.name;
  }
}

// Packing keeps the file's size, but for the padding of N to 16.
TEST(Pack, CodedLayoutsKeepFileSize) {
  Random random(1);
  const auto backend = make_backend("reference", 1);
  int num_cases = 0;
  for (const DType dtype : tested_dtypes()) {
    if (dtype_row(dtype).block_elements == 1) continue;
    const auto weight = random_weight(dtype, 32, 512, random);
    const auto packed = pack_one(*backend, *weight);
    // IQ4_XS: 2-bit halves of eight scales fill half of a word.
    const size_t slack = dtype == DType::kIQ4XS ? 2u * 2 * 32 : 0;
    EXPECT_EQ(packed->num_bytes(), weight->bytes.size() + slack) << dtype_name(dtype);
    ++num_cases;
  }
  EXPECT_GE(num_cases, 12);
}

// Embedding rows with scale 1 are the dequantised weights, to the last bit.
TEST(Pack, UnpackedWeightsAreExact) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const DType dtype : tested_dtypes()) {
      Random random(2);
      const int64_t inputs = whole_blocks(dtype, 300), outputs = 37;
      const auto weight = random_weight(dtype, outputs, inputs, random);
      const auto packed = pack_one(*backend, *weight, WeightRole::kEmbedding);
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < outputs; ++i) ids.push_back(i);
      GuardedFloats out(weight->values.size());
      backend->embed(*packed, ids, 1.0f, nullptr, on_device(out.data()));
      ASSERT_TRUE(out.intact());
      for (size_t i = 0; i < weight->values.size(); ++i) {
        ASSERT_EQ(out.values()[i], weight->values[i])
            << isa << " " << dtype_name(dtype) << " " << i;
      }
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 18);
}

TEST(Linear, MatchesFloat64) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const DType dtype : tested_dtypes()) {
      Random random(3);
      for (const Shape& shape : kShapes) {
        const int64_t inputs = whole_blocks(dtype, shape.inputs);
        const auto weight = random_weight(dtype, shape.outputs, inputs, random);
        const auto packed = pack_one(*backend, *weight);
        const auto x = random_floats(static_cast<size_t>(shape.rows * inputs), random);
        GuardedFloats out(static_cast<size_t>(shape.rows * shape.outputs));
        backend->linear(*packed, on_device(x.data()), shape.rows, {}, on_device(out.data()));
        ASSERT_TRUE(out.intact());
        EXPECT_LE(worst_ratio(*weight, x, shape.rows, out.values(), cpu::ActivationType::kF32), 1.0)
            << isa << " " << dtype_name(dtype) << " [" << shape.rows << ", " << shape.outputs
            << ", " << inputs << "]";
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 300);
}

// Whole numbers have exact products and sums: every unit gives the exact result.
TEST(Linear, WholeNumbersAreExact) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const DType dtype : tested_dtypes()) {
      if (dtype == DType::kF8E4M3) continue;  // its smallest values are no whole numbers
      // The units of fixed-point activations are no powers of two.
      if (takes_fixed_point(isa) && dtype_row(dtype).block_elements > 1) continue;
      Random random(4);
      const int64_t inputs = whole_blocks(dtype, 290), outputs = 35;
      const auto weight = whole_weight(dtype, outputs, inputs, random);
      const auto packed = pack_one(*backend, *weight);
      for (const int64_t rows : {1, 2, 13}) {
        const auto x = whole_floats(static_cast<size_t>(rows * inputs), random);
        GuardedFloats out(static_cast<size_t>(rows * outputs));
        backend->linear(*packed, on_device(x.data()), rows, {}, on_device(out.data()));
        for (int64_t m = 0; m < rows; ++m) {
          for (int64_t n = 0; n < outputs; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < inputs; ++k) {
              sum += double{x[static_cast<size_t>(m * inputs + k)]} *
                     double{weight->values[static_cast<size_t>(n * inputs + k)]};
            }
            ASSERT_EQ(double{out.values()[static_cast<size_t>(m * outputs + n)]}, sum)
                << isa << " " << dtype_name(dtype) << " m " << m << " n " << n;
          }
        }
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 50);
}

// A row's result does not depend on its neighbours, their number or the number of threads.
TEST(Linear, BitsDependOnTheRowAlone) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    std::unique_ptr<Backend> backends[] = {make_backend(isa, 1), make_backend(isa, 2),
                                           make_backend(isa, 3)};
    for (const DType dtype : tested_dtypes()) {
      Random random(5);
      const int64_t inputs = whole_blocks(dtype, 530), outputs = 150, max_rows = 64;
      const auto weight = random_weight(dtype, outputs, inputs, random);
      const auto x = random_floats(static_cast<size_t>(max_rows * inputs), random);
      std::vector<float> alone(static_cast<size_t>(max_rows * outputs));
      const auto first = pack_one(*backends[0], *weight);
      for (int64_t m = 0; m < max_rows; ++m) {
        backends[0]->linear(*first, on_device(x.data() + m * inputs), 1, {},
                            on_device(alone.data() + m * outputs));
      }
      for (const auto& backend : backends) {
        const auto packed = pack_one(*backend, *weight);
        for (int64_t rows = 1; rows <= max_rows; rows += rows < 20 ? 1 : 11) {
          std::vector<float> out(static_cast<size_t>(rows * outputs));
          backend->linear(*packed, on_device(x.data()), rows, {}, on_device(out.data()));
          ASSERT_TRUE(same_bits(out, std::span(alone).first(out.size())))
              << isa << " " << dtype_name(dtype) << " rows " << rows << " threads "
              << backend->num_threads();
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GE(num_cases, 500);
}

// NaN and infinity travel: they are not hidden by skipped work.
TEST(Linear, NanReachesTheOutput) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    Random random(7);
    const auto weight = random_weight(DType::kQ4_1, 20, 64, random);
    const auto packed = pack_one(*backend, *weight);
    std::vector<float> x(3 * 64, 1.0f);
    x[64 + 63] = NAN;
    std::vector<float> out(3 * 20);
    backend->linear(*packed, on_device(x.data()), 3, {}, on_device(out.data()));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 20 == 1) << isa;
  }
}

TEST(Linear, EpilogueAndParts) {
  Random random(8);
  const DType formats[] = {DType::kQ5_0, DType::kQ8_0, DType::kF32};
  const int64_t outputs[] = {40, 17, 9}, inputs = 64, rows = 5, total = 66;
  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<WeightView> parts;
  for (size_t i = 0; i < 3; ++i) {
    weights.push_back(random_weight(formats[i], outputs[i], inputs, random));
    parts.push_back(weights.back()->view);
  }
  const auto x = random_floats(static_cast<size_t>(rows * inputs), random);
  const auto bias = random_floats(static_cast<size_t>(total), random);
  const auto residual = random_floats(static_cast<size_t>(rows * total), random);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const auto packed = backend->pack(parts, WeightRole::kLinear);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed.value()->num_outputs(), total);
    std::vector<float> out = residual;  // the output may be the residual itself
    backend->linear(*packed.value(), on_device(x.data()), rows,
                    {on_device(bias.data()), on_device(out.data()), 0.5f, 3.0f},
                    on_device(out.data()));
    for (int64_t m = 0; m < rows; ++m) {
      int64_t column = 0;
      for (const auto& weight : weights) {
        for (int64_t n = 0; n < weight->view.num_outputs; ++n, ++column) {
          double sum = double{bias[static_cast<size_t>(column)]};
          for (int64_t k = 0; k < inputs; ++k) {
            sum += double{x[static_cast<size_t>(m * inputs + k)]} *
                   double{weight->values[static_cast<size_t>(n * inputs + k)]};
          }
          const auto at = static_cast<size_t>(m * total + column);
          const double expected = 3 * std::tanh((double{residual[at]} + 0.5 * sum) / 3);
          EXPECT_NEAR(double{out[at]}, expected, 5e-4) << isa;  // 16-bit activations
        }
      }
    }
  }
}

TEST(GatedLinear, MatchesFloat64AndRowsAgree) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      Random random(9);
      const int64_t inputs = 96, width = 43, rows = 14;
      const auto gate = random_weight(DType::kQ4_1, width, inputs, random);
      const auto up = random_weight(DType::kQ8_0, width, inputs, random);
      const WeightView parts[] = {gate->view, up->view};
      const auto packed = backend->pack(parts, WeightRole::kGateUp);
      ASSERT_TRUE(packed.ok());
      const auto x = random_floats(static_cast<size_t>(rows * inputs), random);
      const auto bias = random_floats(static_cast<size_t>(2 * width), random);
      GuardedFloats out(static_cast<size_t>(rows * width));
      backend->gated_linear(*packed.value(), on_device(x.data()), rows, activation,
                            on_device(bias.data()), on_device(out.data()));
      ASSERT_TRUE(out.intact());
      for (int64_t m = 0; m < rows; ++m) {
        std::vector<float> alone(static_cast<size_t>(width));
        backend->gated_linear(*packed.value(), on_device(x.data() + m * inputs), 1, activation,
                              on_device(bias.data()), on_device(alone.data()));
        EXPECT_TRUE(
            same_bits(alone, out.values().subspan(static_cast<size_t>(m * width), alone.size())));
        for (int64_t n = 0; n < width; ++n) {
          double g = double{bias[static_cast<size_t>(n)]};
          double u = double{bias[static_cast<size_t>(width + n)]};
          for (int64_t k = 0; k < inputs; ++k) {
            const double value = x[static_cast<size_t>(m * inputs + k)];
            g += value * double{gate->values[static_cast<size_t>(n * inputs + k)]};
            u += value * double{up->values[static_cast<size_t>(n * inputs + k)]};
          }
          const double activated =
              activation == Activation::kSilu
                  ? g / (1 + std::exp(-g))
                  : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
          const double rounding =
              takes_fixed_point(isa) ? 2e-3 : 1e-3;  // to a share of 96 inputs, not of 32
          EXPECT_NEAR(double{alone[static_cast<size_t>(n)]}, activated * u,
                      rounding * (1 + std::fabs(activated * u)) * (1 + std::fabs(u)));
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GT(num_cases, 1000);
}

// GGUF's permuted rows and slices read the rows they name.
TEST(Pack, FollowsRowOrder) {
  Random random(10);
  auto weight = random_weight(DType::kQ4_0, 20, 64, random);
  for (int32_t i = 0; i < 20; ++i) weight->view.row_order.push_back((i * 7) % 20);
  std::vector<float> expected(20 * 64);
  dequantise_rows(weight->view, 0, 20, expected.data());
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1);
    const auto packed = pack_one(*backend, *weight, WeightRole::kEmbedding);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 20; ++i) ids.push_back(i);
    std::vector<float> out(expected.size());
    backend->embed(*packed, ids, 2.0f, nullptr, on_device(out.data()));
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 2.0f * expected[i]);
    const DevicePtr<float> sum = on_device(out.data());
    backend->embed(*packed, ids, 1.0f, sum, sum);  // added to what is there
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], 2.0f * expected[i] + expected[i]);
    }
  }
}

}  // namespace
}  // namespace headrace
