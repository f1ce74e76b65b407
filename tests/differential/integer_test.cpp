// Integer activations: quantising and every integer row against the reference's, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/topology.h"
#include "base/buffer.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

using cpu::ActivationType;

constexpr ActivationType kIntegerTypes[] = {ActivationType::kInt16, ActivationType::kInt8};
constexpr std::byte kPoison{0xA5};

// Rows that this processor can run.
template <typename F>
int for_each_row(cpu::KernelOp op, ActivationType type, const F& visit) {
  int count = 0;
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    for (const cpu::KernelRow& row : std::span(unit->rows, static_cast<size_t>(unit->num_rows))) {
      if (row.op != op || row.activation != type || (row.isa & ~cpu::detect_isa()) != 0) continue;
      visit(*unit, row);
      ++count;
    }
  }
  return count;
}

struct Records {
  Buffer memory;  // poisoned, kGuard bytes more on both sides
  int64_t slice_stride;
  static constexpr int64_t kGuard = 256;

  uint8_t* data() { return reinterpret_cast<uint8_t*>(memory.data()) + kGuard; }
};

Records empty_records(ActivationType type, int64_t rows, int64_t inputs) {
  const int64_t stride = std::max<int64_t>(rows, 1) * cpu::activation_record_bytes(type);
  const int64_t slices = (inputs + cpu::kSliceInputs - 1) / cpu::kSliceInputs;
  Records records{
      Buffer::allocate(static_cast<size_t>(slices * stride + 2 * Records::kGuard)).value(), stride};
  std::fill(records.memory.data(), records.memory.data() + records.memory.size(), kPoison);
  return records;
}

Records quantised(const cpu::KernelRow& row, std::span<const float> x, int64_t rows,
                  int64_t inputs) {
  Records records = empty_records(row.activation, rows, inputs);
  row.function.quantise({x.data(), rows, inputs, records.data(), records.slice_stride});
  return records;
}

const cpu::KernelRow& reference_row(cpu::KernelOp op, ActivationType type, cpu::Layout layout) {
  const cpu::KernelUnit& unit = *cpu::all_units().back();
  for (const cpu::KernelRow& row : std::span(unit.rows, static_cast<size_t>(unit.num_rows))) {
    if (row.op == op && row.activation == type && row.layout == layout) return row;
  }
  ADD_FAILURE() << "no reference row";
  return unit.rows[0];
}

// Rows of x of every kind that quantising treats apart.
std::vector<std::vector<float>> activation_rows(int64_t inputs, Random& random) {
  const auto count = static_cast<size_t>(inputs);
  std::vector<std::vector<float>> rows;
  rows.push_back(random_floats(count, random));
  rows.push_back(std::vector<float>(count, 0.0f));
  rows.push_back(std::vector<float>(count, -0.0f));
  for (const float scale : {1e-44f, 0.99e-25f, 1e-20f, 1e20f, 0.99e35f, 3.0e38f / 5}) {
    std::vector<float> row = random_floats(count, random);
    for (float& v : row) v = std::clamp(v, -1.0f, 1.0f) * scale;
    rows.push_back(std::move(row));
  }
  for (const float special :
       {NAN, INFINITY, -INFINITY, std::numeric_limits<float>::max(), -0.0f, 1.0f, -32639.0f}) {
    std::vector<float> row = random_floats(count, random);
    for (size_t i = 7; i < count; i += 41) row[i] = special;
    rows.push_back(std::move(row));
  }
  for (const int step : {1, 3}) {  // ties between two whole numbers, and powers of two
    std::vector<float> row(count);
    for (size_t i = 0; i < count; ++i) {
      row[i] = std::ldexp(static_cast<float>(static_cast<int>(random() % 255) - 127),
                          -step * static_cast<int>(i / 32 % 5));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(Quantise, EveryUnitWritesTheBitsOfTheReference) {
  int num_cases = 0;
  for (const ActivationType type : kIntegerTypes) {
    const cpu::KernelRow& reference =
        reference_row(cpu::KernelOp::kQuantise, type, cpu::Layout::kCount);
    for (const int64_t inputs : {32, 64, 224, 256, 288, 576}) {
      Random random(11);
      std::vector<float> x;
      const auto rows = activation_rows(inputs, random);
      for (const auto& row : rows) x.insert(x.end(), row.begin(), row.end());
      const auto num_rows = static_cast<int64_t>(rows.size());
      const Records expected = quantised(reference, x, num_rows, inputs);
      for_each_row(cpu::KernelOp::kQuantise, type, [&](const auto& unit, const auto& row) {
        const Records found = quantised(row, x, num_rows, inputs);
        EXPECT_EQ(std::memcmp(expected.memory.data(), found.memory.data(), found.memory.size()), 0)
            << unit.name << " " << row.name << " K " << inputs;
        ++num_cases;
      });
      const Records none = quantised(reference, {}, 0, inputs);
      EXPECT_TRUE(std::all_of(none.memory.data(), none.memory.data() + none.memory.size(),
                              [](std::byte byte) { return byte == kPoison; }));
    }
  }
  EXPECT_GE(num_cases, 12);
}

// x = scale X within half a unit, X in its range, and the sums are those of X.
TEST(Quantise, RecordsSayWhatTheyHold) {
  Random random(12);
  const std::vector<float> x = random_floats(256, random);
  for (const ActivationType type : kIntegerTypes) {
    const bool two_terms = type == ActivationType::kInt16;
    Records records =
        quantised(reference_row(cpu::KernelOp::kQuantise, type, cpu::Layout::kCount), x, 1, 256);
    for (int block = 0; block < cpu::kSliceBlocks; ++block) {
      cpu::BlockFactors factors;
      std::memcpy(&factors,
                  records.data() + cpu::kSliceBlocks * cpu::activation_code_bytes(type) +
                      static_cast<size_t>(block) * sizeof(factors),
                  sizeof(factors));
      const uint8_t* codes = records.data() + block * cpu::activation_code_bytes(type);
      int32_t halves[2] = {};
      for (int i = 0; i < 32; ++i) {
        int32_t value = static_cast<int8_t>(codes[i]);
        if (two_terms) value = 256 * value + static_cast<int8_t>(codes[32 + i]);
        EXPECT_LE(std::abs(value), two_terms ? 32639 : 127);
        EXPECT_NEAR(double{factors.scale} * value, double{x[static_cast<size_t>(block * 32 + i)]},
                    0.5001 * double{factors.scale});
        halves[i / 16] += value;
      }
      EXPECT_EQ(factors.minus_sum, -halves[0] - halves[1]);
      EXPECT_EQ(factors.sum, factors.scale * static_cast<float>(halves[0] + halves[1]));
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(factors.minus_half_sums[i], -halves[i]);
        EXPECT_EQ(factors.half_sums[i], factors.scale * static_cast<float>(halves[i]));
      }
    }
  }
}

struct Case {
  int64_t rows, panels, inputs;
};

// Around the tiles: rows of a register tile, pairs of panels, slices of 256 inputs; 300 is whole
// super-blocks for the formats that have them.
constexpr Case kCases[] = {
    {0, 2, 32},  {1, 1, 32},   {1, 5, 256},  {1, 9, 576},   {2, 2, 64},   {2, 3, 288},
    {3, 4, 512}, {5, 1, 768},  {6, 2, 256},  {7, 5, 300},   {12, 3, 544}, {13, 8, 96},
    {17, 9, 32}, {33, 3, 320}, {64, 2, 300}, {64, 7, 1056},
};

class IntegerRows : public ::testing::Test {
 protected:
  // All integer rows of the weight's layout against the reference's, for both types.
  void check(const TestWeight& weight, std::span<const float> x, int64_t rows) {
    const int64_t inputs = num_inputs_ = weight.view.num_inputs;
    const int64_t outputs = weight.view.num_outputs;
    const cpu::KernelSet reference =
        cpu::select_kernels(*cpu::all_units().back(), cpu::detect_isa());
    const auto packed = cpu::pack_weight({&weight.view, 1}, WeightRole::kLinear, reference, team_);
    ASSERT_TRUE(packed.ok());
    const cpu::Segment& segment = (*packed)->segments()[0];
    for (const ActivationType type : kIntegerTypes) {
      const cpu::KernelRow& quantise =
          reference_row(cpu::KernelOp::kQuantise, type, cpu::Layout::kCount);
      Records records = quantised(quantise, x, rows, inputs);
      const std::vector<float> expected = sums_of(
          reference_row(cpu::KernelOp::kMatmul, type, segment.layout), segment, records, rows);
      for_each_row(cpu::KernelOp::kMatmul, type, [&](const auto& unit, const auto& row) {
        if (row.layout != segment.layout) return;
        const std::vector<float> sums = sums_of(row, segment, records, rows);
        EXPECT_TRUE(std::all_of(sums.begin(), sums.end(), [](float v) { return std::isfinite(v); }))
            << unit.name << " " << row.name;
        EXPECT_TRUE(same_bits(sums, expected)) << unit.name << " " << row.name << " [" << rows
                                               << ", " << outputs << ", " << inputs << "]";
        ++num_cases_;
      });
    }
  }

  // Runs all integer rows; bad[i] says whether sum i is no finite number.
  int check_finite(const TestWeight& weight, std::span<const float> x, int64_t rows,
                   const std::vector<bool>& bad) {
    num_inputs_ = weight.view.num_inputs;
    const cpu::KernelSet reference =
        cpu::select_kernels(*cpu::all_units().back(), cpu::detect_isa());
    const auto packed = cpu::pack_weight({&weight.view, 1}, WeightRole::kLinear, reference, team_);
    EXPECT_TRUE(packed.ok());
    const cpu::Segment& segment = (*packed)->segments()[0];
    int count = 0;
    for (const ActivationType type : kIntegerTypes) {
      const cpu::KernelRow& quantise =
          reference_row(cpu::KernelOp::kQuantise, type, cpu::Layout::kCount);
      Records records = quantised(quantise, x, rows, num_inputs_);
      for_each_row(cpu::KernelOp::kMatmul, type, [&](const auto& unit, const auto& row) {
        if (row.layout != segment.layout) return;
        const std::vector<float> sums = sums_of(row, segment, records, rows);
        for (size_t i = 0; i < sums.size(); ++i) {
          EXPECT_EQ(!std::isfinite(sums[i]), bad[i]) << unit.name << " " << row.name << " " << i;
        }
        ++count;
      });
    }
    return count;
  }

  int num_cases_ = 0;

 private:
  std::vector<float> sums_of(const cpu::KernelRow& row, const cpu::Segment& segment,
                             Records& records, int64_t rows) {
    const int64_t outputs = segment.num_panels * cpu::kPanel;
    GuardedFloats sums(static_cast<size_t>(rows * outputs));
    std::fill(scratch_.data(), scratch_.data() + scratch_.size(), kPoison);
    // The last panel by a call of its own.
    for (const int64_t first : {int64_t{0}, segment.num_panels - 1}) {
      cpu::MatmulArgs args{};
      args.weight = segment.data;
      args.panel_bytes = segment.panel_bytes;
      args.num_inputs = num_inputs_;
      args.x = records.data();
      args.x_stride = records.slice_stride;
      args.num_rows = rows;
      args.first_panel = first;
      args.num_panels = first == 0 ? std::max<int64_t>(segment.num_panels - 1, 1) : 1;
      args.sums = sums.data() + first * cpu::kPanel;
      args.sums_stride = outputs;
      args.scratch = scratch_.as<float>().data();
      row.function.matmul(args);
    }
    EXPECT_TRUE(sums.intact()) << row.name;
    return {sums.values().begin(), sums.values().end()};
  }

  int64_t num_inputs_ = 0;
  cpu::Team team_{1, {0}};
  Buffer scratch_ = Buffer::allocate(cpu::kMatmulScratchFloats * sizeof(float)).value();
};

TEST_F(IntegerRows, GiveTheBitsOfTheReference) {
  int num_formats = 0;
  for (const DType dtype : tested_dtypes()) {
    if (dtype_row(dtype).block_elements == 1) continue;
    Random random(13);
    const auto block = static_cast<int64_t>(dtype_row(dtype).block_elements);
    for (const Case& shape : kCases) {
      const int64_t inputs = (shape.inputs + block - 1) / block * block;
      const auto weight = random_weight(dtype, shape.panels * cpu::kPanel, inputs, random);
      check(*weight, random_floats(static_cast<size_t>(shape.rows * inputs), random), shape.rows);
    }
    ++num_formats;
  }
  EXPECT_GE(num_formats, 13);
  EXPECT_GE(num_cases_, num_formats * static_cast<int>(std::size(kCases)) * 2);
}

// The largest codes and activations that a file and a quantised block can hold: no sum overflows
// or saturates.
TEST_F(IntegerRows, HoldTheLargestSums) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_1, DType::kIQ4NL, DType::kMXFP4}) {
    for (const int fill : {0x00, 0x7F, 0x80, 0xF7, 0xFF}) {
      Random random(14);
      const auto weight = random_weight(dtype, 32, 64, random);
      const size_t block_bytes = dtype_row(dtype).block_bytes;
      const size_t header = dtype == DType::kQ4_1 ? 4 : dtype == DType::kMXFP4 ? 1 : 2;
      for (size_t i = 0; i < weight->bytes.size(); ++i) {
        if (i % block_bytes >= header) weight->bytes[i] = static_cast<std::byte>(fill);
      }
      for (const float value : {1.0f, -1.0f, 1.9f, -1.9921f}) {
        check(*weight, std::vector<float>(3 * 64, value), 3);
      }
    }
  }
  EXPECT_GE(num_cases_, 4 * 5 * 4 * 2);
}

// Activations of every size that is not empty or infinite, rows of zeros between them.
TEST_F(IntegerRows, TakeActivationsOfAllSizes) {
  int num_formats = 0;
  for (const DType dtype : tested_dtypes()) {
    if (dtype_row(dtype).block_elements == 1) continue;
    Random random(15);
    const int64_t inputs = 512, rows = 14;
    const auto weight = random_weight(dtype, 3 * cpu::kPanel, inputs, random);
    std::vector<float> x = random_floats(static_cast<size_t>(rows * inputs), random);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto block = static_cast<int>(i / 32);
      x[i] = std::clamp(x[i], -1.0f, 1.0f) * std::pow(10.0f, static_cast<float>(block % 57 - 24));
      if (block % 7 == 3) x[i] = 0.0f;
    }
    check(*weight, x, rows);
    ++num_formats;
  }
  EXPECT_GE(num_formats, 13);
}

// A value that is no number makes its row NaN and no other; so does a factor of the weight with its
// output.
TEST_F(IntegerRows, KeepWhatIsNoNumber) {
  int num_rows = 0;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_1, DType::kQ4K, DType::kQ6K, DType::kMXFP4}) {
    Random random(16);
    const int64_t inputs = 512, rows = 8, outputs = 2 * cpu::kPanel;
    const auto weight = random_weight(dtype, outputs, inputs, random);
    std::vector<float> x = random_floats(static_cast<size_t>(rows * inputs), random);
    const float specials[] = {NAN, INFINITY, -INFINITY};
    for (size_t m = 1; m < 4; ++m) x[m * inputs + 100 * m] = specials[m - 1];
    std::vector<bool> bad(static_cast<size_t>(rows * outputs));
    for (size_t i = 0; i < bad.size(); ++i) bad[i] = i / outputs >= 1 && i / outputs < 4;
    num_rows += check_finite(*weight, x, rows, bad);
    if (dtype == DType::kMXFP4) continue;  // has no such factor but NaN, which packing keeps out
    const size_t factor = dtype == DType::kQ6K ? 208 : 0;
    const uint16_t infinity = 0x7C00;
    const size_t row_bytes = weight->bytes.size() / static_cast<size_t>(outputs);
    std::memcpy(weight->bytes.data() + 5 * row_bytes + factor, &infinity, sizeof(infinity));
    for (size_t i = 5; i < bad.size(); i += outputs) bad[i] = true;
    num_rows += check_finite(*weight, x, rows, bad);
  }
  EXPECT_GE(num_rows, 9 * 2);
}

}  // namespace
}  // namespace headrace
