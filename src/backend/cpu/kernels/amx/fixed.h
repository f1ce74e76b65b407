// Fixed-point activations times coded panels in tiles, class kFixed (kernels.h).
//
// Byte digits of both sides, three sums of a panel:
//   high x high, high x low + low x high, low x low
// Eight products to ten loads for 64 inputs of 16 rows and two panels.
#pragma once

#include "backend/cpu/kernels/amx/coded_segment.h"

namespace headrace::cpu {
namespace {

template <typename Tiles, Layout kLayout, int kPanels>
struct FixedProducts {
  using F = Avx512;
  using Form = ByteDigits<kLayout>;
  static constexpr int64_t kRecord = kFixedRecord;
  static constexpr int kRowTiles = 1;
  static constexpr int kSums = 3;
  static constexpr bool kAnyOrder = true;

  static constexpr void configure(int64_t rows, TileConfig* config) {
    for (int tile = 0; tile < 7; ++tile) set_shape(config, tile, rows, kTileRowBytes);
    set_shape(config, 7, kTileRows, kTileRowBytes);
  }

  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const __m512 unit = FixedWeights<kLayout>::make_pairs(panel, first, count, pairs);
    return F::mul(unit, F::set(kFixedStep));
  }

  // Digits: 0 is the high one, 1 the low one.
  template <int kXDigit>
  [[gnu::always_inline]] static void load_rows(const uint8_t* a) {
    Tiles::template load<6>(a + kXDigit * kFixedBlock, kRecord);
  }
  template <int kPanelAt, int kWDigit>
  [[gnu::always_inline]] static void load_weights(const uint8_t* b) {
    Tiles::template load<7>(b + kPanelAt * kPanelOperandBytes + kWDigit * kOperandBytes,
                            kTileRowBytes);
  }
  template <int kPanelAt, int kXDigit, int kWDigit>
  [[gnu::always_inline]] static void product() {
    constexpr int kSum = kPanelAt * kSums + kXDigit + kWDigit;
    if constexpr (kWDigit == 0) {
      Tiles::template product_ss<kSum, 6, 7>();
    } else {
      Tiles::template product_su<kSum, 6, 7>();
    }
  }

  template <int kPanelAt>
  [[gnu::always_inline]] static void multiply_panel(const uint8_t* a, const uint8_t* b) {
    load_rows<0>(a);
    load_weights<kPanelAt, 0>(b);
    product<kPanelAt, 0, 0>();
    load_weights<kPanelAt, 1>(b);
    product<kPanelAt, 0, 1>();
    load_rows<1>(a);
    product<kPanelAt, 1, 1>();
    load_weights<kPanelAt, 0>(b);
    product<kPanelAt, 1, 0>();
  }

  // The low digit first with x's low one: a sum has four products between two of its own.
  template <int kGroup>
  [[gnu::always_inline]] static void multiply(const uint8_t* const (&a)[kGroup], const uint8_t* b) {
    static_assert(kGroup == 1);
    unrolled<0, 2>([&](auto x) __attribute__((always_inline)) {
      load_rows<x.value>(a[0]);
      unrolled<0, 2 * kPanels>([&](auto i) __attribute__((always_inline)) {
        constexpr int kPanelAt = i.value / 2, kWDigit = i.value % 2 == x.value ? 0 : 1;
        load_weights<kPanelAt, kWDigit>(b);
        product<kPanelAt, x.value, kWDigit>();
      });
    });
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    const auto sum_at = [&](int i) __attribute__((always_inline)) {
      return F::load_words(tiles + i * kTileBytes);
    };
    const __m512i high = F::shift_left<16 - kFixedStepBits>(sum_at(0));
    return F::to_float(F::add_words(high, to_steps(sum_at(1), sum_at(2))));
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
            {kTileRows, 2 * kPanel, kFixedBlock},
            NumericsClass::kFixed,
            {.matmul = &matmul_coded_tiles<Tiles, kLayout, FixedProducts>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
