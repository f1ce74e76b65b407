// The mixture of experts of each layer, from config.json and from GGUF keys, by the family's row.
// For config_json.cpp and config_gguf.cpp, after the sizes of the layers are read.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/gguf_keys.h"
#include "model/config/json_object.h"

namespace headrace {

// Layers that the row makes dense keep their intermediate_size, those with experts have none.
Status read_experts_json(const ExpertRow& row, const JsonObject& json, ModelConfig* config);

// A layer has experts where the file has their tensors, and what these tell is not asked of keys.
Status read_experts_gguf(const ExpertRow& row, const GgufKeys& keys, const Checkpoint& checkpoint,
                         ModelConfig* config);

}  // namespace headrace
