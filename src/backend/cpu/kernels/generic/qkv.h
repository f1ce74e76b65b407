// Taking the fused projection apart: norm and rope of heads, appending to the KV block.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"

namespace headrace::cpu {
namespace {

template <typename F>
void rotate(const QkvRowsArgs& args, int64_t m, float* head) {
  using V = typename F::V;
  const int half = args.rope_dims / 2;
  const float* cos = args.rope_cos + m * half;
  const float* sin = args.rope_sin + m * half;
  if (args.rope_interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = head[2 * i];
      const float b = head[2 * i + 1];
      head[2 * i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
      head[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
    }
    return;
  }
  for_columns<F>(half, [&](auto load, auto store) __attribute__((always_inline)) {
    const V a = load(head);
    const V b = load(head + half);
    const V c = load(cos);
    const V s = load(sin);
    store(head, F::fnma(b, s, F::mul(a, c)));
    store(head + half, F::fma(a, s, F::mul(b, c)));
  });
}

// One head at `head`, normed by its weight (or not), rotated, written to out.
template <typename F>
void finish_head(const QkvRowsArgs& args, int64_t m, const float* head, float factor,
                 const float* weight, float* out) {
  using V = typename F::V;
  for_columns<F>(args.head_dim, [&](auto load, auto store) __attribute__((always_inline)) {
    V value = load(head);
    if (weight != nullptr) value = F::mul(F::mul(value, F::set(factor)), load(weight));
    store(out, value);
  });
  if (args.rope_dims > 0) rotate<F>(args, m, out);
}

// Heads of one projection of one row; take(h, out) says where head h goes.
template <typename F, typename Take, typename Done>
[[gnu::always_inline]] inline void finish_heads(const QkvRowsArgs& args, int64_t m, const float* x,
                                                int count, const float* weight, const Take& take,
                                                const Done& done) {
  const int64_t dim = args.head_dim;
  float mean = 0.0f, factor = 1.0f;
  if (weight != nullptr && args.norm_whole) {
    norm_factors<F>(x, count * dim, args.norm_eps, false, &mean, &factor);
  }
  for (int h = 0; h < count; ++h) {
    const float* head = x + h * dim;
    if (weight != nullptr && !args.norm_whole) {
      norm_factors<F>(head, dim, args.norm_eps, false, &mean, &factor);
    }
    float* out = take(h);
    finish_head<F>(args, m, head, factor,
                   weight != nullptr && args.norm_whole ? weight + h * dim : weight, out);
    done(h, out);
  }
}

[[gnu::always_inline]] inline uint16_t round_to_bf16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// One head's k and v into slot `slot` of its planes; dimensions up to the padding are zero.
inline void store_head(const QkvRowsArgs& args, const float* k, const float* v, int64_t slot,
                       uint8_t* planes) {
  const int64_t dim = args.head_dim;
  const int64_t dims = padded_dim(dim);
  uint8_t* v_planes = planes + kv_plane_bytes(args.kv_type, dim);
  if (args.kv_type == KvDtype::kF32) {
    auto* keys = reinterpret_cast<float*>(planes);
    auto* values = reinterpret_cast<float*>(v_planes) + slot * dims;
    for (int64_t d = 0; d < dims; ++d) {
      keys[d * kKvBlock + slot] = d < dim ? k[d] : 0.0f;
      values[d] = d < dim ? v[d] : 0.0f;
    }
    return;
  }
  auto* keys = reinterpret_cast<uint16_t*>(planes);
  auto* values = reinterpret_cast<uint16_t*>(v_planes);
  for (int64_t d = 0; d < dims; ++d) {
    keys[((d / 2) * kKvBlock + slot) * 2 + d % 2] = d < dim ? round_to_bf16(k[d]) : uint16_t{0};
    values[((slot / 2) * dims + d) * 2 + slot % 2] = d < dim ? round_to_bf16(v[d]) : uint16_t{0};
  }
}

template <typename F>
void qkv(const QkvRowsArgs& args) {
  using V = typename F::V;
  const int64_t dim = args.head_dim;
  const int64_t q_width = args.num_heads * dim;
  const int64_t kv_width = args.num_kv_heads * dim;
  const size_t plane = kv_plane_bytes(args.kv_type, dim);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* row = args.qkv + m * (q_width + 2 * kv_width);
    float* q = args.q_out + m * q_width;
    finish_heads<F>(
        args, m, row, args.num_heads, args.q_norm, [&](int h) { return q + h * dim; },
        [&](int, float* head) {
          if (args.q_row_scale == nullptr) return;
          const V scale = F::set(args.q_row_scale[m]);
          for_columns<F>(dim, [&](auto load, auto store) __attribute__((always_inline)) {
            store(head, F::mul(load(head), scale));
          });
        });
    const int64_t position = args.first_position + m;
    uint8_t* block = args.kv_base + static_cast<size_t>(args.block_table[position / kKvBlock]) *
                                        args.kv_block_stride;
    const float* v = row + q_width + kv_width;
    float buffer[kMaxHeadDim];
    finish_heads<F>(
        args, m, row + q_width, args.num_kv_heads, args.k_norm, [&](int) { return buffer; },
        [&](int h, const float* head) {
          store_head(args, head, v + h * dim, position % kKvBlock,
                     block + static_cast<size_t>(h) * 2 * plane);
        });
  }
}

}  // namespace
}  // namespace headrace::cpu
