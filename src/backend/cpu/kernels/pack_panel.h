// Pack panel: sixteen rows of a checkpoint's weight as one panel (layouts: kernels.h).
//
// Words are built whole, one per lane and plane position, and stored once: no byte of a panel is
// read back. Thread-safe; the caller hands each thread a scratch of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/pack_groups.h"
#include "checkpoint/weight_view.h"

namespace headrace::cpu {

struct PanelScratch {
  std::vector<float> values;     // rows of formats that have no layout of their own
  std::vector<uint16_t> halves;  // rows that are not side by side
  GroupScratch groups;
};

// Writes outputs [16 panel_idx, 16 panel_idx + 16) of the weight, its inputs in this order (empty:
// as they are); `panel` is zero before, and the lanes beyond the weight's outputs stay so.
void pack_panel(const WeightView& weight, Layout layout, std::span<const int32_t> order,
                int64_t panel_idx, PanelScratch& scratch, uint8_t* panel);

}  // namespace headrace::cpu
