// The functions of each kind of MLP. For mlp.cpp, whose table names them, and the files of the
// kinds.
#pragma once

#include "model/config/roles.h"
#include "model/step.h"
#include "model/weights.h"

namespace headrace {

void run_dense(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);
void run_plain(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);
void run_sparse(const StepContext& step, int layer_idx, const RoleWeights& weights,
                const Branch& branch);
void run_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                 const Branch& branch);
void run_dense_and_experts(const StepContext& step, int layer_idx, const RoleWeights& weights,
                           const Branch& branch);

// What an op of the layer's experts is told, but for input, epilogue, output and shared experts,
// with room in an array that begins at `floats`; where the router's logits lie is room.logits.
ExpertsArgs experts_of(const StepContext& step, const LayerConfig& layer,
                       const RoleWeights& weights, const ExpertRoom& room, DevicePtr<float> floats);

}  // namespace headrace
