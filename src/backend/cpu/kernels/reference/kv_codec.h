// How the reference unit writes and reads keys and values: one number at a time, in every storage
// type, by the layout of planes in kernels.h. Included by the reference unit alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

// Index of a code within a K or V plane.
inline int64_t k_index(KvDtype type, int64_t d, int64_t slot) {
  const int codes = kv_word_codes(type);
  return (d / codes * kKvBlock + slot) * codes + d % codes;
}
inline int64_t v_index(KvDtype type, int64_t dims, int64_t d, int64_t slot) {
  const int codes = kv_word_codes(type);
  return (slot / codes * dims + d) * codes + slot % codes;
}

// How one storage type keeps numbers; scales are applied by the callers.
struct KvCodec {
  int bytes;
  float largest;  // code of the largest magnitude, scaled types
  uint32_t (*encode)(float value);
  // A K plane as [dims, kKvBlock]; the head of `slot` in a V plane.
  void (*load_keys)(const uint8_t* plane, int64_t dims, float* out);
  void (*load_value)(const uint8_t* plane, int64_t dims, int64_t slot, float* out);
};

inline float clamped_to_f16(float value) {
  return std::isfinite(value) ? std::clamp(value, -65504.0f, 65504.0f) : NAN;
}

// The nearest of all codes, the even one of two.
inline uint32_t nearest_e4m3(float value) {
  uint32_t best = 0;
  for (uint32_t code = 1; code < 0x7F; ++code) {
    const float a = std::fabs(e4m3_to_float(static_cast<uint8_t>(best)) - std::fabs(value));
    const float b = std::fabs(e4m3_to_float(static_cast<uint8_t>(code)) - std::fabs(value));
    if (b < a || (b == a && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 0x80u : 0u);
}

inline float int8_to_float(uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); }
inline uint32_t nearest_int8(float value) {
  return static_cast<uint32_t>(std::fabs(value) < 128.0f ? std::lrint(value) : 0) & 0xFFu;
}

inline float int16_to_float(uint16_t code) {
  return static_cast<float>(static_cast<int16_t>(code));
}
inline uint32_t nearest_int16(float value) {
  return static_cast<uint32_t>(std::fabs(value) < 32640.0f ? std::lrint(value) : 0) & 0xFFFFu;
}

// Where the high byte of code `index` of an int16 plane lies; its low one 64 bytes on.
inline int64_t high_byte_at(int64_t index) { return index / 64 * 128 + index % 64; }

template <KvDtype kType, auto kDecode, typename Code>
inline float load_code(const uint8_t* plane, int64_t index) {
  Code code;
  if constexpr (kType == KvDtype::kInt16) {
    const uint8_t* high = plane + high_byte_at(index);
    code = static_cast<Code>(int8_t(*high) * 256 + int8_t(high[64]));
  } else {
    std::memcpy(&code, plane + index * static_cast<int64_t>(sizeof(Code)), sizeof(Code));
  }
  return kDecode(code);
}

template <KvDtype kType, auto kDecode, typename Code>
inline void load_keys(const uint8_t* plane, int64_t dims, float* out) {
  for (int64_t d = 0; d < dims; ++d) {
    for (int64_t slot = 0; slot < kKvBlock; ++slot) {
      out[d * kKvBlock + slot] = load_code<kType, kDecode, Code>(plane, k_index(kType, d, slot));
    }
  }
}

template <KvDtype kType, auto kDecode, typename Code>
inline void load_value(const uint8_t* plane, int64_t dims, int64_t slot, float* out) {
  for (int64_t d = 0; d < dims; ++d) {
    out[d] = load_code<kType, kDecode, Code>(plane, v_index(kType, dims, d, slot));
  }
}

template <KvDtype kType, auto kDecode, typename Code>
constexpr KvCodec codec(uint32_t (*encode)(float value), float largest) {
  return {sizeof(Code), largest, encode, &load_keys<kType, kDecode, Code>,
          &load_value<kType, kDecode, Code>};
}

constexpr KvCodec kKvCodecs[kNumKvDtypes] = {
    codec<KvDtype::kF32, bits_to_float, uint32_t>(float_to_bits, 0),
    codec<KvDtype::kBF16, bf16_to_float, uint16_t>(
        [](float value) { return uint32_t{float_to_bf16(value)}; }, 0),
    codec<KvDtype::kF16, f16_to_float, uint16_t>(
        [](float value) { return uint32_t{float_to_f16(clamped_to_f16(value))}; }, 0),
    codec<KvDtype::kFp8, e4m3_to_float, uint8_t>(nearest_e4m3, 448.0f),
    codec<KvDtype::kInt8, int8_to_float, uint8_t>(nearest_int8, 127.0f),
    codec<KvDtype::kInt16, int16_to_float, uint16_t>(nearest_int16, kFixedActivationLimit),
};
inline const KvCodec& codec_of(KvDtype type) { return kKvCodecs[static_cast<int>(type)]; }

inline void store_kv(KvDtype type, uint8_t* plane, int64_t index, float value) {
  const KvCodec& codec = codec_of(type);
  const uint32_t code = codec.encode(value);
  if (type == KvDtype::kInt16) {
    uint8_t* high = plane + high_byte_at(index);
    *high = static_cast<uint8_t>((code + 128) >> 8);
    high[64] = static_cast<uint8_t>(code);
    return;
  }
  std::memcpy(plane + index * codec.bytes, &code, static_cast<size_t>(codec.bytes));
}

inline float load_scale(KvDtype type, const uint8_t* plane, int64_t dim, int64_t slot) {
  float scale = 1.0f;
  if (kv_is_scaled(type)) {
    std::memcpy(&scale, plane + kv_scales_offset(type, dim) + slot * 4, sizeof(scale));
  }
  return scale;
}

// Writes the scale of one head vector; returns its inverse. 1 for types without.
inline float store_scale(KvDtype type, uint8_t* plane, const float* x, int64_t dim, int64_t slot) {
  if (!kv_is_scaled(type)) return 1.0f;
  const float largest = codec_of(type).largest;
  float magnitude = 0.0f;
  bool is_finite = true;
  for (int64_t d = 0; d < dim; ++d) {
    magnitude = std::max(magnitude, std::fabs(x[d]));
    is_finite = is_finite && std::isfinite(x[d]);
  }
  const bool is_zero = magnitude < 1e-30f;
  const float scale = !is_finite ? NAN : is_zero ? 0.0f : magnitude / largest;
  std::memcpy(plane + kv_scales_offset(type, dim) + slot * 4, &scale, sizeof(scale));
  return is_zero ? 0.0f : largest / magnitude;
}

}  // namespace
}  // namespace headrace::cpu
