// Integer activations times coded panels, each code used as it comes from memory; see
// int_scratch.h.
#pragma once

#include "backend/cpu/kernels/generic/int_scratch.h"

namespace headrace::cpu {
namespace {

// Factors as unpack_factors leaves them in the scratch of kPanels panels.
template <typename F, Layout kLayout, int kPanels>
[[gnu::always_inline]] inline typename CodedWeights<F, kLayout>::Factors load_factors(
    const uint8_t* scratch, int sub, int panel) {
  using S = SliceScratch<kPanels>;
  const uint8_t* place = scratch + 64 * (sub * kPanels + panel);
  typename CodedWeights<F, kLayout>::Factors f;
  f.scale = F::load(reinterpret_cast<const float*>(place + S::kScales));
  f.offset = F::zero();
  f.zero = F::zero_words();
  if constexpr (CodedWeights<F, kLayout>::kHasMinimum) {
    f.offset = F::load(reinterpret_cast<const float*>(place + S::kOffsets));
  }
  return f;
}

// Blocks of kRows rows times kPanels panels, added to totals.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
struct DirectBlock {
  using V = typename F::V;
  using I = typename F::I;
  using W = CodedWeights<F, kLayout>;
  using Sums = ProductSums<F, kRows, kPanels>;  // with one term of x
  static constexpr bool kTwoTerms = kType == ActivationType::kInt16;
  static constexpr int kMaxCode = code_bound(W::kMaxCode);
  static constexpr int kGroups = 8 / W::kFactorsPerUnit;
  static constexpr int64_t kRecord = activation_record_bytes(kType);

  const typename W::Unit* units;
  const uint8_t* unpacked;  // factors of the super-block
  const uint8_t* x;         // codes of the first row's block, a record apart from the next row's
  const uint8_t* factors;   // likewise
  const uint8_t* next;      // a unit of the first panel that is asked for meanwhile
  int64_t panel_bytes;      // from there to those of the other panels

  template <int kPart>
  [[gnu::always_inline]] void start(Sums& high, Sums& low) const {
    for (int r = 0; r < kRows; ++r) {
      I first = F::zero_words();
      if constexpr (W::kZero != 0) {
        first = F::template shift_left<log2_of(W::kZero)>(
            F::broadcast_word(x_minus_sum_at<W::kSubInputs>(factors + r * kRecord, kPart)));
      }
      for (int p = 0; p < kPanels; ++p) {
        high.words[r][p] = F::zero_words();
        low.words[r][p] = first;
      }
    }
  }

  template <int kGroup>
  [[gnu::always_inline]] void multiply(Sums& high, Sums& low) const {
    I codes[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      codes[p] = W::template code_bytes<kGroup>(units[p].low, units[p].high);
      W::template lines_of_group<kGroup>(
          [&](int at) __attribute__((always_inline)) { F::prefetch(next + p * panel_bytes + at); });
    }
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* at = x + r * kRecord + kGroup * 4;
      I x_high = F::zero_words();
      if constexpr (kTwoTerms) x_high = F::broadcast_word(at);
      const I x_low = F::broadcast_word(at + (kTwoTerms ? kActivationBlock : 0));
      for (int p = 0; p < kPanels; ++p) {
        constexpr int kOfPart = kGroup % kGroups;
        if constexpr (kTwoTerms) {
          add_products<F, kMaxCode, kOfPart, kGroups>(codes[p], x_high, high.halves[r][p],
                                                      high.words[r][p]);
        }
        add_products<F, kMaxCode, kOfPart, kGroups>(codes[p], x_low, low.halves[r][p],
                                                    low.words[r][p]);
      }
    }
  }

  [[gnu::always_inline]] typename W::Factors factors_of(int panel, int part) const {
    if constexpr (W::kHasSubs) {
      return load_factors<F, kLayout, kPanels>(unpacked, units[panel].first_sub + part, panel);
    } else {
      return W::factors(units[panel].chunk, 0);
    }
  }

  template <int kPart>
  [[gnu::always_inline]] void add_scaled(const Sums& high, const Sums& low,
                                         V (&totals)[kRows][kPanels]) const {
    for (int p = 0; p < kPanels; ++p) {
      const typename W::Factors f = factors_of(p, kPart);
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* of_row = factors + r * kRecord;
        I sum = low.words[r][p];
        if constexpr (kTwoTerms) {
          sum = F::add_words(F::template shift_left<8>(high.words[r][p]), sum);
        }
        if constexpr (W::kHasLaneZero) {
          const I minus = F::broadcast_word(x_minus_sum_at<W::kSubInputs>(of_row, kPart));
          sum = F::add_words(sum, F::mul_words(f.zero, minus));
        }
        V& total = totals[r][p];
        total = F::fma(F::to_float(sum), F::mul(f.scale, F::set(load_float(of_row))), total);
        if constexpr (W::kHasMinimum) {
          const V x_sum = F::set(load_float(x_sum_at<W::kSubInputs>(of_row, kPart)));
          total = F::fma(f.offset, x_sum, total);
        }
      }
    }
  }

  [[gnu::always_inline]] void add_to(V (&totals)[kRows][kPanels]) const {
    unrolled<0, W::kFactorsPerUnit>([&](auto part) __attribute__((always_inline)) {
      Sums high, low;
      start<part.value>(high, low);
      unrolled<part.value * kGroups, (part.value + 1) * kGroups>(
          [&](auto g) __attribute__((always_inline)) { multiply<g.value>(high, low); });
      add_scaled<part.value>(high, low, totals);
    });
  }
};

inline constexpr int64_t kPrefetchAhead =
    8192;  // bytes, in each panel's stream; 1.5 KiB to 24 KiB were tried

// One row times one panel (relative to args.first_panel), read from front to back.
template <typename F, Layout kLayout, ActivationType kType>
__attribute__((noinline)) void integer_direct_panel(const MatmulArgs& args, const uint8_t* x,
                                                    int64_t panel, float* sums) {
  using V = typename F::V;
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<1>;
  const uint8_t* weight =
      args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes;
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  V totals[1][1] = {{F::zero()}};
  for (int64_t slice = 0; slice < args.num_inputs; slice += kSliceInputs) {
    const uint8_t* record = x + slice / kSliceInputs * args.x_stride;
    const auto num_blocks =
        static_cast<int>(smaller(kSliceInputs, args.num_inputs - slice) / kActivationBlock);
    if constexpr (W::kHasSubs) {
      unpack_factors<F, kLayout>(W::unit_at(weight, slice).chunk, scratch + S::kScales,
                                 scratch + S::kOffsets, 64);
    }
    const uint8_t* stream = weight + slice / W::kUnit * W::kUnitBytes;
    for (int block = 0; block < num_blocks; ++block) {
      const typename W::Unit unit = W::unit_at(weight, slice + block * kActivationBlock);
      const DirectBlock<F, kLayout, kType, 1, 1> products{
          &unit,
          scratch,
          record + block * activation_code_bytes(kType),
          block_factors(record, kType, block),
          stream + kPrefetchAhead,
          0};
      products.add_to(totals);
      stream += W::kUnitBytes;
    }
  }
  F::store(sums + panel * kPanel, totals[0][0]);
}

// The part of kPanels panels that the tiles of a slice read.
struct DirectSlice {
  const uint8_t* weight;  // of the first panel
  int64_t panel_bytes;
  int64_t first;  // input
  int num_blocks;
  int64_t ahead;            // bytes to prefetch ahead
  const uint8_t* unpacked;  // factors of the super-block
};

// kRows rows times kPanels panels over the blocks of a slice, added to sums: each code is expanded
// in a register and used for all rows at once. x: record of the first row.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
__attribute__((noinline)) void direct_tile(const DirectSlice& slice, const uint8_t* x, float* sums,
                                           int64_t sums_stride) {
  using V = typename F::V;
  using W = CodedWeights<F, kLayout>;
  V totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);
    }
  }
  const uint8_t* stream = slice.weight + slice.first / W::kUnit * W::kUnitBytes + slice.ahead;
  for (int block = 0; block < slice.num_blocks; ++block) {
    typename W::Unit units[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      units[p] =
          W::unit_at(slice.weight + p * slice.panel_bytes, slice.first + block * kActivationBlock);
    }
    const DirectBlock<F, kLayout, kType, kRows, kPanels> products{
        units,
        slice.unpacked,
        x + block * activation_code_bytes(kType),
        block_factors(x, kType, block),
        stream,
        slice.panel_bytes};
    products.add_to(totals);
    stream += W::kUnitBytes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) F::store(sums + r * sums_stride + p * kPanel, totals[r][p]);
  }
}

// Rows of a tile of kPanels panels at most. A last odd panel is rare: it takes what code there is.
template <typename F, ActivationType kType, int kPanels>
inline constexpr int kDirectTileRows = kPanels == 1 ? 2 : kIntegerDirectRows<F, kType>;

// All rows in tiles, as equal as may be. Only the first prefetches: the others find its lines in
// the cache.
template <typename F, Layout kLayout, ActivationType kType, int kRows, int kPanels>
void direct_rows(DirectSlice slice, const uint8_t* x, float* sums, int64_t sums_stride,
                 int64_t num_rows) {
  if constexpr (kRows > 0) {
    constexpr int64_t kLargest = kDirectTileRows<F, kType, kPanels>;
    int64_t num_tiles = (num_rows + kLargest - 1) / kLargest;
    while (num_tiles > 0 && (num_rows + num_tiles - 1) / num_tiles == kRows) {
      direct_tile<F, kLayout, kType, kRows, kPanels>(slice, x, sums, sums_stride);
      slice.ahead = 0;
      x += kRows * activation_record_bytes(kType);
      sums += kRows * sums_stride;
      num_rows -= kRows;
      --num_tiles;
    }
    direct_rows<F, kLayout, kType, kRows - 1, kPanels>(slice, x, sums, sums_stride, num_rows);
  }
}

// All rows times kPanels panels from `panel` on, a slice of all of them at a time.
template <typename F, Layout kLayout, ActivationType kType, int kPanels>
void direct_panels(const MatmulArgs& args, int64_t panel) {
  using W = CodedWeights<F, kLayout>;
  using S = SliceScratch<kPanels>;
  auto* scratch = reinterpret_cast<uint8_t*>(args.scratch);
  const auto panel_bytes = static_cast<int64_t>(args.panel_bytes);
  const uint8_t* weight = args.weight + (args.first_panel + panel) * panel_bytes;
  float* sums = args.sums + panel * kPanel;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int p = 0; p < kPanels; ++p) F::store(sums + m * args.sums_stride + p * kPanel, F::zero());
  }
  for (int64_t first = 0; first < args.num_inputs; first += kSliceInputs) {
    const int64_t count = smaller(kSliceInputs, args.num_inputs - first);
    if constexpr (W::kHasSubs) {
      for (int p = 0; p < kPanels; ++p) {
        unpack_factors<F, kLayout>(W::unit_at(weight + p * panel_bytes, first).chunk,
                                   scratch + S::kScales + 64 * p, scratch + S::kOffsets + 64 * p,
                                   64 * kPanels);
      }
    }
    // Past the end of a panel comes the panel that this stream reads next.
    const int64_t place = first / W::kUnit * W::kUnitBytes + kPrefetchAhead;
    const int64_t skipped = place < panel_bytes ? 0 : (kPanels - 1) * panel_bytes;
    const DirectSlice slice{weight,
                            panel_bytes,
                            first,
                            static_cast<int>(count / kActivationBlock),
                            kPrefetchAhead + skipped,
                            scratch};
    direct_rows<F, kLayout, kType, kDirectTileRows<F, kType, kPanels>, kPanels>(
        slice, static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride, sums,
        args.sums_stride, args.num_rows);
  }
}

template <typename F, Layout kLayout, ActivationType kType>
void matmul_integer_direct(const MatmulArgs& args) {
  int64_t panel = 0;
  if constexpr (kIntegerDirectRows<F, kType> > 1) {
    if (args.num_rows > 1) {
      constexpr int kPanels = F::kIntegerPanels;
      for (; panel + kPanels <= args.num_panels; panel += kPanels) {
        direct_panels<F, kLayout, kType, kPanels>(args, panel);
      }
      for (; panel < args.num_panels; ++panel) direct_panels<F, kLayout, kType, 1>(args, panel);
      return;
    }
  }
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + row * activation_record_bytes(kType);
    for (panel = 0; panel < args.num_panels; ++panel) {
      integer_direct_panel<F, kLayout, kType>(args, x, panel, args.sums + row * args.sums_stride);
    }
  }
}

// Rows of the unit: see rows.h.
template <typename F, ActivationType kType>
struct IntegerDirectRows {
  static constexpr const char* kPrefix = "matmul_";
  static constexpr const char* kSuffix =
      kType == ActivationType::kInt16 ? "_int16_direct" : "_int8_direct";
  static constexpr bool takes(const LayoutInfo& info) { return has_integer_codes(info); }
  template <Layout kLayout>
  static constexpr KernelRow row(const char* name) {
    return {KernelOp::kMatmul,
            name,
            F::kIsa,
            kLayout,
            kType,
            1,
            {kIntegerDirectRows<F, kType>, F::kIntegerPanels * kPanel, kActivationBlock},
            NumericsClass::kInteger,
            {.matmul = &matmul_integer_direct<F, kLayout, kType>}};
  }
};

}  // namespace
}  // namespace headrace::cpu
