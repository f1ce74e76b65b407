// Mixers: the part of a layer that lets tokens see each other. One function per
// kind; what weights it has, model/config/roles.cpp says.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// Runs the mixer of a layer, of whatever kind, with the layer's weights.
void run_mixer(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);

}  // namespace headrace
