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
                                         {4, 31, 5},   {2, 33, 8},   {3, 64, 16}, {6, 127, 7},
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

constexpr AdapterForm kForms[] = {AdapterForm::kF32, AdapterForm::kBF16, AdapterForm::kInt16};
constexpr const char* kFormNames[] = {"", " bf16", " int16"};
constexpr int kFormBytes[] = {4, 2, 2};

// [rank, width] as a packed adapter has it, and the values of what it has: cut short where they
// are of 16 bits.
struct StoredMatrix {
  std::vector<float> values;
  std::vector<float> factors;  // of each rank
  Operand operand;
};

// One number and what it is worth; `unit` is that of whole numbers.
struct StoredNumber {
  uint32_t bits;
  float value;
};
StoredNumber stored_number(float value, AdapterForm form, float unit) {
  StoredNumber stored{};
  if (form == AdapterForm::kInt16) {
    const auto whole = static_cast<int16_t>(std::clamp(value / unit, -32768.0f, 32767.0f));
    return {static_cast<uint16_t>(whole), unit * static_cast<float>(whole)};
  }
  std::memcpy(&stored.bits, &value, 4);
  if (form == AdapterForm::kBF16) stored.bits &= 0xFFFF0000u;
  std::memcpy(&stored.value, &stored.bits, 4);
  if (form == AdapterForm::kBF16) stored.bits >>= 16;
  return stored;
}

// A power of two, so that all values of a rank fit 15 bits.
float unit_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest < 0x1p-100f ? 0x1p-114f : std::ldexp(1.0f, std::ilogb(largest) - 13);
}

StoredMatrix stored_matrix(std::string_view name, std::vector<float> values, int64_t width,
                           AdapterForm form, int64_t together) {
  constexpr int64_t kHalf = kAdapterBlock / 2;
  const int64_t rank = std::ssize(values) / width, blocks = num_adapter_blocks(width);
  const auto bytes = static_cast<size_t>(kFormBytes[static_cast<size_t>(form)]);
  const int64_t groups = (rank + together - 1) / together;
  std::vector<uint8_t> data(static_cast<size_t>(groups * blocks * together * kAdapterBlock) *
                            bytes);
  std::vector<float> factors(static_cast<size_t>(rank), 1.0f);
  for (int64_t j = 0; j < rank; ++j) {
    const float unit =
        unit_of({&values[static_cast<size_t>(j * width)], static_cast<size_t>(width)});
    if (form == AdapterForm::kInt16) factors[static_cast<size_t>(j)] = unit / 65536;
    for (int64_t i = 0; i < width; ++i) {
      float& value = values[static_cast<size_t>(j * width + i)];
      const StoredNumber stored = stored_number(value, form, unit);
      value = stored.value;
      const int64_t block = j / together * blocks + i / kAdapterBlock;
      const int64_t place = i % kAdapterBlock;
      const int64_t at = (block * together + j % together) * kAdapterBlock +
                         (bytes == 4 ? place : 2 * (place % kHalf) + place / kHalf);
      std::memcpy(data.data() + static_cast<size_t>(at) * bytes, &stored.bits, bytes);
    }
  }
  return {std::move(values), std::move(factors), input_of(name, data, 64)};
}

Problem shrink_problem(const AdapterSize& size, Values values, AdapterForm form) {
  const auto [rows, width, rank] = size;
  Random random(static_cast<uint32_t>(rows * 1000 + width + rank));
  const int64_t x_stride = width + 3, out_stride = rank + 2;
  const float scale = are_whole(values) ? 2.0f : 0.3f;
  const auto x = sample_values(values, rows, width, random);
  StoredMatrix a =
      stored_matrix("a", sample_values(values, rank, width, random), width, form, kAdapterRanks);
  for (float& factor : a.factors) factor *= scale;
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
                             kFormNames[static_cast<size_t>(form)]);
  problem.operands = {strided_input("x", x, width, x_stride), a.operand,
                      input_of("factors", a.factors), std::move(out)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t step = in_parts ? kAdapterRanks : rank;
    const AdapterBlocks whole{at[1], kAdapterRanks, form};
    for (int64_t j = 0; j < rank; j += step) {
      AdapterBlocks blocks = whole;
      blocks.values += j / kAdapterRanks * num_adapter_blocks(width) * adapter_block_bytes(whole);
      row.function.shrink({floats(at[0]), x_stride, rows, width, blocks, std::min(step, rank - j),
                           floats(at[2]) + j, floats(at[3]) + j, out_stride});
    }
  };
  return problem;
}

struct ExpandCase {
  AdapterForm form;
  bool factors, bias;
  int64_t skipped;
};
constexpr ExpandCase kExpandCases[] = {
    {AdapterForm::kF32, false, false, 0},   {AdapterForm::kBF16, false, false, 0},
    {AdapterForm::kF32, true, true, 16},    {AdapterForm::kBF16, false, true, 5},
    {AdapterForm::kInt16, false, false, 0}, {AdapterForm::kInt16, true, true, 31}};

struct ExpandInputs {
  std::vector<float> sums, low, factors, bias;
  StoredMatrix b;  // of the outputs skipped too
};

Expected expanded(const AdapterSize& size, const ExpandCase& kind, const ExpandInputs& in,
                  int64_t m, int64_t n) {
  double sum = in.sums[static_cast<size_t>(m * size.width + n)], magnitude = std::fabs(sum);
  for (int64_t j = 0; j < size.rank; ++j) {
    const int64_t at = j * (size.width + kind.skipped) + kind.skipped + n;
    const double term = double{in.low[static_cast<size_t>(m * size.rank + j)]} *
                        double{in.b.values[static_cast<size_t>(at)]} /
                        double{in.b.factors[static_cast<size_t>(j)]};
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

ExpandInputs expand_inputs(const AdapterSize& size, Values values, const ExpandCase& kind) {
  const auto [rows, width, rank] = size;
  Random random(static_cast<uint32_t>(rows * 1000 + width + rank));
  const int64_t stored = width + kind.skipped;
  ExpandInputs in{
      sample_values(values, rows, width, random), sample_values(values, rows, rank, random),
      sample_values(values, 1, width, random), sample_values(values, 1, width, random),
      stored_matrix("b", sample_values(values, rank, stored, random), stored, kind.form, rank)};
  for (size_t i = 0; i < in.low.size(); ++i) {  // as the first product leaves them
    in.low[i] *= in.b.factors[i % static_cast<size_t>(rank)];
  }
  return in;
}

Problem expand_problem(const AdapterSize& size, Values values, const ExpandCase& kind) {
  const auto [rows, width, rank] = size;
  const int64_t stride = (width + 15) / 16 * 16 + 16, low_stride = rank + 1;
  const ExpandInputs in = expand_inputs(size, values, kind);
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
  problem.name =
      fmt::format("[{}, {}] rank {} {}{}{}{} from {}", rows, width, rank, values_name(values),
                  kFormNames[static_cast<size_t>(kind.form)], kind.factors ? " factors" : "",
                  kind.bias ? " bias" : "", kind.skipped);
  problem.operands = {strided_input("low", in.low, rank, low_stride), in.b.operand,
                      input_of("factors", in.factors), input_of("bias", in.bias), std::move(sums)};
  problem.call = [=](const KernelRow& row, Places at, bool in_parts) {
    const int64_t step = in_parts ? 48 : width;
    for (int64_t n = 0; n < width; n += step) {
      AdapterBlocks b{at[1], rank, kind.form};
      const int64_t skipped = kind.skipped + n;
      b.values += skipped / kAdapterBlock * adapter_block_bytes(b);
      row.function.expand({floats(at[0]), low_stride, rows, b, skipped % kAdapterBlock,
                           kind.factors ? floats(at[2]) + n : nullptr,
                           kind.bias ? floats(at[3]) + n : nullptr, floats(at[4]) + n, stride,
                           std::min(step, width - n)});
    }
  };
  return problem;
}

}  // namespace

void visit_shrink_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const AdapterSize& size : adapter_sizes_of(depth)) {
    for (const Values values : adapter_values_of(depth)) {
      for (const AdapterForm form : kForms) {
        visit([=] { return shrink_problem(size, values, form); });
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
