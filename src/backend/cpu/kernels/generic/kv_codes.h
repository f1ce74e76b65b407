// The codes of keys and values: between 16 floats and words of the KV planes (kernels.h).
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

// Words of a KV plane, ready to give their codes.
template <typename F, KvDtype kType>
struct KvWords {
  typename F::I first;
  typename F::I second;  // fp8: the odd codes; int16: the low bytes

  [[gnu::always_inline]] void load(const uint8_t* from) {
    const typename F::I words = F::load_words(from);
    if constexpr (kType == KvDtype::kF16) {
      first = F::sort_halves(words);
    } else if constexpr (kType == KvDtype::kFp8) {
      first = F::sort_halves(half_bits(words));
      second = F::sort_halves(half_bits(F::template shift_right<8>(words)));
    } else {
      first = words;
      if constexpr (kType == KvDtype::kInt16) second = F::load_words(from + 64);
    }
  }

  // Code kCode of each word as a number.
  template <int kCode>
  [[gnu::always_inline]] typename F::V code() const {
    if constexpr (kType == KvDtype::kF32) {
      return F::as_floats(first);
    } else if constexpr (kType == KvDtype::kBF16) {
      return F::template bf16_of_words<kCode>(first);
    } else if constexpr (kType == KvDtype::kF16) {
      return F::template sorted_half<kCode>(first);
    } else if constexpr (kType == KvDtype::kInt8) {
      return F::to_float(F::template shift_right_signed<24>(byte<kCode>(first)));
    } else if constexpr (kType == KvDtype::kInt16) {
      const typename F::I high =
          F::template shift_left<8>(F::template shift_right_signed<24>(byte<kCode>(first)));
      const typename F::I low = F::template shift_right_signed<24>(byte<kCode>(second));
      return F::to_float(F::add_words(high, low));
    } else {
      const typename F::I halves = kCode % 2 == 0 ? first : second;
      return F::mul(F::template sorted_half<kCode / 2>(halves), F::set(256.0f));
    }
  }

 private:
  // Byte kByte of each word as the highest.
  template <int kByte>
  [[gnu::always_inline]] static typename F::I byte(typename F::I words) {
    return F::template shift_left<24 - 8 * kByte>(words);
  }
  // e4m3 in the even bytes moved into the fields of f16: 2^-8 of its value, subnormals included.
  [[gnu::always_inline]] static typename F::I half_bits(typename F::I bytes) {
    const typename F::I sign = F::template shift_left<8>(F::and_bits(bytes, F::set_bits(0x800080)));
    const typename F::I rest = F::template shift_left<7>(F::and_bits(bytes, F::set_bits(0x7F007F)));
    return F::or_bits(sign, rest);
  }
};

// Asks for the bytes of 16 words, into the second cache: from there they come in time, and more of
// them are under way at once than the first cache waits for (docs/performance.md).
template <typename F, KvDtype kType>
[[gnu::always_inline]] inline void prefetch_line(const uint8_t* line) {
  for (int at = 0; at < kv_line_bytes(kType); at += 64) F::prefetch_second(line + at);
}

// Round to bf16, ties to even; infinities stay, NaN stays a (quiet) NaN.
template <typename F>
[[gnu::always_inline]] inline typename F::I bf16_code(typename F::V v) {
  const typename F::I bits = F::as_words(v);
  const typename F::I odd = F::and_bits(F::template shift_right<16>(bits), F::set_bits(1));
  const typename F::V rounded =
      F::as_floats(F::add_words(bits, F::add_words(odd, F::set_bits(0x7FFF))));
  const typename F::V kept =
      F::select_less(F::abs(v), F::set(__builtin_inff()), rounded, F::add(v, v));
  return F::template shift_right<16>(F::as_words(kept));
}

// Round to e4m3, ties to even; |v| is at most 448 and a rounding error.
template <typename F>
[[gnu::always_inline]] inline typename F::I fp8_code(typename F::V v) {
  using V = typename F::V;
  using I = typename F::I;
  const V magnitude = F::abs(v);
  const I bits = F::as_words(magnitude);
  const I odd = F::and_bits(F::template shift_right<20>(bits), F::set_bits(1));
  const I rounded = F::add_words(bits, F::add_words(odd, F::set_bits(0x7FFFF)));
  const V normal = F::sub(F::to_float(F::template shift_right<20>(rounded)), F::set(960.0f));
  const V subnormal = F::round(F::mul(magnitude, F::set(512.0f)));  // 8 is the first normal code
  const I code = F::to_words(F::select_less(magnitude, F::set(0x1p-6f), subnormal, normal));
  const I sign = F::and_bits(F::template shift_right<24>(F::as_words(v)), F::set_bits(0x80));
  return F::or_bits(F::and_bits(code, F::set_bits(0x7F)), sign);
}

// The code of each lane in the low bits of a word, of int16 with its sign; factor is 1 / scale of
// scaled types.
template <typename F, KvDtype kType>
[[gnu::always_inline]] inline typename F::I make_code(typename F::V v, float factor) {
  if constexpr (kType == KvDtype::kF32) {
    return F::as_words(v);
  } else if constexpr (kType == KvDtype::kBF16) {
    return bf16_code<F>(v);
  } else if constexpr (kType == KvDtype::kF16) {
    // Large numbers become the largest f16; infinities become NaN.
    const typename F::V limit = F::set(65504.0f);
    const typename F::V low = F::max(F::set(-65504.0f), v);
    return F::to_half(F::fma(v, F::zero(), F::min(limit, low)));
  } else if constexpr (kType == KvDtype::kInt8) {
    return F::and_bits(F::to_words(F::mul(v, F::set(factor))), F::set_bits(0xFF));
  } else if constexpr (kType == KvDtype::kInt16) {
    return F::to_words(F::mul(v, F::set(factor)));
  } else {
    return fp8_code<F>(F::mul(v, F::set(factor)));
  }
}

// The two bytes of int16 codes, each in the low bits of a word.
template <typename F>
struct CodeBytes {
  typename F::I high, low;
  explicit CodeBytes(typename F::I code) {
    const typename F::I byte = F::set_bits(0xFF);
    high = F::and_bits(F::template shift_right<8>(F::add_words(code, F::set_bits(128))), byte);
    low = F::and_bits(code, byte);
  }
};

inline constexpr float kSmallestScaled = 1e-30f;  // a head below it is stored as zeros

// Scale of one head vector and its inverse. A NaN or infinity anywhere makes the scale NaN, since
// codes cannot hold it.
template <typename F, KvDtype kType>
[[gnu::always_inline]] inline float make_scale(const float* x, int64_t count, float* factor) {
  using V = typename F::V;
  constexpr float kLargest = kType == KvDtype::kFp8    ? 448.0f
                             : kType == KvDtype::kInt8 ? 127.0f
                                                       : kFixedActivationLimit;
  V highest = F::zero();
  V poison = F::zero();
  for (int64_t d = 0; d < count; d += 16) {
    const V v = F::load(x + d);
    highest = F::max(highest, F::abs(v));
    poison = F::fma(v, F::zero(), poison);
  }
  const float magnitude = F::fold_max(highest);
  const bool is_zero = magnitude < kSmallestScaled;
  *factor = is_zero ? 0.0f : kLargest / magnitude;
  return (is_zero ? 0.0f : magnitude / kLargest) + F::fold_sum(poison);
}

}  // namespace
}  // namespace headrace::cpu
