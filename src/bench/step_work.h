// What one step of a model must do at the least: bytes to read and operations to make. From headers
// and shapes alone; the ceilings of `headrace bench step` follow from it.
//
// Linear layers: 2 N K operations per token; the head only for rows whose logits are wanted.
// Attention of one token at position p: 4 heads head_dim min(p + 1, window) per layer, so 2 N^2 d
// for a causal prefill of N tokens. Bytes: every packed weight once per step (the embedding only
// where it is the head), and keys and values of every position once.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "bench/limits.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"

namespace headrace {

// Operations of one arithmetic: multiplied `passes` times for every product counted once.
struct ArithmeticWork {
  cpu::PeakKind kind = cpu::PeakKind::kF32;
  int passes = 1;            // two for activations of two int8 terms
  double per_token = 0;      // linear layers
  double per_logit_row = 0;  // head
};

struct StepWork {
  std::vector<ArithmeticWork> linear;  // one per arithmetic in use
  size_t weight_bytes = 0;             // read once per step
  size_t kv_position_bytes = 0;        // of one position over all layers
  std::vector<LayerConfig> layers;

  // Attention operations of tokens at positions [first, first + count).
  double attention_operations(int64_t first, int64_t count) const;
  // Bytes of keys and values that a token at this position reads.
  double kv_bytes(int64_t position) const;
  // Seconds that the arithmetic of a step needs at the peaks; 0 where no peak is known.
  double linear_seconds(double num_tokens, double num_logit_rows,
                        std::span<const cpu::PeakRate> peaks, uint32_t isa) const;
};

// kernels: the rows that the back end uses; they say which arithmetic each layout is multiplied
// with.
Result<StepWork> step_work(const Checkpoint& checkpoint, const ModelConfig& config,
                           const Backend& backend, const cpu::KernelSet& kernels, KvType kv_type);

}  // namespace headrace
