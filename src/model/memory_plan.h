// What a model will need of memory, and whether the machine has it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/result.h"
#include "base/system_memory.h"
#include "model/cache_groups.h"

namespace headrace {

// Where memory goes, computed from headers before any weight is read. Bytes.
struct MemoryPlan {
  size_t weights = 0;
  CacheLayout kv;  // of keys and values; a block's bytes with those of a head for further tokens
  size_t workspace = 0;
  size_t other = 0;  // an estimate: logits, tokenizer, threads, requests, the allocator's slack

  size_t least_kv() const { return kv.bytes_for(kBlockTokens, kBlockTokens); }
  size_t total(size_t kv_memory_bytes) const {
    return weights + workspace + std::max(kv_memory_bytes, least_kv()) + other;
  }
};

// To be called before load(): kExhausted, with what is needed, what there is and what to do, if the
// plan does not fit. kv_memory_bytes: what the caller will take for keys and values, 0: as memory
// allows, but at least what a few tokens need.
Status check_memory(const MemoryPlan& plan, size_t kv_memory_bytes, const MemorySupply& supply);

}  // namespace headrace
