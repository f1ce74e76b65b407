// Mixture of experts: which experts the rows of a batch go to, and what those make of them.
//
// Rows that go to the same expert are brought together (slots), so that an expert's weights are
// read once per batch; each row's results are then summed in its own order. An expert's products
// are those of any linear layer: what else is in the batch never reaches a result bit.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

void run_experts(const CpuContext& context, const ExpertsArgs& args);

}  // namespace headrace::cpu
