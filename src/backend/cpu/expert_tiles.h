// How the products of a batch with its experts are cut into items of about equal time: each expert
// that has rows into blocks of rows, these into groups of panels. None of it reaches a result bit.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/linear_tiles.h"

namespace headrace::cpu {

class ExpertTiles {
 public:
  // A weight with an expert axis, of parts of equal outputs that are multiplied together (gate and
  // up), and room for num_experts + 1 numbers.
  ExpertTiles(const PackedWeight& experts, std::span<int32_t> first_items)
      : experts_(experts), first_items_(first_items) {}

  // Rows of expert e have slots [first_slot[e], first_slot[e + 1]). Returns the number of items.
  int64_t plan(const int32_t* first_slot, int64_t num_members);

  // The tile of an item, of the first part; its rows count from the expert's first slot.
  struct Item {
    int64_t expert;
    Tile2D tile;
  };
  Item at(int64_t item) const;

 private:
  struct Cut {
    int64_t rows = 0, panels = 0;  // of an item
    int64_t num_blocks = 0, num_groups = 0;
    double panel_ns = 0;  // of a block
  };
  const CpuWeight& weight(int64_t expert) const {
    return static_cast<const CpuWeight&>(experts_.expert(expert));
  }
  int64_t num_rows(int64_t expert) const { return first_slot_[expert + 1] - first_slot_[expert]; }
  Cut cut_of(int64_t expert) const;

  const PackedWeight& experts_;
  std::span<int32_t> first_items_;  // of each expert
  const int32_t* first_slot_ = nullptr;
  double item_ns_ = kMaxItemNs;
};

}  // namespace headrace::cpu
