// Reads config.json (both generations of its keys) and GGUF keys into a ModelConfig.
//
// Pure functions of the file's text and tensor shapes; no weight is read. kNotFound names a missing
// key, kInvalidArgument a value of the wrong kind, kUnsupported what this version cannot run.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"

namespace headrace {

Result<ModelConfig> read_config_json(const Checkpoint& checkpoint);
Result<ModelConfig> read_config_gguf(const Checkpoint& checkpoint);

}  // namespace headrace
