// Models of random weights, for speed measurements: a shape and a storage format become a GGUF file
// that every reader of the format loads.
//
// Weights are random blocks whose factors give each row of K inputs values of a standard deviation
// near 1 / sqrt(K), so that activations stay finite; norm weights are 1. The vocabulary is the 256
// bytes, a few merges, fillers that no text reaches, and two control tokens. Speed does not depend
// on any of it, the text that such a model writes is noise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace headrace {

struct SynthShape {
  std::string_view name;          // "llama-1b"
  std::string_view architecture;  // GGUF name: "llama", "qwen2"
  int64_t hidden_size;
  int64_t num_layers;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t intermediate_size;
  int64_t vocab_size;
  bool tied;  // the embedding is the head
  double rope_theta;
  int64_t context;

  // Beyond softmax attention and a dense MLP, for the architectures that have it.
  int64_t window = 0;
  int64_t mixer_period = 0;  // every so many layers one of full attention, else another mixer
  int64_t num_experts = 0;
  int64_t num_experts_used = 0;
  int64_t expert_width = 0;
  int64_t num_shared_experts = 0;
  int64_t num_dense_layers = 0;  // before the layers of experts
  int64_t kv_lora_rank = 0;      // latent attention: width of the latent, parts of a head
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  int64_t linear_key_heads = 0;  // recurrent layers
  int64_t linear_value_heads = 0;
  int64_t linear_head_dim = 0;
  int64_t conv_kernel = 0;
  int64_t full_head_dim = 0;     // of layers without a window
  int64_t per_layer_width = 0;   // of the inputs that each layer has of its own
  int64_t shared_kv_layers = 0;  // of 1024 layers: the last ones read keys of earlier layers
};

std::span<const SynthShape> synth_shapes();

// What a format stores in which tensor.
struct SynthFormat {
  std::string_view name;  // "q4_k_m"
  uint32_t file_type;     // general.file_type
  DType main;
  DType better;  // of the head, and in some layers of v and down; equal to main: one type for all
  DType beside_experts;  // of what is no expert in a network that has experts
};

std::span<const SynthFormat> synth_formats();

// What a tensor is filled with.
enum class SynthFill : uint8_t {
  kRandom,
  kOnes,
  kSmall,      // biases
  kNegative,   // rates of decay
  kRopeFreqs,  // divisors: 1 for the first quarter, then so large that nothing is rotated
};

struct SynthTensor {
  std::string name;
  std::vector<int64_t> sizes;  // fastest first, as GGUF has them
  DType dtype;
  SynthFill fill = SynthFill::kRandom;
  uint64_t offset = 0;  // in the data section
  size_t num_bytes() const;
};

// The tensors of a model in file order. A format whose blocks do not divide K gives way to one with
// shorter blocks, as converters do (Q4_K to Q5_0, Q6_K to Q8_0, and at last F16).
std::vector<SynthTensor> synth_tensors(const SynthShape& shape, const SynthFormat& format);

// kInvalidArgument names the size at fault, what was found and what is needed.
Status check_shape(const SynthShape& shape);

// Writes the file, whole or not at all (base/whole_file.h). kIo names the path and the reason.
Status write_synth(const SynthShape& shape, const SynthFormat& format, uint64_t seed,
                   const std::string& path);

// Fills whole blocks of a dtype with random codes and sensible factors; num_inputs is K. `state`
// is the generator, moved on.
void fill_random_blocks(DType dtype, int64_t num_inputs, uint64_t* state,
                        std::span<std::byte> blocks);

}  // namespace headrace
