// The two products of an adapter: rows of x with the ranks of A, these with the columns of B. How
// many rows go together decides no bit.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"

namespace headrace::cpu {
namespace {

// The halves of one rank's run of a block.
template <typename F>
struct AdapterRun {
  typename F::V first, second;
};

template <typename F, AdapterForm kForm>
[[gnu::always_inline]] inline AdapterRun<F> adapter_run(const uint8_t* block, int64_t rank) {
  const uint8_t* run = block + rank * kAdapterBlock * adapter_number_bytes(kForm);
  if constexpr (kForm == AdapterForm::kF32) {
    const auto* numbers = reinterpret_cast<const float*>(run);
    return {F::load(numbers), F::load(numbers + kAdapterBlock / 2)};
  } else {
    const typename F::I words = F::load_words(run);
    if constexpr (kForm == AdapterForm::kBF16) {
      return {F::template bf16_of_words<0>(words), F::template bf16_of_words<1>(words)};
    } else {
      return {F::to_float(F::template shift_left<16>(words)),
              F::to_float(F::and_bits(words, F::set_bits(0xFFFF0000u)))};
    }
  }
}

// Adds the products of kRows rows' inputs k .. k + 31, or of as many as `rest`, to their sums.
template <typename F, AdapterForm kForm, int kRows>
[[gnu::always_inline]] inline void shrink_block(const ShrinkArgs& args, const float* x,
                                                int64_t rest, const uint8_t* block,
                                                typename F::V (&sums)[kRows][kAdapterRanks]) {
  constexpr int kHalf = kAdapterBlock / 2;
  AdapterRun<F> inputs[kRows];
  for (int m = 0; m < kRows; ++m) {
    const float* row = x + m * args.x_stride;
    if (rest >= kAdapterBlock) {
      inputs[m] = {F::load(row), F::load(row + kHalf)};
    } else if (rest > kHalf) {
      inputs[m] = {F::load(row), F::load_part(row + kHalf, rest - kHalf)};
    } else {
      inputs[m] = {F::load_part(row, rest), F::zero()};
    }
  }
  for (int j = 0; j < kAdapterRanks; ++j) {
    const AdapterRun<F> a = adapter_run<F, kForm>(block, j);
    for (int m = 0; m < kRows; ++m) {
      sums[m][j] = F::fma(inputs[m].first, a.first, sums[m][j]);
      sums[m][j] = F::fma(inputs[m].second, a.second, sums[m][j]);
    }
  }
}

// kAdapterRanks ranks from `first` on with kRows rows from m on.
template <typename F, AdapterForm kForm, int kRows>
[[gnu::always_inline]] inline void shrink_group(const ShrinkArgs& args, int64_t first, int64_t m) {
  typename F::V sums[kRows][kAdapterRanks];
  for (auto& row : sums) {
    for (auto& sum : row) sum = F::zero();
  }
  const int64_t block_bytes = kAdapterRanks * kAdapterBlock * adapter_number_bytes(kForm);
  const float* x = args.x + m * args.x_stride;
  const uint8_t* block =
      args.a.values + first / kAdapterRanks * num_adapter_blocks(args.num_inputs) * block_bytes;
  int64_t k = 0;
  for (; k + kAdapterBlock <= args.num_inputs; k += kAdapterBlock, block += block_bytes) {
    shrink_block<F, kForm, kRows>(args, x + k, kAdapterBlock, block, sums);
  }
  if (k < args.num_inputs) {
    shrink_block<F, kForm, kRows>(args, x + k, args.num_inputs - k, block, sums);
  }
  const int64_t count = smaller(kAdapterRanks, args.rank - first);
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out + (m + r) * args.out_stride + first;
    for (int64_t j = 0; j < count; ++j) {
      out[j] = args.factors[first + j] * F::fold_sum(sums[r][j]);
    }
  }
}

template <typename F, AdapterForm kForm>
void shrink_all(const ShrinkArgs& args) {
  int64_t m = 0;
  for (; m + F::kAdapterRows <= args.num_rows; m += F::kAdapterRows) {
    for (int64_t j = 0; j < args.rank; j += kAdapterRanks) {
      shrink_group<F, kForm, F::kAdapterRows>(args, j, m);
    }
  }
  for (; m < args.num_rows; ++m) {
    for (int64_t j = 0; j < args.rank; j += kAdapterRanks) {
      shrink_group<F, kForm, 1>(args, j, m);
    }
  }
}

template <typename F>
void shrink(const ShrinkArgs& args) {
  switch (args.a.form) {
    case AdapterForm::kF32:
      return shrink_all<F, AdapterForm::kF32>(args);
    case AdapterForm::kBF16:
      return shrink_all<F, AdapterForm::kBF16>(args);
    case AdapterForm::kInt16:
      return shrink_all<F, AdapterForm::kInt16>(args);
  }
}

// What a block of outputs is added to, and how it ends; whole blocks of each.
struct ExpandPlace {
  float* sums;           // of the first row
  const float* factors;  // or null
  const float* bias;     // or null
};

template <typename F, AdapterForm kForm, int kRows>
[[gnu::always_inline]] inline void expand_block(const ExpandArgs& args, const uint8_t* block,
                                                const float* low, const ExpandPlace& place) {
  constexpr int kHalf = kAdapterBlock / 2;
  AdapterRun<F> values[kRows];
  for (int m = 0; m < kRows; ++m) {
    const float* sums = place.sums + m * args.sums_stride;
    values[m] = {F::load(sums), F::load(sums + kHalf)};
  }
  for (int64_t j = 0; j < args.b.ranks; ++j) {
    const AdapterRun<F> b = adapter_run<F, kForm>(block, j);
    for (int m = 0; m < kRows; ++m) {
      const typename F::V factor = F::set(low[m * args.low_stride + j]);
      values[m].first = F::fma(factor, b.first, values[m].first);
      values[m].second = F::fma(factor, b.second, values[m].second);
    }
  }
  for (int m = 0; m < kRows; ++m) {
    AdapterRun<F>& row = values[m];
    if (place.factors != nullptr) {
      row.first = F::mul(F::load(place.factors), row.first);
      row.second = F::mul(F::load(place.factors + kHalf), row.second);
    }
    if (place.bias != nullptr) {
      row.first = F::add(row.first, F::load(place.bias));
      row.second = F::add(row.second, F::load(place.bias + kHalf));
    }
    float* sums = place.sums + m * args.sums_stride;
    F::store(sums, row.first);
    F::store(sums + kHalf, row.second);
  }
}

// A block of which outputs [begin, end) are wanted, by way of a whole one.
template <typename F, AdapterForm kForm>
void expand_part(const ExpandArgs& args, const uint8_t* block, int64_t m, int64_t n, int64_t begin,
                 int64_t end) {
  alignas(64) float sums[kAdapterBlock] = {}, factors[kAdapterBlock] = {}, bias[kAdapterBlock] = {};
  float* own = args.sums + m * args.sums_stride + n;
  for (int64_t i = begin; i < end; ++i) {
    sums[i] = own[i - begin];
    if (args.factors != nullptr) factors[i] = args.factors[n + i - begin];
    if (args.bias != nullptr) bias[i] = args.bias[n + i - begin];
  }
  expand_block<F, kForm, 1>(
      args, block, args.low + m * args.low_stride,
      {sums, args.factors == nullptr ? nullptr : factors, args.bias == nullptr ? nullptr : bias});
  for (int64_t i = begin; i < end; ++i) own[i - begin] = sums[i];
}

// Whole blocks from output n on; returns the first output that is left.
template <typename F, AdapterForm kForm, int kRows>
int64_t expand_whole(const ExpandArgs& args, const uint8_t* block, int64_t m, int64_t n) {
  const int64_t block_bytes = adapter_block_bytes(args.b);
  for (; n + kAdapterBlock <= args.num_outputs; n += kAdapterBlock, block += block_bytes) {
    expand_block<F, kForm, kRows>(
        args, block, args.low + m * args.low_stride,
        {args.sums + m * args.sums_stride + n, args.factors == nullptr ? nullptr : args.factors + n,
         args.bias == nullptr ? nullptr : args.bias + n});
  }
  return n;
}

template <typename F, AdapterForm kForm, int kRows>
void expand_rows(const ExpandArgs& args, int64_t m) {
  const int64_t block_bytes = adapter_block_bytes(args.b);
  const uint8_t* block = args.b.values;
  int64_t n = 0;
  if (args.skipped > 0) {
    n = smaller(kAdapterBlock - args.skipped, args.num_outputs);
    for (int r = 0; r < kRows; ++r) {
      expand_part<F, kForm>(args, block, m + r, 0, args.skipped, args.skipped + n);
    }
    block += block_bytes;
  }
  const int64_t end = expand_whole<F, kForm, kRows>(args, block, m, n);
  if (end == args.num_outputs) return;
  block += (end - n) / kAdapterBlock * block_bytes;
  for (int r = 0; r < kRows; ++r) {
    expand_part<F, kForm>(args, block, m + r, end, 0, args.num_outputs - end);
  }
}

template <typename F, AdapterForm kForm>
void expand_all(const ExpandArgs& args) {
  int64_t m = 0;
  for (; m + F::kAdapterRows <= args.num_rows; m += F::kAdapterRows) {
    expand_rows<F, kForm, F::kAdapterRows>(args, m);
  }
  for (; m < args.num_rows; ++m) expand_rows<F, kForm, 1>(args, m);
}

template <typename F>
void expand(const ExpandArgs& args) {
  switch (args.b.form) {
    case AdapterForm::kF32:
      return expand_all<F, AdapterForm::kF32>(args);
    case AdapterForm::kBF16:
      return expand_all<F, AdapterForm::kBF16>(args);
    case AdapterForm::kInt16:
      return expand_all<F, AdapterForm::kInt16>(args);
  }
}

}  // namespace
}  // namespace headrace::cpu
