// Rows of x times coded panels in tiles, a segment of inputs at a time: what the classes kFixed and
// kBf16Codes (kernels.h) have in common.
//
// Weights of a segment become operands of products once, for all rows, group of tiles of rows by
// group; sums stay in their tiles as long as operands stay in the L1 cache beside rows of x (20 KB,
// in parts of a segment), then rest in memory. What takes time beside the products is what waits
// for them, or they for it: so a group's sums leave their tiles one by one, each before its tile's
// first product of the next group, and are added a few rows after each block of that. Rows that fit
// one tile take operands as they are made, a block of 64 inputs behind: vectors and tiles work side
// by side. A panel's products come before its next operands are made, in the same place.
//
// Products<Tiles, kLayout, kPanels> is the arithmetic, for rows of several tiles and for fewer:
//   Form                    of operands (FixedWeights::expand)
//   make_pairs(...)         factors and offsets of a segment as the form wants them, and its units
//   kType                   of activations
//   kMostPanels             side by side
//   kRowTiles               tiles of rows side by side, a group
//   kSums                   tiles of sums of a panel and a tile of rows
//   configure(rows, &c)     shapes; the sum i of panel p and tile of rows t is the tile
//                           (t kPanels + p) kSums + i
//   multiply(x, b, start)   a block's products, of rows of several tiles: those of tile t are x[t].
//                           start(i) comes before the first of sum i
//   multiply_panel<p>(x, b) of panel p, of fewer
//   sum(tiles)              what a row and panel come to, from its rows of stored sums, kTileBytes
//                           apart
//   factor(unit, x_unit)    and what that is multiplied by; x_unit: where it is
#pragma once

#include <type_traits>

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int64_t kPanelOperandBytes = 2 * kOperandBytes;  // of a block
inline constexpr int64_t kMostPanels = 2;
inline constexpr int64_t kMostSums = 6;
inline constexpr int64_t kMostTiles = 16;       // of rows at a time
inline constexpr int64_t kMostRestingSums = 4;  // of a group of several tiles
inline constexpr int64_t kAddedRows = 4;        // of sums, after a block
static_assert(kTileRows % kAddedRows == 0);

// Two lines of a tile of rows: 64 inputs, or both halves of what they take.
struct BlockOfX {
  const uint8_t* lines;
  int64_t pitch;
};

// Rows of x in their tiles, the last of which is short where it is the last that is stored. A tile
// register has its rows at the end: what lies before them is multiplied and left alone.
struct StoredTiles {
  int64_t count, num_rows, num_before, num_stored;

  explicit StoredTiles(const MatmulArgs& args)
      : count((args.num_rows + kTileRows - 1) / kTileRows),
        num_rows(args.num_rows),
        num_before(args.beside.before),
        num_stored(args.beside.before + args.num_rows + args.beside.behind) {}

  int64_t height(int64_t tile) const { return smaller(num_stored - tile * kTileRows, kTileRows); }
  // Rows of a tile register that are none of a tile, and then such as are.
  int64_t skipped(int64_t tile) const { return kTileRows - height(tile); }
  int64_t valid(int64_t tile) const { return smaller(num_rows - tile * kTileRows, kTileRows); }
};
static_assert(kTileOfRows == kTileRows && kActivationLine == kTileRowBytes);

// Scratch of a call: operands of a part of a segment, stored sums, sums that rest, factors.
struct SegmentScratch {
  uint8_t* operands;
  uint8_t* sums;
  uint8_t* resting;  // by group of tiles of rows
  uint8_t* pairs;    // by panel
  static constexpr int64_t kOperandsBytes = int64_t{20} << 10;
  static constexpr int64_t kSumsBytes = kMostSums * kTileBytes;
  static constexpr int64_t kRestingBytes = kMostTiles / 2 * kMostRestingSums * kTileBytes;
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
  static constexpr int kRowTiles = Products::kRowTiles;
  static constexpr int kSums = kPanels * Products::kSums;  // of a tile of rows
  static constexpr int kGroupSums = kRowTiles * kSums;
  static constexpr int64_t kTileSumsBytes = kSums * kTileBytes;
  static constexpr int64_t kBlockOperandBytes = kPanels * kPanelOperandBytes;
  static constexpr int64_t kMostBlocks = SegmentScratch::kOperandsBytes / kBlockOperandBytes;
  static constexpr bool kIsWhole = kMostBlocks * kFixedBlock >= kLongestFixedSegment;
  static_assert(kPanels <= kMostPanels && kGroupSums <= kMostSums);

  CodedSegment(const MatmulArgs& args, int64_t first, int64_t panel)
      : args_(args),
        tiles_(args),
        scratch_(args.scratch),
        first_(first),
        count_(fixed_segment_inputs(first, args.num_inputs)),
        num_blocks_((count_ + kFixedBlock - 1) / kFixedBlock),
        weight_(args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes),
        x_(static_cast<const uint8_t*>(args.x)),
        sums_(args.sums + panel * kPanel),
        x_stride_(args.x_stride),
        sums_stride_(args.sums_stride) {
    for (int p = 0; p < kPanels; ++p) {
      units_[p] =
          Products::make_pairs(panel_at(p), first, count_, scratch_.pairs + p * kFixedPairsBytes);
    }
  }

  // Rows of several tiles.
  [[gnu::always_inline]] void run_tiles() const {
    static_assert(kIsWhole || (kRowTiles > 1 && kGroupSums <= kMostRestingSums));
    const int64_t num_parts = (num_blocks_ + kMostBlocks - 1) / kMostBlocks;
    const int64_t blocks = (num_blocks_ + num_parts - 1) / num_parts;
    for (int64_t block = 0; block < num_blocks_; block += blocks) {
      multiply_part({block, smaller(block + blocks, num_blocks_)});
    }
  }

  // Rows that one tile holds.
  [[gnu::always_inline]] void run_one_tile() const {
    uint8_t* operands = scratch_.operands;
    const BlockOfX rows = first_block(0, tiles_.num_before);
    zero_sums<kSums>();
    for_panels([&](auto p) __attribute__((always_inline)) { expand(0, p.value, operands); });
    for (int64_t b = 1; b < num_blocks_; ++b) {
      for_panels([&](auto p) __attribute__((always_inline)) {
        Products::template multiply_panel<p.value>(block_of(rows, b - 1), operands);
        expand(b, p.value, operands);
      });
    }
    for_panels([&](auto p) __attribute__((always_inline)) {
      Products::template multiply_panel<p.value>(block_of(rows, num_blocks_ - 1), operands);
    });
    store_sums<kSums>(scratch_.sums);
    SumRow row = sum_row(tiles_.num_before);
    for (int64_t r = 0; r < tiles_.num_rows; ++r, row = next(row)) add_row<1>(row);
  }

 private:
  struct Part {
    int64_t begin, end;  // blocks
  };
  // A row's stored sums, its unit and its totals.
  struct SumRow {
    const uint8_t *sums, *unit;
    float* totals;
  };

  // All groups of tiles of rows over a part of the segment; sums of the last part are added.
  [[gnu::always_inline]] void multiply_part(Part part) const {
    for (int64_t b = part.begin; b < part.end; ++b) {
      uint8_t* const to = scratch_.operands + (b - part.begin) * kBlockOperandBytes;
      for (int p = 0; p < kPanels; ++p) expand(b, p, to);
    }
    part.end == num_blocks_ ? multiply_groups<true>(part) : multiply_groups<false>(part);
  }

  template <bool kIsLastPart>
  [[gnu::always_inline]] void multiply_groups(Part part) const {
    const int64_t num_groups = (tiles_.count + kRowTiles - 1) / kRowTiles;
    multiply_group<kIsLastPart, true>(part, 0);
    for (int64_t group = 1; group < num_groups; ++group) {
      multiply_group<kIsLastPart, false>(part, group);
    }
    store_sums<kGroupSums>(sums_place<kIsLastPart>(num_groups - 1));
    if (kIsLastPart) add_group(num_groups - 1);
  }

  // The products of a group; what the one before came to leaves its tiles and is added meanwhile.
  template <bool kIsLastPart, bool kIsFirst>
  [[gnu::always_inline]] void multiply_group(Part part, int64_t group) const {
    BlockOfX x[kRowTiles], rows[kRowTiles];
    for (int t = 0; t < kRowTiles; ++t) {
      const int64_t tile = smaller(group * kRowTiles + t, tiles_.count - 1);
      rows[t] = first_block(tile, -tiles_.skipped(tile));
      x[t] = block_of(rows[t], part.begin);
    }
    const uint8_t* operands = scratch_.operands;
    const int64_t before = kIsFirst ? 0 : group - 1;
    Products::multiply(x, operands, [&](auto sum) {
      start_sum<kIsLastPart, kIsFirst, sum.value>(part, group, before);
    });
    SumRow row = sum_row(before * kRowTiles * kTileRows);
    int64_t num_left = kIsLastPart && !kIsFirst ? kTileRows : 0;
    for (int64_t b = part.begin + 1; b < part.end; ++b) {
      operands += kBlockOperandBytes;
      for (int t = 0; t < kRowTiles; ++t) x[t] = block_of(rows[t], b);
      Products::multiply(x, operands, [](auto) {});
      if (num_left > 0) add_some(&row, &num_left);
    }
    while (num_left > 0) add_some(&row, &num_left);
  }

  // Takes from a tile the sum of the group before and gives it that of `group`, as far as it is.
  template <bool kIsLastPart, bool kIsFirst, int kSum>
  [[gnu::always_inline]] void start_sum(Part part, int64_t group, int64_t before) const {
    constexpr int64_t kAt = kSum * kTileBytes;
    if (!kIsFirst) {
      Tiles::template store<kSum>(sums_place<kIsLastPart>(before) + kAt, kTileRowBytes);
    }
    if (kIsWhole || part.begin == 0) {
      Tiles::template zero<kSum>();
    } else {
      Tiles::template load<kSum>(resting(group) + kAt, kTileRowBytes);
    }
  }

  // Where the sums of a group go.
  template <bool kIsLastPart>
  [[gnu::always_inline]] uint8_t* sums_place(int64_t group) const {
    return kIsLastPart ? scratch_.sums : resting(group);
  }
  [[gnu::always_inline]] uint8_t* resting(int64_t group) const {
    return scratch_.resting + group * kGroupSums * kTileBytes;
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
    Weights::template expand<typename Products::Form>(
        panel_at(panel), first_ + in_segment, count_ - in_segment,
        scratch_.pairs + panel * kFixedPairsBytes + block * kPairs,
        expanded_later(panel_at(panel), first_ + in_segment), to + panel * kPanelOperandBytes);
  }

  [[gnu::always_inline]] const uint8_t* expanded_later(const uint8_t* panel, int64_t input) const {
    if (tiles_.count == 1) return Weights::template ahead_in_stream<kPanels>(args_, panel, input);
    return panel + kPanels * static_cast<int64_t>(args_.panel_bytes) + Weights::offset_of(input);
  }

  template <int kCount>
  [[gnu::always_inline]] static void zero_sums() {
    unrolled<0, kCount>([](auto sum)
                            __attribute__((always_inline)) { Tiles::template zero<sum.value>(); });
  }
  template <int kCount>
  [[gnu::always_inline]] static void store_sums(uint8_t* to) {
    unrolled<0, kCount>([&](auto sum) __attribute__((always_inline)) {
      Tiles::template store<sum.value>(to + sum.value * kTileBytes, kTileRowBytes);
    });
  }

  // The segment's first block of a tile's rows from `row` on, and the others.
  [[gnu::always_inline]] BlockOfX first_block(int64_t tile, int64_t row) const {
    const int64_t pitch = tiles_.height(tile) * kActivationLine;
    const uint8_t* lines = x_ + tile * kTileRows * x_stride_ + row * kActivationLine;
    return block_of({lines, pitch}, first_ / kFixedBlock);
  }
  [[gnu::always_inline]] static BlockOfX block_of(BlockOfX rows, int64_t block) {
    return {rows.lines + block * 2 * rows.pitch, rows.pitch};
  }

  // `row` of those that are stored, whose sums lie first.
  [[gnu::always_inline]] SumRow sum_row(int64_t row) const {
    const RowInTiles at = row_in_tiles(Products::kType, row, tiles_.num_stored, x_stride_);
    return {scratch_.sums, x_ + at.unit + first_ / kSliceInputs * at.slice_pitch,
            sums_ + (row - tiles_.num_before) * sums_stride_};
  }
  [[gnu::always_inline]] SumRow next(SumRow row) const {
    return {row.sums + kTileRowBytes, row.unit + kFixedUnitBytes, row.totals + sums_stride_};
  }
  // The same row of the next tile of a group; both are whole.
  [[gnu::always_inline]] SumRow beside(SumRow row) const {
    return {row.sums + kTileSumsBytes, row.unit + kTileRows * x_stride_,
            row.totals + kTileRows * sums_stride_};
  }

  // Adds a row's sums to its totals, and those of the same row of the tiles beside.
  template <int kCount>
  [[gnu::always_inline]] void add_row(SumRow row) const {
    for (int p = 0; p < kPanels; ++p) {
      const __m512 sum = Products::sum(row.sums + p * Products::kSums * kTileBytes);
      const __m512 factor = Products::factor(units_[p], row.unit);
      const __m512 before = first_ == 0 ? F::zero() : F::load(row.totals + p * kPanel);
      F::store(row.totals + p * kPanel, F::fma(sum, factor, before));
    }
    if constexpr (kCount > 1) add_row<kCount - 1>(beside(row));
  }

  // Adds the next rows of all tiles of a group.
  [[gnu::always_inline]] void add_some(SumRow* row, int64_t* num_left) const {
    unrolled<0, kAddedRows>([&](auto) __attribute__((always_inline)) {
      add_row<kRowTiles>(*row);
      *row = next(*row);
    });
    *num_left -= kAddedRows;
  }

  // Adds what is stored of a group that may have a short tile, or one that is none.
  [[gnu::always_inline]] void add_group(int64_t group) const {
    for (int t = 0; t < kRowTiles; ++t) {
      const int64_t tile = group * kRowTiles + t;
      if (tile >= tiles_.count) return;
      SumRow row = sum_row(tile * kTileRows);
      row.sums += t * kTileSumsBytes + tiles_.skipped(tile) * kTileRowBytes;
      for (int64_t r = 0; r < tiles_.valid(tile); ++r, row = next(row)) add_row<1>(row);
    }
  }

  const MatmulArgs& args_;
  const StoredTiles tiles_;
  const SegmentScratch scratch_;
  const int64_t first_, count_, num_blocks_;
  const uint8_t* const weight_;
  const uint8_t* const x_;
  float* const sums_;
  const int64_t x_stride_, sums_stride_;
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

// visit(first) for all segments of K.
template <typename Visit>
[[gnu::always_inline]] inline void for_segments(int64_t num_inputs, const Visit& visit) {
  for (int64_t first = 0; first < num_inputs; first += fixed_segment_inputs(first, num_inputs)) {
    visit(first);
  }
}

// visit(panels, panel) for all panels, kMost side by side, then those that are left by themselves.
template <int kMost, typename Visit>
[[gnu::always_inline]] inline void for_panels_side_by_side(int64_t panel, int64_t end,
                                                           const Visit& visit) {
  for (; panel + kMost <= end; panel += kMost) visit(std::integral_constant<int, kMost>(), panel);
  if constexpr (kMost > 1) for_panels_side_by_side<1>(panel, end, visit);
}

// Rows that one tile holds take panels from end to end, as they lie in memory.
template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf>
void multiply_few_rows(const MatmulArgs& args) {
  using Products = ProductsOf<Tiles, kLayout, 1>;
  static constexpr ConfigsByRows kConfigs = configs_by_rows(&Products::configure);
  const TileScope<Tiles> scope(kConfigs.of[args.num_rows]);
  for_panels_side_by_side<Products::kMostPanels>(
      0, args.num_panels, [&](auto panels, int64_t panel) {
        for_segments(args.num_inputs, [&](int64_t first) {
          multiply_few<Tiles, kLayout, panels.value, ProductsOf>(args, first, panel);
        });
      });
}

// More go segment by segment: one of x stays in the L2 cache for all panels.
template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf>
void multiply_many_rows(const MatmulArgs& args) {
  using Products = ProductsOf<Tiles, kLayout, 1>;
  static constexpr TileConfig kConfig = [] {
    TileConfig config{};
    Products::configure(kTileRows, &config);
    return config;
  }();
  const TileScope<Tiles> scope(kConfig);
  for_segments(args.num_inputs, [&](int64_t first) {
    for_panels_side_by_side<Products::kMostPanels>(
        0, args.num_panels, [&](auto panels, int64_t panel) {
          multiply_segment<Tiles, kLayout, panels.value, ProductsOf>(args, first, panel);
        });
  });
}

template <typename Tiles, Layout kLayout, template <typename, Layout, int> typename ProductsOf,
          template <typename, Layout, int> typename FewProductsOf>
void matmul_coded_tiles(const MatmulArgs& args) {
  constexpr int64_t kMostRows = kMostTiles * kTileRows;
  MatmulArgs part = args;
  for (int64_t row = 0; row < args.num_rows; row += kMostRows) {
    part.x = static_cast<const uint8_t*>(args.x) + row * args.x_stride;
    part.sums = args.sums + row * args.sums_stride;
    part.num_rows = smaller(kMostRows, args.num_rows - row);
    part.beside.behind = args.beside.behind + args.num_rows - row - part.num_rows;
    if (part.num_rows <= kTileRows) {
      multiply_few_rows<Tiles, kLayout, FewProductsOf>(part);
    } else {
      multiply_many_rows<Tiles, kLayout, ProductsOf>(part);
    }
  }
}

}  // namespace
}  // namespace headrace::cpu
