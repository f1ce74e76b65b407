// What a router makes of one row's logits: which experts, with which weights.
//
// Plain functions on the host. Scores and weights are float32, made by way of float64, so that they
// do not depend on how the system's library rounds exp. A row's result depends on its own logits
// alone. What is no number never leads out of range: any experts may be chosen then, each once.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace headrace::cpu {

// Of one member; each has room for num_experts floats.
struct RouterScratch {
  float* scores;     // weights come from these
  float* selection;  // what chooses
  float* groups;
};

// Writes the num_chosen experts of a row, best first, and their weights.
void choose_experts(const RouteArgs& args, const Routing& routing, int64_t row,
                    const RouterScratch& scratch);

}  // namespace headrace::cpu
