// Shapes and formats of random models, and the tensors that they mean.

#include <fmt/format.h>

#include "bench/synth_parts.h"

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
    {.name = "olmoe-1b-7b", .architecture = "olmoe", .hidden_size = 2048, .num_layers = 16,
     .num_heads = 16, .num_kv_heads = 16, .head_dim = 128, .intermediate_size = 1024, .vocab_size = 50304,
     .tied = false, .rope_theta = 10000, .context = 4096,
     .num_experts = 64, .num_experts_used = 8, .expert_width = 1024},
    {.name = "qwen3-30b-a3b", .architecture = "qwen3moe", .hidden_size = 2048, .num_layers = 48,
     .num_heads = 32, .num_kv_heads = 4, .head_dim = 128, .intermediate_size = 6144, .vocab_size = 151936,
     .tied = false, .rope_theta = 1000000, .context = 40960,
     .num_experts = 128, .num_experts_used = 8, .expert_width = 768},
    {.name = "gpt-oss-20b", .architecture = "gpt-oss", .hidden_size = 2880, .num_layers = 24,
     .num_heads = 64, .num_kv_heads = 8, .head_dim = 64, .intermediate_size = 2880, .vocab_size = 201088,
     .tied = false, .rope_theta = 150000, .context = 131072,
     .window = 128, .num_experts = 32, .num_experts_used = 4, .expert_width = 2880},
    {.name = "deepseek-v2-lite", .architecture = "deepseek2", .hidden_size = 2048, .num_layers = 27,
     .num_heads = 16, .num_kv_heads = 16, .head_dim = 128, .intermediate_size = 10944, .vocab_size = 102400,
     .tied = false, .rope_theta = 10000, .context = 163840,
     .num_experts = 64, .num_experts_used = 6, .expert_width = 1408, .num_shared_experts = 2,
     .num_dense_layers = 1, .kv_lora_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
    {.name = "lfm2-1.2b", .architecture = "lfm2", .hidden_size = 2048, .num_layers = 16,
     .num_heads = 32, .num_kv_heads = 8, .head_dim = 64, .intermediate_size = 8192, .vocab_size = 65536,
     .tied = true, .rope_theta = 1000000, .context = 128000,
     .conv_kernel = 3},
    {.name = "qwen3.5-0.8b", .architecture = "qwen35", .hidden_size = 1024, .num_layers = 24,
     .num_heads = 8, .num_kv_heads = 2, .head_dim = 256, .intermediate_size = 3584, .vocab_size = 248320,
     .tied = true, .rope_theta = 10000000, .context = 262144,
     .mixer_period = 4, .rope_dim = 64, .linear_key_heads = 16, .linear_value_heads = 16,
     .linear_head_dim = 128, .conv_kernel = 4},
    {.name = "gemma-4-e2b", .architecture = "gemma4", .hidden_size = 1536, .num_layers = 35,
     .num_heads = 8, .num_kv_heads = 1, .head_dim = 256, .intermediate_size = 6144, .vocab_size = 262144,
     .tied = true, .rope_theta = 1000000, .context = 131072,
     .window = 512, .mixer_period = 5, .full_head_dim = 512, .per_layer_width = 256,
     .shared_kv_layers = 586},  // 20 of 35
};

constexpr SynthFormat kFormats[] = {
    // name    file type  main           better         beside experts (mxfp4: as its publishers do)
    {"f32",     0, DType::kF32,   DType::kF32, DType::kF32},
    {"f16",     1, DType::kF16,   DType::kF16, DType::kF16},
    {"bf16",   32, DType::kBF16,  DType::kBF16, DType::kBF16},
    {"q8_0",    7, DType::kQ8_0,  DType::kQ8_0, DType::kQ8_0},
    {"q4_0",    2, DType::kQ4_0,  DType::kQ4_0, DType::kQ4_0},
    {"q4_1",    3, DType::kQ4_1,  DType::kQ4_1, DType::kQ4_1},
    {"q5_0",    8, DType::kQ5_0,  DType::kQ5_0, DType::kQ5_0},
    {"q5_1",    9, DType::kQ5_1,  DType::kQ5_1, DType::kQ5_1},
    {"q2_k",   10, DType::kQ2K,   DType::kQ2K, DType::kQ2K},
    {"q3_k",   11, DType::kQ3K,   DType::kQ3K, DType::kQ3K},
    {"q4_k",   14, DType::kQ4K,   DType::kQ4K, DType::kQ4K},
    {"q4_k_m", 15, DType::kQ4K,   DType::kQ6K, DType::kQ4K},
    {"q5_k",   16, DType::kQ5K,   DType::kQ5K, DType::kQ5K},
    {"q5_k_m", 17, DType::kQ5K,   DType::kQ6K, DType::kQ5K},
    {"q6_k",   18, DType::kQ6K,   DType::kQ6K, DType::kQ6K},
    {"iq4_nl", 25, DType::kIQ4NL, DType::kIQ4NL, DType::kIQ4NL},
    {"iq4_xs", 30, DType::kIQ4XS, DType::kIQ4XS, DType::kIQ4XS},
    {"mxfp4",  38, DType::kMXFP4, DType::kMXFP4, DType::kQ8_0},
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
  TensorList(const SynthShape& shape, const SynthFormat& format)
      : shape_(shape),
        format_(format),
        architecture_(*find_synth_architecture(shape.architecture)) {}

  std::vector<SynthTensor> all() {
    end_matrix("token_embd.weight", shape_.tied);
    add({std::string(architecture_.final_norm),
         {shape_.hidden_size},
         DType::kF32,
         SynthFill::kOnes});
    if (!shape_.tied) end_matrix("output.weight", true);
    for (const SynthTensorRow& row : architecture_.ends) add_row("", row, 0);
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      for (const SynthPart& part : architecture_.parts) {
        if (part.in_layer != nullptr && !part.in_layer(shape_, layer)) continue;
        for (const SynthTensorRow& row : part.rows) add_row(prefix, row, layer);
      }
    }
    return std::move(tensors_);
  }

 private:
  void end_matrix(const std::string& name, bool better) {
    add({name,
         {shape_.hidden_size, shape_.vocab_size},
         dtype_for(better ? beside_better() : beside(), shape_.hidden_size)});
  }
  void add_row(const std::string& prefix, const SynthTensorRow& row, int64_t layer) {
    SynthTensor tensor{prefix + std::string(row.name), {}, DType::kF32, row.fill};
    if (row.inputs != nullptr) {
      tensor.sizes.push_back(row.inputs(shape_, layer));
      tensor.dtype = dtype_for(wanted(row.use, layer), tensor.sizes[0]);
      tensor.fill = SynthFill::kRandom;
    }
    tensor.sizes.push_back(row.outputs(shape_, layer));
    if (row.experts != nullptr) tensor.sizes.push_back(row.experts(shape_, layer));
    add(std::move(tensor));
  }
  DType wanted(SynthUse use, int64_t layer) const {
    const bool better = is_better_layer(layer, shape_.num_layers);
    switch (use) {
      case SynthUse::kExact:
        return DType::kF32;
      case SynthUse::kExpert:
        return format_.main;
      case SynthUse::kExpertBetter:
        return better ? format_.better : format_.main;
      case SynthUse::kBetter:
        return better ? beside_better() : beside();
      default:
        return beside();
    }
  }
  DType beside() const { return shape_.num_experts > 0 ? format_.beside_experts : format_.main; }
  DType beside_better() const { return format_.better == format_.main ? beside() : format_.better; }
  void add(SynthTensor tensor) {
    constexpr uint64_t kTensorAlignment = 32;
    if (!tensors_.empty()) {
      const SynthTensor& last = tensors_.back();
      tensor.offset = (last.offset + last.num_bytes() + kTensorAlignment - 1) / kTensorAlignment *
                      kTensorAlignment;
    }
    tensors_.push_back(std::move(tensor));
  }

  const SynthShape& shape_;
  const SynthFormat& format_;
  const SynthArchitecture& architecture_;
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
  return TensorList(shape, format).all();
}

Status check_shape(const SynthShape& shape) {
  constexpr int64_t kLargest = int64_t{1} << 17;
  if (find_synth_architecture(shape.architecture) == nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there are no random models of architecture '{}'", shape.architecture);
  }
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
