// Classes of coded weights by segments (fixed-point, bf16-codes) on the model of the tile
// instructions, bit for bit as the reference rows.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "amx_cases.h"

namespace headrace::cpu {
namespace {

// What classes of coded weights by segments cost: products of a block of 64 inputs, and stores of a
// segment, for 16 outputs and a tile of several or an only one; and how many of several go side by
// side.
struct SegmentClass {
  ActivationType type;
  int products, stores, few_stores, side_by_side;

  int64_t num_tiles(int64_t num_rows) const {
    const int64_t tiles = ceil_div(num_rows, kTileRows);
    return tiles > 1 ? ceil_div(tiles, side_by_side) * side_by_side : tiles;
  }
  // Of several, all: x lies in tiles.
  static int64_t tile_height(int64_t num_rows) { return std::min<int64_t>(num_rows, kTileRows); }
};
constexpr SegmentClass kSegmentClasses[] = {
    {ActivationType::kFixed, 4, 4, 3, 1},  // two digits of each side
    {ActivationType::kBF16Codes, 2, 1, 1, 2},
};

// What a class is tested with, for a layout: its row on the model, and the reference's.
struct SegmentRows {
  const KernelRow *row, *oracle, *quantise;

  SegmentRows(const SegmentClass& of, Layout layout)
      : row(find_row(kAmxModelUnit, KernelOp::kMatmul, layout, of.type)),
        oracle(find_row(kReferenceUnit, KernelOp::kMatmul, layout, of.type)),
        quantise(find_row(kReferenceUnit, KernelOp::kQuantise, Layout::kCount, of.type)) {}
  bool found() const { return row != nullptr && oracle != nullptr && quantise != nullptr; }
};

// Sums leave their tiles once a segment, but those of two panels side by side for more rows than a
// tile's: as often as 20 KB hold operands of the segment.
int64_t stores_of(const SegmentClass& of, int64_t num_rows, int64_t num_panels,
                  int64_t num_inputs) {
  constexpr int64_t kSideBySide = 2, kInputsOfOperands = 320;
  const bool rests = of.type == ActivationType::kBF16Codes && num_rows > kTileRows;
  const int64_t together = rests ? num_panels / kSideBySide * kSideBySide : 0;
  int64_t stores = 0;
  for (int64_t first = 0, count; first < num_inputs; first += count) {
    count = fixed_segment_inputs(first, num_inputs);
    stores += num_panels - together + together * ceil_div(count, kInputsOfOperands);
  }
  return num_rows > kTileRows ? stores * of.stores * of.num_tiles(num_rows)
                              : stores * of.few_stores;
}

TEST_F(AmxModel, PanelsBySegmentsMatchTheReferenceBitForBit) {
  Random random(11);
  int num_cases = 0;
  for (const DType dtype : tested_dtypes()) {
    if (!is_coded(dtype)) continue;
    for (const int64_t num_inputs : input_counts(dtype)) {
      const Panels panels = random_panels(dtype, 7, num_inputs, random);
      for (const SegmentClass& of : kSegmentClasses) {
        const SegmentRows rows(of, panels.layout);
        ASSERT_TRUE(rows.found());
        const auto [row, oracle, quantise] = rows;
        for (const int64_t num_rows : kRowCounts) {
          const auto x = random_floats(static_cast<size_t>(num_rows * num_inputs), random);
          const Activations records = quantised(*quantise, x, num_rows, num_inputs);
          const int64_t first = num_cases % 3, end = first + 1 + num_cases % 2 * 4;
          const auto got = multiply_on_model(*row, panels, records, first, end);
          const TileCounts counts = tile_machine().counts();
          const auto wanted = multiply(*oracle, panels, records, first, end);
          ASSERT_TRUE(same_bits(got, wanted)) << row->name << " M " << num_rows << " K "
                                              << num_inputs << " panels " << first << " " << end;
          const int64_t num_tiles = of.num_tiles(num_rows) * (end - first);
          const int64_t products = num_tiles * ceil_div(num_inputs, kFixedBlock) * of.products;
          EXPECT_EQ(counts.products, products) << row->name << " M " << num_rows;
          EXPECT_EQ(counts.product_rows, products * of.tile_height(num_rows));
          EXPECT_EQ(counts.stores, stores_of(of, num_rows, end - first, num_inputs));
          EXPECT_EQ(counts.configures, 2);  // the stale one and the kernel's
          ++num_cases;
        }
      }
    }
  }
  EXPECT_EQ(num_cases, (7 * 7 + 6 * 2) * 7 * 2);
}

// More tiles of rows than sums rest of at once, the last of which is short.
TEST_F(AmxModel, RowsOfManyTilesMatchTheReferenceBitForBit) {
  Random random(12);
  constexpr int64_t kManyRows = 16 * 16 + 21, kPanels = 5;
  for (const int64_t num_inputs : {512, 640, 1088}) {
    const Panels panels = random_panels(DType::kQ8_0, kPanels, num_inputs, random);
    for (const SegmentClass& of : kSegmentClasses) {
      const SegmentRows rows(of, panels.layout);
      ASSERT_TRUE(rows.found());
      const auto [row, oracle, quantise] = rows;
      const auto x = random_floats(static_cast<size_t>(kManyRows * num_inputs), random);
      const Activations records = quantised(*quantise, x, kManyRows, num_inputs);
      EXPECT_TRUE(same_bits(multiply_on_model(*row, panels, records, 0, kPanels),
                            multiply(*oracle, panels, records, 0, kPanels)))
          << row->name << " K " << num_inputs;
    }
  }
}

// Whole numbers as large as they may be, all of one sign, over the longest segment: no sum wraps.
TEST_F(AmxModel, LargestSumsOfTheLongestSegmentFit) {
  constexpr uint16_t kScale = 0x37FF;  // f16, 2047 2^-12: with its codes' range 32752 units
  Random random(19);
  int num_cases = 0;
  for (const auto& [dtype, block_bytes, smallest] :
       {std::tuple{DType::kQ4_0, 18, 0x00}, std::tuple{DType::kQ8_0, 34, 0x80}}) {
    auto weight = random_weight(dtype, kPanel, kLongestFixedSegment, random);
    std::memset(weight->bytes.data(), smallest, weight->bytes.size());
    for (size_t at = 0; at < weight->bytes.size(); at += static_cast<size_t>(block_bytes)) {
      std::memcpy(weight->bytes.data() + at, &kScale, sizeof(kScale));
    }
    const Panels panels = pack_panels(std::move(weight), 1, kLongestFixedSegment);
    const double sum = -f16_to_float(kScale) * (dtype == DType::kQ4_0 ? 8.0 : 128.0) * 640;
    const Activations x = quantised(
        *find_row(kReferenceUnit, KernelOp::kQuantise, Layout::kCount, ActivationType::kFixed),
        std::vector<float>(5 * kLongestFixedSegment, 1.0f), 5, kLongestFixedSegment);
    for (const KernelRow* row : rows_of(kAmxModelUnit)) {
      if (row->op != KernelOp::kMatmul || row->layout != panels.layout) continue;
      if (row->activation != ActivationType::kFixed) continue;
      for (const float got : multiply_on_model(*row, panels, x, 0, 1)) {
        EXPECT_NEAR(got, sum, -sum * 1e-6) << row->name;
      }
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 4);  // by vectors and by tiles
}

// A NaN makes its whole row NaN, as in the reference, and no other.
TEST_F(AmxModel, NanStaysInItsRow) {
  Random random(12);
  const Panels panels = random_panels(DType::kQ4_0, 2, 96, random);
  for (const SegmentClass& of : kSegmentClasses) {
    const auto [row, oracle, quantise] = SegmentRows(of, panels.layout);
    auto x = random_floats(18 * 96, random);
    x[5 * 96 + 40] = NAN;
    const auto got = multiply_on_model(*row, panels, quantised(*quantise, x, 18, 96), 0, 2);
    for (int64_t i = 0; i < 18 * 32; ++i) {
      EXPECT_EQ(std::isnan(got[static_cast<size_t>(i)]), i / 32 == 5) << row->name << " " << i;
    }
  }
}

// What the scratch held before is no part of a sum, also where K ends within a block of products.
TEST_F(AmxModel, BlocksThatAreNotThereAddNothing) {
  Random random(18);
  const Panels narrow = random_panels(DType::kQ8_0, 2, 32, random);
  for (const SegmentClass& of : kSegmentClasses) {
    const auto [row, oracle, quantise] = SegmentRows(of, narrow.layout);
    const Activations x = quantised(*quantise, random_floats(20 * 32, random), 20, 32);
    std::vector<float> scratch_of_nans(static_cast<size_t>(kMatmulScratchFloats) + 16, NAN);
    auto* scratch = reinterpret_cast<float*>(
        (reinterpret_cast<uintptr_t>(scratch_of_nans.data()) + 63) & ~uintptr_t{63});
    std::vector<float> sums(20 * 32 + 16);
    auto* aligned =
        reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(sums.data()) + 63) & ~uintptr_t{63});
    tile_machine().reset();
    row->function.matmul({narrow.bytes.data(), narrow.panel_bytes, 32, x.bytes.data(),
                          x.slice_stride, 20, 0, 2, aligned, 32, scratch});
    EXPECT_TRUE(same_bits({aligned, aligned + 20 * 32}, multiply(*row, narrow, x, 0, 2)))
        << row->name;
    EXPECT_FALSE(std::isnan(aligned[0])) << row->name;
  }
}

}  // namespace
}  // namespace headrace::cpu
