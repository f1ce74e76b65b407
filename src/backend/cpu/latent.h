// Latent attention on the CPU: rows into planes, positions that an index keeps, tiles over a plane,
// and products per head. Cut into items as the plan of the step says (step_plan.h).
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

void run_append_row(const CpuContext& context, const AppendRowArgs& args);
void run_select_keys(const CpuContext& context, const SelectKeysArgs& args);
void run_latent_attention(const CpuContext& context, const LatentAttentionArgs& args);
void run_head_linear(const CpuContext& context, const HeadLinearArgs& args);

}  // namespace headrace::cpu
