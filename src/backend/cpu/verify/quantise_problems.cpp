// quantise: float32 rows to integer and bf16 activations.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "backend/cpu/verify/problem.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

struct Size {
  int64_t rows, inputs;
};
constexpr Size kStartSizes[] = {{3, 288}};
// Around blocks of 32 and slices of 256 inputs; the last are rows of real models.
constexpr Size kSizes[] = {{0, 64},  {1, 32},  {2, 64},  {3, 224}, {2, 256},  {5, 288},
                           {2, 512}, {9, 544}, {3, 768}, {1, 896}, {7, 1536}, {35, 608}};

// bf16 types take any number of inputs.
constexpr Size kDenseSizes[] = {{1, 1}, {2, 33}, {3, 300}};

constexpr Values kStartValues[] = {Values::kRandom, Values::kNan};
constexpr Values kAllValues[] = {
    Values::kRandom,   Values::kOneHot,  Values::kRamp,      Values::kAlternating,
    Values::kLarge,    Values::kSmall,   Values::kDenormal,  Values::kMixed,
    Values::kSizes,    Values::kZeroOne, Values::kWhole,     Values::kNan,
    Values::kInfinite, Values::kHuge,    Values::kVanishing, Values::kTies};

// The records of fixed-point numbers byte by byte; a unit that is no number as any bytes, which the
// other view checks. What lies behind the last block of a product must stay as it is.
Operand expected_fixed(const QuantisedSample& sample) {
  const std::vector<uint8_t> records = sample.records();
  Operand out = poisoned_output("records", 1, static_cast<int64_t>(records.size() / 4), 0);
  out.alignment = 64;
  out.element = Element::kByte;
  out.expected.assign(records.size(), Expected{});
  const auto expect = [&](int64_t at, int64_t count, double tolerance) {
    for (int64_t i = at; i < at + count; ++i) {
      out.expected[static_cast<size_t>(i)] = {static_cast<double>(records[static_cast<size_t>(i)]),
                                              tolerance};
    }
  };
  for (int64_t m = 0; m < sample.num_rows; ++m) {
    const TilePlaces places(sample.type, m, sample.num_rows, sample.num_inputs);
    for (int64_t k = 0; k < sample.num_inputs; k += kFixedBlock) {
      const int64_t block = k / kFixedBlock, slice = k / kSliceInputs;
      expect(places.line(2 * block), kFixedBlock, 0);
      expect(places.line(2 * block + 1), kFixedBlock, 0);
      expect(places.sums(slice) + k % kSliceInputs / 4, 16, 0);
      const float unit = sample.scales[static_cast<size_t>((m * sample.num_inputs + k) / 32)];
      expect(places.unit(slice), 4, std::isnan(unit) ? kAnyValue : 0);
    }
  }
  return out;
}

// The records byte by byte. Blocks beyond K must stay as they are; where the scale is NaN, its
// factors are checked as floats by the other view.
Operand expected_records(const QuantisedSample& sample) {
  if (sample.type == ActivationType::kFixed) return expected_fixed(sample);
  const std::vector<uint8_t> records = sample.records();
  Operand out = poisoned_output("records", 1, static_cast<int64_t>(records.size() / 4), 0);
  out.alignment = 64;
  out.element = Element::kByte;
  out.expected.assign(records.size(), Expected{});
  for (int64_t m = 0; m < sample.num_rows; ++m) {
    for (int64_t k = 0; k < sample.num_inputs; k += kActivationBlock) {
      const int64_t record =
          k / kSliceInputs * sample.stride() + m * activation_record_bytes(sample.type);
      const int64_t block = k % kSliceInputs / kActivationBlock;
      const int64_t code_bytes = activation_code_bytes(sample.type);
      const int64_t codes = record + block * code_bytes;
      const int64_t factors =
          record + kSliceBlocks * code_bytes + block * int64_t{sizeof(BlockFactors)};
      const auto expect = [&](int64_t at, double tolerance) {
        out.expected[static_cast<size_t>(at)] = {
            static_cast<double>(records[static_cast<size_t>(at)]), tolerance};
      };
      for (int64_t i = 0; i < code_bytes; ++i) expect(codes + i, 0);
      const auto floats_end = static_cast<int64_t>(offsetof(BlockFactors, minus_sum));
      const auto sums_end = static_cast<int64_t>(offsetof(BlockFactors, unused));
      const float scale = sample.scales[static_cast<size_t>((m * sample.num_inputs + k) / 32)];
      for (int64_t i = 0; i < floats_end; ++i) {
        expect(factors + i, std::isnan(scale) ? kAnyValue : 0);
      }
      for (int64_t i = floats_end; i < sums_end; ++i) expect(factors + i, 0);
      for (int64_t i = sums_end; i < int64_t{sizeof(BlockFactors)}; ++i) {
        expect(factors + i, kAnyValue);
      }
    }
  }
  return out;
}

// The same records as floats: of blocks that hold a NaN all factors must be NaN.
Operand expected_nans(const QuantisedSample& sample) {
  Operand out = expected_records(sample);
  const std::vector<Expected> bytes = std::move(out.expected);
  const std::vector<uint8_t> records = sample.records();
  out.element = Element::kF32;
  out.expected.assign(bytes.size() / 4, Expected{0, kAnyValue});
  for (size_t i = 0; i < out.expected.size(); ++i) {
    const double value = read_element(Element::kF32, records.data() + i * 4);
    const bool is_factor = bytes[i * 4].tolerance == kAnyValue;
    // The last word of BlockFactors.
    const bool is_unused = sample.type != ActivationType::kFixed && i % 8 == 7;
    if (is_factor && !is_unused) out.expected[i] = {value, 0};
  }
  return out;
}

// bf16 records byte by byte: the terms of the blocks up to K or to the end of a unit, the rest as
// it is.
Operand expected_terms(const RoundedSample& sample) {
  const std::vector<uint8_t> records = sample.records();
  Operand out = poisoned_output("records", 1, static_cast<int64_t>(records.size() / 4), 0);
  out.alignment = 64;
  out.element = Element::kByte;
  out.expected.assign(records.size(), Expected{});
  const int64_t block_bytes = activation_code_bytes(sample.type);
  const int64_t unit = activation_unit(sample.type);
  for (int64_t m = 0; m < sample.num_rows; ++m) {
    for (int64_t k = 0; k < divide_up(sample.num_inputs, unit) * unit; k += kActivationBlock) {
      const int64_t first = sample.block_at(m, k);
      for (auto at = static_cast<size_t>(first); at < static_cast<size_t>(first + block_bytes);
           ++at) {
        out.expected[at] = {static_cast<double>(records[at]), 0};
      }
    }
  }
  return out;
}

Problem quantise_problem(ActivationType type, const Size& size, Values values, bool as_floats) {
  Random random(static_cast<uint32_t>(size.rows * 1000 + size.inputs));
  const auto x = sample_values(values, size.rows, size.inputs, random);
  Problem problem;
  problem.name = fmt::format("[{}, {}] {}", size.rows, size.inputs, values_name(values));
  problem.operands.push_back(input_of("x", x));
  if (is_integer(type)) {
    const QuantisedSample sample = quantise_sample(type, x, size.rows, size.inputs);
    problem.operands.push_back(as_floats ? expected_nans(sample) : expected_records(sample));
  } else {
    problem.operands.push_back(expected_terms(round_sample(type, x, size.rows, size.inputs)));
  }
  const int64_t stride = activation_stride(type, size.rows, size.inputs);
  problem.call = [size, type, stride](const KernelRow& row, Places at, bool in_parts) {
    const int64_t part = in_parts ? 2 : std::max<int64_t>(1, size.rows);
    for (int64_t m = 0; m < std::max<int64_t>(1, size.rows); m += part) {
      const int64_t count = std::min(part, size.rows - m);
      const StoredRows rows = stored_rows(type, m, count, size.rows, stride);
      row.function.quantise({floats(at[0]) + m * size.inputs, count, size.inputs,
                             at[1] + rows.offset, stride, rows.beside});
    }
  };
  return problem;
}

}  // namespace

void visit_quantise_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  const bool start = depth == Depth::kStart;
  const std::span<const Size> sizes = start ? std::span<const Size>(kStartSizes) : kSizes;
  const std::span<const Values> all = start ? std::span<const Values>(kStartValues) : kAllValues;
  if (!is_integer(row.activation)) {
    for (const Size& size : kDenseSizes) {
      for (const Values values : all) {
        visit([&] { return quantise_problem(row.activation, size, values, false); });
      }
    }
  }
  for (const Size& size : sizes) {
    for (const Values values : all) {
      visit([&] { return quantise_problem(row.activation, size, values, false); });
      const bool has_nans = values == Values::kNan || values == Values::kInfinite;
      if (has_nans && is_integer(row.activation)) {
        visit([&] { return quantise_problem(row.activation, size, values, true); });
      }
    }
  }
}

}  // namespace headrace::cpu
