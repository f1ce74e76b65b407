// The reference unit: coded panels by segments, as fixed-point numbers times such activations
// (class kFixed) or as bf16 times those of bf16 (class kBf16Codes).

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/bf16_model.h"
#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/weights.h"

namespace headrace::cpu {
namespace {

// Inputs of a segment as fixed-point numbers, all lanes, and what one unit of them stands for.
struct FixedSegment {
  int16_t values[kLongestFixedSegment][kPanel];
  float unit[kPanel];
};

struct SubFactors {
  float scale[kPanel];
  float offset[kPanel];
};

// Factors of the sub-block of input k, the offsets as added to codes less their center.
SubFactors factors_at(const LayoutInfo& info, const uint8_t* panel, int64_t k) {
  const FixedCode code = fixed_code(info);
  const ChunkOffsets at = chunk_offsets(info);
  const uint8_t* chunk = panel + k / info.block_inputs * info.chunk_bytes;
  const int in_chunk = static_cast<int>(k % info.block_inputs);
  SubFactors factors;
  block_factors(info, chunk, info.num_sub_blocks > 0 ? in_chunk / sub_block_inputs(info) : 0,
                factors.scale, factors.offset);
  for (int n = 0; n < kPanel; ++n) {
    float& offset = factors.offset[n];
    if (!code.has_offset) {
      offset = 0.0f;
    } else if (info.zero_bytes != 0) {
      offset = factors.scale[n] * static_cast<float>(code.center - lane_zero(info, at, chunk, n));
    } else {
      offset = std::fma(factors.scale[n], static_cast<float>(code.center), offset);
    }
  }
  return factors;
}

// Codes of input k less their center.
void codes_at(const LayoutInfo& info, const uint8_t* panel, int64_t k, int* codes) {
  const FixedCode code = fixed_code(info);
  const ChunkOffsets at = chunk_offsets(info);
  const uint8_t* chunk = panel + k / info.block_inputs * info.chunk_bytes;
  float values[kPanel];
  code_values(info, at, chunk, static_cast<int>(k % info.block_inputs), values);
  for (int n = 0; n < kPanel; ++n) {
    codes[n] = static_cast<int>(values[n]);
    if (code.has_offset) codes[n] += lane_zero(info, at, chunk, n) - code.center;
  }
}

// The largest of |scale| range + |offset| over the segment; NaN is larger than all.
void find_bounds(const LayoutInfo& info, const uint8_t* panel, int64_t first, int64_t count,
                 float* bounds) {
  std::fill(bounds, bounds + kPanel, 0.0f);
  for (int64_t k = 0; k < count; k += sub_block_inputs(info)) {
    const SubFactors factors = factors_at(info, panel, first + k);
    for (int n = 0; n < kPanel; ++n) {
      const float bound =
          std::fabs(factors.scale[n]) * static_cast<float>(fixed_code(info).range()) +
          std::fabs(factors.offset[n]);
      if (!(bound <= bounds[n])) bounds[n] = bound;
      if (std::isnan(bound)) bounds[n] = INFINITY;
    }
  }
}

// The smallest power of two that is at least `value`.
float power_of_two_from(float value) {
  int exponent;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// What one unit of an output's numbers stands for, and the factor that makes values such numbers.
struct FixedUnit {
  float unit, by;
};
FixedUnit unit_of(const FixedCode& code, float bound) {
  if (!(bound <= kLargestFixedBound)) return {NAN, 0.0f};
  if (bound < kSmallestFixedBound) return {0.0f, 0.0f};
  if (!code.has_exact_factors) return {bound / kFixedLimit, kFixedLimit / bound};
  const float unit = power_of_two_from(bound / kFixedLimit);
  return {unit, 1 / unit};
}

// Of a code less its center and its sub-block's scale.
int fixed_product(const FixedCode& code, int value, float scale, float by) {
  if (code.is_linear) return value * static_cast<int>(std::nearbyint(scale * by));
  const auto range = static_cast<float>(code.range());
  const auto factor = static_cast<int>(std::nearbyint(scale * (by * range)));
  return (value * (1 << (16 - code.bits)) * factor + (1 << 14)) >> 15;
}

FixedSegment read_segment(const LayoutInfo& info, const uint8_t* panel, int64_t first,
                          int64_t count) {
  const FixedCode code = fixed_code(info);
  float bounds[kPanel];
  find_bounds(info, panel, first, count, bounds);
  FixedSegment segment;
  SubFactors factors{};
  for (int64_t k = 0; k < count; ++k) {
    if (k % sub_block_inputs(info) == 0) factors = factors_at(info, panel, first + k);
    int codes[kPanel];
    codes_at(info, panel, first + k, codes);
    for (int n = 0; n < kPanel; ++n) {
      const FixedUnit unit = unit_of(code, bounds[n]);
      segment.unit[n] = unit.unit;
      int value = 0;
      if (unit.by != 0) {
        value = fixed_product(code, codes[n], factors.scale[n], unit.by) +
                static_cast<int>(std::nearbyint(factors.offset[n] * unit.by));
      }
      segment.values[k][n] = static_cast<int16_t>(value);
    }
  }
  return segment;
}

// Whole numbers: the sums of X W, all lanes.
struct Totals {
  int64_t of[kPanel];
};

// A row of x in its tile.
struct RowOfX {
  const uint8_t* rows;
  RowInTiles at;

  const uint8_t* line(int64_t index) const { return rows + at.line + index * at.pitch; }
  const uint8_t* unit(int64_t k) const {
    return rows + at.unit + k / kSliceInputs * at.slice_pitch;
  }
};

Totals multiply_segment(const FixedSegment& segment, const RowOfX& row, int64_t first,
                        int64_t count) {
  Totals totals{};
  for (int64_t k = 0; k < count; ++k) {
    const int64_t line = (first + k) / kFixedBlock * 2, in_line = k % kFixedBlock;
    const int value = 256 * static_cast<int8_t>(row.line(line)[in_line]) +
                      static_cast<int8_t>(row.line(line + 1)[in_line]);
    for (int n = 0; n < kPanel; ++n) totals.of[n] += value * segment.values[k][n];
  }
  return totals;
}

// The classes. read() makes a segment's weights; add() adds what it comes to for one row, in all
// lanes; first: of the segment.
struct Fixed {
  using Segment = FixedSegment;
  static constexpr ActivationType kType = ActivationType::kFixed;
  static constexpr NumericsClass kNumerics = NumericsClass::kFixed;
  static constexpr const char* kSuffix = "_fixed";

  static Segment read(const LayoutInfo& info, const uint8_t* panel, int64_t first, int64_t count) {
    return read_segment(info, panel, first, count);
  }
  static void add(const Segment& segment, const RowOfX& row, int64_t first, int64_t count,
                  float* out) {
    const Totals totals = multiply_segment(segment, row, first, count);
    float x_unit;
    std::memcpy(&x_unit, row.unit(first), sizeof(x_unit));
    for (int n = 0; n < kPanel; ++n) {
      const int64_t total = (totals.of[n] + (1 << (kFixedStepBits - 1))) >> kFixedStepBits;
      out[n] = std::fma(static_cast<float>(total), kFixedStep * segment.unit[n] * x_unit, out[n]);
    }
  }
};

struct Bf16Codes {
  static constexpr ActivationType kType = ActivationType::kBF16Codes;
  static constexpr NumericsClass kNumerics = NumericsClass::kBf16Codes;
  static constexpr const char* kSuffix = "_bf16_codes";
  struct Segment {
    float values[kLongestFixedSegment][kPanel];  // in the order of records
    float unit[kPanel];
  };

  static Segment read(const LayoutInfo& info, const uint8_t* panel, int64_t first, int64_t count) {
    float bounds[kPanel];
    find_bounds(info, panel, first, count, bounds);
    Segment segment;
    FixedUnit units[kPanel];
    for (int n = 0; n < kPanel; ++n) {
      units[n] = unit_of_halves(bounds[n]);
      segment.unit[n] = units[n].unit * 0x1p16f;
    }
    const bool has_offset = fixed_code(info).has_offset;
    SubFactors factors{};
    for (int64_t k = 0; k < count; ++k) {
      if (k % sub_block_inputs(info) == 0) factors = halves_at(info, panel, first + k, units);
      int codes[kPanel];
      codes_at(info, panel, first + k, codes);
      float* values = segment.values[activation_place(kType, k)];
      for (int n = 0; n < kPanel; ++n) {
        const double product = double(codes[n]) * double{factors.scale[n]};
        values[n] = rounded(has_offset ? product + double{factors.offset[n]} : product);
      }
    }
    return segment;
  }
  static void add(const Segment& segment, const RowOfX& row, int64_t first, int64_t count,
                  float* out) {
    float totals[kPanel] = {};
    for (int64_t k = 0; k < count; k += kActivationBlock) {
      uint16_t x[kActivationBlock];
      std::memcpy(x, row.line((first + k) / kActivationBlock), sizeof(x));
      add_block(x, segment.values + k, totals);
    }
    for (int n = 0; n < kPanel; ++n) out[n] = std::fma(totals[n], segment.unit[n], out[n]);
  }

 private:
  static FixedUnit unit_of_halves(float bound) {
    if (!(bound <= kLargestFixedBound)) return {NAN, 0.0f};
    if (bound < kSmallestFixedBound) return {0.0f, 0.0f};
    const float unit = power_of_two_from(bound * kBf16CodesStep);
    return {unit, 1 / unit};
  }
  // Factors of the sub-block of input k as f16 of the units; zeros where there is none.
  static SubFactors halves_at(const LayoutInfo& info, const uint8_t* panel, int64_t k,
                              const FixedUnit (&units)[kPanel]) {
    SubFactors factors = factors_at(info, panel, k);
    for (int n = 0; n < kPanel; ++n) {
      for (float* factor : {&factors.scale[n], &factors.offset[n]}) {
        *factor = units[n].by == 0 ? 0 : f16_to_float(float_to_f16(*factor * units[n].by));
      }
    }
    return factors;
  }
  // As f16, then as bf16 times 2^-16.
  static float rounded(double value) {
    const uint16_t half = double_to_f16(value);
    return bf16_to_float(
        static_cast<uint16_t>((half & 0x8000) | 0x3000 | ((half & 0x7FFF) + 4) >> 3));
  }
  static void add_block(const uint16_t* x, const float (*values)[kPanel], float* totals) {
    float sums[2][kPanel] = {};  // of the lower and upper halves of words
    for (int64_t i = 0; i < kActivationBlock; ++i) {
      const float v = bf16_to_float(x[i]);
      float* half = sums[i % 2];
      for (int n = 0; n < kPanel; ++n) half[n] = bf16_fma(v, values[i][n], half[n]);
    }
    for (int n = 0; n < kPanel; ++n)
      totals[n] = bf16_add(totals[n], bf16_add(sums[0][n], sums[1][n]));
  }
};

template <Layout kLayout, typename Class>
void matmul_segments(const MatmulArgs& args) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  const auto* rows = static_cast<const uint8_t*>(args.x);
  for (int64_t p = 0; p < args.num_panels; ++p) {
    const uint8_t* panel =
        args.weight + static_cast<size_t>(args.first_panel + p) * args.panel_bytes;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      std::memset(args.sums + m * args.sums_stride + p * kPanel, 0, kPanel * sizeof(float));
    }
    for (int64_t first = 0, count; first < args.num_inputs; first += count) {
      count = fixed_segment_inputs(first, args.num_inputs);
      const typename Class::Segment segment = Class::read(kInfo, panel, first, count);
      for (int64_t m = 0; m < args.num_rows; ++m) {
        const auto [before, behind] = args.beside;
        const RowOfX row{rows, row_in_tiles(Class::kType, before + m,
                                            before + args.num_rows + behind, args.x_stride)};
        Class::add(segment, row, first, count, args.sums + m * args.sums_stride + p * kPanel);
      }
    }
  }
}

template <typename Class>
struct SegmentRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = Class::kSuffix;
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            0,
            kLayout,
            Class::kType,
            1,
            {1, kPanel, kFixedBlock},
            Class::kNumerics,
            {.matmul = &matmul_segments<kLayout, Class>}};
  }
};

}  // namespace

namespace reference {

extern const KernelPart kFixed;
const KernelPart kFixed = PartRows<SegmentRows<Bf16Codes>, SegmentRows<Fixed>>::kPart;

}  // namespace reference
}  // namespace headrace::cpu
