// Random blocks of every storage format: random codes, then factors of a sensible size.

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/numeric.h"
#include "bench/synth.h"

namespace headrace {
namespace {

enum class FactorKind : uint8_t { kHalf, kE8M0, kDense16, kDense32 };

// Where the factors of a block lie and how they follow from the wanted deviation: scale = deviation
// / spread, minimum = scale * offset_codes. spread is the deviation of the block's codes (with
// random sub-scales where it has them).
struct BlockRow {
  DType dtype;
  FactorKind kind;
  int scale_at;
  double spread;
  int min_at;  // -1: none
  double min_codes;
};

// Dense values: a sign, two random bits of exponent and a random mantissa; spread is in units of
// the lowest exponent.
constexpr double kDenseSpread = 7.05;

constexpr BlockRow kRows[] = {
    {DType::kF32, FactorKind::kDense32, 23, kDenseSpread, -1, 0},
    {DType::kF16, FactorKind::kDense16, 10, kDenseSpread, -1, 0},
    {DType::kBF16, FactorKind::kDense16, 7, kDenseSpread, -1, 0},
    {DType::kQ8_0, FactorKind::kHalf, 0, 73.9, -1, 0},
    {DType::kQ4_0, FactorKind::kHalf, 0, 4.64, -1, 0},
    {DType::kQ4_1, FactorKind::kHalf, 0, 4.61, 2, -7.5},
    {DType::kQ5_0, FactorKind::kHalf, 0, 9.25, -1, 0},
    {DType::kQ5_1, FactorKind::kHalf, 0, 9.23, 2, -15.5},
    {DType::kQ2K, FactorKind::kHalf, 80, 13.9, 82, 1.5},
    {DType::kQ3K, FactorKind::kHalf, 108, 43.3, -1, 0},
    {DType::kQ4K, FactorKind::kHalf, 0, 257, 2, 7.5},
    {DType::kQ5K, FactorKind::kHalf, 0, 523, 2, 15.5},
    {DType::kQ6K, FactorKind::kHalf, 208, 1367, -1, 0},
    {DType::kIQ4NL, FactorKind::kHalf, 0, 70, -1, 0},
    {DType::kIQ4XS, FactorKind::kHalf, 0, 1295, -1, 0},
    {DType::kMXFP4, FactorKind::kE8M0, 0, 2.93, -1, 0},
};

const BlockRow& row_of(DType dtype) {
  for (const BlockRow& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  CHECK(false, "no random blocks of {}", dtype_name(dtype));
}

// xorshift64*: fast, and good enough for weights.
uint64_t next_random(uint64_t* state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

void fill_codes(uint64_t* state, std::span<std::byte> bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint64_t random = next_random(state);
    std::memcpy(bytes.data() + i, &random, 8);
  }
  const uint64_t random = next_random(state);
  std::memcpy(bytes.data() + i, &random, bytes.size() - i);
}

// Keeps sign, mantissa and two bits of exponent of random words; the rest of the exponent is fixed.
template <typename Word>
void make_dense(int mantissa_bits, double lowest, std::span<std::byte> bytes) {
  const int exponent_bits = static_cast<int>(sizeof(Word)) * 8 - 1 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int base = std::max(1, bias + static_cast<int>(std::lround(std::log2(lowest))));
  const auto sign_and_mantissa =
      static_cast<Word>((Word{1} << (sizeof(Word) * 8 - 1)) | ((Word{1} << mantissa_bits) - 1));
  for (size_t i = 0; i < bytes.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + i, sizeof(Word));
    const int exponent = base + ((word >> mantissa_bits) & 3);
    word = static_cast<Word>((word & sign_and_mantissa) |
                             (static_cast<Word>(exponent) << mantissa_bits));
    std::memcpy(bytes.data() + i, &word, sizeof(Word));
  }
}

void put_half(float value, std::byte* place) {
  const uint16_t half = float_to_f16(value);
  std::memcpy(place, &half, sizeof(half));
}

}  // namespace

void fill_random_blocks(DType dtype, int64_t num_inputs, uint64_t* state,
                        std::span<std::byte> blocks) {
  const BlockRow& row = row_of(dtype);
  const double scale = 1.0 / (std::sqrt(static_cast<double>(num_inputs)) * row.spread);
  fill_codes(state, blocks);
  if (row.kind == FactorKind::kDense16) return make_dense<uint16_t>(row.scale_at, scale, blocks);
  if (row.kind == FactorKind::kDense32) return make_dense<uint32_t>(row.scale_at, scale, blocks);
  const size_t block_bytes = dtype_row(dtype).block_bytes;
  for (size_t at = 0; at + block_bytes <= blocks.size(); at += block_bytes) {
    std::byte* block = blocks.data() + at;
    if (row.kind == FactorKind::kE8M0) {
      block[row.scale_at] = static_cast<std::byte>(127 + std::lround(std::log2(scale)));
      continue;
    }
    // Factors differ by up to a quarter from block to block.
    const double varied =
        scale * (0.75 + 0.5 * static_cast<double>(next_random(state) >> 40) * 0x1p-24);
    put_half(static_cast<float>(varied), block + row.scale_at);
    if (row.min_at >= 0) put_half(static_cast<float>(varied * row.min_codes), block + row.min_at);
  }
}

}  // namespace headrace
