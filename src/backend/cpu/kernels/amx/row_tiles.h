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

  // Several tiles are a multiple of `side_by_side`, their height one of `quantum`.
  explicit RowTiles(int64_t rows, int64_t side_by_side = 1, int64_t quantum = 1)
      : count((rows + kTileRows - 1) / kTileRows), height(rows), num_rows(rows) {
    if (count <= 1) return;
    count = (count + side_by_side - 1) / side_by_side * side_by_side;
    height = (rows + count * quantum - 1) / (count * quantum) * quantum;
  }
  int64_t first(int64_t tile) const { return smaller(tile * height, num_rows - height); }
  // No less than its height: it has no rows of its own.
  int64_t skipped(int64_t tile) const { return tile * height - first(tile); }
};

}  // namespace
}  // namespace headrace::cpu
