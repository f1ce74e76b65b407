// The list of layouts: what derives from a line of it is there and agrees.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/verify/samples.h"
#include "base/dtype.h"

namespace headrace::cpu {
namespace {

class Layouts : public ::testing::TestWithParam<LayoutInfo> {
 protected:
  const LayoutInfo& info() const { return layout_info(GetParam().layout); }
  std::string stem() const {
    const std::string_view name = info().name;
    return std::string(name.substr(0, name.find("x16")));
  }
};

// Rows of a unit for one layout and op, by name.
std::set<std::string> row_names(const KernelUnit& unit, KernelOp op, Layout layout) {
  std::set<std::string> names;
  for (const KernelRow* row : rows_of(unit)) {
    if (row->op == op && row->layout == layout) {
      EXPECT_TRUE(names.insert(row->name).second) << "two rows " << row->name;
    }
  }
  return names;
}

std::set<std::string> named(const std::string& stem, const std::vector<const char*>& suffixes) {
  std::set<std::string> names;
  for (const char* suffix : suffixes) names.insert("matmul_" + stem + suffix);
  return names;
}

TEST_P(Layouts, HasInfoThatAgreesWithItself) {
  EXPECT_EQ(&info(), &kLayouts[static_cast<int>(GetParam().layout)]);
  EXPECT_EQ(info().layout, GetParam().layout);
  EXPECT_GT(stem().size(), 2u);
  EXPECT_LT(stem().size(), std::string_view(info().name).size()) << "no x16 in " << info().name;
  EXPECT_GT(info().block_inputs, 0);
  if (info().low_bits > 0) {
    EXPECT_EQ(info().chunk_bytes, chunk_offsets(info()).end);
  }
  if (has_integer_codes(info())) {
    EXPECT_EQ(info().block_inputs % sub_block_inputs(info()), 0);
    EXPECT_LE(info().low_bits + info().high_bits, 8);
  } else {
    EXPECT_EQ(info().min_bytes + info().zero_bytes + info().num_sub_blocks, 0);
  }
  EXPECT_TRUE(info().split_scale == 0 || (info().zero_bytes == 1 && info().scale_bytes == 2));
}

TEST_P(Layouts, HasTheNameOfAFormat) {
  const auto dtypes = dtype_rows();
  const bool is_dtype = std::any_of(dtypes.begin(), dtypes.end(),
                                    [&](const DTypeRow& row) { return row.name == info().format; });
  const std::string_view format = info().format;
  EXPECT_TRUE(is_dtype || format == "INT2" || format == "INT4" || format == "INT8") << format;
  EXPECT_TRUE(is_of_groups(info()) || is_dtype) << format;
}

TEST_P(Layouts, HasRowsInEachUnit) {
  const Layout layout = info().layout;
  const bool coded = has_integer_codes(info());
  const std::set<std::string> both_ways =
      coded ? named(stem(), {"_int16_direct", "_int16_blocked", "_int8_direct", "_int8_blocked"})
            : named(stem(), {"_direct", "_blocked"});
  for (const KernelUnit* unit : {&kAvx2Unit, &kAvx512Unit}) {
    EXPECT_EQ(row_names(*unit, KernelOp::kMatmul, layout), both_ways) << unit->name;
  }
  for (const KernelUnit* unit : {&kAvx2Unit, &kAvx512Unit, &kReferenceUnit}) {
    EXPECT_EQ(row_names(*unit, KernelOp::kUnpack, layout), std::set{"unpack_" + stem()})
        << unit->name;
  }
  for (const KernelUnit* unit : {&kAvxVnniUnit, &kAvx512VnniUnit}) {
    EXPECT_EQ(row_names(*unit, KernelOp::kMatmul, layout), coded ? both_ways : named("", {}))
        << unit->name;
  }
  const std::set<std::string> coded_tiles =
      named(stem(), {"_bf16_codes_tiles", "_fixed_direct", "_fixed_tiles"});
  const std::set<std::string> dense_tiles =
      layout == Layout::kBF16 ? named("bf16", {"_bf16x2_tiles", "_bf16_tiles"}) : named("", {});
  EXPECT_EQ(row_names(kAmxUnit, KernelOp::kMatmul, layout), coded ? coded_tiles : dense_tiles);
  const bool has_integer_tiles = coded && !is_of_groups(info());
  EXPECT_EQ(row_names(kAmxIntegerUnit, KernelOp::kMatmul, layout),
            has_integer_tiles ? named(stem(), {"_int16_tiles"}) : named("", {}));
}

TEST_P(Layouts, HasRowsInTheReference) {
  std::set<std::string> wanted = has_integer_codes(info())
                                     ? named(stem(), {"_int16", "_int8", "_fixed", "_bf16_codes"})
                                     : named(stem(), {""});
  if (info().layout == Layout::kBF16) wanted.insert("matmul_bf16_bf16");
  EXPECT_EQ(row_names(kReferenceUnit, KernelOp::kMatmul, info().layout), wanted);
}

// Its rows are meant for 1 row of x and for more, on every unit, with both activations.
TEST_P(Layouts, IsServedForEveryNumberOfRows) {
  for (const KernelUnit* unit : all_units()) {
    for (const ActivationType type : {ActivationType::kInt16, ActivationType::kInt8}) {
      const KernelSet set = select_kernels(*unit, unit->isa, type);
      const MatmulRows& rows = set.matmul[static_cast<size_t>(info().layout)];
      EXPECT_EQ(rows.for_rows(1).min_rows, 1) << unit->name;
      EXPECT_EQ(is_of_codes(rows.activation()), has_integer_codes(info())) << unit->name;
      for (const int64_t num_rows : {1, 2, 7, 64, 4096}) {
        EXPECT_LE(rows.for_rows(num_rows).min_rows, num_rows) << unit->name;
        EXPECT_EQ(rows.for_rows(num_rows).layout, info().layout) << unit->name;
      }
    }
  }
}

// Samples are packed in it (pack_sample checks), at the size that the table gives.
TEST_P(Layouts, HasSamples) {
  Random random(7);
  for (const WeightSample sample : {WeightSample::kRandom, WeightSample::kExtreme,
                                    WeightSample::kWhole, WeightSample::kFilled}) {
    const int64_t inputs = whole_inputs(info().layout, 300);
    EXPECT_GE(inputs, 256);
    const auto weight = sample_weight(info().layout, sample, 19, inputs, random);
    const PackedSample packed = pack_sample(*weight, info().layout);
    EXPECT_EQ(packed.num_panels, 2);
    EXPECT_EQ(packed.panel_bytes, panel_bytes(info().layout, inputs));
    EXPECT_EQ(packed.bytes.size(), 2 * packed.panel_bytes);
    EXPECT_EQ(layout_for(weight->view), info().layout);
  }
}

INSTANTIATE_TEST_SUITE_P(List, Layouts, ::testing::ValuesIn(kLayouts), [](const auto& param) {
  const std::string_view name = param.param.name;
  return std::string(name.substr(0, name.find("x16")));
});

// For timing: nearly no subnormals, as in checkpoints, and all normal exponents but the smallest.
TEST(LayoutSamples, TypicalFloatsAreNormalNumbers) {
  for (const auto& [dtype, largest] :
       {std::pair(DType::kF8E4M3, 448.0f), {DType::kF8E5M2, 57344.0f}}) {
    Random random(3);
    const auto weight = sample_weight(dtype, WeightSample::kTypical, 64, 1024, random);
    const float least_normal = dtype == DType::kF8E4M3 ? 0x1p-6f : 0x1p-14f;
    int num_subnormal = 0, num_negative = 0;
    double sum = 0;
    for (const float value : weight->values) {
      ASSERT_LE(std::abs(value), largest);
      num_subnormal += std::abs(value) < least_normal ? 1 : 0;
      num_negative += value < 0 ? 1 : 0;
      sum += std::abs(value);
    }
    const auto count = static_cast<double>(weight->values.size());
    EXPECT_LT(num_subnormal, count / 2000);
    EXPECT_NEAR(num_negative / count, 0.5, 0.02);
    EXPECT_NEAR(sum / count, 0.8 * largest / 5, 0.08 * largest / 5) << "cut, not rounded";
  }
}

TEST(LayoutList, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const LayoutInfo& info : kLayouts) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_EQ(std::ssize(names), kNumLayouts);
}

// A weight of a format in one tensor has one layout that keeps it; of several layouts of integers
// by groups, those with larger groups and with short scales come first.
TEST(LayoutList, OrderAndFormatsDecideWhatIsTaken) {
  std::set<std::string_view> single;
  int groups_before = 0;
  std::string_view format_before;
  bool short_before = false;
  for (const LayoutInfo& info : kLayouts) {
    if (!is_of_groups(info)) {
      EXPECT_TRUE(single.insert(info.format).second) << info.format;
      continue;
    }
    if (info.zero_bytes == 0) continue;
    if (info.format == format_before && (info.split_scale != 0) == short_before) {
      EXPECT_LT(info.block_inputs, groups_before) << info.name;
    }
    EXPECT_TRUE(info.format != format_before || info.split_scale == 0 || short_before);
    groups_before = info.block_inputs;
    format_before = info.format;
    short_before = info.split_scale != 0;
  }
  EXPECT_EQ(single.size(), 18u);
}

// Every row is in its unit once, says what the unit needs at least, and has a function.
TEST(KernelParts, MakeUpTheUnits) {
  for (const KernelUnit* unit : all_units()) {
    std::set<std::string_view> names;
    for (const KernelRow* row : rows_of(*unit)) {
      EXPECT_TRUE(names.insert(row->name).second) << unit->name << " " << row->name;
      EXPECT_EQ(row->isa & unit->isa, unit->isa) << unit->name << " " << row->name;
      EXPECT_NE(row->function.matmul, nullptr) << unit->name << " " << row->name;
      EXPECT_GE(row->min_rows, 1) << unit->name << " " << row->name;
    }
    EXPECT_GT(unit->num_parts, 0);
  }
  EXPECT_TRUE(rows_of({"empty", 0, nullptr, 0}).empty());
}

// What a unit from before the parts had: nothing was lost when a row changed its file.
TEST(KernelParts, HaveAllOps) {
  struct Wanted {
    const KernelUnit* unit;
    std::vector<const char*> names;
  };
  const std::vector<const char*> between = {"quantise_int16", "quantise_int8", "finish",   "gate",
                                            "norm",           "qkv",           "attention"};
  const Wanted all[] = {
      {&kAvx2Unit, between},
      {&kAvx512Unit, between},
      {&kReferenceUnit, between},
      {&kAvx512Bf16Unit, {"matmul_bf16_bf16_direct", "matmul_bf16_bf16_blocked", "quantise_bf16"}},
      {&kAmxUnit, {"quantise_bf16", "quantise_bf16x2"}}};
  for (const Wanted& wanted : all) {
    const auto rows = rows_of(*wanted.unit);
    for (const std::string_view name : wanted.names) {
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                              [&](const KernelRow* row) { return row->name == name; }))
          << wanted.unit->name << " " << name;
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
