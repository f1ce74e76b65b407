// Shapes and formats of random models, and the tensors that they mean.

#include <fmt/format.h>

#include "bench/synth.h"

namespace headrace {
namespace {

// clang-format off
constexpr SynthShape kShapes[] = {
    // name            arch     hidden layers heads kv  dim   ffn   vocab   tied   theta  context
    {"smollm2-135m",  "llama",   576, 30,  9, 3,  64,  1536,  49152, true,  100000,   8192},
    {"smollm2-360m",  "llama",   960, 32, 15, 5,  64,  2560,  49152, true,  100000,   8192},
    {"qwen2.5-0.5b",  "qwen2",   896, 24, 14, 2,  64,  4864, 151936, true,  1000000, 32768},
    {"qwen2.5-1.5b",  "qwen2",  1536, 28, 12, 2, 128,  8960, 151936, true,  1000000, 32768},
    {"llama-1b",      "llama",  2048, 16, 32, 8,  64,  8192, 128256, true,  500000, 131072},
    {"llama-3b",      "llama",  3072, 28, 24, 8, 128,  8192, 128256, true,  500000, 131072},
    {"llama-8b",      "llama",  4096, 32, 32, 8, 128, 14336, 128256, false, 500000, 131072},
};

constexpr SynthFormat kFormats[] = {
    // name    file type  main           better
    {"f32",     0, DType::kF32,   DType::kF32},
    {"f16",     1, DType::kF16,   DType::kF16},
    {"bf16",   32, DType::kBF16,  DType::kBF16},
    {"q8_0",    7, DType::kQ8_0,  DType::kQ8_0},
    {"q4_0",    2, DType::kQ4_0,  DType::kQ4_0},
    {"q4_1",    3, DType::kQ4_1,  DType::kQ4_1},
    {"q5_0",    8, DType::kQ5_0,  DType::kQ5_0},
    {"q5_1",    9, DType::kQ5_1,  DType::kQ5_1},
    {"q2_k",   10, DType::kQ2K,   DType::kQ2K},
    {"q3_k",   11, DType::kQ3K,   DType::kQ3K},
    {"q4_k",   14, DType::kQ4K,   DType::kQ4K},
    {"q4_k_m", 15, DType::kQ4K,   DType::kQ6K},
    {"q5_k",   16, DType::kQ5K,   DType::kQ5K},
    {"q5_k_m", 17, DType::kQ5K,   DType::kQ6K},
    {"q6_k",   18, DType::kQ6K,   DType::kQ6K},
    {"iq4_nl", 25, DType::kIQ4NL, DType::kIQ4NL},
    {"iq4_xs", 30, DType::kIQ4XS, DType::kIQ4XS},
    {"mxfp4",  38, DType::kMXFP4, DType::kMXFP4},
};

// What takes over where K is no multiple of the block.
struct Fallback { DType dtype, next; };
constexpr Fallback kFallbacks[] = {
    {DType::kQ2K, DType::kIQ4NL}, {DType::kQ3K, DType::kIQ4NL},  {DType::kIQ4XS, DType::kIQ4NL},
    {DType::kQ4K, DType::kQ5_0},  {DType::kQ5K, DType::kQ5_1},   {DType::kQ6K, DType::kQ8_0},
};
// clang-format on

DType dtype_for(DType wanted, int64_t num_inputs) {
  const auto fits = [&](DType dtype) { return num_inputs % dtype_row(dtype).block_elements == 0; };
  if (fits(wanted)) return wanted;
  for (const Fallback& row : kFallbacks) {
    if (row.dtype == wanted && fits(row.next)) return row.next;
  }
  return DType::kF16;
}

// The layers whose v and down get the better type: the first and last eighth, and every third.
bool is_better_layer(int64_t layer, int64_t num_layers) {
  const int64_t eighth = num_layers / 8;
  return layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2;
}

class TensorList {
 public:
  TensorList(const SynthShape& shape, const SynthFormat& format) : shape_(shape), format_(format) {}

  void matrix(const std::string& name, int64_t num_outputs, int64_t num_inputs, bool better) {
    const DType wanted = better ? format_.better : format_.main;
    add({name, {num_inputs, num_outputs}, dtype_for(wanted, num_inputs)});
  }
  void vector(const std::string& name, int64_t size) { add({name, {size}, DType::kF32}); }

  void layer(int64_t i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    const int64_t q_rows = shape_.num_heads * shape_.head_dim;
    const int64_t kv_rows = shape_.num_kv_heads * shape_.head_dim;
    const bool better = is_better_layer(i, shape_.num_layers);
    vector(prefix + "attn_norm.weight", shape_.hidden_size);
    projection(prefix + "attn_q", q_rows, false);
    projection(prefix + "attn_k", kv_rows, false);
    projection(prefix + "attn_v", kv_rows, better);
    matrix(prefix + "attn_output.weight", shape_.hidden_size, q_rows, false);
    vector(prefix + "ffn_norm.weight", shape_.hidden_size);
    matrix(prefix + "ffn_gate.weight", shape_.intermediate_size, shape_.hidden_size, false);
    matrix(prefix + "ffn_up.weight", shape_.intermediate_size, shape_.hidden_size, false);
    matrix(prefix + "ffn_down.weight", shape_.hidden_size, shape_.intermediate_size, better);
  }

  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  // q, k and v: Qwen 2 gives them biases.
  void projection(const std::string& name, int64_t num_outputs, bool better) {
    matrix(name + ".weight", num_outputs, shape_.hidden_size, better);
    if (shape_.architecture == "qwen2") vector(name + ".bias", num_outputs);
  }
  void add(SynthTensor tensor) {
    constexpr uint64_t kAlignment = 32;
    if (!tensors_.empty()) {
      const SynthTensor& last = tensors_.back();
      tensor.offset = (last.offset + last.num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    }
    tensors_.push_back(std::move(tensor));
  }

  const SynthShape& shape_;
  const SynthFormat& format_;
  std::vector<SynthTensor> tensors_;
};

Status in_range(std::string_view option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, but it must be in {}..{}", option,
                    value, low, high);
}

}  // namespace

std::span<const SynthShape> synth_shapes() { return kShapes; }
std::span<const SynthFormat> synth_formats() { return kFormats; }

size_t SynthTensor::num_bytes() const {
  int64_t num_elements = 1;
  for (const int64_t size : sizes) num_elements *= size;
  const DTypeRow& row = dtype_row(dtype);
  return static_cast<size_t>(num_elements) / row.block_elements * row.block_bytes;
}

std::vector<SynthTensor> synth_tensors(const SynthShape& shape, const SynthFormat& format) {
  TensorList list(shape, format);
  list.matrix("token_embd.weight", shape.vocab_size, shape.hidden_size, shape.tied);
  list.vector("output_norm.weight", shape.hidden_size);
  if (!shape.tied) list.matrix("output.weight", shape.vocab_size, shape.hidden_size, true);
  for (int64_t i = 0; i < shape.num_layers; ++i) list.layer(i);
  return list.take();
}

Status check_shape(const SynthShape& shape) {
  constexpr int64_t kLargest = int64_t{1} << 17;
  TRY(in_range("--hidden", shape.hidden_size, 16, kLargest));
  TRY(in_range("--layers", shape.num_layers, 1, 1024));
  TRY(in_range("--heads", shape.num_heads, 1, 1024));
  TRY(in_range("--kv-heads", shape.num_kv_heads, 1, shape.num_heads));
  TRY(in_range("--head-dim", shape.head_dim, 16, 512));
  TRY(in_range("--intermediate", shape.intermediate_size, 16, kLargest));
  TRY(in_range("--vocab", shape.vocab_size, 300, 1 << 20));
  if (shape.num_heads % shape.num_kv_heads != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--heads is {}, but it must be a multiple of the {} KV heads",
                      shape.num_heads, shape.num_kv_heads);
  }
  if (shape.head_dim % 2 != 0) {
    return make_error(ErrorCode::kInvalidArgument, "--head-dim is {}, but it must be even",
                      shape.head_dim);
  }
  return {};
}

}  // namespace headrace
