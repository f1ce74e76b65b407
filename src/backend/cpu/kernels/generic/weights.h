// Reading packed panels: weights of 32 inputs at a time as vectors over the 16 outputs.
//
// Weights<F, layout> has kUnit (inputs per unit) and visit(panel, first, fn): calls fn(Index<i>, w)
// for i = 0 .. kUnit - 1 with the exact weights of input first + i. One template serves every coded
// layout: the table in layouts.h says what to read.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

// The tables as unsigned bytes: value + kTableZero.
inline constexpr int kTableZero[5] = {0, 128, 16, 0, 0};
struct ByteTable {
  uint8_t bytes[16];
};
inline constexpr ByteTable unsigned_table(const int8_t* values, int zero) {
  ByteTable table{};
  for (int i = 0; i < 16; ++i) table.bytes[i] = static_cast<uint8_t>(values[i] + zero);
  return table;
}
inline constexpr ByteTable kUnsignedIq4 = unsigned_table(kIq4Values, kTableZero[1]);
inline constexpr ByteTable kUnsignedFp4 = unsigned_table(kFp4Values, kTableZero[2]);

template <typename F, Layout kLayout>
struct CodedWeights {
  using V = typename F::V;
  using I = typename F::I;
  static constexpr LayoutInfo kInfo = layout_info(kLayout);
  static constexpr ChunkOffsets kAt = chunk_offsets(kInfo);
  static constexpr int kUnit = 32;
  static constexpr int kUnitsPerChunk = kInfo.block_inputs / kUnit;
  static constexpr bool kHasSubs = kInfo.num_sub_blocks > 0;
  static constexpr int kSubInputs = sub_block_inputs(kInfo);
  static constexpr int kFactorsPerUnit = kSubInputs < kUnit ? kUnit / kSubInputs : 1;
  // What the unsigned code bytes stand for: byte - kZero, at most kMaxCode.
  static constexpr int kZero = kInfo.zero + kTableZero[kInfo.table];
  static constexpr int kMaxCode = kInfo.table == 1 ? 113 + 128
                                  : kInfo.table == 2
                                      ? 12 + 16
                                      : (1 << (kInfo.low_bits + kInfo.high_bits)) - 1;
  static constexpr bool kHasMinimum = kInfo.min_bytes != 0;
  static constexpr bool kHasLaneZero = kInfo.zero_bytes != 0;
  static constexpr bool kHasF16Scale = kInfo.scale_bytes == 2 && kInfo.split_scale == 0;
  static constexpr bool kIsFloat8 = has_float_codes(kInfo);
  // Bytes from one unit to the next, on the whole.
  static constexpr int kUnitBytes = kInfo.chunk_bytes / kUnitsPerChunk;

  // ask(bytes from a unit's first) for the lines of a unit that come while group kGroup of another
  // is computed: memory answers an eighth to a half faster than where a unit is asked for at once
  // (docs/performance.md, "Lines asked for one by one").
  template <int kGroup, typename Ask>
  [[gnu::always_inline]] inline static void lines_of_group(const Ask& ask) {
    constexpr int kLines = (kUnitBytes + 63) / 64;
    unrolled<kGroup * kLines / 8, (kGroup + 1) * kLines / 8>(
        [&](auto line) __attribute__((always_inline)) { ask(line.value * 64); });
  }

  struct Factors {  // of a sub-block
    V scale;        // of 8-bit floats: times the power of two that float8() leaves out
    V offset;       // minimum, or 0
    I zero;         // of the lane, or 0
  };

  // Sub-scale (or sub-minimum) number s of the planes given, as integers.
  template <int kHighFirst>
  [[gnu::always_inline]] inline static I sub_code(const uint8_t* chunk, int plane, int s) {
    constexpr int kBits = kInfo.sub_low_bits;
    constexpr int kPerWord = 32 / kBits;
    const I word = F::load_words(chunk + plane + (s / kPerWord) * 64);
    const int i = s % kPerWord;
    const int shift = 8 * (i % 4) + kBits * (i / 4);
    if constexpr (kBits == 8) {
      return F::template shift_right_signed<24>(F::shift_left_by(word, 24 - shift));
    } else {
      I code = F::and_bits(F::shift_right_by(word, shift), F::set_bits((1u << kBits) - 1u));
      if constexpr (kInfo.sub_high_bits > 0) {
        constexpr int kHigh = kInfo.sub_high_bits;
        constexpr int kHighPerWord = 32 / kHigh;
        const int index = kHighFirst + s;
        const int j = index % kHighPerWord;
        const I high = F::load_words(chunk + kAt.sub_high + (index / kHighPerWord) * 64);
        const I bits = F::and_bits(F::shift_right_by(high, 8 * (j % 4) + kHigh * (j / 4)),
                                   F::set_bits((1u << kHigh) - 1u));
        code = F::or_bits(code, F::template shift_left<kBits>(bits));
      }
      return code;
    }
  }

  // 8-bit floats: e5m2, else e4m3.
  static constexpr bool kIsE5M2 = kInfo.table == 4;
  static constexpr int kFloat8Exponents = kIsE5M2 ? 5 : 4;  // bits
  static constexpr int kFloat8Bias = kIsE5M2 ? 112 : 120;   // float32's less its own
  static constexpr float kFloat8Power = kIsE5M2 ? 0x1p112f : 0x1p120f;
  // One in the top byte, times 2^-kFloat8Bias: its exponent field becomes the low end of float32's,
  // and its subnormals float32's. 0x7F (no number) reads as 480 or 2^16 times 1.75.
  template <int kExponentBits>
  [[gnu::always_inline]] inline static V float8(I top) {
    constexpr int kShift = 8 - kExponentBits;
    constexpr uint32_t kMask = 0x80000000u | (0x7F000000u >> kShift);
    return F::as_floats(
        F::and_bits(F::template shift_right_signed<kShift>(top), F::set_bits(kMask)));
  }

  // The same, not scaled, by way of numbers that processors multiply at full speed: a product with
  // a subnormal operand costs Intel's some 40 ns.
  [[gnu::always_inline]] inline static V float8_whole(I top) {
    constexpr int kMantissaAt = 16 + kFloat8Exponents;
    constexpr float kLeastNormal = kIsE5M2 ? 0x1p-14f : 0x1p-6f;
    constexpr float kLeast = kIsE5M2 ? 0x1p-16f : 0x1p-9f;
    const I bits = F::as_words(float8<kFloat8Exponents>(top));
    const I magnitude = F::and_bits(bits, F::set_bits(0x7FFFFFFFu));
    const V normal = F::as_floats(F::add_words(magnitude, F::set_bits(kFloat8Bias << 23)));
    const V subnormal =
        F::mul(F::to_float(F::template shift_right<kMantissaAt>(magnitude)), F::set(kLeast));
    const V value = F::select_less(normal, F::set(kLeastNormal), subnormal, normal);
    return F::as_floats(
        F::or_bits(F::as_words(value), F::and_bits(bits, F::set_bits(0x80000000u))));
  }

  // Four of them, of each lane's word, times the scale. Few words of a checkpoint have a subnormal
  // or zero; the way that suits these too takes three times as many operations.
  [[gnu::always_inline]] inline static void float8_weights(I bytes, const Factors& f, V (&w)[4]) {
    constexpr uint32_t kExponents = kIsE5M2 ? 0x7C7C7C7Cu : 0x78787878u;
    if (__builtin_expect(F::lacks_in_some_byte(bytes, kExponents), 0)) {
      const V scale = F::mul(f.scale, F::set(1 / kFloat8Power));
      unrolled<0, 4>([&](auto j) __attribute__((always_inline)) {
        w[j.value] = F::mul(float8_whole(F::template shift_left<24 - 8 * j.value>(bytes)), scale);
      });
    } else {
      unrolled<0, 4>([&](auto j) __attribute__((always_inline)) {
        const I top = F::template shift_left<24 - 8 * j.value>(bytes);
        w[j.value] = F::mul(float8<kFloat8Exponents>(top), f.scale);
      });
    }
  }

  // Sub-scale number s where they are floats; 0x7F and 0xFF are NaN.
  [[gnu::always_inline]] inline static V sub_float(const uint8_t* chunk, int s) {
    const I word = F::load_words(chunk + kAt.sub_low + s / 4 * 64);
    const V value = F::mul(float8<4>(F::shift_left_by(word, 24 - 8 * (s % 4))), F::set(0x1p120f));
    return F::select_less(F::abs(value), F::set(480.0f), value, F::set(__builtin_nanf("")));
  }

  [[gnu::always_inline]] inline static V chunk_scale(const uint8_t* chunk) {
    if constexpr (kInfo.scale_bytes == 1) return F::load_e8m0_half(chunk);
    if constexpr (kInfo.scale_bytes == 4) return F::load_bytes_as_float(chunk);
    if constexpr (kInfo.split_scale != 0) {
      const I low = F::and_bits(F::load_bytes(chunk + kAt.zero), F::set_bits(0xF0));
      return F::as_floats(F::or_bits(F::template shift_left<16>(F::load_halves(chunk)),
                                     F::template shift_left<8>(low)));
    } else {
      return F::load_half(chunk);
    }
  }

  [[gnu::always_inline]] inline static Factors factors(const uint8_t* chunk, int s) {
    Factors f;
    f.scale = chunk_scale(chunk);
    f.offset = F::zero();
    f.zero = F::zero_words();
    if constexpr (kIsFloat8) f.scale = F::mul(f.scale, F::set(kFloat8Power));
    if constexpr (kHasMinimum) f.offset = F::load_half(chunk + kAt.minimum);
    if constexpr (kHasLaneZero) {
      f.zero = F::load_bytes(chunk + kAt.zero);
      if constexpr (kInfo.split_scale != 0) f.zero = F::and_bits(f.zero, F::set_bits(0x0F));
    }
    if constexpr (kInfo.sub_float != 0) {
      f.scale = F::div(sub_float(chunk, s), f.scale);
    } else if constexpr (kHasSubs) {
      V sub = F::to_float(sub_code<0>(chunk, kAt.sub_low, s));
      if constexpr (kInfo.sub_zero != 0) sub = F::sub(sub, F::set(kInfo.sub_zero));
      f.scale = F::mul(f.scale, sub);
      if constexpr (kInfo.sub_has_min != 0) {
        const V sub_min = F::to_float(sub_code<kInfo.num_sub_blocks>(chunk, kAt.sub_min, s));
        f.offset = F::mul(F::mul(f.offset, sub_min), F::set(-1.0f));
      }
    }
    return f;
  }

  // Codes 4 g .. 4 g + 3 of a unit as they are stored, in bytes of each lane's word.
  template <int kGroup>
  [[gnu::always_inline]] inline static I stored_codes(const uint8_t* low, const uint8_t* high) {
    constexpr int kBits = kInfo.low_bits;
    constexpr int kGroupsPerWord = 8 / kBits;
    I bytes = F::load_words(low + (kGroup / kGroupsPerWord) * 64);
    if constexpr (kBits < 8) {
      constexpr uint32_t kMask = ((1u << kBits) - 1u) * 0x01010101u;
      bytes = F::and_bits(F::template shift_right<kBits*(kGroup % kGroupsPerWord)>(bytes),
                          F::set_bits(kMask));
    }
    if constexpr (kInfo.high_bits > 0) {
      constexpr int kHigh = kInfo.high_bits;
      constexpr int kHighGroups = 8 / kHigh;
      constexpr int kFrom = kHigh * (kGroup % kHighGroups);
      constexpr uint32_t kMask = (((1u << kHigh) - 1u) << kBits) * 0x01010101u;
      const I word = F::load_words(high + kGroup / kHighGroups * 64);
      I moved;
      if constexpr (kFrom >= kBits) {
        moved = F::template shift_right<kFrom - kBits>(word);
      } else {
        moved = F::template shift_left<kBits - kFrom>(word);
      }
      bytes = F::or_bits(bytes, F::and_bits(moved, F::set_bits(kMask)));
    }
    return bytes;
  }

  // The same as what they stand for, unsigned: plus kZero.
  template <int kGroup>
  [[gnu::always_inline]] inline static I code_bytes(const uint8_t* low, const uint8_t* high) {
    const I bytes = stored_codes<kGroup>(low, high);
    if constexpr (kInfo.table == 1) return F::look_up(bytes, kUnsignedIq4.bytes);
    if constexpr (kInfo.table == 2) return F::look_up(bytes, kUnsignedFp4.bytes);
    return bytes;
  }

  template <int kByte>
  [[gnu::always_inline]] inline static V weight(I bytes, const Factors& f) {
    const V code = F::template unsigned_byte<kByte>(bytes);
    if constexpr (kHasMinimum) return F::fma(code, f.scale, f.offset);
    const V zero = kHasLaneZero ? F::to_float(f.zero) : F::set(float{kZero});
    return F::mul(F::sub(code, zero), f.scale);
  }

  // Where a unit's parts are.
  struct Unit {
    const uint8_t* chunk;
    const uint8_t* low;
    const uint8_t* high;
    int first_sub;
  };
  [[gnu::always_inline]] inline static Unit unit_at(const uint8_t* panel, int64_t first) {
    const int64_t index = first / kUnit;
    const int u = static_cast<int>(index % kUnitsPerChunk);
    const uint8_t* chunk = panel + (index / kUnitsPerChunk) * kInfo.chunk_bytes;
    return {chunk, chunk + kAt.low + u * kInfo.low_bits * 64,
            chunk + kAt.high + u * kInfo.high_bits * 64, u * kUnit / kSubInputs};
  }

  // Calls fn(p, i, w) for inputs i of the unit, panels p interleaved by 4 inputs; p.value and, but
  // for 8-bit floats, i.value are known to the compiler. Only 8-bit floats have a unit of fewer
  // than kUnit inputs.
  template <int kPanels, typename Fn>
  [[gnu::always_inline]] inline static void visit(const uint8_t* panel, size_t panel_stride,
                                                  int64_t first, int64_t count, const Fn& fn) {
    Unit units[kPanels];
    unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
      units[p.value] = unit_at(panel + static_cast<size_t>(p.value) * panel_stride, first);
    });
    if constexpr (kIsFloat8) {
      visit_floats<kPanels>(units, smaller(count, kUnit), fn);
    } else {
      visit_codes<kPanels>(units, fn);
    }
  }

  // A loop over groups of 4 inputs, as their words follow each other.
  template <int kPanels, typename Fn>
  [[gnu::always_inline]] inline static void visit_floats(const Unit (&units)[kPanels],
                                                         int64_t count, const Fn& fn) {
    struct Place {
      int64_t value;
    };
    Factors f[kPanels];
    unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
      f[p.value] = factors(units[p.value].chunk, 0);
    });
    const auto visit_group = [&](int64_t i, int64_t end) __attribute__((always_inline)) {
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        V w[4];
        float8_weights(F::load_words(units[p.value].low + i * 16), f[p.value], w);
        unrolled<0, 4>([&](auto j) __attribute__((always_inline)) {
          if (j.value < end) fn(p, Place{i + j.value}, w[j.value]);
        });
      });
    };
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {  // several at once: the loop costs 5 % with one (measured)
      unrolled<0, 4>([&](auto g)
                         __attribute__((always_inline)) { visit_group(i + 4 * g.value, 4); });
    }
    for (; i + 4 <= count; i += 4) visit_group(i, 4);
    if (i < count) visit_group(i, count - i);
  }

  template <int kPanels, typename Fn>
  [[gnu::always_inline]] inline static void visit_codes(const Unit (&units)[kPanels],
                                                        const Fn& fn) {
    unrolled<0, kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
      constexpr int kGroups = 8 / kFactorsPerUnit;
      Factors f[kPanels];
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        f[p.value] = factors(units[p.value].chunk, units[p.value].first_sub + part.value);
      });
      unrolled<part.value * kGroups, (part.value + 1) * kGroups>(
          [&](auto group) __attribute__((always_inline)) {
            unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
              const I bytes = code_bytes<group.value>(units[p.value].low, units[p.value].high);
              unrolled<0, 4>([&](auto j) __attribute__((always_inline)) {
                fn(p, Index<group.value * 4 + j.value>{}, weight<j.value>(bytes, f[p.value]));
              });
            });
          });
    });
  }
};

// Layouts that hold the values themselves; units of 8 inputs, a short last unit input by input.
template <typename F, Layout kLayout>
struct DenseWeights {
  using V = typename F::V;
  static constexpr int kUnit = 8;
  static constexpr int kUnitBytes = kLayout == Layout::kF32 ? 512 : 256;

  template <int kOdd>
  [[gnu::always_inline]] inline static V value(const uint8_t* word) {
    if constexpr (kLayout == Layout::kF32) return F::load_bytes_as_float(word);
    if constexpr (kLayout == Layout::kF16)
      return F::template half_of_words<kOdd>(F::load_words(word));
    if constexpr (kLayout == Layout::kBF16)
      return F::template bf16_of_words<kOdd>(F::load_words(word));
  }
  [[gnu::always_inline]] inline static const uint8_t* word_at(const uint8_t* panel, int64_t k) {
    return panel + (kLayout == Layout::kF32 ? k : k / 2) * 64;
  }

  template <int kPanels, typename Fn>
  [[gnu::always_inline]] inline static void visit(const uint8_t* panel, size_t panel_stride,
                                                  int64_t first, int64_t count, const Fn& fn) {
    unrolled<0, kUnit>([&](auto i) __attribute__((always_inline)) {
      if (i.value >= count) return;
      const uint8_t* word = word_at(panel, first + i.value);
      unrolled<0, kPanels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kOdd = i.value % 2;
        fn(p, i, value<kOdd>(word + static_cast<size_t>(p.value) * panel_stride));
      });
    });
  }
};

template <typename F, Layout kLayout>
struct WeightsOf {
  using Type = CodedWeights<F, kLayout>;
};
template <typename F>
struct WeightsOf<F, Layout::kF32> {
  using Type = DenseWeights<F, Layout::kF32>;
};
template <typename F>
struct WeightsOf<F, Layout::kF16> {
  using Type = DenseWeights<F, Layout::kF16>;
};
template <typename F>
struct WeightsOf<F, Layout::kBF16> {
  using Type = DenseWeights<F, Layout::kBF16>;
};
template <typename F, Layout kLayout>
using Weights = typename WeightsOf<F, kLayout>::Type;

// values[(k - first) * stride + n] = weight of input k, lane n. Not inlined: one copy per layout.
template <typename F, Layout kLayout>
__attribute__((noinline)) void unpack_slice(const uint8_t* panel, int64_t first, int64_t count,
                                            float* values, int64_t stride) {
  using W = Weights<F, kLayout>;
  for (int64_t k = 0; k < count; k += W::kUnit) {
    float* unit = values + k * stride;
    W::template visit<1>(panel, 0, first + k, count - k,
                         [&](auto, auto i, auto w) __attribute__((always_inline)) {
                           F::store(unit + i.value * stride, w);
                         });
  }
}

template <typename F, Layout kLayout>
void unpack(const UnpackArgs& args) {
  unpack_slice<F, kLayout>(args.panel, args.first, args.count, args.values, kPanel);
}

template <typename F>
struct UnpackRows {
  static constexpr const char* kPrefix = "unpack_";
  static constexpr const char* kSuffix = "";
  static constexpr bool takes(const LayoutInfo& /*info*/) { return true; }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kUnpack,
            name,
            F::kIsa,
            kLayout,
            ActivationType::kF32,
            1,
            {1, kPanel, kSliceInputs},
            NumericsClass::kFma,
            {.unpack = &unpack<F, kLayout>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
