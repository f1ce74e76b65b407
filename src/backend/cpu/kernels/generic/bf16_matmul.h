// Matrix products of bf16 activations with bf16 panels, class kBf16Dot (kernels.h).
//
// A panel holds pairs of inputs by output, which is what the instruction takes, so nothing is
// unpacked. direct: a few rows read a few panels once, from memory. blocked: a slice of two panels
// (16 KB) stays in the L1 cache while all rows use it; between slices the sums rest in memory,
// which changes no bit.
//
// F: the operations of lanes_avx512.h and
//   V dot_bf16(V acc, I x, I w)   acc + x.odd w.odd, then + x.even w.even, per word, as the class
#pragma once

#include "backend/cpu/kernels/generic/bf16_quantise.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int kBf16DirectRows = 6;  // of a register tile; times as many panels
inline constexpr int kBf16DirectPanels = 4;
inline constexpr int kBf16BlockRows = 12;
inline constexpr int kBf16BlockPanels = 2;
inline constexpr int64_t kBf16PanelSliceBytes = kSliceInputs / 2 * 4 * kPanel;

// Rows in tiles as equal as they can be, the taller ones first.
struct EvenTiles {
  int64_t count, height, num_taller;

  EvenTiles(int64_t num_rows, int64_t max_height)
      : count((num_rows + max_height - 1) / max_height),
        height(count == 0 ? 0 : num_rows / count),
        num_taller(num_rows - count * height) {}
  int64_t rows(int64_t tile) const { return height + (tile < num_taller ? 1 : 0); }
};

// Where a register tile works.
struct Bf16Place {
  int64_t row, panel;  // panel relative to args.first_panel
  int64_t first, end;  // inputs; `first` is a multiple of a slice
  uint32_t ahead;      // bit p: panel p is prefetched, one slice ahead
};

// kRows rows times kPanels panels over inputs [first, end), added to the sums that lie there.
template <typename F, int kRows, int kPanels>
__attribute__((noinline)) void bf16_tile(const MatmulArgs& args, const Bf16Place& at) {
  using V = typename F::V;
  using I = typename F::I;
  constexpr int64_t kRecord = activation_record_bytes(ActivationType::kBF16);
  const auto panel_bytes = static_cast<int64_t>(args.panel_bytes);
  const uint8_t* weight = args.weight + (args.first_panel + at.panel) * panel_bytes;
  float* sums = args.sums + at.row * args.sums_stride + at.panel * kPanel;
  const bool starts = at.first == 0;
  V acc[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = starts ? F::zero() : F::load(sums + r * args.sums_stride + p * kPanel);
    }
  }
  for (int64_t slice = at.first; slice < at.end; slice += kSliceInputs) {
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + slice / kSliceInputs * args.x_stride +
                       at.row * kRecord;
    const int64_t num_pairs = (smaller(kSliceInputs, at.end - slice) + 1) / 2;
    const int64_t offset = slice / kSliceInputs * kBf16PanelSliceBytes;
    for (int64_t i = 0; i < num_pairs; ++i) {
      I w[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        w[p] = F::load_words(weight + p * panel_bytes + offset + i * 64);
      }
      // Past the end of a panel come those that this place in the tile reads next.
      int64_t ahead = offset + i * 64 + kBf16PanelSliceBytes;
      if (ahead >= panel_bytes) ahead += (kPanels - 1) * panel_bytes;
      for (int p = 0; p < kPanels; ++p) {
        if ((at.ahead >> p & 1u) != 0) F::prefetch(weight + p * panel_bytes + ahead);
      }
      for (int r = 0; r < kRows; ++r) {
        const I pair = F::broadcast_word(x + r * kRecord + i * 4);
        for (int p = 0; p < kPanels; ++p) acc[r][p] = F::dot_bf16(acc[r][p], pair, w[p]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      F::store(sums + r * args.sums_stride + p * kPanel, acc[r][p]);
    }
  }
}

using Bf16Tile = void (*)(const MatmulArgs& args, const Bf16Place& at);

// The tile of each number of rows, 1 to kMaxRows.
template <typename F, int kMaxRows, int kPanels>
struct Bf16Tiles {
  Bf16Tile of_rows[kMaxRows + 1] = {};

  constexpr Bf16Tiles() { fill<1>(); }

 private:
  template <int kRows>
  constexpr void fill() {
    of_rows[kRows] = &bf16_tile<F, kRows, kPanels>;
    if constexpr (kRows < kMaxRows) fill<kRows + 1>();
  }
};

// Panels of the call from `panel` on as far as they come in groups of kPanels, for all rows;
// returns the rest's first.
template <typename F, int kPanels>
int64_t bf16_direct_panels(const MatmulArgs& args, int64_t panel) {
  static constexpr Bf16Tiles<F, kBf16DirectRows, kPanels> kTiles;
  const EvenTiles tiles(args.num_rows, kBf16DirectRows);
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    Bf16Place at{0, panel, 0, args.num_inputs, 0};
    for (int64_t t = 0; t < tiles.count; ++t) {
      kTiles.of_rows[tiles.rows(t)](args, at);
      at.row += tiles.rows(t);
    }
  }
  return panel;
}

template <typename F>
void matmul_bf16_direct(const MatmulArgs& args) {
  const int64_t panel = bf16_direct_panels<F, kBf16DirectPanels>(args, 0);
  bf16_direct_panels<F, 1>(args, panel);
}

template <typename F, int kPanels>
int64_t bf16_blocked_panels(const MatmulArgs& args, int64_t panel) {
  static constexpr Bf16Tiles<F, kBf16BlockRows, kPanels> kTiles;
  constexpr uint32_t kAllPanels = (1u << kPanels) - 1u;
  const EvenTiles tiles(args.num_rows, kBf16BlockRows);
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      Bf16Place at{0, panel, slice, smaller(slice + kSliceInputs, args.num_inputs), 0};
      // The first tiles fetch the next slice: one panel each, so that memory is busy for longer.
      for (int64_t t = 0; t < tiles.count; ++t) {
        at.ahead = tiles.count == 1 ? kAllPanels : t < kPanels ? 1u << t : 0u;
        kTiles.of_rows[tiles.rows(t)](args, at);
        at.row += tiles.rows(t);
      }
    }
  }
  return panel;
}

template <typename F>
void matmul_bf16_blocked(const MatmulArgs& args) {
  const int64_t panel = bf16_blocked_panels<F, kBf16BlockPanels>(args, 0);
  bf16_blocked_panels<F, 1>(args, panel);
}

template <typename F>
constexpr KernelRow bf16_dot_row(const char* name, int32_t min_rows, Tile tile,
                                 void (*function)(const MatmulArgs&)) {
  return {KernelOp::kMatmul,     name,     F::kIsa, Layout::kBF16,
          ActivationType::kBF16, min_rows, tile,    NumericsClass::kBf16Dot,
          {.matmul = function}};
}

template <typename F>
struct Bf16Rows {
  static constexpr KernelRow kRows[] = {
      bf16_dot_row<F>("matmul_bf16_bf16_direct", 1,
                      {kBf16DirectRows, kBf16DirectPanels* kPanel, kSliceInputs},
                      &matmul_bf16_direct<F>),
      bf16_dot_row<F>("matmul_bf16_bf16_blocked", kBf16DirectRows + 1,
                      {kBf16BlockRows, kBf16BlockPanels* kPanel, kSliceInputs},
                      &matmul_bf16_blocked<F>),
      quantise_row(ActivationType::kBF16, "quantise_bf16", F::kIsa, NumericsClass::kBf16Dot,
                   &quantise_bf16<ActivationType::kBF16>),
  };
  static constexpr KernelPart kPart = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};
};

}  // namespace
}  // namespace headrace::cpu
