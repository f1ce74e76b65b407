// What a caller decides of a model before it is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "backend/backend.h"

namespace headrace {

// Where packed weights are kept for the next start; see weight_cache.h.
struct WeightCacheOptions {
  std::string directory;       // empty: nowhere
  uint64_t max_bytes = 0;      // of all files in it
  bool check_content = false;  // read the whole checkpoint at each start, whatever its stamps say
};

struct ModelOptions {
  int max_batch_tokens = 512;  // rows of the largest step: sizes the workspace
  int max_logit_rows = 64;     // logit_rows and best_rows of one step
  KvType kv_type = KvType::kF32;
  bool prediction = false;  // the head for further tokens too, where the file has one
  WeightCacheOptions weight_cache = {};
};

// done of total packed bytes; called from the loading thread.
using LoadProgress = std::function<void(size_t done, size_t total)>;

}  // namespace headrace
