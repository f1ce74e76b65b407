#include "base/dtype.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/numeric.h"

// Every dequantiser computes in float32 in the order that the format defines. The factors are so
// short that all products here are exact; only the last addition or subtraction can round.

namespace headrace {
namespace {

// File data has no alignment, so every wider load copies.
template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

int byte_at(const std::byte* bytes, int index) { return static_cast<int>(bytes[index]); }
int signed_byte_at(const std::byte* bytes, int index) {
  return static_cast<int8_t>(static_cast<uint8_t>(bytes[index]));
}
float half_at(const std::byte* bytes) { return f16_to_float(load<uint16_t>(bytes)); }

void dequantise_f32(const std::byte* blocks, int64_t num_blocks, float* values) {
  if (num_blocks == 0) return;  // then there may be no bytes to point to
  std::memcpy(values, blocks, static_cast<size_t>(num_blocks) * sizeof(float));
}

template <typename Stored, float (*widen)(Stored)>
void dequantise_scalar(const std::byte* blocks, int64_t num_blocks, float* values) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    values[i] = widen(load<Stored>(blocks + i * static_cast<int64_t>(sizeof(Stored))));
  }
}

float narrow_f64(double value) { return static_cast<float>(value); }
float widen_i8(int8_t value) { return static_cast<float>(value); }

// Calls decode(block, values) for each block.
template <int num_elements, int num_bytes, void (*decode)(const std::byte*, float*)>
void for_each_block(const std::byte* blocks, int64_t num_blocks, float* values) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    decode(blocks + i * num_bytes, values + i * num_elements);
  }
}

// The 32-element formats put element j in the low and element j + 16 in the high nibble of byte j.
// The loops over such a half are kept simple so that they become vector code.
template <typename Value>
void decode_nibble_pairs(const std::byte* codes, float* values, Value value) {
  for (int j = 0; j < 16; ++j) values[j] = value(byte_at(codes, j) & 15, j);
  for (int j = 0; j < 16; ++j) values[j + 16] = value(byte_at(codes, j) >> 4, j + 16);
}

void decode_q4_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  decode_nibble_pairs(block + 2, values,
                      [=](int code, int) { return scale * static_cast<float>(code - 8); });
}

void decode_q4_1(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  decode_nibble_pairs(block + 4, values,
                      [=](int code, int) { return scale * static_cast<float>(code) + minimum; });
}

// Bit 4 of element i, in place.
int fifth_bit(uint32_t high_bits, int element) {
  return static_cast<int>(high_bits >> element & 1u) << 4;
}

void decode_q5_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const auto high_bits = load<uint32_t>(block + 2);
  decode_nibble_pairs(block + 6, values, [=](int code, int element) {
    return scale * static_cast<float>((code | fifth_bit(high_bits, element)) - 16);
  });
}

void decode_q5_1(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  const auto high_bits = load<uint32_t>(block + 4);
  decode_nibble_pairs(block + 8, values, [=](int code, int element) {
    return scale * static_cast<float>(code | fifth_bit(high_bits, element)) + minimum;
  });
}

void decode_q8_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(signed_byte_at(block + 2, i));
  }
}

// Two-bit codes of Q2_K and Q3_K: 128 elements share 32 bytes, 32 elements per bit pair. A group is
// 16 elements with one scale: `first_byte` and `shift` say where its codes are.
struct TwoBitGroup {
  explicit TwoBitGroup(int group)
      : first_byte(32 * (group / 8) + 16 * (group % 2)), shift(2 * (group / 2 % 4)) {}
  int first_byte;
  int shift;
};

void decode_q2_k(const std::byte* block, float* values) {
  const std::byte* codes = block + 16;
  const float scale = half_at(block + 80);
  const float minimum = half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    const int packed = byte_at(block, group);
    const float group_scale = scale * static_cast<float>(packed & 15);
    const float group_minimum = minimum * static_cast<float>(packed >> 4);
    const TwoBitGroup place(group);
    for (int j = 0; j < 16; ++j) {
      const int code = byte_at(codes, place.first_byte + j) >> place.shift & 3;
      values[16 * group + j] = group_scale * static_cast<float>(code) - group_minimum;
    }
  }
}

void decode_q3_k(const std::byte* block, float* values) {
  const std::byte* high_mask = block;
  const std::byte* codes = block + 32;
  const std::byte* scales = block + 96;
  const float scale = half_at(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = byte_at(scales, group % 8) >> 4 * (group / 8) & 15;
    const int high = byte_at(scales, 8 + group % 4) >> 2 * (group / 4) & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    const TwoBitGroup place(group);
    for (int j = 0; j < 16; ++j) {
      const int high_bit = byte_at(high_mask, 16 * (group % 2) + j) >> (group / 2) & 1;
      const int code = (byte_at(codes, place.first_byte + j) >> place.shift & 3) | high_bit << 2;
      values[16 * group + j] = group_scale * static_cast<float>(code - 4);
    }
  }
}

struct ScaleAndMinimum {
  int scale;
  int minimum;
};

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minimums into 12 bytes.
ScaleAndMinimum six_bit_pair(const std::byte* scales, int group) {
  if (group < 4) return {byte_at(scales, group) & 63, byte_at(scales, group + 4) & 63};
  const int low = byte_at(scales, group + 4);
  return {(low & 15) | byte_at(scales, group - 4) >> 6 << 4,
          low >> 4 | byte_at(scales, group) >> 6 << 4};
}

// Nibble codes of Q4_K and Q5_K: 64 elements share 32 bytes, low nibbles first.
template <bool has_fifth_bit>
void decode_q45_k(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  const std::byte* fifth_bits = block + 16;
  const std::byte* codes = has_fifth_bit ? block + 48 : block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum pair = six_bit_pair(block + 4, group);
    const float group_scale = scale * static_cast<float>(pair.scale);
    const float group_minimum = minimum * static_cast<float>(pair.minimum);
    const std::byte* group_codes = codes + 32 * (group / 2);
    const int shift = 4 * (group & 1);
    for (int j = 0; j < 32; ++j) {
      int code = byte_at(group_codes, j) >> shift & 15;
      if (has_fifth_bit) code |= (byte_at(fifth_bits, j) >> group & 1) << 4;
      values[32 * group + j] = group_scale * static_cast<float>(code) - group_minimum;
    }
  }
}

void decode_q6_k(const std::byte* block, float* values) {
  const float scale = half_at(block + 208);
  for (int group = 0; group < 16; ++group) {
    const int half = group / 8;
    const int quarter = group / 2 % 4;
    const int lane = 16 * (group % 2);
    const std::byte* low = block + 64 * half + 32 * (quarter & 1) + lane;
    const std::byte* high = block + 128 + 32 * half + lane;
    const float group_scale = scale * static_cast<float>(signed_byte_at(block + 192, group));
    for (int j = 0; j < 16; ++j) {
      const int low_bits = byte_at(low, j) >> 4 * (quarter >> 1) & 15;
      const int high_bits = byte_at(high, j) >> 2 * quarter & 3;
      values[16 * group + j] = group_scale * static_cast<float>((low_bits | high_bits << 4) - 32);
    }
  }
}

// The non-linear 4-bit codebook of the IQ4 formats.
constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

void decode_iq4_nl(const std::byte* block, float* values) {
  const float scale = half_at(block);
  decode_nibble_pairs(block + 2, values,
                      [=](int code, int) { return scale * kIq4Values[static_cast<size_t>(code)]; });
}

void decode_iq4_xs(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const int scales_high = load<uint16_t>(block + 2);
  const std::byte* scales_low = block + 4;
  const std::byte* codes = block + 8;
  for (int group = 0; group < 8; ++group) {
    const int low = byte_at(scales_low, group / 2) >> 4 * (group & 1) & 15;
    const int high = scales_high >> 2 * group & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    decode_nibble_pairs(codes + 16 * group, values + 32 * group, [=](int code, int) {
      return group_scale * kIq4Values[static_cast<size_t>(code)];
    });
  }
}

// Twice the e2m1 values, so that they are integers; the scales of both formats below are halved.
// Code 8 is +0, as GGUF defines it.
constexpr std::array<float, 16> kDoubledFp4 = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

// 2^(exponent - 128): half of the e8m0 value. Unlike OCP e8m0, 255 is not NaN here.
float halved_e8m0(uint32_t exponent) {
  return bits_to_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

void decode_mxfp4(const std::byte* block, float* values) {
  const float scale = halved_e8m0(static_cast<uint32_t>(block[0]));
  decode_nibble_pairs(block + 1, values, [=](int code, int) {
    return scale * kDoubledFp4[static_cast<size_t>(code)];
  });
}

// Half of an e4m3 scale. Only 0x7F stands for 0; the sign bit is ignored, and 0xFF is 480.
float halved_unsigned_e4m3(int code) {
  if (code == 0x7F) return 0.0f;
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  if (exponent == 0) return mantissa * 0x1p-10f;
  return (8.0f + mantissa) * bits_to_float(static_cast<uint32_t>(exponent + 116) << 23);
}

void decode_nvfp4(const std::byte* block, float* values) {
  for (int group = 0; group < 4; ++group) {
    const float scale = halved_unsigned_e4m3(byte_at(block, group));
    for (int j = 0; j < 16; ++j) {
      const int byte = byte_at(block + 4, 8 * group + j % 8);
      const int code = j < 8 ? byte & 15 : byte >> 4;
      values[16 * group + j] = scale * kDoubledFp4[static_cast<size_t>(code)];
    }
  }
}

constexpr auto kNone = nullptr;

// clang-format off
constexpr std::array<DTypeRow, static_cast<size_t>(DType::kCount)> kRows = {{
    // dtype        name       id  safetensors  elements bytes  dequantise
    {DType::kF32,    "F32",     0, "F32",         1,   4, dequantise_f32},
    {DType::kF16,    "F16",     1, "F16",         1,   2, dequantise_scalar<uint16_t, f16_to_float>},
    {DType::kBF16,   "BF16",   30, "BF16",        1,   2, dequantise_scalar<uint16_t, bf16_to_float>},
    {DType::kF64,    "F64",    28, "F64",         1,   8, dequantise_scalar<double, narrow_f64>},
    {DType::kF8E4M3, "F8_E4M3", -1, "F8_E4M3",    1,   1, dequantise_scalar<uint8_t, e4m3_to_float>},
    {DType::kF8E5M2, "F8_E5M2", -1, "F8_E5M2",    1,   1, dequantise_scalar<uint8_t, e5m2_to_float>},
    {DType::kF8E8M0, "F8_E8M0", -1, "F8_E8M0",    1,   1, dequantise_scalar<uint8_t, e8m0_to_float>},
    {DType::kI8,     "I8",     24, "I8",          1,   1, dequantise_scalar<int8_t, widen_i8>},
    {DType::kI16,    "I16",    25, "I16",         1,   2, kNone},
    {DType::kI32,    "I32",    26, "I32",         1,   4, kNone},
    {DType::kI64,    "I64",    27, "I64",         1,   8, kNone},
    {DType::kU8,     "U8",     -1, "U8",          1,   1, kNone},
    {DType::kU16,    "U16",    -1, "U16",         1,   2, kNone},
    {DType::kU32,    "U32",    -1, "U32",         1,   4, kNone},
    {DType::kU64,    "U64",    -1, "U64",         1,   8, kNone},
    {DType::kBool,   "BOOL",   -1, "BOOL",        1,   1, kNone},
    {DType::kQ4_0,   "Q4_0",    2, "",           32,  18, for_each_block<32, 18, decode_q4_0>},
    {DType::kQ4_1,   "Q4_1",    3, "",           32,  20, for_each_block<32, 20, decode_q4_1>},
    {DType::kQ5_0,   "Q5_0",    6, "",           32,  22, for_each_block<32, 22, decode_q5_0>},
    {DType::kQ5_1,   "Q5_1",    7, "",           32,  24, for_each_block<32, 24, decode_q5_1>},
    {DType::kQ8_0,   "Q8_0",    8, "",           32,  34, for_each_block<32, 34, decode_q8_0>},
    {DType::kQ2K,    "Q2_K",   10, "",          256,  84, for_each_block<256, 84, decode_q2_k>},
    {DType::kQ3K,    "Q3_K",   11, "",          256, 110, for_each_block<256, 110, decode_q3_k>},
    {DType::kQ4K,    "Q4_K",   12, "",          256, 144, for_each_block<256, 144, decode_q45_k<false>>},
    {DType::kQ5K,    "Q5_K",   13, "",          256, 176, for_each_block<256, 176, decode_q45_k<true>>},
    {DType::kQ6K,    "Q6_K",   14, "",          256, 210, for_each_block<256, 210, decode_q6_k>},
    {DType::kIQ4NL,  "IQ4_NL", 20, "",           32,  18, for_each_block<32, 18, decode_iq4_nl>},
    {DType::kIQ4XS,  "IQ4_XS", 23, "",          256, 136, for_each_block<256, 136, decode_iq4_xs>},
    {DType::kMXFP4,  "MXFP4",  39, "",           32,  17, for_each_block<32, 17, decode_mxfp4>},
    {DType::kNVFP4,  "NVFP4",  40, "",           64,  36, for_each_block<64, 36, decode_nvfp4>},
}};
// clang-format on

constexpr bool rows_are_in_enum_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_enum_order());

}  // namespace

const DTypeRow& dtype_row(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  CHECK(index < kRows.size(), "dtype {}", index);
  return kRows[index];
}

std::span<const DTypeRow> dtype_rows() { return kRows; }

const DTypeRow* find_dtype_by_gguf_id(uint32_t gguf_id) {
  for (const DTypeRow& row : kRows) {
    if (row.gguf_id >= 0 && static_cast<uint32_t>(row.gguf_id) == gguf_id) return &row;
  }
  return nullptr;
}

const DTypeRow* find_dtype_by_safetensors_name(std::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (!row.safetensors_name.empty() && row.safetensors_name == name) return &row;
  }
  return nullptr;
}

}  // namespace headrace
