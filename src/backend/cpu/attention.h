// Division of KV appends and attention over the team.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/matmul.h"

namespace headrace::cpu {

// Rows [first, end) of the batch: what run_finish_qkv shares out.
void finish_qkv_rows(const CpuContext& context, const QkvArgs& args, int64_t first, int64_t end);
void run_finish_qkv(const CpuContext& context, const QkvArgs& args);
void run_attention(const CpuContext& context, const AttentionArgs& args);

}  // namespace headrace::cpu
