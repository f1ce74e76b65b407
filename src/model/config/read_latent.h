// What the readers of configurations say of latent attention. For config_json.cpp and
// config_gguf.cpp.
#pragma once

#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/gguf_keys.h"
#include "model/config/json_object.h"

namespace headrace {

Result<LatentConfig> read_latent_json(const JsonObject& json, const LatentRow& row);
Result<LatentConfig> read_latent_gguf(const GgufKeys& keys, const LatentRow& row);

// The layer has latent attention, and nothing of another mixer.
void set_latent(const LatentConfig& latent, LayerConfig* layer);
// Once ropes and layers are read: scales of the layers with latent attention.
void set_latent_scales(ModelConfig* config);

}  // namespace headrace
