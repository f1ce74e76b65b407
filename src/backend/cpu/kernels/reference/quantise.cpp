// The reference unit: activations as whole numbers or bf16 terms.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/generic/rows.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

void put_activation(uint8_t* codes, ActivationType type, int i, int x) {
  if (type == ActivationType::kInt8) {
    codes[i] = static_cast<uint8_t>(x);
    return;
  }
  const int high = (x + 128) >> 8;
  codes[i] = static_cast<uint8_t>(high);
  codes[kActivationBlock + i] = static_cast<uint8_t>(x - 256 * high);
}

struct ActivationScale {
  float scale, factor;  // X = round(x * factor)
};

ActivationScale activation_scale(ActivationType type, float largest) {
  if (type == ActivationType::kInt8) return {largest / kInt8Limit, kInt8Limit / largest};
  const auto exponent = static_cast<int>(float_to_bits(largest * kInt16Margin) >> 23);  // biased
  return {bits_to_float(static_cast<uint32_t>(exponent - kInt16Bits) << 23),
          bits_to_float(static_cast<uint32_t>(254 - exponent + kInt16Bits) << 23)};
}

// The largest magnitude; infinity if it is none that X can stand for.
float largest_activation(ActivationType type, const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return INFINITY;
    largest = std::max(largest, std::fabs(x[i]));
  }
  return type == ActivationType::kInt16 && largest >= kEndOfActivations ? INFINITY : largest;
}

BlockFactors quantise_block(const float* x, ActivationType type, bool finite, uint8_t* codes) {
  const float largest = largest_activation(type, x, kActivationBlock);
  const bool empty = !finite || largest < kSmallestActivation;
  const ActivationScale by = empty ? ActivationScale{type == ActivationType::kInt8 ? 0.0f : 1.0f, 0}
                                   : activation_scale(type, largest);
  int half[2] = {};
  for (int i = 0; i < kActivationBlock; ++i) {
    const int value = empty ? 0 : static_cast<int>(std::nearbyint(x[i] * by.factor));
    put_activation(codes, type, i, value);
    half[i / 16] += value;
  }
  BlockFactors factors{};
  factors.scale = finite ? by.scale : NAN;
  const int sum = half[0] + half[1];
  factors.sum = factors.scale * static_cast<float>(sum);
  factors.minus_sum = -sum;
  for (int i = 0; i < 2; ++i) {
    factors.half_sums[i] = factors.scale * static_cast<float>(half[i]);
    factors.minus_half_sums[i] = -half[i];
  }
  return factors;
}

template <ActivationType kType>
void quantise(const QuantiseArgs& args) {
  constexpr int64_t kGroup = kType == ActivationType::kInt16 ? kSliceInputs : kActivationBlock;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.num_inputs;
    bool finite = true;
    for (int64_t k = 0; k < args.num_inputs; k += kActivationBlock) {
      if (k % kGroup == 0) {
        const int64_t count = std::min(kGroup, args.num_inputs - k);
        finite = std::isfinite(largest_activation(kType, x + k, count));
      }
      uint8_t* record =
          args.out + (k / kSliceInputs) * args.slice_stride + m * activation_record_bytes(kType);
      const auto block = static_cast<int>(k % kSliceInputs) / kActivationBlock;
      const BlockFactors factors =
          quantise_block(x + k, kType, finite, record + block * activation_code_bytes(kType));
      std::memcpy(record + kSliceBlocks * activation_code_bytes(kType) +
                      static_cast<size_t>(block) * sizeof(factors),
                  &factors, sizeof(factors));
    }
  }
}

// Inputs of one row that share a unit; first: of a segment of x, which is stored from
// `stored_first` on. out: of all rows.
void quantise_segment(const float* x, int64_t first, int64_t count, int64_t stored_first,
                      const RowInTiles& row, uint8_t* out) {
  const float largest = largest_activation(ActivationType::kInt16, x + first, count);
  const bool usable = std::isfinite(largest) && largest >= kSmallestActivation;
  const float factor = usable ? kFixedActivationLimit / largest : 0.0f;
  const float zero_or_none = std::isfinite(largest) ? 0.0f : NAN;
  const float unit = usable ? largest / kFixedActivationLimit : zero_or_none;
  const int64_t end = first + (count + kFixedBlock - 1) / kFixedBlock * kFixedBlock;
  int sums[2] = {};
  for (int64_t k = first; k < end; ++k) {
    const int64_t at = stored_first + k;
    uint8_t* terms = out + row.line + at / kFixedBlock * 2 * row.pitch + at % kFixedBlock;
    uint8_t* slice = out + at / kSliceInputs * row.slice_pitch;
    const bool holds_input = usable && k < first + count;
    const int value = holds_input ? static_cast<int>(std::nearbyint(x[k] * factor)) : 0;
    const int high = (value + 128) >> 8, low = value - 256 * high;
    terms[0] = static_cast<uint8_t>(high);
    terms[row.pitch] = static_cast<uint8_t>(low);
    sums[0] = high + (k % 16 == 0 ? 0 : sums[0]);
    sums[1] = low + (k % 16 == 0 ? 0 : sums[1]);
    const int16_t halves[2] = {static_cast<int16_t>(sums[0]), static_cast<int16_t>(sums[1])};
    std::memcpy(slice + row.sums + at % kSliceInputs / 16 * 4, halves, sizeof(halves));
    std::memcpy(slice + row.unit, &unit, sizeof(unit));
  }
}

// Where row m of a call is stored.
RowInTiles place_of_row(ActivationType type, const QuantiseArgs& args, int64_t m) {
  const auto [before, behind] = args.beside;
  return row_in_tiles(type, before + m, before + args.num_rows + behind, args.slice_stride);
}

void quantise_fixed(const QuantiseArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const RowInTiles row = place_of_row(ActivationType::kFixed, args, m);
    for (int64_t first = 0, count; first < args.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args.num_inputs);
      quantise_segment(args.x + m * args.num_inputs, first, count, args.first_input, row, args.out);
    }
  }
}

template <ActivationType kType>
uint8_t* terms_at(const QuantiseArgs& args, int64_t m, int64_t k) {
  if (lies_in_tiles(kType)) {
    const RowInTiles row = place_of_row(kType, args, m);
    return args.out + row.line + (args.first_input + k) / kActivationBlock * row.pitch;
  }
  return args.out + (k / kSliceInputs) * args.slice_stride + m * activation_record_bytes(kType) +
         k % kSliceInputs / kActivationBlock * activation_code_bytes(kType);
}

template <ActivationType kType>
void quantise_bf16(const QuantiseArgs& args) {
  constexpr int64_t kUnit = activation_unit(kType);
  const int64_t end = (args.num_inputs + kUnit - 1) / kUnit * kUnit;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t k = 0; k < end; ++k) {
      uint8_t* block = terms_at<kType>(args, m, k);
      float rest = k < args.num_inputs ? args.x[m * args.num_inputs + k] : 0.0f;
      for (int term = 0; term < num_terms(kType); ++term) {
        const uint16_t bits = float_to_bf16(rest);
        std::memcpy(
            block + 2 * (term * kActivationBlock + activation_place(kType, k % kActivationBlock)),
            &bits, 2);
        rest -= bf16_to_float(bits);
        if (!std::isfinite(rest)) rest = 0.0f;
      }
    }
  }
}

constexpr KernelRow kRows[] = {
    quantise_row(ActivationType::kInt16, "quantise_int16", 0, NumericsClass::kInteger,
                 &quantise<ActivationType::kInt16>),
    quantise_row(ActivationType::kInt8, "quantise_int8", 0, NumericsClass::kInteger,
                 &quantise<ActivationType::kInt8>),
    quantise_row(ActivationType::kBF16Codes, "quantise_bf16_codes", 0, NumericsClass::kBf16Codes,
                 &quantise_bf16<ActivationType::kBF16Codes>),
    quantise_row(ActivationType::kFixed, "quantise_fixed", 0, NumericsClass::kFixed,
                 &quantise_fixed),
    quantise_row(ActivationType::kBF16x2, "quantise_bf16x2", 0, NumericsClass::kBf16Tile,
                 &quantise_bf16<ActivationType::kBF16x2>),
    quantise_row(ActivationType::kBF16, "quantise_bf16", 0, NumericsClass::kBf16Dot,
                 &quantise_bf16<ActivationType::kBF16>),
};

}  // namespace

namespace reference {

extern const KernelPart kQuantise;
const KernelPart kQuantise = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace reference
}  // namespace headrace::cpu
