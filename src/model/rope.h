// Rotary position embedding: frequencies of every type, and the tables of one step.
//
// angle(position, i) = position * f_i in float32, as the reference implementations compute it; cos
// and sin are multiplied by the attention factor. Owner: Model. Engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/config/config.h"

namespace headrace {

// Frequencies of one rope: as many variants as it has tables, computed once.
class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);

  int half() const { return config_.rope_dims / 2; }  // entries per row
  // See Model::rope_epoch. Epochs of several ropes combine by maximum.
  int64_t epoch(int64_t num_tokens) const;
  // f_i for a sequence at this epoch. scratch [half] is used where f depends on the length.
  std::span<const float> frequencies(int64_t epoch, std::span<float> scratch) const;
  // On cos and sin.
  float factor() const { return static_cast<float>(config_.attention_factor); }

 private:
  RopeConfig config_;
  std::vector<float> base_;  // all tokens, or those of short sequences
  std::vector<float> long_;  // longrope beyond the original length
};

}  // namespace headrace
