#include "backend/cpu/expert_tiles.h"

#include <algorithm>

#include "base/numeric.h"

namespace headrace::cpu {
namespace {

// Rows of a block: as even as whole kernel tiles allow.
int64_t rows_of_block(int64_t num_rows) {
  if (num_rows <= kRowQuantum) return num_rows;
  const int64_t even = divide_up(num_rows, divide_up(num_rows, kMaxTileRows));
  return divide_up(even, kRowQuantum) * kRowQuantum;
}

// One thread's time for a panel of each part: it reads the weights or multiplies.
double panel_time(const CpuWeight& weight, int64_t rows) {
  double bytes = 0;
  for (const Segment& segment : weight.segments()) {
    bytes += static_cast<double>(segment.panel_bytes);
  }
  const auto parts = static_cast<int64_t>(weight.segments().size());
  const auto products = static_cast<double>(parts * rows * weight.num_inputs() * kPanel);
  return std::max(bytes / kWeightBytesPerNs, products / kMultiplicationsPerNs);
}

}  // namespace

ExpertTiles::Cut ExpertTiles::cut_of(int64_t expert) const {
  const CpuWeight& weight = this->weight(expert);
  const int64_t num_panels = weight.segments()[0].num_panels;
  Cut cut;
  cut.rows = rows_of_block(num_rows(expert));
  cut.num_blocks = divide_up(num_rows(expert), cut.rows);
  cut.panel_ns = panel_time(weight, cut.rows);
  const auto wanted = static_cast<int64_t>(item_ns_ / cut.panel_ns);
  const int64_t most = std::min(wanted, kTileFloats / (cut.rows * kPanel));
  cut.panels = std::max(kMinTilePanels, most / kMinTilePanels * kMinTilePanels);
  cut.num_groups = divide_up(num_panels, cut.panels);
  return cut;
}

int64_t ExpertTiles::plan(const int32_t* first_slot, int64_t num_members) {
  first_slot_ = first_slot;
  double total_ns = 0;
  for (int64_t e = 0; e < experts_.num_experts(); ++e) {
    if (num_rows(e) == 0) continue;
    const Cut cut = cut_of(e);
    total_ns +=
        cut.panel_ns * static_cast<double>(cut.num_blocks * weight(e).segments()[0].num_panels);
  }
  item_ns_ = std::min(kMaxItemNs, total_ns / static_cast<double>(kItemsPerMember * num_members));
  int64_t num_items = 0;
  for (int64_t e = 0; e < experts_.num_experts(); ++e) {
    first_items_[static_cast<size_t>(e)] = static_cast<int32_t>(num_items);
    if (num_rows(e) == 0) continue;
    const Cut cut = cut_of(e);
    num_items += cut.num_blocks * cut.num_groups;
  }
  return num_items;
}

ExpertTiles::Item ExpertTiles::at(int64_t item) const {
  const auto end = first_items_.begin() + experts_.num_experts();
  const int64_t expert =
      std::upper_bound(first_items_.begin(), end, item) - first_items_.begin() - 1;
  const Cut cut = cut_of(expert);
  const int64_t index = item - first_items_[static_cast<size_t>(expert)];
  const Segment& segment = weight(expert).segments()[0];
  const int64_t row = index / cut.num_groups * cut.rows;
  const int64_t panel = index % cut.num_groups * cut.panels;
  return {expert,
          {&segment, row, std::min(cut.rows, num_rows(expert) - row), panel,
           std::min(cut.panels, segment.num_panels - panel)}};
}

}  // namespace headrace::cpu
