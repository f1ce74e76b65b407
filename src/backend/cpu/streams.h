// Streams beside the residual one, and gates of which only what stands out is kept: host code over
// rows, cut among the team. What needs exp or tanh of few numbers has them in double precision,
// rounded once, so that the bits are those of no unit. Sums run in the order of the index.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

void run_mix_streams(const CpuContext& context, const StreamArgs& args);
void run_sparse_gate(const CpuContext& context, const SparseGateArgs& args);

}  // namespace headrace::cpu
