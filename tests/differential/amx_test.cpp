// The kernels of the AMX unit on the model of the tile instructions: coded panels bit for bit as
// the reference rows, bf16 panels bit for bit as their class says and close to float64. The unit
// itself, as it is built for serving, against the same kernels on the model: on AMX, or with its
// tile instructions trapped where the processor has the vectors alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "amx_cases.h"
#include "amx_model_unit.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/kernels/units.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/verify/row_reports.h"
#include "base/numeric.h"
#include "kernel_cases.h"
#include "tile_traps.h"

namespace headrace::cpu {
namespace {

TEST_F(AmxModel, CodedPanelsMatchTheReferenceBitForBit) {
  Random random(11);
  int num_cases = 0;
  for (const DType dtype : tested_dtypes()) {
    if (!is_coded(dtype)) continue;
    for (const int64_t num_inputs : input_counts(dtype)) {
      const Panels panels = random_panels(dtype, 5, num_inputs, random);
      const int sub_inputs = sub_block_inputs(layout_info(panels.layout));
      {
        const ActivationType type = ActivationType::kInt16;
        const KernelRow* row =
            find_row(kAmxIntegerModelUnit, KernelOp::kMatmul, panels.layout, type);
        const KernelRow* oracle = find_row(kReferenceUnit, KernelOp::kMatmul, panels.layout, type);
        const KernelRow* quantise =
            find_row(kReferenceUnit, KernelOp::kQuantise, Layout::kCount, type);
        ASSERT_TRUE(row != nullptr && oracle != nullptr && quantise != nullptr);
        for (const int64_t num_rows : kRowCounts) {
          const auto x = random_floats(static_cast<size_t>(num_rows * num_inputs), random);
          const Activations records = quantised(*quantise, x, num_rows, num_inputs);
          const int64_t first = num_cases % 3, end = first + 1 + num_cases % 2 * 2;
          const auto got = multiply_on_model(*row, panels, records, first, end);
          const TileCounts counts = tile_machine().counts();
          const auto wanted = multiply(*oracle, panels, records, first, end);
          ASSERT_TRUE(same_bits(got, wanted)) << row->name << " M " << num_rows << " K "
                                              << num_inputs << " panels " << first << " " << end;
          const int64_t num_tiles = ceil_div(num_rows, kTileRows);
          const int64_t products =
              num_tiles * (end - first) * (num_inputs / sub_inputs) * num_terms(type);
          EXPECT_EQ(counts.products, products) << row->name << " M " << num_rows;
          EXPECT_EQ(counts.product_rows, products * ceil_div(num_rows, num_tiles));
          EXPECT_EQ(counts.stores, products);
          EXPECT_EQ(counts.configures, 2);  // the stale one and the kernel's
          ++num_cases;
        }
      }
    }
  }
  EXPECT_EQ(num_cases, (7 * 7 + 6 * 2) * 7);
}

// Where the terms of input k and the rest of its block begin.
int64_t block_at(const Activations& x, int64_t row, int64_t k) {
  if (lies_in_tiles(x.type)) {
    const RowInTiles at = row_in_tiles(x.type, row, x.num_rows, x.slice_stride);
    return at.line + k / kActivationBlock * at.pitch;
  }
  return k / kSliceInputs * x.slice_stride + row * activation_record_bytes(x.type) +
         k % kSliceInputs / kActivationBlock * activation_code_bytes(x.type);
}

float stored_bf16(const Activations& x, int64_t row, int64_t k, int term) {
  constexpr int kOfFour[] = {0, 2, 1, 3};  // places of inputs of coded weights
  const int64_t place = x.type == ActivationType::kBF16Codes ? k / 4 * 4 + kOfFour[k % 4] : k;
  const uint8_t* at =
      x.bytes.data() + block_at(x, row, k) + term * 64 + place % kActivationBlock * 2;
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bf16_to_float(bits);
}

// Class kBf16Tile word by word, from the values of the weight.
float class_sum(const Panels& panels, const Activations& x, int64_t m, int64_t n) {
  const float* w = panels.weight->values.data() + n * panels.num_inputs;
  float sum = 0;
  for (int64_t block = 0; block < panels.num_inputs; block += kActivationBlock) {
    for (int term = 0; term < num_terms(x.type); ++term) {
      float parts[2] = {0, 0};
      for (int64_t k = block; k < std::min(block + kActivationBlock, panels.num_inputs); ++k) {
        parts[k % 2] = bf16_fma(stored_bf16(x, m, k, term), w[k], parts[k % 2]);
      }
      sum = bf16_add(sum, bf16_add(parts[0], parts[1]));
    }
  }
  return sum;
}

int64_t bf16_products(int64_t num_rows, int64_t num_panels, int64_t num_inputs, int terms) {
  int64_t num_tiles = ceil_div(num_rows, kTileRows);
  return num_tiles * num_panels * ceil_div(num_inputs, kActivationBlock) * terms;
}

TEST_F(AmxModel, Bf16PanelsMatchTheirClassAndFloat64) {
  Random random(13);
  int num_cases = 0;
  for (const int64_t num_inputs : {1, 2, 31, 32, 33, 64, 255, 256, 257, 600}) {
    const Panels panels = random_panels(DType::kBF16, 7, num_inputs, random);
    for (const ActivationType type : {ActivationType::kBF16x2, ActivationType::kBF16}) {
      const KernelRow* row = find_row(kAmxModelUnit, KernelOp::kMatmul, Layout::kBF16, type);
      const KernelRow* quantise =
          find_row(kAmxModelUnit, KernelOp::kQuantise, Layout::kCount, type);
      ASSERT_TRUE(row != nullptr && quantise != nullptr);
      const double rounding = type == ActivationType::kBF16 ? 0x1p-8 : 0x1p-17;  // of x
      for (const int64_t num_rows : kRowCounts) {
        const auto x = random_floats(static_cast<size_t>(num_rows * num_inputs), random);
        const Activations records = quantised(*quantise, x, num_rows, num_inputs);
        const int64_t first = num_cases % 2, end = first + 1 + num_cases % 6;
        const auto got = multiply_on_model(*row, panels, records, first, end);
        EXPECT_EQ(tile_machine().counts().products,
                  bf16_products(num_rows, end - first, num_inputs, num_terms(type)));
        const int64_t width = (end - first) * kPanel;
        for (int64_t i = num_cases % 3; i < num_rows * width; i += 5) {  // every fifth sum
          const int64_t m = i / width, n = first * kPanel + i % width;
          const float sum = got[static_cast<size_t>(i)];
          const float wanted = class_sum(panels, records, m, n);
          ASSERT_EQ(std::memcmp(&sum, &wanted, sizeof(sum)), 0)
              << row->name << " M " << num_rows << " K " << num_inputs << " m " << m << " n " << n;
          double exact = 0, magnitude = 0;
          for (int64_t k = 0; k < num_inputs; ++k) {
            const double term =
                double{x[static_cast<size_t>(m * num_inputs + k)]} *
                double{panels.weight->values[static_cast<size_t>(n * num_inputs + k)]};
            exact += term;
            magnitude += std::fabs(term);
          }
          ASSERT_LE(std::fabs(exact - double{sum}),
                    sum_tolerance(num_inputs * num_terms(type), magnitude) + rounding * magnitude);
        }
        ++num_cases;
      }
    }
  }
  EXPECT_EQ(num_cases, 10 * 2 * 7);
}

// A row's bits do not depend on its neighbours, nor on the panels computed with it.
TEST_F(AmxModel, Bf16BitsDependOnTheRowAlone) {
  Random random(14);
  const int64_t num_inputs = 300, max_rows = 64;
  const Panels panels = random_panels(DType::kBF16, 6, num_inputs, random);
  int num_cases = 0;
  for (const ActivationType type : {ActivationType::kBF16x2, ActivationType::kBF16}) {
    const KernelRow* row = find_row(kAmxModelUnit, KernelOp::kMatmul, Layout::kBF16, type);
    const KernelRow* quantise = find_row(kAmxModelUnit, KernelOp::kQuantise, Layout::kCount, type);
    const auto x = random_floats(static_cast<size_t>(max_rows * num_inputs), random);
    std::vector<float> alone;
    for (int64_t m = 0; m < max_rows; ++m) {
      const std::vector<float> one(x.begin() + m * num_inputs, x.begin() + (m + 1) * num_inputs);
      for (int64_t p = 0; p < 6; ++p) {
        const auto sums =
            multiply_on_model(*row, panels, quantised(*quantise, one, 1, num_inputs), p, p + 1);
        alone.insert(alone.end(), sums.begin(), sums.end());
      }
    }
    for (int64_t rows = 1; rows <= max_rows; rows += rows < 34 ? 1 : 7) {
      const Activations records = quantised(*quantise, x, rows, num_inputs);
      const auto all = multiply_on_model(*row, panels, records, 0, 6);
      ASSERT_TRUE(same_bits(all, std::span(alone).first(all.size()))) << row->name << " " << rows;
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 70);
}

// The rows of a processor with these IsaBits that AMX's units have kernels for: those of `unit` and
// `integer_unit`, and rows of other units that must give the same bits.
std::vector<UnitRow> rows_of_amx(const KernelUnit& unit, const KernelUnit& integer_unit,
                                 uint32_t isa) {
  // Of the AVX-512 unit the attention alone, where the processor itself has it: there is no model.
  const bool has_vectors = (kAvx512VnniUnit.isa & ~detect_isa()) == 0;
  const KernelUnit* const units[] = {&unit, &integer_unit, &kAvx512VnniUnit, &kReferenceUnit};
  std::vector<UnitRow> rows = runnable_rows(units, isa);
  std::erase_if(rows, [&](const UnitRow& at) {
    const auto has_same = [&](const KernelUnit& amx) {
      return find_row(amx, at.row->op, at.row->layout, at.row->activation) != nullptr;
    };
    if (at.unit == &kAvx512VnniUnit && (!has_vectors || at.row->op != KernelOp::kAttention)) {
      return true;
    }
    return !has_same(unit) && !has_same(integer_unit);
  });
  return rows;
}

// Guard pages around every operand, read-only inputs, whole numbers, NaN, extreme factors; integer
// rows also against the reference rows bit for bit.
TEST_F(AmxModel, PassesTheVerification) {
  const auto rows = rows_of_amx(kAmxModelUnit, kAmxIntegerModelUnit, isa_with_tiles());
  int64_t num_cases = 0, num_rows = 0;
  tile_machine().reset();
  for (const RowReport& report : verify_rows(rows, Depth::kQuick)) {
    EXPECT_TRUE(report.passed()) << report.at.unit->name << " " << report.at.row->name << ": "
                                 << report.first_failure;
    EXPECT_GT(report.num_cases, 0) << report.at.row->name;
    num_cases += report.num_cases;
    num_rows += report.at.unit == &kAmxModelUnit || report.at.unit == &kAmxIntegerModelUnit;
  }
  EXPECT_EQ(tile_machine().fault(), "");
  EXPECT_EQ(num_rows,
            std::ssize(rows_of(kAmxModelUnit)) + std::ssize(rows_of(kAmxIntegerModelUnit)));
  EXPECT_GT(num_cases, 1000);
}

TEST_F(AmxModel, Bf16RoundingOfActivations) {
  Random random(15);
  const int64_t num_rows = 3, num_inputs = 300;
  auto x = random_floats(static_cast<size_t>(num_rows * num_inputs), random);
  const float special[] = {0.0f,      -0.0f,     INFINITY, -INFINITY, NAN,      0x1p-130f,
                           0x1.01p0f, 0x1.03p0f, 3.4e38f,  1e-39f,    -65504.0f};
  std::copy(std::begin(special), std::end(special), x.begin() + 290);
  for (const ActivationType type :
       {ActivationType::kBF16x2, ActivationType::kBF16, ActivationType::kBF16Codes}) {
    const KernelRow* quantise = find_row(kAmxModelUnit, KernelOp::kQuantise, Layout::kCount, type);
    const Activations records = quantised(*quantise, x, num_rows, num_inputs);
    const KernelRow* oracle = find_row(kReferenceUnit, KernelOp::kQuantise, Layout::kCount, type);
    EXPECT_EQ(records.bytes, quantised(*oracle, x, num_rows, num_inputs).bytes);
    for (int64_t m = 0; m < num_rows; ++m) {
      for (int64_t k = 0; k < 320; ++k) {
        const float v = k < num_inputs ? x[static_cast<size_t>(m * num_inputs + k)] : 0.0f;
        const float first = bf16_to_float(float_to_bf16(v));
        const float stored = stored_bf16(records, m, k, 0);
        if (std::isnan(v)) {
          ASSERT_TRUE(std::isnan(stored));
        } else {
          ASSERT_EQ(std::memcmp(&stored, &first, sizeof(first)), 0) << v << " " << stored;
        }
        if (num_terms(type) == 1) continue;
        const float rest = v - first;
        const float second = std::isfinite(rest) ? bf16_to_float(float_to_bf16(rest)) : 0.0f;
        const float stored_rest = stored_bf16(records, m, k, 1);
        ASSERT_EQ(std::memcmp(&stored_rest, &second, sizeof(second)), 0) << v << " " << rest;
      }
      // Blocks beyond the last one are left alone.
      const auto end =
          static_cast<size_t>(block_at(records, m, kSliceInputs + int64_t{2} * kActivationBlock));
      EXPECT_EQ(records.bytes[end], 0xA5);
    }
  }
}

TEST_F(AmxModel, TilesServeManyRowsAndTheSameClassFewer) {
  const KernelSet set =
      select_kernels(kAmxIntegerModelUnit, isa_with_tiles(), ActivationType::kInt16);
  const MatmulRows& coded = set.matmul[static_cast<size_t>(Layout::kQ4_0)];
  EXPECT_EQ(coded.for_rows(15).numerics, NumericsClass::kInteger);
  EXPECT_LT(coded.for_rows(15).min_rows, 16);
  EXPECT_EQ(coded.for_rows(16).min_rows, 16);
  const MatmulRows& dense = set.matmul[static_cast<size_t>(Layout::kBF16)];
  EXPECT_EQ(dense.activation(), ActivationType::kF32);
  EXPECT_EQ(set.matmul[static_cast<size_t>(Layout::kF16)].activation(), ActivationType::kF32);
  EXPECT_EQ(set.quantise_dense, nullptr) << "exact multiplies dense weights with float32";
  EXPECT_EQ(set.quantise->activation, ActivationType::kInt16);
}

TEST_F(AmxModel, ClassesBySegmentsTakeThePlaceOfIntegersOfABlock) {
  struct Choice {
    ActivationType activations;
    uint32_t available;
    ActivationType taken;
    NumericsClass numerics;
    int count, fewest_in_tiles;  // rows of linear codes; of others three, or one
  };
  const uint32_t all = isa_with_tiles();
  const Choice choices[] = {
      {ActivationType::kInt16, all, ActivationType::kFixed, NumericsClass::kFixed, 2, 5},
      {ActivationType::kInt8, all, ActivationType::kBF16Codes, NumericsClass::kBf16Codes, 1, 1},
      {ActivationType::kInt8, all & ~kIsaAvx512Fp16, ActivationType::kFixed, NumericsClass::kFixed,
       2, 5},
  };
  for (const Choice& choice : choices) {
    const KernelSet set = select_kernels(kAmxModelUnit, choice.available, choice.activations);
    for (const Layout layout : {Layout::kQ4_0, Layout::kQ6K, Layout::kInt4G128, Layout::kNVFP4}) {
      const MatmulRows& coded = set.matmul[static_cast<size_t>(layout)];
      EXPECT_EQ(coded.count, choice.count);
      EXPECT_EQ(coded.activation(), choice.taken);
      const bool is_linear = fixed_code(layout_info(layout)).is_linear;
      const int fewest = is_linear ? choice.fewest_in_tiles : std::min(choice.fewest_in_tiles, 3);
      for (const int64_t num_rows : {1, 2, 3, 4, 5, 16, 512}) {
        EXPECT_EQ(coded.for_rows(num_rows).numerics, choice.numerics);
        EXPECT_EQ(uses_tiles(coded.for_rows(num_rows)), num_rows >= fewest) << num_rows;
      }
    }
    EXPECT_EQ(set.quantise->activation, choice.taken);
  }
  const KernelSet exact = select_kernels(kAmxModelUnit, all, ActivationType::kInt16);
  EXPECT_EQ(exact.matmul[static_cast<size_t>(Layout::kBF16)].activation(), ActivationType::kF32);
  EXPECT_EQ(exact.quantise_dense, nullptr);
  const KernelSet fast = select_kernels(kAmxModelUnit, all, ActivationType::kInt8);
  EXPECT_EQ(fast.matmul[static_cast<size_t>(Layout::kBF16)].activation(), ActivationType::kBF16);
  EXPECT_EQ(fast.quantise_dense->activation, ActivationType::kBF16);
}

// What the reference row of a class makes of a packed part.
std::vector<float> reference_sums(ActivationType type, const Segment& part,
                                  const std::vector<float>& x, int64_t num_rows,
                                  int64_t num_inputs) {
  const KernelRow* quantise = find_row(kReferenceUnit, KernelOp::kQuantise, Layout::kCount, type);
  const KernelRow* row = find_row(kReferenceUnit, KernelOp::kMatmul, part.layout, type);
  const size_t num_bytes = part.panel_bytes * static_cast<size_t>(part.num_panels);
  const Panels panels{nullptr,    part.layout,      part.num_panels,
                      num_inputs, part.panel_bytes, {part.data, part.data + num_bytes}};
  return multiply(*row, panels, quantised(*quantise, x, num_rows, num_inputs), 0, part.num_panels);
}

// Whole linear layers, one of parts with formats that take three kinds of input, through the loop
// schedule of the back end: integers and floats as the reference unit, products by segments and of
// bf16 as their classes.
void check_mixed_parts(const KernelUnit& unit, ActivationType activations) {
  Random random(17);
  const int64_t num_inputs = 288, width = 80;
  const KernelSet kernels = select_kernels(unit, isa_with_tiles(), activations);
  const ActivationType type = kernels.quantise->activation;
  const bool by_segments = type != ActivationType::kInt16;
  const bool is_bf16 = kernels.quantise_dense != nullptr;
  Team team(1, {0});
  auto workspace = std::move(CpuWorkspace::create(1)).value();
  BestOutputs best;
  StepAdapters adapters(kernels);
  const CpuContext context{kernels, team, workspace, best, adapters};
  const auto reference = make_backend("reference", 1);
  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<WeightView> parts;
  for (const DType dtype : {DType::kQ4_0, DType::kBF16, DType::kF32, DType::kQ8_0}) {
    weights.push_back(random_weight(dtype, width, num_inputs, random));
    parts.push_back(weights.back()->view);
  }
  const auto weight = std::move(pack_weight(parts, WeightRole::kLinear, kernels, team)).value();
  const auto wanted = std::move(reference->pack(parts, WeightRole::kLinear)).value();
  const Panels bf16{std::move(weights[1]), Layout::kBF16, 0, num_inputs, 0, {}};
  for (const KernelRow* row : {kernels.quantise, kernels.quantise_dense}) {
    if (row == nullptr) continue;
    ASSERT_TRUE(workspace.reserve_activations(row->activation, 64, num_inputs).ok());
  }
  ASSERT_TRUE(workspace.reserve_rows(num_inputs).ok());
  int num_cases = 0;
  for (const int64_t num_rows : {1, 5, 16, 40, 64}) {
    const auto x = random_floats(static_cast<size_t>(num_rows * num_inputs), random);
    const Activations rounded =
        is_bf16 ? quantised(*kernels.quantise_dense, x, num_rows, num_inputs) : Activations{};
    std::vector<float> out(static_cast<size_t>(num_rows * 4 * width)), expected(out.size());
    reference->linear(*wanted, on_device(x.data()), num_rows, {}, on_device(expected.data()));
    const auto parts_of = static_cast<const CpuWeight&>(*wanted).segments();
    const auto q4 = reference_sums(type, parts_of[0], x, num_rows, num_inputs);
    const auto q8 = reference_sums(type, parts_of[3], x, num_rows, num_inputs);
    tile_machine().reset();
    run_linear(context, {*weight, on_device(x.data()), num_rows, out.data()}, {});
    EXPECT_EQ(tile_machine().fault(), "");
    const int64_t fewest = is_bf16 ? 1 : by_segments ? 3 : kTileRows;
    EXPECT_EQ(tile_machine().counts().products > 0, num_rows >= fewest);
    for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
      const int64_t m = i / (4 * width), n = i % (4 * width);
      const auto coded = static_cast<size_t>(m * width + n % width);
      const float correct = by_segments && n / width == 0   ? q4[coded]
                            : is_bf16 && n / width == 1     ? class_sum(bf16, rounded, m, n - width)
                            : by_segments && n / width == 3 ? q8[coded]
                                                            : expected[static_cast<size_t>(i)];
      const float got = out[static_cast<size_t>(i)];
      ASSERT_EQ(std::memcmp(&got, &correct, sizeof(got)), 0) << num_rows << " " << m << " " << n;
    }
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 5);
}

TEST_F(AmxModel, LinearLayersOfMixedParts) {
  check_mixed_parts(kAmxIntegerModelUnit, ActivationType::kInt16);
  check_mixed_parts(kAmxModelUnit, ActivationType::kInt16);
  check_mixed_parts(kAmxModelUnit, ActivationType::kInt8);
}

class AmxItself : public ::testing::Test {
 protected:
  void SetUp() override {
    if ((kAvx512VnniUnitIsa & ~detect_isa()) != 0) {
      GTEST_SKIP() << "the vectors around its tiles need "
                   << isa_names(kAvx512VnniUnitIsa & ~detect_isa());
    }
    if (!runs_here(kAmxUnit)) traps_.emplace();
  }
  void TearDown() override {
    if (traps_.has_value()) EXPECT_GT(traps_->num_instructions(), 100'000);
  }

  const uint32_t isa_ = detect_isa() | kAmxUnitIsa;

 private:
  std::optional<TileTraps> traps_;
};

// A unit and its model are one source; the instructions must give the model's bits. Returns how
// many cases were compared.
int compare_with_model(const KernelUnit& unit, const KernelUnit& model, uint32_t isa) {
  Random random(16);
  int num_cases = 0;
  for (const DType dtype : tested_dtypes()) {
    if (!is_coded(dtype) && dtype != DType::kBF16) continue;
    const Panels panels = random_panels(dtype, 5, 768, random);
    const std::vector<const KernelRow*> rows = rows_of(unit);
    const std::vector<const KernelRow*> model_rows = rows_of(model);
    for (size_t i = 0; i < rows.size(); ++i) {
      const KernelRow& row = *rows[i];
      if (row.op != KernelOp::kMatmul || row.layout != panels.layout) continue;
      if ((row.isa & ~isa) != 0) continue;
      const KernelUnit& rounding = is_of_codes(row.activation) ? kReferenceUnit : unit;
      const KernelRow* quantise =
          find_row(rounding, KernelOp::kQuantise, Layout::kCount, row.activation);
      for (const int64_t num_rows : kRowCounts) {
        const auto x = random_floats(static_cast<size_t>(num_rows * 768), random);
        const Activations records = quantised(*quantise, x, num_rows, 768);
        const auto wanted = multiply_on_model(*model_rows[i], panels, records, 0, 5);
        EXPECT_TRUE(same_bits(multiply(row, panels, records, 0, 5), wanted))
            << row.name << " M " << num_rows;
        ++num_cases;
      }
    }
  }
  return num_cases;
}

TEST_F(AmxItself, RowsMatchTheModelBitForBit) {
  if (!runs_here(kAmxModelUnit)) GTEST_SKIP() << "the model's vectors do not run here";
  const int coded_rows = (isa_ & kIsaAvx512Fp16) != 0 ? 3 : 2;
  EXPECT_EQ(compare_with_model(kAmxUnit, kAmxModelUnit, isa_), (13 * coded_rows + 2) * 7);
  EXPECT_EQ(compare_with_model(kAmxIntegerUnit, kAmxIntegerModelUnit, isa_), 13 * 7);
}

// Guard pages and the like. Products in tiles were compared above; a trap takes microseconds, so of
// them the few cases of every start.
TEST_F(AmxItself, PassesTheVerification) {
  std::vector<UnitRow> rows = rows_of_amx(kAmxUnit, kAmxIntegerUnit, isa_);
  const auto is_product_of_tiles = [](const UnitRow& at) {
    return at.row->op == KernelOp::kMatmul && (at.row->isa & kIsaAmxTile) != 0;
  };
  const auto others = std::ranges::partition(rows, is_product_of_tiles);
  const auto num_products = static_cast<size_t>(others.begin() - rows.begin());
  std::vector<RowReport> reports = verify_rows({rows.data(), num_products}, Depth::kStart);
  for (RowReport& report : verify_rows(others, Depth::kQuick)) reports.push_back(std::move(report));
  for (const RowReport& report : reports) {
    EXPECT_TRUE(report.passed()) << report.at.unit->name << " " << report.at.row->name << ": "
                                 << report.first_failure;
  }
  EXPECT_GE(num_products, 25u);
  EXPECT_GE(others.size(), 25u);
}

}  // namespace
}  // namespace headrace::cpu
