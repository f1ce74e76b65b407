// Adapter: additional weights that change a loaded model for the requests that name it (LoRA, in
// PEFT's files).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"

namespace headrace {

// The two files of an adapter, in memory.
struct AdapterFiles {
  std::string name;                    // for messages
  std::string config;                  // adapter_config.json
  std::span<const std::byte> weights;  // adapter_model.safetensors
};

// Immutable. Made for the weights of one model, which outlives it. Who may use it in a step keeps
// it alive until the step is done.
struct Adapter {
  std::unique_ptr<PackedAdapter> packed;
  std::string digest;      // of both files: equal digests, equal arithmetic
  std::string base_model;  // what it was made for, as its file says; maybe empty
  int64_t rank = 0;        // the largest
};

}  // namespace headrace
