// check_config: whether this version can run the network that a configuration describes.
#pragma once

#include "base/result.h"
#include "model/config/config.h"

namespace headrace {

// Checks that every number is one the arithmetic can run with (kInvalidArgument names the field,
// the value found and what is needed), and that no layer has a value that the functions of its
// kinds would pass over (kUnsupported).
Status check_config(const ModelConfig& config);

}  // namespace headrace
