// What a router makes of one row's logits: which experts, with which weights.
//
// Plain functions on the host. Scores and weights are float32, made by way of float64, so that they
// do not depend on how the system's library rounds exp. A row's result depends on its own logits
// alone. What is no number never leads out of range: any experts may be chosen then, each once.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace headrace::cpu {

// Of one member; each has room for num_experts numbers.
struct RouterScratch {
  float* scores;     // weights come from these
  float* selection;  // what chooses
  float* groups;
  double* powers;
};

// A row's experts, best first, and their weights: [num_chosen], written.
struct Choice {
  int64_t num_experts;
  int64_t num_chosen;
  int32_t* experts;
  float* weights;
};

// logits [num_experts] of the row; args.logits is not read.
void choose_experts(const RouteArgs& args, const float* logits, const Choice& choice,
                    const RouterScratch& scratch);

}  // namespace headrace::cpu
