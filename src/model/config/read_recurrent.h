// Which layers of a network are short convolutions or state space scans, and their sizes. For the
// readers of config.json and of GGUF files.
#pragma once

#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/gguf_keys.h"
#include "model/config/json_object.h"

namespace headrace {

// After all else has been read: each layer is one of attention. Of families without such layers
// nothing is read.
Status read_recurrent(const Family& family, const JsonObject& json, ModelConfig* config);
Status read_recurrent(const Family& family, const GgufKeys& keys, const Checkpoint& checkpoint,
                      ModelConfig* config);

}  // namespace headrace
