// Fixed-point activations times coded panels in tiles, class kFixed (kernels.h).
//
// Byte digits of both sides, a sum for each product of two: high x high, high x low, low x high,
// low x low. One panel and one tile of rows fill the eight registers with four sums and four
// operands, so 64 inputs take one load a product, and a segment's digits (16 KB), its rows (16) and
// sums (4) fit the L1 cache together. Two panels in six sums load a quarter more and did not fit.
#pragma once

#include "backend/cpu/kernels/amx/coded_segment.h"

namespace headrace::cpu {
namespace {

template <typename Tiles, Layout kLayout, int kPanels>
struct FixedProducts {
  static_assert(kPanels == 1);
  using F = Avx512;
  using Form = ByteDigits<kLayout>;
  static constexpr int64_t kRecord = kFixedRecord;
  static constexpr int kMostPanels = 1, kFewPanels = 1;
  static constexpr int kSums = 4;

  static constexpr void configure(int64_t rows, TileConfig* config) {
    configure_two_by_two(rows, config);
  }

  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const __m512 unit = FixedWeights<kLayout>::make_pairs(panel, first, count, pairs);
    return F::mul(unit, F::set(kFixedStep));
  }

  template <int kPanelAt>
  [[gnu::always_inline]] static void multiply_panel(const uint8_t* a, const uint8_t* b) {
    multiply(a, b);
  }
  [[gnu::always_inline]] static void multiply(const uint8_t* a, const uint8_t* b) {
    Tiles::template load<6>(b, kTileRowBytes);
    Tiles::template load<4>(a, kRecord);
    Tiles::template product_ss<0, 4, 6>();
    Tiles::template load<7>(b + kOperandBytes, kTileRowBytes);
    Tiles::template product_su<1, 4, 7>();
    Tiles::template load<5>(a + kFixedBlock, kRecord);
    Tiles::template product_ss<2, 5, 6>();
    Tiles::template product_su<3, 5, 7>();
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    const auto sum_at = [&](int i) __attribute__((always_inline)) {
      return F::load_words(tiles + i * kTileBytes);
    };
    const __m512i high = F::shift_left<16 - kFixedStepBits>(sum_at(0));
    const __m512i mixed = F::add_words(sum_at(1), sum_at(2));
    return F::to_float(F::add_words(high, to_steps(mixed, sum_at(3))));
  }
  [[gnu::always_inline]] static __m512 factor(__m512 unit, const uint8_t* record) {
    float x_unit;
    __builtin_memcpy(&x_unit, record + kFixedUnitAt, sizeof(x_unit));
    return F::mul(unit, F::set(x_unit));
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
            {.matmul = &matmul_coded_tiles<Tiles, kLayout, FixedProducts>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
