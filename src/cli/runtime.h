// Runtime: a checkpoint loaded for a command: its text side, a back end and the model on it. The
// files themselves are closed again: nothing done to them later reaches what runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "model/model.h"
#include "options.h"
#include "server/api/bundle.h"

namespace headrace {

// What a loaded checkpoint was.
struct LoadedFiles {
  std::string path;
  size_t num_bytes = 0;
  std::string fingerprint;
  std::vector<std::pair<std::string, int64_t>> formats;  // of tensors, and how many have it
  std::string content = {};  // digest of all bytes, where keys and values outlive the process
};

struct Runtime {
  LoadedFiles files;
  TextBundle text;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Runtime> draft;  // --draft-model
  std::unique_ptr<Engine> engine;  // stops before what it uses
};

// The file or folder that a model argument means: a path, or the name of a pulled model.
Result<std::string> find_model(const Options& options, const std::string& spec);
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const Options& options,
                                                    const std::string& spec);

// team: null: the back end has threads of its own.
Result<std::unique_ptr<Backend>> create_backend(const Options& options,
                                                std::shared_ptr<CpuTeam> team = nullptr);
// For several back ends.
Result<std::shared_ptr<CpuTeam>> create_team(const Options& options);
// backend: where the model will run.
ModelOptions model_options(const Options& options, const Backend& backend);
// automatic: what --kv-type auto is.
KvType kv_type_from_options(const Options& options, KvType automatic);
ActivationArithmetic activations_from_options(const Options& options);
// Tokens per sequence: --context, else what the model was made for, at most kDefaultContext.
Result<int64_t> context_from_options(const Options& options, const ModelConfig& config);
inline constexpr int64_t kDefaultContext = 32768;

// --content-tokens, where the command has it.
ContentTokens content_tokens_from_options(const Options& options);

// Text side, back end and model of a checkpoint, with progress on standard error. kExhausted when
// they would not fit in memory, kIo when a file changed while it was read.
Result<Runtime> open_runtime(const Options& options, const std::string& spec);
// How an engine is opened beside others.
struct EngineSetup {
  std::shared_ptr<CpuTeam> team = nullptr;
  std::function<void(double)> progress = {};  // 0 to 1
  bool quiet = false;                         // no progress on standard error
  KvEventSink* kv_events = nullptr;           // null, or outlives it
  const TenantBook* tenants = nullptr;        // likewise
  bool on_demand = false;  // options are meant for other models too: what this one lacks for
                           // --context, --draft-model or mtp it goes without
};
// The same with a running engine.
Result<Runtime> open_engine(const Options& options, const std::string& spec,
                            const EngineSetup& setup = {});

// The contents of a file or pipe, or of standard input for "-". kNotFound; kInvalidArgument for a
// folder.
Result<std::string> read_text(const std::string& path);

}  // namespace headrace
