#include "backend/cpu/linear_tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::cpu {
namespace linear_tiles_test {

constexpr int64_t kInputs = 576;

// A weight of so many panels whose kernel has tiles of so many rows.
struct Weight {
  KernelRow kernel{};
  std::vector<Segment> segments{1};

  Weight(int64_t num_panels, uint16_t tile_rows) {
    kernel.tile.rows = tile_rows;
    kernel.tile.outputs = 2 * kPanel;
    segments[0].num_panels = num_panels;
    segments[0].panel_bytes = kInputs * kPanel / 2;
    segments[0].matmul.rows[0] = &kernel;
    segments[0].matmul.count = 1;
  }
};

struct Cut {
  int64_t rows, panels;  // of the first tile
  int64_t num_tiles, covered;
};

Cut cut(const Weight& weight, int64_t num_rows, int num_members) {
  const LinearTiles tiles(weight.segments, kInputs, num_rows, num_members);
  Cut cut{tiles.at(0).num_rows, tiles.at(0).num_panels, tiles.num_items(), 0};
  for (int64_t i = 0; i < tiles.num_items(); ++i) {
    cut.covered += tiles.at(i).num_rows * tiles.at(i).num_panels;
  }
  return cut;
}

TEST(LinearTiles, CoverEachRowOfEachPanelOnce) {
  int64_t num_cuts = 0;
  for (const uint16_t tile_rows : std::initializer_list<uint16_t>{6, 16}) {
    for (const int64_t panels : {1, 3, 36, 97}) {
      const Weight weight(panels, tile_rows);
      for (const int64_t rows : {1, 15, 16, 17, 63, 64, 65, 200, 512}) {
        for (const int members : {1, 2, 16, 48}) {
          EXPECT_EQ(cut(weight, rows, members).covered, rows * panels)
              << panels << " panels, " << rows << " rows, " << members << " members";
          ++num_cuts;
        }
      }
    }
  }
  EXPECT_EQ(num_cuts, 2 * 4 * 9 * 4);
}

// Each block of rows makes the digits of its panels anew; a pair of panels is what a kernel takes.
TEST(LinearTiles, OfTileInstructionsKeepRowsTogetherBeforePanels) {
  const Weight weight(36, 16);
  const Cut many = cut(weight, 512, 48);
  EXPECT_EQ(many.panels, 2);
  EXPECT_EQ(many.rows, 64);
  const Cut sequences = cut(weight, 16, 48);
  EXPECT_EQ(sequences.rows, 16);
  EXPECT_EQ(sequences.num_tiles, 18);
}

TEST(LinearTiles, OfVectorsFillTheirRegisters) {
  const Weight weight(36, 6);
  const Cut many = cut(weight, 512, 48);
  EXPECT_EQ(many.panels, 4);
  EXPECT_EQ(many.rows % kRowQuantum, 0);
  EXPECT_LT(many.rows, kMinAmxTileRows);
}

}  // namespace linear_tiles_test
}  // namespace headrace::cpu
