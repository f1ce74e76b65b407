// bf16 activations times bf16 panels in tiles, class kBf16Tile (kernels.h).
//
// A panel in memory is a run of b operands: 16 words of two inputs by 16 outputs. Sums stay in
// their tiles over all of K where a few rows read the weights once (decode among them). With more
// rows, K goes in slices, so that a slice of two panels (16 KB) stays in the L1 cache and one of x
// in the L2 cache; between slices the sums rest in memory, which changes no bit.
#pragma once

#include "backend/cpu/kernels/amx/row_tiles.h"
#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/bf16_quantise.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int64_t kWeightBlockBytes = kActivationBlock / 2 * 64;  // of a panel
inline constexpr int64_t kBf16PrefetchBytes = 8192;                      // ahead, in each panel

// Products of kRowTiles x kPanels tiles over blocks of K: 2 x 2, 2 x 1, 1 x 2, 1 x 1 or 1 x 4.
template <typename Tiles, ActivationType kType, int kRowTiles, int kPanels>
class Bf16Products {
 public:
  static constexpr int64_t kRecord = activation_record_bytes(kType);
  static constexpr int64_t kBlock = activation_code_bytes(kType);
  static constexpr int kTerms = num_terms(kType);
  static_assert(kRowTiles * kPanels <= 4);

  // first_row: of each row tile. The tail of K is copied to scratch, with zeros.
  Bf16Products(const MatmulArgs& args, const int64_t* first_row, int64_t panel) : args_(args) {
    weight_ = args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
    for (int t = 0; t < kRowTiles; ++t) {
      x_[t] = static_cast<const uint8_t*>(args.x) + first_row[t] * kRecord;
      sums_[t] = args.sums + first_row[t] * args.sums_stride + panel * kPanel;
    }
  }

  // Inputs [first, end) of K; `first` is a multiple of a slice.
  void run(int64_t first, int64_t end) const {
    each_sum([&](auto t, auto p) __attribute__((always_inline)) {
      if (first == 0) {
        Tiles::template zero<t.value * kPanels + p.value>();
      } else {
        Tiles::template load<t.value * kPanels + p.value>(sums_[t.value] + p.value * kPanel,
                                                          args_.sums_stride * 4);
      }
    });
    for (int64_t k = first; k < end; k += kActivationBlock) {
      const int64_t in_slice = k % kSliceInputs / kActivationBlock;
      const int64_t x_offset = k / kSliceInputs * args_.x_stride + in_slice * kBlock;
      if (k + kActivationBlock <= args_.num_inputs) {
        const uint8_t* weight = weight_ + k / kActivationBlock * kWeightBlockBytes;
        prefetch(weight);
        multiply(x_offset, weight, static_cast<int64_t>(args_.panel_bytes));
      } else {
        multiply(x_offset, copy_tail(k), kWeightBlockBytes);
      }
    }
    each_sum([&](auto t, auto p) __attribute__((always_inline)) {
      Tiles::template store<t.value * kPanels + p.value>(sums_[t.value] + p.value * kPanel,
                                                         args_.sums_stride * 4);
    });
  }

 private:
  template <typename Fn>
  [[gnu::always_inline]] static void each_sum(const Fn& fn) {
    unrolled<0, kRowTiles>([&](auto t) __attribute__((always_inline)) {
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) { fn(t, p); });
    });
  }

  // Sums are tiles 0 to 3; a of row tile t is 4 + t, with one row tile 4 + term; b is 6 or 7.
  [[gnu::always_inline]] void multiply(int64_t x_offset, const uint8_t* weight,
                                       int64_t panel_stride) const {
    if constexpr (kRowTiles == 1) {
      Tiles::template load<4>(x_[0] + x_offset, kRecord);
      if constexpr (kTerms == 2) Tiles::template load<5>(x_[0] + x_offset + 64, kRecord);
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kB = 6 + p.value % 2;
        Tiles::template load<kB>(weight + p.value * panel_stride, 64);
        Tiles::template product_bf16<p.value, 4, kB>();
        if constexpr (kTerms == 2) Tiles::template product_bf16<p.value, 5, kB>();
      });
    } else {
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        Tiles::template load<6 + p.value>(weight + p.value * panel_stride, 64);
      });
      for (int term = 0; term < kTerms; ++term) {
        unrolled<0, 2>([&](auto t) __attribute__((always_inline)) {
          Tiles::template load<4 + t.value>(x_[t.value] + x_offset + term * 64, kRecord);
          unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
            Tiles::template product_bf16<t.value * kPanels + p.value, 4 + t.value, 6 + p.value>();
          });
        });
      }
    }
  }

  // One row tile reads its weights once, from memory. The first cache waits for too few lines.
  [[gnu::always_inline]] void prefetch(const uint8_t* weight) const {
    if constexpr (kRowTiles == 1) {
      const auto stride = static_cast<int64_t>(args_.panel_bytes);
      for (int p = 0; p < kPanels; ++p) {
        for (int64_t line = 0; line < kWeightBlockBytes; line += 64) {
          Avx512::prefetch_second(weight + p * stride + kBf16PrefetchBytes + line);
        }
      }
    }
  }

  // The weights of input k on, a part of a block, for each panel.
  const uint8_t* copy_tail(int64_t k) const {
    const int64_t num_words = (args_.num_inputs - k + 1) / 2;
    auto* tail = reinterpret_cast<uint8_t*>(args_.scratch);
    for (int64_t p = 0; p < kPanels; ++p) {
      const uint8_t* from = weight_ + p * static_cast<int64_t>(args_.panel_bytes) + k / 2 * 64;
      for (int64_t i = 0; i < kActivationBlock / 2; ++i) {
        const __m512i words =
            i < num_words ? Avx512::load_words(from + i * 64) : _mm512_setzero_si512();
        Avx512::store_words(tail + p * kWeightBlockBytes + i * 64, words);
      }
    }
    return tail;
  }

  const MatmulArgs& args_;
  const uint8_t* weight_;
  const uint8_t* x_[kRowTiles];
  float* sums_[kRowTiles];
};

inline constexpr ConfigsByRows kBf16Configs = configs_by_rows(&configure_two_by_two);

// Panels of the call from `panel` on as far as they come in groups of kPanels; returns the rest's
// first.
template <typename Tiles, ActivationType kType, int kRowTiles, int kPanels>
int64_t bf16_panels(const MatmulArgs& args, const int64_t* first_row, int64_t panel) {
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    Bf16Products<Tiles, kType, kRowTiles, kPanels>(args, first_row, panel).run(0, args.num_inputs);
  }
  return panel;
}

// Up to two tiles of rows: every weight is read once.
template <typename Tiles, ActivationType kType>
void bf16_few_rows(const MatmulArgs& args) {
  const RowTiles tiles(args.num_rows);
  const TileScope<Tiles> scope(kBf16Configs.of[tiles.height]);
  const int64_t first_row[2] = {0, tiles.first(1)};
  if (tiles.count == 1) {
    const int64_t panel = bf16_panels<Tiles, kType, 1, 4>(args, first_row, 0);
    bf16_panels<Tiles, kType, 1, 1>(args, first_row, panel);
  } else {
    const int64_t panel = bf16_panels<Tiles, kType, 2, 2>(args, first_row, 0);
    bf16_panels<Tiles, kType, 2, 1>(args, first_row, panel);
  }
}

// One slice of kPanels panels for all rows, which fill their tiles.
template <typename Tiles, ActivationType kType, int kPanels>
void bf16_slice(const MatmulArgs& args, int64_t slice, int64_t panel) {
  const int64_t end = smaller(slice + kSliceInputs, args.num_inputs);
  int64_t row = 0;
  for (; row + 2 * kTileRows <= args.num_rows; row += 2 * kTileRows) {
    const int64_t first_row[2] = {row, row + kTileRows};
    Bf16Products<Tiles, kType, 2, kPanels>(args, first_row, panel).run(slice, end);
  }
  if (row < args.num_rows)
    Bf16Products<Tiles, kType, 1, kPanels>(args, &row, panel).run(slice, end);
}

template <typename Tiles, ActivationType kType>
void bf16_full_tiles(const MatmulArgs& args) {
  const TileScope<Tiles> scope(kBf16Configs.of[kTileRows]);
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    int64_t panel = 0;
    for (; panel + 2 <= args.num_panels; panel += 2) {
      bf16_slice<Tiles, kType, 2>(args, slice, panel);
    }
    if (panel < args.num_panels) bf16_slice<Tiles, kType, 1>(args, slice, panel);
  }
}

template <typename Tiles, ActivationType kType>
void matmul_bf16_tiles(const MatmulArgs& args) {
  if (args.num_rows == 0) return;
  MatmulArgs part = args;
  if (args.num_rows > 2 * kTileRows) {
    part.num_rows = args.num_rows / kTileRows * kTileRows;
    bf16_full_tiles<Tiles, kType>(part);
    part.x = static_cast<const uint8_t*>(args.x) + part.num_rows * activation_record_bytes(kType);
    part.sums += part.num_rows * args.sums_stride;
    part.num_rows = args.num_rows - part.num_rows;
    if (part.num_rows == 0) return;
  }
  bf16_few_rows<Tiles, kType>(part);
}

// bf16 panels have their own order of summation, so one row serves every M.
template <typename Tiles, ActivationType kType>
constexpr KernelRow bf16_tiles_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          kAmxUnitIsa,
          Layout::kBF16,
          kType,
          1,
          {2 * kTileRows, 2 * kPanel, kActivationBlock},
          NumericsClass::kBf16Tile,
          {.matmul = &matmul_bf16_tiles<Tiles, kType>}};
}

template <typename Tiles>
struct Bf16TilesRows {
  static constexpr KernelRow kRows[] = {
      bf16_tiles_row<Tiles, ActivationType::kBF16x2>("matmul_bf16_bf16x2_tiles"),
      bf16_tiles_row<Tiles, ActivationType::kBF16>("matmul_bf16_bf16_tiles"),
      quantise_row(ActivationType::kBF16x2, "quantise_bf16x2", kAmxUnitIsa,
                   NumericsClass::kBf16Tile, &quantise_bf16<ActivationType::kBF16x2>),
      quantise_row(ActivationType::kBF16, "quantise_bf16", kAmxUnitIsa, NumericsClass::kBf16Tile,
                   &quantise_bf16<ActivationType::kBF16>),
  };
  static constexpr KernelPart kPart = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};
};

}  // namespace
}  // namespace headrace::cpu
