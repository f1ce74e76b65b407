// The loop schedule of linear layers: who computes which panels, in which order, and the finish.
//
// Members claim groups of panels whose sums fit their scratch and walk the rows in blocks of
// kMaxTileRows. None of this reaches a result bit (kernels.h).
#pragma once

#include "backend/backend.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/team.h"
#include "backend/cpu/workspace.h"

namespace headrace::cpu {

// What every op runs with.
struct CpuContext {
  const KernelSet& kernels;
  Team& team;
  const CpuWorkspace& workspace;
};

struct LinearCall {
  const CpuWeight& weight;
  const float* x;  // [num_rows, K]
  int64_t num_rows;
  float* out;  // [num_rows, N]; gated: [num_rows, I]
};

void run_linear(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue);
void run_gated_linear(const CpuContext& context, const LinearCall& call, Activation activation,
                      const float* bias);
void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, float* out);

}  // namespace headrace::cpu
