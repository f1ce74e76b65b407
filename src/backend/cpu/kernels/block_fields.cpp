#include "backend/cpu/kernels/block_fields.h"

#include <cstring>

namespace headrace::cpu {
namespace {

uint8_t byte_at(const std::byte* block, size_t offset) {
  return std::to_integer<uint8_t>(block[offset]);
}

uint16_t half_at(const std::byte* block, size_t offset) {
  uint16_t bits;
  std::memcpy(&bits, block + offset, sizeof(bits));
  return bits;
}

// Low nibbles are elements 0..15, high nibbles 16..31.
void read_nibbles_32(const std::byte* qs, uint8_t* codes) {
  for (size_t j = 0; j < 16; ++j) {
    codes[j] = byte_at(qs, j) & 15;
    codes[j + 16] = static_cast<uint8_t>(byte_at(qs, j) >> 4);
  }
}

void read_fifth_bits(const std::byte* qh, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  for (size_t i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((bits >> i) & 1u) << 4);
}

void read_q4_0(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  read_nibbles_32(block + 2, fields->codes);
}

void read_q4_1(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  fields->minimum = half_at(block, 2);
  read_nibbles_32(block + 4, fields->codes);
}

void read_q5_0(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  read_nibbles_32(block + 6, fields->codes);
  read_fifth_bits(block + 2, fields->codes);
}

void read_q5_1(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  fields->minimum = half_at(block, 2);
  read_nibbles_32(block + 8, fields->codes);
  read_fifth_bits(block + 4, fields->codes);
}

void read_q8_0(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  for (int i = 0; i < 32; ++i) fields->codes[i] = byte_at(block, 2 + i) ^ 0x80;  // zero is 128
}

void read_mxfp4(const std::byte* block, BlockFields* fields) {
  fields->scale = byte_at(block, 0);
  read_nibbles_32(block + 1, fields->codes);
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes.
void read_k_scales(const std::byte* scales, BlockFields* fields) {
  for (size_t s = 0; s < 4; ++s) {
    fields->sub_scales[s] = byte_at(scales, s) & 63;
    fields->sub_mins[s] = byte_at(scales, s + 4) & 63;
  }
  for (size_t s = 4; s < 8; ++s) {
    fields->sub_scales[s] =
        static_cast<uint8_t>((byte_at(scales, s + 4) & 15) | ((byte_at(scales, s - 4) >> 6) << 4));
    fields->sub_mins[s] =
        static_cast<uint8_t>((byte_at(scales, s + 4) >> 4) | ((byte_at(scales, s) >> 6) << 4));
  }
}

// Nibbles of four runs of 64 elements: 32 low, then 32 high.
void read_k_nibbles(const std::byte* qs, uint8_t* codes) {
  for (size_t run = 0; run < 4; ++run) {
    for (size_t j = 0; j < 32; ++j) {
      const uint8_t pair = byte_at(qs, 32 * run + j);
      codes[64 * run + j] = pair & 15;
      codes[64 * run + 32 + j] = static_cast<uint8_t>(pair >> 4);
    }
  }
}

// Bit i / 32 of byte i % 32 becomes bit `place` of code i.
void add_high_bits(const std::byte* qh, int place, uint8_t* codes) {
  for (size_t run = 0; run < 8; ++run) {
    for (size_t j = 0; j < 32; ++j) {
      const int bit = (byte_at(qh, j) >> run) & 1;
      codes[32 * run + j] |= static_cast<uint8_t>(bit << place);
    }
  }
}

void read_q4_k(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  fields->minimum = half_at(block, 2);
  read_k_scales(block + 4, fields);
  read_k_nibbles(block + 16, fields->codes);
}

void read_q5_k(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  fields->minimum = half_at(block, 2);
  read_k_scales(block + 4, fields);
  read_k_nibbles(block + 48, fields->codes);
  add_high_bits(block + 16, 4, fields->codes);
}

void read_q6_k(const std::byte* block, BlockFields* fields) {
  for (size_t run = 0; run < 8; ++run) {
    const size_t half = run / 4, k = run % 4;
    const std::byte* lows = block + 64 * half + 32 * (k & 1);
    const std::byte* highs = block + 128 + 32 * half;
    for (size_t j = 0; j < 32; ++j) {
      const int low = (byte_at(lows, j) >> (4 * (k >> 1))) & 15;
      const int high = (byte_at(highs, j) >> (2 * k)) & 3;
      fields->codes[32 * run + j] = static_cast<uint8_t>(low | (high << 4));
    }
  }
  std::memcpy(fields->sub_scales, block + 192, 16);
  fields->scale = half_at(block, 208);
}

// Two bits of four runs of 32 elements per half, least significant first.
void read_two_bits(const std::byte* qs, uint8_t* codes) {
  for (size_t run = 0; run < 8; ++run) {
    for (size_t j = 0; j < 32; ++j) {
      codes[32 * run + j] = (byte_at(qs, 32 * (run / 4) + j) >> (2 * (run % 4))) & 3;
    }
  }
}

void read_q2_k(const std::byte* block, BlockFields* fields) {
  for (size_t s = 0; s < 16; ++s) {
    fields->sub_scales[s] = byte_at(block, s) & 15;
    fields->sub_mins[s] = static_cast<uint8_t>(byte_at(block, s) >> 4);
  }
  read_two_bits(block + 16, fields->codes);
  fields->scale = half_at(block, 80);
  fields->minimum = half_at(block, 82);
}

void read_q3_k(const std::byte* block, BlockFields* fields) {
  read_two_bits(block + 32, fields->codes);
  add_high_bits(block, 2, fields->codes);
  const std::byte* scales = block + 96;
  for (size_t s = 0; s < 16; ++s) {
    const int low = (byte_at(scales, s % 8) >> (4 * (s / 8))) & 15;
    const int high = (byte_at(scales, 8 + s % 4) >> (2 * (s / 4))) & 3;
    fields->sub_scales[s] = static_cast<uint8_t>(low | (high << 4));
  }
  fields->scale = half_at(block, 108);
}

void read_iq4_xs(const std::byte* block, BlockFields* fields) {
  fields->scale = half_at(block, 0);
  const int high_bits = half_at(block, 2);
  for (size_t s = 0; s < 8; ++s) {
    const int low = (byte_at(block, 4 + s / 2) >> (4 * (s & 1))) & 15;
    fields->sub_scales[s] = static_cast<uint8_t>(low | (((high_bits >> (2 * s)) & 3) << 4));
    read_nibbles_32(block + 8 + 16 * s, fields->codes + 32 * s);
  }
}

struct Reader {
  DType dtype;
  ReadBlock read;
};
constexpr Reader kReaders[] = {
    {DType::kQ4_0, &read_q4_0},   {DType::kQ4_1, &read_q4_1},  {DType::kQ5_0, &read_q5_0},
    {DType::kQ5_1, &read_q5_1},   {DType::kQ8_0, &read_q8_0},  {DType::kQ2K, &read_q2_k},
    {DType::kQ3K, &read_q3_k},    {DType::kQ4K, &read_q4_k},   {DType::kQ5K, &read_q5_k},
    {DType::kQ6K, &read_q6_k},    {DType::kIQ4NL, &read_q4_0}, {DType::kIQ4XS, &read_iq4_xs},
    {DType::kMXFP4, &read_mxfp4},
};

}  // namespace

ReadBlock block_reader(DType dtype) {
  for (const Reader& row : kReaders) {
    if (row.dtype == dtype) return row.read;
  }
  return nullptr;
}

}  // namespace headrace::cpu
