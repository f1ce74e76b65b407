// matmul, unpack: packed weights of every layout.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

struct Shape {
  int64_t rows, outputs, inputs;
};

constexpr Shape kStartShapes[] = {{13, 20, 300}};
// Around the tiles (16 and 32 outputs; 6 and 12 rows; slices of 256 inputs), 0, 1 and primes.
constexpr Shape kShapes[] = {
    {1, 1, 1},     {0, 5, 7},    {1, 15, 2},   {2, 16, 3},    {3, 17, 31},  {5, 31, 33},
    {13, 33, 259}, {1, 64, 256}, {4, 65, 257}, {12, 48, 255}, {11, 79, 80}, {7, 24, 112},
    {6, 97, 513},  {1, 16, 32},  {2, 32, 64},  {25, 37, 800},
};
// Layers of small models: SmolLM2 135M, Gemma 3 270M, Qwen2.5 0.5B.
constexpr Shape kRealShapes[] = {
    {1, 960, 576}, {17, 576, 1536}, {3, 1024, 640}, {33, 640, 2048}, {2, 1152, 896}, {1, 896, 4864},
};

struct Kind {
  Values x;
  WeightSample weight;
};
constexpr Kind kStartKinds[] = {{Values::kRandom, WeightSample::kRandom}};
constexpr Kind kQuickKinds[] = {
    {Values::kRandom, WeightSample::kRandom},
    {Values::kOneHot, WeightSample::kExtreme},
    {Values::kWhole, WeightSample::kWhole},
};
constexpr Kind kFullKinds[] = {
    {Values::kRandom, WeightSample::kRandom},      {Values::kOneHot, WeightSample::kExtreme},
    {Values::kWhole, WeightSample::kWhole},        {Values::kZeroOne, WeightSample::kWhole},
    {Values::kOneHot, WeightSample::kRandom},      {Values::kRamp, WeightSample::kRandom},
    {Values::kAlternating, WeightSample::kRandom}, {Values::kLarge, WeightSample::kRandom},
    {Values::kSmall, WeightSample::kExtreme},      {Values::kDenormal, WeightSample::kRandom},
    {Values::kMixed, WeightSample::kRandom},
};

// K in whole blocks of a layout.
int64_t whole_blocks(Layout layout, int64_t inputs) {
  const int64_t block = layout_info(layout).block_inputs;
  return block <= 2 ? inputs : (inputs + block - 1) / block * block;
}

// How far a float32 sum of products in slices may lie from the exact one, as a multiple of
// kRound * sum of magnitudes: one rounding per step and per fold, one of the product, one of the
// weight. Errors of random terms add up like a random walk; 4 is a generous number of deviations.
double sum_steps(int64_t num_inputs, Values values) {
  const double steps = static_cast<double>(std::min<int64_t>(kSliceInputs, num_inputs)) +
                       static_cast<double>(num_inputs) / kSliceInputs;
  return (are_structured(values) ? steps : 4 * std::sqrt(steps)) + 3;
}

Expected dot(const float* x, const float* w, int64_t num_inputs, const Kind& kind) {
  double sum = 0, magnitude = 0;
  for (int64_t k = 0; k < num_inputs; ++k) {
    const double term = double{x[k]} * double{w[k]};
    sum += term;
    magnitude += std::fabs(term);
  }
  if (are_whole(kind.x) && kind.weight == WeightSample::kWhole) return {sum, 0};
  const auto terms = static_cast<double>(num_inputs);
  return {sum, sum_steps(num_inputs, kind.x) * kRound * magnitude + 2 * terms * kTiny};
}

// One operand set of a matmul, and how it is called.
struct MatmulCase {
  Shape shape;
  size_t panel_bytes;
  int64_t num_panels;
  int64_t x_stride;
  int64_t sums_stride;

  // Rows [row, row + rows) times panels [panel, panel + panels).
  void call(const KernelRow& row, Places at, Shape first, Shape count) const {
    MatmulArgs args{};
    args.weight = at[0];
    args.panel_bytes = panel_bytes;
    args.num_inputs = shape.inputs;
    args.x = floats(at[1]) + first.rows * x_stride;
    args.x_stride = x_stride;
    args.num_rows = count.rows;
    args.first_panel = first.outputs;
    args.num_panels = count.outputs;
    args.sums = floats(at[2]) + first.rows * sums_stride + first.outputs * kPanel;
    args.sums_stride = sums_stride;
    args.scratch = floats(at[3]);
    row.function.matmul(args);
  }

  void operator()(const KernelRow& row, Places at, bool in_parts) const {
    if (!in_parts || shape.rows == 0) {
      call(row, at, {}, {shape.rows, num_panels, 0});
      return;
    }
    const int64_t half = num_panels / 2;
    for (int64_t m = 0; m < shape.rows;) {
      const int64_t rows = std::min(shape.rows - m, 1 + m % 3);
      call(row, at, {m, 0, 0}, {rows, half, 0});
      call(row, at, {m, half, 0}, {rows, num_panels - half, 0});
      m += rows;
    }
  }
};

void expect_sums(const SampleWeight& weight, std::span<const float> x, const Kind& kind,
                 const MatmulCase& setup, Operand* sums) {
  const Shape& shape = setup.shape;
  for (int64_t m = 0; m < shape.rows; ++m) {
    Expected* row = sums->expected.data() + m * setup.sums_stride;
    for (int64_t n = 0; n < setup.num_panels * kPanel; ++n) {
      row[n] = n < shape.outputs ? dot(x.data() + m * shape.inputs,
                                       weight.values.data() + n * shape.inputs, shape.inputs, kind)
                                 : Expected{0, 0};
    }
  }
}

Problem matmul_problem(Layout layout, Shape shape, const Kind& kind, uint32_t seed) {
  Random random(seed);
  shape.inputs = whole_blocks(layout, shape.inputs);
  const auto weight =
      sample_weight(storage_of(layout), kind.weight, shape.outputs, shape.inputs, random);
  const auto x = sample_values(kind.x, shape.rows, shape.inputs, random);
  const PackedSample packed = pack_sample(*weight);
  const MatmulCase setup{shape, packed.panel_bytes, packed.num_panels,
                         shape.inputs + static_cast<int64_t>(random() % 2) * 5,
                         (packed.num_panels + static_cast<int64_t>(random() % 2)) * kPanel};
  Problem problem;
  problem.name = fmt::format("[{}, {}, {}] {} x {} weights", shape.rows, shape.outputs,
                             shape.inputs, values_name(kind.x), weight_sample_name(kind.weight));
  problem.operands.push_back(input_of("weight", packed.bytes, 64));
  problem.operands.push_back(strided_input("x", x, shape.inputs, setup.x_stride));
  Operand sums = poisoned_output("sums", shape.rows, packed.num_panels * kPanel, setup.sums_stride);
  sums.alignment = 64;
  expect_sums(*weight, x, kind, setup, &sums);
  problem.operands.push_back(std::move(sums));
  problem.operands.push_back(scratch_of(kMatmulScratchFloats));
  problem.call = setup;
  return problem;
}

Problem unpack_problem(Layout layout, int64_t inputs, int64_t first, WeightSample sample) {
  inputs = whole_blocks(layout, inputs);
  Random random(static_cast<uint32_t>(inputs + first));
  const auto weight = sample_weight(storage_of(layout), sample, 13, inputs, random);
  const PackedSample packed = pack_sample(*weight);
  const int64_t count = std::min<int64_t>(kSliceInputs, inputs - first);
  Problem problem;
  problem.name = fmt::format("inputs {} to {} of {}, {} weights", first, first + count, inputs,
                             weight_sample_name(sample));
  problem.operands.push_back(input_of("panel", packed.bytes, 64));
  Operand values = poisoned_output("values", count, kPanel, kPanel);
  values.alignment = 64;
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t n = 0; n < kPanel; ++n) {
      const auto at = static_cast<size_t>(n * inputs + first + k);
      values.expected[static_cast<size_t>(k * kPanel + n)] = {
          n < weight->view.num_outputs ? double{weight->values[at]} : 0.0, 0};
    }
  }
  problem.operands.push_back(std::move(values));
  problem.call = [inputs, first, count](const KernelRow& row, Places at, bool) {
    row.function.unpack({at[0], inputs, first, count, floats(at[1])});
  };
  return problem;
}

template <size_t kNumShapes, size_t kNumKinds>
void visit_products(Layout layout, const Shape (&shapes)[kNumShapes],
                    const Kind (&kinds)[kNumKinds], const Visit& visit) {
  uint32_t seed = 1;
  for (const Shape& shape : shapes) {
    for (const Kind& kind : kinds) visit(matmul_problem(layout, shape, kind, seed++));
  }
}

}  // namespace

void visit_matmul_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    visit_products(row.layout, kStartShapes, kStartKinds, visit);
  } else if (depth == Depth::kQuick) {
    visit_products(row.layout, kShapes, kQuickKinds, visit);
  } else {
    visit_products(row.layout, kShapes, kFullKinds, visit);
    visit_products(row.layout, kRealShapes, kQuickKinds, visit);
  }
}

void visit_unpack_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    visit(unpack_problem(row.layout, 288, 0, WeightSample::kRandom));
    return;
  }
  for (const int64_t inputs : {1, 2, 7, 31, 32, 63, 257, 300, 768}) {
    for (int64_t first = 0; first < whole_blocks(row.layout, inputs); first += kSliceInputs) {
      visit(unpack_problem(row.layout, inputs, first, WeightSample::kRandom));
      visit(unpack_problem(row.layout, inputs, first, WeightSample::kExtreme));
    }
  }
}

}  // namespace headrace::cpu
