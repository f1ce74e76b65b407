// Workspace: all activations and tables of one step, allocated once for the largest batch.
//
// Owner: Model. Engine thread. A step uses the first num_rows rows of each array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "model/config/config.h"
#include "model/model_options.h"

namespace headrace {

struct RopeRows {        // one rope's tables for the rows of a step
  DevicePtr<float> cos;  // [M, rope_dims / 2]
  DevicePtr<float> sin;
};

struct Workspace {
  DevicePtr<float> hidden;  // [M, hidden_size] the residual stream
  DevicePtr<float> normed;  // [M, hidden_size] room for the norm of an input
  // [M, hidden_size] a branch's output before its norm; of a parallel block, x + A(N x)
  DevicePtr<float> branch;
  DevicePtr<float> qkv;       // [M, (heads + 2 kv heads + gates) * head_dim], widest layer
  DevicePtr<float> q;         // [M, heads * head_dim]
  DevicePtr<float> attended;  // [M, heads * head_dim]
  DevicePtr<float> mixer;     // room of a mixer of another kind than attention (MixerRow::room)
  DevicePtr<float> mlp;  // room of the MLP (MlpRow::room); of a dense one [M, intermediate_size]
  DevicePtr<float> layer_inputs;  // [M, layers, hidden_size_per_layer_input]
  DevicePtr<float> streams;       // [num_streams, max_rows, hidden_size]; see streams.h
  DevicePtr<float> half_root;     // [1] root of a half, constant; with streams
  // [experts of all layers] the rows that each has had since the start
  DevicePtr<uint64_t> expert_rows;
  DevicePtr<float> q_row_scale;   // [M]
  DevicePtr<float> logit_rows;    // [max_logit_rows, hidden_size]
  DevicePtr<float> alibi_slopes;  // [heads], constant; null: scores do not fall with the distance
  std::vector<RopeRows> ropes;    // one per ModelConfig::ropes
  // Of a head for further tokens: [2 M, hidden_size] embedded tokens, then states; and [M, 2
  // hidden_size] the two of each row side by side.
  DevicePtr<float> to_join, joined;

  // Host memory, to be uploaded or turned into tables.
  std::vector<int64_t> positions;         // [M]
  std::vector<float> query_scales;        // [M], or empty: the network has none
  std::vector<int32_t> position_rows;     // [M], or empty: positions are not learned
  std::vector<float> frequencies;         // [largest rope_dims / 2]
  std::vector<int32_t> layer_input_rows;  // [M], or empty: each token has a row of its own
  std::vector<int32_t> head_rows;         // rows of the step whose logits are made
  std::vector<int32_t> join_order;        // [2 M], or empty: the order of to_join in joined

  int max_rows = 0;  // that there is room for

  static Result<Workspace> create(const ModelConfig& config, const ModelOptions& options,
                                  Backend& backend);
  // Of device memory.
  static size_t num_bytes(const ModelConfig& config, const ModelOptions& options);

 private:
  DeviceMemory memory_;
};

}  // namespace headrace
