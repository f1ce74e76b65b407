// How many KV blocks an engine gets, and the context that follows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/system_memory.h"
#include "engine/engine_options.h"
#include "model/cache_groups.h"

namespace headrace {

struct KvSize {
  int64_t num_blocks = 0;
  int64_t max_context = 0;  // tokens; at most what the blocks hold
};

// model_context: the model's max_position_embeddings, 0 if unknown. max_chunk: tokens of one
// sequence in a step, for which windows need room. available_bytes: memory this process can still
// get; what is left of it is for requests' bodies, their texts and tokens, and the allocator.
// Without options: four full contexts within a quarter of it, or one within half. kExhausted when
// not one block fits, or not what was asked for.
Result<KvSize> size_kv(const EngineOptions& options, int64_t model_context,
                       const CacheLayout& layout, int64_t max_chunk, size_t available_bytes);

}  // namespace headrace
