// Quantised safetensors as packed: size, exact values, products, order of inputs, what falls back.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/team/topology.h"
#include "checkpoint/weight_rows.h"
#include "group_cases.h"

namespace headrace {
namespace {

using WeightViews = std::span<const WeightView>;

cpu::KernelSet kernels_of(const std::string& isa) {
  const uint32_t available = cpu::detect_isa();
  return cpu::select_kernels(**cpu::select_unit(isa, available), available);
}

// The weight as the kernels of one unit see it; parts of a linear layer.
std::unique_ptr<cpu::CpuWeight> pack(WeightViews parts, const std::string& isa = "reference") {
  static cpu::Team team(2, cpu::usable_cores());
  auto packed = cpu::pack_weight(parts, WeightRole::kLinear, kernels_of(isa), team);
  EXPECT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ((*packed)->num_bytes(), cpu::packed_weight_bytes(parts, WeightRole::kLinear));
  return std::move(packed).value();
}

std::unique_ptr<cpu::CpuWeight> pack(const GroupWeight& weight,
                                     const std::string& isa = "reference") {
  return pack({&weight.view, 1}, isa);
}

// Input of x that a segment's input k is.
int64_t input_of(const cpu::CpuWeight& packed, const cpu::Segment& segment, int64_t k) {
  const bool ordered =
      !packed.input_order().empty() && cpu::is_of_codes(segment.matmul.activation());
  return ordered ? packed.input_order()[static_cast<size_t>(k)] : k;
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Number of values of the segment that differ from the weight's.
int64_t wrong_values(const cpu::CpuWeight& packed, const cpu::Segment& segment,
                     const GroupWeight& weight) {
  const int64_t inputs = weight.view.num_inputs;
  int64_t num_wrong = 0;
  for (int64_t first = 0; first < inputs; first += cpu::kSliceInputs) {
    const int64_t count = std::min<int64_t>(cpu::kSliceInputs, inputs - first);
    for (int64_t p = 0; p < segment.num_panels; ++p) {
      GuardedFloats values(static_cast<size_t>(count * cpu::kPanel));
      segment.unpack({segment.data + static_cast<size_t>(p) * segment.panel_bytes, inputs, first,
                      count, values.data()});
      EXPECT_TRUE(values.intact()) << weight.view.name;
      for (int64_t i = 0; i < count * cpu::kPanel; ++i) {
        const int64_t row = p * cpu::kPanel + i % cpu::kPanel;
        const int64_t k = input_of(packed, segment, first + i / cpu::kPanel);
        const float expected = row < weight.view.num_outputs
                                   ? weight.values[static_cast<size_t>(row * inputs + k)]
                                   : 0.0f;
        num_wrong += bits_of(values.values()[static_cast<size_t>(i)]) != bits_of(expected);
      }
    }
  }
  return num_wrong;
}

// Largest error of a linear layer against float64, as a share of what is allowed. is_fixed: weights
// as fixed-point numbers.
double worst_ratio(const GroupWeight& weight, std::span<const float> x, int64_t rows,
                   std::span<const float> out, bool is_fixed) {
  const int64_t outputs = weight.view.num_outputs, inputs = weight.view.num_inputs;
  double worst = 0;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = 0, magnitude = 0, weights = 0, largest = 0, largest_weight = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        const double xv = x[static_cast<size_t>(m * inputs + k)];
        const double wv = weight.values[static_cast<size_t>(n * inputs + k)];
        sum += xv * wv;
        magnitude += std::fabs(xv * wv);
        weights += std::fabs(wv);
        largest = std::max(largest, std::fabs(xv));
        largest_weight = std::max(largest_weight, std::fabs(wv));
      }
      // Activations of 16 bits are off by half a unit of at most max|x| / 2^13. Fixed-point weights
      // are by up to four units of half the largest / 2^14, each its own way.
      double allowed = sum_tolerance(inputs, magnitude) + largest * 0x1p-14 * weights;
      if (is_fixed) {
        allowed += largest * 0x1p-12 * largest_weight * std::sqrt(static_cast<double>(inputs));
      }
      const double error = std::fabs(sum - double{out[static_cast<size_t>(m * outputs + n)]});
      worst = std::isnan(error) ? 1e30 : std::max(worst, error / allowed);
    }
  }
  return worst;
}

TEST(Groups, PackedSizeIsTheFiles) {
  int num_cases = 0;
  for (const GroupCase& info : group_cases()) {
    Random random(1);
    const auto weight = group_weight(info, 128, 1024, random);
    const auto packed = pack(*weight);
    EXPECT_EQ(packed->layout(), info.layout) << info.name;
    const double ratio =
        static_cast<double>(packed->num_bytes()) / static_cast<double>(weight->view.stored_bytes());
    EXPECT_LE(ratio, info.max_size_ratio) << info.name;
    ++num_cases;
  }
  EXPECT_GE(num_cases, 30);
}

// [outputs, inputs] after cutting rows: whole and part chunks, panels and groups.
struct Shape {
  int64_t stored_outputs, first, outputs, inputs;
};
constexpr Shape kShapes[] = {
    {32, 0, 32, 256}, {48, 3, 37, 512}, {16, 0, 16, 1024}, {144, 0, 144, 288}, {16, 15, 1, 1056},
};

TEST(Groups, UnpackedValuesAreExact) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    for (const GroupCase& info : group_cases()) {
      Random random(2);
      for (const Shape& shape : kShapes) {
        const auto weight = group_weight(info, shape.stored_outputs, shape.inputs, random);
        take_rows(weight.get(), shape.first, shape.outputs);
        const auto packed = pack(*weight, isa);
        EXPECT_EQ(wrong_values(*packed, packed->segments()[0], *weight), 0)
            << isa << " " << info.name << " [" << shape.outputs << ", " << shape.inputs << "]";
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 300);
}

// Against float64, and each row alone and beside others, bit for bit.
TEST(Groups, LinearMatchesFloat64AndRowsAreIndependent) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const GroupCase& info : group_cases()) {
      Random random(3);
      for (const Shape& shape : kShapes) {
        const auto weight = group_weight(info, shape.stored_outputs, shape.inputs, random);
        take_rows(weight.get(), shape.first, shape.outputs);
        auto packed = backend->pack({&weight->view, 1}, WeightRole::kLinear);
        ASSERT_TRUE(packed.ok());
        const int64_t rows = 27;
        const auto x = random_floats(static_cast<size_t>(rows * shape.inputs), random);
        GuardedFloats out(static_cast<size_t>(rows * shape.outputs));
        backend->linear(**packed, {on_device(x.data())}, rows, {}, on_device(out.data()));
        ASSERT_TRUE(out.intact());
        EXPECT_LE(worst_ratio(*weight, x, rows, out.values(), takes_fixed_point(isa)), 1.0)
            << isa << " " << info.name;
        for (const int64_t count : {1, 2, 7}) {
          std::vector<float> some(static_cast<size_t>(count * shape.outputs));
          const int64_t first = rows - count;
          backend->linear(**packed, {on_device(x.data() + first * shape.inputs)}, count, {},
                          on_device(some.data()));
          EXPECT_TRUE(same_bits(
              some, out.values().subspan(static_cast<size_t>(first * shape.outputs), some.size())))
              << isa << " " << info.name << " rows " << count;
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GE(num_cases, 900);
}

// Integer products are the same bits on every unit, also of one-term activations; in their place
// the AMX unit has classes of its own, the same for one row and for more.
TEST(Groups, UnitsAgree) {
  int num_cases = 0;
  for (const ActivationArithmetic mode :
       {ActivationArithmetic::kExact, ActivationArithmetic::kFast}) {
    for (const GroupCase& info : group_cases()) {
      if (info.bits == 8 && info.scheme != WeightScheme::kGptq &&
          info.scheme != WeightScheme::kCtInt8)
        continue;
      Random random(4);
      const auto weight = group_weight(info, 80, 544, random);
      const auto x = random_floats(5 * 544, random);
      std::vector<float> integers, by_segments;
      for (const std::string& isa : available_isas()) {
        auto backend = create_cpu_backend({.isa = isa, .num_threads = 1, .activations = mode});
        ASSERT_TRUE(backend.ok());
        std::vector<float>& expected = takes_fixed_point(isa) ? by_segments : integers;
        auto packed = (*backend)->pack({&weight->view, 1}, WeightRole::kLinear);
        ASSERT_TRUE(packed.ok());
        for (const int64_t rows : {1, 5}) {
          std::vector<float> out(static_cast<size_t>(rows * 80));
          (*backend)->linear(**packed, {on_device(x.data())}, rows, {}, on_device(out.data()));
          if (rows == 1 && expected.empty()) expected = out;
          EXPECT_TRUE(same_bits(std::span(out).first(80), expected)) << isa << " " << info.name;
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GE(num_cases, 150);
}

const GroupCase& case_named(std::string_view name) {
  const auto cases = group_cases();
  const auto found = std::find_if(cases.begin(), cases.end(),
                                  [&](const GroupCase& info) { return info.name == name; });
  CHECK(found != cases.end(), "{}", name);
  return *found;
}

// Parts that share an order of inputs keep it; a part with another is packed without.
TEST(Groups, PartsShareOneOrderOfInputs) {
  Random random(5);
  const auto q = group_weight(case_named("gptq4_act_order"), 32, 512, random);
  auto k = group_weight(case_named("gptq4_act_order"), 16, 512, random);
  const auto v = group_weight(case_named("gptq4_act_order"), 16, 512, random);
  k->view.group_index = q->view.group_index;
  dequantise_rows(k->view, 0, 16, k->values.data());
  const auto plain = group_weight(case_named("ct4_g128"), 16, 512, random);
  const std::vector<WeightView> parts = {q->view, k->view, v->view, plain->view};
  const auto packed = pack(parts);
  const auto segments = packed->segments();
  EXPECT_EQ(packed->input_order().size(), 512u);
  EXPECT_EQ(segments[0].layout, cpu::Layout::kInt4G128);
  EXPECT_EQ(segments[1].layout, cpu::Layout::kInt4G128);
  EXPECT_EQ(segments[2].layout, cpu::Layout::kF32);
  EXPECT_EQ(segments[3].layout, cpu::Layout::kF32);
  const GroupWeight* weights[] = {q.get(), k.get(), v.get(), plain.get()};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(wrong_values(*packed, segments[i], *weights[i]), 0) << i;
  const auto x = random_floats(3 * 512, random);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    auto whole = backend->pack(parts, WeightRole::kLinear);
    ASSERT_TRUE(whole.ok());
    std::vector<float> out(3 * 80);
    backend->linear(**whole, {on_device(x.data())}, 3, {}, on_device(out.data()));
    int64_t column = 0;
    for (const GroupWeight* weight : weights) {
      std::vector<float> part;
      for (size_t m = 0; m < 3; ++m) {
        const auto begin = out.begin() + static_cast<ptrdiff_t>(m * 80) + column;
        part.insert(part.end(), begin, begin + weight->view.num_outputs);
      }
      EXPECT_LE(worst_ratio(*weight, x, 3, part, takes_fixed_point(isa)), 1.0) << isa;
      column += weight->view.num_outputs;
    }
  }
}

// Rows of an embedding table come back in the order of the model's inputs.
TEST(Groups, EmbeddingsKeepTheirOrder) {
  Random random(6);
  for (const char* name : {"gptq4_act_order", "gptq8_g128", "nvfp4", "fp8_row"}) {
    const auto weight = group_weight(case_named(name), 32, 256, random);
    for (const std::string& isa : available_isas()) {
      const auto backend = make_backend(isa, 1);
      auto packed = backend->pack({&weight->view, 1}, WeightRole::kEmbedding);
      ASSERT_TRUE(packed.ok());
      std::vector<int32_t> ids(32);
      std::iota(ids.begin(), ids.end(), 0);
      std::vector<float> out(weight->values.size());
      backend->embed(**packed, ids, 1.0f, nullptr, on_device(out.data()));
      EXPECT_TRUE(same_bits(out, weight->values)) << isa << " " << name;
    }
  }
}

// What no coded layout holds is packed as its float32 values.
TEST(Groups, OddShapesFallBack) {
  struct Odd {
    GroupCase info;
    int64_t inputs;
    const char* layout;
  };
  GroupCase odd_group = case_named("ct4_g128");
  odd_group.group_size = 48;
  GroupCase large_scales = case_named("fp8_row");
  const Odd cases[] = {
      {odd_group, 480, "f32x16"},
      {case_named("gptq4_g128"), 200, "f32x16"},
      {case_named("ct8_g128"), 300, "f32x16"},
      {case_named("int8_row"), 77, "f32x16"},
      {case_named("nvfp4"), 48, "f32x16"},
      {case_named("fp8_row"), 77, "e4m3x16"},
      {case_named("fp8_block"), 333, "e4m3x16"},
      {large_scales, 64, "f32x16"},
  };
  int num_cases = 0;
  for (const Odd& odd : cases) {
    Random random(7);
    const auto weight = group_weight(odd.info, 48, odd.inputs, random);
    if (odd.inputs == 64) {
      const uint16_t half = 0x4400;  // 512 as bf16
      std::memcpy(weight->tensors.back().data(), &half, sizeof(half));
    }
    take_rows(weight.get(), 0, 33);
    for (const std::string& isa : available_isas()) {
      const auto backend = make_backend(isa, 1);
      auto packed = backend->pack({&weight->view, 1}, WeightRole::kLinear);
      ASSERT_TRUE(packed.ok());
      EXPECT_EQ((*packed)->layout(), odd.layout) << weight->view.name << " " << odd.inputs;
      const auto x = random_floats(static_cast<size_t>(6 * odd.inputs), random);
      GuardedFloats out(6 * 33);
      backend->linear(**packed, {on_device(x.data())}, 6, {}, on_device(out.data()));
      EXPECT_TRUE(out.intact());
      EXPECT_LE(worst_ratio(*weight, x, 6, out.values(), takes_fixed_point(isa)), 1.0)
          << isa << " " << weight->view.name;
      ++num_cases;
    }
    const auto direct = pack(*weight);
    EXPECT_EQ(wrong_values(*direct, direct->segments()[0], *weight), 0) << weight->view.name;
  }
  EXPECT_GE(num_cases, 16);
}

// An 8-bit float that is no number makes its output NaN, and no other.
TEST(Groups, NanWeightsReachTheirOutput) {
  Random random(8);
  const auto weight = group_weight(case_named("fp8_row"), 32, 256, random);
  weight->tensors.front()[5 * 256 + 200] = std::byte{0xFF};
  const std::vector<float> x(2 * 256, 1.0f);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1);
    auto packed = backend->pack({&weight->view, 1}, WeightRole::kLinear);
    ASSERT_TRUE(packed.ok());
    std::vector<float> out(2 * 32);
    backend->linear(**packed, {on_device(x.data())}, 2, {}, on_device(out.data()));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i % 32 == 5) << isa;
  }
}

TEST(Groups, ScalesThatAreNoNumbersAreRefused) {
  Random random(9);
  const auto weight = group_weight(case_named("mxfp4"), 16, 64, random);
  weight->tensors[1][2 * 3 + 1] = std::byte{0xFF};
  const auto backend = make_backend("reference", 1);
  const auto packed = backend->pack({&weight->view, 1}, WeightRole::kLinear);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(packed.error().message.find("in row 3"), std::string::npos) << packed.error().message;
}

}  // namespace
}  // namespace headrace
