// Contract of the kernel units: layouts, argument structs, numerics classes and the row table.
//
// A unit (reference, avx2, avx512 ...) is one or more translation units, its parts (parts/*.cpp).
// These are compiled with the unit's flags, include only this header, generic/*.h, fixed-width
// integers and intrinsics, keep everything in an anonymous namespace and export one symbol each: a
// KernelPart. units.cpp puts the parts together. This header therefore holds plain data only.
//
// Panels. A weight [N, K] is cut into panels of kPanel outputs; lane n of a panel is output
// 16 p + n; lanes beyond N are zero. A panel is a run of chunks, one per block of inputs, and a
// chunk holds first the factors, then the codes of its block, lane-interleaved:
//   half vector   16 x f16 (32 bytes)          one factor per lane
//   byte vector   16 x uint8 (16 bytes)        one factor or zero point per lane
//   word vector   16 x uint32 (64 bytes)       several codes per lane, or a float32 factor
// Plane rule: codes of b bits (1, 2, 4, 8) fill words of 32 / b codes; code i of a word lies at bit
// 8 (i % 4) + b (i / 4), so that (word >> b g) & mask yields codes 4 g .. 4 g + 3 as bytes: the
// operand order of byte dot products and of tile instructions. A code wider than one plane is
// low | high << low_bits. The last chunk of a panel holds only the code words of its inputs, in
// whole units of kActivationBlock.
//
// Numerics classes. Rows of one class agree bit for bit for every M, split and unit. Weights are
// exactly the values that the format defines.
//   kReference, kFma   float32 activations, dense layouts and those of 8-bit floats: sums[m][n] =
//   fold over slices of
//       kSliceInputs inputs, in order, of (sum over the k of the slice, in order, starting from
//       +0). kReference multiplies, rounds, adds, rounds; kFma rounds once per input.
//   kInteger           integer activations, layouts of integer codes: over the sub-blocks (see
//       sub_block_inputs()) in order of K as packed, starting from +0:
//         I = sum of X (q - zero) or X q or X kTable[q] over the sub-block: exact, in 32 bits; zero
//             is the layout's, or the lane's of the chunk
//         sum = fma(float(I), scale_w * x_scale, sum)
//         sum = fma(offset_w, x_sum, sum)         where the layout has minima
//       scale_w and offset_w are the sub-block's scale_s and minimum (see LayoutInfo) in float32,
//       in which they are exact. All integer sums being exact, every way to form them gives these
//       bits.
//   kFixed             fixed-point activations, layouts of integer codes, whose weights become
//       fixed point as well: over segments (fixed_segment_inputs()) in order of K, starting from
//       +0:
//         sum = fma(float(T), kFixedStep * weight_unit * x_unit, sum)
//         T = (sum of X W over the segment) / kFixedStep: nearest, ties up
//         W = (q - center) * factor + offset                     of linear codes
//         W = (raised * factor + 2^14 >> 15) + offset            of others, >> rounding down
//       center, bits and kind are those of fixed_code(), q stands for kTable[q] where there is a
//       table, raised = (q - center) * 2^(16 - bits). For each output, over the sub-blocks of the
//       segment:
//         range = 2^(bits - 1), bound = largest of |scale_w| * range + |offset_w|
//         weight_unit = bound / kFixedLimit, by = kFixedLimit / bound
//                  of linear codes of short scales, weight_unit = the power of two that is at least
//                  that, by = 1 / weight_unit
//         factor = round_to_even(scale_w * by), of codes that are not linear
//                  round_to_even(scale_w * (by * range))
//         offset = round_to_even(offset_w * by)
//       offset_w is fma(scale_w, center, minimum), or scale_w * (center - zero of the lane), or 0.
//       A bound below kSmallestFixedBound makes W and weight_unit 0; one above kLargestFixedBound
//       or a NaN makes weight_unit NaN.
//   kBf16Codes         bf16 activations, layouts of integer codes, whose weights become bf16: over
//       segments as kFixed's in order of K, starting from +0:
//         sum = fma(T, weight_unit * 2^16, sum)
//         T = the sum over the segment of kBf16Tile, one term, of x and B
//         B = h 2^-16 as bf16: the sign of h, its magnitude's bits / 8 (nearest, ties up) | 0x3000,
//             which is 2^-31 where h is 0
//         h = (q - center) * factor + offset, an f16 rounded once
//       of bound, center and offset_w as for kFixed; to nearest f16, ties to even:
//         weight_unit = the power of two that is at least bound * kBf16CodesStep
//         factor = scale_w / weight_unit, offset = offset_w / weight_unit
//       with kFixed's limits of a bound. Inputs lie in the order of their records: of each four,
//       the second and third have changed places.
//   kBf16Tile          bf16 activations, bf16 weights: over blocks of kActivationBlock inputs in
//       order of K and within a block over the terms, starting from +0:
//         sum = sum + (even + odd)
//       even and odd being the sums over the block's even and odd inputs in order, each from +0,
//       one rounding per input; denormals are zeros everywhere (amx/tile.h, product_bf16). Inputs
//       from K to the end of the last block are zeros.
//   kBf16Dot           bf16 activations of one term, bf16 weights: over pairs of inputs
//       (2 i, 2 i + 1) in order of K, starting from +0:
//         sum = fma(x[2 i + 1], w[2 i + 1], sum), then sum = fma(x[2 i], w[2 i], sum)
//       denormals are zeros everywhere (bf16_model.h). An input at K, where K is odd, is zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/layout_list.h"

namespace headrace::cpu {

inline constexpr int kPanel = 16;         // outputs of a panel
inline constexpr int kSliceInputs = 256;  // inputs summed before folding into the total
inline constexpr int kKvBlock = 16;       // positions of a KV block; equals kBlockTokens
inline constexpr int kKvStep = 64;        // positions of one softmax step, from position 0
inline constexpr int kStepBlocks = kKvStep / kKvBlock;
inline constexpr int kMaxHeadDim = 512;

// Integers of safetensors come by groups of G inputs with a zero point per lane. Scales of f16 and
// bf16 files take 20 bits; kInt4Wide and kInt8 keep float32.
enum class Layout : uint8_t {
#define HEADRACE_LAYOUT(id, ...) k##id,
  HEADRACE_LAYOUTS(HEADRACE_LAYOUT)
#undef HEADRACE_LAYOUT
      kCount,
};
inline constexpr int kNumLayouts = static_cast<int>(Layout::kCount);

// What the bytes of a chunk are. Order in the chunk: scale, minimum, zero point, sub-scale planes,
// sub-minimum low plane, code planes. Value of an input with code q in sub-block s:
//   scale_s = scale * (sub_scale[s] - sub_zero), or scale without sub-blocks
//   scale_s = e4m3(sub_scale[s]) / scale         with sub-scales that are floats
//   w = scale_s * (q - zero)                     without minimum
//   w = scale_s * q + min                        with minimum (Q4_1, Q5_1)
//   w = scale_s * q - min * sub_min[s]           with minimum and sub-blocks
//   w = scale_s * kTable[q]                      with a table; of float codes, their value
// A split scale is the upper 20 bits of a float32: 16 in the scale field, 4 in the upper half of
// the lane's zero byte. An 8-bit float that is no number makes its lane's scale in the chunk NaN.
// Dense layouts (code_bits 0) hold the values themselves.
struct LayoutInfo {
  Layout layout;
  const char* name;
  const char* format;      // of the checkpoint's weights that it keeps
  uint16_t block_inputs;   // inputs of a chunk
  uint16_t chunk_bytes;    // of all lanes
  uint8_t scale_bytes;     // per lane: 0 dense, 1 e8m0, 2 f16 (or split), 4 float32
  uint8_t min_bytes;       // per lane: 0 or 2
  uint8_t num_sub_blocks;  // 0: one scale per chunk
  uint8_t sub_low_bits;    // bits of a sub-scale in its low plane (8: signed bytes)
  uint8_t sub_high_bits;   // and in its high plane
  uint8_t sub_has_min;     // sub-minima: low plane of their own, high plane shared (after scales)
  uint8_t sub_zero;
  uint8_t low_bits;  // bits of a code in its low plane
  uint8_t high_bits;
  uint8_t zero;
  uint8_t table;        // 0 none, 1 IQ4 values, 2 FP4 values, 3 e4m3 codes, 4 e5m2 codes
  uint8_t zero_bytes;   // per lane: 0 or 1
  uint8_t split_scale;  // with zero_bytes 1 and scale_bytes 2
  uint8_t sub_float;    // sub-scales are e4m3
};

enum class NumericsClass : uint8_t {
  kReference,
  kFma,
  kInteger,
  kBf16Tile,
  kBf16Dot,
  kFixed,
  kBf16Codes,
};

enum IsaBits : uint32_t {
  kIsaAvx2 = 1u << 0,
  kIsaFma = 1u << 1,
  kIsaF16c = 1u << 2,
  kIsaAvx512F = 1u << 3,
  kIsaAvx512BW = 1u << 4,
  kIsaAvx512DQ = 1u << 5,
  kIsaAvx512VL = 1u << 6,
  kIsaAvx512Vnni = 1u << 7,
  kIsaAvx512Bf16 = 1u << 8,
  kIsaAvxVnni = 1u << 9,
  kIsaAmxTile = 1u << 10,
  kIsaAmxInt8 = 1u << 11,
  kIsaAmxBf16 = 1u << 12,
  kIsaAvx512Fp16 = 1u << 13,
};

// What all rows of a unit need.
inline constexpr uint32_t kAvx2UnitIsa = kIsaAvx2 | kIsaFma | kIsaF16c;
inline constexpr uint32_t kAvxVnniUnitIsa = kAvx2UnitIsa | kIsaAvxVnni;
inline constexpr uint32_t kAvx512UnitIsa =
    kAvx2UnitIsa | kIsaAvx512F | kIsaAvx512BW | kIsaAvx512DQ | kIsaAvx512VL;
inline constexpr uint32_t kAvx512VnniUnitIsa = kAvx512UnitIsa | kIsaAvx512Vnni;
inline constexpr uint32_t kAvx512Bf16UnitIsa = kAvx512UnitIsa | kIsaAvx512Bf16;
inline constexpr uint32_t kAmxUnitIsa =
    kAvx512VnniUnitIsa | kIsaAmxTile | kIsaAmxInt8 | kIsaAmxBf16;

// What a matmul row reads as x.
//   kF32    float [num_rows, num_inputs]; x_stride floats between rows
//   kInt8, kInt16   whole numbers X with one scale per block of kActivationBlock inputs,
//     x = scale X:
//       kInt8    scale = max|x| / 127, X = round_to_even(x * (127 / max|x|))
//       kInt16   scale = 2^(e - 14) with 2^e <= kInt16Margin max|x| < 2^(e + 1) in float32, so that
//                |X| <= 32639 and small whole numbers stay exact; X = round_to_even(x / scale);
//                X = 256 high + low with high and low in [-128, 127]: two int8 terms
//     Where max|x| < kSmallestActivation, X is 0 and scale is 0 (kInt8) or 1 (kInt16). Where the
//     block (kInt16: the slice) holds a NaN, an infinity or, kInt16, a value from kEndOfActivations
//     on, X is 0 and scale is NaN. So scale_w * x_scale of kInt16 is 0, NaN or a normal number for
//     every f16 scale_w: exponents may be added instead.
//     Stored by slices of kSliceInputs inputs, x_stride bytes between slices. In a slice each row
//     has one record of activation_record_bytes(): for each block its codes (32 bytes of X, or 32
//     of high and then 32 of low), then for each block its BlockFactors. Blocks beyond K are not
//     written.
//   kBF16, kBF16x2   x rounded to bf16 (nearest, ties to even; NaN stays NaN), and for the second
//     the rest x - term rounded again, +0 where that is not finite. Stored as above without
//     factors: for each block 32 bf16 of the first term, then 32 of the second; zeros from K to the
//     end of the last block.
//   kBF16Codes   one term as kBF16, for coded layouts: of each four inputs the second and third
//     change places, as codes lie in their words; zeros from K to the end of the last block of
//     kFixedBlock. Rows lie in tiles, below; a line holds 32 inputs.
//   kFixed   whole numbers X with one unit per segment (fixed_segment_inputs()), x = unit X: unit =
//     max|x| / kFixedActivationLimit, X = round_to_even(x * (kFixedActivationLimit / max|x|)), two
//     int8 terms as kInt16's. Where max|x| < kSmallestActivation, X and unit are 0; where the
//     segment holds a NaN, an infinity or a value from kEndOfActivations on, X is 0 and unit is
//     NaN. Rows lie in tiles: of each block of kFixedBlock inputs a line of the bytes of high, then
//     one of those of low, zeros from K to the end of the last block. With each slice are the unit
//     and, for each 16 inputs up to that end, the sums of high and of low, int16 both.
//   In tiles, as tile registers are loaded fastest: rows in groups of kTileOfRows, the last of what
//     is left, x_stride bytes for each row: those of its records, of all slices. First each line of
//     64 bytes, for all of K, of all rows of the group one after the other, then (kFixed) for each
//     slice the units of all, kFixedUnitRoom bytes for each, which they do not fill, and the sums
//     of all (row_in_tiles()).
enum class ActivationType : uint8_t { kF32, kInt8, kInt16, kBF16, kBF16x2, kFixed, kBF16Codes };

inline constexpr int kActivationBlock = 32;
inline constexpr int kSliceBlocks = kSliceInputs / kActivationBlock;

inline constexpr float kInt8Limit = 127.0f;
inline constexpr float kInt16Margin = 1.00396f;
inline constexpr int kInt16Bits = 14;
inline constexpr float kSmallestActivation = 1e-25f;
inline constexpr float kEndOfActivations = 1e35f;

inline constexpr int kFixedSegment = 512;  // inputs that share a unit, but of the last segment
inline constexpr int kLongestFixedSegment = 640;
inline constexpr int kFixedBlock = 64;                    // of one product
inline constexpr float kFixedActivationLimit = 32512.0f;  // 127 * 256: high fits after rounding
// Of a weight: 128 W in a segment of kFixedSegment sum to 31 bits.
inline constexpr float kFixedLimit = 32760.0f;
// What sums of products are rounded to, far below what X are: those of any segment have 31 bits.
inline constexpr int kFixedStepBits = 9;
inline constexpr float kFixedStep = 1 << kFixedStepBits;
inline constexpr float kBf16CodesStep = 0x1p-14f;  // a weight of at most 2^14 units: an f16
inline constexpr float kSmallestFixedBound = 1e-30f;
inline constexpr float kLargestFixedBound = 1e30f;
static_assert(kFixedSegment % kSliceInputs == 0);

// Inputs of the segment that begins at `first` of K: the last one takes a short rest along, as what
// a segment costs beside its products does not depend on its length.
constexpr int64_t fixed_segment_inputs(int64_t first, int64_t num_inputs) {
  const int64_t rest = num_inputs - first;
  return rest <= kLongestFixedSegment ? rest : kFixedSegment;
}
constexpr int64_t num_fixed_segments(int64_t num_inputs) {
  constexpr int64_t kRest = kLongestFixedSegment - kFixedSegment;
  if (num_inputs <= kLongestFixedSegment) return num_inputs > 0 ? 1 : 0;
  return (num_inputs - kRest + kFixedSegment - 1) / kFixedSegment;
}
inline constexpr int64_t kFixedUnitBytes = 4;
inline constexpr int64_t kFixedUnitRoom = 64;  // of a row; units of a group share a line
inline constexpr int64_t kFixedSumsBytes = kSliceInputs / 16 * 4;

struct BlockFactors {
  float scale;
  float sum;           // scale * (sum of X)
  float half_sums[2];  // the same over the first and the second 16 inputs
  int32_t minus_sum;   // -(sum of X)
  int32_t minus_half_sums[2];
  int32_t unused;
};

inline constexpr bool is_integer(ActivationType type) {
  return type == ActivationType::kInt8 || type == ActivationType::kInt16 ||
         type == ActivationType::kFixed;
}
// What layouts of integer codes are multiplied with; x in these forms lies apart from x in others.
inline constexpr bool is_of_codes(ActivationType type) {
  return is_integer(type) || type == ActivationType::kBF16Codes;
}
inline constexpr int num_terms(ActivationType type) {
  const bool is_bf16 = type == ActivationType::kBF16 || type == ActivationType::kBF16Codes;
  return is_bf16 || type == ActivationType::kInt8 ? 1 : 2;
}
// Where input k of a block lies in it, also the input that lies at k.
inline constexpr int64_t activation_place(ActivationType type, int64_t k) {
  constexpr int64_t kOfFour[] = {0, 2, 1, 3};
  return type == ActivationType::kBF16Codes ? k / 4 * 4 + kOfFour[k % 4] : k;
}
// Inputs that records of the type are made of: K is filled with zeros up to whole ones.
inline constexpr int64_t activation_unit(ActivationType type) {
  const bool is_wide = type == ActivationType::kFixed || type == ActivationType::kBF16Codes;
  return is_wide ? kFixedBlock : kActivationBlock;
}
inline constexpr int64_t activation_code_bytes(ActivationType type) {  // of one block
  return kActivationBlock * num_terms(type) * (is_integer(type) ? 1 : 2);
}
inline constexpr int64_t activation_record_bytes(ActivationType type) {
  if (type == ActivationType::kFixed) return 2 * kSliceInputs + kFixedUnitRoom + kFixedSumsBytes;
  const int64_t factors = is_integer(type) ? int64_t{sizeof(BlockFactors)} : 0;
  return kSliceBlocks * (activation_code_bytes(type) + factors);
}

// Types whose rows lie in tiles.
inline constexpr bool lies_in_tiles(ActivationType type) {
  return type == ActivationType::kFixed || type == ActivationType::kBF16Codes;
}
inline constexpr int64_t kTileOfRows = 16;
inline constexpr int64_t kActivationLine = 64;
inline constexpr int64_t kSliceLines = kSliceBlocks;  // of both types

// The x_stride of all rows of a product.
inline constexpr int64_t activation_stride(ActivationType type, int64_t num_rows,
                                           int64_t num_inputs) {
  const int64_t num_slices = (num_inputs + kSliceInputs - 1) / kSliceInputs;
  return activation_record_bytes(type) * (lies_in_tiles(type) ? num_slices : num_rows);
}

// Where a row in tiles has its first line and from one line to the next; its unit and its sums of
// the first slice and from one slice to the next.
struct RowInTiles {
  int64_t line, pitch, unit, sums, slice_pitch;
};
// `row` of `num_rows` that are stored with the given x_stride.
[[gnu::always_inline]] inline constexpr RowInTiles row_in_tiles(ActivationType type, int64_t row,
                                                                int64_t num_rows, int64_t stride) {
  const int64_t in_tile = row % kTileOfRows, before = row - in_tile, rest = num_rows - before;
  const int64_t height = rest < kTileOfRows ? rest : kTileOfRows;
  const int64_t record = activation_record_bytes(type);
  constexpr int64_t kLines = kSliceLines * kActivationLine;
  const int64_t tile = before * stride, units = tile + height * (stride / record * kLines);
  return {tile + in_tile * kActivationLine, height * kActivationLine,
          units + in_tile * kFixedUnitBytes,
          units + height * kFixedUnitRoom + in_tile * kFixedSumsBytes, height * (record - kLines)};
}

// Rows that are stored beside those of a call where rows lie in tiles, whose first tile its pointer
// is of: how many come before them in that tile, and how many behind them.
struct StoredBeside {
  int64_t before = 0, behind = 0;
};
// Rows [first, first + count) of `num_rows`: from where on, in bytes, and what lies beside them.
struct StoredRows {
  int64_t offset;
  StoredBeside beside;
};
inline constexpr StoredRows stored_rows(ActivationType type, int64_t first, int64_t count,
                                        int64_t num_rows, int64_t stride) {
  if (!lies_in_tiles(type)) return {first * activation_record_bytes(type), {}};
  const int64_t before = first % kTileOfRows;
  return {(first - before) * stride, {before, num_rows - first - count}};
}

// Writes rows of x as activation_type of the row says; num_inputs is a multiple of
// kActivationBlock for the integer types.
struct QuantiseArgs {
  const float* x;  // [num_rows, num_inputs], contiguous
  int64_t num_rows;
  int64_t num_inputs;
  uint8_t* out;          // record of row 0 in slice 0, or its tile; 64-byte aligned
  int64_t slice_stride;  // x_stride of a product
  StoredBeside beside = {};
  int64_t first_input = 0;  // in tiles: of x in what is stored, a multiple of kFixedSegment
};

// sums[m][16 (p - first_panel) + n] = x[m] . weight, for all rows and the panels given.
struct MatmulArgs {
  const uint8_t* weight;  // panel 0
  size_t panel_bytes;
  int64_t num_inputs;
  const void* x;  // see ActivationType; in tiles, the tile of the first row
  int64_t x_stride;
  int64_t num_rows;
  int64_t first_panel;
  int64_t num_panels;
  float* sums;  // [num_rows, num_panels * 16], row stride in floats below; 64-byte aligned
  int64_t sums_stride;
  float* scratch;  // kMatmulScratchFloats, 64-byte aligned
  // Rows of a call begin a tile or lie in one.
  StoredBeside beside = {};
};
// An unpacked slice of two panels; operands of a part of a segment with sums and factors.
inline constexpr int64_t kMatmulScratchFloats = int64_t{31} * 1024;

// values[k - first][n] = weight of input k, lane n of one panel; first is a multiple of 256.
struct UnpackArgs {
  const uint8_t* panel;
  int64_t num_inputs;
  int64_t first;
  int64_t count;  // <= kSliceInputs
  float* values;  // [count, 16]
};

// out[m][n] = softcap(residual[m][n] + scale * (sums[m][n] + bias[n])).
struct FinishArgs {
  const float* sums;
  int64_t sums_stride;
  const float* bias;      // or null
  const float* residual;  // or null; stride out_stride; may be out
  float* out;
  int64_t out_stride;
  int64_t num_rows;
  int64_t num_outputs;
  float scale;
  float softcap;  // 0: none
};

enum class GateKind : uint8_t {
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kReluSquared,
  kSigmoid,
  kXielu,
  kClampedSwiglu,
};

// Of kXielu, as Xielu in backend.h says.
struct XieluCurve {
  float positive, negative, beta, eps;
};

// out[m][n] = f(gate[m][n] + gate_bias[n]) * (up[m][n] + up_bias[n]); kClampedSwiglu of these sums
// g and u: g' = min(g, limit), u' = clamp(u, -limit, limit), g' * sigmoid(alpha g') * (u' + 1).
// out may be up.
struct GateArgs {
  const float* gate;
  int64_t gate_stride;
  const float* up;  // or null: ones
  int64_t up_stride;
  const float* gate_bias;  // or null
  const float* up_bias;    // or null
  float* out;
  int64_t out_stride;
  int64_t num_rows;
  int64_t num_outputs;
  GateKind kind;
  float alpha;  // of kClampedSwiglu
  float limit;
  XieluCurve xielu;
};

// out = gain * ((residual +) scale * (norm(x) * weight (+ bias))) over rows. Sums run over 16 lanes
// (k % 16), then the lanes fold 8, 4, 2, 1.
struct NormRowsArgs {
  const float* x;
  const float* weight;
  const float* residual;  // or null
  float* out;
  int64_t num_rows;
  int64_t width;
  float eps;
  float scale;
  bool subtract_mean;
  const float* gain;  // [1] or null: 1
  const float* bias;  // or null
};

enum class KvDtype : uint8_t { kF32, kBF16, kF16, kFp8, kInt8, kInt16 };
inline constexpr int kNumKvDtypes = 6;

// Bytes of a KV block of one layer: for each head the K plane, then the V plane, both padded to 16
// dimensions (zeros). A plane is made of 32-bit words of u codes (u = 1 f32, 2 bf16 and f16, 4 fp8
// and int8), code i at bit 32 / u * i, so that code pairs and quads lie along the inputs that a
// product reduces:
//   K [dims / u][16 positions] words of u dimensions
//   V [16 / u][dims] words of u positions
// Codes X of int16 are two bytes, 256 high + low with both in [-128, 127]: words of u = 4 high
// ones, 16 at a time, each 16 before the words of their low ones. So tiles and byte products read
// them. fp8 (e4m3), int8 and int16 planes end with 16 float32 scales, one per position, made from
// that token's head alone: value = code * scale, with scale = largest magnitude / 448, / 127 or /
// 32512.
inline constexpr int kv_word_codes(KvDtype type) {
  if (type == KvDtype::kF32) return 1;
  return type == KvDtype::kBF16 || type == KvDtype::kF16 ? 2 : 4;
}
inline constexpr int kv_code_bytes(KvDtype type) {
  return type == KvDtype::kInt16 ? 2 : 4 / kv_word_codes(type);
}
// Of 16 words, or of 16 words of each byte.
inline constexpr int kv_line_bytes(KvDtype type) {
  return 16 * kv_word_codes(type) * kv_code_bytes(type);
}
inline constexpr bool kv_is_scaled(KvDtype type) { return kv_word_codes(type) == 4; }
inline constexpr int64_t padded_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
inline constexpr size_t kv_scales_offset(KvDtype type, int64_t head_dim) {
  return static_cast<size_t>(padded_dim(head_dim) * kKvBlock * kv_code_bytes(type));
}
inline constexpr size_t kv_plane_bytes(KvDtype type, int64_t head_dim) {
  return kv_scales_offset(type, head_dim) + (kv_is_scaled(type) ? 4 * kKvBlock : 0);
}

// One token's fused projection: norm, rope, scale of q; k and v appended to the KV block. Rows
// whose positions share a block are never appended by two calls at the same time.
struct QkvRowsArgs {
  // [num_rows, qkv_stride], of which (num_heads + kv_parts * num_kv_heads) * head_dim are read
  const float* qkv;
  int64_t qkv_stride;
  float* q_out;  // [num_rows, num_heads * head_dim]
  int64_t num_rows;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int kv_parts;  // after q: 2 k and v, 1 k, whose values before norm and rope are v too, 0 none
  KvDtype kv_type;
  uint8_t* kv_base;
  size_t kv_block_stride;
  int64_t first_position;
  const int32_t* block_table;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  bool norm_whole;      // over all heads of the projection
  bool norm_v;          // per head, without a weight
  bool norm_layer;      // layer norm of each head, with a weight of its own for each
  bool norm_after_rope;
  float norm_eps;
  float clip;  // bound of what is rotated and of v; 0: none
  bool rope_interleaved;
  int rope_dims;
  const float* rope_cos;  // [num_rows, rope_dims / 2]
  const float* rope_sin;
  const float* q_row_scale;  // [num_rows] or null
};

// A tile of attention: rows of one sequence that share a KV head. Row r is query head
// kv_head * group + r % group of token r / group, group = num_heads / num_kv_heads.
//
// Each row is computed as follows, whatever the tile, so that its bits depend on its own position
// and KV alone. KV is cut at absolute positions into splits of kKvSplit positions and these into
// steps of kKvStep. Over the steps of a split that hold a visible key, in order:
//   top' = max(top, max s), c = exp(top - top'), total = c total + sum p, acc = c acc + sum p v
// with p = exp(s - top') and values added in order of their positions, from top = -inf, total = 0,
// acc = 0. The splits that hold a visible key fold in order:
//   top' = max(top, top_s), total = exp(top - top') total + exp(top_s - top') total_s, acc likewise
// A sink joins the denominator last. Hidden and unwritten positions are left out: they may hold
// anything. With scaled KV types the K scale multiplies the dot of the codes and the V scale p.
//
// kFixed, for int16 alone: q of a row, times scale and log2 e, and the p of a row and step, times
// their V scales, become whole numbers X = 256 high + low, of q as the codes are, of p with low in
// [0, 255], of one unit each, largest / 32512 (0, and X 0, below kSmallestFixedBound; NaN where one
// is no number). Then
//   T = 256 sum of high high' + sum of (high low' + low high'): exact, in 32 bits
// over the dimensions, or over the positions of the step, hidden ones being 0; of q and keys also +
// (sum of low low' + 128 >> 8), rounding down, which values do without. And
//   s = float(T) * (256 unit) * K scale, acc = fma(float(T), 256 unit, c acc)
enum class AttentionWork : uint8_t {
  kWhole,  // all splits, into out
  kSplit,  // split `split`, into partials
  kMerge,  // folds the partials of all splits of the tile into out
};

struct AttentionRowsArgs {
  AttentionWork work;
  const float* q;  // token 0 of the run; row_stride floats between tokens
  float* out;
  int64_t row_stride;      // num_heads * head_dim
  int64_t first_position;  // of token 0
  int64_t first_row;
  int64_t num_rows;  // at most kAttentionRows
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int kv_head;
  KvDtype kv_type;
  const uint8_t* kv_base;
  size_t kv_block_stride;
  const int32_t* block_table;
  float scale;
  float softcap;
  int64_t window;
  const float* sinks;
  const float* slopes;  // [num_heads] or null: added to a score, slope * (j - i)
  int64_t split;
  float* partials;  // [splits of the tile, num_rows, partial_floats]; 64-byte aligned
  float* scratch;   // kAttentionScratchFloats, 64-byte aligned
  // Keys of the blocks, by their place in a step, that the caller attends to next, or null: asked
  // for once there are no more of this tile.
  const uint8_t* following[kStepBlocks];
};
inline constexpr int kKvSplit = 1024;  // positions of a split; a multiple of kKvStep
inline constexpr int kAttentionRows = 192;

// Of one row and split: acc [dims], total by 16 lanes, top in the first of 16.
inline constexpr int64_t partial_floats(int64_t head_dim) { return padded_dim(head_dim) + 32; }
// First position that row r sees, and one past the last.
inline constexpr int64_t attention_end(const AttentionRowsArgs& args, int64_t row) {
  return args.first_position + row / (args.num_heads / args.num_kv_heads) + 1;
}
inline constexpr int64_t attention_lowest(const AttentionRowsArgs& args, int64_t row) {
  const int64_t end = attention_end(args, row);
  return args.window > 0 && end > args.window ? end - args.window : 0;
}

// One token's vector stored in a plane of its own: as a K plane or as a V plane (above).
enum class KvOrder : uint8_t { kKeys, kValues };
struct StoreRowArgs {
  const float* x;  // [width]
  int64_t width;   // at most kMaxLatentWidth; of keys at most kMaxHeadDim
  KvDtype type;
  KvOrder order;
  int64_t slot;
  uint8_t* plane;
};

// A tile of latent attention: one plane (V order) holds for each position a vector of `width`
// numbers, which is the key of every query head; its first value_dim numbers are the value. Row r
// is query head r % num_heads of token r / num_heads.
//
// Splits and steps are those of attention (above), and so are top, total and acc. A score is scale
// times the sum over the width: kReference adds in order; kFma adds the products of inputs n, n +
// 16, n + 32 ... in 16 lanes, which fold 8, 4, 2, 1. A token sees the positions up to its own, or
// of these the kept ones; steps and splits without any are left out.
struct LatentRowsArgs {
  AttentionWork work;
  const float* q;          // token 0 of the run: [num_heads, width]
  float* out;              // likewise [num_heads, value_dim]
  int64_t first_position;  // of token 0
  int64_t first_row;
  int64_t num_rows;  // at most kLatentRows
  int num_heads;
  int64_t width;
  int64_t value_dim;
  KvDtype kv_type;
  const uint8_t* kv_base;
  size_t kv_block_stride;
  const int32_t* block_table;
  float scale;
  // Of token 0, kept_stride words between tokens: their number, then the positions in ascending
  // order; a negative number: all. Null: all, of every token.
  const int32_t* kept;
  int64_t kept_stride;
  int64_t split;
  float* partials;  // [splits of the tile, num_rows, partial_floats(value_dim)]; 64-byte aligned
  float* scratch;   // kAttentionScratchFloats, 64-byte aligned
};
inline constexpr int64_t kMaxLatentWidth = 1024;
inline constexpr int64_t kLatentRows = 96;
inline constexpr int64_t latent_end(const LatentRowsArgs& args, int64_t row) {
  return args.first_position + row / args.num_heads + 1;
}

// Scores of one token's index heads with the keys (K order) of the step at `step`:
//   scores[p] = sum over heads, in order, of weights[h] * max(0, (q[h] . key[p]) * scale)
// products added in order of the dimensions. Of positions from `end` on: anything.
struct IndexRowArgs {
  const float* q;        // [num_heads, dim]
  const float* weights;  // [num_heads]
  int num_heads;         // at most kMaxIndexHeads
  int64_t dim;           // at most kMaxHeadDim
  float scale;
  KvDtype kv_type;
  const uint8_t* kv_base;
  size_t kv_block_stride;
  const int32_t* block_table;
  int64_t step;  // a multiple of kKvStep, below end
  int64_t end;
  float* scores;   // [kKvStep]
  float* scratch;  // kAttentionScratchFloats, 64-byte aligned
};
inline constexpr int kMaxIndexHeads = 512;

// One step of keys or values; q, acc and merged acc of all rows; scores; totals; scales.
inline constexpr int64_t attention_scratch(int64_t rows, int64_t width) {
  return kKvStep * width + rows * (3 * width + kKvStep + 2 * 16) + 2 * kKvStep;
}
inline constexpr int64_t kAttentionScratchFloats =
    attention_scratch(kLatentRows, kMaxLatentWidth) > attention_scratch(kAttentionRows, kMaxHeadDim)
        ? attention_scratch(kLatentRows, kMaxLatentWidth)
        : attention_scratch(kAttentionRows, kMaxHeadDim);

// Rows of a convolution along the positions of one sequence, all channels given:
//   out[m][c] = out_gate[m][c] * act(bias[c] + sum over j of weight[j][c] * input(m - num_taps + 1
//   + j)[c])
// added in the order of j. input(i) is in_gate[i] * x[i]; for i < 0 it is kept from before: row i +
// num_taps - 1 of `before`. Row 0 is the first of the call's run; rows [first_row, first_row +
// num_rows) are made.
struct ConvRowsArgs {
  const float* x;  // row 0; row_stride floats between rows
  int64_t row_stride;
  const float* in_gate;   // or null; as x
  const float* out_gate;  // or null; as x
  const float* weight;    // [num_taps, channels]; weight_stride floats between taps
  int64_t weight_stride;
  const float* bias;    // or null
  const float* before;  // [num_taps - 1, channels] inputs before row 0, or null: zeros
  float* after;         // inputs before row first_row + num_rows, or null; may be `before`
  int64_t state_stride;
  float* out;  // row 0; apart from x
  int64_t out_stride;
  int64_t first_row;
  int64_t num_rows;
  int64_t num_channels;
  int num_taps;
  bool silu;  // act; else none
};

// Tokens of a sequence through the state space of one head, one after the other:
//   S[n][i] = decays[m] * S[n][i] + (time_steps[m] * x[m][i]) * b[m][n]
//   out[m][i] = sum over n, in order, of S[n][i] * c[m][n], plus skip * x[m][i]
struct ScanRowsArgs {
  const float* x;  // [num_rows, head_dim]; row_stride floats between rows, as of b and c
  const float* b;  // [num_rows, state_width]
  const float* c;
  int64_t row_stride;
  const float* time_steps;  // [num_rows]
  const float* decays;      // [num_rows]
  float skip;
  const float* before;  // S [state_width, head_dim] before row 0, or null: zeros
  float* after;         // S after the last row; may be `before`
  float* out;
  int64_t out_stride;
  int64_t num_rows;
  int64_t head_dim;
  int64_t state_width;
};

// Inputs of the delta rule made ready, in place, for rows of several sequences. With a head's q, k
// [key_dim]:
//   q = q / sqrt(sum q^2 + kDeltaNormEps) * key_dim^-1/2,  k = k / sqrt(sum k^2 + kDeltaNormEps)
//   beta = sigmoid(beta),  decay = exp(decay_rate * softplus(decay + decay_bias))
// Sums run over 16 lanes (i % 16), then the lanes fold 8, 4, 2, 1.
struct DeltaInputsArgs {
  float* qkv;  // [num_rows, qkv_stride]: q, then k, key_heads of key_dim each; then not looked at
  int64_t qkv_stride;
  int64_t num_rows;
  int64_t key_heads;
  int64_t key_dim;
  int64_t value_heads;
  float* beta;  // [num_rows, beta_stride], value_heads of each
  int64_t beta_stride;
  float* decay;  // [num_rows, decay_stride], value_heads * decay_dims of each
  int64_t decay_stride;
  int64_t decay_dims;       // of a head: 1, or key_dim
  const float* decay_rate;  // [value_heads], negative
  const float* decay_bias;  // [value_heads * decay_dims]
};
inline constexpr float kDeltaNormEps = 1e-6f;

// The delta rule of one head of one sequence over rows in order. The state S [key_dim, value_dim]
// is cut into panels of 16 columns, one after the other, [key_dim][16] each; columns beyond
// value_dim are zeros. Row by row, in this order of operations, so that the bits of a row depend on
// the rows before it alone, wherever a call began (i in ascending order, from +0; one rounding per
// fma):
//   kd[i] = decay[i] * k[i]
//   p = sum over i of fma(S[i], kd[i], .)
//   e = beta * (v - p)
//   S[i] = fma(k[i], e, decay[i] * S[i])
//   out = sum over i of fma(S[i], q[i], .)
// p of a row may be made while the row before is: it reads each S[i] as that left it.
struct DeltaRowsArgs {
  const float* q;  // [key_dim] of row 0; qkv_stride floats between rows, as of k and v
  const float* k;
  const float* v;  // [value_dim]
  int64_t qkv_stride;
  const float* beta;  // one number a row
  int64_t beta_stride;
  const float* decay;  // decay_dims a row
  int64_t decay_stride;
  int64_t decay_dims;  // 1, or key_dim
  int64_t num_rows;    // at least 1
  int64_t key_dim;     // at most kMaxDeltaDim
  int64_t value_dim;
  int64_t first_panel;  // panels of this call
  int64_t num_panels;
  const float* from;  // all panels before row 0, 64-byte aligned; null: zeros
  float* to;          // and after the last row; may be `from`
  float* out;         // [value_dim] of row 0
  int64_t out_stride;
};
inline constexpr int64_t kMaxDeltaDim = 512;
// Panels that are computed at once, one item's share: with 128 key dimensions 32 KiB of state.
inline constexpr int64_t kDeltaPanels = 4;
inline constexpr int64_t delta_panel_floats(int64_t key_dim) { return key_dim * kPanel; }

// How an adapter's numbers are kept. The words of a block's two-byte numbers hold number i of its
// first half below number i of its second.
enum class AdapterForm : uint8_t {
  kF32,
  kBF16,
  kInt16,  // 65536 times a whole number; what that is of, is a factor of the rank
};
inline constexpr int64_t adapter_number_bytes(AdapterForm form) {
  return form == AdapterForm::kF32 ? 4 : 2;
}

// A matrix of an adapter as the two products below read it, from its first byte to its last:
// [blocks][ranks][kAdapterBlock], a block being of inputs (A) or outputs (B), zeros behind the last
// of them.
inline constexpr int kAdapterBlock = 32;
struct AdapterBlocks {
  const uint8_t* values;  // 64-byte aligned
  int64_t ranks;
  AdapterForm form;
};
inline constexpr int64_t adapter_block_bytes(const AdapterBlocks& blocks) {
  return blocks.ranks * kAdapterBlock * adapter_number_bytes(blocks.form);
}
inline constexpr int64_t num_adapter_blocks(int64_t count) {
  return (count + kAdapterBlock - 1) / kAdapterBlock;
}

// The first product of an adapter:
//   out[m][j] = factors[j] * sum over k of x[m][k] * a[j][k]
// kReference adds in order of k; kFma in 16 lanes (k % 16), which fold 8, 4, 2, 1.
inline constexpr int kAdapterRanks = 4;  // of A that lie together
struct ShrinkArgs {
  const float* x;  // [num_rows, num_inputs], x_stride floats between rows
  int64_t x_stride;
  int64_t num_rows;
  int64_t num_inputs;
  AdapterBlocks a;  // of kAdapterRanks; for further ranks as many of them, one behind the other
  int64_t rank;
  const float* factors;  // [rank]
  float* out;            // [num_rows, rank], out_stride floats between rows
  int64_t out_stride;
};

// The second one, added to the sums of a linear layer:
//   sums[m][n] = factors[n] * (sums[m][n] + sum over j of low[m][j] * b[j][n]) + bias[n]
// added to the sum in order of j.
struct ExpandArgs {
  const float* low;  // [num_rows, rank], low_stride floats between rows
  int64_t low_stride;
  int64_t num_rows;
  AdapterBlocks b;       // of as many ranks as there are; may be 0
  int64_t skipped;       // outputs of b's first block before output 0
  const float* factors;  // [num_outputs] or null: 1
  const float* bias;     // [num_outputs] or null: 0
  float* sums;           // sums_stride floats between rows
  int64_t sums_stride;
  int64_t num_outputs;
};

enum class KernelOp : uint8_t {
  kMatmul,
  kUnpack,
  kFinish,
  kGate,
  kNorm,
  kQkv,
  kAttention,
  kQuantise,
  kConv,
  kScan,
  kDeltaInputs,
  kDelta,
  kStoreRow,
  kLatent,
  kIndex,
  kShrink,
  kExpand,
};

struct Tile {
  uint16_t rows;     // M
  uint16_t outputs;  // N
  uint16_t inputs;   // K
};

union KernelFunction {
  void (*matmul)(const MatmulArgs&);
  void (*unpack)(const UnpackArgs&);
  void (*finish)(const FinishArgs&);
  void (*gate)(const GateArgs&);
  void (*norm)(const NormRowsArgs&);
  void (*qkv)(const QkvRowsArgs&);
  void (*attention)(const AttentionRowsArgs&);
  void (*quantise)(const QuantiseArgs&);
  void (*conv)(const ConvRowsArgs&);
  void (*scan)(const ScanRowsArgs&);
  void (*delta_inputs)(const DeltaInputsArgs&);
  void (*delta)(const DeltaRowsArgs&);
  void (*store_row)(const StoreRowArgs&);
  void (*latent)(const LatentRowsArgs&);
  void (*index)(const IndexRowArgs&);
  void (*shrink)(const ShrinkArgs&);
  void (*expand)(const ExpandArgs&);
};

struct KernelRow {
  KernelOp op;
  const char* name;
  uint32_t isa;               // IsaBits, all needed
  Layout layout;              // kMatmul, kUnpack; else kCount
  ActivationType activation;  // kMatmul, kQuantise; kFixed for a kAttention of that class
  int32_t min_rows;           // kMatmul: the M this row is meant for; any M is correct
  Tile tile;
  NumericsClass numerics;
  KernelFunction function;
};

// The rows of one translation unit of a kernel unit.
struct KernelPart {
  const KernelRow* rows;
  int num_rows;
};

struct KernelUnit {
  const char* name;  // "reference", "avx2", "avx512"
  uint32_t isa;      // needed by every row
  const KernelPart* const* parts;
  int num_parts;
};

}  // namespace headrace::cpu
