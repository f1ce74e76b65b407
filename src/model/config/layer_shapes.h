// Layers of several shapes: full layers with heads of their own width and number, whose values may
// be their keys; last layers that read the keys and values of earlier ones and may have a wider
// MLP; inputs of each layer. For the readers of configurations, which have filled in what all
// layers have in common and which layers have a window.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/gguf_keys.h"
#include "model/config/json_object.h"

namespace headrace {

Status read_layer_shapes(const LayerShapesRow& row, const JsonObject& json, ModelConfig* config);
Status read_layer_shapes(const Checkpoint& checkpoint, const GgufKeys& keys, ModelConfig* config);

}  // namespace headrace
