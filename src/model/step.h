// StepContext: what the parts of a layer share while one batch runs through the network.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/config.h"
#include "model/kv_store.h"
#include "model/workspace.h"

namespace headrace {

// Everything outlives the step. Workspace tables (rope, q_row_scale, spans) are filled.
struct StepContext {
  const ModelConfig& config;
  Backend& backend;
  Workspace& workspace;
  KvStore& kv;
  int64_t num_rows = 0;  // M
};

// Where a branch (attention or MLP) puts its output projection: straight onto the residual stream,
// or aside for the norm that follows.
struct BranchOutput {
  float* out = nullptr;             // [M, hidden_size]
  const float* residual = nullptr;  // [M, hidden_size] or null
  float scale = 1.0f;
};

}  // namespace headrace
