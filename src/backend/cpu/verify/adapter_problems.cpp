// shrink, expand: the two products of an adapter.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {
namespace {

struct AdapterSize {
  int64_t rows, width, rank;
};
// Around the 16 lanes and the vectors that go together; a bias alone; rows of real models.
constexpr AdapterSize kAdapterSizes[] = {{1, 1, 1},    {3, 5, 2},    {2, 16, 4},  {1, 17, 3},
                                         {4, 31, 5},   {2, 33, 8},   {3, 64, 16}, {1, 127, 7},
                                         {2, 576, 16}, {1, 1536, 64}};
constexpr AdapterSize kAdapterStartSizes[] = {{3, 69, 5}};
constexpr Values kAdapterStartValues[] = {Values::kRandom};
constexpr Values kAdapterQuickValues[] = {Values::kRandom, Values::kMixed, Values::kWhole};
constexpr Values kAdapterFullValues[] = {Values::kRandom, Values::kOneHot,   Values::kRamp,
                                         Values::kSmall,  Values::kDenormal, Values::kMixed,
                                         Values::kWhole,  Values::kZeroOne};

std::span<const AdapterSize> adapter_sizes_of(Depth depth) {
  if (depth == Depth::kStart) return kAdapterStartSizes;
  return kAdapterSizes;
}

std::span<const Values> adapter_values_of(Depth depth) {
  if (depth == Depth::kStart) return kAdapterStartValues;
  if (depth == Depth::kQuick) return kAdapterQuickValues;
  return kAdapterFullValues;
}

int64_t padded_width(int64_t width) { return (width + 15) / 16 * 16; }

// [rank, width] as a packed adapter has it, and its values: bf16 ones are cut short.
struct StoredRows {
  std::vector<float> values;
  Operand operand;
};

StoredRows stored_rows(std::string_view name, std::vector<float> values, int64_t width, bool bf16,
                       int64_t more) {
  const int64_t rows = std::ssize(values) / width, stride = padded_width(width);
  const size_t bytes = bf16 ? 2 : 4;
  std::vector<uint8_t> data((static_cast<size_t>(rows * stride + more)) * bytes);
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    float& value = values[static_cast<size_t>(i)];
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (bf16) bits &= 0xFFFF0000u;
    std::memcpy(&value, &bits, 4);
    if (bf16) bits >>= 16;
    std::memcpy(data.data() + static_cast<size_t>(i / width * stride + i % width) * bytes, &bits,
                bytes);
  }
  return {std::move(values), input_of(name, data, 4)};
}

Problem shrink_problem(const AdapterSize& size, Values values, bool bf16) {
  const auto [rows, width, rank] = size;
  Random random(static_cast<uint32_t>(rows * 1000 + width + rank));
  const int64_t x_stride = width + 3, out_stride = rank + 2;
  const float scale = are_whole(values) ? 2.0f : 0.3f;
  const auto x = sample_values(values, rows, width, random);
  const StoredRows a = stored_rows("a", sample_values(values, rank, width, random), width, bf16, 0);
  Operand out = poisoned_output("out", rows, rank, out_stride);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t j = 0; j < rank; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < width; ++k) {
        const double term = double{x[static_cast<size_t>(m * width + k)]} *
                            double{a.values[static_cast<size_t>(j * width + k)]};
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = kRound * static_cast<double>(width + 3) * magnitude +
                           kTiny * static_cast<double>(2 * width + 2);
      out.expected[static_cast<size_t>(m * out_stride + j)] = {scale * sum,
                                                               are_whole(values) ? 0 : error};
    }
  }
  Problem problem;
  problem.name = fmt::format("[{}, {}] rank {} {}{}", rows, width, rank, values_name(values),
                             bf16 ? " bf16" : "");
  problem.operands = {strided_input("x", x, width, x_stride), a.operand, std::move(out)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t step = in_parts ? 3 : rank;
    for (int64_t j = 0; j < rank; j += step) {
      const size_t skipped = static_cast<size_t>(j * padded_width(width)) * (bf16 ? 2 : 4);
      row.function.shrink({floats(at[0]),
                           x_stride,
                           rows,
                           width,
                           {at[1] + skipped, padded_width(width), bf16},
                           std::min(step, rank - j),
                           scale,
                           floats(at[2]) + j,
                           out_stride});
    }
  };
  return problem;
}

struct ExpandCase {
  bool bf16, factors, bias;
};
constexpr ExpandCase kExpandCases[] = {
    {false, false, false}, {true, false, false}, {false, true, true}, {true, false, true}};

struct ExpandInputs {
  std::vector<float> sums, low, factors, bias;
  StoredRows b;
};

Expected expanded(const AdapterSize& size, const ExpandCase& kind, const ExpandInputs& in,
                  int64_t m, int64_t n) {
  double sum = in.sums[static_cast<size_t>(m * size.width + n)], magnitude = std::fabs(sum);
  for (int64_t j = 0; j < size.rank; ++j) {
    const double term = double{in.low[static_cast<size_t>(m * size.rank + j)]} *
                        double{in.b.values[static_cast<size_t>(j * size.width + n)]};
    sum += term;
    magnitude += std::fabs(term);
  }
  double error = kRound * static_cast<double>(size.rank + 3) * magnitude +
                 kTiny * static_cast<double>(2 * size.rank + 2);
  if (kind.factors) {
    const double factor = in.factors[static_cast<size_t>(n)];
    sum *= factor;
    error = error * std::fabs(factor) + kRound * std::fabs(sum) + kTiny;
  }
  if (kind.bias) {
    const double bias = in.bias[static_cast<size_t>(n)];
    sum += bias;
    error += kRound * (std::fabs(sum) + std::fabs(bias)) + kTiny;
  }
  return {sum, error};
}

Problem expand_problem(const AdapterSize& size, Values values, const ExpandCase& kind) {
  const auto [rows, width, rank] = size;
  Random random(static_cast<uint32_t>(rows * 1000 + width + rank));
  const int64_t stride = padded_width(width) + 16, low_stride = rank + 1;
  const ExpandInputs in{
      sample_values(values, rows, width, random), sample_values(values, rows, rank, random),
      sample_values(values, 1, width, random), sample_values(values, 1, width, random),
      stored_rows("b", sample_values(values, rank, width, random), width, kind.bf16, 16)};
  Operand sums = poisoned_output("sums", rows, width, stride);
  for (int64_t m = 0; m < rows; ++m) {
    std::memcpy(sums.bytes.data() + m * stride * 4, in.sums.data() + m * width,
                static_cast<size_t>(width) * 4);
    for (int64_t n = 0; n < width; ++n) {
      Expected& expected = sums.expected[static_cast<size_t>(m * stride + n)];
      expected = expanded(size, kind, in, m, n);
      if (are_whole(values)) expected.tolerance = 0;
    }
  }
  Problem problem;
  problem.name = fmt::format("[{}, {}] rank {} {}{}{}{}", rows, width, rank, values_name(values),
                             kind.bf16 ? " bf16" : "", kind.factors ? " factors" : "",
                             kind.bias ? " bias" : "");
  problem.operands = {strided_input("low", in.low, rank, low_stride), in.b.operand,
                      input_of("factors", in.factors), input_of("bias", in.bias), std::move(sums)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t step = in_parts ? 48 : width;
    for (int64_t n = 0; n < width; n += step) {
      const size_t skipped = static_cast<size_t>(n) * (kind.bf16 ? 2 : 4);
      row.function.expand({floats(at[0]),
                           low_stride,
                           rows,
                           rank,
                           {at[1] + skipped, padded_width(width), kind.bf16},
                           kind.factors ? floats(at[2]) + n : nullptr,
                           kind.bias ? floats(at[3]) + n : nullptr,
                           floats(at[4]) + n,
                           stride,
                           std::min(step, width - n)});
    }
  };
  return problem;
}

}  // namespace

void visit_shrink_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const AdapterSize& size : adapter_sizes_of(depth)) {
    for (const Values values : adapter_values_of(depth)) {
      for (const bool bf16 : {false, true}) {
        visit([=] { return shrink_problem(size, values, bf16); });
      }
    }
  }
}

void visit_expand_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const AdapterSize& size : adapter_sizes_of(depth)) {
    for (const Values values : adapter_values_of(depth)) {
      for (const ExpandCase& kind : kExpandCases) {
        visit([=] { return expand_problem(size, values, kind); });
      }
    }
  }
}

}  // namespace headrace::cpu
