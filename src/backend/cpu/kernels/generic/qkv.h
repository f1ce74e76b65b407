// Taking the fused projection apart: norm and rope of heads, appending to the KV block.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"
#include "backend/cpu/kernels/generic/kv_codes.h"

namespace headrace::cpu {
namespace {

template <typename F>
void rotate(const QkvRowsArgs& args, int64_t m, float* head) {
  using V = typename F::V;
  const int half = args.rope_dims / 2;
  const float* cos = args.rope_cos + m * half;
  const float* sin = args.rope_sin + m * half;
  if (args.rope_interleaved) {
    float first[kMaxHeadDim / 2], second[kMaxHeadDim / 2];
    for (int i = 0; i < half; ++i) {
      first[i] = head[2 * i];
      second[i] = head[2 * i + 1];
    }
    for_columns<F>(half, [&](auto load, auto store) __attribute__((always_inline)) {
      const V a = load(first);
      const V b = load(second);
      const V c = load(cos);
      const V s = load(sin);
      store(first, F::fnma(b, s, F::mul(a, c)));
      store(second, F::fma(a, s, F::mul(b, c)));
    });
    for (int i = 0; i < half; ++i) {
      head[2 * i] = first[i];
      head[2 * i + 1] = second[i];
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

struct HeadNorm {
  float mean = 0.0f, factor = 1.0f;
  const float* weight = nullptr;  // of the head, or null
};

// out = from, normed where there is a weight.
template <typename F>
[[gnu::always_inline]] inline void norm_head(const QkvRowsArgs& args, const float* from,
                                             const HeadNorm& norm, float* out) {
  using V = typename F::V;
  for_columns<F>(args.head_dim, [&](auto load, auto store) __attribute__((always_inline)) {
    V value = load(from);
    if (args.norm_layer) value = F::sub(value, F::set(norm.mean));
    if (norm.weight != nullptr) {
      value = F::mul(F::mul(value, F::set(norm.factor)), load(norm.weight));
    }
    store(out, value);
  });
}

template <typename F>
[[gnu::always_inline]] inline void clip_head(const QkvRowsArgs& args, float* head) {
  if (args.clip <= 0) return;
  for_columns<F>(args.head_dim, [&](auto load, auto store) __attribute__((always_inline)) {
    store(head, F::min(F::max(load(head), F::set(-args.clip)), F::set(args.clip)));
  });
}

// One head at `head`, normed by its weight (or not), rotated, written to out. The norm after the
// rotation is of what that gave, which a factor of the rope may have scaled.
template <typename F>
void finish_head(const QkvRowsArgs& args, int64_t m, const float* head, HeadNorm norm, float* out) {
  norm_head<F>(args, head, args.norm_after_rope ? HeadNorm{} : norm, out);
  clip_head<F>(args, out);
  if (args.rope_dims > 0) rotate<F>(args, m, out);
  if (!args.norm_after_rope || norm.weight == nullptr) return;
  norm_factors<F>(out, args.head_dim, args.norm_eps, args.norm_layer, &norm.mean, &norm.factor);
  norm_head<F>(args, out, norm, out);
}

// Heads of one projection of one row; take(h, out) says where head h goes.
template <typename F, typename Take, typename Done>
[[gnu::always_inline]] inline void finish_heads(const QkvRowsArgs& args, int64_t m, const float* x,
                                                int count, const float* weight, const Take& take,
                                                const Done& done) {
  const int64_t dim = args.head_dim;
  HeadNorm norm;
  if (weight != nullptr && args.norm_whole) {
    norm_factors<F>(x, count * dim, args.norm_eps, false, &norm.mean, &norm.factor);
  }
  for (int h = 0; h < count; ++h) {
    const float* head = x + h * dim;
    if (weight != nullptr && !args.norm_whole) {
      norm_factors<F>(head, dim, args.norm_eps, args.norm_layer, &norm.mean, &norm.factor);
    }
    const bool own_weight = args.norm_whole || args.norm_layer;
    norm.weight = weight != nullptr && own_weight ? weight + h * dim : weight;
    float* out = take(h);
    finish_head<F>(args, m, head, norm, out);
    done(h, out);
  }
}

// The values of a head, normed if the layer norms them.
template <typename F>
void finish_values(const QkvRowsArgs& args, const float* v, float* out) {
  using V = typename F::V;
  float mean = 0.0f, factor = 1.0f;
  if (args.norm_v) norm_factors<F>(v, args.head_dim, args.norm_eps, false, &mean, &factor);
  for_columns<F>(args.head_dim, [&](auto load, auto store) __attribute__((always_inline)) {
    const V value = load(v);
    store(out, args.norm_v ? F::mul(value, F::set(factor)) : value);
  });
}

// Writes one head's k into slot `slot` of its plane. x holds the padded head.
template <typename F, KvDtype kType>
void store_keys(const float* x, int64_t dims, float factor, int64_t slot, uint8_t* plane) {
  constexpr int kCodes = kv_word_codes(kType);
  alignas(64) uint32_t codes[kMaxHeadDim];
  for (int64_t d = 0; d < dims; d += 16) {
    F::store_words(reinterpret_cast<uint8_t*>(codes + d),
                   make_code<F, kType>(F::load(x + d), factor));
  }
  uint8_t* to = plane + slot * 4;
  for (int64_t d = 0; d < dims; d += kCodes, to += kv_line_bytes(kType)) {
    uint32_t word = 0, low = 0;
    for (int i = 0; i < kCodes; ++i) {
      const uint32_t code = codes[d + i];
      if constexpr (kType == KvDtype::kInt16) {
        word |= ((code + 128) >> 8 & 0xFF) << (8 * i);
        low |= (code & 0xFF) << (8 * i);
      } else {
        word |= code << (32 / kCodes * i);
      }
    }
    __builtin_memcpy(to, &word, sizeof(word));
    if constexpr (kType == KvDtype::kInt16) __builtin_memcpy(to + 64, &low, sizeof(low));
  }
}

// The same for v: its codes are merged into the words that neighbouring positions share.
template <typename F, KvDtype kType>
void store_values(const float* x, int64_t dims, float factor, int64_t slot, uint8_t* plane) {
  constexpr int kCodes = kv_word_codes(kType);
  constexpr int kBits = 32 / kCodes, kLine = kv_line_bytes(kType);
  uint8_t* to = plane + slot / kCodes * (dims / 16 * kLine);
  const int shift = static_cast<int>(slot % kCodes) * kBits;
  const auto others = F::set_bits(kCodes == 1 ? 0u : ~(((1u << (kBits % 32)) - 1u) << shift));
  const auto merge = [&](uint8_t* words, typename F::I code) {
    const auto kept = F::and_bits(F::load_words(words), others);
    F::store_words(words, F::or_bits(kept, F::shift_left_by(code, shift)));
  };
  for (int64_t d = 0; d < dims; d += 16, to += kLine) {
    const auto code = make_code<F, kType>(F::load(x + d), factor);
    if constexpr (kType == KvDtype::kInt16) {
      const CodeBytes<F> bytes(code);
      merge(to, bytes.high);
      merge(to + 64, bytes.low);
    } else {
      merge(to, code);
    }
  }
}

template <typename F, KvDtype kType>
void store_head(const float* k, const float* v, int64_t dims, int64_t slot, uint8_t* k_plane) {
  uint8_t* v_plane = k_plane + kv_plane_bytes(kType, dims);
  float k_factor = 1.0f, v_factor = 1.0f;
  if constexpr (kv_is_scaled(kType)) {
    const size_t at = kv_scales_offset(kType, dims) + static_cast<size_t>(slot) * 4;
    const float k_scale = make_scale<F, kType>(k, dims, &k_factor);
    const float v_scale = make_scale<F, kType>(v, dims, &v_factor);
    __builtin_memcpy(k_plane + at, &k_scale, sizeof(k_scale));
    __builtin_memcpy(v_plane + at, &v_scale, sizeof(v_scale));
  }
  store_keys<F, kType>(k, dims, k_factor, slot, k_plane);
  store_values<F, kType>(v, dims, v_factor, slot, v_plane);
}

template <typename F>
struct KvStores {  // by KvDtype
  using Fn = void (*)(const float* k, const float* v, int64_t dims, int64_t slot, uint8_t* planes);
  static constexpr Fn kRows[kNumKvDtypes] = {
      &store_head<F, KvDtype::kF32>,  &store_head<F, KvDtype::kBF16>,
      &store_head<F, KvDtype::kF16>,  &store_head<F, KvDtype::kFp8>,
      &store_head<F, KvDtype::kInt8>, &store_head<F, KvDtype::kInt16>};
};

template <typename F>
void qkv(const QkvRowsArgs& args) {
  using V = typename F::V;
  const int64_t dim = args.head_dim;
  const int64_t q_width = args.num_heads * dim;
  const int64_t kv_width = args.num_kv_heads * dim;
  const size_t plane = kv_plane_bytes(args.kv_type, dim);
  const int64_t dims = padded_dim(dim);
  const auto store_kv = KvStores<F>::kRows[static_cast<int>(args.kv_type)];
  alignas(64) float k_head[kMaxHeadDim];  // zeros beyond the head
  alignas(64) float v_head[kMaxHeadDim];
  F::store(k_head + dims - 16, F::zero());
  F::store(v_head + dims - 16, F::zero());
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* row = args.qkv + m * args.qkv_stride;
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
    if (args.kv_parts == 0) continue;
    const int64_t position = args.first_position + m;
    const int64_t slot = position % kKvBlock;
    uint8_t* block = args.kv_base + static_cast<size_t>(args.block_table[position / kKvBlock]) *
                                        args.kv_block_stride;
    const float* k = row + q_width;
    const float* v = args.kv_parts == 1 ? k : k + kv_width;
    finish_heads<F>(
        args, m, k, args.num_kv_heads, args.k_norm, [&](int) { return k_head; },
        [&](int h, const float* head) {
          finish_values<F>(args, v + h * dim, v_head);
          clip_head<F>(args, v_head);
          store_kv(head, v_head, dims, slot, block + static_cast<size_t>(h) * 2 * plane);
        });
  }
}

}  // namespace
}  // namespace headrace::cpu
