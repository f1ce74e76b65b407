// What a file says of a network's form (FormRow), for the readers of configurations.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/family.h"
#include "model/config/json_object.h"

namespace headrace {

// The first of the values that the file does not have, or null.
Result<const KeyValue*> first_unlike(const JsonObject& json, const KeyValues& values);

Result<bool> holds(const JsonObject& json, const BiasRule& rule);

// Both after sizes and scales; layers are there. kUnsupported names a key whose value would make
// another network.
Status read_form(const Family& family, const JsonObject& json, ModelConfig* config);
void read_form(const Family& family, const Checkpoint& gguf, ModelConfig* config);

}  // namespace headrace
