// Fixed-point activations times coded panels in tiles, class kFixed (kernels.h).
//
// Byte digits of both sides. Where rows fill several tiles, a sum for each product of two digits:
// high x high, high x low, low x high, low x low. One panel and one tile of rows fill the eight
// registers with four sums and four operands, so 64 inputs take one load a product, and a segment's
// digits (16 KB), its rows (16) and sums (4) fit the L1 cache together; two panels in six sums load
// a quarter more and do not fit. Rows that fit one tile take two panels so, as they come from
// memory: both mixed products share a sum.
#pragma once

#include "backend/cpu/kernels/amx/coded_segment.h"

namespace headrace::cpu {
namespace {

// What both have in common.
template <Layout kLayout>
struct FixedForm {
  using F = Avx512;
  using Form = ByteDigits<kLayout>;
  static constexpr ActivationType kType = ActivationType::kFixed;

  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const __m512 unit = FixedWeights<kLayout>::make_pairs(panel, first, count, pairs);
    return F::mul(unit, F::set(kFixedStep));
  }
  [[gnu::always_inline]] static __m512i sum_at(const uint8_t* tiles, int i) {
    return F::load_words(tiles + i * kTileBytes);
  }
  [[gnu::always_inline]] static __m512 total(__m512i high, __m512i mixed, __m512i low) {
    high = F::shift_left<16 - kFixedStepBits>(high);
    return F::to_float(F::add_words(high, to_steps(mixed, low)));
  }
  [[gnu::always_inline]] static __m512 factor(__m512 unit, const uint8_t* x_unit) {
    float of_x;
    __builtin_memcpy(&of_x, x_unit, sizeof(of_x));
    return F::mul(unit, F::set(of_x));
  }
};

// Rows of several tiles.
template <typename Tiles, Layout kLayout, int kPanels>
struct FixedProducts : FixedForm<kLayout> {
  static_assert(kPanels == 1);
  using F = Avx512;
  static constexpr int kMostPanels = 1, kRowTiles = 1;
  static constexpr int kSums = 4;

  static constexpr void configure(int64_t rows, TileConfig* config) {
    configure_two_by_two(rows, config);
  }

  template <typename Start>
  [[gnu::always_inline]] static void multiply(const BlockOfX* x, const uint8_t* b,
                                              const Start& start) {
    Tiles::template load<6>(b, kTileRowBytes);
    Tiles::template load<4>(x->lines, kActivationLine);
    Tiles::template load<5>(x->lines + x->pitch, kActivationLine);
    Tiles::template load<7>(b + kOperandBytes, kTileRowBytes);
    start(std::integral_constant<int, 0>());
    Tiles::template product_ss<0, 4, 6>();
    start(std::integral_constant<int, 2>());
    Tiles::template product_ss<2, 5, 6>();
    start(std::integral_constant<int, 1>());
    Tiles::template product_su<1, 4, 7>();
    start(std::integral_constant<int, 3>());
    Tiles::template product_su<3, 5, 7>();
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    const __m512i mixed = F::add_words(sum_at(tiles, 1), sum_at(tiles, 2));
    return FixedForm<kLayout>::total(sum_at(tiles, 0), mixed, sum_at(tiles, 3));
  }

 private:
  using FixedForm<kLayout>::sum_at;
};

// Rows that fit one tile.
template <typename Tiles, Layout kLayout, int kPanels>
struct FixedFewProducts : FixedForm<kLayout> {
  static constexpr int kMostPanels = 2, kRowTiles = 1;
  static constexpr int kSums = 3;

  static constexpr void configure(int64_t rows, TileConfig* config) {
    for (int tile = 0; tile < 7; ++tile) set_shape(config, tile, rows, kTileRowBytes);
    set_shape(config, 7, kTileRows, kTileRowBytes);
  }

  template <int kPanelAt>
  [[gnu::always_inline]] static void multiply_panel(BlockOfX x, const uint8_t* b) {
    b += kPanelAt * kPanelOperandBytes;
    Tiles::template load<6>(x.lines, kActivationLine);
    Tiles::template load<7>(b, kTileRowBytes);
    Tiles::template product_ss<kPanelAt * kSums, 6, 7>();
    Tiles::template load<7>(b + kOperandBytes, kTileRowBytes);
    Tiles::template product_su<kPanelAt * kSums + 1, 6, 7>();
    Tiles::template load<6>(x.lines + x.pitch, kActivationLine);
    Tiles::template product_su<kPanelAt * kSums + 2, 6, 7>();
    Tiles::template load<7>(b, kTileRowBytes);
    Tiles::template product_ss<kPanelAt * kSums + 1, 6, 7>();
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    using Common = FixedForm<kLayout>;
    return Common::total(Common::sum_at(tiles, 0), Common::sum_at(tiles, 1),
                         Common::sum_at(tiles, 2));
  }
};

// Fewer are as fast in vectors (fixed_direct.h), which take four products a row where codes are not
// linear, two where they are.
template <Layout kLayout>
inline constexpr int kFewestFixedTileRows = fixed_code(layout_info(kLayout)).is_linear ? 5 : 3;

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
            kFewestFixedTileRows<kLayout>,
            {kTileRows, kPanel, kFixedBlock},
            NumericsClass::kFixed,
            {.matmul = &matmul_coded_tiles<Tiles, kLayout, FixedProducts, FixedFewProducts>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
