// Workspace: all activations of one step, allocated once for the largest batch.
//
// Owner: Model. Engine thread. A step uses the first num_rows rows of each array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "model/config/config.h"
#include "model/model_options.h"

namespace headrace {

struct RopeRows {        // one rope's tables for the rows of a step
  float* cos = nullptr;  // [M, rope_dims / 2]
  float* sin = nullptr;
};

struct Workspace {
  float* hidden = nullptr;  // [M, hidden_size] the residual stream
  float* normed = nullptr;  // [M, hidden_size] room for the norm of an input
  // [M, hidden_size] a branch's output before its norm; of a parallel block, x + A(N x)
  float* branch = nullptr;
  float* qkv = nullptr;          // [M, (heads + 2 kv heads) * head_dim], widest layer
  float* q = nullptr;            // [M, heads * head_dim]
  float* attended = nullptr;     // [M, heads * head_dim]
  float* mlp = nullptr;          // [M, intermediate_size]
  float* q_row_scale = nullptr;  // [M]
  float* logit_rows = nullptr;   // [max_logit_rows, hidden_size]
  float* scratch = nullptr;      // [largest rope_dims / 2]
  size_t scratch_size = 0;
  std::vector<RopeRows> ropes;  // one per ModelConfig::ropes

  static Result<Workspace> create(const ModelConfig& config, const ModelOptions& options);
  static size_t num_bytes(const ModelConfig& config, const ModelOptions& options);

 private:
  Buffer memory_;
};

}  // namespace headrace
