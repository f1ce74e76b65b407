// How rows of x fill tiles.
#pragma once

#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

// Rows of x in tiles of equal height. The last ones start early where they do not divide: their
// first rows, which a neighbour has, are computed but not added again.
struct RowTiles {
  int64_t count, height, num_rows;

  explicit RowTiles(int64_t rows)
      : count((rows + kTileRows - 1) / kTileRows),
        height(count <= 1 ? rows : (rows + count - 1) / count),
        num_rows(rows) {}
  int64_t first(int64_t tile) const { return smaller(tile * height, num_rows - height); }
  // No less than its height: it has no rows of its own.
  int64_t skipped(int64_t tile) const { return tile * height - first(tile); }
};

}  // namespace
}  // namespace headrace::cpu
