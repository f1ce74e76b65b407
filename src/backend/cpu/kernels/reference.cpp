// The reference unit: every op in plain C++, for any x86-64. The oracle of the other units.
//
// Baseline flags, no contraction to FMA (class kReference), standard library mathematics.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/units.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

float load_half(const uint8_t* chunk, int offset, int lane) {
  uint16_t bits;
  std::memcpy(&bits, chunk + offset + 2 * lane, sizeof(bits));
  return f16_to_float(bits);
}

// Code `index` of a plane of `bits`-bit codes at `plane`, for one lane.
uint32_t plane_code(const uint8_t* plane, int index, int bits, int lane) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  uint32_t word;
  std::memcpy(&word, plane + (index / per_word) * 64 + 4 * lane, sizeof(word));
  return (word >> (8 * (i % 4) + bits * (i / 4))) & ((1u << bits) - 1u);
}

// The same code of all 16 lanes; lanes innermost so that the compiler can use vectors.
void plane_codes(const uint8_t* plane, int index, int bits, uint32_t* codes) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  const int shift = 8 * (i % 4) + bits * (i / 4);
  const uint32_t mask = (1u << bits) - 1u;
  uint32_t words[kPanel];
  std::memcpy(words, plane + (index / per_word) * 64, sizeof(words));
  for (int n = 0; n < kPanel; ++n) codes[n] = (words[n] >> shift) & mask;
}

float e8m0_half(uint8_t e) {
  return bits_to_float(e < 2 ? 0x00200000u << e : uint32_t{e - 1u} << 23);
}

// Scale and offset of sub-block s, per lane.
void block_factors(const LayoutInfo& info, const uint8_t* chunk, int s, float* scale,
                   float* offset) {
  const ChunkOffsets at = chunk_offsets(info);
  for (int n = 0; n < kPanel; ++n) {
    float d = info.scale_bytes == 1 ? e8m0_half(chunk[n]) : load_half(chunk, 0, n);
    float m = info.min_bytes != 0 ? load_half(chunk, at.minimum, n) : 0.0f;
    if (info.num_sub_blocks > 0) {
      uint32_t code = plane_code(chunk + at.sub_low, s, info.sub_low_bits, n);
      int sub = info.sub_low_bits == 8 ? static_cast<int8_t>(code) : static_cast<int>(code);
      if (info.sub_high_bits > 0) {
        sub |= static_cast<int>(plane_code(chunk + at.sub_high, s, info.sub_high_bits, n)
                                << info.sub_low_bits);
      }
      d *= static_cast<float>(sub - info.sub_zero);
      if (info.sub_has_min != 0) {
        uint32_t sub_min = plane_code(chunk + at.sub_min, s, info.sub_low_bits, n);
        if (info.sub_high_bits > 0) {
          sub_min |= plane_code(chunk + at.sub_high, info.num_sub_blocks + s, info.sub_high_bits, n)
                     << info.sub_low_bits;
        }
        m = -(m * static_cast<float>(sub_min));
      }
    }
    scale[n] = d;
    offset[n] = m;
  }
}

// Integers that the codes of input k stand for: zero point subtracted or table looked up.
void code_values(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk, int k,
                 float* values) {
  uint32_t codes[kPanel];
  plane_codes(chunk + at.low, k, info.low_bits, codes);
  if (info.high_bits > 0) {
    uint32_t high[kPanel];
    plane_codes(chunk + at.high, k, info.high_bits, high);
    for (int n = 0; n < kPanel; ++n) codes[n] |= high[n] << info.low_bits;
  }
  if (info.table != 0) {
    const int8_t* table = info.table == 1 ? kIq4Values : kFp4Values;
    for (int n = 0; n < kPanel; ++n) values[n] = static_cast<float>(table[codes[n]]);
  } else {
    for (int n = 0; n < kPanel; ++n) {
      values[n] = static_cast<float>(static_cast<int>(codes[n]) - info.zero);
    }
  }
}

void unpack_quantised(const LayoutInfo& info, const UnpackArgs& args) {
  const ChunkOffsets at = chunk_offsets(info);
  const int sub_inputs =
      info.num_sub_blocks > 0 ? info.block_inputs / info.num_sub_blocks : info.block_inputs;
  float scale[kPanel];
  float offset[kPanel];
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t k = args.first + i;
    const uint8_t* chunk = args.panel + (k / info.block_inputs) * info.chunk_bytes;
    const int in_block = static_cast<int>(k % info.block_inputs);
    if (in_block % sub_inputs == 0) {
      block_factors(info, chunk, in_block / sub_inputs, scale, offset);
    }
    float* values = args.values + i * kPanel;
    code_values(info, at, chunk, in_block, values);
    for (int n = 0; n < kPanel; ++n) values[n] *= scale[n];
    if (info.min_bytes != 0) {
      for (int n = 0; n < kPanel; ++n) values[n] += offset[n];
    }
  }
}

template <Layout kLayout>
void unpack(const UnpackArgs& args) {
  if constexpr (kLayout == Layout::kF32) {
    std::memcpy(args.values, args.panel + args.first * 64, static_cast<size_t>(args.count) * 64);
  } else if constexpr (kLayout == Layout::kF16 || kLayout == Layout::kBF16) {
    for (int64_t i = 0; i < args.count; ++i) {
      uint32_t words[kPanel];
      std::memcpy(words, args.panel + (args.first + i) / 2 * 64, sizeof(words));
      const int shift = static_cast<int>((args.first + i) % 2) * 16;
      for (int n = 0; n < kPanel; ++n) {
        const auto bits = static_cast<uint16_t>(words[n] >> shift);
        args.values[i * kPanel + n] =
            kLayout == Layout::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
      }
    }
  } else {
    unpack_quantised(layout_info(kLayout), args);
  }
}

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

// The activation X of input k of a record (kernels.h).
int activation_at(const uint8_t* record, ActivationType type, int k) {
  const uint8_t* codes = record + (k / kActivationBlock) * activation_code_bytes(type);
  const int high = static_cast<int8_t>(codes[k % kActivationBlock]);
  if (type == ActivationType::kInt8) return high;
  return 256 * high + static_cast<int8_t>(codes[kActivationBlock + k % kActivationBlock]);
}

BlockFactors factors_at(const uint8_t* record, ActivationType type, int block) {
  BlockFactors factors;
  std::memcpy(&factors,
              record + kSliceBlocks * activation_code_bytes(type) +
                  static_cast<size_t>(block) * sizeof(factors),
              sizeof(factors));
  return factors;
}

// Adds inputs [first, first + count) of the panel, which share weight factors, to sums.
void add_sub_block(const LayoutInfo& info, const uint8_t* panel, const uint8_t* record,
                   ActivationType type, int64_t first, int count, float* sums) {
  const ChunkOffsets at = chunk_offsets(info);
  const uint8_t* chunk = panel + (first / info.block_inputs) * info.chunk_bytes;
  const int in_chunk = static_cast<int>(first % info.block_inputs);
  const int in_slice = static_cast<int>(first % kSliceInputs);
  int32_t total[kPanel] = {};
  for (int k = 0; k < count; ++k) {
    float values[kPanel];  // whole numbers
    code_values(info, at, chunk, in_chunk + k, values);
    const int x = activation_at(record, type, in_slice + k);
    for (int n = 0; n < kPanel; ++n) total[n] += static_cast<int32_t>(values[n]) * x;
  }
  float scale[kPanel], offset[kPanel];
  block_factors(info, chunk, info.num_sub_blocks > 0 ? in_chunk / count : 0, scale, offset);
  const BlockFactors x = factors_at(record, type, in_slice / kActivationBlock);
  const float x_sum = count == kActivationBlock ? x.sum : x.half_sums[in_slice / count % 2];
  for (int n = 0; n < kPanel; ++n) {
    sums[n] = std::fma(static_cast<float>(total[n]), scale[n] * x.scale, sums[n]);
    if (info.min_bytes != 0) sums[n] = std::fma(offset[n], x_sum, sums[n]);
  }
}

template <Layout kLayout, ActivationType kType>
void matmul_integer(const MatmulArgs& args) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  constexpr int kCount = sub_block_inputs(kInfo);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const uint8_t* row = static_cast<const uint8_t*>(args.x) + m * activation_record_bytes(kType);
    for (int64_t p = 0; p < args.num_panels; ++p) {
      const uint8_t* panel =
          args.weight + static_cast<size_t>(args.first_panel + p) * args.panel_bytes;
      float sums[kPanel] = {};
      for (int64_t k = 0; k < args.num_inputs; k += kCount) {
        add_sub_block(kInfo, panel, row + (k / kSliceInputs) * args.x_stride, kType, k, kCount,
                      sums);
      }
      std::memcpy(args.sums + m * args.sums_stride + p * kPanel, sums, sizeof(sums));
    }
  }
}

void put_activation(uint8_t* codes, ActivationType type, int i, int x) {
  if (type == ActivationType::kInt8) {
    codes[i] = static_cast<uint8_t>(x);
    return;
  }
  const int high = (x + 128) >> 8;
  codes[i] = static_cast<uint8_t>(high);
  codes[kActivationBlock + i] = static_cast<uint8_t>(x - 256 * high);
}

struct ActivationScale {
  float scale, factor;  // X = round(x * factor)
};

ActivationScale activation_scale(ActivationType type, float largest) {
  if (type == ActivationType::kInt8) return {largest / kInt8Limit, kInt8Limit / largest};
  const auto exponent = static_cast<int>(float_to_bits(largest * kInt16Margin) >> 23);  // biased
  return {bits_to_float(static_cast<uint32_t>(exponent - kInt16Bits) << 23),
          bits_to_float(static_cast<uint32_t>(254 - exponent + kInt16Bits) << 23)};
}

BlockFactors quantise_block(const float* x, ActivationType type, uint8_t* codes) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < kActivationBlock; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  const bool empty = !finite || largest < kSmallestActivation;
  const ActivationScale by = empty ? ActivationScale{} : activation_scale(type, largest);
  int half[2] = {};
  for (int i = 0; i < kActivationBlock; ++i) {
    const int value = empty ? 0 : static_cast<int>(std::nearbyint(x[i] * by.factor));
    put_activation(codes, type, i, value);
    half[i / 16] += value;
  }
  BlockFactors factors{};
  factors.scale = finite ? by.scale : NAN;
  const int sum = half[0] + half[1];
  factors.sum = factors.scale * static_cast<float>(sum);
  factors.minus_sum = -sum;
  for (int i = 0; i < 2; ++i) {
    factors.half_sums[i] = factors.scale * static_cast<float>(half[i]);
    factors.minus_half_sums[i] = -half[i];
  }
  return factors;
}

template <ActivationType kType>
void quantise(const QuantiseArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.num_inputs;
    for (int64_t k = 0; k < args.num_inputs; k += kActivationBlock) {
      uint8_t* record =
          args.out + (k / kSliceInputs) * args.slice_stride + m * activation_record_bytes(kType);
      const auto block = static_cast<int>(k % kSliceInputs) / kActivationBlock;
      const BlockFactors factors =
          quantise_block(x + k, kType, record + block * activation_code_bytes(kType));
      std::memcpy(record + kSliceBlocks * activation_code_bytes(kType) +
                      static_cast<size_t>(block) * sizeof(factors),
                  &factors, sizeof(factors));
    }
  }
}

void finish(const FinishArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t n = 0; n < args.num_outputs; ++n) {
      float value = args.sums[m * args.sums_stride + n];
      if (args.bias != nullptr) value += args.bias[n];
      value *= args.scale;
      if (args.residual != nullptr) value += args.residual[m * args.out_stride + n];
      if (args.softcap > 0) value = args.softcap * std::tanh(value / args.softcap);
      args.out[m * args.out_stride + n] = value;
    }
  }
}

float gate_value(GateKind kind, float x) {
  if (kind == GateKind::kSilu) return x / (1.0f + std::exp(-x));
  constexpr float kRootTwoOverPi = 0.7978845608028654f;
  return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
}

void gate(const GateArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t n = 0; n < args.num_outputs; ++n) {
      float g = args.gate[m * args.sums_stride + n];
      float u = args.up[m * args.sums_stride + n];
      if (args.gate_bias != nullptr) g += args.gate_bias[n];
      if (args.up_bias != nullptr) u += args.up_bias[n];
      args.out[m * args.out_stride + n] = gate_value(args.kind, g) * u;
    }
  }
}

// Sum of f(x[i]) over 16 lanes, folded as the class says.
template <typename F>
float lane_sum(const float* x, int64_t width, F f) {
  float lanes[16] = {};
  for (int64_t i = 0; i < width; ++i) lanes[i % 16] += f(x[i]);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Mean to subtract and factor of one row.
void norm_factors(const float* x, int64_t width, float eps, bool subtract_mean, float* mean,
                  float* factor) {
  const auto count = static_cast<float>(width);
  const float centre = subtract_mean ? lane_sum(x, width, [](float v) { return v; }) / count : 0.0f;
  const float squares =
      lane_sum(x, width, [centre](float v) { return (v - centre) * (v - centre); });
  *mean = centre;
  *factor = 1.0f / std::sqrt(squares / count + eps);
}

void norm(const NormRowsArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.width;
    const float* residual = args.residual == nullptr ? nullptr : args.residual + m * args.width;
    float* out = args.out + m * args.width;
    float mean, factor;
    norm_factors(x, args.width, args.eps, args.subtract_mean, &mean, &factor);
    for (int64_t i = 0; i < args.width; ++i) {
      const float value = args.scale * ((x[i] - mean) * factor * args.weight[i]);
      out[i] = residual == nullptr ? value : residual[i] + value;
    }
  }
}

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

// Factor of head h of a projection [count, head_dim] at x; 1 without a norm.
float head_factor(const QkvRowsArgs& args, const float* x, int count, int h, const float* weight) {
  if (weight == nullptr) return 1.0f;
  const int64_t dim = args.head_dim;
  float mean, factor;
  if (args.norm_whole) {
    norm_factors(x, count * dim, args.norm_eps, false, &mean, &factor);
  } else {
    norm_factors(x + h * dim, dim, args.norm_eps, false, &mean, &factor);
  }
  return factor;
}

// Head h, normed by its factor and rotated.
void finish_head(const QkvRowsArgs& args, int64_t m, const float* head, int h, float factor,
                 const float* weight, float* out) {
  const float* w =
      args.norm_whole && weight != nullptr ? weight + int64_t{h} * args.head_dim : weight;
  for (int d = 0; d < args.head_dim; ++d) out[d] = w == nullptr ? head[d] : head[d] * factor * w[d];
  if (args.rope_dims > 0) rotate(args, m, out);
}

// Element indices within a K or V plane.
int64_t k_index(KvDtype type, int64_t d, int64_t slot) {
  return type == KvDtype::kF32 ? d * kKvBlock + slot : ((d / 2) * kKvBlock + slot) * 2 + d % 2;
}
int64_t v_index(KvDtype type, int64_t dims, int64_t d, int64_t slot) {
  return type == KvDtype::kF32 ? slot * dims + d : ((slot / 2) * dims + d) * 2 + slot % 2;
}

void store_kv(KvDtype type, uint8_t* plane, int64_t index, float value) {
  if (type == KvDtype::kF32) {
    std::memcpy(plane + index * 4, &value, 4);
  } else {
    const uint16_t bits = float_to_bf16(value);
    std::memcpy(plane + index * 2, &bits, 2);
  }
}

float load_kv(KvDtype type, const uint8_t* plane, int64_t index) {
  float value;
  if (type == KvDtype::kF32) {
    std::memcpy(&value, plane + index * 4, 4);
  } else {
    uint16_t bits;
    std::memcpy(&bits, plane + index * 2, 2);
    value = bf16_to_float(bits);
  }
  return value;
}

void finish_queries(const QkvRowsArgs& args, int64_t m, const float* row, float* q) {
  float factor = 1.0f;
  for (int h = 0; h < args.num_heads; ++h) {
    if (h == 0 || !args.norm_whole) factor = head_factor(args, row, args.num_heads, h, args.q_norm);
    const int64_t offset = int64_t{h} * args.head_dim;
    finish_head(args, m, row + offset, h, factor, args.q_norm, q + offset);
  }
  if (args.q_row_scale == nullptr) return;
  for (int64_t i = 0; i < int64_t{args.num_heads} * args.head_dim; ++i) q[i] *= args.q_row_scale[m];
}

void append_kv(const QkvRowsArgs& args, int64_t m, const float* k, const float* v) {
  const int64_t dim = args.head_dim;
  const int64_t dims = padded_dim(dim);
  const size_t plane = kv_plane_bytes(args.kv_type, dim);
  const int64_t position = args.first_position + m;
  uint8_t* block = args.kv_base + static_cast<size_t>(args.block_table[position / kKvBlock]) *
                                      args.kv_block_stride;
  const int slot = static_cast<int>(position % kKvBlock);
  float factor = 1.0f;
  for (int h = 0; h < args.num_kv_heads; ++h) {
    if (h == 0 || !args.norm_whole)
      factor = head_factor(args, k, args.num_kv_heads, h, args.k_norm);
    float head[kMaxHeadDim] = {};
    finish_head(args, m, k + h * dim, h, factor, args.k_norm, head);
    uint8_t* k_plane = block + static_cast<size_t>(h) * 2 * plane;
    uint8_t* v_plane = k_plane + plane;
    for (int64_t d = 0; d < dims; ++d) {
      store_kv(args.kv_type, k_plane, k_index(args.kv_type, d, slot), head[d]);
      store_kv(args.kv_type, v_plane, v_index(args.kv_type, dims, d, slot),
               d < dim ? v[h * dim + d] : 0.0f);
    }
  }
}

void qkv(const QkvRowsArgs& args) {
  const int64_t q_width = int64_t{args.num_heads} * args.head_dim;
  const int64_t kv_width = int64_t{args.num_kv_heads} * args.head_dim;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* row = args.qkv + m * (q_width + 2 * kv_width);
    finish_queries(args, m, row, args.q_out + m * q_width);
    append_kv(args, m, row + q_width, row + q_width + kv_width);
  }
}

struct Query {
  const float* q;
  int64_t position;
  int head;
  const float* sink;  // or null
};

// Scores of the visible positions of one step; returns their number (from `begin`).
float step_scores(const AttentionRowsArgs& args, const Query& query, int64_t begin, int64_t end,
                  float* scores) {
  const size_t plane = kv_plane_bytes(args.kv_type, args.head_dim);
  const int kv_head = query.head / (args.num_heads / args.num_kv_heads);
  float top = -INFINITY;
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* k = args.kv_base +
                       static_cast<size_t>(args.block_table[p / kKvBlock]) * args.kv_block_stride +
                       static_cast<size_t>(kv_head) * 2 * plane;
    float dot = 0.0f;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      dot += query.q[d] * load_kv(args.kv_type, k, k_index(args.kv_type, d, p % kKvBlock));
    }
    float score = dot * args.scale;
    if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
    scores[p - begin] = score;
    top = std::max(top, score);
  }
  return top;
}

void attend(const AttentionRowsArgs& args, const Query& query, float* out) {
  const int64_t dim = args.head_dim;
  const int64_t dims = padded_dim(dim);
  const size_t plane = kv_plane_bytes(args.kv_type, dim);
  const int kv_head = query.head / (args.num_heads / args.num_kv_heads);
  float top = query.sink != nullptr ? *query.sink : -INFINITY;
  float total = query.sink != nullptr ? 1.0f : 0.0f;
  float acc[kMaxHeadDim] = {};
  const int64_t last = query.position + 1;
  const int64_t lowest = args.window > 0 ? std::max<int64_t>(0, last - args.window) : 0;
  for (int64_t step = lowest / kKvStep * kKvStep; step < last; step += kKvStep) {
    const int64_t begin = std::max(step, lowest);
    const int64_t end = std::min(step + kKvStep, last);
    float scores[kKvStep];
    const float step_top = step_scores(args, query, begin, end, scores);
    const float new_top = std::max(top, step_top);
    const float correction = std::exp(top - new_top);
    total *= correction;
    for (int64_t d = 0; d < dim; ++d) acc[d] *= correction;
    for (int64_t p = begin; p < end; ++p) {
      const float weight = std::exp(scores[p - begin] - new_top);
      total += weight;
      const uint8_t* v =
          args.kv_base +
          static_cast<size_t>(args.block_table[p / kKvBlock]) * args.kv_block_stride +
          (static_cast<size_t>(kv_head) * 2 + 1) * plane;
      for (int64_t d = 0; d < dim; ++d) {
        acc[d] += weight * load_kv(args.kv_type, v, v_index(args.kv_type, dims, d, p % kKvBlock));
      }
    }
    top = new_top;
  }
  for (int64_t d = 0; d < dim; ++d) out[d] = acc[d] / total;
}

void attention(const AttentionRowsArgs& args) {
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int h = args.first_head; h < args.end_head; ++h) {
      const int64_t offset = m * args.row_stride + static_cast<int64_t>(h) * args.head_dim;
      const Query query{args.q + offset, args.first_position + m, h,
                        args.sinks == nullptr ? nullptr : args.sinks + h};
      attend(args, query, args.out + offset);
    }
  }
}

template <Layout kLayout>
constexpr KernelRow matmul_row(const char* name) {
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
template <Layout kLayout, ActivationType kType>
constexpr KernelRow integer_row(const char* name) {
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
template <ActivationType kType>
constexpr KernelRow quantise_row(const char* name) {
  return {KernelOp::kQuantise,
          name,
          0,
          Layout::kCount,
          kType,
          1,
          {1, 1, kActivationBlock},
          NumericsClass::kInteger,
          {.quantise = &quantise<kType>}};
}
template <Layout kLayout>
constexpr KernelRow unpack_row(const char* name) {
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
constexpr KernelRow plain_row(KernelOp op, const char* name, KernelFunction function) {
  return {op,
          name,
          0,
          Layout::kCount,
          ActivationType::kF32,
          1,
          {1, 1, 1},
          NumericsClass::kReference,
          function};
}

constexpr KernelRow kRows[] = {
    matmul_row<Layout::kF32>("matmul_f32"),
    matmul_row<Layout::kF16>("matmul_f16"),
    matmul_row<Layout::kBF16>("matmul_bf16"),
    integer_row<Layout::kQ8_0, ActivationType::kInt16>("matmul_q8_0_int16"),
    integer_row<Layout::kQ4_0, ActivationType::kInt16>("matmul_q4_0_int16"),
    integer_row<Layout::kQ4_1, ActivationType::kInt16>("matmul_q4_1_int16"),
    integer_row<Layout::kQ5_0, ActivationType::kInt16>("matmul_q5_0_int16"),
    integer_row<Layout::kQ5_1, ActivationType::kInt16>("matmul_q5_1_int16"),
    integer_row<Layout::kQ4K, ActivationType::kInt16>("matmul_q4_k_int16"),
    integer_row<Layout::kQ5K, ActivationType::kInt16>("matmul_q5_k_int16"),
    integer_row<Layout::kQ6K, ActivationType::kInt16>("matmul_q6_k_int16"),
    integer_row<Layout::kQ2K, ActivationType::kInt16>("matmul_q2_k_int16"),
    integer_row<Layout::kQ3K, ActivationType::kInt16>("matmul_q3_k_int16"),
    integer_row<Layout::kIQ4NL, ActivationType::kInt16>("matmul_iq4_nl_int16"),
    integer_row<Layout::kIQ4XS, ActivationType::kInt16>("matmul_iq4_xs_int16"),
    integer_row<Layout::kMXFP4, ActivationType::kInt16>("matmul_mxfp4_int16"),
    integer_row<Layout::kQ8_0, ActivationType::kInt8>("matmul_q8_0_int8"),
    integer_row<Layout::kQ4_0, ActivationType::kInt8>("matmul_q4_0_int8"),
    integer_row<Layout::kQ4_1, ActivationType::kInt8>("matmul_q4_1_int8"),
    integer_row<Layout::kQ5_0, ActivationType::kInt8>("matmul_q5_0_int8"),
    integer_row<Layout::kQ5_1, ActivationType::kInt8>("matmul_q5_1_int8"),
    integer_row<Layout::kQ4K, ActivationType::kInt8>("matmul_q4_k_int8"),
    integer_row<Layout::kQ5K, ActivationType::kInt8>("matmul_q5_k_int8"),
    integer_row<Layout::kQ6K, ActivationType::kInt8>("matmul_q6_k_int8"),
    integer_row<Layout::kQ2K, ActivationType::kInt8>("matmul_q2_k_int8"),
    integer_row<Layout::kQ3K, ActivationType::kInt8>("matmul_q3_k_int8"),
    integer_row<Layout::kIQ4NL, ActivationType::kInt8>("matmul_iq4_nl_int8"),
    integer_row<Layout::kIQ4XS, ActivationType::kInt8>("matmul_iq4_xs_int8"),
    integer_row<Layout::kMXFP4, ActivationType::kInt8>("matmul_mxfp4_int8"),
    unpack_row<Layout::kF32>("unpack_f32"),
    unpack_row<Layout::kF16>("unpack_f16"),
    unpack_row<Layout::kBF16>("unpack_bf16"),
    unpack_row<Layout::kQ8_0>("unpack_q8_0"),
    unpack_row<Layout::kQ4_0>("unpack_q4_0"),
    unpack_row<Layout::kQ4_1>("unpack_q4_1"),
    unpack_row<Layout::kQ5_0>("unpack_q5_0"),
    unpack_row<Layout::kQ5_1>("unpack_q5_1"),
    unpack_row<Layout::kQ4K>("unpack_q4_k"),
    unpack_row<Layout::kQ5K>("unpack_q5_k"),
    unpack_row<Layout::kQ6K>("unpack_q6_k"),
    unpack_row<Layout::kQ2K>("unpack_q2_k"),
    unpack_row<Layout::kQ3K>("unpack_q3_k"),
    unpack_row<Layout::kIQ4NL>("unpack_iq4_nl"),
    unpack_row<Layout::kIQ4XS>("unpack_iq4_xs"),
    unpack_row<Layout::kMXFP4>("unpack_mxfp4"),
    quantise_row<ActivationType::kInt16>("quantise_int16"),
    quantise_row<ActivationType::kInt8>("quantise_int8"),
    plain_row(KernelOp::kFinish, "finish", {.finish = &finish}),
    plain_row(KernelOp::kGate, "gate", {.gate = &gate}),
    plain_row(KernelOp::kNorm, "norm", {.norm = &norm}),
    plain_row(KernelOp::kQkv, "qkv", {.qkv = &qkv}),
    plain_row(KernelOp::kAttention, "attention", {.attention = &attention}),
};

}  // namespace

const KernelUnit kReferenceUnit = {"reference", 0, kRows,
                                   static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace headrace::cpu
