// Fixed-point activations times coded panels in tiles, class kFixed (kernels.h).
//
// Weights of a segment become byte digits once, for all rows; sums of whole numbers stay in their
// tiles over the segment. Two panels side by side, three sums each:
//   high x high, high x low + low x high, low x low
// Eight products to ten loads for 64 inputs of 16 rows and two panels, so that rows of x come from
// the L2 cache at a rate that it has, and digits (32 KB a segment) from the L1 cache.
// Rows that fit one tile take digits as they are made, a block of 64 inputs behind: vectors and
// tiles work side by side, and 16 rows cost little more than one.
#pragma once

#include "backend/cpu/kernels/amx/fixed_weights.h"
#include "backend/cpu/kernels/amx/row_tiles.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {
namespace {

inline constexpr int kFixedSums = 3;  // of a panel
inline constexpr int64_t kLag = 1;    // blocks between the making of digits and their use
inline constexpr int64_t kPanelDigitBytes = kDigits * kDigitTileBytes;  // of a block
inline constexpr int64_t kBlockDigitBytes = 2 * kPanelDigitBytes;
inline constexpr int64_t kSumTileBytes = kTileRows * kTileRowBytes;
inline constexpr int64_t kSumSetBytes = 2 * kFixedSums * kSumTileBytes;

// Scratch of a call: digits of a segment, sums of a tile of rows, factors.
struct FixedScratch {
  uint8_t* digits;
  uint8_t* sums;
  uint8_t* pairs;  // by panel
  static constexpr int64_t kDigitsBytes = kFixedSegment / kFixedBlock * kBlockDigitBytes;
  static constexpr int64_t kBytes = kDigitsBytes + kSumSetBytes + 2 * kFixedPairsBytes;
  static_assert(kBytes <= kMatmulScratchFloats * int64_t{sizeof(float)});

  explicit FixedScratch(float* scratch)
      : digits(reinterpret_cast<uint8_t*>(scratch)),
        sums(digits + kDigitsBytes),
        pairs(sums + kSumSetBytes) {}
};

// All rows times kPanels panels over one segment.
template <typename Tiles, Layout kLayout, int kPanels>
class FixedSegment {
 public:
  using F = Avx512;
  using Weights = FixedWeights<kLayout>;

  FixedSegment(const MatmulArgs& args, int64_t first, int64_t panel)
      : args_(args),
        tiles_(args.num_rows),
        scratch_(args.scratch),
        first_(first),
        count_(smaller(kFixedSegment, args.num_inputs - first)),
        num_blocks_((count_ + kFixedBlock - 1) / kFixedBlock),
        weight_(args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes),
        x_(static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride),
        sums_(args.sums + panel * kPanel) {
    for (int p = 0; p < kPanels; ++p) {
      units_[p] =
          Weights::make_pairs(panel_at(p), first, count_, scratch_.pairs + p * kFixedPairsBytes);
    }
  }

  static TileConfig config(int64_t rows) {
    TileConfig config{};
    for (int tile = 0; tile < 7; ++tile) set_shape(&config, tile, rows, kTileRowBytes);
    set_shape(&config, 7, kTileRows, kTileRowBytes);
    return config;
  }

  void run() const {
    if (tiles_.count == 1) return run_one_tile();
    for (int64_t b = 0; b < num_blocks_; ++b) {
      expand(b, scratch_.digits + b * kBlockDigitBytes, [](auto /*i*/) {});
    }
    for (int64_t tile = 0; tile < tiles_.count; ++tile) multiply_tile(tile);
    add_sums(tiles_.count - 1, tiles_.skipped(tiles_.count - 1), tiles_.height);
  }

 private:
  void run_one_tile() const {
    zero_sums();
    const auto alone = [](auto /*i*/) {};
    for (int64_t b = 0; b < num_blocks_; ++b) {
      if (b < kLag) {
        expand(b, digits_of(b), alone);
        continue;
      }
      const uint8_t* a = operand_at(x_, b - kLag);
      const uint8_t* digits = digits_of(b - kLag);
      expand(b, digits_of(b),
             [&](auto i) __attribute__((always_inline)) { multiply_one<i.value>(a, digits); });
    }
    for (int64_t b = larger(0, num_blocks_ - kLag); b < num_blocks_; ++b) {
      multiply(operand_at(x_, b), digits_of(b));
    }
    store_sums();
    add_sums(0, 0, tiles_.height);
  }

  // The products of a tile of rows; meanwhile, a few rows a block, the sums of the one before it.
  void multiply_tile(int64_t tile) const {
    const int64_t rows = (tiles_.height + num_blocks_ - 1) / num_blocks_;
    const uint8_t* x = x_ + tiles_.first(tile) * kFixedRecord;
    zero_sums();
    for (int64_t b = 0; b < num_blocks_; ++b) {
      multiply(operand_at(x, b), scratch_.digits + b * kBlockDigitBytes);
      if (tile > 0) {
        add_sums(tile - 1, larger(b * rows, tiles_.skipped(tile - 1)),
                 smaller((b + 1) * rows, tiles_.height));
      }
    }
    store_sums();
  }

  const uint8_t* panel_at(int p) const {
    return weight_ + static_cast<size_t>(p) * args_.panel_bytes;
  }
  // Where few rows find the digits of a block: a few blocks take turns.
  uint8_t* digits_of(int64_t block) const {
    return scratch_.digits + block % (2 * kLag) * kBlockDigitBytes;
  }

  // Digits of a block; beside(Index<i>) is called in between, i = 0 to 4 kPanels - 1.
  template <typename Fn>
  [[gnu::always_inline]] void expand(int64_t block, uint8_t* to, const Fn& beside) const {
    constexpr int64_t kPairs = kFixedBlock / Weights::W::kSubInputs * kFixedPairBytes;
    const int64_t in_segment = block * kFixedBlock;
    unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
      Weights::template prefetch<kPanels, kFixedBlock>(args_, panel_at(p.value),
                                                       first_ + in_segment);
      Weights::expand(panel_at(p.value), first_ + in_segment, count_ - in_segment,
                      scratch_.pairs + p.value * kFixedPairsBytes + block * kPairs,
                      to + p.value * kPanelDigitBytes, [&](auto i) __attribute__((always_inline)) {
                        beside(Index<p.value * 4 + i.value>{});
                      });
    });
  }

  template <typename Fn>
  [[gnu::always_inline]] static void each_sum(const Fn& fn) {
    unrolled<0, kPanels * kFixedSums>(fn);
  }
  [[gnu::always_inline]] static void zero_sums() {
    each_sum([](auto sum) __attribute__((always_inline)) { Tiles::template zero<sum.value>(); });
  }
  [[gnu::always_inline]] void store_sums() const {
    each_sum([&](auto sum) __attribute__((always_inline)) {
      Tiles::template store<sum.value>(scratch_.sums + sum.value * kSumTileBytes, kTileRowBytes);
    });
  }

  // Where the a operand of a block is. x: record of the tile's first row.
  [[gnu::always_inline]] const uint8_t* operand_at(const uint8_t* x, int64_t block) const {
    constexpr int64_t kBlocks = kSliceInputs / kFixedBlock;  // of a slice
    return x + block / kBlocks * args_.x_stride + block % kBlocks * kDigits * kFixedBlock;
  }

  // Product i of the 4 kPanels of a block; in order of i.
  template <int kProduct>
  [[gnu::always_inline]] static void multiply_one(const uint8_t* a, const uint8_t* digits) {
    constexpr int kXDigit = kProduct / (2 * kPanels), kPanelAt = kProduct / 2 % kPanels;
    // The low digit first with x's low one: a sum has four products between two of its own.
    constexpr int kWDigit = kProduct % 2 == kXDigit ? 0 : 1;
    constexpr int kSum = kPanelAt * kFixedSums + kXDigit + kWDigit;
    if constexpr (kProduct % (2 * kPanels) == 0) {
      Tiles::template load<6>(a + kXDigit * kFixedBlock, kFixedRecord);
    }
    Tiles::template load<7>(digits + kPanelAt * kPanelDigitBytes + kWDigit * kDigitTileBytes,
                            kTileRowBytes);
    if constexpr (kWDigit == 0) {
      Tiles::template product_ss<kSum, 6, 7>();
    } else {
      Tiles::template product_su<kSum, 6, 7>();
    }
  }
  [[gnu::always_inline]] static void multiply(const uint8_t* a, const uint8_t* digits) {
    unrolled<0, 4 * kPanels>(
        [&](auto i) __attribute__((always_inline)) { multiply_one<i.value>(a, digits); });
  }

  // Adds a tile's whole numbers to the totals of its rows [begin, end).
  [[gnu::always_inline]] void add_sums(int64_t tile, int64_t begin, int64_t end) const {
    const int64_t first_row = tiles_.first(tile);
    for (int64_t r = begin; r < end; ++r) {
      float* totals = sums_ + (first_row + r) * args_.sums_stride;
      float x_unit;
      __builtin_memcpy(&x_unit, x_ + (first_row + r) * kFixedRecord + kFixedUnitAt, sizeof(x_unit));
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* from = scratch_.sums + p * kFixedSums * kSumTileBytes + r * kTileRowBytes;
        const auto sum_at = [&](int i) __attribute__((always_inline)) {
          return F::load_words(from + i * kSumTileBytes);
        };
        const __m512i high = F::add_words(F::shift_left<8>(sum_at(0)), sum_at(1));
        const __m512 sum = to_float(high, sum_at(2));
        const __m512 before = first_ == 0 ? F::zero() : F::load(totals + p * kPanel);
        F::store(totals + p * kPanel, F::fma(sum, F::mul(units_[p], F::set(x_unit)), before));
      }
    }
  }

  const MatmulArgs& args_;
  const RowTiles tiles_;
  const FixedScratch scratch_;
  const int64_t first_, count_, num_blocks_;
  const uint8_t* const weight_;
  const uint8_t* const x_;
  float* const sums_;
  __m512 units_[kPanels];
};

// Segments outermost: a segment of x stays in the L2 cache for all panels.
template <typename Tiles, Layout kLayout>
void matmul_fixed_tiles(const MatmulArgs& args) {
  if (args.num_rows == 0) return;
  const TileScope<Tiles> scope(
      FixedSegment<Tiles, kLayout, 2>::config(RowTiles(args.num_rows).height));
  for (int64_t first = 0; first < args.num_inputs; first += kFixedSegment) {
    int64_t panel = 0;
    for (; panel + 2 <= args.num_panels; panel += 2) {
      FixedSegment<Tiles, kLayout, 2>(args, first, panel).run();
    }
    if (panel < args.num_panels) FixedSegment<Tiles, kLayout, 1>(args, first, panel).run();
  }
}

inline constexpr int kFewestFixedTileRows = 5;  // fewer are as fast in vectors (fixed_direct.h)

template <typename Tiles>
struct FixedTilesRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_fixed_tiles";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            kAmxUnitIsa,
            kLayout,
            ActivationType::kFixed,
            kFewestFixedTileRows,
            {kTileRows, 2 * kPanel, kFixedBlock},
            NumericsClass::kFixed,
            {.matmul = &matmul_fixed_tiles<Tiles, kLayout>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
