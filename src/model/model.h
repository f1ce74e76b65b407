// Model: a checkpoint made runnable. Immutable after load, apart from its workspace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "base/system_memory.h"
#include "checkpoint/checkpoint.h"
#include "model/batch.h"
#include "model/config/config.h"
#include "model/kv_store.h"

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
  WeightCacheOptions weight_cache = {};
};

// Where memory goes, computed from headers before any weight is read. Bytes.
struct MemoryPlan {
  size_t weights = 0;
  size_t kv_block = 0;  // one block of kBlockTokens tokens over all layers
  size_t workspace = 0;
  size_t other = 0;  // an estimate: logits, tokenizer, threads, requests, the allocator's slack

  size_t total(size_t kv_memory_bytes) const {
    return weights + workspace + std::max(kv_memory_bytes, kv_block) + other;
  }
};

// To be called before load(): kExhausted, with what is needed, what there is and what to do, if the
// plan does not fit. kv_memory_bytes: what the caller will take for keys and values, 0: as memory
// allows, but at least a block.
Status check_memory(const MemoryPlan& plan, size_t kv_memory_bytes, const MemorySupply& supply);

// done of total packed bytes; called from the loading thread.
using LoadProgress = std::function<void(size_t done, size_t total)>;

// Sees the residual stream: layer -1 = embeddings, i = after layer i, num_layers = after final
// norm.
using HiddenTap =
    std::function<void(int layer, const float* hidden, int64_t num_rows, int64_t width)>;

class Model {
 public:
  virtual ~Model() = default;

  // Reads the configuration (config.json or GGUF keys) without touching weights. kUnsupported for
  // an unknown family: says which it is, what is nearest and what is missing.
  static Result<ModelConfig> read_config(const Checkpoint& checkpoint);
  static Result<MemoryPlan> memory_plan(const Checkpoint& checkpoint, const Backend& backend,
                                        const ModelOptions& options);
  // Finds and checks every tensor, packs them. The checkpoint may be closed afterwards: nothing of
  // it is used any more.
  static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, Backend& backend,
                                             const ModelOptions& options,
                                             const LoadProgress& progress = {});

  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;
  virtual std::vector<KvShape> kv_shapes() const = 0;  // one per layer

  // One step: appends K and V of every token to the store, fills the output (float32, multipliers
  // and softcap applied). Batch sizes are within the options. Engine thread.
  virtual void forward(const Batch& batch, KvStore& kv, const StepOutput& output,
                       const HiddenTap& tap = {}) = 0;

  // Which rope table a sequence of num_tokens uses. When it changes as a sequence grows (longrope
  // past its original length; dynamic at every token past it), all cached K and V are stale and the
  // sequence is computed again from position 0. Constant 0 for other rope types.
  virtual int64_t rope_epoch(int64_t num_tokens) const = 0;
};

}  // namespace headrace
