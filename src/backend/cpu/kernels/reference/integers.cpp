// The reference unit: products of integer activations with coded panels.

#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/weights.h"

namespace headrace::cpu {
namespace {

// The activations X of inputs [first, first + count) of a record, all of one block (kernels.h).
template <ActivationType kType>
void read_activations(const uint8_t* record, int first, int count, int16_t* out) {
  const uint8_t* high =
      record + first / kActivationBlock * activation_code_bytes(kType) + first % kActivationBlock;
  const uint8_t* low = high + kActivationBlock;
  for (int k = 0; k < count; ++k) {
    const int x = static_cast<int8_t>(high[k]);
    out[k] = static_cast<int16_t>(
        kType == ActivationType::kInt8 ? x : 256 * x + static_cast<int8_t>(low[k]));
  }
}

BlockFactors factors_at(const uint8_t* record, ActivationType type, int block) {
  BlockFactors factors;
  std::memcpy(&factors,
              record + kSliceBlocks * activation_code_bytes(type) +
                  static_cast<size_t>(block) * sizeof(factors),
              sizeof(factors));
  return factors;
}

// Inputs that share weight factors, all lanes: whole numbers, and the factors.
struct SubBlock {
  int16_t values[kPanel][kActivationBlock];
  float scale[kPanel];
  float offset[kPanel];
};

SubBlock read_sub_block(const LayoutInfo& info, const uint8_t* panel, int64_t first, int count) {
  const ChunkOffsets at = chunk_offsets(info);
  const uint8_t* chunk = panel + (first / info.block_inputs) * info.chunk_bytes;
  const int in_chunk = static_cast<int>(first % info.block_inputs);
  SubBlock sub;
  for (int k = 0; k < count; ++k) {
    float values[kPanel];
    code_values(info, at, chunk, in_chunk + k, values);
    for (int n = 0; n < kPanel; ++n) sub.values[n][k] = static_cast<int16_t>(values[n]);
  }
  block_factors(info, chunk, info.num_sub_blocks > 0 ? in_chunk / count : 0, sub.scale, sub.offset);
  return sub;
}

int32_t dot(const int16_t* a, const int16_t* b, int count) {
  int32_t sum = 0;
  for (int k = 0; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

// Adds the products of one row with inputs [first, first + count) of the panel to sums.
template <ActivationType kType>
void add_sub_block(const LayoutInfo& info, const SubBlock& sub, const uint8_t* record,
                   int64_t first, int count, float* sums) {
  const int in_slice = static_cast<int>(first % kSliceInputs);
  int16_t activations[kActivationBlock];
  read_activations<kType>(record, in_slice, count, activations);
  int32_t total[kPanel];
  for (int n = 0; n < kPanel; ++n) total[n] = dot(sub.values[n], activations, count);
  const BlockFactors x = factors_at(record, kType, in_slice / kActivationBlock);
  const float x_sum = count == kActivationBlock ? x.sum : x.half_sums[in_slice / count % 2];
  for (int n = 0; n < kPanel; ++n) {
    sums[n] = std::fma(static_cast<float>(total[n]), sub.scale[n] * x.scale, sums[n]);
    if (info.min_bytes != 0) sums[n] = std::fma(sub.offset[n], x_sum, sums[n]);
  }
}

// Codes are read once for all rows; sums stay where they are written.
template <Layout kLayout, ActivationType kType>
void matmul_integer(const MatmulArgs& args) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  constexpr int kCount = sub_block_inputs(kInfo);
  const auto* rows = static_cast<const uint8_t*>(args.x);
  for (int64_t p = 0; p < args.num_panels; ++p) {
    const uint8_t* panel =
        args.weight + static_cast<size_t>(args.first_panel + p) * args.panel_bytes;
    float* sums = args.sums + p * kPanel;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      std::memset(sums + m * args.sums_stride, 0, kPanel * sizeof(float));
    }
    for (int64_t k = 0; k < args.num_inputs; k += kCount) {
      const SubBlock sub = read_sub_block(kInfo, panel, k, kCount);
      const uint8_t* slice = rows + (k / kSliceInputs) * args.x_stride;
      for (int64_t m = 0; m < args.num_rows; ++m) {
        add_sub_block<kType>(kInfo, sub, slice + m * activation_record_bytes(kType), k, kCount,
                             sums + m * args.sums_stride);
      }
    }
  }
}

template <ActivationType kType>
struct IntegerRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = kType == ActivationType::kInt16 ? "_int16" : "_int8";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            0,
            kLayout,
            kType,
            1,
            {1, kPanel, kActivationBlock},
            NumericsClass::kInteger,
            {.matmul = &matmul_integer<kLayout, kType>}};
  }
};

}  // namespace

namespace reference {

extern const KernelPart kIntegers;
const KernelPart kIntegers =
    PartRows<IntegerRows<ActivationType::kInt16>, IntegerRows<ActivationType::kInt8>>::kPart;

}  // namespace reference
}  // namespace headrace::cpu
