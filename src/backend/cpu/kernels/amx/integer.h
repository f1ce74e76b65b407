// Integer activations times coded panels in tiles, class kInteger (kernels.h).
//
// A sub-block of the layout (32 or 16 inputs, one scale) is the depth of a product: its sums leave
// the tiles as whole numbers and are scaled in vectors. A product of 16 rows, 16 outputs and 32
// inputs costs the tile unit as much as one of 64 inputs, yet blocks of 32 allow no deeper one.
//   a   16 rows of x, the 32 bytes of one term of one block; stride: a record
//   b   the block's codes of one panel, 4 inputs to a word, unpacked once per slice for all rows
//   and
//       freed of the zero point there: code - zero is a signed byte in every layout
//   sum of each panel and term; 256 high + low in 32 bits is exact
// Work per slice of two panels: row tiles times groups of two sub-blocks. While a group is in the
// tile unit, the group before it is scaled from the L1 cache, so that neither waits for the other.
#pragma once

#include "backend/cpu/kernels/amx/row_tiles.h"
#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/lanes_avx512.h"
#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

// What a product needs to know of a layout and an activation type; layouts alike share code.
struct IntegerKind {
  int sub_inputs;
  bool has_minimum;
  ActivationType activation;

  constexpr bool operator==(const IntegerKind&) const = default;
  constexpr int parts() const { return kActivationBlock / sub_inputs; }  // of an x block
};

// Scratch: code bytes [panel][group of 4 inputs], then factors [sub-block]{scale [panel], offset
// [panel]}, then sums of two groups [row][sub-block of the group][panel][term]; 64 bytes each.
inline constexpr int kGroupSubBlocks = 2;
inline constexpr int64_t kPanelCodeBytes = kSliceInputs / 4 * 64;
inline constexpr int64_t kFactorsAt = 2 * kPanelCodeBytes;
inline constexpr int64_t kFactorBytes = 4 * 64;
inline constexpr int64_t kSumsAt = kFactorsAt + kSliceInputs / 16 * kFactorBytes;
inline constexpr int64_t kSumBytes = kGroupSubBlocks * 2 * 2 * 64;  // of a row
inline constexpr int64_t kGroupSumBytes = kTileRows * kSumBytes;
static_assert(kSumsAt + 2 * kGroupSumBytes <= kMatmulScratchFloats * int64_t{sizeof(float)});

// Codes and factors of one panel's slice.
template <Layout kLayout>
__attribute__((noinline)) void unpack_tile_codes(const uint8_t* panel, int64_t first, int64_t count,
                                                 uint8_t* codes, uint8_t* factors) {
  using F = Avx512;
  using W = CodedWeights<F, kLayout>;
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(W::kZero));
  for (int64_t k = 0; k < count; k += W::kUnit) {
    const typename W::Unit unit = W::unit_at(panel, first + k);
    uint8_t* to = codes + k / 4 * 64;
    unrolled<0, W::kUnit / 4>([&](auto group) __attribute__((always_inline)) {
      __m512i bytes = W::template code_bytes<group.value>(unit.low, unit.high);
      if constexpr (W::kZero != 0) bytes = _mm512_sub_epi8(bytes, zero);
      F::store_words(to + group.value * 64, bytes);
    });
    for (int part = 0; part < W::kFactorsPerUnit; ++part) {
      const typename W::Factors f = W::factors(unit.chunk, unit.first_sub + part);
      uint8_t* place = factors + (k / W::kUnit * W::kFactorsPerUnit + part) * kFactorBytes;
      F::store(reinterpret_cast<float*>(place), f.scale);
      if constexpr (W::kHasMinimum) F::store(reinterpret_cast<float*>(place + 128), f.offset);
    }
  }
}

// All rows times kPanels panels over one slice, unpacked in scratch.
template <typename Tiles, IntegerKind kKind, int kPanels>
class IntegerSlice {
 public:
  static constexpr int64_t kRecord = activation_record_bytes(kKind.activation);
  static constexpr int kTerms = num_terms(kKind.activation);

  static constexpr void configure(int64_t rows, TileConfig* config) {
    for (int sum = 0; sum < 4; ++sum) set_shape(config, sum, rows, kTileRowBytes);
    for (int a = 4; a < 6; ++a) set_shape(config, a, rows, kKind.sub_inputs);
    for (int b = 6; b < 8; ++b) set_shape(config, b, kKind.sub_inputs / 4, kTileRowBytes);
  }

  IntegerSlice(const RowTiles& tiles, uint8_t* scratch, int64_t sums_stride)
      : tiles_(tiles), scratch_(scratch), sums_stride_(sums_stride) {}

  // x: record of row 0.
  void run(const uint8_t* x, int64_t num_inputs, float* sums) {
    x_ = x;
    sums_ = sums;
    num_sub_blocks_ = num_inputs / kKind.sub_inputs;
    const int64_t num_groups = (num_sub_blocks_ + kGroupSubBlocks - 1) / kGroupSubBlocks;
    const int64_t num_steps = tiles_.count * num_groups;
    Step done{};
    for (int64_t step = 0; step <= num_steps; ++step) {
      const int64_t tile = step / num_groups;
      const Step next{tile, step % num_groups * kGroupSubBlocks,
                      scratch_ + kSumsAt + step % 2 * kGroupSumBytes};
      for (int half = 0; half < kGroupSubBlocks; ++half) {
        if (step < num_steps && next.sub_block + half < num_sub_blocks_) multiply(next, half);
        if (step > 0) scale(done, half);
      }
      done = next;
    }
  }

 private:
  struct Step {
    int64_t tile;
    int64_t sub_block;  // first of the group
    uint8_t* sums;
  };

  // Whole-number sums of one sub-block: a product per panel and term.
  [[gnu::always_inline]] void multiply(const Step& step, int in_group) const {
    const int64_t sub_block = step.sub_block + in_group;
    const int64_t block = sub_block / kKind.parts(), part = sub_block % kKind.parts();
    const uint8_t* x = x_ + tiles_.first(step.tile) * kRecord +
                       block * activation_code_bytes(kKind.activation) + part * kKind.sub_inputs;
    const uint8_t* codes = scratch_ + sub_block * (kKind.sub_inputs / 4) * 64;
    uint8_t* out = step.sums + in_group * 2 * 2 * 64;
    Tiles::template load<6>(codes, 64);
    Tiles::template load<4>(x, kRecord);
    Tiles::template zero<0>();
    Tiles::template product_ss<0, 4, 6>();
    if constexpr (kTerms == 2) {
      Tiles::template load<5>(x + kActivationBlock, kRecord);
      Tiles::template zero<1>();
      Tiles::template product_ss<1, 5, 6>();
    }
    if constexpr (kPanels == 2) {
      Tiles::template load<7>(codes + kPanelCodeBytes, 64);
      Tiles::template zero<2>();
      Tiles::template product_ss<2, 4, 7>();
      if constexpr (kTerms == 2) {
        Tiles::template zero<3>();
        Tiles::template product_ss<3, 5, 7>();
      }
    }
    Tiles::template store<0>(out, kSumBytes);
    if constexpr (kTerms == 2) Tiles::template store<1>(out + 64, kSumBytes);
    if constexpr (kPanels == 2) {
      Tiles::template store<2>(out + 128, kSumBytes);
      if constexpr (kTerms == 2) Tiles::template store<3>(out + 192, kSumBytes);
    }
  }

  // Adds a group's sums to the totals, for one half of the rows of its tile.
  [[gnu::always_inline]] void scale(const Step& step, int half) const {
    const int64_t skipped = tiles_.skipped(step.tile);
    const int64_t middle = (skipped + tiles_.height) / 2;
    const int64_t first = half == 0 ? skipped : middle;
    const int64_t end = half == 0 ? middle : tiles_.height;
    if (step.sub_block + 1 < num_sub_blocks_) {
      scale_rows<2>(step, first, end);
    } else {
      scale_rows<1>(step, first, end);
    }
  }

  template <int kSubBlocks>
  [[gnu::always_inline]] void scale_rows(const Step& step, int64_t first, int64_t end) const {
    using F = Avx512;
    constexpr int64_t kBlockFactorsAt = kSliceBlocks * activation_code_bytes(kKind.activation);
    __m512 scales[kSubBlocks][kPanels], offsets[kSubBlocks][kPanels];
    const uint8_t* x_factors[kSubBlocks];  // of row 0
    int64_t x_sum_at[kSubBlocks];
    for (int s = 0; s < kSubBlocks; ++s) {
      const int64_t sub_block = step.sub_block + s;
      const uint8_t* place = scratch_ + kFactorsAt + sub_block * kFactorBytes;
      for (int p = 0; p < kPanels; ++p) {
        scales[s][p] = F::load(reinterpret_cast<const float*>(place + p * 64));
        if constexpr (kKind.has_minimum) {
          offsets[s][p] = F::load(reinterpret_cast<const float*>(place + 128 + p * 64));
        }
      }
      x_factors[s] = x_ + kBlockFactorsAt +
                     sub_block / kKind.parts() * static_cast<int64_t>(sizeof(BlockFactors));
      x_sum_at[s] = kKind.parts() == 1 ? 1 : 2 + sub_block % kKind.parts();  // sum, half_sums
    }
    for (int64_t r = first; r < end; ++r) {
      const int64_t row = tiles_.first(step.tile) + r;
      float* totals = sums_ + row * sums_stride_;
      __m512 total[kPanels];
      for (int p = 0; p < kPanels; ++p) total[p] = F::load(totals + p * kPanel);
      for (int s = 0; s < kSubBlocks; ++s) {
        const uint8_t* sums = step.sums + r * kSumBytes + s * 2 * 2 * 64;
        const auto* x = reinterpret_cast<const float*>(x_factors[s] + row * kRecord);
        for (int p = 0; p < kPanels; ++p) {
          __m512i sum = F::load_words(sums + p * 128);
          if constexpr (kTerms == 2) {
            sum = F::add_words(F::template shift_left<8>(sum), F::load_words(sums + p * 128 + 64));
          }
          total[p] = F::fma(F::to_float(sum), F::mul(scales[s][p], F::set(x[0])), total[p]);
          if constexpr (kKind.has_minimum) {
            total[p] = F::fma(offsets[s][p], F::set(x[x_sum_at[s]]), total[p]);
          }
        }
      }
      for (int p = 0; p < kPanels; ++p) F::store(totals + p * kPanel, total[p]);
    }
  }

  const RowTiles tiles_;
  uint8_t* const scratch_;
  const int64_t sums_stride_;
  const uint8_t* x_ = nullptr;
  float* sums_ = nullptr;
  int64_t num_sub_blocks_ = 0;
};
static_assert(__builtin_offsetof(BlockFactors, scale) == 0);
static_assert(__builtin_offsetof(BlockFactors, sum) == 4);
static_assert(__builtin_offsetof(BlockFactors, half_sums) == 8);

template <typename Tiles, Layout kLayout, ActivationType kType, int kPanels>
void integer_panels(const MatmulArgs& args, int64_t slice, int64_t panel) {
  using W = CodedWeights<Avx512, kLayout>;
  constexpr IntegerKind kKind{W::kSubInputs, W::kHasMinimum, kType};
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
  const uint8_t* weight =
      args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
  for (int p = 0; p < kPanels; ++p) {
    unpack_tile_codes<kLayout>(weight + static_cast<size_t>(p) * args.panel_bytes, slice, count,
                               scratch + p * kPanelCodeBytes, scratch + kFactorsAt + p * 64);
  }
  IntegerSlice<Tiles, kKind, kPanels> work(RowTiles(args.num_rows), scratch, args.sums_stride);
  work.run(static_cast<const uint8_t*>(args.x) + slice / kSliceInputs * args.x_stride, count,
           args.sums + panel * kPanel);
}

// Slices outermost: a slice of x stays in the L2 cache for all panels.
template <typename Tiles, Layout kLayout, ActivationType kType>
void matmul_integer_tiles(const MatmulArgs& args) {
  using W = CodedWeights<Avx512, kLayout>;
  constexpr IntegerKind kKind{W::kSubInputs, W::kHasMinimum, kType};
  if (args.num_rows == 0) return;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t p = 0; p < args.num_panels; ++p) {
      Avx512::store(args.sums + m * args.sums_stride + p * kPanel, Avx512::zero());
    }
  }
  static constexpr ConfigsByRows kConfigs =
      configs_by_rows(&IntegerSlice<Tiles, kKind, 1>::configure);
  const TileScope<Tiles> scope(kConfigs.of[RowTiles(args.num_rows).height]);
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    int64_t panel = 0;
    for (; panel + 2 <= args.num_panels; panel += 2) {
      integer_panels<Tiles, kLayout, kType, 2>(args, slice, panel);
    }
    if (panel < args.num_panels) integer_panels<Tiles, kLayout, kType, 1>(args, slice, panel);
  }
}

// For 16 rows and more, as the rows before them (AVX-512 VNNI) give the same bits and waste no
// tile.
template <typename Tiles, ActivationType kType>
struct IntegerTilesRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix =
      kType == ActivationType::kInt16 ? "_int16_tiles" : "_int8_tiles";
  static constexpr bool takes(const LayoutInfo& info) {
    return has_integer_codes(info) && !is_of_groups(info);
  }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            kAmxUnitIsa,
            kLayout,
            kType,
            kTileRows,
            {kTileRows, 2 * kPanel, CodedWeights<Avx512, kLayout>::kSubInputs},
            NumericsClass::kInteger,
            {.matmul = &matmul_integer_tiles<Tiles, kLayout, kType>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
