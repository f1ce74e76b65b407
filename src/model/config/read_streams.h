// Streams beside the residual one (AltUp), the low-rank branch beside attention (LAuReL) and MLPs
// whose gates keep what stands out: Gemma 3n. Sources: its configuration and modelling files as
// published, and its converter.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/gguf_keys.h"
#include "model/config/json_object.h"

namespace headrace {

// Nothing for families without StreamRow. Layers and their MLPs are there.
Status read_streams(const Family& family, const JsonObject& json, ModelConfig* config);
Status read_streams(const Family& family, const GgufKeys& keys, const Checkpoint& checkpoint,
                    ModelConfig* config);

// So many standard deviations above the mean is more than this share of a normal distribution.
double deviations_above(double share);

}  // namespace headrace
