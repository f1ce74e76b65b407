// The gated delta rule: inputs, recurrence and gated norm as phases of one op.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

void run_delta(const CpuContext& context, const DeltaArgs& args);

}  // namespace headrace::cpu
