// The reference unit: products of float32 activations, and of bf16 pairs; weights as floats.

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/bf16_model.h"
#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/weights.h"

namespace headrace::cpu {
namespace {

void add_slice(const float* x, const float* values, int64_t count, float* total) {
  float acc[kPanel] = {};
  for (int64_t k = 0; k < count; ++k) {
    for (int n = 0; n < kPanel; ++n) acc[n] += x[k] * values[k * kPanel + n];
  }
  for (int n = 0; n < kPanel; ++n) total[n] += acc[n];
}

template <Layout kLayout>
void matmul(const MatmulArgs& args) {
  for (int64_t p = 0; p < args.num_panels; ++p) {
    float* sums = args.sums + p * kPanel;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      std::memset(sums + m * args.sums_stride, 0, kPanel * sizeof(float));
    }
    const uint8_t* panel =
        args.weight + static_cast<size_t>(args.first_panel + p) * args.panel_bytes;
    for (int64_t first = 0; first < args.num_inputs; first += kSliceInputs) {
      const int64_t count = std::min<int64_t>(kSliceInputs, args.num_inputs - first);
      unpack<kLayout>({panel, args.num_inputs, first, count, args.scratch});
      for (int64_t m = 0; m < args.num_rows; ++m) {
        add_slice(static_cast<const float*>(args.x) + m * args.x_stride + first, args.scratch,
                  count, sums + m * args.sums_stride);
      }
    }
  }
}

// x: of the pair's slice. Pairs are words of both operands.
void add_bf16_pair(const uint8_t* x, const uint8_t* weights, float* sums) {
  uint16_t pair[2];
  uint16_t words[kPanel][2];
  std::memcpy(pair, x, sizeof(pair));
  std::memcpy(words, weights, sizeof(words));
  for (int n = 0; n < kPanel; ++n) {
    for (const int i : {1, 0}) {
      sums[n] = bf16_fma(bf16_to_float(pair[i]), bf16_to_float(words[n][i]), sums[n]);
    }
  }
}

void matmul_bf16_pairs(const MatmulArgs& args) {
  constexpr int64_t kRecord = activation_record_bytes(ActivationType::kBF16);
  const auto* rows = static_cast<const uint8_t*>(args.x);
  for (int64_t p = 0; p < args.num_panels; ++p) {
    const uint8_t* panel =
        args.weight + static_cast<size_t>(args.first_panel + p) * args.panel_bytes;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      float* sums = args.sums + m * args.sums_stride + p * kPanel;
      std::memset(sums, 0, kPanel * sizeof(float));
      for (int64_t k = 0; k < args.num_inputs; k += 2) {
        const uint8_t* record = rows + k / kSliceInputs * args.x_stride + m * kRecord;
        add_bf16_pair(record + k % kSliceInputs * 2, panel + k * 32, sums);
      }
    }
  }
}

// Before float32: what is multiplied where both are chosen.
struct Bf16PairRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_bf16";
  static constexpr bool takes(const LayoutInfo& info) { return info.layout == Layout::kBF16; }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            0,
            kLayout,
            ActivationType::kBF16,
            1,
            {1, kPanel, 2},
            NumericsClass::kBf16Dot,
            {.matmul = &matmul_bf16_pairs}};
  }
};

struct FloatRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "";
  static constexpr bool takes(const LayoutInfo& info) { return !has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            0,
            kLayout,
            ActivationType::kF32,
            1,
            {1, kPanel, kSliceInputs},
            NumericsClass::kReference,
            {.matmul = &matmul<kLayout>}};
  }
};

struct UnpackRows {
  static constexpr const char* kPrefix = "unpack_";
  static constexpr const char* kSuffix = "";
  static constexpr bool takes(const LayoutInfo& /*info*/) { return true; }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kUnpack,
            name,
            0,
            kLayout,
            ActivationType::kF32,
            1,
            {1, kPanel, kSliceInputs},
            NumericsClass::kReference,
            {.unpack = &unpack<kLayout>}};
  }
};

}  // namespace

namespace reference {

extern const KernelPart kFloats;
const KernelPart kFloats = PartRows<Bf16PairRows, FloatRows, UnpackRows>::kPart;

}  // namespace reference
}  // namespace headrace::cpu
