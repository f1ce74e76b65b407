// bf16 activations times coded panels in tiles, class kBf16Codes (kernels.h): weights become bf16
// once per segment, one product for 32 inputs takes half the tile time of fixed-point ones.
//
// By way of f16, whose products (AVX512-FP16) take both numbers of a word at once: a look-up or a
// subtraction makes an f16 of a code, a product applies the factor, two operations make it bf16.
// Two tiles of rows and two panels need a load a product, half of them from the L1 cache. A row
// alone takes tiles too: a product of one row is done before vectors have made the next operand.
#pragma once

#include "backend/cpu/kernels/amx/coded_segment.h"
#include "backend/cpu/kernels/generic/bf16_quantise.h"

namespace headrace::cpu {
namespace {

// Whole numbers of up to eleven bits as f16.
inline constexpr uint16_t half_bits(int value) {
  if (value == 0) return 0;
  const int magnitude = value < 0 ? -value : value;
  int top = 0;  // highest bit
  while (magnitude >> (top + 1) != 0) ++top;
  const int mantissa = (magnitude << (10 - top)) - (1 << 10);
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (15 + top) << 10 | mantissa);
}

// The upper bytes of what codes of up to four bits stand for, which has three significant bits: the
// lower ones are zeros.
template <Layout kLayout>
constexpr ByteTable half_table() {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  ByteTable table{};
  for (int code = 0; code < 1 << (kInfo.low_bits + kInfo.high_bits); ++code) {
    const int value = kInfo.table == 2 ? kFp4Values[code] : code - fixed_code(kInfo).center;
    table.bytes[code] = static_cast<uint8_t>(half_bits(value) >> 8);
  }
  return table;
}

// An operand of 16 rows of pairs for 32 inputs.
template <Layout kLayout>
struct Bf16Numbers {
  using F = Avx512;
  using Weights = FixedWeights<kLayout>;
  using W = typename Weights::W;
  static constexpr int64_t kUnitBytes = kOperandBytes;
  static constexpr bool kIsShort =
      W::kInfo.low_bits + W::kInfo.high_bits <= 4 && W::kInfo.table != 1;

  // Factors and offsets as f16, both halves of their lanes' words.
  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    const auto [bound, usable, bad] = Weights::find_bound(panel, first, count, pairs);
    const auto [unit, by] =
        Weights::power_of_two_unit(F::mul(bound, F::set(kBf16CodesStep)), usable, bad);
    for (int64_t i = 0; i < count / W::kSubInputs; ++i) {
      uint8_t* at = pairs + i * kFixedPairBytes;
      store_rounded(Weights::factor_at(panel, first, i, pairs), usable, by, at);
      if constexpr (Weights::kCode.has_offset) {
        store_rounded(F::load(reinterpret_cast<const float*>(at + 64)), usable, by, at + 64);
      }
    }
    return unit;
  }

  template <int kGroup>
  [[gnu::always_inline]] static void store(const typename W::Unit& unit, __m512i factor,
                                           __m512i offset, uint8_t* to) {
    const auto [even, odd] = codes<kGroup>(unit);
    F::store_words(to + kGroup * 2 * 64, weights(even, factor, offset));
    F::store_words(to + (kGroup * 2 + 1) * 64, weights(odd, factor, offset));
  }
  // What the scratch holds may be no number, which times a zero is none either.
  static void leave_out(uint8_t* to) {
    for (int row = 0; row < kTileRows; ++row) F::store_words(to + row * 64, F::zero_words());
  }

 private:
  [[gnu::always_inline]] static void store_rounded(__m512 value, __mmask16 usable, __m512 by,
                                                   uint8_t* to) {
    const __m256i halves =
        _mm512_cvtps_ph(_mm512_maskz_mov_ps(usable, F::mul(value, by)), _MM_FROUND_TO_NEAREST_INT);
    F::store_words(to, both_halves(_mm512_cvtepu16_epi32(halves)));
  }

  // Codes of a group less their center as f16: each lane's first and third, second and fourth.
  struct Codes {
    __m512i even, odd;
  };
  template <int kGroup>
  [[gnu::always_inline]] static Codes codes(const typename W::Unit& unit) {
    if constexpr (kIsShort) {
      static constexpr ByteTable kTable = half_table<kLayout>();
      const __m512i upper =
          F::look_up(W::template stored_codes<kGroup>(unit.low, unit.high), kTable.bytes);
      return {_mm512_slli_epi16(upper, 8), _mm512_and_si512(upper, upper_byte_mask())};
    } else {
      // 1024 and a byte are the bits 0x6400 and the byte's; what is subtracted leaves the code.
      constexpr int kSignedZero = 128;
      const __m512i bytes = _mm512_xor_si512(Weights::template signed_bytes<kGroup>(unit),
                                             _mm512_set1_epi8(static_cast<char>(kSignedZero)));
      const __m512i base = _mm512_set1_epi16(0x6400);
      const __m512i even =
          _mm512_ternarylogic_epi32(bytes, _mm512_set1_epi16(0xFF), base, kFirstAndSecondOrThird);
      const __m512i odd = _mm512_or_si512(_mm512_srli_epi16(bytes, 8), base);
      return {less_base(even), less_base(odd)};
    }
  }
  [[gnu::always_inline]] static __m512i less_base(__m512i halves) {
    const __m512i base = _mm512_set1_epi16(static_cast<int16_t>(half_bits(1024 + 128)));
    return _mm512_castph_si512(
        _mm512_sub_ph(_mm512_castsi512_ph(halves), _mm512_castsi512_ph(base)));
  }

  // Products as bf16, times 2^-16. f16 has five bits of exponent, which become the lower ones of
  // eight; those above are 0b011.
  [[gnu::always_inline]] static __m512i weights(__m512i codes, __m512i factor, __m512i offset) {
    const auto as_halves = [](__m512i v) { return _mm512_castsi512_ph(v); };
    const __m512i half = _mm512_castph_si512(
        Weights::kCode.has_offset
            ? _mm512_fmadd_ph(as_halves(codes), as_halves(factor), as_halves(offset))
            : _mm512_mul_ph(as_halves(codes), as_halves(factor)));
    // (v + 4) / 8, rounding down: also of what the sign makes negative.
    const __m512i short_of_half = _mm512_mulhrs_epi16(half, _mm512_set1_epi16(1 << 12));
    return _mm512_ternarylogic_epi32(short_of_half, _mm512_set1_epi16(static_cast<int16_t>(0x8FFF)),
                                     _mm512_set1_epi16(0x3000), kFirstAndSecondOrThird);
  }
};

template <typename Tiles, Layout kLayout, int kPanels, int kTilesOfRows>
struct Bf16CodesSideBySide {
  using F = Avx512;
  using Form = Bf16Numbers<kLayout>;
  static constexpr ActivationType kType = ActivationType::kBF16Codes;
  static constexpr int kMostPanels = 2, kRowTiles = kTilesOfRows;
  static constexpr int kSums = 1;

  static constexpr void configure(int64_t rows, TileConfig* config) {
    configure_two_by_two(rows, config);
  }

  static __m512 make_pairs(const uint8_t* panel, int64_t first, int64_t count, uint8_t* pairs) {
    return Form::make_pairs(panel, first, count, pairs);
  }

  template <int kPanelAt>
  [[gnu::always_inline]] static void multiply_panel(BlockOfX x, const uint8_t* b) {
    b += kPanelAt * kPanelOperandBytes;
    unrolled<0, 2>([&](auto half) __attribute__((always_inline)) {
      Tiles::template load<4 + half.value>(x.lines + half.value * x.pitch, kActivationLine);
      Tiles::template load<6 + half.value>(b + half.value * kOperandBytes, kTileRowBytes);
      Tiles::template product_bf16<kPanelAt, 4 + half.value, 6 + half.value>();
    });
  }
  template <typename Start>
  [[gnu::always_inline]] static void multiply(const BlockOfX* x, const uint8_t* b,
                                              const Start& start) {
    multiply_half<0>(x, b, start);
    multiply_half<1>(x, b + kOperandBytes, [](auto) {});
  }

  [[gnu::always_inline]] static __m512 sum(const uint8_t* tiles) {
    return F::load(reinterpret_cast<const float*>(tiles));
  }
  [[gnu::always_inline]] static __m512 factor(__m512 unit, const uint8_t* /*x_unit*/) {
    return F::mul(unit, F::set(0x1p16f));
  }

 private:
  // Of 32 inputs, all tiles of rows and panels.
  template <int kHalf, typename Start>
  [[gnu::always_inline]] static void multiply_half(const BlockOfX* x, const uint8_t* b,
                                                   const Start& start) {
    unrolled<0, kRowTiles>([&](auto t) __attribute__((always_inline)) {
      const BlockOfX& rows = x[t.value];
      Tiles::template load<4 + t.value>(rows.lines + kHalf * rows.pitch, kActivationLine);
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kSum = t.value * kPanels + p.value;
        if (t.value == 0) {
          Tiles::template load<6 + p.value>(b + p.value * kPanelOperandBytes, kTileRowBytes);
        }
        start(std::integral_constant<int, kSum>());
        Tiles::template product_bf16<kSum, 4 + t.value, 6 + p.value>();
      });
    });
  }
};

template <typename Tiles, Layout kLayout, int kPanels>
using Bf16CodesProducts = Bf16CodesSideBySide<Tiles, kLayout, kPanels, 2>;
// Where rows fit one tile.
template <typename Tiles, Layout kLayout, int kPanels>
using Bf16CodesFewProducts = Bf16CodesSideBySide<Tiles, kLayout, kPanels, 1>;

template <typename Tiles>
struct Bf16CodesRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_bf16_codes_tiles";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {
        KernelOp::kMatmul,
        name,
        kAmxUnitIsa | kIsaAvx512Fp16,
        kLayout,
        ActivationType::kBF16Codes,
        1,
        {kTileRows, 2 * kPanel, kFixedBlock},
        NumericsClass::kBf16Codes,
        {.matmul = &matmul_coded_tiles<Tiles, kLayout, Bf16CodesProducts, Bf16CodesFewProducts>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
