// Mixers: the part of a layer that lets tokens see each other. One function per kind; what weights
// it has, model/config/roles.h says.
#pragma once

#include <vector>

#include "model/cache_groups.h"
#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// Runs the mixer of a layer, of whatever kind, with the layer's weights.
void run_mixer(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);

// The cache groups of a network: layers with the same policy and window are one group. Positions
// are stored as `type`, state as float32.
std::vector<CacheGroup> cache_groups_of(const ModelConfig& config, KvType type);

}  // namespace headrace
