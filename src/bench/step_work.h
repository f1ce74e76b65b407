// What one step of a model must do at the least: bytes to read and operations to make. From headers
// and shapes alone; the ceilings of `headrace bench step` follow from it.
//
// Linear layers: 2 N K operations per token; the head only for rows whose logits are wanted; of
// experts those that a token is sent to. Attention of one token at position p: operations per
// position that it sees, min(p + 1, window). Bytes: every packed weight once per step (the
// embedding only where it is the head), of experts as many as the tokens of a step are expected to
// meet; keys and values of every position once; a recurrent state read and written once.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "base/result.h"
#include "bench/limits.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace headrace {

// Operations of one arithmetic: multiplied `passes` times for every product counted once.
struct ArithmeticWork {
  cpu::PeakKind kind = cpu::PeakKind::kF32;
  int passes = 1;            // two for activations of two int8 terms
  double per_token = 0;      // linear layers
  double per_logit_row = 0;  // head
};

// Of a layer's experts the share that a step's tokens meet, where each uses num_used.
double share_met(int num_used, int num_experts, double num_tokens);

// The experts of one weight of a layer.
struct ExpertWork {
  size_t num_bytes = 0;  // of all of them
  int num_experts = 1;
  int num_used = 1;  // by a token

  // Bytes of those that num_tokens tokens meet, if each is as likely as any other.
  double expected_bytes(double num_tokens) const;
};

// A weight as an op multiplies with it.
struct OpWork {
  struct Part {
    cpu::Layout layout;
    cpu::ActivationType activation;
    int64_t num_outputs;
  };
  enum class Form : uint8_t { kLinear, kGated, kQkv, kHead };

  Form form = Form::kLinear;
  int64_t num_inputs = 0;
  std::vector<Part> parts;  // of one expert
  int num_experts = 1;
  int num_used = 1;        // by a token
  int64_t num_normed = 0;  // of a row's outputs, normed at the end

  int64_t num_outputs() const;
};

// The peak that bounds a mixer's operations, and how many at that peak each of them is.
struct MixerArithmetic {
  cpu::PeakKind kind = cpu::PeakKind::kF32;
  double passes = 1;
};
// Of attention over keys and values of that type.
MixerArithmetic attention_arithmetic(const cpu::KernelSet& kernels, KvType kv_type);

// What a layer's mixer does beside its linear layers.
struct MixerWork {
  double operations_per_position = 0;  // of a token, for each position that it sees
  MixerArithmetic arithmetic = {};     // of these
  double operations_per_token = 0;     // state
  size_t position_bytes = 0;           // kept of each position
  size_t state_bytes = 0;              // kept of a sequence
  int64_t window = 0;                  // positions that a token sees; 0: all
  // Of attention and latents, heads of queries and of keys; 0: a state alone.
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;

  int64_t visible(int64_t position) const;  // positions that a token there sees
  // The same of `count` tokens from the first on, together.
  double positions_seen(int64_t first, int64_t count) const;
};

struct StepWork {
  std::vector<ArithmeticWork> linear;  // one per arithmetic in use
  size_t weight_bytes = 0;             // read once per step, whoever is in it
  std::vector<ExpertWork> experts;
  std::vector<MixerWork> mixers;  // of each layer
  std::vector<OpWork> ops;        // each runs once in a step
  KvType kv_type = KvType::kF16;
  int64_t num_rotated = 0;  // pairs of a position, of all ropes

  std::vector<cpu::Layout> layouts() const;  // of the ops' weights, each once
  // Bytes of weights that a step of num_tokens tokens reads.
  double weight_bytes_of(double num_tokens) const;
  // Operations of mixers on tokens at positions [first, first + count).
  double mixer_operations(int64_t first, int64_t count) const;
  // Seconds that these need at the peaks; 0 where no peak is known.
  double mixer_seconds(int64_t first, int64_t count, std::span<const cpu::PeakRate> peaks,
                       uint32_t isa) const;
  // Bytes of keys, values and state that a token at this position reads and writes.
  double kv_bytes(int64_t position) const;
  // Seconds that the arithmetic of a step needs at the peaks; 0 where no peak is known.
  double linear_seconds(double num_tokens, double num_logit_rows,
                        std::span<const cpu::PeakRate> peaks, uint32_t isa) const;
};

// The arithmetic that weights of a layout are multiplied with; no work yet.
ArithmeticWork arithmetic_of(const cpu::KernelSet& kernels, cpu::Layout layout);

// kernels: the rows that the back end uses; they say which arithmetic each layout is multiplied
// with.
Result<StepWork> step_work(const Checkpoint& checkpoint, const ModelConfig& config,
                           const Backend& backend, const cpu::KernelSet& kernels, KvType kv_type);
// Of weights that were found.
StepWork step_work(const FoundWeights& found, const ModelConfig& config, const Backend& backend,
                   const cpu::KernelSet& kernels, KvType kv_type);

}  // namespace headrace
