// Runtime: a checkpoint opened for a command: its text side, a back end and the model on it.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "model/model.h"
#include "options.h"
#include "server/bundle.h"

namespace headrace {

struct Runtime {
  std::unique_ptr<Checkpoint> checkpoint;
  TextBundle text;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;  // stops before what it uses
};

// The file or folder that a model argument means: a path, or the name of a pulled model.
Result<std::string> find_model(const Options& options, const std::string& spec);
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const Options& options,
                                                    const std::string& spec);

Result<std::unique_ptr<Backend>> create_backend(const Options& options);
ModelOptions model_options(const Options& options);
KvType kv_type_from_options(const Options& options);
// Tokens per sequence: --context, else what the model was made for, at most kDefaultContext.
Result<int64_t> context_from_options(const Options& options, const ModelConfig& config);
inline constexpr int64_t kDefaultContext = 32768;

// Checkpoint, text side, back end and model, with progress on standard error.
Result<Runtime> open_runtime(const Options& options, const std::string& spec);
// The same with a running engine.
Result<Runtime> open_engine(const Options& options, const std::string& spec);

// The contents of a file, or of standard input for "-".
Result<std::string> read_text(const std::string& path);

}  // namespace headrace
