// How many KV blocks an engine gets, and the context that follows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"

namespace headrace {

struct KvSize {
  int64_t num_blocks = 0;
  int64_t max_context = 0;  // tokens; at most what the blocks hold
};

// model_context: the model's max_position_embeddings, 0 if unknown. block_bytes: one block over all
// layers. available_bytes: memory this process can still get. kExhausted when not one block fits.
Result<KvSize> size_kv(const EngineOptions& options, int64_t model_context, size_t block_bytes,
                       size_t available_bytes);

// Memory this process can still get: what the kernel calls available, or less when its control
// group says so. 0 if the system does not tell.
size_t available_memory_bytes();

}  // namespace headrace
