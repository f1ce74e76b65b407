// One token's vector into a plane of its own.
#pragma once

#include "backend/cpu/kernels/generic/qkv.h"

namespace headrace::cpu {
namespace {

template <typename F, KvDtype kType>
void store_row_of(const StoreRowArgs& args) {
  alignas(64) float x[kMaxLatentWidth];  // zeros beyond the width
  const int64_t dims = padded_dim(args.width);
  __builtin_memcpy(x, args.x, static_cast<size_t>(args.width) * sizeof(float));
  for (int64_t d = args.width; d < dims; ++d) x[d] = 0.0f;
  float factor = 1.0f;
  if constexpr (kv_is_scaled(kType)) {
    const float scale = make_scale<F, kType>(x, dims, &factor);
    const size_t at = kv_scales_offset(kType, dims) + static_cast<size_t>(args.slot) * 4;
    __builtin_memcpy(args.plane + at, &scale, sizeof(scale));
  }
  if (args.order == KvOrder::kKeys) {
    store_keys<F, kType>(x, dims, factor, args.slot, args.plane);
  } else {
    store_values<F, kType>(x, dims, factor, args.slot, args.plane);
  }
}

template <typename F>
void store_row(const StoreRowArgs& args) {
  using Fn = void (*)(const StoreRowArgs&);
  constexpr Fn kTypes[kNumKvDtypes] = {
      &store_row_of<F, KvDtype::kF32>,  &store_row_of<F, KvDtype::kBF16>,
      &store_row_of<F, KvDtype::kF16>,  &store_row_of<F, KvDtype::kFp8>,
      &store_row_of<F, KvDtype::kInt8>, &store_row_of<F, KvDtype::kInt16>};
  kTypes[static_cast<int>(args.type)](args);
}

}  // namespace
}  // namespace headrace::cpu
