// The part of a layer that works on each token alone. One function per kind.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// W_down(act(W_gate x) * W_up x).
void run_dense_mlp(const StepContext& step, const MlpWeights& weights, const Branch& branch);

}  // namespace headrace
