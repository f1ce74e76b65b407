// Inputs of each layer: numbers that a layer gets of the token itself, not of what the layers
// before made of it (ModelConfig::hidden_size_per_layer_input, P).
//
//   once:   in = (E[id] sqrt(P) + N(W h0 H^-1/2)) / sqrt(2), P numbers for each layer, h0 the
//           embedding; N norms the numbers of each layer apart
//   layer:  x += post_norm(W_out(act(W_gate x) * in))
#pragma once

#include <span>

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// Fills Workspace::layer_inputs from the embedding in Workspace::hidden; `network` are the weights
// of the network.
void make_layer_inputs(const StepContext& step, const RoleWeights& network,
                       std::span<const int32_t> token_ids);

// The part of a layer after its MLP; the branch's input is x.
void add_layer_input(const StepContext& step, int layer_idx, const RoleWeights& weights,
                     const Branch& branch);

}  // namespace headrace
