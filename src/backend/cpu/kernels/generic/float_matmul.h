// Matrix products of float32 activations with dense panels and 8-bit floats, class kFma.
//
// direct: weights go from memory through registers to the sums of one row or of a tile of few rows,
// where reading the weights is the cost. blocked: a slice of two panels is unpacked once into
// scratch and used by all rows. All start each slice from +0, take its inputs in order and fold it
// into the total, so they agree bit for bit.
#pragma once

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/generic/weights.h"

namespace headrace::cpu {
namespace {

inline constexpr int64_t kPrefetchBytes = 1536;  // ahead, in each panel's stream

// One row times kPanels panels from `panel` (relative to args.first_panel).
template <typename F, Layout kLayout, int kPanels>
__attribute__((noinline)) void direct_tile(const MatmulArgs& args, const float* x, int64_t panel,
                                           float* sums) {
  using V = typename F::V;
  using W = Weights<F, kLayout>;
  const uint8_t* weight =
      args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
  V total[kPanels];
  for (int p = 0; p < kPanels; ++p) total[p] = F::zero();
  int64_t stream = 0;  // bytes of each panel that have been read
  const auto stream_end = static_cast<int64_t>(args.panel_bytes);
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    const int64_t slice_end = smaller(slice + kSliceInputs, args.num_inputs);
    V acc[kPanels];
    for (int p = 0; p < kPanels; ++p) acc[p] = F::zero();
    for (int64_t k = slice; k < slice_end; k += W::kUnit) {
      // Past the end of a panel comes the panel that this stream reads next.
      const int64_t ahead = stream + kPrefetchBytes;
      const int64_t place = ahead < stream_end ? ahead : ahead + (kPanels - 1) * stream_end;
      for (int p = 0; p < kPanels; ++p) {
        for (int line = 0; line < W::kUnitBytes; line += 64) {
          F::prefetch(weight + p * stream_end + place + line);
        }
      }
      stream += W::kUnitBytes;
      const float* xk = x + k;
      W::template visit<kPanels>(weight, args.panel_bytes, k, slice_end - k,
                                 [&](auto p, auto i, V w) __attribute__((always_inline)) {
                                   acc[p.value] = F::fma(w, F::set(xk[i.value]), acc[p.value]);
                                 });
    }
    for (int p = 0; p < kPanels; ++p) total[p] = F::add(total[p], acc[p]);
  }
  for (int p = 0; p < kPanels; ++p) F::store(sums + (panel + p) * kPanel, total[p]);
}

// kRows rows times kPanels panels of a slice, added to their totals. weight: of the first panel; x:
// of the first row, at the slice; ahead: bytes to prefetch ahead.
template <typename F, Layout kLayout, int kRows, int kPanels>
__attribute__((noinline)) void direct_rows_tile(const MatmulArgs& args, const uint8_t* weight,
                                                const float* x, int64_t slice, int64_t ahead,
                                                float* sums) {
  using V = typename F::V;
  using W = Weights<F, kLayout>;
  const auto stride = static_cast<int64_t>(args.panel_bytes);
  const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
  const uint8_t* stream = weight + slice / W::kUnit * W::kUnitBytes + ahead;
  V acc[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) acc[r][p] = F::zero();
  }
  for (int64_t k = 0; k < count; k += W::kUnit) {
    for (int p = 0; p < kPanels; ++p) {
      for (int line = 0; line < W::kUnitBytes; line += 64) F::prefetch(stream + p * stride + line);
    }
    stream += W::kUnitBytes;
    const float* xk = x + k;
    W::template visit<kPanels>(weight, args.panel_bytes, slice + k, count - k,
                               [&](auto p, auto i, V w) __attribute__((always_inline)) {
                                 for (int r = 0; r < kRows; ++r) {
                                   const V xv = F::set(xk[r * args.x_stride + i.value]);
                                   acc[r][p.value] = F::fma(w, xv, acc[r][p.value]);
                                 }
                               });
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* total = sums + r * args.sums_stride + p * kPanel;
      F::store(total, F::add(F::load(total), acc[r][p]));
    }
  }
}

// All rows of a slice in tiles of at most F::kDenseRows, as equal as may be. Only the first
// prefetches from memory: the others find its lines in the cache.
template <typename F, Layout kLayout, int kRows, int kPanels>
void direct_slice_rows(const MatmulArgs& args, const uint8_t* weight, int64_t slice, int64_t panel,
                       int64_t row) {
  if constexpr (kRows > 0) {
    int64_t num_tiles = (args.num_rows - row + F::kDenseRows - 1) / F::kDenseRows;
    while (num_tiles > 0 && (args.num_rows - row + num_tiles - 1) / num_tiles == kRows) {
      direct_rows_tile<F, kLayout, kRows, kPanels>(
          args, weight, static_cast<const float*>(args.x) + row * args.x_stride + slice, slice,
          row == 0 ? kPrefetchBytes : 0, args.sums + row * args.sums_stride + panel * kPanel);
      row += kRows;
      --num_tiles;
    }
    direct_slice_rows<F, kLayout, kRows - 1, kPanels>(args, weight, slice, panel, row);
  }
}

template <typename F, Layout kLayout, int kPanels>
int64_t direct_rows_panels(const MatmulArgs& args, int64_t panel) {
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    const uint8_t* weight =
        args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      for (int p = 0; p < kPanels; ++p) {
        F::store(args.sums + m * args.sums_stride + (panel + p) * kPanel, F::zero());
      }
    }
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      direct_slice_rows<F, kLayout, F::kDenseRows, kPanels>(args, weight, slice, panel, 0);
    }
  }
  return panel;
}

template <typename F, Layout kLayout>
void matmul_direct(const MatmulArgs& args) {
  if (args.num_rows != 1) {
    const int64_t panel = direct_rows_panels<F, kLayout, F::kDenseRowsPanels>(args, 0);
    direct_rows_panels<F, kLayout, 1>(args, panel);
    return;
  }
  constexpr bool kIsDense = layout_info(kLayout).low_bits == 0;
  constexpr int kPanels = F::kDenseDirectPanels / (kIsDense ? 1 : 2);  // 8-bit floats have scales
  const float* x = static_cast<const float*>(args.x);
  int64_t panel = 0;
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    direct_tile<F, kLayout, kPanels>(args, x, panel, args.sums);
  }
  for (; panel < args.num_panels; ++panel) {
    direct_tile<F, kLayout, 1>(args, x, panel, args.sums);
  }
}

// kRows rows times kPanels unpacked panels, added to their totals. values: [count, kPanels * 16].
template <typename F, int kPanels, int kRows>
void blocked_tile(const float* values, const float* x, int64_t x_stride, int64_t count, float* sums,
                  int64_t sums_stride) {
  using V = typename F::V;
  V acc[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) acc[r][p] = F::zero();
  }
  for (int64_t k = 0; k < count; ++k) {
    V w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = F::load(values + (k * kPanels + p) * kPanel);
    for (int r = 0; r < kRows; ++r) {
      const V xv = F::set(x[r * x_stride + k]);
      for (int p = 0; p < kPanels; ++p) acc[r][p] = F::fma(w[p], xv, acc[r][p]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* total = sums + r * sums_stride + p * kPanel;
      F::store(total, F::add(F::load(total), acc[r][p]));
    }
  }
}

template <typename F, int kPanels, int kRows>
int64_t blocked_rows(const MatmulArgs& args, int64_t panel, int64_t slice, int64_t row) {
  const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
  for (; row + kRows <= args.num_rows; row += kRows) {
    blocked_tile<F, kPanels, kRows>(
        args.scratch, static_cast<const float*>(args.x) + row * args.x_stride + slice,
        args.x_stride, count, args.sums + row * args.sums_stride + panel * kPanel,
        args.sums_stride);
  }
  if constexpr (kRows > 1) {
    constexpr int kNext = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows > 2 ? 2 : 1;
    return blocked_rows<F, kPanels, kNext>(args, panel, slice, row);
  }
  return row;
}

template <typename F, Layout kLayout, int kPanels>
int64_t blocked_panels(const MatmulArgs& args, int64_t panel) {
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    const uint8_t* weight =
        args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
    for (int64_t m = 0; m < args.num_rows; ++m) {
      for (int p = 0; p < kPanels; ++p) {
        F::store(args.sums + m * args.sums_stride + (panel + p) * kPanel, F::zero());
      }
    }
    for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
      const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);
      for (int p = 0; p < kPanels; ++p) {
        unpack_slice<F, kLayout>(weight + static_cast<size_t>(p) * args.panel_bytes, slice, count,
                                 args.scratch + p * kPanel, kPanels * kPanel);
      }
      blocked_rows<F, kPanels, F::kBlockRows>(args, panel, slice, 0);
    }
  }
  return panel;
}

template <typename F, Layout kLayout>
void matmul_blocked(const MatmulArgs& args) {
  const int64_t panel = blocked_panels<F, kLayout, F::kBlockPanels>(args, 0);
  if constexpr (F::kBlockPanels > 1) blocked_panels<F, kLayout, 1>(args, panel);
}

// From here on a slice is unpacked once for all rows, not converted for each tile of them
// (measured).
template <typename F, Layout kLayout>
constexpr int32_t min_float_blocked_rows() {
  constexpr bool kIsFloat8 = layout_info(kLayout).low_bits != 0;
  if (F::kBlockPanels == 1) return kIsFloat8 ? 6 : 12;
  if (kIsFloat8) return 12;
  return kLayout == Layout::kF16 ? 24 : 96;
}

template <typename F>
struct FloatDirectRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_direct";
  static constexpr bool takes(const LayoutInfo& info) { return !has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            F::kIsa,
            kLayout,
            ActivationType::kF32,
            1,
            {F::kDenseRows, F::kDenseDirectPanels * kPanel, kSliceInputs},
            NumericsClass::kFma,
            {.matmul = &matmul_direct<F, kLayout>}};
  }
};

template <typename F>
struct FloatBlockedRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix = "_blocked";
  static constexpr bool takes(const LayoutInfo& info) { return !has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            F::kIsa,
            kLayout,
            ActivationType::kF32,
            min_float_blocked_rows<F, kLayout>(),
            {F::kBlockRows, F::kBlockPanels * kPanel, kSliceInputs},
            NumericsClass::kFma,
            {.matmul = &matmul_blocked<F, kLayout>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
