// Rows of x times coded panels in tiles, a segment of inputs at a time: what the classes kFixed and
// kBf16Codes (kernels.h) have in common.
//
// Weights of a segment become operands of products once, for all rows, tile of rows by tile of
// rows; sums stay in their tiles as long as operands fit the L1 cache (32 KB, in parts of a
// segment), then rest in memory. So only rows of x, once for all panels side by side, and such sums
// come from the L2 cache, which delivers less than products of other operands would ask of it. Rows
// that fit one tile take operands as they are made, a block of 64 inputs behind: vectors and tiles
// work side by side. A panel's products come before its next operands are made, in the same place.
//
// Products<Tiles, kLayout, kPanels> is the arithmetic, for rows of several tiles and for fewer:
//   Form                    of operands (FixedWeights::expand)
//   make_pairs(...)         factors and offsets of a segment as the form wants them, and its units
//   kRecord                 bytes of a row of x in a slice
//   kMostPanels             side by side
//   kSums                   tiles of sums of a panel
//   configure(rows, &c)     shapes; the sum i of panel p is the tile p kSums + i
//   multiply(a, b)          a block's products, of rows of several tiles
//   multiply_panel<p>(a, b) of panel p, of fewer
//   sum(tiles)              what a row and panel come to, from its rows of stored sums, kTileBytes
//                           apart
//   factor(unit, record)    and what that is multiplied by
#pragma once

#include <type_traits>

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/amx/row_tiles.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int64_t kPanelOperandBytes = 2 * kOperandBytes;  // of a block
inline constexpr int64_t kMostPanels = 4;
inline constexpr int64_t kMostSums = 6;
inline constexpr int64_t kMostRestingSums = 4;    // of a tile of rows
inline constexpr int64_t kMostRestingTiles = 16;  // tiles of rows whose sums rest in memory

// Scratch of a call: operands of a part of a segment, stored sums, sums that rest, factors.
struct SegmentScratch {
  uint8_t* operands;
  uint8_t* sums;
  uint8_t* resting;  // by tile of rows
  uint8_t* pairs;    // by panel
  static constexpr int64_t kOperandsBytes = int64_t{32} << 10;
  static constexpr int64_t kSumsBytes = kMostSums * kTileBytes;
  static constexpr int64_t kRestingBytes = kMostRestingTiles * kMostRestingSums * kTileBytes;
  static_assert(kOperandsBytes + kSumsBytes + kRestingBytes + kMostPanels * kFixedPairsBytes <=
                kMatmulScratchFloats * int64_t{sizeof(float)});

  explicit SegmentScratch(float* scratch)
      : operands(reinterpret_cast<uint8_t*>(scratch)),
        sums(operands + kOperandsBytes),
        resting(sums + kSumsBytes),
        pairs(resting + kRestingBytes) {}
};

// All rows times kPanels panels over one segment. Its functions are inlined into one, so that
// members are values in registers: each tile instruction that touches memory would have them loaded
// again.
template <typename Tiles, Layout kLayout, int kPanels,
          template <typename, Layout, int> typename ProductsOf>
class CodedSegment {
 public:
  using F = Avx512;
  using Weights = FixedWeights<kLayout>;
  using Products = ProductsOf<Tiles, kLayout, kPanels>;
  static constexpr int kSums = kPanels * Products::kSums;
  static constexpr int64_t kBlockOperandBytes = kPanels * kPanelOperandBytes;
  static constexpr int64_t kMostBlocks = SegmentScratch::kOperandsBytes / kBlockOperandBytes;
  static constexpr bool kIsWhole = kMostBlocks * kFixedBlock >= kLongestFixedSegment;
  static_assert(kPanels <= kMostPanels && kSums <= kMostSums);

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

  // Rows of several tiles.
  [[gnu::always_inline]] void run_tiles() const {
    static_assert(kIsWhole || kSums <= kMostRestingSums);
    const int64_t most = kIsWhole ? tiles_.count : kMostRestingTiles;
    for (int64_t first = 0; first < tiles_.count; first += most) {
      const int64_t end = smaller(first + most, tiles_.count);
      const int64_t num_parts = (num_blocks_ + kMostBlocks - 1) / kMostBlocks;
      const int64_t blocks = (num_blocks_ + num_parts - 1) / num_parts;
      for (int64_t block = 0; block < num_blocks_; block += blocks) {
        multiply_part({block, smaller(block + blocks, num_blocks_)}, first, end);
      }
    }
  }

  // Rows that one tile holds.
  [[gnu::always_inline]] void run_one_tile() const {
    uint8_t* operands = scratch_.operands;
    zero_sums();
    for_panels([&](auto p) __attribute__((always_inline)) { expand(0, p.value, operands); });
    for (int64_t b = 1; b < num_blocks_; ++b) {
      for_panels([&](auto p) __attribute__((always_inline)) {
        Products::template multiply_panel<p.value>(rows_at(x_, b - 1), operands);
        expand(b, p.value, operands);
      });
    }
    for_panels([&](auto p) __attribute__((always_inline)) {
      Products::template multiply_panel<p.value>(rows_at(x_, num_blocks_ - 1), operands);
    });
    store_sums(scratch_.sums);
    add_sums(0, 0, tiles_.height);
  }

 private:
  struct Part {
    int64_t begin, end;  // blocks
  };

  // Tiles of rows [first, end) over a part of the segment; meanwhile, where it is the last, a few
  // rows a block, the sums of the tile before are added.
  [[gnu::always_inline]] void multiply_part(Part part, int64_t first, int64_t end) const {
    for (int64_t b = part.begin; b < part.end; ++b) {
      uint8_t* const to = scratch_.operands + (b - part.begin) * kBlockOperandBytes;
      for (int p = 0; p < kPanels; ++p) expand(b, p, to);
    }
    if (part.end < num_blocks_) {
      for (int64_t tile = first; tile < end; ++tile) multiply_rows(part, tile, first, 0, 0);
      return;
    }
    const int64_t blocks = part.end - part.begin;
    const int64_t rows = (tiles_.height + blocks - 1) / blocks;
    multiply_rows(part, first, first, 0, 0);
    for (int64_t tile = first + 1; tile < end; ++tile) {
      multiply_rows(part, tile, first, rows, tile - 1);
    }
    add_sums(end - 1, 0, tiles_.height);
  }

  // The products of a tile of rows; after each block, `rows` of the sums of tile `before` are
  // added.
  [[gnu::always_inline]] void multiply_rows(Part part, int64_t tile, int64_t first, int64_t rows,
                                            int64_t before) const {
    uint8_t* const resting = scratch_.resting + (tile - first) * kSums * kTileBytes;
    kIsWhole || part.begin == 0 ? zero_sums() : load_sums(resting);
    const uint8_t* x = x_ + tiles_.first(tile) * Products::kRecord;
    const uint8_t* operands = scratch_.operands;
    for (int64_t b = part.begin, row = 0; b < part.end; ++b, row += rows) {
      Products::multiply(rows_at(x, b), operands);
      operands += kBlockOperandBytes;
      add_sums(before, row, smaller(row + rows, tiles_.height));
    }
    store_sums(kIsWhole || part.end == num_blocks_ ? scratch_.sums : resting);
  }

  const uint8_t* panel_at(int p) const {
    return weight_ + static_cast<size_t>(p) * args_.panel_bytes;
  }
  template <typename Fn>
  [[gnu::always_inline]] static void for_panels(const Fn& fn) {
    unrolled<0, kPanels>(fn);
  }

  // Operands of a block of a panel.
  [[gnu::always_inline]] void expand(int64_t block, int panel, uint8_t* to) const {
    constexpr int64_t kPairs = kFixedBlock / Weights::W::kSubInputs * kFixedPairBytes;
    const int64_t in_segment = block * kFixedBlock;
    prefetch(panel_at(panel), first_ + in_segment);
    Weights::template expand<typename Products::Form>(
        panel_at(panel), first_ + in_segment, count_ - in_segment,
        scratch_.pairs + panel * kFixedPairsBytes + block * kPairs,
        to + panel * kPanelOperandBytes);
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

  [[gnu::always_inline]] static void zero_sums() {
    unrolled<0, kSums>([](auto sum)
                           __attribute__((always_inline)) { Tiles::template zero<sum.value>(); });
  }
  [[gnu::always_inline]] static void load_sums(const uint8_t* from) {
    unrolled<0, kSums>([&](auto sum) __attribute__((always_inline)) {
      Tiles::template load<sum.value>(from + sum.value * kTileBytes, kTileRowBytes);
    });
  }
  [[gnu::always_inline]] static void store_sums(uint8_t* to) {
    unrolled<0, kSums>([&](auto sum) __attribute__((always_inline)) {
      Tiles::template store<sum.value>(to + sum.value * kTileBytes, kTileRowBytes);
    });
  }

  // Where a block of the rows of a tile is. x: record of the first.
  [[gnu::always_inline]] const uint8_t* rows_at(const uint8_t* x, int64_t block) const {
    constexpr int64_t kBlocks = kSliceInputs / kFixedBlock;  // of a slice
    constexpr int64_t kBlockBytes = 2 * kTileRowBytes;
    return x + block / kBlocks * args_.x_stride + block % kBlocks * kBlockBytes;
  }

  // Adds the stored sums of a tile's rows [begin, end) to their totals, but those that a neighbour
  // has.
  [[gnu::always_inline]] void add_sums(int64_t tile, int64_t begin, int64_t end) const {
    const int64_t from = larger(begin, tiles_.skipped(tile));
    first_ == 0 ? add_rows<true>(tile, from, end) : add_rows<false>(tile, from, end);
  }

  // Of rows [from, to) of a tile. kIsFirst: of the first segment.
  template <bool kIsFirst>
  [[gnu::always_inline]] void add_rows(int64_t tile, int64_t from, int64_t to) const {
    const int64_t row = tiles_.first(tile) + from;
    const uint8_t* record = x_ + row * Products::kRecord;
    float* totals = sums_ + row * args_.sums_stride;
    const uint8_t* sums = scratch_.sums + from * kTileRowBytes;
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

// The segment from `first` on of kPanels panels.
template <typename Tiles, Layout kLayout, int kPanels,
          template <typename, Layout, int> typename ProductsOf>
[[gnu::noinline]] void multiply_segment(const MatmulArgs& args, int64_t first, int64_t panel) {
  CodedSegment<Tiles, kLayout, kPanels, ProductsOf>(args, first, panel).run_tiles();
}
template <typename Tiles, Layout kLayout, int kPanels,
          template <typename, Layout, int> typename ProductsOf>
[[gnu::noinline]] void multiply_few(const MatmulArgs& args, int64_t first, int64_t panel) {
  CodedSegment<Tiles, kLayout, kPanels, ProductsOf>(args, first, panel).run_one_tile();
}

// visit(panels, panel) for all panels, kMost side by side, then those that are left by themselves.
template <int kMost, typename Visit>
[[gnu::always_inline]] inline void for_panels_side_by_side(int64_t panel, int64_t end,
                                                           const Visit& visit) {
  for (; panel + kMost <= end; panel += kMost) visit(std::integral_constant<int, kMost>(), panel);
  if constexpr (kMost > 1) for_panels_side_by_side<1>(panel, end, visit);
}

// One tile of rows takes panels from end to end, as they lie in memory. More go segment by segment:
// one of x stays in the L2 cache for all panels.
template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf,
          template <typename, Layout, int> typename FewProductsOf>
void matmul_coded_tiles(const MatmulArgs& args) {
  using Products = ProductsOf<Tiles, kLayout, 1>;
  using FewProducts = FewProductsOf<Tiles, kLayout, 1>;
  static constexpr ConfigsByRows kConfigs = configs_by_rows(&Products::configure);
  static constexpr ConfigsByRows kFewConfigs = configs_by_rows(&FewProducts::configure);
  if (args.num_rows == 0) return;
  const RowTiles tiles(args.num_rows);
  const bool is_few = tiles.count == 1;
  const TileScope<Tiles> scope((is_few ? kFewConfigs : kConfigs).of[tiles.height]);
  const auto for_segments = [&](const auto& fn) {
    for (int64_t first = 0, count; first < args.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args.num_inputs);
      fn(first);
    }
  };
  if (is_few) {
    for_panels_side_by_side<FewProducts::kMostPanels>(
        0, args.num_panels, [&](auto panels, int64_t panel) {
          for_segments([&](int64_t first) {
            multiply_few<Tiles, kLayout, panels.value, FewProductsOf>(args, first, panel);
          });
        });
  } else {
    for_segments([&](int64_t first) {
      for_panels_side_by_side<Products::kMostPanels>(
          0, args.num_panels, [&](auto panels, int64_t panel) {
            multiply_segment<Tiles, kLayout, panels.value, ProductsOf>(args, first, panel);
          });
    });
  }
}

}  // namespace
}  // namespace headrace::cpu
