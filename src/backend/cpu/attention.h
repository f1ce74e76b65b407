// Division of KV appends and attention over the team.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/matmul.h"

namespace headrace::cpu {

void run_finish_qkv(const CpuContext& context, const QkvArgs& args);
void run_attention(const CpuContext& context, const AttentionArgs& args);

}  // namespace headrace::cpu
