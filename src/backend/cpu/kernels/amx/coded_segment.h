// Rows of x times coded panels in tiles, a segment of inputs at a time: what the classes kFixed and
// kBf16Codes (kernels.h) have in common.
//
// Weights of a segment become operands of products once, for all rows; sums stay in their tiles
// over the segment. Rows of x come from the L2 cache, at half the rate that it has.
// Rows that fit one tile take operands as they are made, a block of 64 inputs behind: vectors and
// tiles work side by side. A panel's products come before its next operands are made, in the same
// place.
//
// Products<Tiles, kLayout, kPanels> is the arithmetic:
//   Form                    of operands (FixedWeights::expand)
//   make_pairs(...)         factors and offsets of a segment as the form wants them, and its units
//   kRecord                 bytes of a row of x in a slice
//   kMostPanels             side by side
//   kRowTiles               tiles of rows that are multiplied at once
//   kSums                   tiles of sums of a tile of rows and a panel
//   configure(rows, &c)     shapes; the sum i of panel p of row tile t is the tile
//                           (t kPanels + p) kSums + i
//   multiply<kGroup>(a, b)  a block's products of kGroup row tiles
//   multiply_panel<p>(a, b) of one row tile and panel p
//   sum(tiles)              what a row and panel come to, from its rows of stored sums, kTileBytes
//                           apart
//   factor(unit, record)    and what that is multiplied by
#pragma once

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/amx/row_tiles.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int64_t kPanelOperandBytes = 2 * kOperandBytes;  // of a block
inline constexpr int64_t kMostPanels = 2;
inline constexpr int64_t kMostSums = 4;

// Scratch of a call: operands of a segment, sums of the rows multiplied at once, factors.
struct SegmentScratch {
  uint8_t* operands;
  uint8_t* sums;
  uint8_t* pairs;  // by panel
  static constexpr int64_t kOperandsBytes =
      kLongestFixedSegment / kFixedBlock * kMostPanels * kPanelOperandBytes;
  static constexpr int64_t kSumsBytes = kMostSums * kTileBytes;
  static_assert(kOperandsBytes + kSumsBytes + kMostPanels * kFixedPairsBytes <=
                kMatmulScratchFloats * int64_t{sizeof(float)});

  explicit SegmentScratch(float* scratch)
      : operands(reinterpret_cast<uint8_t*>(scratch)),
        sums(operands + kOperandsBytes),
        pairs(sums + kSumsBytes) {}
};

// All rows times kPanels panels over one segment.
template <typename Tiles, Layout kLayout, int kPanels,
          template <typename, Layout, int> typename ProductsOf>
class CodedSegment {
 public:
  using F = Avx512;
  using Weights = FixedWeights<kLayout>;
  using Products = ProductsOf<Tiles, kLayout, kPanels>;
  static constexpr int kSums = kPanels * Products::kSums;  // of a row tile
  static constexpr int64_t kBlockOperandBytes = kPanels * kPanelOperandBytes;
  static_assert(kPanels <= kMostPanels);
  static_assert(Products::kRowTiles * kSums <= kMostSums && Products::kRowTiles <= 2);

  CodedSegment(const MatmulArgs& args, int64_t first, int64_t panel)
      : args_(args),
        tiles_(args.num_rows),
        scratch_(args.scratch),
        first_(first),
        count_(fixed_segment_inputs(first, args.num_inputs)),
        num_blocks_((count_ + kFixedBlock - 1) / kFixedBlock),
        weight_(args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes),
        x_(static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride),
        sums_(args.sums + panel * kPanel) {
    for (int p = 0; p < kPanels; ++p) {
      units_[p] =
          Products::make_pairs(panel_at(p), first, count_, scratch_.pairs + p * kFixedPairsBytes);
    }
  }

  [[gnu::always_inline]] void run() const {
    if (tiles_.count == 1) return run_one_tile();
    for (int64_t b = 0; b < num_blocks_; ++b) {
      for_panels([&](auto p)
                     __attribute__((always_inline)) { expand<p.value>(b, operands_at(b)); });
    }
    RowGroup done{};
    for (int64_t tile = 0; tile < tiles_.count;) {
      const bool is_last = tile + Products::kRowTiles > tiles_.count;
      done =
          is_last ? multiply_rows<1>(tile, done) : multiply_rows<Products::kRowTiles>(tile, done);
      tile += done.num_tiles;
    }
    add_sums(done, 0, done.num_tiles * tiles_.height);
  }

 private:
  struct RowGroup {
    int64_t first_tile, num_tiles;
  };

  [[gnu::always_inline]] void run_one_tile() const {
    uint8_t* operands = scratch_.operands;
    zero_sums<1>();
    for_panels([&](auto p) __attribute__((always_inline)) { expand<p.value>(0, operands); });
    for (int64_t b = 1; b < num_blocks_; ++b) {
      for_panels([&](auto p) __attribute__((always_inline)) {
        Products::template multiply_panel<p.value>(rows_at(x_, b - 1), operands);
        expand<p.value>(b, operands);
      });
    }
    const uint8_t* const a[] = {rows_at(x_, num_blocks_ - 1)};
    Products::template multiply<1>(a, operands);
    store_sums<1>();
    add_sums({0, 1}, 0, tiles_.height);
  }

  // The products of kGroup tiles of rows; meanwhile, a few rows a block, the sums of those done
  // before.
  template <int kGroup>
  [[gnu::always_inline]] RowGroup multiply_rows(int64_t tile, RowGroup before) const {
    const int64_t num_before = before.num_tiles * tiles_.height;
    const int64_t rows = (num_before + num_blocks_ - 1) / num_blocks_;
    zero_sums<kGroup>();
    for (int64_t b = 0; b < num_blocks_; ++b) {
      const uint8_t* a[kGroup];
      for (int t = 0; t < kGroup; ++t) {
        a[t] = rows_at(x_ + tiles_.first(tile + t) * Products::kRecord, b);
      }
      Products::template multiply<kGroup>(a, operands_at(b));
      add_sums(before, b * rows, smaller((b + 1) * rows, num_before));
    }
    store_sums<kGroup>();
    return {tile, kGroup};
  }

  const uint8_t* panel_at(int p) const {
    return weight_ + static_cast<size_t>(p) * args_.panel_bytes;
  }
  uint8_t* operands_at(int64_t block) const {
    return scratch_.operands + block * kBlockOperandBytes;
  }
  template <typename Fn>
  [[gnu::always_inline]] static void for_panels(const Fn& fn) {
    unrolled<0, kPanels>(fn);
  }

  // Operands of a block of panel kPanelAt.
  template <int kPanelAt>
  [[gnu::always_inline]] void expand(int64_t block, uint8_t* to) const {
    constexpr int64_t kPairs = kFixedBlock / Weights::W::kSubInputs * kFixedPairBytes;
    const int64_t in_segment = block * kFixedBlock;
    prefetch(panel_at(kPanelAt), first_ + in_segment);
    Weights::template expand<typename Products::Form>(
        panel_at(kPanelAt), first_ + in_segment, count_ - in_segment,
        scratch_.pairs + kPanelAt * kFixedPairsBytes + block * kPairs,
        to + kPanelAt * kPanelOperandBytes);
  }

  // What is expanded later.
  [[gnu::always_inline]] void prefetch(const uint8_t* panel, int64_t input) const {
    if (tiles_.count == 1) {
      Weights::template prefetch_stream<kPanels, kFixedBlock>(args_, panel, input);
    } else {
      const auto panels = kPanels * static_cast<int64_t>(args_.panel_bytes);
      Weights::template prefetch<kFixedBlock>(panel + panels, input);
    }
  }

  template <int kGroup>
  [[gnu::always_inline]] static void zero_sums() {
    unrolled<0, kGroup * kSums>(
        [](auto sum) __attribute__((always_inline)) { Tiles::template zero<sum.value>(); });
  }
  template <int kGroup>
  [[gnu::always_inline]] void store_sums() const {
    unrolled<0, kGroup * kSums>([&](auto sum) __attribute__((always_inline)) {
      Tiles::template store<sum.value>(scratch_.sums + sum.value * kTileBytes, kTileRowBytes);
    });
  }

  // Where a block of the rows of a tile is. x: record of the first.
  [[gnu::always_inline]] const uint8_t* rows_at(const uint8_t* x, int64_t block) const {
    constexpr int64_t kBlocks = kSliceInputs / kFixedBlock;  // of a slice
    constexpr int64_t kBlockBytes = 2 * kTileRowBytes;
    return x + block / kBlocks * args_.x_stride + block % kBlocks * kBlockBytes;
  }

  // Adds the sums of a group's rows [begin, end) to their totals, but those that a neighbour has.
  [[gnu::always_inline]] void add_sums(RowGroup group, int64_t begin, int64_t end) const {
    for (int64_t t = 0; t < group.num_tiles; ++t) {
      const int64_t tile = group.first_tile + t, first = t * tiles_.height;
      const int64_t from = larger(begin - first, tiles_.skipped(tile));
      const int64_t to = smaller(end - first, tiles_.height);
      const uint8_t* sums = scratch_.sums + t * kSums * kTileBytes;
      first_ == 0 ? add_rows<true>(tile, from, to, sums) : add_rows<false>(tile, from, to, sums);
    }
  }

  // Of rows [from, to) of a tile. kIsFirst: of the first segment.
  template <bool kIsFirst>
  [[gnu::always_inline]] void add_rows(int64_t tile, int64_t from, int64_t to,
                                       const uint8_t* sums) const {
    const int64_t row = tiles_.first(tile) + from;
    const uint8_t* record = x_ + row * Products::kRecord;
    float* totals = sums_ + row * args_.sums_stride;
    sums += from * kTileRowBytes;
    for (int64_t r = from; r < to; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        const __m512 sum = Products::sum(sums + p * Products::kSums * kTileBytes);
        const __m512 factor = Products::factor(units_[p], record);
        const __m512 before = kIsFirst ? F::zero() : F::load(totals + p * kPanel);
        F::store(totals + p * kPanel, F::fma(sum, factor, before));
      }
      record += Products::kRecord;
      totals += args_.sums_stride;
      sums += kTileRowBytes;
    }
  }

  const MatmulArgs& args_;
  const RowTiles tiles_;
  const SegmentScratch scratch_;
  const int64_t first_, count_, num_blocks_;
  const uint8_t* const weight_;
  const uint8_t* const x_;
  float* const sums_;
  __m512 units_[kPanels];
};

// The segment from `first` on of as many panels as are multiplied side by side, or of the last one.
template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf>
[[gnu::noinline]] void multiply_segment(const MatmulArgs& args, int64_t first, int64_t panel) {
  constexpr int kMost = ProductsOf<Tiles, kLayout, 1>::kMostPanels;
  if constexpr (kMost > 1) {
    if (panel + kMost <= args.num_panels) {
      return CodedSegment<Tiles, kLayout, kMost, ProductsOf>(args, first, panel).run();
    }
  }
  CodedSegment<Tiles, kLayout, 1, ProductsOf>(args, first, panel).run();
}

// One tile of rows takes panels from end to end, as they lie in memory. More go segment by segment:
// one of x stays in the L2 cache for all panels.
template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf>
void matmul_coded_tiles(const MatmulArgs& args) {
  if (args.num_rows == 0) return;
  using Products = ProductsOf<Tiles, kLayout, 1>;
  static constexpr ConfigsByRows kConfigs = configs_by_rows(&Products::configure);
  const RowTiles tiles(args.num_rows);
  const TileScope<Tiles> scope(kConfigs.of[tiles.height]);
  const auto for_panels = [&](const auto& fn) {
    for (int64_t panel = 0; panel < args.num_panels; panel += Products::kMostPanels) fn(panel);
  };
  const auto for_segments = [&](const auto& fn) {
    for (int64_t first = 0, count; first < args.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args.num_inputs);
      fn(first);
    }
  };
  const auto multiply = [&](int64_t first, int64_t panel) {
    multiply_segment<Tiles, kLayout, ProductsOf>(args, first, panel);
  };
  if (tiles.count == 1) {
    for_panels(
        [&](int64_t panel) { for_segments([&](int64_t first) { multiply(first, panel); }); });
  } else {
    for_segments(
        [&](int64_t first) { for_panels([&](int64_t panel) { multiply(first, panel); }); });
  }
}

}  // namespace
}  // namespace headrace::cpu
