// What every op of the CPU back end runs with. Views: the back end owns all of it.
#pragma once

#include "backend/cpu/adapters.h"
#include "backend/cpu/best_outputs.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/team/team.h"
#include "backend/cpu/workspace.h"

namespace headrace::cpu {

struct CpuContext {
  const KernelSet& kernels;
  Team& team;
  const CpuWorkspace& workspace;
  BestOutputs& best;
  StepAdapters& adapters;
};

}  // namespace headrace::cpu
