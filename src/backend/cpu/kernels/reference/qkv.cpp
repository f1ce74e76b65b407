// The reference unit: the fused projection taken apart, keys and values appended.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/kv_codec.h"
#include "backend/cpu/kernels/reference/norm.h"

namespace headrace::cpu {
namespace {

void rotate(const QkvRowsArgs& args, int64_t m, float* head) {
  const int half = args.rope_dims / 2;
  const float* cos = args.rope_cos + m * half;
  const float* sin = args.rope_sin + m * half;
  for (int i = 0; i < half; ++i) {
    const int a = args.rope_interleaved ? 2 * i : i;
    const int b = args.rope_interleaved ? 2 * i + 1 : i + half;
    const float x = head[a];
    const float y = head[b];
    head[a] = x * cos[i] - y * sin[i];
    head[b] = y * cos[i] + x * sin[i];
  }
}

// What a head is normed by: nothing without a weight.
struct HeadNorm {
  float mean = 0.0f, factor = 1.0f;
};

// Of head h of a projection [count, head_dim] at x.
HeadNorm head_norm(const QkvRowsArgs& args, const float* x, int count, int h, const float* weight) {
  HeadNorm norm;
  if (weight == nullptr) return norm;
  const int64_t dim = args.head_dim;
  if (args.norm_whole) {
    norm_factors(x, count * dim, args.norm_eps, false, &norm.mean, &norm.factor);
  } else {
    norm_factors(x + h * dim, dim, args.norm_eps, args.norm_layer, &norm.mean, &norm.factor);
  }
  return norm;
}

void clip_head(const QkvRowsArgs& args, float* head) {
  for (int d = 0; d < args.head_dim && args.clip > 0; ++d) {
    head[d] = std::fmin(std::fmax(head[d], -args.clip), args.clip);
  }
}

// Head h, normed and rotated. The norm after the rotation is of what that gave.
void finish_head(const QkvRowsArgs& args, int64_t m, const float* head, int h, HeadNorm norm,
                 const float* weight, float* out) {
  const bool own_weight = args.norm_whole || args.norm_layer;
  const float* w = own_weight && weight != nullptr ? weight + int64_t{h} * args.head_dim : weight;
  const auto apply = [&] {
    for (int d = 0; d < args.head_dim && w != nullptr; ++d) {
      out[d] = (out[d] - norm.mean) * norm.factor * w[d];
    }
  };
  std::copy(head, head + args.head_dim, out);
  if (!args.norm_after_rope) apply();
  clip_head(args, out);
  if (args.rope_dims > 0) rotate(args, m, out);
  if (!args.norm_after_rope || weight == nullptr) return;
  norm_factors(out, args.head_dim, args.norm_eps, args.norm_layer, &norm.mean, &norm.factor);
  apply();
}

void finish_queries(const QkvRowsArgs& args, int64_t m, const float* row, float* q) {
  HeadNorm norm;
  for (int h = 0; h < args.num_heads; ++h) {
    if (h == 0 || !args.norm_whole) norm = head_norm(args, row, args.num_heads, h, args.q_norm);
    const int64_t offset = int64_t{h} * args.head_dim;
    finish_head(args, m, row + offset, h, norm, args.q_norm, q + offset);
  }
  if (args.q_row_scale == nullptr) return;
  for (int64_t i = 0; i < int64_t{args.num_heads} * args.head_dim; ++i) q[i] *= args.q_row_scale[m];
}

// The values of a head, normed if the layer norms them.
void finish_values(const QkvRowsArgs& args, const float* v, float* out) {
  float mean, factor = 1.0f;
  if (args.norm_v) norm_factors(v, args.head_dim, args.norm_eps, false, &mean, &factor);
  for (int d = 0; d < args.head_dim; ++d) out[d] = args.norm_v ? v[d] * factor : v[d];
}

void append_kv(const QkvRowsArgs& args, int64_t m, const float* k, const float* v) {
  const int64_t dim = args.head_dim;
  const int64_t dims = padded_dim(dim);
  const size_t plane = kv_plane_bytes(args.kv_type, dim);
  const int64_t position = args.first_position + m;
  uint8_t* block = args.kv_base + static_cast<size_t>(args.block_table[position / kKvBlock]) *
                                      args.kv_block_stride;
  const int slot = static_cast<int>(position % kKvBlock);
  HeadNorm norm;
  for (int h = 0; h < args.num_kv_heads; ++h) {
    if (h == 0 || !args.norm_whole) norm = head_norm(args, k, args.num_kv_heads, h, args.k_norm);
    float head[kMaxHeadDim] = {}, values[kMaxHeadDim] = {};
    finish_head(args, m, k + h * dim, h, norm, args.k_norm, head);
    finish_values(args, v + h * dim, values);
    clip_head(args, values);
    uint8_t* k_plane = block + static_cast<size_t>(h) * 2 * plane;
    uint8_t* v_plane = k_plane + plane;
    const float k_factor = store_scale(args.kv_type, k_plane, head, dim, slot);
    const float v_factor = store_scale(args.kv_type, v_plane, values, dim, slot);
    for (int64_t d = 0; d < dims; ++d) {
      store_kv(args.kv_type, k_plane, k_index(args.kv_type, d, slot), head[d] * k_factor);
      store_kv(args.kv_type, v_plane, v_index(args.kv_type, dims, d, slot), values[d] * v_factor);
    }
  }
}

void qkv(const QkvRowsArgs& args) {
  const int64_t q_width = int64_t{args.num_heads} * args.head_dim;
  const int64_t kv_width = int64_t{args.num_kv_heads} * args.head_dim;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* row = args.qkv + m * args.qkv_stride;
    finish_queries(args, m, row, args.q_out + m * q_width);
    if (args.kv_parts == 0) continue;
    const float* k = row + q_width;
    append_kv(args, m, k, args.kv_parts == 1 ? k : k + kv_width);
  }
}

constexpr KernelRow kRows[] = {
    plain_row(KernelOp::kQkv, "qkv", 0, NumericsClass::kReference, {.qkv = &qkv})};

}  // namespace

namespace reference {

extern const KernelPart kQkv;
const KernelPart kQkv = {kRows, 1};

}  // namespace reference
}  // namespace headrace::cpu
