// Mixers: the part of a layer that lets tokens see each other. One function per kind.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// Softmax attention over the layer's KV cache.
void run_attention(const StepContext& step, int layer_idx, const AttentionWeights& weights,
                   const Branch& branch);

}  // namespace headrace
