// The functions of each kind of MLP. For mlp.cpp, whose table names them, and the files of the
// kinds.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

void run_dense(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);
void run_plain(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);
void run_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                 const Branch& branch);

}  // namespace headrace
