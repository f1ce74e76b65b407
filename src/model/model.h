// Model: a checkpoint made runnable. Immutable after load, apart from its workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/adapter.h"
#include "model/batch.h"
#include "model/cache_groups.h"
#include "model/config/config.h"
#include "model/kv_store.h"
#include "model/memory_plan.h"
#include "model/model_options.h"

namespace headrace {

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
  // The same for the network that `config` describes, which read_config() or another has made.
  static Result<MemoryPlan> memory_plan(const Checkpoint& checkpoint, const ModelConfig& config,
                                        const Backend& backend, const ModelOptions& options);
  static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, ModelConfig config,
                                             Backend& backend, const ModelOptions& options,
                                             const LoadProgress& progress = {});

  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;
  // What its layers keep of a sequence.
  virtual std::vector<CacheGroup> cache_groups() const = 0;

  // One step: appends K and V of every token to the store, fills the output (float32, multipliers
  // and softcap applied). Batch sizes are within the options. Engine thread.
  virtual void forward(const Batch& batch, KvStore& kv, const StepOutput& output,
                       const HiddenTap& tap = {}) = 0;

  // The head that predicts further tokens, as a network of one layer (config/read_prediction.h):
  // the spans of its batches have states. It shares the embedding and the output matrix, runs
  // between forward passes on the same thread, and lives as long. Null: there is none.
  virtual Model* prediction() { return nullptr; }

  // Which rope table a sequence of num_tokens uses. When it changes as a sequence grows (longrope
  // past its original length; dynamic at every token past it), all cached K and V are stale and the
  // sequence is computed again from position 0. Constant 0 for other rope types.
  virtual int64_t rope_epoch(int64_t num_tokens) const = 0;

  // An adapter for these weights, which outlive it; Span::adapter names it. From any thread, also
  // while steps run. kInvalidArgument or kUnsupported name the tensor or key that does not fit,
  // kCorrupt what cannot be read, kExhausted when memory is short.
  virtual Result<std::unique_ptr<const Adapter>> load_adapter(const AdapterFiles& files) const;

  // All packed weights, one after the other: for whoever measures how fast they are read. Null:
  // they do not lie so.
  virtual const DeviceMemory* weight_memory() const { return nullptr; }

  // The rows that each expert has had since the load, layer after layer (num_experts_before). Good
  // until the next step. Engine thread.
  virtual std::span<const uint64_t> expert_rows() const { return {}; }
};

}  // namespace headrace
