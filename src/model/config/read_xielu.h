// xIELU: an activation whose curve each layer has learned. Its numbers are tensors of a layer in
// safetensors files, lists in the keys of GGUF files. Sources: the xIELU paper; Apertus as
// published, and its converter.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"

namespace headrace {

// Fills LayerConfig::xielu of all layers if that is the network's activation.
Status read_xielu(const Checkpoint& checkpoint, ModelConfig* config);

}  // namespace headrace
