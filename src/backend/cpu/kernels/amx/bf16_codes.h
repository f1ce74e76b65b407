// bf16 activations times coded panels in tiles, class kBf16Codes (kernels.h): weights rounded to
// bf16 once per segment, one product for 32 inputs.
//
// Half the tile time of fixed-point products, and an eighth of a row's work for two tiles of rows
// and two panels is loads that hide behind it: one load a product. A row alone takes tiles too: a
// product of one row is done before vectors have made the next operand.
#pragma once

#include "backend/cpu/kernels/amx/coded_segment.h"
#include "backend/cpu/kernels/generic/bf16_quantise.h"

namespace headrace::cpu {
namespace {

// Weights as fixed-point numbers rounded to bf16: an operand of 16 rows of pairs for 32 inputs.
struct Bf16Numbers {
  static constexpr int64_t kUnitBytes = kOperandBytes;

  template <int kGroup>
  [[gnu::always_inline]] static void store(__m512i even, __m512i odd, uint8_t* to) {
    Avx512::store_words(to + kGroup * 2 * 64, rounded(even));
    Avx512::store_words(to + (kGroup * 2 + 1) * 64, rounded(odd));
  }
  // What the scratch holds may be no number, which times a zero is none either.
  static void leave_out(uint8_t* to) {
    for (int row = 0; row < kTileRows; ++row) {
      Avx512::store_words(to + row * 64, _mm512_setzero_si512());
    }
  }

  // Whole numbers of 16 bits as bf16, times 2^-16. As f16 they have five bits of exponent, which
  // become the lower ones of eight; those above are 0b011.
  [[gnu::always_inline]] static __m512i rounded(__m512i words) {
    constexpr int kBothOrThird = 0xEA;
    const __m512i half = _mm512_castph_si512(_mm512_cvtepi16_ph(words));
    // (v + 4) / 8, rounding down: also of what the sign makes negative.
    const __m512i short_of_half = _mm512_mulhrs_epi16(half, _mm512_set1_epi16(1 << 12));
    return _mm512_ternarylogic_epi32(short_of_half, _mm512_set1_epi16(static_cast<int16_t>(0x8FFF)),
                                     _mm512_set1_epi16(0x3000), kBothOrThird);
  }
};

template <typename Tiles, Layout kLayout, int kPanels>
struct Bf16CodesProducts {
  using F = Avx512;
  using Form = Bf16Numbers;
  static constexpr int64_t kRecord = activation_record_bytes(ActivationType::kBF16Codes);
  static constexpr int kRowTiles = 2;
  static constexpr int kSums = 1;

  // Sums are tiles 0 to 3, rows 4 and 5, weights 6 and 7.
  static void configure(int64_t rows, TileConfig* config) {
    for (int tile = 0; tile < 6; ++tile) set_shape(config, tile, rows, kTileRowBytes);
    for (int b = 6; b < 8; ++b) set_shape(config, b, kTileRows, kTileRowBytes);
  }

  // Every other step has a product.
  template <int kStep>
  [[gnu::always_inline]] static void step(const uint8_t* a, const uint8_t* b) {
    if constexpr (kStep % 2 == 0) {
      constexpr int kHalf = kStep / 2 / kPanels, kPanelAt = kStep / 2 % kPanels;
      if constexpr (kPanelAt == 0) Tiles::template load<4>(a + kHalf * kTileRowBytes, kRecord);
      load_weights<kHalf, kPanelAt>(b);
      Tiles::template product_bf16<kPanelAt, 4, 6 + kPanelAt>();
    }
  }
  template <int kGroup>
  [[gnu::always_inline]] static void multiply(const uint8_t* const (&a)[kGroup], const uint8_t* b) {
    unrolled<0, 2>([&](auto half) __attribute__((always_inline)) {
      unrolled<0, kPanels>(
          [&](auto p) __attribute__((always_inline)) { load_weights<half.value, p.value>(b); });
      unrolled<0, kGroup>([&](auto t) __attribute__((always_inline)) {
        Tiles::template load<4 + t.value>(a[t.value] + half.value * kTileRowBytes, kRecord);
        unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
          Tiles::template product_bf16<t.value * kPanels + p.value, 4 + t.value, 6 + p.value>();
        });
      });
    });
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    return F::load(reinterpret_cast<const float*>(tiles));
  }
  [[gnu::always_inline]] static __m512 factor(__m512 unit, const uint8_t* /*record*/) {
    return F::mul(unit, F::set(0x1p16f));
  }

 private:
  template <int kHalf, int kPanelAt>
  [[gnu::always_inline]] static void load_weights(const uint8_t* b) {
    Tiles::template load<6 + kPanelAt>(b + kPanelAt * kPanelOperandBytes + kHalf * kOperandBytes,
                                       kTileRowBytes);
  }
};

template <typename Tiles>
struct Bf16CodesRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_bf16_codes_tiles";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            kAmxUnitIsa | kIsaAvx512Fp16,
            kLayout,
            ActivationType::kBF16Codes,
            1,
            {2 * kTileRows, 2 * kPanel, kFixedBlock},
            NumericsClass::kBf16Codes,
            {.matmul = &matmul_coded_tiles<Tiles, kLayout, Bf16CodesProducts>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
