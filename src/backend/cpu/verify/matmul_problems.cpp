// matmul, unpack: packed weights of every layout.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/reference/weights.h"
#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

struct Shape {
  int64_t rows, outputs, inputs;
};

constexpr Shape kStartShapes[] = {{7, 20, 300}};
// Around the tiles (16, 32 and 64 outputs; 6, 12 and 16 rows; slices of 256 inputs), 0, 1 and
// primes.
constexpr Shape kShapes[] = {
    {1, 1, 1},     {0, 5, 7},     {1, 15, 2},    {2, 16, 3},    {3, 17, 31},
    {5, 31, 33},   {13, 33, 259}, {1, 64, 256},  {4, 65, 257},  {12, 48, 255},
    {11, 79, 80},  {7, 24, 112},  {6, 97, 513},  {1, 16, 32},   {2, 32, 64},
    {41, 70, 704}, {1, 150, 300}, {33, 40, 320}, {64, 20, 288}, {5, 33, 1088},
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
    {Values::kRandom, WeightSample::kRandom},   {Values::kOneHot, WeightSample::kExtreme},
    {Values::kWhole, WeightSample::kWhole},     {Values::kNan, WeightSample::kRandom},
    {Values::kConstant, WeightSample::kFilled}, {Values::kSizes, WeightSample::kNan},
};
constexpr Kind kFullKinds[] = {
    {Values::kRandom, WeightSample::kRandom},      {Values::kOneHot, WeightSample::kExtreme},
    {Values::kWhole, WeightSample::kWhole},        {Values::kZeroOne, WeightSample::kWhole},
    {Values::kOneHot, WeightSample::kRandom},      {Values::kRamp, WeightSample::kRandom},
    {Values::kAlternating, WeightSample::kRandom}, {Values::kLarge, WeightSample::kRandom},
    {Values::kSmall, WeightSample::kExtreme},      {Values::kDenormal, WeightSample::kRandom},
    {Values::kMixed, WeightSample::kRandom},       {Values::kNan, WeightSample::kRandom},
    {Values::kConstant, WeightSample::kFilled},    {Values::kConstant, WeightSample::kRandom},
    {Values::kSizes, WeightSample::kNan},          {Values::kSizes, WeightSample::kRandom},
};

// The largest scale times the range of codes, with what is added to them, of a lane's sub-blocks in
// a segment: what fixed-point weights are parts of (classes kFixed, kBf16Codes). Infinite where one
// is no number.
double fixed_bound(const LayoutInfo& info, const uint8_t* panel, int lane, int64_t first,
                   int64_t end) {
  const FixedCode code = fixed_code(info);
  const ChunkOffsets at = chunk_offsets(info);
  double bound = 0;
  for (int64_t k = first; k < end; k += sub_block_inputs(info)) {
    const uint8_t* chunk = panel + k / info.block_inputs * info.chunk_bytes;
    const auto in_chunk = static_cast<int>(k % info.block_inputs);
    float scales[kPanel], minima[kPanel];
    block_factors(info, chunk, info.num_sub_blocks > 0 ? in_chunk / sub_block_inputs(info) : 0,
                  scales, minima);
    const double scale = scales[lane];
    const double offset =
        scale * (code.center - lane_zero(info, at, chunk, lane)) + double{minima[lane]};
    const double sum = std::fabs(scale) * code.range() + std::fabs(offset);
    bound = std::isnan(sum) ? double{INFINITY} : std::max(bound, sum);
  }
  return bound;
}

// A product: weights, activations as the row's type holds them, and both in float64.
struct Product {
  Shape shape;
  Kind kind;
  ActivationType type;
  std::unique_ptr<SampleWeight> weight;
  std::vector<double> weight_bounds;  // [N, K]: what rounding errors are relative to
  std::vector<double> x;              // [M, K]
  Operand x_operand;
  int64_t x_stride = 0;
  FixedCode code{};                  // kFixed, kBF16Codes
  std::vector<double> fixed_bounds;  // likewise: [N, segments]

  Product(const KernelRow& row, Shape wanted, const Kind& wanted_kind, Random& random)
      : shape(wanted), kind(wanted_kind), type(row.activation) {
    shape.inputs = whole_inputs(row.layout, shape.inputs);
    weight = sample_weight(row.layout, kind.weight, shape.outputs, shape.inputs, random);
    bound_weights(layout_info(row.layout));
    const auto values = sample_values(kind.x, shape.rows, shape.inputs, random);
    if (type == ActivationType::kF32) {
      x.assign(values.begin(), values.end());
      x_stride = shape.inputs + static_cast<int64_t>(random() % 2) * 5;
      x_operand = strided_input("x", values, shape.inputs, x_stride);
      return;
    }
    if (!is_integer(type)) {
      take(round_sample(type, values, shape.rows, shape.inputs));
      return;
    }
    // A scale of max / 127 or of max / 32512 does not hold small whole numbers exactly.
    const bool as_they_are = type != ActivationType::kInt16 && are_whole(kind.x);
    take((as_they_are ? whole_sample : quantise_sample)(type, values, shape.rows, shape.inputs));
  }

  // Activations as a kernel reads them.
  template <typename Sample>
  void take(const Sample& sample) {
    for (int64_t m = 0; m < shape.rows; ++m) {
      for (int64_t k = 0; k < shape.inputs; ++k) x.push_back(sample.value(m, k));
    }
    x_stride = sample.stride();
    x_operand = input_of("x", std::span<const uint8_t>(sample.records()), 64);
  }

  bool is_bf16() const { return type != ActivationType::kF32 && !is_integer(type); }
  bool has_fixed_weights() const {
    return type == ActivationType::kFixed || type == ActivationType::kBF16Codes;
  }

  // A minimum is added apart from the scaled codes: both may be larger than their sum.
  void bound_weights(const LayoutInfo& info) {
    weight_bounds.resize(weight->values.size());
    const auto block = static_cast<size_t>(info.min_bytes != 0 ? sub_block_inputs(info) : 1);
    for (size_t first = 0; first < weight_bounds.size(); first += block) {
      double largest = 0;
      for (size_t i = first; i < first + block; ++i) {
        largest = std::max(largest, std::fabs(double{weight->values[i]}));
      }
      for (size_t i = first; i < first + block; ++i) {
        weight_bounds[i] = info.min_bytes != 0 ? 3 * largest : largest;
      }
    }
  }

  int64_t num_segments() const { return num_fixed_segments(shape.inputs); }
  // Segment i has inputs [first, end).
  struct Inputs {
    int64_t first, end;
  };
  Inputs inputs_of(int64_t i) const {
    const int64_t first = i * kFixedSegment;
    return {first, first + fixed_segment_inputs(first, shape.inputs)};
  }

  void bound_fixed(const LayoutInfo& info, const PackedSample& packed) {
    code = fixed_code(info);
    for (int64_t n = 0; n < shape.outputs; ++n) {
      const uint8_t* panel =
          packed.bytes.data() + static_cast<size_t>(n / kPanel) * packed.panel_bytes;
      for (int64_t i = 0; i < num_segments(); ++i) {
        const auto [first, end] = inputs_of(i);
        fixed_bounds.push_back(fixed_bound(info, panel, static_cast<int>(n % kPanel), first, end));
      }
    }
  }

  // What weights in units of a segment's bound may add, as a share of that. Fixed-point ones: each
  // lies within 1.5 units of its value, or as far as a factor rounded by half a unit moves the
  // largest code; a unit that is a power of two may be twice as large. What sums are rounded to is
  // a hundredth of that, as some activation has all bits. f16 ones: rounding of factor, offset and
  // sum where an offset may be larger than the weight, and what lies below f16.
  double unit_error() const {
    if (is_bf16()) return (code.has_offset ? 0x1.02p-10 : 0) + 0x1p-27;
    const double rounding = 1.6 + (code.is_linear ? 0.5 * code.range() : 0);
    return (code.has_exact_factors ? 2 * rounding : rounding) / double{kFixedLimit};
  }

  // All weights of a bound too small for a unit are zeros. NaN where the weights cannot be held. As
  // bf16, products below the normal numbers are zeros, in units of the weights.
  double fixed_error(int64_t m, int64_t n) const {
    double error = 0;
    for (int64_t i = 0; i < num_segments(); ++i) {
      const double bound = fixed_bounds[static_cast<size_t>(n * num_segments() + i)];
      if (bound > double{kLargestFixedBound}) return NAN;
      double size = 0;
      const auto [first, end] = inputs_of(i);
      for (int64_t k = first; k < end; ++k) {
        size += std::fabs(x[static_cast<size_t>(m * shape.inputs + k)]);
      }
      const bool is_zero = bound < 1.01 * double{kSmallestFixedBound};
      error += size * bound * (is_zero ? 1 : unit_error());
      if (is_bf16())
        error += static_cast<double>(end - first) * 0x1p-125 * 0x1p16 * 2 * double{kBf16CodesStep} *
                 bound;
    }
    return error;
  }

  // How far a float32 sum may lie from the exact one, as a multiple of kRound * sum of magnitudes:
  // one rounding per step and per fold, one of the product, one of the weight. Errors of random
  // terms add up like a random walk; 4 is a generous number of deviations. Integer rows take fewer
  // steps, two per sub-block, and bf16 tiles two per block and term after the sums within a block;
  // bf16 pairs, which take one term, one per input.
  double sum_steps() const {
    const auto inputs = static_cast<double>(shape.inputs);
    double steps = std::min<double>(kSliceInputs, inputs) + inputs / kSliceInputs;
    if (is_integer(type)) steps = inputs / 8;
    if (is_bf16()) steps = 18 + 2 * num_terms(type) * inputs / kActivationBlock;
    if (type == ActivationType::kBF16) steps = std::max(steps, inputs);
    return (are_structured(kind.x) ? steps : 4 * std::sqrt(steps)) + 4;
  }

  Expected expected(int64_t m, int64_t n) const {
    const double* xs = x.data() + m * shape.inputs;
    const auto row = static_cast<size_t>(n * shape.inputs);
    double sum = 0, magnitude = 0;
    for (size_t k = 0; k < static_cast<size_t>(shape.inputs); ++k) {
      sum += xs[k] * double{weight->values[row + k]};
      magnitude += std::fabs(xs[k]) * weight_bounds[row + k];
    }
    double fixed = has_fixed_weights() ? fixed_error(m, n) : 0;
    // By way of f16: half a step of eight bits, and twice of eleven.
    if (type == ActivationType::kBF16Codes) fixed += (0x1.02p-8 + 0x1p-10) * (magnitude + fixed);
    if (std::isnan(sum) || std::isnan(fixed)) return {NAN, 0};
    if (!has_fixed_weights() && are_whole(kind.x) && kind.weight == WeightSample::kWhole)
      return {sum, 0};
    // The product of two scales may be subnormal, and is multiplied with a sum of codes. bf16
    // rows may take every weight and every sum for zero below the normal numbers.
    const double smallest = type == ActivationType::kF32 ? 2 * kTiny
                            : is_bf16()                  ? 2 * num_terms(type) * 0x1p-126
                                                         : 0x1p-126;
    return {sum, sum_steps() * kRound * magnitude + fixed +
                     static_cast<double>(shape.inputs) * smallest};
  }
};

// Where the operands of a matmul lie relative to each other, and how it is called.
struct MatmulCall {
  Shape shape;
  size_t panel_bytes;
  int64_t num_panels;
  ActivationType type;
  int64_t x_stride;
  int64_t sums_stride;

  struct Part {
    int64_t row, num_rows, panel, num_panels;
  };

  void call(const KernelRow& row, Places at, const Part& part) const {
    MatmulArgs args{};
    args.weight = at[0];
    args.panel_bytes = panel_bytes;
    args.num_inputs = shape.inputs;
    args.x = at[1] + part.row * x_stride * 4;
    if (type != ActivationType::kF32) {
      const StoredRows rows = stored_rows(type, part.row, part.num_rows, shape.rows, x_stride);
      args.x = at[1] + rows.offset;
      args.beside = rows.beside;
    }
    args.x_stride = x_stride;
    args.num_rows = part.num_rows;
    args.first_panel = part.panel;
    args.num_panels = part.num_panels;
    args.sums = floats(at[2]) + part.row * sums_stride + part.panel * kPanel;
    args.sums_stride = sums_stride;
    args.scratch = floats(at[3]);
    row.function.matmul(args);
  }

  void operator()(const KernelRow& row, Places at, bool in_parts) const {
    if (!in_parts || shape.rows == 0) {
      call(row, at, {0, shape.rows, 0, num_panels});
      return;
    }
    const int64_t half = num_panels / 2;
    for (int64_t m = 0; m < shape.rows;) {
      // A call's rows begin a tile or lie in one.
      const int64_t rows = std::min({shape.rows - m, 1 + m % 3, kTileOfRows - m % kTileOfRows});
      call(row, at, {m, rows, 0, half});
      call(row, at, {m, rows, half, num_panels - half});
      m += rows;
    }
  }
};

Problem matmul_problem(const KernelRow& row, const Shape& wanted, const Kind& kind, uint32_t seed) {
  Random random(seed);
  Product product(row, wanted, kind, random);
  const Shape& shape = product.shape;
  const PackedSample packed = pack_sample(*product.weight, row.layout);
  if (product.has_fixed_weights()) {
    product.bound_fixed(layout_info(row.layout), packed);
  }
  const int64_t width = packed.num_panels * kPanel;
  const int64_t sums_stride = width + static_cast<int64_t>(random() % 2) * kPanel;
  Operand sums = poisoned_output("sums", shape.rows, width, sums_stride);
  sums.alignment = 64;
  for (int64_t m = 0; m < shape.rows; ++m) {
    Expected* expected = sums.expected.data() + m * sums_stride;
    for (int64_t n = 0; n < shape.outputs; ++n) expected[n] = product.expected(m, n);
    const bool is_nan = kind.x == Values::kNan && m % 2 == 1;
    for (int64_t n = shape.outputs; n < width; ++n) expected[n] = {0, is_nan ? kAnyValue : 0};
  }
  Problem problem;
  problem.name = fmt::format("[{}, {}, {}] {} x {} weights", shape.rows, shape.outputs,
                             shape.inputs, values_name(kind.x), weight_sample_name(kind.weight));
  problem.call = MatmulCall{shape,        packed.panel_bytes, packed.num_panels,
                            product.type, product.x_stride,   sums_stride};
  problem.operands = {input_of("weight", packed.bytes, 64), std::move(product.x_operand),
                      std::move(sums), scratch_of(kMatmulScratchFloats)};
  return problem;
}

Problem unpack_problem(Layout layout, int64_t inputs, int64_t first, WeightSample sample) {
  inputs = whole_inputs(layout, inputs);
  Random random(static_cast<uint32_t>(inputs + first));
  const auto weight = sample_weight(layout, sample, 13, inputs, random);
  const PackedSample packed = pack_sample(*weight, layout);
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
void visit_products(const KernelRow& row, const Shape (&shapes)[kNumShapes],
                    const Kind (&kinds)[kNumKinds], const Visit& visit) {
  uint32_t seed = 1;
  for (const Shape& shape : shapes) {
    for (const Kind& kind : kinds) {
      visit([&] { return matmul_problem(row, shape, kind, seed); });
      ++seed;
    }
  }
}

}  // namespace

void visit_matmul_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    visit_products(row, kStartShapes, kStartKinds, visit);
  } else if (depth == Depth::kQuick) {
    visit_products(row, kShapes, kQuickKinds, visit);
  } else {
    visit_products(row, kShapes, kFullKinds, visit);
    visit_products(row, kRealShapes, kQuickKinds, visit);
  }
}

void visit_unpack_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    visit([&] { return unpack_problem(row.layout, 288, 0, WeightSample::kRandom); });
    return;
  }
  for (const int64_t inputs : {1, 2, 7, 31, 32, 63, 257, 300, 768}) {
    for (int64_t first = 0; first < whole_inputs(row.layout, inputs); first += kSliceInputs) {
      visit([&] { return unpack_problem(row.layout, inputs, first, WeightSample::kRandom); });
      visit([&] { return unpack_problem(row.layout, inputs, first, WeightSample::kExtreme); });
    }
  }
}

}  // namespace headrace::cpu
