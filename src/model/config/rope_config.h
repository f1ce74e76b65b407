// Names of rope types, and what a file says of the factor on cos and sin: for the readers of
// configurations. Pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/config/config.h"

namespace headrace {

// "default", "linear", "dynamic", "llama3", "yarn", "longrope", "su", "proportional", "none";
// kUnsupported names others.
Result<RopeType> rope_type_named(std::string_view name);

// What a file says of the factor on cos and sin; 0: not given.
struct RopeMscale {
  double attention_factor = 0;
  double mscale = 0;
  double mscale_all_dim = 0;
};
// The factor that a file's settings amount to: 1 but for yarn and longrope.
double rope_attention_factor(const RopeConfig& rope, const RopeMscale& given);

}  // namespace headrace
