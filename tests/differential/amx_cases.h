// Cases for the kernels of the AMX unit on the model of the tile instructions: panels of random
// weights, rows of x as a quantise row writes them, and a run of a matmul row with guards around
// everything that it writes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "amx_model_unit.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/kernels/units.h"
#include "kernel_cases.h"
#include "tile_model.h"

namespace headrace::cpu {

inline constexpr int64_t kRowCounts[] = {1, 15, 16, 17, 31, 33, 64};

// The one for most rows.
inline const KernelRow* find_row(const KernelUnit& unit, KernelOp op, Layout layout,
                                 ActivationType type) {
  const KernelRow* found = nullptr;
  for (const KernelRow* row : rows_of(unit)) {
    if (row->op != op || row->layout != layout || row->activation != type) continue;
    if (found == nullptr || row->min_rows > found->min_rows) found = row;
  }
  return found;
}

inline bool uses_tiles(const KernelRow& row) { return row.tile.rows >= kTileRows; }

inline bool runs_here(const KernelUnit& unit) { return (unit.isa & ~detect_isa()) == 0; }

// What the model adds to this processor.
inline uint32_t isa_with_tiles() { return detect_isa() | kAmxUnitIsa | kIsaAvx512Fp16; }

// Panels of a random weight; num_outputs is whole panels.
struct Panels {
  std::unique_ptr<TestWeight> weight;
  Layout layout;
  int64_t num_panels, num_inputs;
  size_t panel_bytes;
  std::vector<uint8_t> bytes;  // exactly as many: reading past the end is an error
};

inline Panels pack_panels(std::unique_ptr<TestWeight> weight, int64_t num_panels,
                          int64_t num_inputs) {
  auto backend = make_backend("reference", 1);
  Panels panels;
  panels.weight = std::move(weight);
  auto packed = backend->pack({&panels.weight->view, 1}, WeightRole::kLinear);
  EXPECT_TRUE(packed.ok());
  const Segment& segment = static_cast<const CpuWeight&>(*packed.value()).segments()[0];
  panels.layout = segment.layout;
  panels.num_panels = num_panels;
  panels.num_inputs = num_inputs;
  panels.panel_bytes = segment.panel_bytes;
  const size_t num_bytes = segment.panel_bytes * static_cast<size_t>(num_panels);
  panels.bytes.assign(segment.data, segment.data + num_bytes);
  return panels;
}

inline Panels random_panels(DType dtype, int64_t num_panels, int64_t num_inputs, Random& random) {
  return pack_panels(random_weight(dtype, num_panels * kPanel, num_inputs, random), num_panels,
                     num_inputs);
}

// Rows of x as a quantise row writes them, and no more.
struct Activations {
  ActivationType type;
  int64_t num_rows;
  int64_t slice_stride;
  std::vector<uint8_t> bytes;
};

inline Activations quantised(const KernelRow& row, const std::vector<float>& x, int64_t num_rows,
                             int64_t num_inputs) {
  const ActivationType type = row.activation;
  Activations to{type, num_rows, activation_stride(type, num_rows, num_inputs), {}};
  const int64_t num_slices = (num_inputs + kSliceInputs - 1) / kSliceInputs;
  to.bytes.assign(static_cast<size_t>(num_slices * num_rows * activation_record_bytes(type)), 0xA5);
  row.function.quantise({x.data(), num_rows, num_inputs, to.bytes.data(), to.slice_stride});
  return to;
}

// Runs a matmul row over panels [first, end) with guards around everything it writes.
inline std::vector<float> multiply(const KernelRow& row, const Panels& panels, const Activations& x,
                                   int64_t first, int64_t end) {
  const int64_t width = (end - first) * kPanel;
  GuardedFloats sums(static_cast<size_t>(x.num_rows * width));
  GuardedFloats scratch(static_cast<size_t>(kMatmulScratchFloats) + 16);
  auto* aligned =
      reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~uintptr_t{63});
  MatmulArgs args{};
  args.weight = panels.bytes.data();
  args.panel_bytes = panels.panel_bytes;
  args.num_inputs = panels.num_inputs;
  args.x = x.bytes.data();
  args.x_stride = x.slice_stride;
  args.num_rows = x.num_rows;
  args.first_panel = first;
  args.num_panels = end - first;
  args.sums = sums.data();
  args.sums_stride = width;
  args.scratch = aligned;
  row.function.matmul(args);
  EXPECT_TRUE(sums.intact() && scratch.intact()) << row.name;
  return {sums.values().begin(), sums.values().end()};
}

// The same on a fresh machine that holds a useless configuration; checks what it leaves behind.
inline std::vector<float> multiply_on_model(const KernelRow& row, const Panels& panels,
                                            const Activations& x, int64_t first, int64_t end) {
  tile_machine().reset();
  TileConfig stale{};
  for (int tile = 0; tile < kNumTiles; ++tile) set_shape(&stale, tile, 1, 4);
  tile_machine().configure(stale);
  std::vector<float> sums = multiply(row, panels, x, first, end);
  EXPECT_EQ(tile_machine().fault(), "") << row.name;
  EXPECT_EQ(tile_machine().configured(), !uses_tiles(row)) << row.name;
  return sums;
}

inline bool is_coded(DType dtype) {
  const DTypeRow& row = dtype_row(dtype);
  return row.block_elements > 1;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// K of whole blocks around blocks of products, slices and segments.
inline std::vector<int64_t> input_counts(DType dtype) {
  if (dtype_row(dtype).block_elements == 256) return {256, 768};
  return {32, 64, 96, 288, 640, 672, 1056};
}

class AmxModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_here(kAmxModelUnit)) {
      GTEST_SKIP() << "the vectors around the tiles of this build need "
                   << isa_names(kAmxModelUnit.isa & ~detect_isa());
    }
  }
};

}  // namespace headrace::cpu
