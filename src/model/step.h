// StepContext: what the parts of a layer share while one batch runs through the network.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/config/config.h"
#include "model/kv_store.h"
#include "model/workspace.h"

namespace headrace {

// Everything outlives the step. Workspace tables (rope, q_row_scale) are filled.
struct StepContext {
  const ModelConfig& config;
  Backend& backend;
  Workspace& workspace;
  KvStore& kv;
  const StepGeometry* geometry = nullptr;  // of the batch's spans
  int64_t num_rows = 0;                    // M
};

// One branch of a block (attention or MLP), x += post_norm(branch(norm(x))): what goes in and how
// the output projection comes back.
struct Branch {
  Input input;           // [M, hidden_size]
  Epilogue epilogue;     // without bias
  DevicePtr<float> out;  // [M, hidden_size]

  Epilogue with_bias(DevicePtr<const float> bias) const {
    Epilogue result = epilogue;
    result.bias = bias;
    return result;
  }
};

}  // namespace headrace
