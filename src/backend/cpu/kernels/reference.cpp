// The reference unit: every op in plain C++, for any x86-64. The oracle of the other units.
//
// Baseline flags, no contraction to FMA (class kReference), standard library mathematics.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/bf16_model.h"
#include "backend/cpu/kernels/generic/reference_kv.h"
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

float load_float(const uint8_t* chunk, int lane) {
  float value;
  std::memcpy(&value, chunk + 4 * lane, sizeof(value));
  return value;
}

// The factor that a chunk begins with.
float chunk_scale(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk, int lane) {
  if (info.scale_bytes == 1) return e8m0_half(chunk[lane]);
  if (info.scale_bytes == 4) return load_float(chunk, lane);
  if (info.split_scale == 0) return load_half(chunk, 0, lane);
  uint16_t top;
  std::memcpy(&top, chunk + 2 * lane, sizeof(top));
  return bits_to_float(uint32_t{top} << 16 | uint32_t{chunk[at.zero + lane] & 0xF0u} << 8);
}

int lane_zero(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk, int lane) {
  if (info.zero_bytes == 0) return info.zero;
  return chunk[at.zero + lane] & (info.split_scale != 0 ? 0x0F : 0xFF);
}

// Scale and offset of sub-block s, per lane.
void block_factors(const LayoutInfo& info, const uint8_t* chunk, int s, float* scale,
                   float* offset) {
  const ChunkOffsets at = chunk_offsets(info);
  for (int n = 0; n < kPanel; ++n) {
    float d = chunk_scale(info, at, chunk, n);
    float m = info.min_bytes != 0 ? load_half(chunk, at.minimum, n) : 0.0f;
    if (info.sub_float != 0) {
      d = e4m3_to_float(static_cast<uint8_t>(plane_code(chunk + at.sub_low, s, 8, n))) / d;
    } else if (info.num_sub_blocks > 0) {
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

// What the codes of input k stand for: zero point subtracted or table looked up (whole numbers), or
// an 8-bit float.
void code_values(const LayoutInfo& info, const ChunkOffsets& at, const uint8_t* chunk, int k,
                 float* values) {
  uint32_t codes[kPanel];
  plane_codes(chunk + at.low, k, info.low_bits, codes);
  if (info.high_bits > 0) {
    uint32_t high[kPanel];
    plane_codes(chunk + at.high, k, info.high_bits, high);
    for (int n = 0; n < kPanel; ++n) codes[n] |= high[n] << info.low_bits;
  }
  if (has_float_codes(info)) {
    for (int n = 0; n < kPanel; ++n) {
      const auto code = static_cast<uint8_t>(codes[n]);
      values[n] = info.table == 3 ? e4m3_to_float(code) : e5m2_to_float(code);
    }
  } else if (info.table != 0) {
    const int8_t* table = info.table == 1 ? kIq4Values : kFp4Values;
    for (int n = 0; n < kPanel; ++n) values[n] = static_cast<float>(table[codes[n]]);
  } else {
    for (int n = 0; n < kPanel; ++n) {
      values[n] = static_cast<float>(static_cast<int>(codes[n]) - lane_zero(info, at, chunk, n));
    }
  }
}

void unpack_quantised(const LayoutInfo& info, const UnpackArgs& args) {
  const ChunkOffsets at = chunk_offsets(info);
  const int sub_inputs = sub_block_inputs(info);
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

// The largest magnitude; infinity if it is none that X can stand for.
float largest_activation(ActivationType type, const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return INFINITY;
    largest = std::max(largest, std::fabs(x[i]));
  }
  return type == ActivationType::kInt16 && largest >= kEndOfActivations ? INFINITY : largest;
}

BlockFactors quantise_block(const float* x, ActivationType type, bool finite, uint8_t* codes) {
  const float largest = largest_activation(type, x, kActivationBlock);
  const bool empty = !finite || largest < kSmallestActivation;
  const ActivationScale by = empty ? ActivationScale{type == ActivationType::kInt8 ? 0.0f : 1.0f, 0}
                                   : activation_scale(type, largest);
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
  constexpr int64_t kGroup = kType == ActivationType::kInt16 ? kSliceInputs : kActivationBlock;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* x = args.x + m * args.num_inputs;
    bool finite = true;
    for (int64_t k = 0; k < args.num_inputs; k += kActivationBlock) {
      if (k % kGroup == 0) {
        const int64_t count = std::min(kGroup, args.num_inputs - k);
        finite = std::isfinite(largest_activation(kType, x + k, count));
      }
      uint8_t* record =
          args.out + (k / kSliceInputs) * args.slice_stride + m * activation_record_bytes(kType);
      const auto block = static_cast<int>(k % kSliceInputs) / kActivationBlock;
      const BlockFactors factors =
          quantise_block(x + k, kType, finite, record + block * activation_code_bytes(kType));
      std::memcpy(record + kSliceBlocks * activation_code_bytes(kType) +
                      static_cast<size_t>(block) * sizeof(factors),
                  &factors, sizeof(factors));
    }
  }
}

template <ActivationType kType>
void quantise_bf16(const QuantiseArgs& args) {
  const int64_t end =
      (args.num_inputs + kActivationBlock - 1) / kActivationBlock * kActivationBlock;
  for (int64_t m = 0; m < args.num_rows; ++m) {
    for (int64_t k = 0; k < end; ++k) {
      uint8_t* block = args.out + (k / kSliceInputs) * args.slice_stride +
                       m * activation_record_bytes(kType) +
                       k % kSliceInputs / kActivationBlock * activation_code_bytes(kType);
      float rest = k < args.num_inputs ? args.x[m * args.num_inputs + k] : 0.0f;
      for (int term = 0; term < num_terms(kType); ++term) {
        const uint16_t bits = float_to_bf16(rest);
        std::memcpy(block + 2 * (term * kActivationBlock + k % kActivationBlock), &bits, 2);
        rest -= bf16_to_float(bits);
        if (!std::isfinite(rest)) rest = 0.0f;
      }
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
    const float k_factor = store_scale(args.kv_type, k_plane, head, dim, slot);
    const float v_factor = store_scale(args.kv_type, v_plane, v + h * dim, dim, slot);
    for (int64_t d = 0; d < dims; ++d) {
      store_kv(args.kv_type, k_plane, k_index(args.kv_type, d, slot), head[d] * k_factor);
      store_kv(args.kv_type, v_plane, v_index(args.kv_type, dims, d, slot),
               d < dim ? v[h * dim + d] * v_factor : 0.0f);
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

// What one row has of one split, or of all so far.
struct Partial {
  float top = -INFINITY;
  float total = 0.0f;
  float acc[kMaxHeadDim] = {};

  // Adds another with its own top.
  void fold(const Partial& other, int64_t dim) {
    const float highest = std::max(top, other.top);
    const float old_factor = top == highest ? 1.0f : std::exp(top - highest);
    const float new_factor = std::exp(other.top - highest);
    top = highest;
    total = old_factor * total + new_factor * other.total;
    for (int64_t d = 0; d < dim; ++d) acc[d] = old_factor * acc[d] + new_factor * other.acc[d];
  }
};

// Row `row` of the tile's run: its query head and positions.
struct Query {
  const float* q;
  float* out;
  int head;
  int64_t lowest;
  int64_t end;
};

Query query_of(const AttentionRowsArgs& args, int64_t row) {
  const int group = args.num_heads / args.num_kv_heads;
  const int head = args.kv_head * group + static_cast<int>(row % group);
  const int64_t offset = row / group * args.row_stride + int64_t{head} * args.head_dim;
  return {args.q + offset, args.out + offset, head, attention_lowest(args, row),
          attention_end(args, row)};
}

const uint8_t* k_plane_of(const AttentionRowsArgs& args, int64_t position) {
  return args.kv_base +
         static_cast<size_t>(args.block_table[position / kKvBlock]) * args.kv_block_stride +
         static_cast<size_t>(args.kv_head) * 2 * kv_plane_bytes(args.kv_type, args.head_dim);
}

// Scores of all positions of a block, each summed in the order of its dimensions.
void block_scores(const AttentionRowsArgs& args, const Query& query, const uint8_t* plane,
                  float* scores) {
  float keys[kMaxHeadDim * kKvBlock];
  codec_of(args.kv_type).load_keys(plane, args.head_dim, keys);
  float dots[kKvBlock] = {};
  for (int64_t d = 0; d < args.head_dim; ++d) {
    for (int s = 0; s < kKvBlock; ++s) dots[s] += query.q[d] * keys[d * kKvBlock + s];
  }
  for (int s = 0; s < kKvBlock; ++s) {
    const float score = dots[s] * load_scale(args.kv_type, plane, args.head_dim, s) * args.scale;
    scores[s] = args.softcap > 0 ? args.softcap * std::tanh(score / args.softcap) : score;
  }
}

// Positions [begin, end) of one step into the partial of their split.
void add_step(const AttentionRowsArgs& args, const Query& query, int64_t begin, int64_t end,
              Partial* partial) {
  float block[kKvBlock];
  float scores[kKvStep];
  float highest = partial->top;
  for (int64_t p = begin; p < end; ++p) {
    if (p == begin || p % kKvBlock == 0) block_scores(args, query, k_plane_of(args, p), block);
    scores[p - begin] = block[p % kKvBlock];
    highest = std::max(highest, scores[p - begin]);
  }
  const float correction = std::exp(partial->top - highest);
  partial->top = highest;
  partial->total *= correction;
  for (int64_t d = 0; d < args.head_dim; ++d) partial->acc[d] *= correction;
  const int64_t dims = padded_dim(args.head_dim);
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* plane = k_plane_of(args, p) + kv_plane_bytes(args.kv_type, args.head_dim);
    const int64_t slot = p % kKvBlock;
    const float weight = std::exp(scores[p - begin] - highest);
    const float scaled = weight * load_scale(args.kv_type, plane, args.head_dim, slot);
    partial->total += weight;
    float value[kMaxHeadDim];
    codec_of(args.kv_type).load_value(plane, dims, slot, value);
    for (int64_t d = 0; d < args.head_dim; ++d) partial->acc[d] += scaled * value[d];
  }
}

Partial run_split(const AttentionRowsArgs& args, const Query& query, int64_t split) {
  Partial partial;
  const int64_t begin = std::max(split * kKvSplit, query.lowest);
  const int64_t end = std::min((split + 1) * kKvSplit, query.end);
  for (int64_t step = begin / kKvStep * kKvStep; step < end; step += kKvStep) {
    add_step(args, query, std::max(step, begin), std::min(step + kKvStep, end), &partial);
  }
  return partial;
}

void write_out(const AttentionRowsArgs& args, const Query& query, Partial sum) {
  if (args.sinks != nullptr) {
    Partial sink;
    sink.top = args.sinks[query.head];
    sink.total = 1.0f;
    sum.fold(sink, args.head_dim);
  }
  for (int64_t d = 0; d < args.head_dim; ++d) query.out[d] = sum.acc[d] / sum.total;
}

// Where the partial of row r of the tile and a split lies: acc, total in 16 lanes, top.
float* partial_at(const AttentionRowsArgs& args, int64_t r, int64_t split) {
  const int64_t first = attention_lowest(args, args.first_row) / kKvSplit;
  return args.partials + ((split - first) * args.num_rows + r) * partial_floats(args.head_dim);
}

void write_partial(const Partial& partial, int64_t dim, float* to) {
  const int64_t dims = padded_dim(dim);
  std::fill(to, to + partial_floats(dim), 0.0f);
  std::copy(partial.acc, partial.acc + dim, to);
  to[dims] = partial.total;
  to[dims + 16] = partial.top;
}

Partial read_partial(const float* from, int64_t dim) {
  const int64_t dims = padded_dim(dim);
  Partial partial;
  std::copy(from, from + dim, partial.acc);
  partial.total = from[dims];
  partial.top = from[dims + 16];
  return partial;
}

void attention(const AttentionRowsArgs& args) {
  for (int64_t r = 0; r < args.num_rows; ++r) {
    const Query query = query_of(args, args.first_row + r);
    const int64_t first = query.lowest / kKvSplit;
    const int64_t last = (query.end - 1) / kKvSplit;
    if (args.work == AttentionWork::kSplit) {
      if (args.split < first || args.split > last) continue;
      write_partial(run_split(args, query, args.split), args.head_dim,
                    partial_at(args, r, args.split));
      continue;
    }
    Partial sum;
    for (int64_t split = first; split <= last; ++split) {
      sum.fold(args.work == AttentionWork::kMerge
                   ? read_partial(partial_at(args, r, split), args.head_dim)
                   : run_split(args, query, split),
               args.head_dim);
    }
    write_out(args, query, sum);
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
constexpr KernelRow bf16_pairs_row(const char* name) {
  return {KernelOp::kMatmul,
          name,
          0,
          Layout::kBF16,
          ActivationType::kBF16,
          1,
          {1, kPanel, 2},
          NumericsClass::kBf16Dot,
          {.matmul = &matmul_bf16_pairs}};
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
template <ActivationType kType>
constexpr KernelRow quantise_bf16_row(const char* name) {
  return {KernelOp::kQuantise,
          name,
          0,
          Layout::kCount,
          kType,
          1,
          {1, 1, kActivationBlock},
          num_terms(kType) == 2 ? NumericsClass::kBf16Tile : NumericsClass::kBf16Dot,
          {.quantise = &quantise_bf16<kType>}};
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
    bf16_pairs_row("matmul_bf16_bf16"),  // before float32: what is multiplied where both are chosen
    matmul_row<Layout::kF32>("matmul_f32"),
    matmul_row<Layout::kF16>("matmul_f16"),
    matmul_row<Layout::kBF16>("matmul_bf16"),
    matmul_row<Layout::kE4M3>("matmul_e4m3"),
    matmul_row<Layout::kE5M2>("matmul_e5m2"),
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
    integer_row<Layout::kInt2G128, ActivationType::kInt16>("matmul_int2_g128_int16"),
    integer_row<Layout::kInt2G64, ActivationType::kInt16>("matmul_int2_g64_int16"),
    integer_row<Layout::kInt2G32, ActivationType::kInt16>("matmul_int2_g32_int16"),
    integer_row<Layout::kInt4G128, ActivationType::kInt16>("matmul_int4_g128_int16"),
    integer_row<Layout::kInt4G64, ActivationType::kInt16>("matmul_int4_g64_int16"),
    integer_row<Layout::kInt4G32, ActivationType::kInt16>("matmul_int4_g32_int16"),
    integer_row<Layout::kInt4WideG128, ActivationType::kInt16>("matmul_int4w_g128_int16"),
    integer_row<Layout::kInt4WideG64, ActivationType::kInt16>("matmul_int4w_g64_int16"),
    integer_row<Layout::kInt4WideG32, ActivationType::kInt16>("matmul_int4w_g32_int16"),
    integer_row<Layout::kInt8G128, ActivationType::kInt16>("matmul_int8_g128_int16"),
    integer_row<Layout::kInt8G64, ActivationType::kInt16>("matmul_int8_g64_int16"),
    integer_row<Layout::kInt8G32, ActivationType::kInt16>("matmul_int8_g32_int16"),
    integer_row<Layout::kNVFP4, ActivationType::kInt16>("matmul_nvfp4_int16"),
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
    integer_row<Layout::kInt2G128, ActivationType::kInt8>("matmul_int2_g128_int8"),
    integer_row<Layout::kInt2G64, ActivationType::kInt8>("matmul_int2_g64_int8"),
    integer_row<Layout::kInt2G32, ActivationType::kInt8>("matmul_int2_g32_int8"),
    integer_row<Layout::kInt4G128, ActivationType::kInt8>("matmul_int4_g128_int8"),
    integer_row<Layout::kInt4G64, ActivationType::kInt8>("matmul_int4_g64_int8"),
    integer_row<Layout::kInt4G32, ActivationType::kInt8>("matmul_int4_g32_int8"),
    integer_row<Layout::kInt4WideG128, ActivationType::kInt8>("matmul_int4w_g128_int8"),
    integer_row<Layout::kInt4WideG64, ActivationType::kInt8>("matmul_int4w_g64_int8"),
    integer_row<Layout::kInt4WideG32, ActivationType::kInt8>("matmul_int4w_g32_int8"),
    integer_row<Layout::kInt8G128, ActivationType::kInt8>("matmul_int8_g128_int8"),
    integer_row<Layout::kInt8G64, ActivationType::kInt8>("matmul_int8_g64_int8"),
    integer_row<Layout::kInt8G32, ActivationType::kInt8>("matmul_int8_g32_int8"),
    integer_row<Layout::kNVFP4, ActivationType::kInt8>("matmul_nvfp4_int8"),
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
    unpack_row<Layout::kInt2G128>("unpack_int2_g128"),
    unpack_row<Layout::kInt2G64>("unpack_int2_g64"),
    unpack_row<Layout::kInt2G32>("unpack_int2_g32"),
    unpack_row<Layout::kInt4G128>("unpack_int4_g128"),
    unpack_row<Layout::kInt4G64>("unpack_int4_g64"),
    unpack_row<Layout::kInt4G32>("unpack_int4_g32"),
    unpack_row<Layout::kInt4WideG128>("unpack_int4w_g128"),
    unpack_row<Layout::kInt4WideG64>("unpack_int4w_g64"),
    unpack_row<Layout::kInt4WideG32>("unpack_int4w_g32"),
    unpack_row<Layout::kInt8G128>("unpack_int8_g128"),
    unpack_row<Layout::kInt8G64>("unpack_int8_g64"),
    unpack_row<Layout::kInt8G32>("unpack_int8_g32"),
    unpack_row<Layout::kNVFP4>("unpack_nvfp4"),
    unpack_row<Layout::kE4M3>("unpack_e4m3"),
    unpack_row<Layout::kE5M2>("unpack_e5m2"),
    quantise_row<ActivationType::kInt16>("quantise_int16"),
    quantise_row<ActivationType::kInt8>("quantise_int8"),
    quantise_bf16_row<ActivationType::kBF16x2>("quantise_bf16x2"),
    quantise_bf16_row<ActivationType::kBF16>("quantise_bf16"),
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
