// SequenceRunner: one sequence through a model, without an engine. For evaluation and verification.
//
// Owns the KV store of its sequence. Computes tokens in chunks of at most the model's batch size
// and shows logits row by row. When the model's rope epoch changes as the sequence grows, the
// tokens so far are computed again from position 0, as Model::rope_epoch asks. One thread, and the
// model serves nobody else meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/whole_tables.h"

namespace headrace {

// Logits after the token at `position`: [vocab_size], valid during the call.
using LogitVisitor = std::function<void(int64_t position, std::span<const float> logits)>;

class SequenceRunner {
 public:
  // Room for max_tokens. chunk_tokens: tokens per forward, 0 = the model's batch size.
  static Result<SequenceRunner> create(Model& model, Backend& backend, int64_t max_tokens,
                                       int chunk_tokens = 0);

  // Tokens appended from now on take this adapter, which outlives its use; null: none.
  void use(const PackedAdapter* adapter) { adapter_ = adapter; }
  // Forgets the sequence.
  void restart();
  // Appends tokens; visits the logits after every token at position >= first_visited, ascending.
  void append(std::span<const int32_t> ids, int64_t first_visited, const LogitVisitor& visit,
              const HiddenTap& tap = {});
  // Appends num_tokens greedy ids (ties to the lowest) to the prompt given before; returns them.
  std::vector<int32_t> generate_greedy(std::span<const int32_t> prompt, int num_tokens);

  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  SequenceRunner(Model& model, Backend& backend, KvStore store, DeviceMemory logits,
                 int chunk_tokens);
  void compute_chunk(int64_t first_visited, const LogitVisitor& visit, const HiddenTap& tap);

  Model* model_;
  Backend* backend_;
  KvStore store_;
  int chunk_tokens_;
  WholeTables tables_;
  std::vector<int32_t> tokens_;
  int64_t num_computed_ = 0;
  int64_t rope_epoch_ = 0;
  const PackedAdapter* adapter_ = nullptr;
  std::vector<int32_t> logit_rows_;
  DeviceMemory logits_;  // float [max_logit_rows, vocab_size]
};

// Index of the largest value, the lowest index on ties.
int32_t argmax(std::span<const float> values);

}  // namespace headrace
